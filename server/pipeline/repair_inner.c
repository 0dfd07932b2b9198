/* What lies deep in holes: from there nothing that is known is near, and the network would make it up. It is filled in
 * the picture at half its size, where it is half as deep, and that in turn; then it is known, as blurred as it is, and
 * what is left of the hole is filled around it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "server/pipeline/repair_private.h"

enum error_code fill_copy(const struct image *picture, struct image **out, struct error *err)
{
    const size_t pixels = (size_t)picture->width * (size_t)picture->height;
    const enum error_code code =
        image_create(out, picture->width, picture->height, picture->channels, picture->bits, false, err);
    if (code == OK)
        memcpy((*out)->pixels, picture->pixels, pixels * (size_t)picture->channels * ((size_t)picture->bits / 8));
    return code;
}

/* ---- where it is ------------------------------------------------------------------------------------------------- */

static bool inner_row_known(const uint8_t *mask, int count)
{
    return memchr(mask, 0, (size_t)count) != NULL;
}

/* Whether one of the blocks of `depth` px a side that the picture is cut into has holes alone: what is deeper than that
 * has such a block around it. */
static bool inner_maybe(const uint8_t *mask, int width, int height, int depth)
{
    for (int top = 0; top < height; top += depth)
        for (int left = 0; left < width; left += depth) {
            const int bottom = top + depth < height ? top + depth : height,
                      wide = left + depth < width ? depth : width - left;
            int y = top;
            while (y < bottom && !inner_row_known(mask + (size_t)y * (size_t)width + left, wide))
                y++;
            if (y == bottom)
                return true;
        }
    return false;
}

/* Sets for a row's pixels whether there are holes alone up to `depth` px to both sides. NULL: a row beyond the picture,
 * where nothing is known either. */
static void inner_row(const uint8_t *mask, int width, int depth, uint8_t *deep)
{
    memset(deep, mask == NULL, (size_t)width);
    for (int x = 0, run = depth; mask && x < width + depth; x++) {
        run = x >= width || repair_is_hole(mask[x]) ? run + 1 : 0;
        if (x >= depth)
            deep[x - depth] = run > 2 * depth;
    }
}

/* Marks in a mask what is deeper than `depth` px in holes. runs: room for a row. Returns whether there is any. */
static bool inner_mark(uint8_t *mask, int width, int height, int depth, int *runs, uint8_t *deep)
{
    bool any = false;
    for (int x = 0; x < width; x++)
        runs[x] = depth;
    for (int y = 0; y < height + depth; y++) {
        uint8_t *row = mask + (ptrdiff_t)(y - depth) * width; /* whose depth is known now */
        inner_row(y < height ? mask + (size_t)y * (size_t)width : NULL, width, depth, deep);
        for (int x = 0; x < width; x++) {
            runs[x] = deep[x] ? runs[x] + 1 : 0;
            if (y >= depth && runs[x] > 2 * depth) {
                row[x] = FILL_INNER;
                any = true;
            }
        }
    }
    return any;
}

enum error_code fill_inner_find(const uint8_t *mask, int width, int height, int depth, uint8_t **marked,
                                struct error *err)
{
    const size_t pixels = (size_t)width * (size_t)height;
    *marked = NULL;
    if (!inner_maybe(mask, width, height, depth) || !memchr(mask, 0, pixels))
        return OK;
    uint8_t *copy = mem_alloc(pixels, 1), *deep = mem_alloc((size_t)width, 1);
    int *runs = mem_alloc((size_t)width, sizeof *runs);
    const bool room = copy && deep && runs;
    if (room && inner_mark(memcpy(copy, mask, pixels), width, height, depth, runs, deep)) {
        *marked = copy;
        copy = NULL;
    }
    free(copy);
    free(deep);
    free(runs);
    return room ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory for the repair");
}

/* ---- the picture at half its size -------------------------------------------------------------------------------- */

static float inner_sample(const struct image *image, size_t at)
{
    return image->bits == 16 ? (float)((const uint16_t *)image->pixels)[at]
                             : (float)((const uint8_t *)image->pixels)[at];
}

static void inner_set(struct image *image, size_t at, float value)
{
    if (image->bits == 16)
        ((uint16_t *)image->pixels)[at] = (uint16_t)lrintf(value);
    else
        ((uint8_t *)image->pixels)[at] = (uint8_t)lrintf(value);
}

struct inner_loop {
    const struct image *from;
    const uint8_t *mask;
    struct image *to;
    uint8_t *to_mask;
};

/* A pixel is the mean of those that are known, of four; it is a hole if none is. So what is known never vanishes, and
 * holes end. */
static void inner_halve_pixel(const struct inner_loop *loop, int x, int y)
{
    const int width = loop->from->width, height = loop->from->height, channels = loop->from->channels;
    const size_t to = (size_t)y * (size_t)loop->to->width + (size_t)x;
    float sums[3] = {0};
    int known = 0;
    for (int i = 2 * y; i < 2 * y + 2 && i < height; i++)
        for (int k = 2 * x; k < 2 * x + 2 && k < width; k++) {
            const size_t at = (size_t)i * (size_t)width + (size_t)k;
            if (loop->mask && repair_is_hole(loop->mask[at]))
                continue;
            known++;
            for (int c = 0; c < channels; c++)
                sums[c] += inner_sample(loop->from, at * (size_t)channels + (size_t)c);
        }
    if (loop->mask)
        loop->to_mask[to] = known == 0;
    for (int c = 0; c < channels; c++)
        inner_set(loop->to, to * (size_t)channels + (size_t)c, sums[c] / (float)(known ? known : 1));
}

static void inner_halve_band(void *context, int item)
{
    const struct inner_loop *loop = context;
    int begin, end;
    thread_band(loop->to->height, item, &begin, &end);
    for (int y = begin; y < end; y++)
        for (int x = 0; x < loop->to->width; x++)
            inner_halve_pixel(loop, x, y);
}

enum error_code fill_inner_halve(const struct image *picture, const uint8_t *mask, struct image **half,
                                 uint8_t **half_mask, struct error *err)
{
    const int width = (picture->width + 1) / 2, height = (picture->height + 1) / 2;
    uint8_t *to_mask = mask ? mem_alloc((size_t)width * (size_t)height, 1) : NULL;
    enum error_code code = image_create(half, width, height, picture->channels, picture->bits, false, err);
    if (code == OK && mask && !to_mask)
        code = error_set(err, ERROR_NO_MEMORY, "out of memory for the repair");
    struct inner_loop loop = {picture, mask, *half, to_mask};
    if (mask)
        *half_mask = to_mask;
    if (code == OK)
        thread_for(thread_bands(height), inner_halve_band, &loop);
    return code;
}

/* ---- and back ---------------------------------------------------------------------------------------------------- */

/* Where a pixel of the picture lies in the half: between `from` and `to`, by that part. */
static void inner_place(int at, int length, int *from, int *to, float *part)
{
    const float place = fmaxf(((float)at + 0.5f) / 2 - 0.5f, 0);
    *from = (int)place;
    *to = *from + 1 < length ? *from + 1 : *from;
    *part = place - (float)*from;
}

static void inner_take_band(void *context, int item)
{
    const struct inner_loop *loop = context;
    const struct image *half = loop->from;
    const size_t channels = (size_t)half->channels, stride = (size_t)half->width;
    int begin, end;
    thread_band(loop->to->height, item, &begin, &end);
    for (int y = begin; y < end; y++) {
        int top, below, left, right;
        float down, across;
        inner_place(y, half->height, &top, &below, &down);
        for (int x = 0; x < loop->to->width; x++) {
            const size_t at = (size_t)y * (size_t)loop->to->width + (size_t)x;
            if (loop->mask[at] != FILL_INNER)
                continue;
            inner_place(x, half->width, &left, &right, &across);
            const size_t upper = (size_t)top * stride, lower = (size_t)below * stride;
            for (size_t c = 0; c < channels; c++) {
                const float a = inner_sample(half, (upper + (size_t)left) * channels + c),
                            b = inner_sample(half, (upper + (size_t)right) * channels + c),
                            d = inner_sample(half, (lower + (size_t)left) * channels + c),
                            e = inner_sample(half, (lower + (size_t)right) * channels + c),
                            above = a + across * (b - a), under = d + across * (e - d);
                inner_set(loop->to, at * channels + c, above + down * (under - above));
            }
        }
    }
}

enum error_code fill_inner_take(const struct image *picture, const uint8_t *marked, const struct image *half,
                                struct image **out, struct error *err)
{
    const enum error_code code = fill_copy(picture, out, err);
    if (code != OK)
        return code;
    struct inner_loop loop = {half, marked, *out, NULL};
    thread_for(thread_bands(picture->height), inner_take_band, &loop);
    return OK;
}
