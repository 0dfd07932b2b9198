#include "server/image/iptc.h"

#include <string.h>

#include "runtime/base/mem.h"

#define IPTC_RESOURCE 0x0404

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
