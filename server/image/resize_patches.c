#include "server/image/resize_patches.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "server/image/resize_axis.h"

#define PATCH_MORE 16 /* columns that a kernel adds to those of a patch, at most, where nothing is enlarged */

struct resize_patches {
    int src_width, src_height, dst_width, dst_height, columns;
    struct resize_axis x, y;
    float *across; /* RESIZE_ROWS rows of `columns`: columns that end in the patch */
    float *begun;  /* for each row of the patch PATCH_MORE columns: the sums of those that go on in the next patch */
    float *sums;   /* `held` rows of dst_width: row y of the result is in row y % held */
    int held;
    int top;             /* of the row of patches */
    int open, next_open; /* the first column that does not end before the patch, and before the next patch */
    int pushed, pulled;  /* source rows that are complete, rows of the result that were pulled */
};

static int resize_last(const struct resize_axis *axis, int at)
{
    return axis->first[at] + axis->count[at] - 1;
}

/* How many px of the result `rows` source px in a row add to, at most. */
static int patches_span(const struct resize_axis *axis, int dst, int rows)
{
    int most = 0;
    for (int first = 0, end = 0; first < dst; first++) {
        while (end < dst && axis->first[end] < resize_last(axis, first) + rows)
            end++;
        most = end - first > most ? end - first : most;
    }
    return most;
}

enum error_code resize_patches_create(struct resize_patches **out, int src_width, int src_height, int dst_width,
                                      int dst_height, int columns, int rows, struct error *err)
{
    assert(dst_width <= src_width && dst_height <= src_height && columns > 0 && rows > 0);
    struct resize_patches *p = mem_calloc(1, sizeof *p);
    *out = p;
    if (p) {
        *p = (struct resize_patches){
            .src_width = src_width, .src_height = src_height, .dst_width = dst_width, .dst_height = dst_height};
        if (resize_axis_create(&p->x, dst_width, src_width, RESIZE_LANCZOS4) &&
            resize_axis_create(&p->y, dst_height, src_height, RESIZE_LANCZOS4)) {
            p->columns = patches_span(&p->x, dst_width, columns);
            p->held = patches_span(&p->y, dst_height, rows);
            p->across = mem_alloc((size_t)p->columns * RESIZE_ROWS, 3 * sizeof(float));
            p->begun = mem_alloc((size_t)rows * PATCH_MORE, 3 * sizeof(float));
            p->sums = mem_calloc((size_t)dst_width * (size_t)p->held, 3 * sizeof(float));
        }
        if (p->across && p->begun && p->sums)
            return OK;
    }
    resize_patches_destroy(out);
    return error_set(err, ERROR_NO_MEMORY, "out of memory to resize a picture to %d×%d pixels", dst_width, dst_height);
}

void resize_patches_destroy(struct resize_patches **patches)
{
    struct resize_patches *p = *patches;
    if (!p)
        return;
    resize_axis_free(&p->x);
    resize_axis_free(&p->y);
    free(p->across);
    free(p->begun);
    free(p->sums);
    free(p);
    *patches = NULL;
}

struct patches_push {
    struct resize_patches *p;
    const struct rect *rect;
    const float *rows;
    int first_row; /* of the result, to which the rows add */
};

/* sum += weight * each of `count` px. Four lanes, of which the fourth is dropped; the last px has a way of its own, for
 * nothing lies behind it. */
typedef float patches_quad __attribute__((vector_size(16)));
typedef float patches_many __attribute__((vector_size(64)));

static void patches_add(float sum[3], const float *weight, const float *px, int count, bool end)
{
    patches_quad quad = {sum[0], sum[1], sum[2]};
    const int quads = end ? count - 1 : count;
    int k = 0;
    for (; k < quads; k++, px += 3) {
        patches_quad v;
        memcpy(&v, px, sizeof v);
        quad += weight[k] * v;
    }
    for (; k < count; k++, px += 3)
        for (int c = 0; c < 3; c++)
            quad[c] += weight[k] * px[c];
    memcpy(sum, &quad, 3 * sizeof *sum);
}

/* Across: columns that began in an earlier patch go on, those that end are put into `across`, the others are kept. */
static void patches_across(void *context, int item)
{
    const struct patches_push *push = context;
    const struct resize_patches *p = push->p;
    const struct rect *rect = push->rect;
    const int x_end = rect->x + rect->width;
    int begin, end;
    thread_band(rect->height, item, &begin, &end);
    for (int y = begin; y < end; y++) {
        const float *from = push->rows + (size_t)y * 3 * (size_t)rect->width;
        float *across = p->across + (size_t)y * 3 * (size_t)p->columns,
              *begun = p->begun + (size_t)(rect->y + y - p->top) * 3 * PATCH_MORE;
        for (int d = p->open; d < p->dst_width && p->x.first[d] < x_end; d++) {
            const int last = resize_last(&p->x, d), first = p->x.first[d] < rect->x ? rect->x : p->x.first[d],
                      stop = last < x_end ? last + 1 : x_end;
            const float *weight = p->x.weight + (size_t)d * (size_t)p->x.taps + (first - p->x.first[d]);
            float sum[3] = {0};
            if (p->x.first[d] < rect->x)
                memcpy(sum, begun + 3 * (d - p->open), sizeof sum);
            patches_add(sum, weight, from + 3 * (size_t)(first - rect->x), stop - first, stop == x_end);
            memcpy(d < p->next_open ? across + 3 * (size_t)(d - p->open) : begun + 3 * (d - p->next_open), sum,
                   sizeof sum);
        }
    }
}

/* Down: each row of the result gets what these rows add to it, in their order. */
static void patches_down(void *context, int item)
{
    const struct patches_push *push = context;
    const struct resize_patches *p = push->p;
    const int d = push->first_row + item, end = push->rect->y + push->rect->height;
    const int from = p->y.first[d] > push->rect->y ? p->y.first[d] : push->rect->y,
              last = resize_last(&p->y, d) < end ? resize_last(&p->y, d) : end - 1;
    const size_t count = 3 * (size_t)(p->next_open - p->open), row = 3 * (size_t)p->columns;
    const float *weight = p->y.weight + (size_t)d * (size_t)p->y.taps + (from - p->y.first[d]),
                *rows = p->across + (size_t)(from - push->rect->y) * row;
    float *sum = p->sums + 3 * ((size_t)(d % p->held) * (size_t)p->dst_width + (size_t)p->open);
    size_t i = 0;
    for (patches_many many, v; i + 16 <= count; i += 16) {
        const float *at = rows + i;
        memcpy(&many, sum + i, sizeof many);
        for (int y = from; y <= last; y++, at += row) {
            memcpy(&v, at, sizeof v);
            many += weight[y - from] * v;
        }
        memcpy(sum + i, &many, sizeof many);
    }
    for (; i < count; i++)
        for (int y = from; y <= last; y++)
            sum[i] += weight[y - from] * rows[(size_t)(y - from) * row + i];
}

void resize_patches_push(struct resize_patches *p, const struct rect *rect, const float *rows)
{
    struct patches_push push = {.p = p, .rect = rect, .rows = rows};
    const int x_end = rect->x + rect->width, y_end = rect->y + rect->height;
    int end;
    assert(rect->height <= RESIZE_ROWS);
    if (rect->x == 0 && rect->y == p->pushed)
        p->top = rect->y; /* a row of patches begins */
    p->open = 0;
    while (p->open < p->dst_width && resize_last(&p->x, p->open) < rect->x)
        p->open++;
    p->next_open = p->open;
    while (p->next_open < p->dst_width && resize_last(&p->x, p->next_open) < x_end)
        p->next_open++;
    assert(p->next_open - p->open <= p->columns);
    thread_for(thread_bands(rect->height), patches_across, &push);
    push.first_row = p->pulled;
    while (push.first_row < p->dst_height && resize_last(&p->y, push.first_row) < rect->y)
        push.first_row++;
    for (end = push.first_row; end < p->dst_height && p->y.first[end] < y_end;)
        end++;
    thread_for(end - push.first_row, patches_down, &push);
    if (x_end == p->src_width)
        p->pushed = y_end;
}

int resize_patches_pull(struct resize_patches *p, float *rows, int most)
{
    const size_t row = 3 * (size_t)p->dst_width;
    int count = 0;
    for (; count < most && p->pulled < p->dst_height && resize_last(&p->y, p->pulled) < p->pushed; count++) {
        float *sums = p->sums + (size_t)(p->pulled++ % p->held) * row;
        memcpy(rows + (size_t)count * row, sums, row * sizeof *rows);
        memset(sums, 0, row * sizeof *sums);
    }
    return count;
}
