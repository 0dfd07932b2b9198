#include "server/image/icc.h"

#include <string.h>

/* ICC.1:2022, 7.2 and 7.3: a header of 128 bytes, the number of tags, then 12 bytes a tag. */
#define ICC_HEADER 128
#define ICC_SPACE_AT 16
#define ICC_MAGIC_AT 36

static uint32_t icc_u32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

enum icc_space icc_space(const uint8_t *profile, size_t size)
{
    if (size < ICC_HEADER + 4 || memcmp(profile + ICC_MAGIC_AT, "acsp", 4) != 0)
        return ICC_NONE;
    if (memcmp(profile + ICC_SPACE_AT, "RGB ", 4) == 0)
        return ICC_RGB;
    return memcmp(profile + ICC_SPACE_AT, "GRAY", 4) == 0 ? ICC_GRAY : ICC_OTHER;
}

bool icc_is_srgb(const uint8_t *profile, size_t size)
{
    static const char ascii[4] = "sRGB", utf16[8] = "\0s\0R\0G\0B"; /* version 2 and version 4 texts */
    if (icc_space(profile, size) != ICC_RGB)
        return false;
    size_t tags = icc_u32(profile + ICC_HEADER), room = (size - ICC_HEADER - 4) / 12;
    const uint8_t *tag = profile + ICC_HEADER + 4;
    for (size_t i = 0; i < tags && i < room; i++, tag += 12) {
        size_t at = icc_u32(tag + 4), length = icc_u32(tag + 8);
        if (memcmp(tag, "desc", 4) != 0 || at > size || length > size - at)
            continue;
        return memmem(profile + at, length, ascii, sizeof ascii) || memmem(profile + at, length, utf16, sizeof utf16);
    }
    return false;
}
