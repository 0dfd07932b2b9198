/* What the picture's own pixels tell of damage, on all cores. Sums are of whole numbers, so their order does not matter.
 */
#include <math.h>
#include <stdlib.h>

#include "runtime/base/thread.h"
#include "server/pipeline/strength_change.h"

int strength_order(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* ---- JPEG's blocks ----------------------------------------------------------------------------------------------- */

struct strength_blocks {
    struct view_u8 view;
    const struct rect *rect;
    _Atomic int64_t across[8], down[8]; /* second differences by place in the block */
};

static void strength_block_rows(void *context, int item)
{
    struct strength_blocks *blocks = context;
    const struct rect *rect = blocks->rect;
    const ptrdiff_t below = (ptrdiff_t)blocks->view.stride;
    int64_t across[8] = {0};
    int begin, end;
    thread_band(rect->height - 2, item, &begin, &end);
    for (int y = rect->y + 1 + begin; y < rect->y + 1 + end; y++) {
        const uint8_t *row = blocks->view.data + (size_t)y * blocks->view.stride + 1; /* green */
        int64_t down = 0;
        for (int x = rect->x + 1; x < rect->x + rect->width - 1; x++) {
            const uint8_t *p = row + 3 * (size_t)x;
            across[x & 7] += abs(2 * p[0] - p[-3] - p[3]);
            down += abs(2 * p[0] - p[-below] - p[below]);
        }
        blocks->down[y & 7] += down;
    }
    for (int k = 0; k < 8; k++)
        blocks->across[k] += across[k];
}

/* sum: of what lies between begin and end. */
static double strength_pair(const _Atomic int64_t sum[8], int begin, int end)
{
    double count[8] = {0}, mean[8], best = 0, others = 0;
    for (int i = begin; i < end; i++)
        count[i & 7]++;
    for (int k = 0; k < 8; k++)
        mean[k] = (double)sum[k] / fmax(count[k], 1);
    for (int k = 0; k < 8; k++) {
        const double pair = (mean[k] + mean[(k + 1) & 7]) / 2;
        if (pair <= best)
            continue;
        best = pair;
        others = (mean[(k + 3) & 7] + mean[(k + 4) & 7] + mean[(k + 5) & 7] + mean[(k + 6) & 7]) / 4;
    }
    return best / fmax(others, 0.01);
}

double strength_block(const struct image *picture, const struct rect *rect)
{
    struct strength_blocks blocks = {.view = image_view(picture), .rect = rect};
    if (rect->height > 2)
        thread_for(thread_bands(rect->height - 2), strength_block_rows, &blocks);
    return (strength_pair(blocks.across, rect->x + 1, rect->x + rect->width - 1) +
            strength_pair(blocks.down, rect->y + 1, rect->y + rect->height - 1)) /
           2;
}

/* ---- white noise ------------------------------------------------------------------------------------------------- */

struct strength_noise {
    struct view_u8 view;
    const struct rect *rect;
    double mean[STRENGTH_CELLS * STRENGTH_CELLS];
};

static void strength_noise_cell(void *context, int item)
{
    struct strength_noise *noise = context;
    const struct rect *rect = noise->rect;
    const ptrdiff_t below = (ptrdiff_t)noise->view.stride;
    const int width = (rect->width - 2) / STRENGTH_CELLS, height = (rect->height - 2) / STRENGTH_CELLS;
    const int left = rect->x + 1 + item % STRENGTH_CELLS * width, top = rect->y + 1 + item / STRENGTH_CELLS * height;
    int64_t sum = 0;
    for (int y = top; y < top + height; y++) {
        const uint8_t *p = noise->view.data + (size_t)y * noise->view.stride + 3 * (size_t)left + 1; /* green */
        for (int x = 0; x < width; x++, p += 3) {
            const int d = 4 * p[0] - p[-3] - p[3] - p[-below] - p[below];
            sum += d * d;
        }
    }
    noise->mean[item] = (double)sum / fmax((double)width * height, 1);
}

double strength_white(const struct image *picture, const struct rect *rect)
{
    struct strength_noise noise = {.view = image_view(picture), .rect = rect};
    thread_for(STRENGTH_CELLS * STRENGTH_CELLS, strength_noise_cell, &noise);
    qsort(noise.mean, STRENGTH_CELLS * STRENGTH_CELLS, sizeof *noise.mean, strength_order);
    return sqrt(noise.mean[STRENGTH_CELLS * STRENGTH_CELLS / 4] / 20);
}
