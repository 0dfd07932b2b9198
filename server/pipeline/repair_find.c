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

static struct raster_source find_source(const float *pixels, int width)
{
    return (struct raster_source){.form = RASTER_F32, .data = pixels, .stride = 3 * sizeof *pixels * (size_t)width};
}

/* The picture as one that is to be reduced. */
static struct raster_source find_picture(const struct find *f)
{
    return (struct raster_source){.form = RASTER_U8,
                                  .data = f->picture->pixels,
                                  .stride = 3 * (size_t)f->picture->width,
                                  .width = f->picture->width,
                                  .height = f->picture->height};
}

/* The context of the whole picture. */
static enum error_code find_context(struct find *f, struct error *err)
{
    struct session_shape shape = {.n = 1, .variant = MODEL_DAMAGE_CONTEXT};
    model_damage_reduced(f->picture->height, f->picture->width, &shape.h, &shape.w);
    f->height = (shape.h + 3) / 4;
    f->width = (shape.w + 3) / 4;
    f->context = mem_alloc((size_t)f->info->context * (size_t)f->height * (size_t)f->width, sizeof *f->context);
    f->pixels = mem_alloc((size_t)shape.h * (size_t)shape.w, 3 * sizeof *f->pixels);
    const struct raster_source picture = find_picture(f), source = find_source(f->pixels, shape.w);
    const struct run_input input = {.images = &source};
    const struct run_output output = {.planes = f->context};
    enum error_code code = f->context && f->pixels ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory");
    if (code == OK)
        raster_reduce(&picture, shape.h, shape.w, f->pixels); /* the device would get the whole picture at once */
    if (code == OK)
        code = repair_network(f->step, ROLE_DAMAGE, &shape, &input, &output, err);
    free(f->pixels);
    f->pixels = NULL;
    if (code != OK) { /* smaller tiles ask for it again */
        free(f->context);
        f->context = NULL;
    }
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
                                         .rows = f->down,
                                         .number = f->picture == f->step->r->picture ? f->step->repairing : 0};
    const enum error_code code = f->one ? OK : find_cells(f, window, err);
    const struct raster_source reduced = find_picture(f);
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
    const struct raster_source picture = find_picture(f), source = find_source(f->pixels, shape.w);
    const struct run_input input = {.images = &source};
    const struct run_output output = {.planes = f->logits};
    enum error_code code = f->pixels && f->logits ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory");
    if (code == OK)
        raster_reduce(&picture, shape.h, shape.w, f->pixels);
    if (code == OK)
        code = repair_network(f->step, ROLE_DAMAGE, &shape, &input, &output, err);
    if (code == OK)
        thread_for(thread_bands(h), find_enlarge, f);
    if (step_too_large(code))
        code = step_no_room(f->step, ROLE_DAMAGE, err, "a picture of %d × %d px", shape.w, shape.h);
    find_free(f);
    return code;
}

enum error_code repair_find(struct step *step, const struct image *picture, int core, uint8_t *level, uint8_t *kind,
                            struct error *err)
{
    struct find f = {.step = step, .picture = picture, .level = level, .kind = kind};
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
