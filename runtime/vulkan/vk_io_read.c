#include <stdlib.h>
#include <string.h>

#include "runtime/vulkan/vk_command.h"
#include "runtime/vulkan/vk_io_private.h"
#include "runtime/vulkan/vk_layers.h"

/* Bytes of a row of a target on its way. */
static uint64_t read_stride(const struct raster_target *target)
{
    return ((uint64_t)target->width + RASTER_ROW - 1) / RASTER_ROW * RASTER_ROW * raster_pixel(target->form);
}

uint64_t vk_io_read_bytes(const struct run_image *image)
{
    uint64_t bytes = 0;
    for (int i = 0; i < image->target_count; i++)
        bytes += read_stride(&image->targets[i]) * (uint64_t)image->targets[i].height;
    return bytes;
}

/* Bytes of the parts of an output that are used. */
struct used {
    uint64_t down, weights;
    uint32_t over; /* in uvec4 */
};

static void read_show(struct vk_io_run *r, int index, int image, const struct raster_target *target, struct used *used)
{
    const int k = index - r->io->input_count;
    const struct vk_canvas *canvas = (const struct vk_canvas *)r->run->outputs[k].canvas;
    struct params_raster push = vk_io_push(r, &r->io->ports[index], image);
    const uint64_t stride = read_stride(target);
    push.data = (uint32_t)(used->down / 4);
    push.stride = (uint32_t)(stride / 4);
    push.x = (uint32_t)target->x;
    push.y = (uint32_t)target->y;
    push.width = (uint32_t)target->width;
    push.height = (uint32_t)target->height;
    if (canvas) {
        push.canvas_width = (uint32_t)canvas->base.shape.width;
        push.canvas_rows = (uint32_t)canvas->base.shape.rows;
    }
    push.first = (uint32_t)target->first;
    if (target->layer_count)
        vk_layers_write(target, (char *)r->slot->weights.mapped + r->over[k].offset, &used->over, &push);
    const uint32_t from = (canvas ? RASTER_FROM_CANVAS : 0) | (push.layer_count ? RASTER_FROM_LAYERS : 0);
    const uint32_t columns = vk_io_groups((push.width + RASTER_ROW - 1) / RASTER_ROW);
    if (target->form == RASTER_LABEL || target->form == RASTER_LEVEL)
        vk_io_dispatch(r, index, "raster_label", target->form, 0, &push, sizeof push, columns, push.height, 1);
    else
        vk_io_dispatch(r, index, "raster_out", target->form, from, &push, sizeof push, columns, push.height, 1);
    vk_io_copy_later(r,
                     (struct vk_rows){.from = (const char *)r->slot->readback.mapped + r->down[k].offset + used->down,
                                      .to = target->data,
                                      .from_stride = stride,
                                      .to_stride = target->stride,
                                      .bytes = (size_t)target->width * raster_pixel(target->form),
                                      .rows = target->height,
                                      .take = target->take,
                                      .user = target->user,
                                      .most = target->most});
    used->down += stride * (uint64_t)target->height;
}

/* The points of all images. */
static void read_points(struct vk_io_run *r, int index)
{
    const int k = index - r->io->input_count;
    const struct vk_io_port *port = &r->io->ports[index];
    struct params_raster push = vk_io_push(r, port, 0);
    uint32_t *places = (uint32_t *)((char *)r->slot->weights.mapped + r->up[index].offset);
    const char *from = (const char *)r->slot->readback.mapped + r->down[k].offset;
    uint32_t count = 0;
    for (int n = 0; n < port->n; n++) {
        const struct raster_points *points = &r->run->outputs[k].points[n];
        const size_t bytes = 3 * sizeof(float) * (size_t)points->count;
        for (int i = 0; i < points->count; i++)
            places[count++] = (uint32_t)n * push.h * push.w + points->places[i];
        vk_io_copy_later(
            r, (struct vk_rows){.from = from, .to = (char *)points->values, .bytes = bytes, .rows = bytes > 0});
        from += bytes;
    }
    vk_io_dispatch_points(r, index, &push, count);
}

/* Rows of a canvas become 0. */
static void read_clear_rows(struct vk_io_run *r, const struct vk_canvas *canvas, int y, int count)
{
    const uint64_t row = 3 * sizeof(float) * (uint64_t)canvas->base.shape.width;
    while (count > 0) {
        const int at = y % canvas->base.shape.rows,
                  many = count < canvas->base.shape.rows - at ? count : canvas->base.shape.rows - at;
        vkCmdFillBuffer(r->commands, canvas->sums.handle, (uint64_t)at * row, (uint64_t)many * row, 0);
        y += many;
        count -= many;
    }
    vk_command_barrier(r->commands);
}

/* Adds an image to the canvas. */
static void read_blend(struct vk_io_run *r, int index, int image, struct used *used)
{
    const struct run_output *output = &r->run->outputs[index - r->io->input_count];
    const struct run_image *part = &output->images[image];
    struct vk_canvas *canvas = (struct vk_canvas *)output->canvas;
    struct params_raster push = vk_io_push(r, &r->io->ports[index], image);
    float *weights = (float *)((char *)r->slot->weights.mapped + r->up[index].offset + used->weights);
    memcpy(weights, part->weight_x, push.w * sizeof *weights);
    memcpy(weights + push.w, part->weight_y, push.h * sizeof *weights);
    push.columns = (uint32_t)(used->weights / 4);
    push.rows = push.columns + push.w;
    push.x = (uint32_t)part->x;
    push.y = (uint32_t)part->y;
    push.canvas_width = (uint32_t)canvas->base.shape.width;
    push.canvas_rows = (uint32_t)canvas->base.shape.rows;
    used->weights += ((uint64_t)push.w + push.h) * sizeof *weights;
    if (canvas->fresh)
        read_clear_rows(r, canvas, 0, canvas->base.shape.rows);
    canvas->fresh = false;
    vk_io_dispatch(r, index, "raster_blend", 0, 0, &push, sizeof push, vk_io_groups(push.w), push.h, 1);
    vk_command_barrier(r->commands);
}

static void read_check(struct vk_io_run *r, int index)
{
    const struct vk_io_port *port = &r->io->ports[index];
    const int k = index - r->io->input_count;
    r->slot->looked |= UINT64_C(1) << k;
    for (int n = 0; n < port->n && n < VK_IO_MAX_LOOKED; n++) {
        struct params_raster push = vk_io_push(r, port, n);
        push.data = (uint32_t)(VK_IO_MAX_LOOKED * k + n);
        push.width = (uint32_t)port->operand.layout.blocks;
        vk_io_dispatch(r, index, "raster_check", 0, 0, &push, sizeof push, vk_io_groups(push.w), push.h, 1);
    }
}

void vk_io_read(struct vk_io_run *r, int index)
{
    const struct vk_io_port *port = &r->io->ports[index];
    const int k = index - r->io->input_count;
    const struct run_output *output = &r->run->outputs[k];
    struct used used = {0};
    if (!output->planes && !output->images && !output->points)
        return;
    read_check(r, index);
    if (output->points)
        read_points(r, index);
    if (output->planes) {
        used.down = vk_io_plane_bytes(port);
        vk_io_move_planes(r, index);
        struct vk_rows rows[2];
        vk_rows_long((const char *)r->slot->readback.mapped + r->down[k].offset, (char *)output->planes, used.down,
                     rows);
        vk_io_copy_later(r, rows[0]);
        vk_io_copy_later(r, rows[1]);
    }
    for (int n = 0; n < port->n && output->images; n++) {
        const struct run_image *image = &output->images[n];
        if (output->canvas)
            read_blend(r, index, n, &used);
        for (int i = 0; i < image->target_count; i++)
            read_show(r, index, n, &image->targets[i], &used);
        if (output->canvas && image->done.x + image->done.width == output->canvas->shape.width) {
            vk_command_barrier(r->commands);
            read_clear_rows(r, (const struct vk_canvas *)output->canvas, image->done.y, image->done.height);
        }
    }
}
