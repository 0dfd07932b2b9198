#include "runtime/base/utf8.h"

#include <stdio.h>
#include <string.h>

size_t utf8_size(const char *text)
{
    static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *at = (const unsigned char *)text;
    size_t size = *at < 0x80                  ? 1
                  : *at >= 0xc2 && *at < 0xe0 ? 2
                  : (*at & 0xf0) == 0xe0      ? 3
                  : *at >= 0xf0 && *at < 0xf5 ? 4
                                              : 0;
    if (size < 2)
        return size;
    unsigned code = *at & (0x7fu >> size);
    for (size_t i = 1; i < size; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (at[i] & 0x3fu);
    }
    return code < least[size] || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff ? 0 : size;
}

bool utf8_valid(const char *text)
{
    while (*text) {
        size_t size = utf8_size(text);
        if (!size)
            return false;
        text += size;
    }
    return true;
}

char *utf8_copy(char *out, size_t size, const char *text)
{
    size_t used = 0;
    while (*text) {
        size_t width = utf8_size(text), taken = width ? width : 1;
        if (used + taken >= size)
            break;
        memcpy(out + used, width ? text : "?", taken);
        used += taken;
        text += taken;
    }
    out[used] = 0;
    return out;
}

/* Bytes of the character at text; 0 if there is none, or if it is a control character (C0, DEL, C1). */
static size_t utf8_printable(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    if (*at < 0x20 || *at == 0x7f || (at[0] == 0xc2 && at[1] < 0xa0))
        return 0;
    return utf8_size(text);
}

char *utf8_escape(char *out, size_t size, const char *text)
{
    size_t used = 0;
    while (*text) {
        size_t width = utf8_printable(text), taken = width ? width : 4;
        if (used + taken >= size)
            break;
        if (width)
            memcpy(out + used, text, width);
        else
            snprintf(out + used, size - used, "\\x%02X", (unsigned char)*text);
        used += taken;
        text += width ? width : 1;
    }
    out[used] = 0;
    return out;
}

void utf8_clean(char *text)
{
    while (*text) {
        size_t width = utf8_printable(text);
        if (!width)
            *text = '?';
        text += width ? width : 1;
    }
}
