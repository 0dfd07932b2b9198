#include "runtime/vulkan/vk_pack.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/vulkan/vk_direct.h"
#include "runtime/vulkan/vk_upload.h"
#include "shaders/include/params.h"

#define CHUNK_BYTES (16u << 20) /* params share device allocations, of which drivers allow only some 4096 */
#define ALIGN 16                /* of a pack, for the sake of the shader that writes it; devices may want more */

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

struct vk_packs {
    struct chunk *chunks;
    struct pack *list;
    size_t count, capacity;
};

/* --- layouts -------------------------------------------------------------------------------------------------------
 */

/* The logarithm of the largest group, up to the 4 quads that a matrix takes, that a segment of that many channels half
 * fills. */
static int pack_group_log(int channels)
{
    int log = 0;
    while (log < 2 && channels > 4 << log)
        log++;
    return log;
}

static int pack_whole_groups(const struct vk_layout *layout, int channels)
{
    const int lanes = 4 << layout->group_log;
    return (channels + lanes - 1) / lanes << layout->group_log;
}

void vk_pack_layout(const struct graph *graph, struct view view, bool grouped, struct vk_layout *out)
{
    const struct tensor *tensor = graph_tensor_of(graph, view);
    *out = (struct vk_layout){.group_log = grouped ? 2 : 0};
    for (int i = 0; i < tensor->segment_count; i++)
        if (pack_group_log(tensor->segment[i]) < out->group_log)
            out->group_log = pack_group_log(tensor->segment[i]);
    for (int i = view.first; i < view.first + view.count; i++) {
        if (out->run_count == 0 || out->run[out->run_count - 1] % (4 << out->group_log) != 0)
            out->run_count++;
        out->run[out->run_count - 1] += tensor->segment[i];
        out->channels += tensor->segment[i];
        out->blocks += pack_whole_groups(out, tensor->segment[i]);
    }
}

void vk_pack_layout_dense(int channels, bool grouped, struct vk_layout *out)
{
    *out = (struct vk_layout){.channels = channels, .run_count = 1, .run = {channels}};
    out->group_log = grouped ? pack_group_log(channels) : 0;
    out->blocks = pack_whole_groups(out, channels);
}

void vk_pack_layout_shuffled(int channels, int group_log, int factor, struct vk_layout *out)
{
    const int pixels = factor * factor;
    *out = (struct vk_layout){
        .channels = channels * pixels, .group_log = group_log, .run_count = pixels, .shuffled = true};
    for (int i = 0; i < pixels; i++)
        out->run[i] = channels;
    out->blocks = pixels * pack_whole_groups(out, channels);
}

bool vk_pack_layout_same(const struct vk_layout *a, const struct vk_layout *b)
{
    bool same = a->run_count == b->run_count && a->shuffled == b->shuffled;
    for (int i = 0; i < a->run_count && same; i++)
        same = a->run[i] == b->run[i] && pack_whole_groups(a, a->run[i]) == pack_whole_groups(b, b->run[i]);
    return same;
}

void vk_pack_lanes(const struct vk_layout *layout, uint32_t *lanes)
{
    uint32_t channel = 0, lane = 0;
    for (int r = 0; r < layout->run_count; r++) {
        for (int i = 0; i < layout->run[r]; i++)
            lanes[lane++] = layout->shuffled ? (uint32_t)(i * layout->run_count + r) : channel++;
        while (lane % (4u << layout->group_log))
            lanes[lane++] = VK_PACK_NO_CHANNEL;
    }
}

/* --- the cache -----------------------------------------------------------------------------------------------------
 */

enum error_code vk_pack_create(struct vk_device *device, struct error *err)
{
    device->packs = mem_calloc(1, sizeof *device->packs);
    return device->packs ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory to open %s", device->traits.info.name);
}

static void pack_chunk_release(struct vk_device *device, struct chunk *chunk)
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

static void pack_remove(struct vk_device *device, size_t index)
{
    struct vk_packs *packs = device->packs;
    pack_chunk_release(device, packs->list[index].chunk);
    packs->list[index] = packs->list[--packs->count];
}

void vk_pack_destroy(struct vk_device *device)
{
    struct vk_packs *packs = device->packs;
    if (!packs)
        return;
    while (packs->count)
        pack_remove(device, packs->count - 1);
    free(packs->list);
    free(packs);
    device->packs = NULL;
}

static uint64_t pack_bytes(const struct vk_pack_key *key)
{
    if (key->kind == PACK_DIRECT) {
        int taps, steps = vk_direct_steps(&key->in, key->taps, &taps);
        return (uint64_t)((key->out.blocks + 3) / 4) * (uint64_t)steps * (uint64_t)taps * 512;
    }
    if (key->kind == PACK_MATRIX)
        return (uint64_t)((key->out.blocks + 3) / 4) * (uint64_t)((key->in.blocks + 3) / 4) * (uint64_t)key->taps *
               (key->fp16 ? 512 : 1024);
    const bool conv = key->kind == PACK_CONV || key->kind == PACK_WINOGRAD;
    const int out_blocks = conv ? (key->out.blocks + 3) / 4 * 4 : key->out.blocks;
    const int positions = key->fp16 ? WINOGRAD_PACKED_POSITIONS : WINOGRAD_POSITIONS;
    uint64_t quads = (uint64_t)out_blocks * (uint64_t)(key->kind == PACK_WINOGRAD ? positions : key->taps);
    if (conv || key->kind == PACK_LINEAR)
        quads *= (uint64_t)key->in.blocks * 4;
    return quads * (key->fp16 ? 8 : 16);
}

/* Room for a pack in a chunk that has some, or in a new one. */
static enum error_code pack_chunk_take(struct vk_device *device, struct pack *pack, VkDeviceSize bytes,
                                       struct error *err)
{
    const VkDeviceSize wanted = device->traits.limits.minStorageBufferOffsetAlignment;
    const VkDeviceSize align = wanted > ALIGN ? wanted : ALIGN;
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

static bool pack_same_key(const struct vk_pack_key *a, const struct vk_pack_key *b)
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
        if (pack_same_key(&packs->list[i].key, key)) {
            *out = packs->list[i].slice;
            return OK;
        }
    }
    const uint64_t bytes = pack_bytes(key);
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
    enum error_code code = pack_chunk_take(device, pack, bytes, err);
    if (code != OK)
        return code;
    packs->count++;
    *out = pack->slice;
    return OK;
}

enum error_code vk_pack_flush(struct vk_device *device, struct error *err)
{
    struct vk_packs *packs = device->packs;
    size_t waiting = 0;
    for (size_t i = 0; i < packs->count; i++)
        waiting += !packs->list[i].uploaded;
    if (waiting == 0)
        return OK;
    struct vk_upload_item *items = mem_calloc(waiting, sizeof *items);
    enum error_code code = items ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory for weights");
    waiting = 0;
    for (size_t i = 0; i < packs->count && code == OK; i++)
        if (!packs->list[i].uploaded)
            items[waiting++] = (struct vk_upload_item){packs->list[i].key, packs->list[i].slice};
    if (code == OK)
        code = vk_upload_run(device, items, waiting, err);
    free(items);
    for (size_t i = packs->count; i-- > 0;) {
        if (code != OK && !packs->list[i].uploaded)
            pack_remove(device, i);
        else
            packs->list[i].uploaded = true;
    }
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
            pack_remove(device, i);
    }
}
