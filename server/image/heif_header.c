#include "server/image/heif_header.h"

#include <string.h>

#include "server/image/codec_row.h"

#define HEIF_BOXES 4096 /* in any one box */
#define HEIF_REFERENCES 8192
#define HEIF_PLANES 16  /* beside a picture that are looked at for alpha */
#define HEIF_ITEMS 2048 /* a picture of 64 megapixels has some 300 tiles */

struct heif_part {
    const uint8_t *data; /* NULL: not there */
    size_t size;
};

struct heif_walk {
    struct heif_part pitm, iinf, iref, ipco, ipma;
    int item_count;
    struct {
        uint32_t id;
        bool picture, below; /* below: a part, thumbnail or plane of another one */
    } items[HEIF_ITEMS];
};

/* The first child of that type. */
static struct heif_part heif_child(const uint8_t *data, size_t size, const char *type)
{
    struct codec_box box;
    const uint8_t *at = data, *end = data ? data + size : NULL;
    for (int i = 0; data && i < HEIF_BOXES && codec_next_box(&at, end, &box); i++)
        if (memcmp(box.type, type, 4) == 0)
            return (struct heif_part){box.data, box.size};
    return (struct heif_part){0};
}

/* The next number of that many bytes; false at the end. */
static bool heif_take(struct heif_part *in, int count, uint32_t *out)
{
    if (in->size < (size_t)count)
        return false;
    *out = (uint32_t)codec_big(in->data, count);
    in->data += count;
    in->size -= (size_t)count;
    return true;
}

static int heif_find(const struct heif_walk *walk, uint32_t id)
{
    for (int i = 0; i < walk->item_count; i++)
        if (walk->items[i].id == id)
            return i;
    return -1;
}

/* Entries of iinf: version 2 has ids of 16 bits, 3 of 32; then a protection index and the type. */
static void heif_read_items(struct heif_walk *walk)
{
    static const char pictures[] = "hvc1av01gridideniovlvvc1jpegavc1j2k1";
    struct heif_part in = walk->iinf;
    uint32_t version, count;
    struct codec_box box;
    if (!heif_take(&in, 4, &version) || !heif_take(&in, version >> 24 ? 4 : 2, &count))
        return;
    for (const uint8_t *at = in.data, *end = at + in.size; codec_next_box(&at, end, &box);) {
        struct heif_part entry = {box.data, box.size};
        uint32_t head, id, skipped;
        if (walk->item_count == HEIF_ITEMS || memcmp(box.type, "infe", 4) != 0 || !heif_take(&entry, 4, &head) ||
            head >> 24 < 2 || !heif_take(&entry, head >> 24 == 2 ? 2 : 4, &id) || !heif_take(&entry, 2, &skipped) ||
            entry.size < 4)
            break;
        bool picture = false;
        for (const char *type = pictures; *type && !picture; type += 4)
            picture = memcmp(entry.data, type, 4) == 0;
        walk->items[walk->item_count].id = id;
        walk->items[walk->item_count++].picture = picture && !(head & 1); /* 1: hidden */
    }
}

/* Calls fn for each reference: its type, from which item, to which. */
static void heif_each_reference(const struct heif_walk *walk, void *context,
                                void (*fn)(void *context, const uint8_t *type, uint32_t from, uint32_t to))
{
    struct heif_part in = walk->iref;
    uint32_t version;
    struct codec_box box;
    if (!in.data || !heif_take(&in, 4, &version))
        return;
    const int width = version >> 24 ? 4 : 2;
    const uint8_t *at = in.data, *end = at + in.size;
    for (int left = HEIF_REFERENCES; left > 0 && codec_next_box(&at, end, &box); left--) {
        struct heif_part list = {box.data, box.size};
        uint32_t from, count, to;
        if (!heif_take(&list, width, &from) || !heif_take(&list, 2, &count))
            return;
        for (uint32_t k = 0; k < count && left > 0 && heif_take(&list, width, &to); k++, left--)
            fn(context, box.type, from, to);
    }
}

static void heif_mark_below(void *context, const uint8_t *type, uint32_t from, uint32_t to)
{
    struct heif_walk *walk = context;
    const bool thumbnail = memcmp(type, "thmb", 4) == 0 || memcmp(type, "auxl", 4) == 0;
    const int i = thumbnail ? heif_find(walk, from) : memcmp(type, "dimg", 4) == 0 ? heif_find(walk, to) : -1;
    if (i >= 0)
        walk->items[i].below = true;
}

/* The property with that number, from 1; its type in *type. */
static struct heif_part heif_property(const struct heif_walk *walk, uint32_t number, const uint8_t **type)
{
    struct codec_box box;
    const uint8_t *at = walk->ipco.data, *end = at ? at + walk->ipco.size : NULL;
    for (uint32_t i = 1; at && i <= number && i < HEIF_BOXES && codec_next_box(&at, end, &box); i++)
        if (i == number) {
            *type = box.type;
            return (struct heif_part){box.data, box.size};
        }
    return (struct heif_part){0};
}

/* Calls fn for each property of an item, in order. */
static void heif_each_property(const struct heif_walk *walk, uint32_t item, void *context,
                               void (*fn)(void *context, const uint8_t *type, struct heif_part property))
{
    struct heif_part in = walk->ipma;
    uint32_t head, entries, id, count, number;
    if (!heif_take(&in, 4, &head) || !heif_take(&in, 4, &entries))
        return;
    for (uint32_t i = 0; i < entries; i++) {
        if (!heif_take(&in, head >> 24 ? 4 : 2, &id) || !heif_take(&in, 1, &count))
            return;
        for (uint32_t k = 0; k < count; k++) {
            const uint8_t *type = NULL;
            if (!heif_take(&in, head & 1 ? 2 : 1, &number))
                return;
            number &= head & 1 ? 0x7fff : 0x7f;
            const struct heif_part property = id == item ? heif_property(walk, number, &type) : (struct heif_part){0};
            if (property.data)
                fn(context, type, property);
        }
        if (id == item)
            return;
    }
}

/* Rounds a fraction of the header to the nearest whole number, halves away from zero, as libheif does. */
static int64_t heif_round(int64_t numerator, int64_t denominator)
{
    return numerator >= 0 ? (numerator + denominator / 2) / denominator
                          : -((-numerator + denominator / 2) / denominator);
}

/* How long a side is within the clean aperture: its length and offset as fractions. */
static uint32_t heif_crop(uint32_t side, const uint8_t *length, const uint8_t *offset)
{
    const int64_t n = (int32_t)codec_big(length, 4), d = (int32_t)codec_big(length + 4, 4),
                  on = (int32_t)codec_big(offset, 4), od = (int32_t)codec_big(offset + 4, 4);
    if (d <= 0 || od <= 0 || n <= 0 || !side || d > 65536 || od > 65536)
        return 0;
    const int64_t whole = 2 * d * od;                                               /* common denominator */
    const int64_t first = (int64_t)(side - 1) * d * od - (n - d) * od + 2 * on * d; /* (side-1)/2 - (n/d-1)/2 + on/od */
    int64_t begin = heif_round(first, whole), end = heif_round(first + (n - d) * 2 * od, whole);
    begin = begin < 0 ? 0 : begin;
    end = end > (int64_t)side - 1 ? (int64_t)side - 1 : end;
    return begin > end ? 0 : (uint32_t)(end - begin + 1);
}

static void heif_apply(void *context, const uint8_t *type, struct heif_part property)
{
    struct heif_header *out = context;
    const uint8_t *data = property.data;
    if (memcmp(type, "ispe", 4) == 0 && property.size >= 12) {
        out->width = (uint32_t)codec_big(data + 4, 4);
        out->height = (uint32_t)codec_big(data + 8, 4);
    } else if (memcmp(type, "pixi", 4) == 0 && property.size >= 6) {
        out->bits = data[5];
    } else if (memcmp(type, "av1C", 4) == 0 && property.size >= 3) {
        out->bits = data[2] & 0x40 ? (data[2] & 0x20 ? 12 : 10) : 8;
    } else if (memcmp(type, "hvcC", 4) == 0 && property.size >= 18) {
        out->bits = (data[17] & 7) + 8;
    } else if (memcmp(type, "clap", 4) == 0 && property.size >= 32) {
        out->width = heif_crop(out->width, data, data + 16);
        out->height = heif_crop(out->height, data + 8, data + 24);
    } else if (memcmp(type, "irot", 4) == 0 && property.size >= 1 && data[0] & 1) {
        const uint32_t width = out->width;
        out->width = out->height;
        out->height = width;
    }
}

static void heif_is_alpha(void *context, const uint8_t *type, struct heif_part property)
{
    static const char *const names[] = {"urn:mpeg:mpegB:cicp:systems:auxiliary:alpha", "urn:mpeg:hevc:2015:auxid:1",
                                        "urn:mpeg:avc:2015:auxid:1"};
    bool *alpha = context;
    for (size_t i = 0; i < 3 && memcmp(type, "auxC", 4) == 0; i++) {
        const size_t length = strlen(names[i]) + 1;
        *alpha |= property.size >= 4 + length && memcmp(property.data + 4, names[i], length) == 0;
    }
}

struct heif_alpha {
    const struct heif_walk *walk;
    struct heif_header *out;
    int planes;
};

static void heif_find_alpha(void *context, const uint8_t *type, uint32_t from, uint32_t to)
{
    struct heif_alpha *alpha = context;
    if (to == alpha->out->item && memcmp(type, "auxl", 4) == 0 && alpha->planes++ < HEIF_PLANES)
        heif_each_property(alpha->walk, from, &alpha->out->alpha, heif_is_alpha);
}

bool heif_header_read(const uint8_t *bytes, size_t size, int page, struct heif_header *out)
{
    struct heif_walk walk = {0};
    struct heif_part meta = heif_child(bytes, size, "meta");
    uint32_t head, primary;
    *out = (struct heif_header){.bits = 8};
    if (!meta.data || !heif_take(&meta, 4, &head))
        return false;
    walk.pitm = heif_child(meta.data, meta.size, "pitm");
    walk.iinf = heif_child(meta.data, meta.size, "iinf");
    walk.iref = heif_child(meta.data, meta.size, "iref");
    const struct heif_part iprp = heif_child(meta.data, meta.size, "iprp");
    walk.ipco = heif_child(iprp.data, iprp.size, "ipco");
    walk.ipma = heif_child(iprp.data, iprp.size, "ipma");
    if (!heif_take(&walk.pitm, 4, &head) || !heif_take(&walk.pitm, head >> 24 ? 4 : 2, &primary))
        return false;
    heif_read_items(&walk);
    heif_each_reference(&walk, &walk, heif_mark_below);
    out->pages = 1;
    out->item = primary;
    for (int i = 0; i < walk.item_count; i++)
        if (walk.items[i].picture && !walk.items[i].below && walk.items[i].id != primary && ++out->pages == page)
            out->item = walk.items[i].id;
    if (page > out->pages)
        return true;
    heif_each_property(&walk, out->item, out, heif_apply);
    heif_each_reference(&walk, &(struct heif_alpha){&walk, out, 0}, heif_find_alpha);
    return true;
}
