#include "runtime/backend/host_run.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"

#define HOST_ALIGN ((size_t)64)
#define HOST_KEPT ((uint64_t)128 << 20) /* bytes of tensors that are kept for the next run at most */
#define HOST_ROWS 64                    /* of an image that are blended at a time */

/* The sums that later images are added to, too: of the images to the right, and of the row of images below. What is
 * added to a pixel comes in the images' order, so nothing depends on where its sum is kept in between. */
struct host_canvas {
    struct canvas base;
    float *strip; /* [HOST_ROWS][columns][3]: rows of the image at work */
    float *right; /* [rows][right][3]: row y of the image */
    float *below; /* [below][width][3]: row y of the picture is in row y % below */
    /* What they hold now: columns begin..end-1 of the picture; its rows above `bottom`, left of which the image at work
     * has put its own. */
    int right_begin, right_end, bottom, next_bottom;
};

enum error_code host_run_canvas(struct canvas **out, const struct canvas_shape *shape, struct error *err)
{
    const size_t strip = (size_t)shape->columns * HOST_ROWS, right = (size_t)shape->rows * (size_t)shape->right;
    size_t below, bytes;
    struct host_canvas *canvas = NULL;
    *out = NULL;
    if (mem_mul((size_t)shape->width, (size_t)shape->below, &below) &&
        mem_mul(below + right + strip, 3 * sizeof(float), &bytes) && (canvas = mem_alloc(1, sizeof *canvas + bytes))) {
        float *sums = (float *)(canvas + 1);
        *canvas = (struct host_canvas){
            .base = {NULL, *shape}, .strip = sums, .right = sums + 3 * strip, .below = sums + 3 * (strip + right)};
        *out = &canvas->base;
        return OK;
    }
    return error_set(err, ERROR_NO_MEMORY, "out of memory for a canvas of %d × %d", shape->width, shape->below);
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
    struct host_canvas *canvas;
    const struct run_image *image;
    const struct host_rows *rows;
    int w;
    int from, count; /* of the image's rows: those of the strip */
};

/* Some columns of row y of the image, from column x of the picture on: their sums so far. */
static void host_sums(const struct host_canvas *canvas, const struct run_image *image, int y, int x, int count,
                      float *to)
{
    const struct canvas_shape *shape = &canvas->base.shape;
    const int kept = canvas->right_end - x < 0 ? 0 : canvas->right_end - x < count ? canvas->right_end - x : count;
    memcpy(to, canvas->right + 3 * ((size_t)y * (size_t)shape->right + (size_t)(kept ? x - canvas->right_begin : 0)),
           (size_t)kept * 3 * sizeof *to);
    to += 3 * (size_t)kept;
    if (image->y + y < canvas->bottom)
        memcpy(to,
               canvas->below +
                   3 * ((size_t)((image->y + y) % shape->below) * (size_t)shape->width + (size_t)(x + kept)),
               (size_t)(count - kept) * 3 * sizeof *to);
    else
        memset(to, 0, (size_t)(count - kept) * 3 * sizeof *to);
}

/* Rows of the image are added to their sums, in the strip, and what is not complete is kept. */
static void host_blend_rows(void *context, int item)
{
    const struct blend_loop *loop = context;
    const struct run_image *image = loop->image;
    const struct run_done *done = &image->done;
    struct host_canvas *canvas = loop->canvas;
    const struct canvas_shape *shape = &canvas->base.shape;
    const int beyond = image->x + loop->w > shape->width ? image->x + loop->w - shape->width : 0;
    const int w = loop->w - beyond, first = done->x - image->x, right = first + done->width;
    const size_t plane = (size_t)loop->rows->count * (size_t)loop->w;
    int begin, end;
    thread_band(loop->count, item, &begin, &end);
    for (int i = begin; i < end; i++) {
        const int y = loop->from + i;
        const float *from = loop->rows->planes + (size_t)(y - loop->rows->first) * (size_t)loop->w;
        float *to = loop->canvas->strip + (size_t)i * (size_t)shape->columns * 3;
        if (image->y + y < done->y) /* complete with an earlier row of images */
            continue;
        host_sums(canvas, image, y, done->x, w - first, to + 3 * (size_t)first);
        for (int x = first; x < w && image->weight_y[y] != 0; x++) {
            const float weight = image->weight_x[x] * image->weight_y[y];
            for (size_t c = 0; c < 3 && weight != 0; c++)
                to[3 * (size_t)x + c] += weight * from[c * plane + (size_t)x];
        }
        memcpy(canvas->right + 3 * (size_t)y * (size_t)shape->right, to + 3 * (size_t)right,
               (size_t)(w - right) * 3 * sizeof *to);
        if (image->y + y >= done->y + done->height && shape->below)
            memcpy(canvas->below +
                       3 * ((size_t)((image->y + y) % shape->below) * (size_t)shape->width + (size_t)done->x),
                   to + 3 * (size_t)first, (size_t)done->width * 3 * sizeof *to);
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

/* An image begins: what the canvas has from those before it. */
static void host_begin_image(struct host_canvas *canvas, const struct run_image *image)
{
    if (image->done.x == 0) { /* a row of images */
        canvas->right_end = 0;
        canvas->bottom = image->done.y == 0 ? 0 : canvas->next_bottom;
    }
}

static void host_end_image(struct host_canvas *canvas, const struct run_image *image, const struct plan_shape *shape)
{
    const int end = image->x + shape->w, width = canvas->base.shape.width;
    canvas->right_begin = image->done.x + image->done.width;
    canvas->right_end = end < width ? end : width;
    canvas->next_bottom = image->y + shape->h;
}

/* Rows of one image are blended, and what is complete of them goes where it belongs. */
static void host_blend(const struct run_io *run, const struct run_output *output, const struct run_image *image,
                       const struct plan_shape *shape, const struct host_rows *rows)
{
    struct host_canvas *canvas = (struct host_canvas *)output->canvas;
    const size_t row = 3 * (size_t)canvas->base.shape.columns;
    /* at a time no two rows that have one place in `below` */
    const int below = canvas->base.shape.below, most = below && below < HOST_ROWS ? below : HOST_ROWS;
    if (rows->first == 0)
        host_begin_image(canvas, image);
    for (int y = rows->first, count; y < rows->first + rows->count; y += count) {
        count = rows->first + rows->count - y < most ? rows->first + rows->count - y : most;
        struct blend_loop loop = {canvas, image, rows, shape->w, y, count};
        thread_for(thread_bands(count), host_blend_rows, &loop);
        const struct raster_values sums = {canvas->strip, 3, count, 1, row, 3};
        for (int i = 0; i < image->target_count; i++) {
            struct raster_target target = image->targets[i];
            target.x -= image->x;
            target.y -= image->y;
            host_write_rows(run, &sums, y, count, &target);
        }
    }
    if (rows->first + rows->count == shape->h)
        host_end_image(canvas, image, shape);
}

/* Rows of one image, which come in their order: into the canvas, or where they belong. */
static void host_take_rows(const struct run_io *run, const struct run_output *output, const struct run_image *image,
                           const struct plan_shape *shape, const struct host_rows *rows)
{
    const size_t w = (size_t)shape->w, plane = (size_t)rows->count * w;
    const struct raster_values values = {rows->planes, shape->c, rows->count, plane, w, 1};
    if (output->canvas) {
        host_blend(run, output, image, shape, rows);
        return;
    }
    for (int i = 0; i < image->target_count; i++)
        host_write_rows(run, &values, rows->first, rows->count, &image->targets[i]);
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
        if (output->points)
            raster_take_points(&output->points[n], image / 3, all.planes);
        if (!output->images)
            continue;
        host_take_rows(run, output, &output->images[n], shape, &all);
    }
}

void plan_put(const struct run_io *run, int h, int w, const float *planes, struct run_result *result)
{
    const struct plan_shape shape = {1, 3, h, w};
    *result = (struct run_result){.finite = true};
    host_write_output(run, &run->outputs[0], &shape, planes, result);
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

void host_run_give_back(struct device *device, uint64_t keep)
{
    if (device->tensors_size <= keep)
        return;
    free(device->tensors);
    device->tensors = NULL;
    device->tensors_size = 0;
}

/* At least so many bytes, kept from run to run: new pages for each cost more than what is written into them. */
static void *host_tensors(struct device *device, size_t size)
{
    if (size > device->tensors_size) {
        host_run_give_back(device, 0);
        device->tensors = mem_alloc(size, 1);
        device->tensors_size = device->tensors ? size : 0;
    }
    return device->tensors;
}

/* Tensors for what the caller has as pictures, or does not want; planes[i] is NULL where the caller's own tensor can be
 * used, or none is needed. */
static enum error_code host_make_planes(const struct plan *plan, const struct run_io *run, float **planes,
                                        struct error *err)
{
    const int count = plan->input_count + (host_in_rows(plan, run) ? 0 : plan->output_count);
    size_t size = 0;
    char *memory = NULL;
    for (int turn = 0; turn < 2; turn++) {
        if (turn && size && !(memory = host_tensors(plan->device, size)))
            return error_set(err, ERROR_NO_MEMORY, "out of memory for the pictures of a network");
        for (int i = 0; i < count; i++) {
            const int out = i - plan->input_count;
            if (out < 0 ? run->inputs[i].planes != NULL : run->outputs[out].planes != NULL)
                continue;
            const size_t bytes = (size_t)plan->shapes[i].n * host_values_of(&plan->shapes[i]) * sizeof(float);
            if (turn)
                planes[i] = (float *)memory;
            memory += turn ? (bytes + HOST_ALIGN - 1) / HOST_ALIGN * HOST_ALIGN : 0;
            size += turn ? 0 : (bytes + HOST_ALIGN - 1) / HOST_ALIGN * HOST_ALIGN;
        }
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
        for (int n = 0; n < shape->n && planes[i]; n++) {
            float *to = planes[i] + (size_t)n * host_values_of(shape);
            raster_read(&run->inputs[i].images[n], shape->h, shape->w, run->range, to);
            if (run->inputs[i].points)
                raster_put_points(&run->inputs[i].points[n], (size_t)shape->h * (size_t)shape->w, to);
        }
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
    for (int i = 0; i < plan->output_count && code == OK && !in_rows; i++)
        if (run->outputs[i].planes || run->outputs[i].images || run->outputs[i].points)
            host_write_output(run, &run->outputs[i], &plan->shapes[plan->input_count + i], all[plan->input_count + i],
                              result);
    host_run_give_back(plan->device, HOST_KEPT);
    free(planes);
    return code;
}
