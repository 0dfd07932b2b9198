#include "server/image/exif.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"

/* TIFF 6.0: "II" or "MM", 42, the offset of IFD0; an IFD is a count and 12 bytes an entry: tag, type, count, value. */
#define EXIF_TAG_ORIENTATION 0x0112
#define EXIF_TAG_X_DENSITY 0x011a
#define EXIF_TAG_Y_DENSITY 0x011b
#define EXIF_TAG_DENSITY_UNIT 0x0128 /* 2: inch, 3: cm */
#define EXIF_TAG_SOFTWARE 0x0131
#define EXIF_TAG_THUMBNAIL 0x0201
#define EXIF_TAG_THUMBNAIL_SIZE 0x0202
#define EXIF_FRACTION 100u /* of a px an inch */
#define EXIF_DENSEST 4e7   /* px an inch that such fractions hold */
#define EXIF_TYPE_TEXT 2
#define EXIF_TYPE_SHORT 3
#define EXIF_TYPE_LONG 4
#define EXIF_TYPE_RATIONAL 5
#define EXIF_ENTRY 12
#define EXIF_ENTRIES 1000 /* of a directory; cameras write some dozens */

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

/* ---- changes ----------------------------------------------------------------------------------------------------- */

static void exif_put16(uint8_t *p, bool big, unsigned value)
{
    p[big ? 0 : 1] = (uint8_t)(value >> 8);
    p[big ? 1 : 0] = (uint8_t)value;
}

static void exif_put32(uint8_t *p, bool big, uint32_t value)
{
    exif_put16(p + (big ? 0 : 2), big, value >> 16);
    exif_put16(p + (big ? 2 : 0), big, value & 0xffff);
}

/* A directory of a block. */
struct exif_part {
    uint8_t *entries; /* NULL: there is none */
    unsigned count;
    uint32_t next; /* where the next one is, or 0 */
};

/* The one at an offset; all of its entries lie in the block. */
static struct exif_part exif_part(const uint8_t *tiff, size_t size, bool big, uint32_t at)
{
    struct exif_part part = {NULL, 0, 0};
    if (at < 8 || size < 6 || at > size - 6)
        return part;
    const unsigned count = exif_u16(tiff + at, big);
    if (!count || count > EXIF_ENTRIES || (size - at - 6) / EXIF_ENTRY < count)
        return part;
    part.entries = (uint8_t *)(uintptr_t)tiff + at + 2;
    part.count = count;
    part.next = exif_u32(part.entries + (size_t)count * EXIF_ENTRY, big);
    return part;
}

/* The first one. */
static struct exif_part exif_first(const uint8_t *tiff, size_t size, bool *big)
{
    if (size < 14 || tiff[0] != tiff[1] || (tiff[0] != 'I' && tiff[0] != 'M'))
        return (struct exif_part){NULL, 0, 0};
    *big = tiff[0] == 'M';
    if (exif_u16(tiff + 2, *big) != 42)
        return (struct exif_part){NULL, 0, 0};
    return exif_part(tiff, size, *big, exif_u32(tiff + 4, *big));
}

static uint8_t *exif_entry(const struct exif_part *part, bool big, unsigned tag)
{
    for (unsigned i = 0; i < part->count; i++)
        if (exif_u16(part->entries + (size_t)i * EXIF_ENTRY, big) == tag)
            return part->entries + (size_t)i * EXIF_ENTRY;
    return NULL;
}

/* An entry's only number; 0: it is of another kind. */
static uint32_t exif_value(const uint8_t *entry, bool big)
{
    if (!entry || exif_u32(entry + 4, big) != 1)
        return 0;
    const unsigned type = exif_u16(entry + 2, big);
    return type == EXIF_TYPE_SHORT ? exif_u16(entry + 8, big) : type == EXIF_TYPE_LONG ? exif_u32(entry + 8, big) : 0;
}

uint32_t exif_number(const uint8_t *tiff, size_t size, unsigned tag)
{
    bool big = false;
    const struct exif_part first = exif_first(tiff, size, &big);
    return exif_value(exif_entry(&first, big, tag), big);
}

/* Where an entry's fraction is, or NULL. */
static uint8_t *exif_fraction(const uint8_t *tiff, size_t size, bool big, const uint8_t *entry)
{
    if (!entry || exif_u16(entry + 2, big) != EXIF_TYPE_RATIONAL || exif_u32(entry + 4, big) != 1)
        return NULL;
    const uint32_t at = exif_u32(entry + 8, big);
    return size >= 8 && at >= 8 && at <= size - 8 ? (uint8_t *)(uintptr_t)tiff + at : NULL;
}

double exif_density(const uint8_t *tiff, size_t size)
{
    bool big = false;
    const struct exif_part first = exif_first(tiff, size, &big);
    const uint8_t *at = exif_fraction(tiff, size, big, exif_entry(&first, big, EXIF_TAG_X_DENSITY));
    const uint32_t unit = exif_value(exif_entry(&first, big, EXIF_TAG_DENSITY_UNIT), big);
    if (!at || !exif_u32(at + 4, big) || (unit && unit != 2 && unit != 3))
        return 0;
    return (double)exif_u32(at, big) / exif_u32(at + 4, big) * (unit == 3 ? 2.54 : 1);
}

static void exif_set_number(uint8_t *entry, bool big, int value)
{
    if (!exif_value(entry, big))
        return;
    exif_put16(entry + 2, big, EXIF_TYPE_LONG);
    exif_put32(entry + 8, big, (uint32_t)value);
}

static void exif_scale(uint8_t *fraction, bool big, double scale)
{
    const uint32_t above = fraction ? exif_u32(fraction, big) : 0, below = fraction ? exif_u32(fraction + 4, big) : 0;
    if (!above || !below)
        return;
    const double value = (double)above / below * scale, by = floor(value) == value ? 1 : 1000;
    if (value * by > UINT32_MAX)
        return;
    exif_put32(fraction, big, (uint32_t)(value * by + 0.5));
    exif_put32(fraction + 4, big, (uint32_t)by);
}

/* Erases what an entry points to, and the entry. */
static void exif_erase(uint8_t *tiff, size_t size, bool big, uint8_t *entry)
{
    static const uint8_t bytes[13] = {0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8};
    const unsigned type = exif_u16(entry + 2, big);
    const uint64_t length = type < sizeof bytes ? (uint64_t)bytes[type] * exif_u32(entry + 4, big) : 0;
    const uint32_t at = exif_u32(entry + 8, big);
    if (length > 4 && at >= 8 && at <= size && length <= size - at)
        memset(tiff + at, 0, (size_t)length);
    memset(entry, 0, EXIF_ENTRY);
}

static void exif_erase_part(uint8_t *tiff, size_t size, bool big, const struct exif_part *part)
{
    for (unsigned i = 0; i < part->count; i++)
        exif_erase(tiff, size, big, part->entries + (size_t)i * EXIF_ENTRY);
}

/* The directory of the thumbnail and the thumbnail. What was at the block's end is cut off. */
static void exif_drop_thumbnail(struct image_blob *exif, bool big, uint32_t at)
{
    const struct exif_part part = exif_part(exif->data, exif->size, big, at);
    if (!part.entries)
        return;
    const uint32_t from = exif_value(exif_entry(&part, big, EXIF_TAG_THUMBNAIL), big),
                   length = exif_value(exif_entry(&part, big, EXIF_TAG_THUMBNAIL_SIZE), big);
    const bool there = from >= 8 && from <= exif->size && length <= exif->size - from;
    exif_erase_part(exif->data, exif->size, big, &part);
    if (there && length)
        memset(exif->data + from, 0, length);
    if (there && from + (size_t)length == exif->size && from > at)
        exif->size = from;
}

/* An entry that is added. */
struct exif_added {
    unsigned tag, type;
    uint32_t count, value; /* or where the value is */
};

static uint8_t *exif_add(uint8_t *to, bool big, const struct exif_added *added)
{
    exif_put16(to, big, added->tag);
    exif_put16(to + 2, big, added->type);
    exif_put32(to + 4, big, added->count);
    if (added->type == EXIF_TYPE_SHORT)
        exif_put16(to + 8, big, added->value);
    else
        exif_put32(to + 8, big, added->value);
    return to + EXIF_ENTRY;
}

/* The first directory again at the block's end, with who made it and the resolution. */
static enum error_code exif_append(struct image_blob *exif, bool big, const struct exif_part *first,
                                   const struct exif_change *change, struct error *err)
{
    const bool dense = change->density[0] > 0 && change->density[1] > 0 && change->density[0] < EXIF_DENSEST &&
                       change->density[1] < EXIF_DENSEST && !exif_entry(first, big, EXIF_TAG_X_DENSITY);
    const size_t text = change->software ? strlen(change->software) + 1 : 0, start = (exif->size + 1) & ~(size_t)1;
    const size_t words = start + (dense ? 16 : 0), directory = words + ((text + 1) & ~(size_t)1);
    const size_t total = directory + 2 + (size_t)(first->count + 4) * EXIF_ENTRY + 4;
    uint8_t *data = total <= UINT32_MAX ? mem_calloc(total, 1) : NULL, *to = data + directory + 2;
    struct exif_added added[4];
    unsigned count = 0, next = 0;
    if (!data)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a picture's metadata (%zu bytes)", total);
    memcpy(data, exif->data, exif->size);
    for (unsigned i = 0; i < 2 && dense; i++) {
        exif_put32(data + start + 8 * i, big, (uint32_t)(change->density[i] * EXIF_FRACTION + 0.5));
        exif_put32(data + start + 8 * i + 4, big, EXIF_FRACTION);
        added[count++] = (struct exif_added){EXIF_TAG_X_DENSITY + i, EXIF_TYPE_RATIONAL, 1, (uint32_t)(start + 8 * i)};
    }
    if (dense)
        added[count++] = (struct exif_added){EXIF_TAG_DENSITY_UNIT, EXIF_TYPE_SHORT, 1, 2};
    if (text) { /* no name of ours is of less than four letters, which would lie in the entry */
        memcpy(data + words, change->software, text);
        added[count++] = (struct exif_added){EXIF_TAG_SOFTWARE, EXIF_TYPE_TEXT, (uint32_t)text, (uint32_t)words};
    }
    for (unsigned i = 0; i < first->count; i++) {
        const uint8_t *entry = first->entries + (size_t)i * EXIF_ENTRY;
        const unsigned tag = exif_u16(entry, big);
        bool again = !tag; /* 0: erased */
        while (next < count && added[next].tag <= tag)
            to = exif_add(to, big, &added[next++]);
        for (unsigned k = 0; k < count; k++)
            again = again || added[k].tag == tag;
        if (!again)
            to = (uint8_t *)memcpy(to, entry, EXIF_ENTRY) + EXIF_ENTRY;
    }
    while (next < count)
        to = exif_add(to, big, &added[next++]);
    exif_put16(data + directory, big, (unsigned)((size_t)(to - data - 2) - directory) / EXIF_ENTRY);
    exif_put32(data + 4, big, (uint32_t)directory);
    free(exif->data);
    *exif = (struct image_blob){data, (size_t)(to + 4 - data)};
    return OK;
}

enum error_code exif_create(struct image_blob *exif, struct error *err)
{
    static const uint8_t empty[8 + 2 + EXIF_ENTRY + 4] = "II*\0\10\0\0\0\1"; /* one entry, which counts as erased */
    return image_blob_set(exif, empty, sizeof empty, err);
}

enum error_code exif_change(struct image_blob *exif, const struct exif_change *change, struct error *err)
{
    static const unsigned sizes[][2] = {{0x0100, 0x0101}, {0xa002, 0xa003}}; /* in the first; in the one of EXIF */
    bool big = false;
    struct exif_part first = exif_first(exif->data, exif->size, &big);
    if (!first.entries) {
        if (change->no_gps) {
            free(exif->data);
            *exif = (struct image_blob){0};
        }
        return OK;
    }
    const struct exif_part inner =
        exif_part(exif->data, exif->size, big, exif_number(exif->data, exif->size, EXIF_TAG_DIRECTORY));
    for (int i = 0; i < 2; i++) {
        const struct exif_part *part = i ? &inner : &first;
        exif_set_number(exif_entry(part, big, sizes[i][0]), big, change->width);
        exif_set_number(exif_entry(part, big, sizes[i][1]), big, change->height);
    }
    for (unsigned tag = EXIF_TAG_X_DENSITY; tag <= EXIF_TAG_Y_DENSITY; tag++)
        exif_scale(exif_fraction(exif->data, exif->size, big, exif_entry(&first, big, tag)), big,
                   change->scale[tag - EXIF_TAG_X_DENSITY]);
    uint8_t *gps = change->no_gps ? exif_entry(&first, big, EXIF_TAG_GPS) : NULL;
    if (gps) {
        const struct exif_part place = exif_part(exif->data, exif->size, big, exif_value(gps, big));
        exif_erase_part(exif->data, exif->size, big, &place);
        memset(gps, 0, EXIF_ENTRY);
    }
    if (first.next)
        exif_drop_thumbnail(exif, big, first.next);
    first = exif_first(exif->data, exif->size, &big); /* what was cut off may have been it */
    if (first.entries)
        return exif_append(exif, big, &first, change, err);
    free(exif->data);
    *exif = (struct image_blob){0};
    return OK;
}
