#include "runtime/backend/host_run.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"

struct host_canvas {
    struct canvas base;
    float *sums; /* [rows][width][3] */
};

enum error_code host_run_canvas(struct canvas **out, int width, int rows, struct error *err)
{
    size_t samples;
    struct host_canvas *canvas = NULL;
    *out = NULL;
    if (mem_mul((size_t)width * (size_t)rows, 3, &samples) &&
        (canvas = mem_calloc(1, sizeof *canvas + samples * sizeof(float)))) {
        *canvas = (struct host_canvas){{NULL, width, rows}, (float *)(canvas + 1)};
        *out = &canvas->base;
        return OK;
    }
    return error_set(err, ERROR_NO_MEMORY, "out of memory for a canvas of %d × %d", width, rows);
}

static size_t host_values_of(const struct plan_shape *shape)
{
    return (size_t)shape->c * (size_t)shape->h * (size_t)shape->w;
}

/* ---- outputs ----------------------------------------------------------------------------------------------------- */

/* Some rows of an image. */
struct host_rows {
    const float *planes; /* [c][count][w] */
    int first, count;
};

struct blend_loop {
    const struct host_canvas *canvas;
    const struct run_image *image;
    const struct host_rows *rows;
    int w;
};

static void host_blend_rows(void *context, int item)
{
    const struct blend_loop *loop = context;
    const struct run_image *image = loop->image;
    const int w = loop->w, width = loop->canvas->base.width;
    const size_t plane = (size_t)loop->rows->count * (size_t)w;
    int begin, end;
    thread_band(loop->rows->count, item, &begin, &end);
    for (int y = loop->rows->first + begin; y < loop->rows->first + end; y++) {
        const float *from = loop->rows->planes + (size_t)(y - loop->rows->first) * (size_t)w;
        float *to = loop->canvas->sums +
                    3 * ((size_t)((image->y + y) % loop->canvas->base.rows) * (size_t)width + (size_t)image->x);
        for (int x = 0; x < w && image->weight_y[y] != 0; x++) {
            const float weight = image->weight_x[x] * image->weight_y[y];
            for (size_t c = 0; c < 3 && weight != 0; c++)
                to[3 * (size_t)x + c] += weight * from[c * plane + (size_t)x];
        }
    }
}

/* The part of the target that lies in rows first .. first+count-1 of the image, of which the values begin with the
 * first. */
static void host_write_rows(const struct run_io *run, const struct raster_values *values, int first, int count,
                            const struct raster_target *target)
{
    int y = target->y > first ? target->y : first;
    const int end = target->y + target->height < first + count ? target->y + target->height : first + count;
    for (int some; y < end; y += some) {
        struct raster_target part = *target;
        const int before = y - target->y, room = target->take ? target->most - before % target->most : end - y;
        some = room < end - y ? room : end - y;
        part.y = y - first;
        part.height = some;
        part.top += before;
        part.data = (char *)part.data + (size_t)(target->take ? before % target->most : before) * part.stride;
        raster_write(values, run->range, &part);
        if (target->take && (some == room || before + some == target->height))
            target->take(target->user, some == room ? target->most : before % target->most + some);
    }
}

/* Rows of one image, which come in their order: into the canvas, or where they belong. */
static void host_take_rows(const struct run_io *run, const struct run_output *output, const struct run_image *image,
                           const struct plan_shape *shape, const struct host_rows *rows)
{
    const size_t w = (size_t)shape->w, plane = (size_t)rows->count * w;
    const struct raster_values values = {rows->planes, shape->c, rows->count, plane, w, 1};
    struct blend_loop loop = {(struct host_canvas *)output->canvas, image, rows, shape->w};
    if (loop.canvas)
        thread_for(thread_bands(rows->count), host_blend_rows, &loop);
    for (int i = 0; i < image->target_count && !loop.canvas; i++)
        host_write_rows(run, &values, rows->first, rows->count, &image->targets[i]);
}

/* All rows of an image are in the canvas. */
static void host_show_canvas(const struct run_io *run, const struct host_canvas *canvas, const struct run_image *image)
{
    const size_t row = 3 * (size_t)canvas->base.width;
    const struct raster_values all = {canvas->sums, 3, canvas->base.rows, 1, row, 3};
    for (int i = 0; i < image->target_count; i++) {
        const struct raster_target *target = &image->targets[i];
        host_write_rows(run, &all, 0, target->y + target->height, target);
    }
    for (int y = image->clear_y; y < image->clear_y + image->clear_rows; y++)
        memset(canvas->sums + (size_t)(y % canvas->base.rows) * row, 0, row * sizeof(float));
}

static void host_write_output(const struct run_io *run, const struct run_output *output, const struct plan_shape *shape,
                              const float *planes, struct run_result *result)
{
    const size_t image = host_values_of(shape);
    result->finite = result->finite && raster_finite(planes, (size_t)shape->n * image);
    for (int n = 0; n < shape->n; n++) {
        const struct host_rows all = {planes + (size_t)n * image, 0, shape->h};
        if (image > 1 && n < 32 && raster_equal(all.planes, image))
            result->flat |= 1u << n;
        if (!output->images)
            continue;
        host_take_rows(run, output, &output->images[n], shape, &all);
        if (output->canvas)
            host_show_canvas(run, (struct host_canvas *)output->canvas, &output->images[n]);
    }
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

static double host_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* Whether the result can be taken row by row, so that it never exists as a whole. */
static bool host_in_rows(const struct plan *plan, const struct run_io *run)
{
    const struct backend *backend = plan->backend;
    return backend->plan_run_rows && backend->plan_in_rows(plan) && run->outputs[0].images && !run->outputs[0].planes;
}

/* A run whose rows are taken. */
struct host_taking {
    const struct run_io *run;
    const struct plan_shape *shape;
    struct run_result *result;
    float value; /* the first */
    bool flat;
    double ms;
};

static void host_take(void *user, const float *planes, int first, int count)
{
    struct host_taking *taking = user;
    const size_t values = (size_t)taking->shape->c * (size_t)count * (size_t)taking->shape->w;
    const struct host_rows rows = {planes, first, count};
    const double start = host_now_ms();
    if (first == 0)
        taking->value = *planes;
    taking->flat = taking->flat && *planes == taking->value && raster_equal(planes, values);
    taking->result->finite = taking->result->finite && raster_finite(planes, values);
    host_take_rows(taking->run, taking->run->outputs, taking->run->outputs->images, taking->shape, &rows);
    taking->ms += host_now_ms() - start;
}

static enum error_code host_run_rows(struct plan *plan, const struct run_io *run, const float *const *inputs,
                                     struct run_result *result, struct error *err)
{
    struct host_taking taking = {.run = run, .shape = &plan->shapes[plan->input_count], .result = result, .flat = true};
    enum error_code code = plan->backend->plan_run_rows(plan, inputs, host_take, &taking, &run->options, err);
    if (host_values_of(taking.shape) > 1 && taking.flat)
        result->flat = 1;
    plan->device->busy_ms -= taking.ms;
    return code;
}

/* Tensors for what the caller has as pictures, or does not want; *planes[i] is NULL where the caller's own tensor can
 * be used, or none is needed. */
static enum error_code host_make_planes(const struct plan *plan, const struct run_io *run, float **planes,
                                        struct error *err)
{
    const int count = plan->input_count + (host_in_rows(plan, run) ? 0 : plan->output_count);
    for (int i = 0; i < count; i++) {
        const int out = i - plan->input_count;
        const bool given = out < 0 ? run->inputs[i].planes != NULL : run->outputs[out].planes != NULL;
        if (!given &&
            !(planes[i] = mem_alloc((size_t)plan->shapes[i].n * host_values_of(&plan->shapes[i]), sizeof(float))))
            return error_set(err, ERROR_NO_MEMORY, "out of memory for the pictures of a network");
    }
    return OK;
}

enum error_code host_run(struct plan *plan, const struct run_io *run, struct run_result *result, struct error *err)
{
    const int count = plan->input_count + plan->output_count;
    const bool in_rows = host_in_rows(plan, run);
    float **planes = mem_calloc(2 * (size_t)count, sizeof *planes), **all = planes + count;
    *result = (struct run_result){.finite = true};
    if (!planes)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for the pictures of a network");
    enum error_code code = host_make_planes(plan, run, planes, err);
    for (int i = 0; i < plan->input_count && code == OK; i++) {
        const struct plan_shape *shape = &plan->shapes[i];
        all[i] = planes[i] ? planes[i] : (float *)(uintptr_t)run->inputs[i].planes; /* which is only read */
        for (int n = 0; n < shape->n && planes[i]; n++)
            raster_read(&run->inputs[i].images[n], shape->h, shape->w, run->range,
                        planes[i] + (size_t)n * host_values_of(shape));
    }
    for (int i = 0; i < plan->output_count && code == OK; i++)
        all[plan->input_count + i] =
            planes[plan->input_count + i] ? planes[plan->input_count + i] : run->outputs[i].planes;
    if (code == OK) {
        const double start = host_now_ms();
        code = in_rows ? host_run_rows(plan, run, (const float *const *)all, result, err)
                       : plan->backend->plan_run(plan, (const float *const *)all, all + plan->input_count,
                                                 &run->options, err);
        plan->device->busy_ms += host_now_ms() - start;
    }
    if (code == OK && in_rows && run->outputs->canvas)
        host_show_canvas(run, (struct host_canvas *)run->outputs->canvas, run->outputs->images);
    for (int i = 0; i < plan->output_count && code == OK && !in_rows; i++)
        if (run->outputs[i].planes || run->outputs[i].images)
            host_write_output(run, &run->outputs[i], &plan->shapes[plan->input_count + i], all[plan->input_count + i],
                              result);
    for (int i = 0; i < count; i++)
        free(planes[i]);
    free(planes);
    return code;
}
