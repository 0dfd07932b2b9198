#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "server/pipeline/pool.h"
#include "server/pipeline/tile_private.h"

#define TILE_BATCH_AREA (512 * 512) /* px that the network's body works on: this many fill any GPU */

/* ---- the reference's way ----------------------------------------------------------------------------------------- */

/* [*begin, *end) widened by whole px to a multiple, to the right where there is room, else to the left. */
static void tile_stretch(int *begin, int *end, int length, int multiple)
{
    int need = tile_up(*end - *begin, multiple) - (*end - *begin);
    int right = length - *end < need ? length - *end : need;
    *end += right;
    *begin -= need - right < *begin ? need - right : *begin;
}

/* The window of one axis for its core [core, core + size), and the part of the result that it makes. */
static void tile_compat_axis(const struct tile_axis *axis, int core, int size, int pad, const struct model_info *info,
                             int limit, int *begin, int *length, int *first, int *done)
{
    int end = core + size + pad < axis->length ? core + size + pad : axis->length;
    *begin = core > pad ? core - pad : 0;
    tile_stretch(begin, &end, axis->length, info->unshuffle);
    *length = end - *begin;
    *first = core * info->scale;
    *done = (core + size) * info->scale < limit ? size * info->scale : limit - *first;
}

static enum error_code tile_list_compat(struct tile_job *job, const struct tile_compat *cut, struct error *err)
{
    int tile_w = cut->tile ? cut->tile : job->ax.length, tile_h = cut->tile ? cut->tile : job->ay.length;
    int nx = (job->ax.length + tile_w - 1) / tile_w, ny = (job->ay.length + tile_h - 1) / tile_h;
    int pad = cut->tile ? cut->tile_pad : 0, s = job->info->scale;
    job->tiles = mem_calloc((size_t)nx * (size_t)ny, sizeof *job->tiles);
    if (!job->tiles)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a tile");
    for (int i = 0; i < nx * ny; i++) {
        struct tile *t = &job->tiles[i];
        int x = i % nx * tile_w, y = i / nx * tile_h;
        t->row = i / nx;
        tile_compat_axis(&job->ax, x, x + tile_w < job->ax.length ? tile_w : job->ax.length - x, pad, job->info,
                         job->picture.width * s, &t->x, &t->width, &t->done.x, &t->done.width);
        tile_compat_axis(&job->ay, y, y + tile_h < job->ay.length ? tile_h : job->ay.length - y, pad, job->info,
                         job->picture.height * s, &t->y, &t->height, &t->done.y, &t->done.height);
    }
    job->count = nx * ny;
    return OK;
}

/* ---- the default way --------------------------------------------------------------------------------------------- */

static enum error_code tile_list(struct tile_job *job, struct error *err)
{
    int s = job->info->scale, count = job->cx.count * job->cy.count;
    job->tiles = mem_calloc((size_t)count, sizeof *job->tiles);
    if (!job->tiles)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a tile");
    for (int k = 0; k < count; k++) {
        int i = k % job->cx.count, j = k / job->cx.count;
        int x0 = tile_reaches(&job->cx, i, s, job->picture.width * s),
            y0 = tile_reaches(&job->cy, j, s, job->picture.height * s);
        int x1 = tile_reaches(&job->cx, i + 1, s, job->picture.width * s),
            y1 = tile_reaches(&job->cy, j + 1, s, job->picture.height * s);
        job->tiles[k] = (struct tile){.x = job->cx.start[i],
                                      .y = job->cy.start[j],
                                      .width = job->cx.window,
                                      .height = job->cy.window,
                                      .done = {x0, y0, x1 - x0, y1 - y0},
                                      .column = i,
                                      .row = j};
    }
    job->count = count;
    return OK;
}

static enum error_code tile_canvas(struct tile_job *job, struct error *err)
{
    canvas_destroy(&job->canvas);
    const int s = job->info->scale;
    struct canvas_shape shape = {
        .width = job->picture.width * s, .columns = job->cx.window * s, .rows = job->cy.window * s};
    if (job->info->exact_tiles || !job->cx.count || job->count == 1)
        return OK;
    for (int i = 0; i < job->count; i++) {
        const struct tile *t = &job->tiles[i];
        const int right = (t->x + t->width) * s - (t->done.x + t->done.width),
                  below = (t->y + t->height) * s - (t->done.y + t->done.height);
        shape.right = right > shape.right ? right : shape.right;
        shape.below = below > shape.below ? below : shape.below;
    }
    return canvas_create(&job->canvas, job->step->context->device, &shape, err);
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

/* How many tiles go into a run: if they are small, as many as fill the device. */
static int tile_batch(const struct tile_job *job)
{
    int n = 1, most = step_batch(job->step), u = model_folded(job->info);
    most = most < STEP_BATCH ? most : STEP_BATCH;
    double area = (double)job->tiles[0].width * job->tiles[0].height / (u * u);
    while (2 * n <= most && 2 * n * area <= TILE_BATCH_AREA)
        n *= 2;
    return n;
}

/* The graph for these means: with the border, where the network wants one. */
static int tile_variant(const struct tile_job *job, int means)
{
    return job->info->border ? means | MODEL_BORDERED : means;
}

static enum error_code tile_begin_job(struct tile_job **out, struct step *step, const struct view_u8 *picture, int pre,
                                      const struct tile_sink *sink, struct error *err)
{
    struct session *session;
    struct device_info device;
    struct tile_job *job = *out = mem_calloc(1, sizeof *job);
    if (!job)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a tile");
    device_info(step->context->device, &device);
    job->step = step;
    job->picture = *picture;
    job->sink = *sink;
    job->precision = step_precision(step, ROLE_UPSCALER);
    job->batch = 1;
    job->ahead = device.asynchronous ? PLAN_RUNS : 1;
    enum error_code code = step_session(step, ROLE_UPSCALER, &session, &job->info, err);
    if (code == OK)
        code = tile_axis_create(&job->ax, picture->width, pre, job->info, err);
    return code == OK ? tile_axis_create(&job->ay, picture->height, pre, job->info, err) : code;
}

static void tile_count(struct tile_job *job)
{
    atomic_store(&job->step->r->tiles_done, 0);
    atomic_store(&job->step->r->tiles_total, job->count * (job->pool ? 1 + job->info->pool_count : 1));
    job->step->r->tiles = job->count;
    job->step->r->shared = 0;
}

enum error_code tile_begin_compat(struct tile_job **out, struct step *step, const struct view_u8 *picture,
                                  const struct tile_compat *cut, const struct tile_sink *sink, struct error *err)
{
    enum error_code code = tile_begin_job(out, step, picture, cut->pre_pad, sink, err);
    if (code == OK)
        code = tile_list_compat(*out, cut, err);
    if (code == OK)
        tile_count(*out);
    else
        tile_end(out);
    return code;
}

static enum error_code tile_begin_cut(struct tile_job **out, struct step *step, const struct view_u8 *picture,
                                      int across, int down, const struct tile_sink *sink, struct error *err)
{
    enum error_code code = tile_begin_job(out, step, picture, 0, sink, err);
    struct tile_job *job = *out;
    if (code == OK)
        code = tile_cut_create(&job->cx, job->ax.length, across, job->info, err);
    if (code == OK)
        code = tile_cut_create(&job->cy, job->ay.length, down, job->info, err);
    if (code == OK)
        code = tile_list(job, err);
    const bool pooled = code == OK && job->count > 1 && job->info->pool_count;
    if (code == OK) {
        struct session_shape shape = {.n = 1, .h = job->cy.window, .w = job->cx.window};
        shape.variant = tile_variant(job, pooled ? MODEL_MEANS_FIRST + job->info->pool_count : MODEL_MEANS_OWN);
        code = step_prepare(step, ROLE_UPSCALER, &shape, err);
    }
    if (code == OK)
        code = tile_canvas(job, err);
    if (code == OK)
        job->batch = tile_batch(job);
    if (code == OK && pooled)
        code = pool_create(&job->pool, job->info, job->ax.length, job->ay.length, job->cx.window, job->cy.window,
                           job->batch, err);
    if (code == OK) {
        tile_count(job);
    } else {
        tile_end(out);
    }
    return code;
}

enum error_code tile_begin(struct tile_job **out, struct step *step, const struct view_u8 *picture, int core,
                           const struct tile_sink *sink, struct error *err)
{
    return tile_begin_cut(out, step, picture, core, core, sink, err);
}

enum error_code tile_begin_strips(struct tile_job **out, struct step *step, const struct view_u8 *picture, int core,
                                  const struct tile_sink *sink, struct error *err)
{
    return tile_begin_cut(out, step, picture, 0, core, sink, err);
}

int tile_rows(const struct tile_job *job)
{
    int most = 0;
    for (int i = 0; i < job->count; i++)
        most = job->tiles[i].done.height > most ? job->tiles[i].done.height : most;
    return most;
}

int tile_columns(const struct tile_job *job)
{
    int most = 0;
    for (int i = 0; i < job->count; i++)
        most = job->tiles[i].done.width > most ? job->tiles[i].done.width : most;
    return most * job->batch;
}

bool tile_wide(const struct tile_job *job)
{
    return job->cx.count == 1;
}

void tile_deepen(struct tile_job *job, const uint16_t *samples)
{
    job->deep = samples;
}

void tile_describe(const struct tile_job *job, const struct tile *t, const struct rect *run,
                   struct raster_source *source, struct run_image *image, struct raster_target *target)
{
    const int s = job->info->scale;
    const struct rect done = t->done;
    *source = (struct raster_source){.form = job->deep ? RASTER_U16 : RASTER_U8,
                                     .data = job->deep ? (const void *)job->deep : job->picture.data,
                                     .stride = job->deep ? (size_t)job->picture.width * 6 : job->picture.stride,
                                     .columns = job->ax.from + t->x,
                                     .rows = job->ay.from + t->y};
    *image = (struct run_image){.targets = target, .target_count = target && done.width > 0 && done.height > 0};
    if (image->target_count)
        job->sink.target(job->sink.user, &done, run, target);
    if (job->canvas) {
        image->x = t->x * s;
        image->y = t->y * s;
        image->weight_x = tile_weights(&job->cx, t->column, s);
        image->weight_y = tile_weights(&job->cy, t->row, s);
        image->done = (struct run_done){done.x, done.y, done.width, done.height};
    }
    if (image->target_count && !job->canvas) {
        target->x -= t->x * s;
        target->y -= t->y * s;
    }
}

/* What the tiles of a flight complete. */
static struct rect tile_flight_done(const struct tile_job *job, const struct tile_flight *flight)
{
    const struct rect first = job->tiles[flight->first].done, last = job->tiles[flight->first + flight->count - 1].done;
    return (struct rect){first.x, first.y, last.x + last.width - first.x, first.height};
}

static bool tile_pooling(const struct tile_job *job)
{
    return job->pool && !pool_ready(job->pool);
}

static struct pool_axis tile_pool_axis(const struct tile_cut *cut, int i)
{
    return (struct pool_axis){.start = cut->start[i],
                              .window = cut->window,
                              .from = i * cut->core,
                              .to = (i + 1) * cut->core,
                              .first = i == 0,
                              .last = i + 1 == cut->count};
}

/* The inputs of a flight's run behind the picture. */
static void tile_pool_inputs(const struct tile_job *job, const struct tile_flight *flight, struct run_input *inputs)
{
    for (int i = 0; i < flight->count; i++) {
        const struct tile *t = &job->tiles[flight->first + i];
        const struct pool_axis x = tile_pool_axis(&job->cx, t->column), y = tile_pool_axis(&job->cy, t->row);
        pool_place(job->pool, i, &x, &y);
    }
    pool_inputs(job->pool, inputs);
}

/* The run of a flight, whose sources it fills in. targets: NULL, or one of each tile. */
static struct run_io tile_run(const struct tile_job *job, struct tile_flight *flight, struct run_input *inputs,
                              struct run_output *output, struct run_image *images, struct raster_target *targets)
{
    const struct rect done = tile_flight_done(job, flight);
    for (int i = 0; i < flight->count; i++)
        tile_describe(job, &job->tiles[flight->first + i], &done, &flight->sources[i], &images[i],
                      targets && !flight->pooled ? &targets[i] : NULL);
    inputs[0] = (struct run_input){.images = flight->sources};
    if (job->pool)
        tile_pool_inputs(job, flight, inputs + 1);
    *output = flight->pooled ? (struct run_output){.planes = pool_output(job->pool, flight->slot)}
                             : (struct run_output){.images = images, .canvas = job->canvas};
    return (struct run_io){
        .inputs = inputs,
        .outputs = targets || flight->pooled ? output : NULL,
        .range = model_range(MODEL_UPSCALER),
        .options = {.cancel = &job->step->r->cancel, .progress = &job->step->r->progress, .background = true}};
}

static void tile_discard(struct tile_job *job)
{
    for (int i = 0; i < job->flying; i++)
        plan_discard(job->flights[i].plan);
    job->flying = 0;
}

/* A result is refused: does everything again in fp32, unless it was in fp32 already. */
static enum error_code tile_again(struct tile_job *job, const char *fault, struct error *err)
{
    enum error_code code = step_refused(job->step, ROLE_UPSCALER, fault, job->second, err);
    tile_discard(job);
    pipeline_forget(job->step->context); /* it may be in the plan that we need */
    if (code == OK)
        code = tile_canvas(job, err);
    if (code != OK)
        return code;
    tile_share_end(&job->share);
    job->second = true;
    job->precision = PRECISION_FP32;
    job->next = 0;
    if (job->pool)
        pool_restart(job->pool);
    tile_count(job);
    return job->sink.again ? job->sink.again(job->sink.user, err) : OK;
}

void tile_made(struct tile_job *job, int tiles)
{
    atomic_fetch_add(&job->step->r->tiles_done, tiles);
    restoration_moved(job->step->r);
}

void tile_filled(struct tile_job *job, const struct rect *done)
{
    if (job->sink.filled && done->width > 0 && done->height > 0)
        job->sink.filled(job->sink.user, done);
}

/* Collects the result of the oldest run. */
static enum error_code tile_finish(struct tile_job *job, struct error *err)
{
    struct tile_flight flight = job->flights[0];
    struct run_result result;
    memmove(job->flights, job->flights + 1, sizeof job->flights - sizeof job->flights[0]);
    job->flying--;
    enum error_code code = plan_wait(flight.plan, &result, err);
    if (code != OK)
        return code;
    struct session_shape given = flight.shape;
    given.w += 2 * job->info->border;
    given.h += 2 * job->info->border;
    const char *fault = step_fault(&result, job->sink.even || flight.pooled ? NULL : flight.sources, &given);
    if (fault)
        return tile_again(job, fault, err);
    tile_made(job, flight.count);
    if (flight.pooled) {
        pool_add(job->pool, flight.slot, flight.count);
        if (!job->flying && job->next == job->count) { /* all tiles once more */
            pool_next(job->pool);
            job->next = 0;
        }
        return OK;
    }
    const struct rect done = tile_flight_done(job, &flight);
    tile_filled(job, &done);
    return OK;
}

/* Waits until none of it is on the device; tile_advance goes on from there. */
static enum error_code tile_settle(struct tile_job *job, struct error *err)
{
    enum error_code code = OK;
    while (code == OK && job->flying > 0)
        code = tile_finish(job, err);
    return code;
}

/* Of one row and one size. */
enum error_code tile_submit(struct tile_job *job, struct error *err)
{
    struct tile_flight *flight = &job->flights[job->flying];
    const struct tile *first = &job->tiles[job->next];
    struct run_image images[STEP_BATCH];
    struct run_input inputs[2 + MODEL_POOLS];
    struct run_output output;
    struct raster_target targets[STEP_BATCH];
    int n = 1;
    while (2 * n <= job->batch && job->next + 2 * n <= job->count && first[2 * n - 1].row == first->row)
        n *= 2;
    flight->first = job->next;
    flight->count = n;
    flight->shape = (struct session_shape){.n = n, .h = first->height, .w = first->width};
    flight->shape.variant = tile_variant(job, job->pool ? pool_variant(job->pool) : MODEL_MEANS_OWN);
    flight->pooled = tile_pooling(job);
    flight->slot = job->flying > 0 ? (job->flights[job->flying - 1].slot + 1) % PLAN_RUNS : 0;
    const struct run_io run = tile_run(job, flight, inputs, &output, images, job->sink.later ? NULL : targets);
    enum error_code code =
        step_submit(job->step, ROLE_UPSCALER, job->precision, &flight->shape, &run, &flight->plan, err);
    if (code == OK) {
        job->flying++;
        job->next += n;
    } else if (step_too_large(code) && (job->flying > 0 || n > 1)) { /* alone on the device, or fewer at a time */
        error_clear(err);
        job->batch = job->flying > 0 ? job->batch : n / 2;
        return tile_settle(job, err);
    }
    return code;
}

enum error_code tile_show(struct tile_job *job, struct error *err)
{
    struct tile_flight *flight = &job->flights[0]; /* while targets are unknown there is at most one */
    struct run_image images[STEP_BATCH];
    struct run_input inputs[2 + MODEL_POOLS];
    struct run_output output;
    struct raster_target targets[STEP_BATCH];
    if (!job->sink.later)
        return OK;
    job->sink.later = false;
    if (!job->flying || flight->pooled)
        return OK;
    const struct run_io run = tile_run(job, flight, inputs, &output, images, targets);
    enum error_code code = plan_show(flight->plan, &run, err);
    if (step_too_large(code)) { /* try again, as with any run that finds no room */
        error_clear(err);
        tile_discard(job);
        job->next = 0;
        return OK;
    }
    return code;
}

enum error_code tile_advance(struct tile_job *job, int left, struct error *err)
{
    enum error_code code = OK;
    if (!job->asked && left >= 0) {
        job->asked = true;
        tile_share_begin(job);
    }
    while (code == OK && (job->flying > 0 || job->next < job->count)) {
        const bool more = job->next < job->count, pooling = tile_pooling(job), blind = job->sink.later && !pooling,
                   send = more && job->flying < (blind ? 1 : job->ahead),
                   wait = left >= 0 && (more || pooling || job->flying > left);
        if (send)
            code = step_check(job->step, err);
        if (code == OK && send)
            code = job->share ? tile_share_next(job, err) : tile_submit(job, err);
        else if (code == OK && !blind && (wait || plan_ready(job->flights[0].plan)))
            code = tile_finish(job, err);
        else
            break;
    }
    return code;
}

void tile_end(struct tile_job **out)
{
    struct tile_job *job = *out;
    if (!job)
        return;
    tile_discard(job);
    tile_share_end(&job->share);
    canvas_destroy(&job->canvas);
    pool_destroy(&job->pool);
    tile_cut_free(&job->cx);
    tile_cut_free(&job->cy);
    free(job->ax.from);
    free(job->ay.from);
    free(job->tiles);
    free(job);
    *out = NULL;
}
