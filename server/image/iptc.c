#include "server/image/iptc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"

#define IPTC_RESOURCE 0x0404
#define IPTC_MARKER 0x1c /* begins each record */
#define IPTC_HEAD 5      /* marker, record, data set, two bytes of length */
#define IPTC_LINE 36     /* bytes of a line of text */

/* Adobe Photoshop File Formats, "Image Resource Blocks": "8BIM", an id, a name of a length byte and even in all, a size
 * of 4 bytes, data padded to even. */
const uint8_t *iptc_find(const uint8_t *resources, size_t size, size_t *out_size)
{
    for (size_t at = 0; size - at >= 12 && memcmp(resources + at, "8BIM", 4) == 0;) {
        const uint8_t *p = resources + at;
        const unsigned id = p[4] * 256u + p[5];
        const size_t head = 6 + (size_t)(p[6] | 1) + 1 + 4, left = size - at;
        if (left < head)
            return NULL;
        p += head - 4;
        const size_t length = (size_t)p[0] << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3];
        if (length > left - head)
            return NULL;
        if (id == IPTC_RESOURCE && length) {
            *out_size = length;
            return p + 4;
        }
        if (length + (length & 1) > left - head)
            return NULL;
        at += head + length + (length & 1);
    }
    return NULL;
}

enum error_code iptc_wrap(const struct image_blob *iptc, struct image_blob *out, struct error *err)
{
    const size_t size = 12 + iptc->size + (iptc->size & 1);
    uint8_t *data = iptc->size <= UINT32_MAX ? mem_calloc(size, 1) : NULL;
    *out = (struct image_blob){0};
    if (!data)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a picture's metadata (%zu bytes)", size);
    memcpy(data, "8BIM\4\4", 6);
    for (int i = 0; i < 4; i++)
        data[8 + i] = (uint8_t)(iptc->size >> (24 - 8 * i));
    memcpy(data + 12, iptc->data, iptc->size);
    *out = (struct image_blob){data, size};
    return OK;
}

/* How many bytes the records take before zeros up to a number of four bytes; 0: the last one is cut off. IIM 4.2, 1.6:
 * a length with its highest bit says how many bytes the length has that follow. */
static size_t iptc_length(const uint8_t *records, size_t size)
{
    size_t at = 0;
    while (size - at >= IPTC_HEAD && records[at] == IPTC_MARKER) {
        size_t head = IPTC_HEAD, length = (size_t)records[at + 3] << 8 | records[at + 4];
        if (length & 0x8000) {
            const size_t digits = length & 0x7fff;
            if (digits > 4 || digits > size - at - head)
                return 0;
            length = 0;
            for (size_t i = 0; i < digits; i++)
                length = length << 8 | records[at + head + i];
            head += digits;
        }
        if (length > size - at - head)
            return 0;
        at += head + length;
    }
    for (size_t i = at; i < size; i++)
        if (records[i] || i - at == 3)
            return 0;
    return at;
}

const uint8_t *iptc_records(const uint8_t *data, size_t size, size_t *out_size, bool *out_cut)
{
    static const char name[] = "Photoshop 3.0"; /* and its end */
    *out_cut = false;
    if (!size)
        return NULL;
    if (*data == IPTC_MARKER) {
        const size_t length = iptc_length(data, size);
        *out_cut = !length;
        *out_size = length ? length : size;
        return data;
    }
    const size_t head = size > sizeof name && memcmp(data, name, sizeof name) == 0 ? sizeof name : 0;
    return iptc_find(data + head, size - head, out_size);
}

enum error_code iptc_print(const struct image_blob *iptc, char **out, struct error *err)
{
    struct image_blob resources;
    enum error_code code = iptc_wrap(iptc, &resources, err);
    if (code)
        return code;
    const size_t room = 32 + 2 * resources.size + resources.size / IPTC_LINE + 2;
    char *text = mem_alloc(room, 1), *to = text;
    if (text) {
        to += snprintf(text, 32, "\niptc\n%8zu\n", resources.size);
        for (size_t i = 0; i < resources.size; i++) {
            *to++ = "0123456789abcdef"[resources.data[i] >> 4];
            *to++ = "0123456789abcdef"[resources.data[i] & 15];
            if (i % IPTC_LINE == IPTC_LINE - 1 || i + 1 == resources.size)
                *to++ = '\n';
        }
        *to = '\0';
    }
    free(resources.data);
    *out = text;
    return text ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory for a picture's metadata (%zu bytes)", room);
}

static int iptc_digit(uint8_t c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Where the digits begin behind the two lines, and how many bytes they say; 0: it is no such text. */
static size_t iptc_heading(const uint8_t *text, size_t size, size_t *out_bytes)
{
    size_t at = 0;
    *out_bytes = 0;
    while (at < size && text[at] == '\n')
        at++;
    while (at < size && text[at] != '\n')
        at++;
    while (at < size && (text[at] == '\n' || text[at] == ' '))
        at++;
    for (; at < size && text[at] >= '0' && text[at] <= '9' && *out_bytes <= size; at++)
        *out_bytes = 10 * *out_bytes + (size_t)(text[at] - '0');
    return *out_bytes && *out_bytes <= (size - at) / 2 ? at : 0;
}

enum error_code iptc_parse(const uint8_t *text, size_t size, struct image_blob *out, struct error *err)
{
    size_t bytes, count = 0, length = 0, at = iptc_heading(text, size, &bytes);
    uint8_t *list = at ? mem_alloc(bytes, 1) : NULL;
    if (at && !list)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a picture's metadata (%zu bytes)", bytes);
    for (; list && at < size && count < 2 * bytes; at++) {
        const int digit = iptc_digit(text[at]);
        if (digit < 0)
            continue;
        list[count / 2] = (uint8_t)(count % 2 ? list[count / 2] << 4 | digit : digit);
        count++;
    }
    bool cut;
    const uint8_t *records = list && count == 2 * bytes ? iptc_records(list, bytes, &length, &cut) : NULL;
    const enum error_code code = records ? image_blob_set(out, records, length, err) : OK;
    free(list);
    return code;
}
