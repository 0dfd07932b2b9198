#include "runtime/vulkan/vk_io.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/vulkan/vk_command.h"
#include "runtime/vulkan/vk_layers.h"
#include "runtime/vulkan/vk_ops.h"
#include "runtime/vulkan/vk_rows.h"

#define MAX_OUTPUTS (sizeof((struct graph *)0)->outputs / sizeof(int))
#define MAX_PORTS (sizeof((struct graph *)0)->inputs / sizeof(int) + MAX_OUTPUTS)
#define MAX_LOOKED 32 /* images of an output that are looked at one by one */
#define FOUND_BYTES (sizeof(uint32_t) * MAX_OUTPUTS * MAX_LOOKED)

/* An input or output. */
struct port {
    struct vk_operand operand;
    struct vk_slice map; /* the channel of each lane */
    int n;
    bool rgb;   /* 3 channels in one quad */
    bool plain; /* channel k is lane k */
};

struct io_slot {
    struct vk_buffer upload, weights, readback; /* weights: of outputs with a canvas, and layers over results */
    struct vk_buffer results;   /* where they are put together, if readback is not the device's own memory */
    VkDescriptorSet *sets;      /* of the ports */
    struct vk_rows *deliveries; /* what the host copies when the run is over */
    size_t delivery_count, delivery_capacity;
    uint64_t looked; /* outputs that are checked, a bit each */
};

struct vk_io {
    struct vk_device *device;
    const char *name;
    bool fp16;
    int input_count, output_count;
    struct port *ports; /* the inputs, then the outputs */
    const struct vk_buffer *words;
    VkDescriptorPool pool;
    struct io_slot slots[PLAN_RUNS];
};

struct vk_canvas {
    struct canvas base;
    struct vk_device *device;
    struct vk_buffer sums; /* [rows][width][3] float */
    bool fresh;            /* nothing was written yet */
};

/* --- making --------------------------------------------------------------------------------------------------------
 */

static enum error_code port_create(struct vk_build *build, int tensor, struct port *port, struct error *err)
{
    const struct tensor *t = &build->graph->tensors[tensor];
    enum error_code code = vk_plan_operand(build, (struct view){tensor, 0, t->segment_count}, &port->operand, err);
    port->n = t->n;
    port->plain = port->operand.layout.run_count == 1;
    port->rgb = port->plain && port->operand.layout.channels == 3;
    return code == OK ? vk_ops_lanes(build, &port->operand.layout, &port->map, err) : code;
}

enum error_code vk_io_create(struct vk_io **out, struct vk_build *build, struct error *err)
{
    const struct graph *graph = build->graph;
    const int count = graph->input_count + graph->output_count;
    struct vk_io *io = *out = mem_calloc(1, sizeof *io);
    if (!io)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a plan");
    io->device = build->device;
    io->name = vk_plan_name(build->plan);
    io->fp16 = build->fp16;
    io->input_count = graph->input_count;
    io->output_count = graph->output_count;
    io->ports = mem_calloc((size_t)count, sizeof *io->ports);
    bool room = io->ports != NULL;
    for (int i = 0; i < PLAN_RUNS; i++) {
        io->slots[i].sets = mem_calloc((size_t)count, sizeof(VkDescriptorSet));
        room = room && io->slots[i].sets;
    }
    enum error_code code = room ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory for a plan");
    for (int i = 0; i < count && code == OK; i++)
        code = port_create(build, i < graph->input_count ? graph->inputs[i] : graph->outputs[i - graph->input_count],
                           &io->ports[i], err);
    return code;
}

static struct vk_pipeline_key key_of(const struct vk_io *io, const char *shader, uint32_t form, uint32_t from)
{
    return (struct vk_pipeline_key){.shader = shader, .fp16 = io->fp16, .spec_count = 2, .spec = {form, from}};
}

enum error_code vk_io_pipelines(const struct vk_io *io, struct error *err)
{
    struct vk_pipeline_key keys[4 * MAX_PORTS + 1];
    size_t count = 0;
    for (int i = 0; i < io->input_count + io->output_count; i++) {
        const bool in = i < io->input_count, rgb = io->ports[i].rgb;
        if (rgb)
            keys[count++] = key_of(io, in ? "raster_in" : "raster_out", RASTER_U8, 0);
        if (rgb)
            keys[count++] = key_of(io, in ? "raster_in" : "raster_out", RASTER_F32, 0);
        if (rgb && !in)
            keys[count++] = key_of(io, "raster_out", RASTER_U8, RASTER_FROM_LAYERS);
        if (!rgb)
            keys[count++] = key_of(io, in ? "pack" : "unpack", 0, 0);
        if (!in && !rgb && io->ports[i].plain)
            keys[count++] = key_of(io, "raster_label", 0, 0);
    }
    keys[count++] = key_of(io, "raster_check", 0, 0);
    return vk_pipeline_make(io->device, keys, count, err);
}

enum error_code vk_io_prepare(struct vk_io *io, struct error *err)
{
    struct vk_device *device = io->device;
    const uint32_t count = (uint32_t)(io->input_count + io->output_count) * PLAN_RUNS;
    const VkDescriptorPoolSize size = {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, count * BIND_COUNT};
    const VkDescriptorPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
                                             .maxSets = count,
                                             .poolSizeCount = 1,
                                             .pPoolSizes = &size};
    const VkDescriptorSetLayout layout = vk_pipeline_set_layout(device);
    io->words = io->ports[io->input_count].map.buffer;
    VkResult result = vkCreateDescriptorPool(device->handle, &pool, NULL, &io->pool);
    for (uint32_t i = 0; i < count && result == VK_SUCCESS; i++) {
        const VkDescriptorSetAllocateInfo allocate = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
                                                      .descriptorPool = io->pool,
                                                      .descriptorSetCount = 1,
                                                      .pSetLayouts = &layout};
        result = vkAllocateDescriptorSets(device->handle, &allocate, &io->slots[i % PLAN_RUNS].sets[i / PLAN_RUNS]);
    }
    return result == VK_SUCCESS ? OK : vk_device_error(device, result, "describe the buffers of a plan", err);
}

void vk_io_destroy(struct vk_io **out)
{
    struct vk_io *io = *out;
    if (!io)
        return;
    for (int i = 0; i < PLAN_RUNS; i++) {
        vk_memory_destroy(io->device, &io->slots[i].upload);
        vk_memory_destroy(io->device, &io->slots[i].weights);
        vk_memory_destroy(io->device, &io->slots[i].readback);
        vk_memory_destroy(io->device, &io->slots[i].results);
        free(io->slots[i].sets);
        free(io->slots[i].deliveries);
    }
    vkDestroyDescriptorPool(io->device->handle, io->pool, NULL);
    free(io->ports);
    free(io);
    *out = NULL;
}

uint64_t vk_io_bytes(const struct vk_io *io)
{
    uint64_t bytes = 0;
    for (int i = 0; i < PLAN_RUNS; i++) {
        const struct io_slot *slot = &io->slots[i];
        bytes += slot->upload.size + slot->weights.size + slot->readback.size + slot->results.size;
    }
    return bytes;
}

enum error_code vk_io_canvas_create(struct canvas **out, struct device *base, int width, int rows, struct error *err)
{
    struct vk_device *device = (struct vk_device *)base;
    const uint64_t bytes = (uint64_t)width * (uint64_t)rows * 3 * sizeof(float);
    struct vk_canvas *canvas = mem_calloc(1, sizeof *canvas);
    *out = NULL;
    if (!canvas)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a canvas");
    *canvas = (struct vk_canvas){.base = {&vk_backend, width, rows}, .device = device, .fresh = true};
    enum error_code code = bytes > device->traits.limits.maxStorageBufferRange
                               ? error_set(err, ERROR_TOO_LARGE, "a canvas of %d × %d is larger than %s takes", width,
                                           rows, device->traits.info.name)
                               : vk_memory_create(device, &canvas->sums, bytes, MEMORY_DEVICE, "a canvas", err);
    if (code == OK)
        *out = &canvas->base;
    else
        free(canvas);
    return code;
}

void vk_io_canvas_destroy(struct canvas *base)
{
    struct vk_canvas *canvas = (struct vk_canvas *)base;
    vk_memory_destroy(canvas->device, &canvas->sums);
    free(canvas);
}

/* --- a run ---------------------------------------------------------------------------------------------------------
 * Measured first, then written and recorded. Offsets and sizes are in bytes. */

struct part {
    uint64_t offset, bytes;
};

/* A window of a picture: what of it goes up. */
struct window {
    int column, columns, row, rows; /* from where, how many */
    uint64_t stride;
};

struct recording {
    struct vk_io *io;
    struct io_slot *slot;
    const struct run_io *run;
    struct part up[MAX_PORTS];     /* of inputs: what they are; of outputs with a canvas: the weights */
    struct part over[MAX_OUTPUTS]; /* of outputs: the layers that lie over their targets */
    struct part down[MAX_OUTPUTS]; /* of outputs */
    uint64_t up_bytes, down_bytes;
    VkCommandBuffer commands; /* that are recorded now */
    enum error_code code;
    struct error *err;
};

static uint64_t align_up(const struct vk_io *io, uint64_t bytes)
{
    const uint64_t align = io->device->traits.limits.minStorageBufferOffsetAlignment;
    return (bytes + align - 1) / align * align;
}

static uint64_t plane_bytes(const struct port *port)
{
    const struct vk_operand *x = &port->operand;
    return sizeof(float) * (uint64_t)port->n * (uint64_t)x->layout.channels * x->h * x->w;
}

static void list_bounds(const int *list, int count, int *first, int *size)
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
    struct window w;
    list_bounds(source->columns, (int)tensor->w, &w.column, &w.columns);
    list_bounds(source->rows, (int)tensor->h, &w.row, &w.rows);
    w.stride = ((uint64_t)w.columns * raster_pixel(source->form) + 3) / 4 * 4;
    return w;
}

static uint64_t window_bytes(const struct window *w, const struct vk_operand *tensor)
{
    return sizeof(uint32_t) * ((uint64_t)tensor->w + tensor->h) + w->stride * (uint64_t)w->rows;
}

/* Bytes of a row of a target on its way. */
static uint64_t target_stride(const struct raster_target *target)
{
    return ((uint64_t)target->width + RASTER_ROW - 1) / RASTER_ROW * RASTER_ROW * raster_pixel(target->form);
}

static uint64_t image_bytes(const struct run_image *image)
{
    uint64_t bytes = 0;
    for (int i = 0; i < image->target_count; i++)
        bytes += target_stride(&image->targets[i]) * (uint64_t)image->targets[i].height;
    return bytes;
}

static enum error_code place(struct recording *r, struct part *part, uint64_t bytes, uint64_t *total)
{
    const struct vk_device *device = r->io->device;
    *part = (struct part){*total, bytes};
    *total += align_up(r->io, bytes);
    if (bytes <= device->traits.limits.maxStorageBufferRange)
        return OK;
    return error_set(r->err, ERROR_TOO_LARGE, "%s: an input or output of %.0f MiB is larger than %s takes", r->io->name,
                     (double)bytes / 0x1p20, device->traits.info.name);
}

static enum error_code measure_inputs(struct recording *r)
{
    const struct vk_io *io = r->io;
    enum error_code code = OK;
    for (int i = 0; i < io->input_count && code == OK; i++) {
        const struct port *port = &io->ports[i];
        const struct run_input *input = &r->run->inputs[i];
        uint64_t bytes = input->planes ? plane_bytes(port) : 0;
        if (!input->planes && !port->rgb)
            return error_set(r->err, ERROR_UNSUPPORTED, "%s: the channels of input %d lie apart", io->name, i);
        for (int n = 0; n < port->n && !input->planes; n++) {
            const struct window w = window_of(&input->images[n], &port->operand);
            bytes += window_bytes(&w, &port->operand);
        }
        code = place(r, &r->up[i], bytes, &r->up_bytes);
    }
    return code;
}

static enum error_code measure_outputs(struct recording *r)
{
    const struct vk_io *io = r->io;
    enum error_code code = OK;
    r->down_bytes = align_up(io, FOUND_BYTES); /* what is found */
    for (int k = 0; k < io->output_count && code == OK; k++) {
        const struct port *port = &io->ports[io->input_count + k];
        const struct run_output *output = &r->run->outputs[k];
        uint64_t bytes = output->planes ? plane_bytes(port) : 0, weights = 0, over = 0;
        if (output->images && !(output->canvas ? port->rgb : port->plain))
            return error_set(r->err, ERROR_UNSUPPORTED, "%s: the channels of output %d lie apart", io->name, k);
        for (int n = 0; n < port->n && output->images; n++) {
            bytes += image_bytes(&output->images[n]);
            for (int i = 0; i < output->images[n].target_count; i++)
                over += vk_layers_bytes(&output->images[n].targets[i]);
        }
        if (output->canvas)
            weights = sizeof(float) * (uint64_t)port->n * ((uint64_t)port->operand.w + port->operand.h);
        code = place(r, &r->up[io->input_count + k], weights, &r->up_bytes);
        if (code == OK)
            code = place(r, &r->over[k], over, &r->up_bytes);
        if (code == OK)
            code = place(r, &r->down[k], bytes, &r->down_bytes);
    }
    return code;
}

static enum error_code grow(struct recording *r, struct vk_buffer *buffer, uint64_t bytes, enum vk_memory_kind kind)
{
    if (buffer->size >= bytes && buffer->handle)
        return OK;
    vk_memory_destroy(r->io->device, buffer);
    return vk_memory_create(r->io->device, buffer, bytes ? bytes : 4, kind, r->io->name, r->err);
}

/* Shaders that write, and look at what they wrote, straight into the host's memory make the device wait for each few
 * bytes: such results are put together in its own memory and copied at once. */
static enum error_code grow_readback(struct recording *r)
{
    enum error_code code = grow(r, &r->slot->readback, r->down_bytes, MEMORY_READBACK);
    if (code == OK && (!r->slot->readback.counted || r->io->device->direct == DIRECT_NEVER))
        code = grow(r, &r->slot->results, r->down_bytes, MEMORY_DEVICE);
    return code;
}

/* Where shaders write results. */
static const struct vk_buffer *written(const struct io_slot *slot)
{
    return slot->results.handle ? &slot->results : &slot->readback;
}

/* Binds a port's tensor, its parts of the buffers, and whatever else its shaders may read. */
static void bind(struct recording *r, int index)
{
    struct vk_io *io = r->io;
    const struct port *port = &io->ports[index];
    const bool out = index >= io->input_count;
    const struct vk_canvas *canvas = NULL;
    VkDescriptorBufferInfo buffers[BIND_COUNT];
    VkWriteDescriptorSet writes[BIND_COUNT];
    const struct part *up = &r->up[index], *down = out ? &r->down[index - io->input_count] : NULL,
                      *over = out ? &r->over[index - io->input_count] : NULL;
    if (out)
        canvas = (const struct vk_canvas *)r->run->outputs[index - io->input_count].canvas;
    const VkDescriptorBufferInfo words = {io->words->handle, 0, sizeof(struct params_run)};
    const VkDescriptorBufferInfo tensor = {port->operand.slice.buffer->handle, port->operand.slice.offset,
                                           port->operand.slice.range};
    for (int i = 0; i < BIND_COUNT; i++)
        buffers[i] = words;
    buffers[BIND_WEIGHT] = (VkDescriptorBufferInfo){io->words->handle, port->map.offset, port->map.range};
    if (!out) {
        buffers[BIND_Y] = tensor;
        buffers[BIND_X] = (VkDescriptorBufferInfo){r->slot->upload.handle, up->offset, up->bytes};
    } else {
        buffers[BIND_X] = tensor;
        buffers[BIND_SLOPE] = (VkDescriptorBufferInfo){written(r->slot)->handle, 0, FOUND_BYTES};
        if (down->bytes)
            buffers[BIND_Y] = (VkDescriptorBufferInfo){written(r->slot)->handle, down->offset, down->bytes};
        if (up->bytes)
            buffers[BIND_LIST] = (VkDescriptorBufferInfo){r->slot->weights.handle, up->offset, up->bytes};
        if (over->bytes)
            buffers[BIND_LAYERS] = (VkDescriptorBufferInfo){r->slot->weights.handle, over->offset, over->bytes};
        if (canvas)
            buffers[BIND_CANVAS] = (VkDescriptorBufferInfo){canvas->sums.handle, 0, canvas->sums.size};
    }
    for (uint32_t i = 0; i < BIND_COUNT; i++)
        writes[i] = (VkWriteDescriptorSet){.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                           .dstSet = r->slot->sets[index],
                                           .dstBinding = i,
                                           .descriptorCount = 1,
                                           .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                           .pBufferInfo = &buffers[i]};
    vkUpdateDescriptorSets(io->device->handle, BIND_COUNT, writes, 0, NULL);
}

static void dispatch(struct recording *r, int index, const char *shader, uint32_t form, uint32_t from, const void *push,
                     size_t push_size, uint32_t columns, uint32_t rows, uint32_t images)
{
    const VkPipelineLayout layout = vk_pipeline_layout(r->io->device);
    const struct vk_pipeline_key key = key_of(r->io, shader, form, from);
    VkPipeline handle;
    if (r->code == OK)
        r->code = vk_pipeline_get(r->io->device, &key, &handle, r->err);
    if (r->code != OK || !columns || !rows)
        return;
    vkCmdBindPipeline(r->commands, VK_PIPELINE_BIND_POINT_COMPUTE, handle);
    vkCmdBindDescriptorSets(r->commands, VK_PIPELINE_BIND_POINT_COMPUTE, layout, 0, 1, &r->slot->sets[index], 0, NULL);
    vkCmdPushConstants(r->commands, layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, (uint32_t)push_size, push);
    vkCmdDispatch(r->commands, columns, rows, images);
}

/* pack and unpack, which count all of a tensor's pixels in a row. */
static void move_planes(struct recording *r, int index)
{
    const struct vk_operand *tensor = &r->io->ports[index].operand;
    const bool in = index < r->io->input_count;
    const uint32_t widest = r->io->device->traits.limits.maxComputeWorkGroupCount[0];
    const uint32_t groups = ((tensor->h * tensor->w << tensor->layout.group_log) + PIXEL_GROUP - 1) / PIXEL_GROUP;
    struct params_pixel push = {
        .out_h = tensor->h, .out_w = tensor->w, .channels = (uint32_t)tensor->layout.channels, .y = tensor->at};
    push.x = in ? push.x : tensor->at;
    for (uint32_t first = 0, count; first < groups; first += count) {
        count = groups - first < widest ? groups - first : widest;
        push.first_group = first;
        dispatch(r, index, in ? "pack" : "unpack", 0, 0, &push, sizeof push, count,
                 (uint32_t)tensor->layout.blocks >> tensor->layout.group_log, (uint32_t)r->io->ports[index].n);
    }
}

static struct params_raster raster_push(const struct recording *r, const struct port *port, int image)
{
    struct params_raster push = {.image = (uint32_t)image,
                                 .h = port->operand.h,
                                 .w = port->operand.w,
                                 .channels = (uint32_t)port->operand.layout.channels,
                                 .tensor = port->operand.at};
    const struct raster_range *range = r->run->range;
    if (range) {
        push.bgr = range->bgr;
        push.unit = range->unit;
        push.mean0 = range->mean[0];
        push.mean1 = range->mean[1];
        push.mean2 = range->mean[2];
        push.deviation = range->deviation;
        push.low = range->low;
        push.high = range->high;
    }
    return push;
}

static uint32_t groups_of(uint32_t pixels)
{
    return (pixels + RASTER_GROUP - 1) / RASTER_GROUP;
}

/* --- in ---- */

static void write_window(struct recording *r, int index, int image, uint64_t *used)
{
    const struct port *port = &r->io->ports[index];
    const struct raster_source *source = &r->run->inputs[index].images[image];
    const struct window w = window_of(source, &port->operand);
    const uint64_t at = *used;
    uint32_t *words = (uint32_t *)((char *)r->slot->upload.mapped + r->up[index].offset + at);
    struct params_raster push = raster_push(r, port, image);
    for (uint32_t x = 0; x < push.w; x++)
        *words++ = 3 * (uint32_t)((source->columns ? source->columns[x] : (int)x) - w.column);
    for (uint32_t y = 0; y < push.h; y++)
        *words++ = (uint32_t)((uint64_t)((source->rows ? source->rows[y] : (int)y) - w.row) * (w.stride / 4));
    const struct vk_rows rows = {.from = (const char *)source->data + (size_t)w.row * source->stride +
                                         (size_t)w.column * raster_pixel(source->form),
                                 .to = (char *)words,
                                 .from_stride = source->stride,
                                 .to_stride = w.stride,
                                 .bytes = (size_t)w.columns * raster_pixel(source->form),
                                 .rows = w.rows};
    vk_rows_copy(&rows, 1);
    *used += window_bytes(&w, &port->operand);
    push.columns = (uint32_t)(at / 4);
    push.rows = push.columns + push.w;
    push.data = push.rows + push.h;
    dispatch(r, index, "raster_in", source->form, 0, &push, sizeof push, groups_of(push.w), push.h, 1);
}

static void write_input(struct recording *r, int index)
{
    const struct run_input *input = &r->run->inputs[index];
    uint64_t used = 0;
    if (input->planes) {
        struct vk_rows rows[2];
        vk_rows_long((const char *)input->planes, (char *)r->slot->upload.mapped + r->up[index].offset,
                     r->up[index].bytes, rows);
        vk_rows_copy(rows, 2);
        move_planes(r, index);
        return;
    }
    for (int n = 0; n < r->io->ports[index].n; n++)
        write_window(r, index, n, &used);
}

/* --- out ---- */

static void deliver_later(struct recording *r, struct vk_rows rows)
{
    struct io_slot *slot = r->slot;
    if (slot->delivery_count == slot->delivery_capacity) {
        const size_t capacity = slot->delivery_capacity * 2 + 16;
        struct vk_rows *grown = realloc(slot->deliveries, capacity * sizeof *grown);
        if (!grown) {
            r->code = error_set(r->err, ERROR_NO_MEMORY, "out of memory for results");
            return;
        }
        slot->deliveries = grown;
        slot->delivery_capacity = capacity;
    }
    slot->deliveries[slot->delivery_count++] = rows;
}

/* Bytes of the parts of an output that are used. */
struct used {
    uint64_t down, weights;
    uint32_t over; /* in uvec4 */
};

static void show_target(struct recording *r, int index, int image, const struct raster_target *target,
                        struct used *used)
{
    const int k = index - r->io->input_count;
    const struct vk_canvas *canvas = (const struct vk_canvas *)r->run->outputs[k].canvas;
    struct params_raster push = raster_push(r, &r->io->ports[index], image);
    const uint64_t stride = target_stride(target);
    push.data = (uint32_t)(used->down / 4);
    push.stride = (uint32_t)(stride / 4);
    push.x = (uint32_t)target->x;
    push.y = (uint32_t)target->y;
    push.width = (uint32_t)target->width;
    push.height = (uint32_t)target->height;
    if (canvas) {
        push.canvas_width = (uint32_t)canvas->base.width;
        push.canvas_rows = (uint32_t)canvas->base.rows;
    }
    if (target->layer_count)
        vk_layers_write(target, (char *)r->slot->weights.mapped + r->over[k].offset, &used->over, &push);
    const uint32_t from = (canvas ? RASTER_FROM_CANVAS : 0) | (push.layer_count ? RASTER_FROM_LAYERS : 0);
    const uint32_t columns = groups_of((push.width + RASTER_ROW - 1) / RASTER_ROW);
    if (target->form == RASTER_LABEL)
        dispatch(r, index, "raster_label", 0, 0, &push, sizeof push, columns, push.height, 1);
    else
        dispatch(r, index, "raster_out", target->form, from, &push, sizeof push, columns, push.height, 1);
    deliver_later(r, (struct vk_rows){.from = (const char *)r->slot->readback.mapped + r->down[k].offset + used->down,
                                      .to = target->data,
                                      .from_stride = stride,
                                      .to_stride = target->stride,
                                      .bytes = (size_t)target->width * raster_pixel(target->form),
                                      .rows = target->height});
    used->down += stride * (uint64_t)target->height;
}

/* Rows of a canvas become 0. */
static void clear_rows(struct recording *r, const struct vk_canvas *canvas, int y, int count)
{
    const uint64_t row = 3 * sizeof(float) * (uint64_t)canvas->base.width;
    while (count > 0) {
        const int at = y % canvas->base.rows, many = count < canvas->base.rows - at ? count : canvas->base.rows - at;
        vkCmdFillBuffer(r->commands, canvas->sums.handle, (uint64_t)at * row, (uint64_t)many * row, 0);
        y += many;
        count -= many;
    }
    vk_command_barrier(r->commands);
}

/* Adds an image to the canvas. */
static void blend(struct recording *r, int index, int image, struct used *used)
{
    const struct run_output *output = &r->run->outputs[index - r->io->input_count];
    const struct run_image *part = &output->images[image];
    struct vk_canvas *canvas = (struct vk_canvas *)output->canvas;
    struct params_raster push = raster_push(r, &r->io->ports[index], image);
    float *weights = (float *)((char *)r->slot->weights.mapped + r->up[index].offset + used->weights);
    memcpy(weights, part->weight_x, push.w * sizeof *weights);
    memcpy(weights + push.w, part->weight_y, push.h * sizeof *weights);
    push.columns = (uint32_t)(used->weights / 4);
    push.rows = push.columns + push.w;
    push.x = (uint32_t)part->x;
    push.y = (uint32_t)part->y;
    push.canvas_width = (uint32_t)canvas->base.width;
    push.canvas_rows = (uint32_t)canvas->base.rows;
    used->weights += ((uint64_t)push.w + push.h) * sizeof *weights;
    if (canvas->fresh)
        clear_rows(r, canvas, 0, canvas->base.rows);
    canvas->fresh = false;
    dispatch(r, index, "raster_blend", 0, 0, &push, sizeof push, groups_of(push.w), push.h, 1);
    vk_command_barrier(r->commands);
}

static void check(struct recording *r, int index)
{
    const struct port *port = &r->io->ports[index];
    const int k = index - r->io->input_count;
    r->slot->looked |= UINT64_C(1) << k;
    for (int n = 0; n < port->n && n < MAX_LOOKED; n++) {
        struct params_raster push = raster_push(r, port, n);
        push.data = (uint32_t)(MAX_LOOKED * k + n);
        push.width = (uint32_t)port->operand.layout.blocks;
        dispatch(r, index, "raster_check", 0, 0, &push, sizeof push, groups_of(push.w), push.h, 1);
    }
}

static void read_output(struct recording *r, int index)
{
    const struct port *port = &r->io->ports[index];
    const int k = index - r->io->input_count;
    const struct run_output *output = &r->run->outputs[k];
    struct used used = {0};
    if (!output->planes && !output->images)
        return;
    check(r, index);
    if (output->planes) {
        used.down = plane_bytes(port);
        move_planes(r, index);
        struct vk_rows rows[2];
        vk_rows_long((const char *)r->slot->readback.mapped + r->down[k].offset, (char *)output->planes, used.down,
                     rows);
        deliver_later(r, rows[0]);
        deliver_later(r, rows[1]);
    }
    for (int n = 0; n < port->n && output->images; n++) {
        const struct run_image *image = &output->images[n];
        if (output->canvas)
            blend(r, index, n, &used);
        for (int i = 0; i < image->target_count; i++)
            show_target(r, index, n, &image->targets[i], &used);
        if (output->canvas && image->clear_rows) {
            vk_command_barrier(r->commands);
            clear_rows(r, (const struct vk_canvas *)output->canvas, image->clear_y, image->clear_rows);
        }
    }
}

/* --- all of it ---- */

static enum error_code record_before(struct recording *r, VkCommandBuffer *commands)
{
    const struct run_options *options = &r->run->options;
    const struct params_run run = {(uint32_t)options->seed, (uint32_t)(options->seed >> 32), options->first_image, 0};
    enum error_code code = vk_command_begin(r->io->device, commands, r->err);
    if (code != OK)
        return code;
    r->commands = *commands;
    vkCmdUpdateBuffer(r->commands, r->io->words->handle, 0, sizeof run, &run);
    for (int i = 0; i < r->io->input_count; i++)
        write_input(r, i);
    code = vk_command_end(r->io->device, r->commands, r->err);
    return r->code == OK ? code : r->code;
}

static enum error_code record_after(struct recording *r, VkCommandBuffer *commands)
{
    enum error_code code = vk_command_begin(r->io->device, commands, r->err);
    if (code != OK)
        return code;
    r->commands = *commands;
    vkCmdFillBuffer(r->commands, written(r->slot)->handle, 0, FOUND_BYTES, 0);
    vk_command_barrier(r->commands);
    for (int k = 0; k < r->io->output_count; k++)
        read_output(r, r->io->input_count + k);
    if (r->slot->results.handle) {
        const VkBufferCopy all = {0, 0, r->down_bytes};
        vk_command_barrier(r->commands);
        vkCmdCopyBuffer(r->commands, r->slot->results.handle, r->slot->readback.handle, 1, &all);
    }
    vk_command_to_host(r->commands);
    code = vk_command_end(r->io->device, r->commands, r->err);
    return r->code == OK ? code : r->code;
}

enum error_code vk_io_in(struct vk_io *io, int slot, const struct run_io *run, VkCommandBuffer *before,
                         struct error *err)
{
    struct recording r = {.io = io, .slot = &io->slots[slot], .run = run, .err = err};
    enum error_code code = measure_inputs(&r);
    if (code == OK)
        code = grow(&r, &r.slot->upload, r.up_bytes, MEMORY_UPLOAD);
    for (int i = 0; i < io->input_count && code == OK; i++)
        bind(&r, i);
    return code == OK ? record_before(&r, before) : code;
}

enum error_code vk_io_out(struct vk_io *io, int slot, const struct run_io *run, VkCommandBuffer *after,
                          struct error *err)
{
    struct recording r = {.io = io, .slot = &io->slots[slot], .run = run, .err = err};
    r.slot->delivery_count = 0;
    r.slot->looked = 0;
    enum error_code code = measure_outputs(&r);
    if (code == OK && r.up_bytes)
        code = grow(&r, &r.slot->weights, r.up_bytes, MEMORY_UPLOAD);
    if (code == OK)
        code = grow_readback(&r);
    for (int k = 0; k < io->output_count && code == OK; k++)
        bind(&r, io->input_count + k);
    return code == OK ? record_after(&r, after) : code;
}

void vk_io_deliver(struct vk_io *io, int slot, struct run_result *result)
{
    const struct io_slot *s = &io->slots[slot];
    const uint32_t *found = s->readback.mapped;
    *result = (struct run_result){.finite = true};
    for (int k = 0; k < io->output_count; k++)
        for (int n = 0; n < io->ports[io->input_count + k].n && n < MAX_LOOKED && (s->looked >> k & 1); n++) {
            result->finite = result->finite && !(found[MAX_LOOKED * k + n] & CHECK_NOT_FINITE);
            result->flat |= (uint32_t) !(found[MAX_LOOKED * k + n] & CHECK_VARIES) << n;
        }
    vk_rows_copy(s->deliveries, s->delivery_count);
}
