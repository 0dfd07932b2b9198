#include "server/image/jxl_header.h"

#include <string.h>

#include "server/image/codec_row.h"

#define JXL_BOXES 4096
#define JXL_CHANNELS 64 /* extra ones; the reference writer makes a handful at most */

struct jxl_bits {
    const uint8_t *bytes;
    size_t size, at; /* bits */
};

/* Beyond the end come zeros; jxl_header_read notices. */
static uint32_t jxl_take(struct jxl_bits *in, int count)
{
    uint32_t value = 0;
    for (int i = 0; i < count; i++, in->at++)
        if (in->at / 8 < in->size)
            value |= (uint32_t)(in->bytes[in->at / 8] >> in->at % 8 & 1) << i;
    return value;
}

/* The format's U32: two bits choose one of four {added, bits}. */
static uint32_t jxl_choice(struct jxl_bits *in, const uint32_t rows[4][2])
{
    const uint32_t *row = rows[jxl_take(in, 2)];
    return row[0] + jxl_take(in, (int)row[1]);
}
#define JXL_CHOICE(in, ...) jxl_choice(in, (const uint32_t[4][2]){__VA_ARGS__})
#define JXL_ENUM(in) JXL_CHOICE(in, {0, 0}, {1, 0}, {2, 4}, {18, 6})

/* The width that one of seven fixed ratios gives. */
static uint32_t jxl_ratio(uint32_t height, uint32_t ratio)
{
    static const uint8_t ratios[8][2] = {{1, 1}, {1, 1}, {12, 10}, {4, 3}, {3, 2}, {16, 9}, {5, 4}, {2, 1}};
    const uint64_t width = (uint64_t)height * ratios[ratio][0] / ratios[ratio][1];
    return width > UINT32_MAX ? UINT32_MAX : (uint32_t)width;
}

static uint32_t jxl_side(struct jxl_bits *in, bool small)
{
    return small ? 8 * (jxl_take(in, 5) + 1) : JXL_CHOICE(in, {1, 9}, {1, 13}, {1, 18}, {1, 30});
}

static void jxl_size(struct jxl_bits *in, uint32_t *width, uint32_t *height)
{
    const bool small = jxl_take(in, 1);
    *height = jxl_side(in, small);
    const uint32_t ratio = jxl_take(in, 3);
    *width = ratio ? jxl_ratio(*height, ratio) : jxl_side(in, small);
}

static uint32_t jxl_preview_side(struct jxl_bits *in, bool eighths)
{
    return eighths ? JXL_CHOICE(in, {16, 0}, {32, 0}, {1, 5}, {33, 9})
                   : JXL_CHOICE(in, {1, 6}, {65, 8}, {321, 10}, {1345, 12});
}

static void jxl_preview(struct jxl_bits *in)
{
    const bool eighths = jxl_take(in, 1);
    jxl_preview_side(in, eighths);
    if (!jxl_take(in, 3))
        jxl_preview_side(in, eighths);
}

static void jxl_animation(struct jxl_bits *in)
{
    JXL_CHOICE(in, {100, 0}, {1000, 0}, {1, 10}, {1, 30});
    JXL_CHOICE(in, {1, 0}, {1001, 0}, {1, 8}, {1, 10});
    JXL_CHOICE(in, {0, 0}, {0, 3}, {0, 16}, {0, 32});
    jxl_take(in, 1);
}

static int jxl_depth(struct jxl_bits *in, bool *is_float)
{
    if (!(*is_float = jxl_take(in, 1)))
        return (int)JXL_CHOICE(in, {8, 0}, {10, 0}, {12, 0}, {1, 6});
    const int bits = (int)JXL_CHOICE(in, {32, 0}, {16, 0}, {24, 0}, {1, 6});
    jxl_take(in, 4);
    return bits;
}

/* One extra channel; whether it is alpha. */
static bool jxl_channel(struct jxl_bits *in)
{
    enum { ALPHA = 0, SPOT = 2, FILTER = 5 };
    bool is_float;
    if (jxl_take(in, 1))
        return true;
    const uint32_t type = JXL_ENUM(in);
    jxl_depth(in, &is_float);
    JXL_CHOICE(in, {0, 0}, {3, 0}, {4, 0}, {1, 3});
    in->at += 8 * (size_t)JXL_CHOICE(in, {0, 0}, {0, 4}, {16, 5}, {48, 10}); /* its name */
    if (type == ALPHA)
        jxl_take(in, 1);
    else if (type == SPOT)
        in->at += 64;
    else if (type == FILTER)
        JXL_CHOICE(in, {1, 0}, {0, 2}, {3, 4}, {19, 8});
    return type == ALPHA;
}

/* Where the codestream begins. */
static bool jxl_find(const uint8_t *bytes, size_t size, struct jxl_bits *out)
{
    const uint8_t *at = bytes, *end = bytes + size;
    struct codec_box box;
    if (size >= 2 && bytes[0] == 0xff && bytes[1] == 0x0a) {
        *out = (struct jxl_bits){.bytes = bytes + 2, .size = size - 2};
        return true;
    }
    for (int i = 0; i < JXL_BOXES && codec_next_box(&at, end, &box); i++) {
        const size_t skip = memcmp(box.type, "jxlc", 4) == 0 ? 2 : memcmp(box.type, "jxlp", 4) == 0 ? 6 : 0;
        if (skip && box.size >= skip && box.data[skip - 2] == 0xff && box.data[skip - 1] == 0x0a) {
            *out = (struct jxl_bits){.bytes = box.data + skip, .size = box.size - skip};
            return true;
        }
    }
    return false;
}

bool jxl_header_read(const uint8_t *bytes, size_t size, struct jxl_header *out)
{
    struct jxl_bits in;
    uint32_t ignored[2];
    *out = (struct jxl_header){.orientation = 1, .bits = 8};
    if (!jxl_find(bytes, size, &in))
        return false;
    jxl_size(&in, &out->width, &out->height);
    if (!jxl_take(&in, 1)) { /* not all is default */
        if (jxl_take(&in, 1)) {
            out->orientation = (int)jxl_take(&in, 3) + 1;
            if (jxl_take(&in, 1))
                jxl_size(&in, &ignored[0], &ignored[1]);
            if (jxl_take(&in, 1))
                jxl_preview(&in);
            if ((out->animated = jxl_take(&in, 1)))
                jxl_animation(&in);
        }
        out->bits = jxl_depth(&in, &out->is_float);
        jxl_take(&in, 1);
        const uint32_t extra = JXL_CHOICE(&in, {0, 0}, {1, 0}, {2, 4}, {1, 12});
        for (uint32_t i = 0; i < extra && i < JXL_CHANNELS; i++)
            out->alpha |= jxl_channel(&in);
        jxl_take(&in, 1);
        if (!jxl_take(&in, 1)) { /* nor the colours */
            jxl_take(&in, 1);
            out->gray = JXL_ENUM(&in) == 1;
        }
        if (extra > JXL_CHANNELS)
            return false;
    }
    return in.at <= 8 * in.size;
}
