#include "runtime/vulkan/vk_io.h"

#include <stdlib.h>

#include "runtime/base/mem.h"
#include "runtime/vulkan/vk_command.h"
#include "runtime/vulkan/vk_frame.h"
#include "runtime/vulkan/vk_io_private.h"
#include "runtime/vulkan/vk_layers.h"

/* --- making --------------------------------------------------------------------------------------------------------
 */

static enum error_code io_port_create(struct vk_build *build, int tensor, struct vk_io_port *port, struct error *err)
{
    const struct tensor *t = &build->graph->tensors[tensor];
    enum error_code code = vk_plan_operand(build, (struct view){tensor, 0, t->segment_count}, &port->operand, err);
    port->n = t->n;
    port->plain = port->operand.layout.run_count == 1;
    port->rgb = port->plain && port->operand.layout.channels == 3;
    port->pointed = port->plain && port->operand.layout.channels == 4;
    return code == OK ? vk_frame_lanes(build, &port->operand.layout, &port->map, err) : code;
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
        code = io_port_create(build, i < graph->input_count ? graph->inputs[i] : graph->outputs[i - graph->input_count],
                              &io->ports[i], err);
    return code;
}

static struct vk_pipeline_key io_key(const struct vk_io_port *port, const char *shader, uint32_t form, uint32_t from)
{
    return (struct vk_pipeline_key){
        .shader = shader, .fp16 = port->operand.fp16, .spec_count = 2, .spec = {form, from}};
}

enum error_code vk_io_pipelines(const struct vk_io *io, struct error *err)
{
    struct vk_pipeline_key keys[6 * VK_IO_MAX_PORTS];
    size_t count = 0;
    const bool points = io->ports[0].pointed;
    for (int i = 0; i < io->input_count + io->output_count; i++) {
        const struct vk_io_port *port = &io->ports[i];
        const bool in = i < io->input_count, rgb = port->rgb;
        if (points && in && i == 0)
            keys[count++] = io_key(port, "raster_in", RASTER_U8, 0);
        if (points && (in ? i == 0 : rgb))
            keys[count++] = io_key(port, in ? "points_in" : "points_out", 0, 0);
        if (rgb)
            keys[count++] = io_key(port, in ? "raster_in" : "raster_out", RASTER_U8, 0);
        if (rgb && in && i > 0)
            keys[count++] = io_key(port, "raster_reduce", 0, 0);
        if (rgb)
            keys[count++] = io_key(port, in ? "raster_in" : "raster_out", RASTER_F32, 0);
        if (rgb && !in)
            keys[count++] = io_key(port, "raster_out", RASTER_U8, RASTER_FROM_LAYERS);
        if (!rgb)
            keys[count++] = io_key(port, in ? "pack" : "unpack", 0, 0);
        if (!in && !rgb && port->plain) {
            keys[count++] = io_key(port, "raster_label", RASTER_LABEL, 0);
            keys[count++] = io_key(port, "raster_label", RASTER_LEVEL, 0);
        }
        if (!in)
            keys[count++] = io_key(port, "raster_check", 0, 0);
    }
    return vk_pipeline_make(io->device, keys, count, err);
}

enum error_code vk_io_prepare(struct vk_io *io, const struct vk_buffer *counters, struct error *err)
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
    io->counters = counters;
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
        vk_io_write_over(io, &io->slots[i]);
        vk_io_write_forget(io, &io->slots[i]);
        vk_memory_destroy(io->device, &io->slots[i].upload);
        vk_memory_destroy(io->device, &io->slots[i].weights);
        vk_memory_destroy(io->device, &io->slots[i].readback);
        vk_memory_destroy(io->device, &io->slots[i].results);
        free(io->slots[i].sets);
        free(io->slots[i].copies);
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
        const struct vk_io_slot *slot = &io->slots[i];
        bytes += slot->upload.size + slot->weights.size + slot->readback.size + slot->results.size;
    }
    return bytes;
}

/* --- a run ---------------------------------------------------------------------------------------------------------
 */

static uint64_t io_align_up(const struct vk_io *io, uint64_t bytes)
{
    const uint64_t align = io->device->traits.limits.minStorageBufferOffsetAlignment;
    return (bytes + align - 1) / align * align;
}

uint64_t vk_io_plane_bytes(const struct vk_io_port *port)
{
    const struct vk_operand *x = &port->operand;
    return sizeof(float) * (uint64_t)port->n * (uint64_t)x->layout.channels * x->h * x->w;
}

static enum error_code io_place(struct vk_io_run *r, struct vk_io_part *part, uint64_t bytes, uint64_t *total)
{
    const struct vk_device *device = r->io->device;
    *part = (struct vk_io_part){*total, bytes};
    *total += io_align_up(r->io, bytes);
    if (bytes <= device->traits.limits.maxStorageBufferRange)
        return OK;
    return error_set(r->err, ERROR_TOO_LARGE, "%s: an input or output of %.0f MiB is larger than %s takes", r->io->name,
                     (double)bytes / 0x1p20, device->traits.info.name);
}

static enum error_code io_measure_inputs(struct vk_io_run *r)
{
    const struct vk_io *io = r->io;
    enum error_code code = OK;
    for (int i = 0; i < io->input_count && code == OK; i++) {
        const struct vk_io_port *port = &io->ports[i];
        const struct run_input *input = &r->run->inputs[i];
        uint64_t bytes = input->planes ? vk_io_plane_bytes(port) : 0;
        if (!input->planes && !(input->points ? port->pointed : port->rgb))
            return error_set(r->err, ERROR_UNSUPPORTED, "%s: the channels of input %d lie apart", io->name, i);
        if (vk_io_write_from(io, r->run, i) >= 0) {
            r->up[i] = r->up[vk_io_write_from(io, r->run, i)];
            continue;
        }
        for (int n = 0; n < port->n && !input->planes; n++)
            bytes += vk_io_write_bytes(&input->images[n], &port->operand) +
                     (input->points ? (uint64_t)input->points[n].count * VK_IO_POINT_BYTES : 0);
        code = io_place(r, &r->up[i], bytes, &r->up_bytes);
    }
    return code;
}

static enum error_code io_measure_outputs(struct vk_io_run *r)
{
    const struct vk_io *io = r->io;
    enum error_code code = OK;
    r->down_bytes = io_align_up(io, VK_IO_FOUND_BYTES); /* what is found */
    for (int k = 0; k < io->output_count && code == OK; k++) {
        const struct vk_io_port *port = &io->ports[io->input_count + k];
        const struct run_output *output = &r->run->outputs[k];
        uint64_t bytes = output->planes ? vk_io_plane_bytes(port) : 0, weights = 0, over = 0;
        if ((output->images && !(output->canvas ? port->rgb : port->plain)) || (output->points && !port->rgb))
            return error_set(r->err, ERROR_UNSUPPORTED, "%s: the channels of output %d lie apart", io->name, k);
        for (int n = 0; n < port->n && output->images; n++) {
            bytes += vk_io_read_bytes(&output->images[n]);
            for (int i = 0; i < output->images[n].target_count; i++)
                over += vk_layers_bytes(&output->images[n].targets[i]);
        }
        for (int n = 0; n < port->n && output->points; n++) {
            bytes += 3 * sizeof(float) * (uint64_t)output->points[n].count;
            weights += sizeof(uint32_t) * (uint64_t)output->points[n].count;
        }
        if (output->canvas)
            weights = sizeof(float) * (uint64_t)port->n * ((uint64_t)port->operand.w + port->operand.h);
        code = io_place(r, &r->up[io->input_count + k], weights, &r->up_bytes);
        if (code == OK)
            code = io_place(r, &r->over[k], over, &r->up_bytes);
        if (code == OK)
            code = io_place(r, &r->down[k], bytes, &r->down_bytes);
    }
    return code;
}

static enum error_code io_grow(struct vk_io_run *r, struct vk_buffer *buffer, uint64_t bytes, enum vk_memory_kind kind)
{
    if (buffer->size >= bytes && buffer->handle)
        return OK;
    vk_memory_destroy(r->io->device, buffer);
    return vk_memory_create(r->io->device, buffer, bytes ? bytes : 4, kind, r->io->name, r->err);
}

/* Shaders that write straight into host memory and read back what they wrote make the device wait for every few bytes:
 * such results are assembled in its own memory and then copied. */
static enum error_code io_grow_readback(struct vk_io_run *r)
{
    enum error_code code = io_grow(r, &r->slot->readback, r->down_bytes, MEMORY_READBACK);
    if (code == OK && (!r->slot->readback.counted || r->io->device->direct == DIRECT_NEVER))
        code = io_grow(r, &r->slot->results, r->down_bytes, MEMORY_DEVICE);
    return code;
}

/* Where shaders write results. */
static const struct vk_buffer *io_written(const struct vk_io_slot *slot)
{
    return slot->results.handle ? &slot->results : &slot->readback;
}

/* Binds a port's tensor, its parts of the buffers, and everything else that its shaders may read. */
static void io_bind(struct vk_io_run *r, int index)
{
    struct vk_io *io = r->io;
    const struct vk_io_port *port = &io->ports[index];
    const bool out = index >= io->input_count;
    const struct vk_canvas *canvas = NULL;
    VkDescriptorBufferInfo buffers[BIND_COUNT];
    VkWriteDescriptorSet writes[BIND_COUNT];
    const struct vk_io_part *up = &r->up[index], *down = out ? &r->down[index - io->input_count] : NULL,
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
        buffers[BIND_SLOPE] = (VkDescriptorBufferInfo){io_written(r->slot)->handle, 0, VK_IO_FOUND_BYTES};
        if (down->bytes)
            buffers[BIND_Y] = (VkDescriptorBufferInfo){io_written(r->slot)->handle, down->offset, down->bytes};
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

void vk_io_dispatch(struct vk_io_run *r, int index, const char *shader, uint32_t form, uint32_t from, const void *push,
                    size_t push_size, uint32_t columns, uint32_t rows, uint32_t images)
{
    const VkPipelineLayout layout = vk_pipeline_layout(r->io->device);
    const struct vk_pipeline_key key = io_key(&r->io->ports[index], shader, form, from);
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

void vk_io_move_planes(struct vk_io_run *r, int index)
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
        vk_io_dispatch(r, index, in ? "pack" : "unpack", 0, 0, &push, sizeof push, count,
                       (uint32_t)tensor->layout.blocks >> tensor->layout.group_log, (uint32_t)r->io->ports[index].n);
    }
}

struct params_raster vk_io_push(const struct vk_io_run *r, const struct vk_io_port *port, int image)
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

void vk_io_dispatch_points(struct vk_io_run *r, int index, struct params_raster *push, uint32_t count)
{
    const uint32_t groups = vk_io_groups(count), rows = (groups + POINTS_GROUPS - 1) / POINTS_GROUPS;
    push->width = count;
    vk_io_dispatch(r, index, index < r->io->input_count ? "points_in" : "points_out", 0, 0, push, sizeof *push,
                   groups < POINTS_GROUPS ? groups : POINTS_GROUPS, rows, 1);
}

uint32_t vk_io_groups(uint32_t pixels)
{
    return (pixels + RASTER_GROUP - 1) / RASTER_GROUP;
}

void vk_io_copy_later(struct vk_io_run *r, struct vk_rows rows)
{
    struct vk_io_slot *slot = r->slot;
    if (slot->copy_count == slot->copy_capacity) {
        const size_t capacity = slot->copy_capacity * 2 + 16;
        struct vk_rows *grown = realloc(slot->copies, capacity * sizeof *grown);
        if (!grown) {
            r->code = error_set(r->err, ERROR_NO_MEMORY, "out of memory for a run");
            return;
        }
        slot->copies = grown;
        slot->copy_capacity = capacity;
    }
    slot->copies[slot->copy_count++] = rows;
}

/* --- all of it ---- */

static enum error_code io_record_before(struct vk_io_run *r, VkCommandBuffer *commands)
{
    const struct run_options *options = &r->run->options;
    const struct params_run run = {(uint32_t)options->seed, (uint32_t)(options->seed >> 32), options->first_image, 0};
    enum error_code code = vk_command_begin(r->io->device, commands, r->err);
    if (code != OK)
        return code;
    r->commands = *commands;
    vkCmdUpdateBuffer(r->commands, r->io->words->handle, 0, sizeof run, &run);
    r->slot->copy_count = 0;
    for (int i = 0; i < r->io->input_count; i++)
        vk_io_write(r, i);
    vk_rows_copy(r->slot->copies, r->slot->copy_count);
    r->slot->copy_count = 0;
    code = vk_command_end(r->io->device, r->commands, r->err);
    return r->code == OK ? code : r->code;
}

static enum error_code io_record_after(struct vk_io_run *r, VkCommandBuffer *commands)
{
    enum error_code code = vk_command_begin(r->io->device, commands, r->err);
    if (code != OK)
        return code;
    r->commands = *commands;
    vkCmdFillBuffer(r->commands, io_written(r->slot)->handle, 0, VK_IO_FOUND_BYTES, 0);
    vk_command_barrier(r->commands);
    if (r->io->counters->handle) {
        const VkBufferCopy wild = {CHAIN_WILD * sizeof(uint32_t), VK_IO_LOOKED * sizeof(uint32_t), sizeof(uint32_t)};
        vkCmdCopyBuffer(r->commands, r->io->counters->handle, io_written(r->slot)->handle, 1, &wild);
    }
    for (int k = 0; k < r->io->output_count; k++)
        vk_io_read(r, r->io->input_count + k);
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
    struct vk_io_run r = {.io = io, .slot = &io->slots[slot], .run = run, .err = err};
    vk_io_write_over(io, r.slot);
    vk_io_write_forget(io, r.slot);
    enum error_code code = io_measure_inputs(&r);
    if (code == OK)
        code = io_grow(&r, &r.slot->upload, r.up_bytes, MEMORY_UPLOAD);
    for (int i = 0; i < io->input_count && code == OK; i++)
        io_bind(&r, i);
    if (code == OK)
        code = io_record_before(&r, before);
    if (code != OK)
        vk_io_write_forget(io, r.slot);
    return code;
}

enum error_code vk_io_out(struct vk_io *io, int slot, const struct run_io *run, VkCommandBuffer *after,
                          struct error *err)
{
    struct vk_io_run r = {.io = io, .slot = &io->slots[slot], .run = run, .err = err};
    r.slot->copy_count = 0;
    r.slot->looked = 0;
    enum error_code code = io_measure_outputs(&r);
    if (code == OK && r.up_bytes)
        code = io_grow(&r, &r.slot->weights, r.up_bytes, MEMORY_UPLOAD);
    if (code == OK)
        code = io_grow_readback(&r);
    for (int k = 0; k < io->output_count && code == OK; k++)
        io_bind(&r, io->input_count + k);
    return code == OK ? io_record_after(&r, after) : code;
}

void vk_io_deliver(struct vk_io *io, int slot, struct run_result *result)
{
    const struct vk_io_slot *s = &io->slots[slot];
    const uint32_t *found = s->readback.mapped;
    *result = (struct run_result){.finite = found[VK_IO_LOOKED] == 0};
    vk_io_write_over(io, &io->slots[slot]);
    for (int k = 0; k < io->output_count; k++)
        for (int n = 0; n < io->ports[io->input_count + k].n && n < VK_IO_MAX_LOOKED && (s->looked >> k & 1); n++) {
            result->finite = result->finite && !(found[VK_IO_MAX_LOOKED * k + n] & CHECK_NOT_FINITE);
            result->flat |= (uint32_t) !(found[VK_IO_MAX_LOOKED * k + n] & CHECK_VARIES) << n;
        }
    vk_rows_copy(s->copies, s->copy_count);
}
