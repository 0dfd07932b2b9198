#include "runtime/backend/raster.h"
#include "runtime/base/thread.h"

#include <string.h>

static void reduce_add(uint32_t *restrict sums, const uint8_t *restrict row, size_t samples)
{
    for (size_t i = 0; i < samples; i++)
        sums[i] += row[i];
}

#define REDUCE_COLUMNS 512 /* whose sums are made together */

/* Sums of some columns from the row `first` on to before `last`. */
static void reduce_columns(const struct raster_source *source, int64_t first, int64_t last, int64_t begin, int64_t end,
                           uint32_t *sums)
{
    const size_t samples = 3 * (size_t)(end - begin);
    memset(sums, 0, samples * sizeof *sums);
    for (int64_t y = first; y < last; y++)
        reduce_add(sums, (const uint8_t *)source->data + (size_t)y * source->stride + 3 * begin, samples);
}

/* First the sums of columns, some at a time. */
void raster_reduce_row(const struct raster_source *source, int h, int w, int y, int x, int count, float *out)
{
    const int64_t height = source->height, width = source->width;
    const int64_t first = y * height / h, last = ((y + 1) * height + h - 1) / h;
    const int64_t whole = width / w, part = width % w;
    uint32_t sums[3 * REDUCE_COLUMNS];
    int64_t from = x * width / w, rest = x * width % w, columns = 0; /* from: x * width / w, of which so much remains */
    double share = 0;                                                /* of so many columns */
    for (int64_t begin = 0, end = 0; count > 0; count--) {
        rest += part;
        const int64_t more = rest >= w, next = from + whole + more;
        rest -= more * w;
        const int64_t to = next + (rest > 0);
        int64_t sum[3] = {0}; /* signed: that is converted faster */
        if (to - from != columns) {
            columns = to - from; /* a sum times the share rounds to the same float as their quotient */
            share = 1 / (double)(columns * (last - first));
        }
        while (from < to) {
            if (from >= end) {
                begin = from;
                end = width - from < REDUCE_COLUMNS ? width : from + REDUCE_COLUMNS;
                reduce_columns(source, first, last, begin, end, sums);
            }
            const int64_t stop = to < end ? to : end;
            for (const uint32_t *at = sums + 3 * (from - begin); from < stop; from++, at += 3)
                for (int c = 0; c < 3; c++)
                    sum[c] += at[c];
        }
        for (int c = 0; c < 3; c++)
            *out++ = (float)((double)sum[c] * share);
        from = next;
    }
}

struct reduce_loop {
    const struct raster_source *source;
    int h, w;
    float *out;
};

static void reduce_item(void *context, int y)
{
    const struct reduce_loop *loop = context;
    raster_reduce_row(loop->source, loop->h, loop->w, y, 0, loop->w, loop->out + 3 * (size_t)y * (size_t)loop->w);
}

void raster_reduce(const struct raster_source *source, int h, int w, float *out)
{
    struct reduce_loop loop = {source, h, w, out};
    thread_for(h, reduce_item, &loop);
}
