#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "server/pipeline/step.h"

#define TILE_FEATHER_PAD 32  /* of a network whose radius is too large to pad by */
#define TILE_FEATHER_TRIM 16 /* of that pad, not used at all: nearest the cut the network is wrong most */

/* One axis of a padded picture: where each of its px comes from. */
struct tile_axis {
    int length; /* with padding */
    int *from;  /* length indices into the picture */
};

static int tile_up(int value, int multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* Mirrors x back from beyond the last of n px, or repeats the last where n is too short for that. */
static int tile_reflect(int x, int n, int padded)
{
    if (x < n)
        return x;
    return padded - n < n ? 2 * (n - 1) - x : n - 1;
}

/* pre px more, then up to a multiple of unshuffle, both by reflection (as the reference pads right and bottom). */
static enum error_code tile_axis_create(struct tile_axis *axis, int n, int pre, int unshuffle, struct error *err)
{
    int middle = n + pre;
    axis->length = tile_up(middle, unshuffle);
    axis->from = mem_alloc((size_t)axis->length, sizeof(int));
    if (!axis->from)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a tile");
    for (int x = 0; x < axis->length; x++)
        axis->from[x] = tile_reflect(tile_reflect(x, middle, axis->length), n, middle);
    return OK;
}

/* A window of the padded picture as the network takes it: RGB 0..1, planar. */
struct tile_window {
    const struct view_u8 *picture;
    const struct tile_axis *ax, *ay;
    int x0, y0, w, h;
    float *out;
};

static void tile_input_rows(void *context, int item)
{
    const struct tile_window *t = context;
    size_t plane = (size_t)t->w * (size_t)t->h;
    int begin, end;
    thread_band(t->h, item, &begin, &end);
    for (int y = begin; y < end; y++) {
        const uint8_t *row = t->picture->data + (size_t)t->ay->from[t->y0 + y] * t->picture->stride;
        float *to = t->out + (size_t)y * (size_t)t->w;
        for (int x = 0; x < t->w; x++)
            for (size_t c = 0; c < 3; c++)
                to[c * plane + (size_t)x] = (float)row[3 * (size_t)t->ax->from[t->x0 + x] + c] / 255.0f;
    }
}

static void tile_input(const struct view_u8 *picture, const struct tile_axis *ax, const struct tile_axis *ay, int x0,
                       int y0, int w, int h, float *out)
{
    struct tile_window window = {picture, ax, ay, x0, y0, w, h, out};
    thread_for(thread_bands(h), tile_input_rows, &window);
}

/* ---- the reference's way ----------------------------------------------------------------------------------------- */

/* [*begin, *end) widened by whole px to a multiple, to the right where there is room, else to the left. */
static void tile_widen(int *begin, int *end, int length, int multiple)
{
    int need = tile_up(*end - *begin, multiple) - (*end - *begin);
    int right = length - *end < need ? length - *end : need;
    *end += right;
    *begin -= need - right < *begin ? need - right : *begin;
}

static enum error_code tile_compat_one(struct step *step, const struct view_u8 *picture, const struct tile_axis *ax,
                                       const struct tile_axis *ay, const struct rect *core, int pad,
                                       const struct model_info *info, struct image *out, struct error *err)
{
    int x0 = core->x > pad ? core->x - pad : 0, y0 = core->y > pad ? core->y - pad : 0, s = info->scale;
    int x1 = core->x + core->width + pad, y1 = core->y + core->height + pad;
    x1 = x1 < ax->length ? x1 : ax->length;
    y1 = y1 < ay->length ? y1 : ay->length;
    tile_widen(&x0, &x1, ax->length, info->unshuffle);
    tile_widen(&y0, &y1, ay->length, info->unshuffle);
    size_t plane = (size_t)(x1 - x0) * (size_t)(y1 - y0), grown = plane * (size_t)s * (size_t)s;
    struct session_shape shape = {.n = 1, .h = y1 - y0, .w = x1 - x0};
    struct step_tensor input = {mem_alloc(plane, 3 * sizeof(float)), 3 * plane};
    struct step_tensor output = {mem_alloc(grown, 3 * sizeof(float)), 3 * grown};
    enum error_code code = OK;
    if (input.data && output.data) {
        tile_input(picture, ax, ay, x0, y0, x1 - x0, y1 - y0, input.data);
        code = step_network(step, ROLE_UPSCALER, &shape, input, &output, 1, 0, err);
    } else {
        code = error_set(err, ERROR_NO_MEMORY, "out of memory for a tile");
    }
    int right = (core->x + core->width) * s, bottom = (core->y + core->height) * s;
    for (int y = core->y * s; code == OK && y < bottom && y < out->height; y++)
        for (int x = core->x * s; x < right && x < out->width; x++)
            for (size_t c = 0; c < 3; c++) {
                float v =
                    output.data[c * grown + (size_t)(y - y0 * s) * (size_t)((x1 - x0) * s) + (size_t)(x - x0 * s)];
                ((uint8_t *)out->pixels)[3 * ((size_t)y * (size_t)out->width + (size_t)x) + c] =
                    (uint8_t)lrintf(fminf(fmaxf(v, 0), 1) * 255.0f);
            }
    free(input.data);
    free(output.data);
    return code;
}

enum error_code tile_run_compat(struct step *step, const struct view_u8 *picture, const struct tile_compat *cut,
                                struct image **out, struct error *err)
{
    struct tile_axis ax = {0}, ay = {0};
    struct session *session;
    const struct model_info *info;
    *out = NULL;
    enum error_code code = step_session(step, ROLE_UPSCALER, &session, &info, err);
    if (code == OK)
        code = tile_axis_create(&ax, picture->width, cut->pre_pad, info->unshuffle, err);
    if (code == OK)
        code = tile_axis_create(&ay, picture->height, cut->pre_pad, info->unshuffle, err);
    if (code == OK)
        code = image_create(out, picture->width * info->scale, picture->height * info->scale, 3, 8, false, err);
    if (code == OK) {
        int tile_w = cut->tile ? cut->tile : ax.length, tile_h = cut->tile ? cut->tile : ay.length;
        int nx = (ax.length + tile_w - 1) / tile_w, ny = (ay.length + tile_h - 1) / tile_h;
        atomic_store(&step->r->tiles_done, 0);
        atomic_store(&step->r->tiles_total, nx * ny);
        for (int i = 0; i < nx * ny && code == OK; i++) {
            struct rect core = {i % nx * tile_w, i / nx * tile_h, tile_w, tile_h};
            core.width = core.x + tile_w < ax.length ? tile_w : ax.length - core.x;
            core.height = core.y + tile_h < ay.length ? tile_h : ay.length - core.y;
            code = tile_compat_one(step, picture, &ax, &ay, &core, cut->tile ? cut->tile_pad : 0, info, *out, err);
            atomic_fetch_add(&step->r->tiles_done, code == OK);
        }
        step->r->tiles = nx * ny;
    }
    free(ax.from);
    free(ay.from);
    if (code != OK)
        image_destroy(out);
    return code;
}

/* ---- the default way --------------------------------------------------------------------------------------------- */

/* One axis cut into windows of one size, so that all tiles share a plan, and each window's weight at each px of the
 * result. The weights of all windows sum to 1 at each px: exact seams have weights 0 and 1 only. */
struct tile_cut {
    int count, window;
    int *start;    /* of each window, px of the input */
    float *weight; /* count × window*scale */
};

static void tile_cut_free(struct tile_cut *cut)
{
    free(cut->start);
    free(cut->weight);
}

/* Where window i is used: all of it but a trim at its cuts. */
static float tile_first(const struct tile_cut *cut, int i)
{
    return (float)(cut->start[i] + (i > 0 ? TILE_FEATHER_TRIM : 0));
}

static float tile_last(const struct tile_cut *cut, int i)
{
    return (float)(cut->start[i] + cut->window - (i + 1 < cut->count ? TILE_FEATHER_TRIM : 0));
}

/* Rises over what is shared with the window before, falls over what is shared with the window after. */
static float tile_feather(const struct tile_cut *cut, int i, float x)
{
    float w = 1;
    if (i > 0)
        w *= fminf(1, (x - tile_first(cut, i)) / (tile_last(cut, i - 1) - tile_first(cut, i)));
    if (i + 1 < cut->count)
        w *= fminf(1, (tile_last(cut, i) - x) / (tile_last(cut, i) - tile_first(cut, i + 1)));
    return x > tile_first(cut, i) && x < tile_last(cut, i) ? w : 0;
}

static enum error_code tile_cut_create(struct tile_cut *cut, int length, int core, const struct model_info *info,
                                       struct error *err)
{
    int u = info->unshuffle, pad = tile_up(info->exact_tiles ? info->radius : TILE_FEATHER_PAD, u);
    cut->count = core ? (length + core - 1) / core : 1;
    core = tile_up((length + cut->count - 1) / cut->count, u); /* of equal size */
    cut->count = (length + core - 1) / core;
    cut->window = core + 2 * pad < length ? core + 2 * pad : length;
    int samples = cut->window * info->scale;
    cut->start = mem_alloc((size_t)cut->count, sizeof(int));
    cut->weight = mem_calloc((size_t)cut->count * (size_t)samples, sizeof(float));
    if (!cut->start || !cut->weight)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a tile");
    for (int i = 0; i < cut->count; i++) {
        int start = i * core - pad;
        start = start < 0 ? 0 : start;
        cut->start[i] = start < length - cut->window ? start : length - cut->window;
    }
    for (int i = 0; i < cut->count; i++)
        for (int k = 0; k < samples; k++) {
            float x = (float)cut->start[i] + ((float)k + 0.5f) / (float)info->scale, sum = 0;
            if (info->exact_tiles) {
                cut->weight[i * samples + k] = x >= (float)(i * core) && x < (float)((i + 1) * core);
                continue;
            }
            for (int j = 0; j < cut->count; j++)
                sum += tile_feather(cut, j, x);
            cut->weight[i * samples + k] = tile_feather(cut, i, x) / sum;
        }
    return OK;
}

struct tile_job {
    const struct view_u8 *picture;
    const struct model_info *info;
    struct tile_axis ax, ay;
    struct tile_cut cx, cy;
    float *input, *output;
    float *band; /* a ring of window*scale rows of picture.width*scale × RGB: those of the result from band_y on */
    int band_y;
    int i, j;         /* the tile at hand */
    int first, count; /* rows of the result on their way out */
};

static int tile_ring(const struct tile_job *job)
{
    return job->cy.window * job->info->scale;
}

static float *tile_band_row(const struct tile_job *job, int y)
{
    return job->band + (size_t)(y % tile_ring(job)) * 3 * (size_t)job->picture->width * (size_t)job->info->scale;
}

static inline float tile_clamp(float v)
{
    return (v < 0 ? 0 : v > 1 ? 1 : v) * 255.0f;
}

/* Puts rows of one tile's result into the band: where seams are exact, as they will be, else their share. */
static void tile_collect(void *context, int item)
{
    const struct tile_job *job = context;
    int s = job->info->scale, w = job->cx.window * s, h = job->cy.window * s, begin, end, left = 0, right = w;
    int x0 = job->cx.start[job->i] * s, y0 = job->cy.start[job->j] * s;
    size_t plane = (size_t)w * (size_t)h;
    const float *wx = job->cx.weight + (size_t)job->i * (size_t)w, *wy = job->cy.weight + (size_t)job->j * (size_t)h;
    right = x0 + right < job->picture->width * s ? right : job->picture->width * s - x0;
    while (left < right && wx[left] == 0)
        left++;
    while (left < right && wx[right - 1] == 0)
        right--;
    thread_band(h, item, &begin, &end);
    end = y0 + end < job->picture->height * s ? end : job->picture->height * s - y0;
    for (int y = begin; y < end; y++) {
        float *to = tile_band_row(job, y0 + y) + 3 * (size_t)x0;
        const float *from = job->output + (size_t)y * (size_t)w;
        if (wy[y] == 0)
            continue;
        for (int x = left; x < right; x++)
            for (size_t c = 0; c < 3; c++) {
                float v = from[c * plane + (size_t)x];
                float *sum = &to[3 * (size_t)x + c];
                *sum = job->info->exact_tiles ? tile_clamp(v) : *sum + wx[x] * wy[y] * v;
            }
    }
}

/* Of sums. */
static void tile_clamp_rows(void *context, int item)
{
    const struct tile_job *job = context;
    size_t n = 3 * (size_t)job->picture->width * (size_t)job->info->scale;
    int begin, end;
    thread_band(job->count, item, &begin, &end);
    for (int y = begin; y < end; y++) {
        float *row = tile_band_row(job, job->first + y);
        for (size_t i = 0; i < n; i++)
            row[i] = tile_clamp(row[i]);
    }
}

/* Hands out the rows that no later tile touches. */
static void tile_emit(struct tile_job *job, int until, tile_emit_fn *emit, void *user)
{
    int last = job->picture->height * job->info->scale, end = until < last ? until : last, ring = tile_ring(job);
    size_t line = 3 * (size_t)job->picture->width * (size_t)job->info->scale;
    for (job->first = job->band_y; job->first < end; job->first += job->count) {
        int around = ring - job->first % ring; /* rows until the ring's end */
        job->count = end - job->first < TILE_ROWS ? end - job->first : TILE_ROWS;
        job->count = job->count < around ? job->count : around;
        if (!job->info->exact_tiles)
            thread_for(thread_bands(job->count), tile_clamp_rows, job);
        float *rows = tile_band_row(job, job->first);
        emit(user, rows, job->count);
        if (!job->info->exact_tiles) /* for the sums to come */
            memset(rows, 0, (size_t)job->count * line * sizeof *rows);
    }
    job->band_y = until;
}

/* The first row of the result that the tiles of row j of the cut give weight to. */
static int tile_first_row(const struct tile_job *job, int j)
{
    int s = job->info->scale, h = job->cy.window * s, y = 0;
    if (j == job->cy.count)
        return job->ay.length * s;
    while (y < h && job->cy.weight[(size_t)j * (size_t)h + (size_t)y] == 0)
        y++;
    return job->cy.start[j] * s + y;
}

static enum error_code tile_run_all(struct step *step, struct tile_job *job, tile_emit_fn *emit, void *user,
                                    struct error *err)
{
    struct session_shape shape = {.n = 1, .h = job->cy.window, .w = job->cx.window};
    size_t plane = (size_t)shape.h * (size_t)shape.w,
           grown = plane * (size_t)job->info->scale * (size_t)job->info->scale;
    enum error_code code = OK;
    for (int j = 0; j < job->cy.count && code == OK; j++) {
        for (int i = 0; i < job->cx.count && code == OK; i++) {
            struct step_tensor output = {job->output, 3 * grown};
            tile_input(job->picture, &job->ax, &job->ay, job->cx.start[i], job->cy.start[j], shape.w, shape.h,
                       job->input);
            code = step_network(step, ROLE_UPSCALER, &shape, (struct step_tensor){job->input, 3 * plane}, &output, 1, 0,
                                err);
            job->i = i;
            job->j = j;
            if (code == OK)
                thread_for(thread_bands(job->cy.window * job->info->scale), tile_collect, job);
            atomic_fetch_add(&step->r->tiles_done, code == OK);
        }
        if (code == OK)
            tile_emit(job, tile_first_row(job, j + 1), emit, user);
    }
    return code;
}

enum error_code tile_run(struct step *step, const struct view_u8 *picture, int core, tile_emit_fn *emit, void *user,
                         struct error *err)
{
    struct tile_job job = {.picture = picture};
    struct session *session;
    enum error_code code = step_session(step, ROLE_UPSCALER, &session, &job.info, err);
    if (code == OK)
        code = tile_axis_create(&job.ax, picture->width, 0, job.info->unshuffle, err);
    if (code == OK)
        code = tile_axis_create(&job.ay, picture->height, 0, job.info->unshuffle, err);
    if (code == OK)
        code = tile_cut_create(&job.cx, job.ax.length, core, job.info, err);
    if (code == OK)
        code = tile_cut_create(&job.cy, job.ay.length, core, job.info, err);
    if (code == OK) {
        struct session_shape shape = {.n = 1, .h = job.cy.window, .w = job.cx.window};
        code = step_prepare(step, ROLE_UPSCALER, &shape, err);
    }
    if (code == OK) {
        size_t plane = (size_t)job.cx.window * (size_t)job.cy.window, s = (size_t)job.info->scale;
        job.input = mem_alloc(plane, 3 * sizeof(float));
        job.output = mem_alloc(plane, 3 * s * s * sizeof(float));
        job.band = mem_calloc((size_t)job.cy.window * s * (size_t)picture->width, 3 * s * sizeof(float));
        if (!job.input || !job.output || !job.band)
            code = error_set(err, ERROR_NO_MEMORY, "out of memory for a tile");
    }
    if (code == OK) {
        atomic_store(&step->r->tiles_done, 0);
        atomic_store(&step->r->tiles_total, job.cx.count * job.cy.count);
        step->r->tiles = job.cx.count * job.cy.count;
        code = tile_run_all(step, &job, emit, user, err);
    }
    free(job.input);
    free(job.output);
    free(job.band);
    tile_cut_free(&job.cx);
    tile_cut_free(&job.cy);
    free(job.ax.from);
    free(job.ay.from);
    return code;
}
