#include "server/image/exif.h"

#include <stdbool.h>

/* TIFF 6.0: "II" or "MM", 42, the offset of IFD0; an IFD is a count and 12 bytes an entry: tag, type, count, value. */
#define EXIF_TAG_ORIENTATION 0x0112
#define EXIF_TYPE_SHORT 3

static unsigned exif_u16(const uint8_t *p, bool big)
{
    return big ? p[0] * 256u + p[1] : p[1] * 256u + p[0];
}

static uint32_t exif_u32(const uint8_t *p, bool big)
{
    uint32_t first = exif_u16(p, big), second = exif_u16(p + 2, big);
    return big ? first << 16 | second : second << 16 | first;
}

/* Offset of the two bytes of the tag's value, or 0. */
static size_t exif_find(const uint8_t *tiff, size_t size, bool *big)
{
    if (size < 8 || tiff[0] != tiff[1] || (tiff[0] != 'I' && tiff[0] != 'M'))
        return 0;
    *big = tiff[0] == 'M';
    size_t at = exif_u32(tiff + 4, *big);
    if (exif_u16(tiff + 2, *big) != 42 || at < 8 || at > size - 2)
        return 0;
    unsigned count = exif_u16(tiff + at, *big);
    at += 2;
    for (unsigned i = 0; i < count && size - at >= 12; i++, at += 12)
        if (exif_u16(tiff + at, *big) == EXIF_TAG_ORIENTATION)
            return exif_u16(tiff + at + 2, *big) == EXIF_TYPE_SHORT && exif_u32(tiff + at + 4, *big) == 1 ? at + 8 : 0;
    return 0;
}

int exif_orientation(const uint8_t *tiff, size_t size)
{
    bool big = false;
    size_t at = exif_find(tiff, size, &big);
    unsigned value = at ? exif_u16(tiff + at, big) : 1;
    return value >= 1 && value <= 8 ? (int)value : 1;
}

void exif_reset_orientation(uint8_t *tiff, size_t size)
{
    bool big = false;
    size_t at = exif_find(tiff, size, &big);
    if (at) {
        tiff[at] = big ? 0 : 1;
        tiff[at + 1] = big ? 1 : 0;
    }
}
