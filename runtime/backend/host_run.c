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

struct blend_loop {
    const struct host_canvas *canvas;
    const struct plan_shape *shape;
    const struct run_image *image;
    const float *planes;
};

static void host_blend_rows(void *context, int item)
{
    const struct blend_loop *loop = context;
    const struct run_image *image = loop->image;
    const int w = loop->shape->w, width = loop->canvas->base.width;
    const size_t plane = (size_t)loop->shape->h * (size_t)w;
    int begin, end;
    thread_band(loop->shape->h, item, &begin, &end);
    for (int y = begin; y < end; y++) {
        const float *from = loop->planes + (size_t)y * (size_t)w;
        float *to = loop->canvas->sums +
                    3 * ((size_t)((image->y + y) % loop->canvas->base.rows) * (size_t)width + (size_t)image->x);
        for (int x = 0; x < w && image->weight_y[y] != 0; x++) {
            const float weight = image->weight_x[x] * image->weight_y[y];
            for (size_t c = 0; c < 3 && weight != 0; c++)
                to[3 * (size_t)x + c] += weight * from[c * plane + (size_t)x];
        }
    }
}

static void host_write_image(const struct run_io *run, const struct run_output *output, const struct run_image *image,
                             const struct plan_shape *shape, const float *planes)
{
    const size_t w = (size_t)shape->w;
    struct raster_values values = {planes, shape->c, shape->h, (size_t)shape->h * w, w, 1};
    struct host_canvas *canvas = (struct host_canvas *)output->canvas;
    if (canvas) {
        const size_t row = 3 * (size_t)canvas->base.width;
        struct blend_loop loop = {canvas, shape, image, planes};
        thread_for(thread_bands(shape->h), host_blend_rows, &loop);
        values = (struct raster_values){canvas->sums, 3, canvas->base.rows, 1, row, 3};
    }
    for (int i = 0; i < image->target_count; i++)
        raster_write(&values, run->range, &image->targets[i]);
    for (int y = image->clear_y; canvas && y < image->clear_y + image->clear_rows; y++) {
        const size_t row = 3 * (size_t)canvas->base.width;
        memset(canvas->sums + (size_t)(y % canvas->base.rows) * row, 0, row * sizeof(float));
    }
}

static void host_write_output(const struct run_io *run, const struct run_output *output, const struct plan_shape *shape,
                              const float *planes, struct run_result *result)
{
    const size_t image = host_values_of(shape);
    result->finite = result->finite && raster_finite(planes, (size_t)shape->n * image);
    for (int n = 0; n < shape->n; n++) {
        if (image > 1 && n < 32 && raster_equal(planes + (size_t)n * image, image))
            result->flat |= 1u << n;
        if (output->images)
            host_write_image(run, output, &output->images[n], shape, planes + (size_t)n * image);
    }
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

static double host_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* Tensors for what the caller has as pictures, or does not want; *planes[i] is NULL where the caller's own tensor can
 * be used. */
static enum error_code host_make_planes(const struct plan *plan, const struct run_io *run, float **planes,
                                        struct error *err)
{
    for (int i = 0; i < plan->input_count + plan->output_count; i++) {
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
        code = plan->backend->plan_run(plan, (const float *const *)all, all + plan->input_count, &run->options, err);
        plan->device->busy_ms += host_now_ms() - start;
    }
    for (int i = 0; i < plan->output_count && code == OK; i++)
        if (run->outputs[i].planes || run->outputs[i].images)
            host_write_output(run, &run->outputs[i], &plan->shapes[plan->input_count + i], all[plan->input_count + i],
                              result);
    for (int i = 0; i < count; i++)
        free(planes[i]);
    free(planes);
    return code;
}
