/* How much of the fill is used at each pixel.
 *
 * A defect that is there moves the picture p away from the fill f, a whole group of pixels in one direction. Where
 * there is none, d = p - f is the filler's error alone, which goes up and down as the fill's own detail does. As
 * Wiener's filter weighs a signal by its noise:
 *
 *     share = 1 - WEIGH_ERROR * (detail + WEIGH_LEAST) / shift², not below 0
 *
 * shift²: the mean over red, green and blue of the squared mean of d, over the mask's pixels of 3 × 3;
 * detail: the mean squared difference of the fill's neighbours in 7 × 7, an estimate of the filler's squared error.
 *
 * What somebody sent a mask for is used wholly: "white is filled". */
#include <math.h>
#include <stdlib.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "server/pipeline/repair_private.h"

#define WEIGH_ERROR 0.8f
#define WEIGH_LEAST 2.0f /* squared levels: rounding, on an even ground */
#define WEIGH_NONE 0.1f  /* smaller shares are none: nobody sees them, and a pixel that is left alone stays as it was  \
                          */
#define WEIGH_SHIFT 1    /* px around a pixel */
#define WEIGH_DETAIL 3   /* the same */
#define WEIGH_ROWS (2 * WEIGH_DETAIL + 1)

/* Of a change: by how much the picture differs from the fill; the fill's squared differences to the pixels right of it
 * and below it, and of how many of these there is a fill. */
struct weigh_pixel {
    float d[3], steps;
    int count;
};

struct weigh_loop {
    struct fill_changes *changes;
    const struct image *picture;
    uint8_t *mask;
    struct weigh_pixel *pixels;
    atomic_bool failed;
};

/* The changes of the rows around one, from left to right. */
struct weigh_view {
    const struct fill_change *list;
    int reach, rows;
    size_t at[WEIGH_ROWS], end[WEIGH_ROWS]; /* from `at` on a row's changes that are not left of the window */
};

static struct weigh_view weigh_begin(const struct fill_changes *changes, int y, int reach)
{
    struct weigh_view view = {.list = changes->list, .reach = reach};
    for (int v = y > reach ? y - reach : 0; v <= y + reach && v < changes->height; v++) {
        view.at[view.rows] = fill_changes_begin(changes, v);
        view.end[view.rows++] = changes->row_ends[v];
    }
    return view;
}

/* The first and the end of a row's changes at most `reach` px from x. The next x is to be larger. */
static size_t weigh_row(struct weigh_view *view, int row, int x, size_t *end)
{
    size_t at = view->at[row];
    while (at < view->end[row] && (int)view->list[at].x < x - view->reach)
        at++;
    view->at[row] = at;
    *end = at;
    while (*end < view->end[row] && (int)view->list[*end].x <= x + view->reach)
        ++*end;
    return at;
}

static void weigh_step(struct weigh_pixel *pixel, const float *a, const float *b)
{
    for (int c = 0; c < 3; c++)
        pixel->steps += (a[c] - b[c]) * (a[c] - b[c]) / 3;
    pixel->count++;
}

static void weigh_measure(void *context, int item)
{
    struct weigh_loop *loop = context;
    const struct fill_changes *changes = loop->changes;
    const struct fill_change *list = changes->list;
    float *row = mem_alloc((size_t)changes->width, 3 * sizeof *row);
    int begin, end;
    thread_band(changes->height, item, &begin, &end);
    if (!row)
        atomic_store(&loop->failed, true);
    for (int y = begin; y < end && row; y++) {
        const size_t first = fill_changes_begin(changes, y), last = changes->row_ends[y],
                     limit = y + 1 < changes->height ? changes->row_ends[y + 1] : last;
        if (first < last)
            repair_row(loop->picture, y, (int)list[first].x, (int)(list[last - 1].x - list[first].x) + 1, row);
        for (size_t i = first, below = last; i < last; i++) {
            const float *p = row + 3 * (size_t)(list[i].x - list[first].x);
            struct weigh_pixel pixel = {.d = {p[0] - list[i].rgb[0], p[1] - list[i].rgb[1], p[2] - list[i].rgb[2]}};
            if (i + 1 < last && list[i + 1].x == list[i].x + 1)
                weigh_step(&pixel, list[i].rgb, list[i + 1].rgb);
            while (below < limit && list[below].x < list[i].x)
                below++;
            if (below < limit && list[below].x == list[i].x)
                weigh_step(&pixel, list[i].rgb, list[below].rgb);
            loop->pixels[i] = pixel;
        }
    }
    free(row);
}

/* shift² at a place. */
static float weigh_shift(const struct weigh_loop *loop, struct weigh_view *view, int x)
{
    float sum[3] = {0};
    int count = 0;
    for (int row = 0; row < view->rows; row++) {
        size_t end;
        for (size_t i = weigh_row(view, row, x, &end); i < end; i++) {
            const float counts = view->list[i].away ? 0 : 1;
            for (int c = 0; c < 3; c++)
                sum[c] += counts * loop->pixels[i].d[c];
            count += !view->list[i].away;
        }
    }
    return (sum[0] * sum[0] + sum[1] * sum[1] + sum[2] * sum[2]) / (float)(3 * count * count);
}

static float weigh_detail(const struct weigh_loop *loop, struct weigh_view *view, int x)
{
    float steps = 0;
    int count = 0;
    for (int row = 0; row < view->rows; row++) {
        size_t end;
        for (size_t i = weigh_row(view, row, x, &end); i < end; i++) {
            steps += loop->pixels[i].steps;
            count += loop->pixels[i].count;
        }
    }
    return count ? steps / (float)count : 0;
}

static void weigh_holes(void *context, int item)
{
    struct weigh_loop *loop = context;
    const struct fill_changes *changes = loop->changes;
    int begin, end;
    thread_band(changes->height, item, &begin, &end);
    for (int y = begin; y < end; y++) {
        const uint8_t *mask = loop->mask + (size_t)y * (size_t)changes->width;
        struct weigh_view near = weigh_begin(changes, y, WEIGH_SHIFT), around = weigh_begin(changes, y, WEIGH_DETAIL);
        for (size_t i = fill_changes_begin(changes, y); i < changes->row_ends[y]; i++) {
            struct fill_change *change = &changes->list[i];
            const int x = (int)change->x;
            if (change->away)
                continue;
            change->share = 1;
            if (mask[x] == DEFECT_GIVEN)
                continue;
            const float shift = weigh_shift(loop, &near, x), error = weigh_detail(loop, &around, x) + WEIGH_LEAST;
            change->share = shift > WEIGH_ERROR * error ? 1 - WEIGH_ERROR * error / shift : 0;
            change->share = change->share < WEIGH_NONE ? 0 : change->share;
        }
    }
}

/* Beside the mask the fill fades out: by the largest share of the pixels that it fades from. What has no share is taken
 * from the mask. */
static void weigh_feather(void *context, int item)
{
    struct weigh_loop *loop = context;
    const struct fill_changes *changes = loop->changes;
    int begin, end;
    thread_band(changes->height, item, &begin, &end);
    for (int y = begin; y < end; y++) {
        uint8_t *mask = loop->mask + (size_t)y * (size_t)changes->width;
        struct weigh_view views[REPAIR_FEATHER];
        for (int reach = 1; reach <= REPAIR_FEATHER; reach++)
            views[reach - 1] = weigh_begin(changes, y, reach);
        for (size_t i = fill_changes_begin(changes, y); i < changes->row_ends[y]; i++) {
            struct fill_change *change = &changes->list[i];
            const int x = (int)change->x, away = change->away;
            if (!away) {
                mask[x] = change->share > 0 ? mask[x] : 0;
                continue;
            }
            float most = 0;
            for (int row = 0; row < views[away - 1].rows; row++) {
                size_t last;
                for (size_t k = weigh_row(&views[away - 1], row, x, &last); k < last; k++)
                    most = changes->list[k].away || changes->list[k].share < most ? most : changes->list[k].share;
            }
            change->share = most * (1 - (float)away / (REPAIR_FEATHER + 1));
        }
    }
}

enum error_code fill_changes_weigh(struct fill_changes *changes, const struct image *picture, uint8_t *mask,
                                   struct error *err)
{
    const size_t count = changes->row_ends[changes->height - 1];
    struct weigh_loop loop = {
        .changes = changes, .picture = picture, .mask = mask, .pixels = mem_alloc(count, sizeof *loop.pixels)};
    const int bands = thread_bands(changes->height);
    if (loop.pixels)
        thread_for(bands, weigh_measure, &loop);
    const bool room = loop.pixels && !atomic_load(&loop.failed);
    if (room) {
        thread_for(bands, weigh_holes, &loop);
        thread_for(bands, weigh_feather, &loop);
    }
    free(loop.pixels);
    return room ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory for the repaired pixels");
}
