#include "tests/common/packing.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/vulkan/vk_matrix.h"

uint16_t packing_half(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    const float size = fabsf(value);
    if (!(size < 65504.0f))
        return sign | 0x7bff;
    if (size < 0x1p-14f)
        return (uint16_t)(sign | (uint16_t)lrintf(size * 0x1p24f));
    bits = (bits & 0x7fffffff) - (112u << 23);
    return (uint16_t)(sign | (bits + 0xfff + (bits >> 13 & 1)) >> 13);
}

double packing_split_value(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double size = exponent ? ldexp(1024 + fraction, exponent - 25) : fraction * 0x1p-24;
    return (bits & 0x8000 ? -size : size) / SPLIT_WEIGHT;
}

uint16_t packing_split(float value, bool left)
{
    const float scaled = value * SPLIT_WEIGHT;
    if (!(fabsf(scaled) < 65504.0f))
        return 0x7e00;
    const uint16_t first = packing_half(scaled);
    return left ? packing_half(scaled - (float)(packing_split_value(first) * SPLIT_WEIGHT)) : first;
}

/* The next value of the packing: that of the lanes and the tap, 0 in padding. */
static void packing_put(struct packing *e, size_t in_lane, size_t tap, size_t out_lane)
{
    const struct vk_pack_key *key = e->key;
    const size_t taps = (size_t)key->taps;
    const bool inputs =
        key->kind == PACK_CONV || key->kind == PACK_MATRIX || key->kind == PACK_DIRECT || key->kind == PACK_LINEAR;
    const uint32_t channel = inputs ? e->in[in_lane] : 0, row = e->out[out_lane];
    const bool real = channel != VK_PACK_NO_CHANNEL && row != VK_PACK_NO_CHANNEL;
    const size_t length = taps * (inputs ? (size_t)key->in.channels : 1);
    const float value = real ? e->values[row * length + channel * taps + tap] : 0;
    const bool split = key->kind == PACK_MATRIX && !key->fp16, halves = key->fp16 || split;
    const uint16_t half = split ? packing_split(value, e->left) : packing_half(value);
    const size_t size = halves ? sizeof half : sizeof value;
    memcpy(e->bytes + e->size, halves ? (const void *)&half : (const void *)&value, size);
    e->size += size;
}

void packing_expect(struct packing *e, const struct vk_device *device)
{
    const uint8_t *order = device->matrix_order;
    const struct vk_pack_key *key = e->key;
    const size_t in = (size_t)key->in.blocks, out = (size_t)key->out.blocks, taps = (size_t)key->taps;
    const size_t group = key->kind == PACK_TENSOR ? (size_t)1 << key->out.group_log : 1;
    if (key->kind == PACK_MATRIX) {
        const size_t kernel = (size_t)lround(sqrt((double)taps)),
                     together = (size_t)vk_matrix_unit(key->out.blocks) / 4, parts = key->fp16 ? 1 : 2;
        for (size_t unit = 0; unit < out; unit += together)
            for (size_t ib = 0; ib < in; ib += 4)
                for (size_t column = 0; column < taps; column++)
                    for (size_t n = 0; n < 64 * together * parts; n++) {
                        const size_t i = n / (256 * parts) * 256 + n % 256;
                        const int at = order[i % 256], first = (int)(unit * 4 + i / 256 * 16);
                        e->left = n / 256 % parts != 0;
                        packing_put(e, ib * 4 + (size_t)at / 16, column % kernel * kernel + column / kernel,
                                    (size_t)vk_matrix_channel(device, key->out.blocks, first, at % 16));
                    }
    } else if (key->kind == PACK_DIRECT) {
        const size_t kernel = (size_t)lround(sqrt((double)taps)), groups = (kernel + 3) / 4,
                     together = (size_t)vk_matrix_unit(key->out.blocks) / 4;
        const bool picture = in == 1 && taps > 1; /* 4 taps side by side are the rows of a matrix, else 16 channels */
        const size_t steps = picture ? kernel * groups : (in + 3) / 4 * taps;
        for (size_t unit = 0; unit < out; unit += together)
            for (size_t step = 0; step < steps; step++)
                for (size_t i = 0; i < 64 * together; i++) {
                    const size_t at = order[i % 256], lane = device->matrix_row[at / 16], column = step % taps;
                    const size_t kx = step % groups * 4 + lane / 4;
                    const size_t row = (size_t)vk_matrix_channel(device, key->out.blocks,
                                                                 (int)(unit * 4 + i / 256 * 16), (int)at % 16);
                    if (picture)
                        packing_put(e, kx < kernel ? lane % 4 : in * 4, step / groups * kernel + kx, row);
                    else
                        packing_put(e, step / taps * 16 + lane, column % kernel * kernel + column / kernel, row);
                }
    } else if (key->kind == PACK_CONV) {
        for (size_t ob = 0; ob < out; ob += 4)
            for (size_t ib = 0; ib < in; ib++)
                for (size_t tap = 0; tap < taps; tap++)
                    for (size_t i = 0; i < 64; i++)
                        packing_put(e, ib * 4 + i / 16, tap, ob * 4 + i % 16);
    } else if (key->kind == PACK_LINEAR) {
        for (size_t ob = 0; ob < out; ob++)
            for (size_t ib = 0; ib < in; ib++)
                for (size_t tap = 0; tap < taps; tap++)
                    for (size_t i = 0; i < 16; i++)
                        packing_put(e, ib * 4 + i / 4, tap, ob * 4 + i % 4);
    } else {
        for (size_t ob = 0; ob < out; ob += group)
            for (size_t tap = 0; tap < taps; tap++)
                for (size_t i = 0; i < group * 4; i++)
                    packing_put(e, 0, tap, ob * 4 + i);
    }
}

uint32_t *packing_lanes(const struct vk_layout *layout)
{
    uint32_t *lanes = malloc(((size_t)layout->blocks * 4 + 32) * sizeof *lanes);
    assert_non_null(lanes);
    vk_pack_lanes(layout, lanes);
    for (int i = 0; i < 32; i++)
        lanes[layout->blocks * 4 + i] = VK_PACK_NO_CHANNEL;
    return lanes;
}
