#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "runtime/models/damage_cut.h"
#include "server/pipeline/repair.h"

/* Px of a tile that are kept, at first. With its border of 112 px, a CPU's has 1024 px: of larger ones the tensors take
 * much memory, and of smaller ones more is border (512: half as long again on a photo of 1024 × 768). */
#define FIND_CORE 1024
#define FIND_CORE_CPU 800
#define FIND_CORE_LEAST 64

struct find {
    struct step *step;
    const struct model_info *info;
    const struct image *picture;
    int rows, columns; /* cells of the picture: its sides are filled up to multiples of a cell's */
    bool one;          /* the picture is one window, and its context is made in the same run */
    float *context, *pixels, *cells, *logits; /* logits: of the reduced picture */
    int *across, *down;    /* which pixels of the picture a window has: its edge is repeated beyond it */
    int height, width;     /* of the context, or of the reduced picture */
    uint8_t *level, *kind; /* of the picture */
};

/* How a side is cut: windows of one size; each but the first and last lies `radius` px over its neighbours' cores. */
struct find_cut {
    int count, window, pitch;
};

static struct find_cut find_cut(int length, int core, const struct model_info *info)
{
    const int cell = info->unshuffle, border = 2 * info->radius, padded = (length + cell - 1) / cell * cell;
    struct find_cut cut = {1, padded, padded};
    if (padded <= core + border)
        return cut;
    cut.count = (padded - border + core - 1) / core;
    cut.pitch = ((padded - border + cut.count - 1) / cut.count + cell - 1) / cell * cell;
    cut.count = (padded - border + cut.pitch - 1) / cut.pitch; /* rounding may have saved some */
    cut.window = cut.pitch + border;
    return cut;
}

/* Which pixels of a window are its own: from *begin to *end of the picture; the window begins at *at. */
static void find_place(const struct find_cut *cut, int length, int index, const struct model_info *info, int *at,
                       int *begin, int *end)
{
    const int cell = info->unshuffle, padded = (length + cell - 1) / cell * cell;
    *at = index * cut->pitch;
    *begin = index ? *at + info->radius : 0;
    *end = *at + cut->window - info->radius;
    if (index == cut->count - 1 || *end > length)
        *end = length;
    if (*at > padded - cut->window)
        *at = padded - cut->window;
}

struct run_io repair_io(const struct step *step, enum model_role role, const struct run_input *inputs,
                        const struct run_output *output)
{
    struct restoration *r = step->r, *waits = step->context->current ? step->context->current : r;
    return (struct run_io){.inputs = inputs,
                           .outputs = output,
                           .range = model_range(step->model[role]->info.kind),
                           .options = {.cancel = &r->cancel, .progress = &waits->progress}};
}

enum error_code repair_network(struct step *step, enum model_role role, const struct session_shape *shape,
                               const struct run_input *inputs, const struct run_output *output, struct error *err)
{
    const struct run_io run = repair_io(step, role, inputs, output);
    return step_run(step, role, shape, &run, NULL, err);
}

/* The picture reduced to h × w: each pixel the mean of those that it touches, as torch's adaptive_avg_pool2d has it. */
struct find_reduced {
    const struct image *picture;
    int64_t h, w;
    float *out;
};

static void find_sum(uint32_t *restrict sums, const uint8_t *restrict row, size_t samples)
{
    for (size_t i = 0; i < samples; i++)
        sums[i] += row[i];
}

#define FIND_COLUMNS 512 /* whose sums are made together */

/* Sums of some columns from the row `first` on to before `last`. */
static void find_columns(const struct image *picture, int64_t first, int64_t last, int64_t begin, int64_t end,
                         uint32_t *sums)
{
    const uint8_t *pixels = (const uint8_t *)picture->pixels + 3 * begin;
    const size_t samples = 3 * (size_t)(end - begin);
    memset(sums, 0, samples * sizeof *sums);
    for (int64_t y = first; y < last; y++)
        find_sum(sums, pixels + 3 * y * picture->width, samples);
}

/* A row: first the sums of columns, some at a time. */
static void find_reduce_row(void *context, int y)
{
    const struct find_reduced *r = context;
    const int64_t height = r->picture->height, width = r->picture->width;
    const int64_t first = y * height / r->h, last = ((y + 1) * height + r->h - 1) / r->h;
    const int64_t whole = width / r->w, part = width % r->w;
    uint32_t sums[3 * FIND_COLUMNS];
    float *out = r->out + 3 * y * r->w;
    int64_t from = 0, rest = 0, count = 0; /* from: x * width / w, of which so much remains */
    double share = 0;                      /* of so many columns */
    for (int64_t x = 0, begin = 0, end = 0; x < r->w; x++) {
        rest += part;
        const int64_t more = rest >= r->w, next = from + whole + more;
        rest -= more * r->w;
        const int64_t to = next + (rest > 0);
        int64_t sum[3] = {0}; /* signed: that is converted faster */
        if (to - from != count) {
            count = to - from;
            share =
                1 / (double)(count * (last - first)); /* a sum times this rounds to the same float as their quotient */
        }
        while (from < to) {
            if (from >= end) {
                begin = from;
                end = width - from < FIND_COLUMNS ? width : from + FIND_COLUMNS;
                find_columns(r->picture, first, last, begin, end, sums);
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

static struct raster_source find_source(const float *pixels, int width)
{
    return (struct raster_source){.form = RASTER_F32, .data = pixels, .stride = 3 * sizeof *pixels * (size_t)width};
}

static void find_reduce(const struct image *picture, int h, int w, float *out)
{
    struct find_reduced reduced = {.picture = picture, .h = h, .w = w, .out = out};
    thread_for(h, find_reduce_row, &reduced);
}

/* The picture of which the context is made. */
static enum error_code find_small(struct find *f, struct session_shape *shape, struct error *err)
{
    *shape = (struct session_shape){.n = 1, .variant = MODEL_DAMAGE_CONTEXT};
    model_damage_reduced(f->picture->height, f->picture->width, &shape->h, &shape->w);
    f->pixels = mem_alloc((size_t)shape->h * (size_t)shape->w, 3 * sizeof *f->pixels);
    if (!f->pixels)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    find_reduce(f->picture, shape->h, shape->w, f->pixels);
    return OK;
}

/* The context of the whole picture. */
static enum error_code find_context(struct find *f, struct error *err)
{
    struct session_shape shape;
    enum error_code code = find_small(f, &shape, err);
    f->height = (shape.h + 3) / 4;
    f->width = (shape.w + 3) / 4;
    f->context = mem_alloc((size_t)f->info->context * (size_t)f->height * (size_t)f->width, sizeof *f->context);
    const struct raster_source source = find_source(f->pixels, shape.w);
    const struct run_input input = {.images = &source};
    const struct run_output output = {.planes = f->context};
    if (code == OK && !f->context)
        code = error_set(err, ERROR_NO_MEMORY, "out of memory");
    if (code == OK)
        code = repair_network(f->step, ROLE_DAMAGE, &shape, &input, &output, err);
    free(f->pixels);
    f->pixels = NULL;
    return code;
}

struct find_window {
    int x, y, width, height;            /* in the picture, which it may exceed on the right and below */
    int begin_x, begin_y, end_x, end_y; /* what of the picture it is for */
};

/* The context enlarged and cut to a window. */
static enum error_code find_cells(struct find *f, const struct find_window *window, struct error *err)
{
    const int cell = f->info->unshuffle;
    const struct damage_cut cut = {.context = f->context,
                                   .channels = f->info->context,
                                   .height = f->height,
                                   .width = f->width,
                                   .rows = f->rows,
                                   .columns = f->columns,
                                   .x = window->x / cell,
                                   .y = window->y / cell,
                                   .w = window->width / cell,
                                   .h = window->height / cell};
    return damage_cut(&cut, f->cells) ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory");
}

static enum error_code find_window(struct find *f, struct find_window *window, struct error *err)
{
    const size_t at = (size_t)window->begin_y * (size_t)f->picture->width + (size_t)window->begin_x;
    const struct session_shape shape = {
        .n = 1, .h = window->height, .w = window->width, .variant = f->one ? MODEL_DAMAGE_WHOLE : MODEL_DAMAGE_TILE};
    for (int i = 0; i < window->width; i++)
        f->across[i] = window->x + i < f->picture->width ? window->x + i : f->picture->width - 1;
    for (int i = 0; i < window->height; i++)
        f->down[i] = window->y + i < f->picture->height ? window->y + i : f->picture->height - 1;
    const struct raster_source source = {.form = RASTER_U8,
                                         .data = f->picture->pixels,
                                         .stride = 3 * (size_t)f->picture->width,
                                         .columns = f->across,
                                         .rows = f->down};
    struct session_shape small = {0};
    enum error_code code = f->one ? find_small(f, &small, err) : find_cells(f, window, err);
    const struct raster_source reduced = find_source(f->pixels, small.w);
    const struct run_input inputs[2] = {{.images = &source},
                                        {.images = f->one ? &reduced : NULL, .planes = f->one ? NULL : f->cells}};
    /* Rows of a channel's bytes: how likely damage is, and of which of the other channels' kinds. */
    const struct raster_target level = {.form = RASTER_LEVEL,
                                        .data = f->level + at,
                                        .stride = (size_t)f->picture->width,
                                        .x = window->begin_x - window->x,
                                        .y = window->begin_y - window->y,
                                        .width = window->end_x - window->begin_x,
                                        .height = window->end_y - window->begin_y};
    struct raster_target targets[2] = {level, level};
    targets[1].form = RASTER_LABEL;
    targets[1].data = f->kind + at;
    targets[1].first = 1;
    const struct run_image image = {.targets = targets, .target_count = 2};
    const struct run_output output = {.images = &image};
    return code == OK ? repair_network(f->step, ROLE_DAMAGE, &shape, inputs, &output, err) : code;
}

static void find_free(struct find *f)
{
    free(f->pixels);
    free(f->cells);
    free(f->logits);
    free(f->across);
    f->pixels = f->cells = f->logits = NULL;
    f->across = f->down = NULL;
}

/* Whether the reduced picture has the sides that the network expects beside a picture that is filled up. */
static bool find_reduces_alike(const struct find *f, int h, int w)
{
    int own_h, own_w, full_h, full_w;
    model_damage_reduced(f->picture->height, f->picture->width, &own_h, &own_w);
    model_damage_reduced(h, w, &full_h, &full_w);
    return own_h == full_h && own_w == full_w;
}

/* The whole picture in windows that are exact within their cores. */
static enum error_code find_windows(struct find *f, int core, struct error *err)
{
    const struct find_cut across = find_cut(f->picture->width, core, f->info),
                          down = find_cut(f->picture->height, core, f->info);
    f->one = across.count == 1 && down.count == 1 && find_reduces_alike(f, down.window, across.window);
    const struct session_shape shape = {
        .n = 1, .h = down.window, .w = across.window, .variant = f->one ? MODEL_DAMAGE_WHOLE : MODEL_DAMAGE_TILE};
    const size_t px = (size_t)down.window * (size_t)across.window, cell = (size_t)f->info->unshuffle;
    enum error_code code = f->one || f->context ? OK : find_context(f, err);
    if (code == OK)
        code = step_prepare(f->step, ROLE_DAMAGE, &shape, err);
    if (code != OK)
        return code;
    f->across = mem_alloc((size_t)down.window + (size_t)across.window, sizeof *f->across);
    f->down = f->across ? f->across + across.window : NULL;
    f->cells = f->one ? NULL : mem_alloc(px / (cell * cell), (size_t)f->info->context * sizeof *f->cells);
    if (!f->across || (!f->one && !f->cells))
        code = error_set(err, ERROR_NO_MEMORY, "out of memory for a tile of %d × %d", across.window, down.window);
    for (int i = 0; i < down.count && code == OK; i++)
        for (int j = 0; j < across.count && code == OK; j++) {
            struct find_window window = {.width = across.window, .height = down.window};
            find_place(&across, f->picture->width, j, f->info, &window.x, &window.begin_x, &window.end_x);
            find_place(&down, f->picture->height, i, f->info, &window.y, &window.begin_y, &window.end_y);
            code = find_window(f, &window, err);
        }
    find_free(f);
    return code;
}

/* ---- a network for the whole picture, reduced -------------------------------------------------------------------- */

#define FIND_LONGEST 4096 /* px of its longer side: only of a strip more than sixteen times as long as wide */

/* A band of the picture's rows, from the logits of the reduced picture. */
static void find_enlarge(void *context, int item)
{
    const struct find *f = context;
    const float down = (float)f->height / (float)f->picture->height,
                across = (float)f->width / (float)f->picture->width;
    int begin, end;
    thread_band(f->picture->height, item, &begin, &end);
    for (int y = begin; y < end; y++) {
        const float sy = fmaxf(((float)y + 0.5f) * down - 0.5f, 0);
        const int top = sy < (float)(f->height - 1) ? (int)sy : f->height - 1, below = top + (top + 1 < f->height);
        for (int x = 0; x < f->picture->width; x++) {
            const float sx = fmaxf(((float)x + 0.5f) * across - 0.5f, 0);
            const int left = sx < (float)(f->width - 1) ? (int)sx : f->width - 1, right = left + (left + 1 < f->width);
            const float *upper = f->logits + (size_t)top * (size_t)f->width,
                        *lower = f->logits + (size_t)below * (size_t)f->width, part = sx - (float)left;
            const float above = upper[left] + part * (upper[right] - upper[left]),
                        under = lower[left] + part * (lower[right] - lower[left]);
            const size_t at = (size_t)y * (size_t)f->picture->width + (size_t)x;
            f->level[at] = raster_level(above + (sy - (float)top) * (under - above));
            f->kind[at] = 0;
        }
    }
}

static int find_side(int length, double scale, int cell)
{
    const int side = (int)rint(length * scale / cell) * cell;
    return side > cell ? side : cell;
}

static enum error_code find_whole(struct find *f, struct error *err)
{
    const int w = f->picture->width, h = f->picture->height;
    const double scale = fmin((double)MODEL_DAMAGE_SIDE / (w < h ? w : h), (double)FIND_LONGEST / (w > h ? w : h));
    const struct session_shape shape = {.n = 1,
                                        .h = f->height = find_side(h, scale, f->info->unshuffle),
                                        .w = f->width = find_side(w, scale, f->info->unshuffle)};
    const size_t pixels = (size_t)shape.h * (size_t)shape.w;
    f->pixels = mem_alloc(pixels, 3 * sizeof *f->pixels);
    f->logits = mem_alloc(pixels, sizeof *f->logits);
    const struct raster_source source = find_source(f->pixels, shape.w);
    const struct run_input input = {.images = &source};
    const struct run_output output = {.planes = f->logits};
    enum error_code code = f->pixels && f->logits ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory");
    if (code == OK)
        find_reduce(f->picture, shape.h, shape.w, f->pixels);
    if (code == OK)
        code = repair_network(f->step, ROLE_DAMAGE, &shape, &input, &output, err);
    if (code == OK)
        thread_for(thread_bands(h), find_enlarge, f);
    if (step_too_large(code))
        code = step_no_room(f->step, ROLE_DAMAGE, err, "a picture of %d × %d px", shape.w, shape.h);
    find_free(f);
    return code;
}

enum error_code repair_find(struct step *step, int core, uint8_t *level, uint8_t *kind, struct error *err)
{
    struct find f = {.step = step, .picture = step->r->picture, .level = level, .kind = kind};
    struct session *session;
    enum error_code code = step_session(step, ROLE_DAMAGE, &session, &f.info, err);
    if (code != OK)
        return code;
    if (!f.info->context)
        return find_whole(&f, err);
    const int cell = f.info->unshuffle;
    f.rows = (f.picture->height + cell - 1) / cell;
    f.columns = (f.picture->width + cell - 1) / cell;
    if (!core)
        core = step_on_gpu(step) ? FIND_CORE : FIND_CORE_CPU;
    code = find_windows(&f, core, err);
    while (step_too_large(code) && core > FIND_CORE_LEAST) {
        error_clear(err);
        step->r->shrinks++;
        core /= 2;
        code = find_windows(&f, core, err);
    }
    if (step_too_large(code))
        code = step_no_room(step, ROLE_DAMAGE, err, "a tile of %d px", core + 2 * f.info->radius);
    free(f.context);
    return code;
}
