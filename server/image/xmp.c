#include "server/image/xmp.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"

static bool xmp_is_name(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == ':' || c == '-' ||
           c == '_' || c == '.' || c > 127;
}

static bool xmp_is_space(uint8_t c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* A property in the packet: offsets. */
struct xmp_found {
    size_t begin, end;             /* all of it */
    size_t value_begin, value_end; /* its text; equal if it has none that is plain */
    size_t name_end;
};

/* The end of an element whose tag begins at `at` ("<name"). 0: it does not end. */
static size_t xmp_element_end(const uint8_t *text, size_t size, const struct xmp_found *found)
{
    const size_t length = found->name_end - found->begin - 1;
    const uint8_t *close = memchr(text + found->name_end, '>', size - found->name_end);
    if (!close)
        return 0;
    if (close[-1] == '/')
        return (size_t)(close - text) + 1;
    for (size_t at = (size_t)(close - text); at + length + 3 <= size; at++)
        if (text[at] == '<' && text[at + 1] == '/' && !memcmp(text + at + 2, text + found->begin + 1, length) &&
            text[at + 2 + length] == '>')
            return at + length + 3;
    return 0;
}

/* The next property from `at` on whose name begins so, or is it. */
static bool xmp_find(const struct image_blob *xmp, size_t at, const char *name, bool whole, struct xmp_found *out)
{
    const uint8_t *text = xmp->data;
    const size_t length = strlen(name);
    for (; at + length < xmp->size; at++) {
        if (memcmp(text + at, name, length) != 0 || at == 0)
            continue;
        size_t end = at + length;
        while (end < xmp->size && xmp_is_name(text[end]))
            end++;
        if (end >= xmp->size || (whole && end != at + length))
            continue;
        *out = (struct xmp_found){.name_end = end};
        if (text[at - 1] == '<') {
            out->begin = at - 1;
            out->end = xmp_element_end(text, xmp->size, out);
            if (!out->end)
                continue;
            if (text[end] == '>') {
                out->value_begin = out->value_end = end + 1;
                while (text[out->value_end] != '<')
                    out->value_end++;
                if (out->value_end + (end - at) + 3 != out->end) /* elements in it */
                    out->value_end = out->value_begin;
            }
            return true;
        }
        if (!xmp_is_space(text[at - 1]))
            continue;
        out->begin = at - 1;
        while (end < xmp->size && (xmp_is_space(text[end]) || text[end] == '='))
            end++;
        const uint8_t *quote = end < xmp->size && (text[end] == '"' || text[end] == '\'')
                                   ? memchr(text + end + 1, text[end], xmp->size - end - 1)
                                   : NULL;
        if (!quote)
            continue;
        out->value_begin = end + 1;
        out->value_end = (size_t)(quote - text);
        out->end = out->value_end + 1;
        return true;
    }
    return false;
}

enum error_code xmp_set(struct image_blob *xmp, const char *name, const char *value, struct error *err)
{
    const size_t length = strlen(value);
    struct xmp_found found;
    for (size_t at = 0; xmp->data && xmp_find(xmp, at, name, true, &found);) {
        at = found.end;
        if (found.value_end == found.value_begin)
            continue;
        const size_t behind = xmp->size - found.value_end, size = found.value_begin + length + behind;
        uint8_t *data = mem_alloc(size, 1);
        if (!data)
            return error_set(err, ERROR_NO_MEMORY, "out of memory for a picture's metadata (%zu bytes)", size);
        memcpy(data, xmp->data, found.value_begin);
        memcpy(data + found.value_begin, value, length);
        memcpy(data + found.value_begin + length, xmp->data + found.value_end, behind);
        at = found.value_begin + length;
        free(xmp->data);
        *xmp = (struct image_blob){data, size};
    }
    return OK;
}

void xmp_remove(struct image_blob *xmp, const char *begin)
{
    struct xmp_found found;
    for (size_t at = 0; xmp->data && xmp_find(xmp, at, begin, false, &found); at = found.begin) {
        memmove(xmp->data + found.begin, xmp->data + found.end, xmp->size - found.end);
        xmp->size -= found.end - found.begin;
    }
}
