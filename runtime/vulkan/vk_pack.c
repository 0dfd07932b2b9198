#include "runtime/vulkan/vk_pack.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/vulkan/vk_command.h"

#define CHUNK_BYTES (16u << 20) /* params share device allocations, of which drivers allow only some 4096 */
#define STAGING_BYTES (8u << 20)

struct chunk {
    struct chunk *next;
    struct vk_buffer buffer;
    VkDeviceSize filled;
    uint32_t live; /* packs in it; at 0 it is freed */
};

struct pack {
    struct vk_pack_key key;
    struct chunk *chunk;
    struct vk_slice slice;
    bool uploaded;
};

struct copy {
    const struct chunk *chunk;
    VkBufferCopy region;
};

struct vk_packs {
    struct chunk *chunks;
    struct pack *list;
    size_t count, capacity;
    struct vk_buffer staging; /* while an upload waits */
    VkDeviceSize staged;
    struct copy *copies;
    size_t copy_count, copy_capacity;
};

/* --- layouts -------------------------------------------------------------------------------------------------------
 */

/* The logarithm of the largest group, up to 8 quads, that a segment of that many channels half fills. */
static int group_log(int channels)
{
    int log = 0;
    while (log < 3 && channels > 4 << log)
        log++;
    return log;
}

static int whole_groups(const struct vk_layout *layout, int channels)
{
    const int lanes = 4 << layout->group_log;
    return (channels + lanes - 1) / lanes << layout->group_log;
}

void vk_pack_layout(const struct graph *graph, struct view view, bool grouped, struct vk_layout *out)
{
    const struct tensor *tensor = graph_tensor_of(graph, view);
    *out = (struct vk_layout){.group_log = grouped ? 3 : 0};
    for (int i = 0; i < tensor->segment_count; i++)
        if (group_log(tensor->segment[i]) < out->group_log)
            out->group_log = group_log(tensor->segment[i]);
    for (int i = view.first; i < view.first + view.count; i++) {
        if (out->run_count == 0 || out->run[out->run_count - 1] % (4 << out->group_log) != 0)
            out->run_count++;
        out->run[out->run_count - 1] += tensor->segment[i];
        out->channels += tensor->segment[i];
        out->blocks += whole_groups(out, tensor->segment[i]);
    }
}

void vk_pack_layout_dense(int channels, bool grouped, struct vk_layout *out)
{
    *out = (struct vk_layout){.channels = channels, .run_count = 1, .run = {channels}};
    out->group_log = grouped ? group_log(channels) : 0;
    out->blocks = whole_groups(out, channels);
}

bool vk_pack_layout_same(const struct vk_layout *a, const struct vk_layout *b)
{
    bool same = a->run_count == b->run_count;
    for (int i = 0; i < a->run_count && same; i++)
        same = a->run[i] == b->run[i] && whole_groups(a, a->run[i]) == whole_groups(b, b->run[i]);
    return same;
}

void vk_pack_lanes(const struct vk_layout *layout, uint32_t *lanes)
{
    uint32_t channel = 0, lane = 0;
    for (int r = 0; r < layout->run_count; r++) {
        for (int i = 0; i < layout->run[r]; i++)
            lanes[lane++] = channel++;
        while (lane % (4u << layout->group_log))
            lanes[lane++] = VK_PACK_NO_CHANNEL;
    }
}

/* --- packing -------------------------------------------------------------------------------------------------------
 */

/* To fp16, to the nearest, ties to even; what is beyond its range becomes its largest number. */
static uint16_t to_half(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    const float size = fabsf(value);
    if (!(size < 65504.0f))
        return sign | 0x7bff;
    if (size < 0x1p-14f) /* subnormal: in steps of 2^-24 */
        return (uint16_t)(sign | (uint16_t)lrintf(size * 0x1p24f));
    bits = (bits & 0x7fffffff) - (112u << 23);
    return (uint16_t)(sign | (bits + 0xfff + (bits >> 13 & 1)) >> 13);
}

static enum error_code upload_staged(struct vk_device *device, struct error *err)
{
    struct vk_packs *packs = device->packs;
    VkCommandBuffer commands;
    enum error_code code = OK;
    if (packs->copy_count == 0)
        return OK;
    if ((code = vk_command_begin(device, &commands, err)) != OK)
        return code;
    for (size_t i = 0; i < packs->copy_count; i++)
        vkCmdCopyBuffer(commands, packs->staging.handle, packs->copies[i].chunk->buffer.handle, 1,
                        &packs->copies[i].region);
    code = vk_command_end(device, commands, err);
    if (code == OK)
        code = vk_command_run(device, &commands, 1, NULL, err);
    vk_command_free(device, &commands, 1);
    packs->staged = 0;
    packs->copy_count = 0;
    return code;
}

/* Where a pack's quads go, one after the other. */
struct writer {
    struct vk_device *device;
    const struct pack *pack;
    VkDeviceSize written; /* bytes of the pack */
    struct error *err;
    enum error_code code;
};

static uint8_t *writer_room(struct writer *writer, size_t size)
{
    struct vk_packs *packs = writer->device->packs;
    if (packs->staged + size > packs->staging.size && (writer->code = upload_staged(writer->device, writer->err)) != OK)
        return NULL;
    struct copy *last = packs->copy_count ? &packs->copies[packs->copy_count - 1] : NULL;
    const VkDeviceSize to = writer->pack->slice.offset + writer->written;
    if (!last || last->chunk != writer->pack->chunk || last->region.dstOffset + last->region.size != to) {
        if (packs->copy_count == packs->copy_capacity) {
            const size_t capacity = packs->copy_capacity * 2 + 64;
            struct copy *grown = realloc(packs->copies, capacity * sizeof *grown);
            if (!grown) {
                writer->code = error_set(writer->err, ERROR_NO_MEMORY, "out of memory for weights");
                return NULL;
            }
            packs->copies = grown;
            packs->copy_capacity = capacity;
        }
        last = &packs->copies[packs->copy_count++];
        *last = (struct copy){writer->pack->chunk, {.srcOffset = packs->staged, .dstOffset = to}};
    }
    uint8_t *room = (uint8_t *)packs->staging.mapped + packs->staged;
    last->region.size += size;
    packs->staged += size;
    writer->written += size;
    return room;
}

/* The values of the four channels in lanes[], `stride` floats apart, as a quad. */
static void put_quad(struct writer *writer, const float *values, const uint32_t lanes[4], size_t stride)
{
    const bool fp16 = writer->pack->key.fp16;
    float quad[4];
    uint16_t halves[4];
    if (writer->code != OK)
        return;
    uint8_t *room = writer_room(writer, fp16 ? sizeof halves : sizeof quad);
    if (!room)
        return;
    for (int lane = 0; lane < 4; lane++) {
        quad[lane] = !values || lanes[lane] == VK_PACK_NO_CHANNEL ? 0.0f : values[lanes[lane] * stride];
        halves[lane] = fp16 ? to_half(quad[lane]) : 0;
    }
    if (fp16)
        memcpy(room, halves, sizeof halves);
    else
        memcpy(room, quad, sizeof quad);
}

/* Conv and linear differ in the order of taps and in lanes only in name: both are [out block][in block][tap][in lane].
 */
static void put_all(struct writer *writer, const float *values, const uint32_t *in, const uint32_t *out)
{
    const struct vk_pack_key *key = &writer->pack->key;
    const bool matrix = key->kind == PACK_CONV || key->kind == PACK_LINEAR;
    const size_t taps = (size_t)key->taps, row = matrix ? (size_t)key->in.channels * taps : taps;
    for (int ob = 0; matrix && ob < key->out.blocks; ob++) {
        for (int ib = 0; ib < key->in.blocks; ib++)
            for (size_t tap = 0; tap < taps; tap++)
                for (int lane = 0; lane < 4; lane++) {
                    const uint32_t channel = in[ib * 4 + lane];
                    put_quad(writer, channel == VK_PACK_NO_CHANNEL ? NULL : values + channel * taps + tap, out + ob * 4,
                             row);
                }
    }
    /* Constants lie as tensors do. */
    const int group = key->kind == PACK_TENSOR ? 1 << key->out.group_log : 1;
    for (int ob = 0; !matrix && ob < key->out.blocks; ob += group)
        for (size_t tap = 0; tap < taps; tap++)
            for (int quad = ob; quad < ob + group; quad++)
                put_quad(writer, values + tap, out + quad * 4, row);
}

/* Convolution weights as B matrices of 16 in lanes by 16 out lanes. */
static void put_matrices(struct writer *writer, const float *values, const uint32_t *in, const uint32_t *out)
{
    const struct vk_pack_key *key = &writer->pack->key;
    const uint8_t *order = writer->device->matrix_order;
    const size_t taps = (size_t)key->taps, row = (size_t)key->in.channels * taps;
    const int in_lanes = key->in.blocks * 4, out_lanes = key->out.blocks * 4;
    for (int ob = 0; ob < out_lanes; ob += 16)
        for (int ib = 0; ib < in_lanes; ib += 16)
            for (size_t tap = 0; tap < taps; tap++) {
                uint16_t matrix[256];
                uint8_t *room = writer_room(writer, sizeof matrix);
                if (!room)
                    return;
                for (int i = 0; i < 256; i++) {
                    const int from = ib + order[i] / 16, to = ob + order[i] % 16;
                    const bool real = from < in_lanes && to < out_lanes && in[from] != VK_PACK_NO_CHANNEL &&
                                      out[to] != VK_PACK_NO_CHANNEL;
                    matrix[i] = real ? to_half(values[out[to] * row + in[from] * taps + tap]) : 0;
                }
                memcpy(room, matrix, sizeof matrix);
            }
}

static enum error_code fill(struct vk_device *device, const struct pack *pack, struct error *err)
{
    const struct vk_pack_key *key = &pack->key;
    struct writer writer = {.device = device, .pack = pack, .err = err};
    float *values = mem_alloc(key->param->count, sizeof *values);
    uint32_t *in = mem_alloc((size_t)key->in.blocks * 4 + 1, sizeof *in);
    uint32_t *out = mem_alloc((size_t)key->out.blocks * 4 + 1, sizeof *out);
    enum error_code code = OK;
    if (!values || !in || !out) {
        code = error_set(err, ERROR_NO_MEMORY, "out of memory for %zu weights", key->param->count);
    } else if (!device->packs->staging.handle) {
        code =
            vk_memory_create(device, &device->packs->staging, STAGING_BYTES, MEMORY_UPLOAD, "uploading weights", err);
    }
    if (code == OK) {
        param_read(key->param, values);
        vk_pack_lanes(&key->in, in);
        vk_pack_lanes(&key->out, out);
        if (key->kind == PACK_MATRIX)
            put_matrices(&writer, values, in, out);
        else
            put_all(&writer, values, in, out);
        code = writer.code;
    }
    free(values);
    free(in);
    free(out);
    return code;
}

/* --- the cache -----------------------------------------------------------------------------------------------------
 */

enum error_code vk_pack_create(struct vk_device *device, struct error *err)
{
    device->packs = mem_calloc(1, sizeof *device->packs);
    return device->packs ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory to open %s", device->traits.info.name);
}

static void chunk_release(struct vk_device *device, struct chunk *chunk)
{
    if (--chunk->live > 0)
        return;
    struct chunk **link = &device->packs->chunks;
    while (*link != chunk)
        link = &(*link)->next;
    *link = chunk->next;
    vk_memory_destroy(device, &chunk->buffer);
    free(chunk);
}

static void remove_pack(struct vk_device *device, size_t index)
{
    struct vk_packs *packs = device->packs;
    chunk_release(device, packs->list[index].chunk);
    packs->list[index] = packs->list[--packs->count];
}

void vk_pack_destroy(struct vk_device *device)
{
    struct vk_packs *packs = device->packs;
    if (!packs)
        return;
    while (packs->count)
        remove_pack(device, packs->count - 1);
    vk_memory_destroy(device, &packs->staging);
    free(packs->copies);
    free(packs->list);
    free(packs);
    device->packs = NULL;
}

static uint64_t packed_bytes(const struct vk_pack_key *key)
{
    if (key->kind == PACK_MATRIX)
        return (uint64_t)((key->out.blocks + 3) / 4) * (uint64_t)((key->in.blocks + 3) / 4) * (uint64_t)key->taps * 512;
    uint64_t quads = (uint64_t)key->out.blocks * (uint64_t)key->taps;
    if (key->kind == PACK_CONV || key->kind == PACK_LINEAR)
        quads *= (uint64_t)key->in.blocks * 4;
    return quads * (key->fp16 ? 8 : 16);
}

/* Room for a pack in a chunk that has some, or in a new one. */
static enum error_code chunk_take(struct vk_device *device, struct pack *pack, VkDeviceSize bytes, struct error *err)
{
    const VkDeviceSize align = device->traits.limits.minStorageBufferOffsetAlignment;
    struct chunk *chunk = device->packs->chunks;
    VkDeviceSize offset = 0;
    for (; chunk; chunk = chunk->next) {
        offset = (chunk->filled + align - 1) / align * align;
        if (offset + bytes <= chunk->buffer.size)
            break;
    }
    if (!chunk) {
        chunk = mem_calloc(1, sizeof *chunk);
        if (!chunk)
            return error_set(err, ERROR_NO_MEMORY, "out of memory for weights");
        enum error_code code = vk_memory_create(device, &chunk->buffer, bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES,
                                                MEMORY_DEVICE, "weights", err);
        if (code != OK) {
            free(chunk);
            return code;
        }
        offset = 0;
        chunk->next = device->packs->chunks;
        device->packs->chunks = chunk;
    }
    chunk->filled = offset + bytes;
    chunk->live++;
    pack->chunk = chunk;
    pack->slice = (struct vk_slice){&chunk->buffer, offset, bytes};
    return OK;
}

static bool same_key(const struct vk_pack_key *a, const struct vk_pack_key *b)
{
    return a->param == b->param && a->kind == b->kind && a->fp16 == b->fp16 && a->taps == b->taps &&
           a->out.group_log == b->out.group_log && vk_pack_layout_same(&a->in, &b->in) &&
           vk_pack_layout_same(&a->out, &b->out);
}

enum error_code vk_pack_get(struct vk_device *device, const struct vk_pack_key *key, struct vk_slice *out,
                            struct error *err)
{
    struct vk_packs *packs = device->packs;
    for (size_t i = 0; i < packs->count; i++) {
        if (same_key(&packs->list[i].key, key)) {
            *out = packs->list[i].slice;
            return OK;
        }
    }
    const uint64_t bytes = packed_bytes(key);
    if (bytes > device->traits.limits.maxStorageBufferRange)
        return error_set(err, ERROR_TOO_LARGE, "weights of %.0f MiB, and %s binds at most %.0f MiB",
                         (double)bytes / 0x1p20, device->traits.info.name,
                         (double)device->traits.limits.maxStorageBufferRange / 0x1p20);
    if (packs->count == packs->capacity) {
        const size_t capacity = packs->capacity * 2 + 64;
        struct pack *grown = realloc(packs->list, capacity * sizeof *grown);
        if (!grown)
            return error_set(err, ERROR_NO_MEMORY, "out of memory for weights");
        packs->list = grown;
        packs->capacity = capacity;
    }
    struct pack *pack = &packs->list[packs->count];
    *pack = (struct pack){.key = *key};
    enum error_code code = chunk_take(device, pack, bytes, err);
    if (code != OK)
        return code;
    packs->count++;
    code = fill(device, pack, err);
    if (code != OK)
        pack->key.param = NULL; /* never found again; vk_pack_flush removes it */
    *out = pack->slice;
    return code;
}

enum error_code vk_pack_flush(struct vk_device *device, struct error *err)
{
    struct vk_packs *packs = device->packs;
    enum error_code code = upload_staged(device, err);
    for (size_t i = packs->count; i-- > 0;) {
        if (!packs->list[i].key.param || (code != OK && !packs->list[i].uploaded))
            remove_pack(device, i);
        else
            packs->list[i].uploaded = true;
    }
    vk_memory_destroy(device, &packs->staging);
    packs->staged = 0;
    packs->copy_count = 0;
    return code;
}

void vk_pack_forget(struct device *base, const struct param *const *params, size_t count)
{
    struct vk_device *device = (struct vk_device *)base;
    for (size_t i = device->packs->count; i-- > 0;) {
        bool wanted = false;
        for (size_t p = 0; p < count && !wanted; p++)
            wanted = params[p] == device->packs->list[i].key.param;
        if (wanted)
            remove_pack(device, i);
    }
}
