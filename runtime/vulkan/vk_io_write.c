#include "runtime/base/thread.h"
#include "runtime/vulkan/vk_command.h"
#include "runtime/vulkan/vk_io_private.h"

/* A window of a picture: the part that is uploaded. */
struct window {
    int column, columns, row, rows; /* from where, how many */
    uint64_t stride;
};

static void window_list_bounds(const int *list, int count, int *first, int *size)
{
    int low = list ? list[0] : 0, high = list ? list[0] : count - 1;
    for (int i = 1; list && i < count; i++) {
        low = list[i] < low ? list[i] : low;
        high = list[i] > high ? list[i] : high;
    }
    *first = low;
    *size = high - low + 1;
}

static struct window window_of(const struct raster_source *source, const struct vk_operand *tensor)
{
    struct window w = {0, source->width, 0, source->height, 0};
    if (!source->width) {
        window_list_bounds(source->columns, (int)tensor->w, &w.column, &w.columns);
        window_list_bounds(source->rows, (int)tensor->h, &w.row, &w.rows);
    }
    w.stride = ((uint64_t)w.columns * raster_pixel(source->form) + 3) / 4 * 4;
    return w;
}

static uint64_t window_bytes(const struct raster_source *source, const struct window *w,
                             const struct vk_operand *tensor)
{
    const uint64_t lists = source->width ? 0 : (uint64_t)tensor->w + tensor->h;
    return sizeof(uint32_t) * lists + w->stride * (uint64_t)w->rows;
}

uint64_t vk_io_write_bytes(const struct raster_source *source, const struct vk_operand *tensor)
{
    const struct window w = window_of(source, tensor);
    return window_bytes(source, &w, tensor);
}

int vk_io_write_from(const struct vk_io *io, const struct run_io *run, int index)
{
    const struct raster_source *source = run->inputs[index].images;
    for (int i = 0; i < index && source && source->width && io->ports[index].n == 1; i++) {
        const struct raster_source *earlier = run->inputs[i].images;
        if (!earlier || earlier->width || earlier->data != source->data || earlier->stride != source->stride ||
            earlier->form != source->form)
            continue;
        const struct window w = window_of(earlier, &io->ports[i].operand);
        if (w.column == 0 && w.columns == source->width && w.row == 0 && w.rows == source->height)
            return i;
    }
    return -1;
}

void vk_io_write_over(struct vk_io *io, struct vk_io_slot *slot)
{
    struct vk_kept *kept = &io->device->kept;
    if (slot->reads && slot->reads == kept->serial && kept->number)
        kept->readers--;
    slot->reads = 0;
}

void vk_io_write_forget(struct vk_io *io, const struct vk_io_slot *slot)
{
    struct vk_kept *kept = &io->device->kept;
    if (!kept->number || kept->buffer != &slot->upload)
        return;
    if (kept->readers)
        vk_command_wait_all(io->device);
    *kept = (struct vk_kept){.serial = kept->serial};
}

/* Whether the device has these pixels; then they are copied there. */
static bool window_copy(struct vk_io_run *r, const struct raster_source *source, const struct window *w,
                        uint64_t offset)
{
    struct vk_kept *kept = &r->io->device->kept;
    if (!source->number || kept->number != source->number || kept->form != (int)source->form ||
        kept->data != source->data || kept->stride != source->stride || kept->column != w->column ||
        kept->columns != w->columns || kept->row != w->row || kept->rows != w->rows)
        return false;
    const VkBufferCopy copy = {kept->offset, offset, w->stride * (uint64_t)w->rows};
    vkCmdCopyBuffer(r->commands, kept->buffer->handle, r->slot->upload.handle, 1, &copy);
    vk_command_barrier(r->commands);
    kept->readers += !r->slot->reads;
    r->slot->reads = kept->serial;
    return true;
}

/* Notes that later runs can have them from here, if the device reads its own memory faster than the host writes it. */
static void window_keep(struct vk_io_run *r, const struct raster_source *source, const struct window *w,
                        uint64_t offset)
{
    struct vk_kept *kept = &r->io->device->kept;
    if (source->number && r->slot->upload.counted && !kept->readers)
        *kept = (struct vk_kept){.number = source->number,
                                 .serial = kept->serial + 1,
                                 .buffer = &r->slot->upload,
                                 .offset = offset,
                                 .data = source->data,
                                 .stride = source->stride,
                                 .form = (int)source->form,
                                 .column = w->column,
                                 .columns = w->columns,
                                 .row = w->row,
                                 .rows = w->rows};
}

/* A picture's pixels, as they are, from a word of the input's part of the buffer on. */
static void window_send(struct vk_io_run *r, int index, const struct raster_source *source, const struct window *w,
                        uint64_t word)
{
    const size_t pixel = raster_pixel(source->form);
    const uint64_t offset = r->up[index].offset + 4 * word;
    if (window_copy(r, source, w, offset))
        return;
    window_keep(r, source, w, offset);
    vk_io_copy_later(r, (struct vk_rows){.from = (const char *)source->data + (size_t)w->row * source->stride +
                                                 (size_t)w->column * pixel,
                                         .to = (char *)r->slot->upload.mapped + offset,
                                         .from_stride = source->stride,
                                         .to_stride = w->stride,
                                         .bytes = (size_t)w->columns * pixel,
                                         .rows = w->rows});
}

/* A picture that is reduced: the lists of the input that it comes from, if it does, lie before it. */
static void window_reduce(struct vk_io_run *r, int index, int image, uint64_t *used)
{
    const struct raster_source *source = &r->run->inputs[index].images[image];
    const struct window w = window_of(source, &r->io->ports[index].operand);
    const int from = vk_io_write_from(r->io, r->run, index);
    struct params_raster push = vk_io_push(r, &r->io->ports[index], image);
    push.data = (uint32_t)(*used / 4);
    push.stride = (uint32_t)(w.stride / 4);
    push.width = (uint32_t)source->width;
    push.height = (uint32_t)source->height;
    if (from < 0) {
        window_send(r, index, source, &w, push.data);
        *used += window_bytes(source, &w, &r->io->ports[index].operand);
    } else {
        push.data = r->io->ports[from].operand.w + r->io->ports[from].operand.h;
    }
    vk_io_dispatch(r, index, "raster_reduce", 0, 0, &push, sizeof push, vk_io_groups(push.w), push.h, 1);
}

static void window_write(struct vk_io_run *r, int index, int image, uint64_t *used)
{
    const struct vk_io_port *port = &r->io->ports[index];
    const struct raster_source *source = &r->run->inputs[index].images[image];
    const struct window w = window_of(source, &port->operand);
    const uint64_t at = *used;
    uint32_t *words = (uint32_t *)((char *)r->slot->upload.mapped + r->up[index].offset + at);
    struct params_raster push = vk_io_push(r, port, image);
    for (uint32_t x = 0; x < push.w; x++)
        *words++ = 3 * (uint32_t)((source->columns ? source->columns[x] : (int)x) - w.column);
    for (uint32_t y = 0; y < push.h; y++)
        *words++ = (uint32_t)((uint64_t)((source->rows ? source->rows[y] : (int)y) - w.row) * (w.stride / 4));
    push.columns = (uint32_t)(at / 4);
    push.rows = push.columns + push.w;
    push.data = push.rows + push.h;
    window_send(r, index, source, &w, push.data);
    *used += window_bytes(source, &w, &port->operand);
    vk_io_dispatch(r, index, "raster_in", source->form, 0, &push, sizeof push, vk_io_groups(push.w), push.h, 1);
}

struct points_loop {
    const struct raster_points *list;
    uint32_t *places;
    float *values;
    size_t pixels, image; /* image: the number of the list's first */
};

#define POINTS_ITEM 1024

static void window_points_item(void *context, int item)
{
    const struct points_loop *loop = context;
    const int begin = item * POINTS_ITEM,
              end = loop->list->count - begin < POINTS_ITEM ? loop->list->count : begin + POINTS_ITEM;
    for (int i = begin; i < end; i++) {
        const uint32_t place = loop->list->places[i];
        loop->places[i] = (uint32_t)(loop->image * loop->pixels) + place;
        for (size_t c = 0; c < 3; c++)
            loop->values[3 * (size_t)i + c] = loop->list->planes[c * loop->pixels + place];
    }
}

/* The points of all images, over the pictures. */
static void window_write_points(struct vk_io_run *r, int index, uint64_t used)
{
    const struct vk_io_port *port = &r->io->ports[index];
    const struct raster_points *list = r->run->inputs[index].points;
    struct params_raster push = vk_io_push(r, port, 0);
    uint32_t count = 0;
    for (int n = 0; n < port->n; n++)
        count += (uint32_t)list[n].count;
    uint32_t *places = (uint32_t *)((char *)r->slot->upload.mapped + r->up[index].offset + used);
    struct points_loop loop = {.places = places, .values = (float *)(places + count)};
    loop.pixels = (size_t)push.h * push.w;
    push.columns = (uint32_t)(used / 4);
    push.data = push.columns + count;
    for (int n = 0; n < port->n; n++) {
        loop.list = &list[n];
        loop.image = (size_t)n;
        thread_for((list[n].count + POINTS_ITEM - 1) / POINTS_ITEM, window_points_item, &loop);
        loop.places += list[n].count;
        loop.values += 3 * (size_t)list[n].count;
    }
    vk_command_barrier(r->commands);
    vk_io_dispatch_points(r, index, &push, count);
}

void vk_io_write(struct vk_io_run *r, int index)
{
    const struct run_input *input = &r->run->inputs[index];
    uint64_t used = 0;
    if (input->planes) {
        struct vk_rows rows[2];
        vk_rows_long((const char *)input->planes, (char *)r->slot->upload.mapped + r->up[index].offset,
                     r->up[index].bytes, rows);
        vk_io_copy_later(r, rows[0]);
        vk_io_copy_later(r, rows[1]);
        vk_io_move_planes(r, index);
        return;
    }
    for (int n = 0; n < r->io->ports[index].n; n++)
        if (input->images[n].width)
            window_reduce(r, index, n, &used);
        else
            window_write(r, index, n, &used);
    if (input->points)
        window_write_points(r, index, used);
}
