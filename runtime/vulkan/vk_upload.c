#include "runtime/vulkan/vk_upload.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "runtime/vulkan/vk_command.h"
#include "runtime/vulkan/vk_direct.h"
#include "runtime/vulkan/vk_matrix.h"
#include "runtime/vulkan/vk_pipeline.h"
#include "shaders/include/params.h"

#define SEGMENTS 2
#define SETS 64                      /* of a segment: one for each buffer of packings that it writes to */
#define COPY_BYTES ((size_t)1 << 20) /* of a thread's item */

/* A staging buffer with the commands that empty it. */
struct segment {
    struct vk_buffer staging;
    size_t used; /* bytes */
    VkDescriptorPool pool;
    uint32_t set_count;
    VkDescriptorSet set;           /* for `bound` */
    const struct vk_buffer *bound; /* the buffer of packings that the last part went to */
    VkCommandBuffer commands;      /* NULL: not begun */
    VkFence fence;
    bool flying;
};

struct upload {
    struct vk_device *device;
    struct segment segments[SEGMENTS];
    struct segment *at;
    size_t bytes; /* of a segment */
};

/* --- segments ------------------------------------------------------------------------------------------------------
 */

static enum error_code upload_segment_wait(struct upload *upload, struct segment *segment, struct error *err)
{
    struct vk_device *device = upload->device;
    VkResult result = VK_SUCCESS;
    if (segment->flying)
        result = vkWaitForFences(device->handle, 1, &segment->fence, VK_TRUE, UINT64_MAX);
    if (result == VK_SUCCESS && segment->flying)
        result = vkResetFences(device->handle, 1, &segment->fence);
    if (result != VK_SUCCESS)
        return vk_device_error(device, result, "convert weights", err);
    if (segment->pool)
        result = vkResetDescriptorPool(device->handle, segment->pool, 0);
    vk_command_free(device, &segment->commands, segment->commands ? 1 : 0);
    segment->commands = VK_NULL_HANDLE;
    segment->bound = NULL;
    segment->set_count = 0;
    segment->used = 0;
    segment->flying = false;
    return result == VK_SUCCESS ? OK : vk_device_error(device, result, "describe a buffer of weights", err);
}

static enum error_code upload_segment_send(struct upload *upload, struct error *err)
{
    struct vk_device *device = upload->device;
    struct segment *segment = upload->at;
    if (!segment->commands)
        return OK;
    enum error_code code = vk_command_end(device, segment->commands, err);
    if (code != OK)
        return code;
    VkResult result = vk_command_submit(device, segment->commands, segment->fence);
    segment->flying = result == VK_SUCCESS;
    upload->at = &upload->segments[(segment - upload->segments + 1) % SEGMENTS];
    return segment->flying ? OK : vk_device_error(device, result, "convert weights", err);
}

/* Opens the current segment, none of whose commands are in flight. */
static enum error_code upload_segment_begin(struct upload *upload, struct error *err)
{
    struct vk_device *device = upload->device;
    struct segment *segment = upload->at;
    const VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
    const VkDescriptorPoolSize size = {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, SETS * 2};
    const VkDescriptorPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
                                             .maxSets = SETS,
                                             .poolSizeCount = 1,
                                             .pPoolSizes = &size};
    enum error_code code = OK;
    if (segment->commands)
        return OK;
    if (segment->staging.size < upload->bytes) {
        vk_memory_destroy(device, &segment->staging);
        code = vk_memory_create(device, &segment->staging, upload->bytes, MEMORY_UPLOAD, "uploading weights", err);
    }
    VkResult result = VK_SUCCESS;
    if (code == OK && !segment->fence)
        result = vkCreateFence(device->handle, &fence, NULL, &segment->fence);
    if (code == OK && result == VK_SUCCESS && !segment->pool)
        result = vkCreateDescriptorPool(device->handle, &pool, NULL, &segment->pool);
    if (result != VK_SUCCESS)
        code = vk_device_error(device, result, "prepare for weights", err);
    return code == OK ? vk_command_begin(device, &segment->commands, err) : code;
}

static void upload_free(struct upload *upload)
{
    struct vk_device *device = upload->device;
    for (int i = 0; i < SEGMENTS; i++) {
        struct segment *segment = &upload->segments[i];
        if (segment->flying) /* after an error */
            vk_command_wait_idle(device);
        vk_command_free(device, &segment->commands, segment->commands ? 1 : 0);
        vkDestroyDescriptorPool(device->handle, segment->pool, NULL);
        vkDestroyFence(device->handle, segment->fence, NULL);
        vk_memory_destroy(device, &segment->staging);
    }
}

/* Binds the segment and the buffer of packings. */
static enum error_code upload_bind(struct upload *upload, const struct vk_buffer *packed, struct error *err)
{
    struct vk_device *device = upload->device;
    struct segment *segment = upload->at;
    const VkDescriptorSetLayout layout = vk_pipeline_set_layout(device);
    const VkDescriptorSetAllocateInfo allocate = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
                                                  .descriptorPool = segment->pool,
                                                  .descriptorSetCount = 1,
                                                  .pSetLayouts = &layout};
    if (segment->bound == packed)
        return OK;
    const VkResult result = vkAllocateDescriptorSets(device->handle, &allocate, &segment->set);
    if (result != VK_SUCCESS)
        return vk_device_error(device, result, "describe a buffer of weights", err);
    segment->set_count++;
    segment->bound = packed;
    const VkDescriptorBufferInfo buffers[] = {{packed->handle, 0, packed->size},
                                              {segment->staging.handle, 0, segment->staging.size}};
    const VkWriteDescriptorSet write = {.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                        .dstSet = segment->set,
                                        .descriptorCount = 1,
                                        .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER};
    VkWriteDescriptorSet writes[] = {write, write};
    writes[0].dstBinding = BIND_Y;
    writes[0].pBufferInfo = &buffers[0];
    writes[1].dstBinding = BIND_X;
    writes[1].pBufferInfo = &buffers[1];
    vkUpdateDescriptorSets(device->handle, 2, writes, 0, NULL);
    vkCmdBindDescriptorSets(segment->commands, VK_PIPELINE_BIND_POINT_COMPUTE, vk_pipeline_layout(device), 0, 1,
                            &segment->set, 0, NULL);
    return OK;
}

/* --- items ---------------------------------------------------------------------------------------------------------
 */

/* A param while it is uploaded: in parts, each of some units of its output lanes. */
struct source {
    const struct vk_pack_key *key;
    const struct vk_slice *slice;
    const uint8_t *values;
    float *converted;             /* owned; used when the shader cannot read the param's own layout */
    const float *scales;          /* of its rows, or NULL */
    size_t element, row;          /* bytes; elements of a row */
    int taps;                     /* of an in lane */
    uint32_t *in, *out;           /* lanes, up to whole units */
    size_t in_count, out_count;   /* in_count 0: the layout has none */
    size_t unit, unit_quads;      /* output lanes of a unit; what it has in the packing */
    uint32_t layout, type, order; /* UPLOAD_…; words of a matrix's order */
};

static void upload_source_free(struct source *s)
{
    free(s->converted);
    free(s->in);
    free(s->out);
}

static uint32_t *upload_lanes_of(const struct vk_layout *layout, size_t multiple, size_t *count)
{
    const size_t real = (size_t)layout->blocks * 4;
    *count = (real + multiple - 1) / multiple * multiple;
    uint32_t *lanes = mem_alloc(*count + 1, sizeof *lanes);
    if (!lanes)
        return NULL;
    vk_pack_lanes(layout, lanes);
    for (size_t i = real; i < *count; i++)
        lanes[i] = UPLOAD_NO_CHANNEL;
    return lanes;
}

/* Puts the lanes of out matrices where shaders/matrix wants the channels. */
static bool upload_permute(const struct vk_device *device, const struct vk_pack_key *key, uint32_t *lanes, size_t count)
{
    uint32_t *from = mem_alloc(count + 1, sizeof *from);
    if (!from)
        return false;
    memcpy(from, lanes, count * sizeof *lanes);
    for (size_t i = 0; i < count; i++)
        lanes[i] = from[vk_matrix_channel(device, key->out.blocks, (int)(i / 16 * 16), (int)(i % 16))];
    free(from);
    return true;
}

static enum error_code upload_source_open(struct source *s, const struct vk_device *device,
                                          const struct vk_upload_item *item, struct error *err)
{
    _Static_assert(VK_PACK_NO_CHANNEL == UPLOAD_NO_CHANNEL, "lanes go to the shader as they are");
    const struct vk_pack_key *key = &item->key;
    static const uint32_t layouts[] = {
        [PACK_CONV] = UPLOAD_CONV,     [PACK_WINOGRAD] = UPLOAD_WINOGRAD, [PACK_MATRIX] = UPLOAD_MATRIX,
        [PACK_LINEAR] = UPLOAD_LINEAR, [PACK_DEPTHWISE] = UPLOAD_PLAIN,   [PACK_TENSOR] = UPLOAD_PLAIN,
        [PACK_DIRECT] = UPLOAD_MATRIX};
    const bool direct = key->kind == PACK_DIRECT, matrix = key->kind == PACK_MATRIX || direct;
    const bool winograd = key->kind == PACK_WINOGRAD;
    const struct param *param = key->param;
    enum weights_dtype type;
    *s = (struct source){.key = key, .slice = &item->slice, .values = param_raw(param, &type), .taps = key->taps};
    s->unit = matrix                               ? (size_t)vk_matrix_unit(key->out.blocks)
              : winograd || key->kind == PACK_CONV ? 16
              : key->kind == PACK_TENSOR           ? (size_t)4 << key->out.group_log
                                                   : 4;
    s->out = upload_lanes_of(&key->out, s->unit, &s->out_count);
    if (direct) {
        s->in_count = 16 * (size_t)vk_direct_steps(&key->in, key->taps, &s->taps);
        s->in = mem_alloc(s->in_count, sizeof *s->in);
        if (s->in)
            vk_direct_lanes(device, &key->in, key->taps, s->in);
    } else {
        s->in = upload_lanes_of(&key->in, matrix ? 16 : 4, &s->in_count);
    }
    if (layouts[key->kind] == UPLOAD_PLAIN)
        s->in_count = 0;
    if (!s->values)
        s->converted = mem_alloc(param->count, sizeof(float));
    if (!s->out || !s->in || (!s->values && !s->converted) ||
        (matrix && !upload_permute(device, key, s->out, s->out_count)))
        return error_set(err, ERROR_NO_MEMORY, "out of memory for %zu weights", param->count);
    if (s->converted) {
        param_read(param, s->converted);
        s->values = (const uint8_t *)s->converted;
        type = WEIGHTS_F32;
    } else if (param->rows) {
        s->scales = param->values;
    }
    s->element = type == WEIGHTS_F32 ? 4 : 2;
    s->type = type == WEIGHTS_F32 ? UPLOAD_F32 : type == WEIGHTS_F16 ? UPLOAD_F16 : UPLOAD_BF16;
    s->layout = layouts[key->kind];
    s->order = matrix ? 256 : 0;
    s->row = (size_t)key->taps * (s->in_count ? (size_t)key->in.channels : 1);
    const size_t positions = key->fp16 ? WINOGRAD_PACKED_POSITIONS : WINOGRAD_POSITIONS;
    s->unit_quads = (winograd ? positions : (size_t)s->taps) * (s->in_count ? s->in_count * s->unit / 4 : s->unit / 4);
    return OK;
}

/* The words that a part needs in the staging buffer. */
static size_t upload_part_words(const struct source *s, size_t lanes, size_t rows)
{
    return s->order + s->in_count + lanes + (s->scales ? rows : 0) + (rows * s->row * s->element + 3) / 4;
}

struct copy {
    uint8_t *to;
    const uint8_t *from;
    size_t size;
};

static void upload_copy_item(void *context, int item)
{
    const struct copy *copy = context;
    const size_t begin = (size_t)item * COPY_BYTES;
    memcpy(copy->to + begin, copy->from + begin, copy->size - begin < COPY_BYTES ? copy->size - begin : COPY_BYTES);
}

/* Writes the part into the segment from its next word on: lanes [first, first + count), whose rows begin with
 * first_row. */
static void upload_part_write(const struct upload *upload, const struct source *s, size_t first, size_t count,
                              size_t first_row, size_t rows, struct params_upload *push)
{
    struct segment *segment = upload->at;
    uint32_t *words = (uint32_t *)segment->staging.mapped, at = (uint32_t)(segment->used / 4);
    push->order = at;
    for (uint32_t i = 0; i < s->order; i++)
        words[at++] = upload->device->matrix_order[i];
    push->in_lanes = at;
    memcpy(words + at, s->in, s->in_count * sizeof *words);
    at += (uint32_t)s->in_count;
    push->out_lanes = at;
    for (size_t i = 0; i < count; i++) {
        const uint32_t channel = s->out[first + i];
        words[at++] = channel == UPLOAD_NO_CHANNEL ? channel : channel - (uint32_t)first_row;
    }
    push->scales = s->scales ? at : 0;
    if (s->scales && rows) {
        memcpy(words + at, s->scales + first_row, rows * sizeof *words);
        at += (uint32_t)rows;
    }
    push->values = at;
    const size_t row = s->row * s->element;
    struct copy copy = {(uint8_t *)(words + at), s->values + first_row * row, rows * row};
    thread_for((int)((copy.size + COPY_BYTES - 1) / COPY_BYTES), upload_copy_item, &copy);
    segment->used = (at + (copy.size + 3) / 4) * 4;
}

static enum error_code upload_part_record(struct upload *upload, const struct source *s, size_t first_unit,
                                          size_t units, struct params_upload *push, struct error *err)
{
    struct vk_device *device = upload->device;
    struct segment *segment = upload->at;
    const struct vk_pipeline_key key = {
        .shader = "upload", .fp16 = s->key->fp16, .spec_count = 2, .spec = {s->layout, s->type}};
    const size_t quad = s->key->fp16 ? 8 : 16;
    VkPipeline pipeline;
    enum error_code code = upload_bind(upload, s->slice->buffer, err);
    if (code == OK)
        code = vk_pipeline_get(device, &key, &pipeline, err);
    if (code != OK)
        return code;
    push->quads = (uint32_t)(units * s->unit_quads);
    push->y = (uint32_t)(s->slice->offset / quad + first_unit * s->unit_quads);
    push->row = (uint32_t)s->row;
    push->taps = (uint32_t)s->taps;
    push->in_blocks = (uint32_t)(s->in_count / (s->layout == UPLOAD_MATRIX ? 16 : 4));
    push->group_log = s->layout == UPLOAD_MATRIX    ? s->unit > 16
                      : s->key->kind == PACK_TENSOR ? (uint32_t)s->key->out.group_log
                                                    : 0;
    while ((push->kernel + 1) * (push->kernel + 1) <= push->taps)
        push->kernel++;
    vkCmdBindPipeline(segment->commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
    const uint32_t groups = (push->quads + PIXEL_GROUP - 1) / PIXEL_GROUP;
    const uint32_t widest = device->traits.limits.maxComputeWorkGroupCount[0];
    for (uint32_t first = 0, count; first < groups; first += count) {
        count = groups - first < widest ? groups - first : widest;
        push->first_group = first;
        vkCmdPushConstants(segment->commands, vk_pipeline_layout(device), VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof *push,
                           push);
        vkCmdDispatch(segment->commands, count, 1, 1);
    }
    return OK;
}

/* Uploads as many units as fit into the segment; a unit that is larger than an empty segment enlarges it. */
static enum error_code upload_part(struct upload *upload, const struct source *s, size_t *unit, struct error *err)
{
    const size_t first = *unit * s->unit;
    const struct segment *segment = upload->at;
    const size_t room = segment->commands ? (upload->bytes - segment->used) / 4 : upload->bytes / 4;
    const bool bound = segment->bound == s->slice->buffer || segment->set_count < SETS;
    size_t lanes = 0, rows = 0, first_row = 0, needed = 0;
    while (bound && first + lanes < s->out_count) {
        size_t more = 0;
        for (size_t i = first + lanes; i < first + lanes + s->unit; i++)
            if (s->out[i] != UPLOAD_NO_CHANNEL && (rows + more++ == 0 || s->out[i] < first_row))
                first_row = s->out[i];
        needed = upload_part_words(s, lanes + s->unit, rows + more);
        if (needed > room)
            break;
        lanes += s->unit;
        rows += more;
    }
    enum error_code code = OK;
    if (lanes == 0 && segment->commands) {
        code = upload_segment_send(upload, err);
        return code == OK ? upload_segment_wait(upload, upload->at, err) : code;
    }
    if (lanes == 0) {
        if (needed * 4 > upload->device->traits.limits.maxStorageBufferRange)
            return error_set(err, ERROR_TOO_LARGE,
                             "weights of %.0f MiB for a few channels, and %s binds at most %.0f MiB",
                             (double)needed * 4 / 0x1p20, upload->device->traits.info.name,
                             (double)upload->device->traits.limits.maxStorageBufferRange / 0x1p20);
        upload->bytes = needed * 4;
        return OK;
    }
    struct params_upload push = {0};
    code = upload_segment_begin(upload, err);
    if (code != OK)
        return code;
    upload_part_write(upload, s, first, lanes, first_row, rows, &push);
    code = upload_part_record(upload, s, *unit, lanes / s->unit, &push, err);
    *unit += lanes / s->unit;
    return code;
}

static enum error_code upload_item(struct upload *upload, const struct vk_upload_item *item, struct error *err)
{
    struct source s;
    enum error_code code = upload_source_open(&s, upload->device, item, err);
    for (size_t unit = 0; code == OK && unit * s.unit < s.out_count;)
        code = upload_part(upload, &s, &unit, err);
    upload_source_free(&s);
    return code;
}

/* Roughly no more than all items together need: most calls bring little. */
static size_t upload_segment_bytes(const struct vk_device *device, const struct vk_upload_item *items, size_t count)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count && bytes < device->upload_bytes; i++) {
        const struct vk_pack_key *key = &items[i].key;
        bytes += key->param->count * 4 + 4 * (size_t)(256 + key->in.blocks * 4 + 2 * key->out.blocks * 4 + 64);
    }
    return bytes < device->upload_bytes ? bytes : device->upload_bytes;
}

enum error_code vk_upload_run(struct vk_device *device, const struct vk_upload_item *items, size_t count,
                              struct error *err)
{
    struct upload upload = {.device = device, .bytes = upload_segment_bytes(device, items, count) / 4 * 4};
    enum error_code code = OK;
    const double start = log_clock_ms();
    upload.at = &upload.segments[0];
    for (size_t i = 0; i < count && code == OK; i++)
        code = upload_item(&upload, &items[i], err);
    if (code == OK)
        code = upload_segment_send(&upload, err);
    for (int i = 0; i < SEGMENTS && code == OK; i++)
        code = upload_segment_wait(&upload, &upload.segments[i], err);
    upload_free(&upload);
    log_event(LOG_DEBUG, "weights-uploaded", "device=%s params=%zu ms=%.1f", device->traits.info.id, count,
              log_clock_ms() - start);
    return code;
}
