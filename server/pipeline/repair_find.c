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
    float *context, *pixels, *cells, *logits;
    int height, width; /* of the context, or of the reduced picture */
    uint8_t *level, *kind;
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

enum error_code repair_network(struct step *step, enum model_role role, const struct session_shape *shape,
                               const struct run_input *inputs, float *planes, struct error *err)
{
    struct restoration *r = step->r, *waits = step->context->current ? step->context->current : r;
    const struct run_output output = {.planes = planes};
    const struct run_io run = {.inputs = inputs,
                               .outputs = &output,
                               .range = model_range(step->model[role]->info.kind),
                               .options = {.cancel = &r->cancel, .progress = &waits->progress}};
    return step_run(step, role, shape, &run, NULL, err);
}

/* The picture reduced to h × w: each pixel the mean of those that it touches, as torch's adaptive_avg_pool2d has it. */
struct find_reduced {
    const struct image *picture;
    int64_t h, w;
    float *out;
    atomic_bool failed;
};

static void find_reduce_band(void *context, int item)
{
    struct find_reduced *r = context;
    const int64_t height = r->picture->height, width = r->picture->width, w = r->w;
    float *row = mem_alloc((size_t)width, 3 * sizeof *row), *out;
    double *sums = mem_alloc((size_t)w, 3 * sizeof *sums);
    int *firsts = mem_alloc((size_t)w, 2 * sizeof *firsts), *lasts = firsts + w; /* columns of the picture */
    int begin, end;
    thread_band((int)r->h, item, &begin, &end);
    const bool room = row && sums && firsts;
    if (!room)
        atomic_store(&r->failed, true);
    for (int64_t x = 0; x < w && room; x++) {
        firsts[x] = (int)(x * width / w);
        lasts[x] = (int)(((x + 1) * width + w - 1) / w);
    }
    for (int64_t y = begin; y < end && room; y++) {
        const int64_t first = y * height / r->h, last = ((y + 1) * height + r->h - 1) / r->h;
        memset(sums, 0, 3 * (size_t)w * sizeof *sums);
        for (int64_t i = first; i < last; i++) {
            repair_row(r->picture, (int)i, 0, (int)width, row);
            for (int64_t x = 0; x < w; x++) {
                double *sum = sums + 3 * x, a = sum[0], b = sum[1], c = sum[2];
                for (const float *px = row + 3 * (size_t)firsts[x]; px < row + 3 * (size_t)lasts[x]; px += 3) {
                    a += px[0];
                    b += px[1];
                    c += px[2];
                }
                sum[0] = a;
                sum[1] = b;
                sum[2] = c;
            }
        }
        out = r->out + 3 * y * w;
        for (int64_t x = 0; x < w; x++) {
            const int64_t across = lasts[x] - firsts[x];
            for (int c = 0; c < 3; c++)
                *out++ = (float)(sums[3 * x + c] / (double)(across * (last - first)));
        }
    }
    free(row);
    free(sums);
    free(firsts);
}

static enum error_code find_reduce(const struct image *picture, int h, int w, float *out, struct error *err)
{
    struct find_reduced reduced = {.picture = picture, .h = h, .w = w, .out = out};
    thread_for(thread_bands(h), find_reduce_band, &reduced);
    return atomic_load(&reduced.failed) ? error_set(err, ERROR_NO_MEMORY, "out of memory") : OK;
}

/* The context of the whole picture. */
static enum error_code find_context(struct find *f, struct error *err)
{
    const int longest = f->picture->width > f->picture->height ? f->picture->width : f->picture->height;
    const double scale = longest > MODEL_DAMAGE_SIDE ? (double)MODEL_DAMAGE_SIDE / longest : 1;
    const struct session_shape shape = {.n = 1,
                                        .h = (int)fmax(1, rint(f->picture->height * scale)),
                                        .w = (int)fmax(1, rint(f->picture->width * scale)),
                                        .variant = MODEL_DAMAGE_CONTEXT};
    f->height = (shape.h + 3) / 4;
    f->width = (shape.w + 3) / 4;
    float *small = mem_alloc((size_t)shape.h * (size_t)shape.w, 3 * sizeof *small);
    f->context = mem_alloc((size_t)f->info->context * (size_t)f->height * (size_t)f->width, sizeof *f->context);
    const struct raster_source source = {
        .form = RASTER_F32, .data = small, .stride = 3 * sizeof *small * (size_t)shape.w};
    const struct run_input input = {.images = &source};
    enum error_code code = small && f->context ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory");
    if (code == OK)
        code = find_reduce(f->picture, shape.h, shape.w, small, err);
    if (code == OK)
        code = repair_network(f->step, ROLE_DAMAGE, &shape, &input, f->context, err);
    free(small);
    return code;
}

struct find_window {
    struct find *find;
    int x, y, width, height;            /* in the picture, which it may exceed on the right and below */
    int begin_x, begin_y, end_x, end_y; /* what of the picture it is for */
};

/* A band of the window's rows, the picture's edge repeated beyond it. */
static void find_read(void *context, int item)
{
    const struct find_window *window = context;
    const struct image *picture = window->find->picture;
    int begin, end;
    thread_band(window->height, item, &begin, &end);
    for (int i = begin; i < end; i++) {
        float *row = window->find->pixels + (size_t)i * 3 * (size_t)window->width;
        const int y = window->y + i < picture->height ? window->y + i : picture->height - 1;
        const int there = picture->width - window->x < window->width ? picture->width - window->x : window->width;
        repair_row(picture, y, window->x, there, row);
        for (int x = there; x < window->width; x++)
            memcpy(row + 3 * (size_t)x, row + 3 * (size_t)(there - 1), 3 * sizeof *row);
    }
}

static void find_write(void *context, int item)
{
    const struct find_window *window = context;
    const struct find *f = window->find;
    const size_t plane = (size_t)window->width * (size_t)window->height;
    int begin, end;
    thread_band(window->end_y - window->begin_y, item, &begin, &end);
    for (int y = window->begin_y + begin; y < window->begin_y + end; y++)
        for (int x = window->begin_x; x < window->end_x; x++) {
            const size_t at = (size_t)y * (size_t)f->picture->width + (size_t)x;
            const float *value = f->logits + (size_t)(y - window->y) * (size_t)window->width + (x - window->x);
            int kind = 0;
            for (int k = 1; k < DEFECT_KINDS; k++)
                kind = value[(size_t)(1 + k) * plane] > value[(size_t)(1 + kind) * plane] ? k : kind;
            f->level[at] = defect_level(value[0]);
            f->kind[at] = (uint8_t)kind;
        }
}

static enum error_code find_window(struct find *f, struct find_window *window, struct error *err)
{
    const int cell = f->info->unshuffle;
    const struct session_shape shape = {.n = 1, .h = window->height, .w = window->width, .variant = MODEL_DAMAGE_TILE};
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
    const struct raster_source source = {
        .form = RASTER_F32, .data = f->pixels, .stride = 3 * sizeof *f->pixels * (size_t)window->width};
    const struct run_input inputs[2] = {{.images = &source}, {.planes = f->cells}};
    thread_for(thread_bands(window->height), find_read, window);
    damage_cut(&cut, f->cells);
    enum error_code code = repair_network(f->step, ROLE_DAMAGE, &shape, inputs, f->logits, err);
    if (code == OK)
        thread_for(thread_bands(window->end_y - window->begin_y), find_write, window);
    return code;
}

static void find_free(struct find *f)
{
    free(f->pixels);
    free(f->cells);
    free(f->logits);
    f->pixels = f->cells = f->logits = NULL;
}

/* The whole picture in windows that are exact within their cores. */
static enum error_code find_windows(struct find *f, int core, struct error *err)
{
    const struct find_cut across = find_cut(f->picture->width, core, f->info),
                          down = find_cut(f->picture->height, core, f->info);
    const struct session_shape shape = {.n = 1, .h = down.window, .w = across.window, .variant = MODEL_DAMAGE_TILE};
    const size_t px = (size_t)down.window * (size_t)across.window, cell = (size_t)f->info->unshuffle;
    enum error_code code = step_prepare(f->step, ROLE_DAMAGE, &shape, err);
    if (code != OK)
        return code;
    f->pixels = mem_alloc(px, 3 * sizeof *f->pixels);
    f->cells = mem_alloc(px / (cell * cell), (size_t)f->info->context * sizeof *f->cells);
    f->logits = mem_alloc(px, (size_t)f->info->classes * sizeof *f->logits);
    if (!f->pixels || !f->cells || !f->logits)
        code = error_set(err, ERROR_NO_MEMORY, "out of memory for a tile of %d × %d", across.window, down.window);
    for (int i = 0; i < down.count && code == OK; i++)
        for (int j = 0; j < across.count && code == OK; j++) {
            struct find_window window = {.find = f, .width = across.window, .height = down.window};
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
            f->level[at] = defect_level(above + (sy - (float)top) * (under - above));
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
    const struct raster_source source = {
        .form = RASTER_F32, .data = f->pixels, .stride = 3 * sizeof *f->pixels * (size_t)shape.w};
    const struct run_input input = {.images = &source};
    enum error_code code = f->pixels && f->logits ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory");
    if (code == OK)
        code = find_reduce(f->picture, shape.h, shape.w, f->pixels, err);
    if (code == OK)
        code = repair_network(f->step, ROLE_DAMAGE, &shape, &input, f->logits, err);
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
    struct device_info device;
    device_info(step->context->device, &device);
    enum error_code code = step_session(step, ROLE_DAMAGE, &session, &f.info, err);
    if (code != OK)
        return code;
    if (!f.info->context)
        return find_whole(&f, err);
    const int cell = f.info->unshuffle;
    f.rows = (f.picture->height + cell - 1) / cell;
    f.columns = (f.picture->width + cell - 1) / cell;
    if (!core)
        core = device.type == DEVICE_CPU || device.type == DEVICE_SOFTWARE ? FIND_CORE_CPU : FIND_CORE;
    code = find_context(&f, err);
    if (code == OK)
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
