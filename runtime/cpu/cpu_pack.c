#include "runtime/cpu/cpu_pack.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/cpu/cpu_device.h"

struct cpu_packed {
    struct cpu_pack_key key;
    float *data;
    uint64_t bytes;
};

void cpu_pack_layout(const struct graph *graph, struct view view, struct cpu_layout *out)
{
    const struct tensor *tensor = graph_tensor_of(graph, view);
    *out = (struct cpu_layout){0};
    for (int i = view.first; i < view.first + view.count; i++) {
        if (out->run_count == 0 || out->run[out->run_count - 1] % CPU_BLOCK != 0)
            out->run_count++;
        out->run[out->run_count - 1] += tensor->segment[i];
        out->channels += tensor->segment[i];
        out->blocks += (tensor->segment[i] + CPU_BLOCK - 1) / CPU_BLOCK;
    }
}

bool cpu_pack_same(const struct cpu_layout *a, const struct cpu_layout *b)
{
    return a->run_count == b->run_count && memcmp(a->run, b->run, (size_t)a->run_count * sizeof a->run[0]) == 0;
}

void cpu_pack_lanes(const struct cpu_layout *layout, int *lanes, int *used)
{
    int channel = 0, lane = 0;
    if (used)
        memset(used, 0, (size_t)layout->blocks * sizeof *used);
    for (int r = 0; r < layout->run_count; r++) {
        for (int i = 0; i < layout->run[r]; i++, lane++, channel++) {
            if (lanes)
                lanes[channel] = lane;
            if (used)
                used[lane / CPU_BLOCK]++;
        }
        lane = (lane + CPU_BLOCK - 1) / CPU_BLOCK * CPU_BLOCK;
    }
}

static bool pack_same_key(const struct cpu_pack_key *a, const struct cpu_pack_key *b)
{
    return a->param == b->param && a->kind == b->kind && a->taps == b->taps && cpu_pack_same(&a->in, &b->in) &&
           cpu_pack_same(&a->out, &b->out);
}

static uint64_t pack_bytes(const struct cpu_pack_key *key)
{
    uint64_t lanes = (uint64_t)key->out.blocks * CPU_BLOCK * (uint64_t)key->taps;
    if (key->kind == CPU_PACK_SUM)
        lanes *= (uint64_t)key->in.blocks * CPU_BLOCK;
    return (key->kind == CPU_PACK_PLAIN ? key->param->count : lanes) * sizeof(float);
}

static void pack_scatter(const struct cpu_pack_key *key, const float *values, const int *in, const int *out, float *to)
{
    const size_t taps = (size_t)key->taps;
    for (int o = 0; o < key->out.channels; o++) {
        const size_t block = (size_t)out[o] / CPU_BLOCK, lane = (size_t)out[o] % CPU_BLOCK;
        if (key->kind == CPU_PACK_TENSOR) {
            for (size_t t = 0; t < taps; t++)
                to[(block * taps + t) * CPU_BLOCK + lane] = *values++;
            continue;
        }
        for (int i = 0; i < key->in.channels; i++) {
            const size_t cell = (block * (size_t)key->in.blocks + (size_t)in[i] / CPU_BLOCK) * taps;
            for (size_t t = 0; t < taps; t++)
                to[(cell + t) * CPU_CELL + (size_t)in[i] % CPU_BLOCK * CPU_BLOCK + lane] = *values++;
        }
    }
}

static enum error_code pack_param(struct cpu_device *device, const struct cpu_pack_key *key, struct cpu_packed *packed,
                                  struct error *err)
{
    float *values = mem_alloc(key->param->count, sizeof *values);
    int *in = mem_alloc((size_t)key->in.channels, sizeof *in), *out = mem_alloc((size_t)key->out.channels, sizeof *out);
    enum error_code code = OK;
    *packed = (struct cpu_packed){.key = *key, .bytes = pack_bytes(key)};
    if (!values || !in || !out)
        code = error_set(err, ERROR_NO_MEMORY, "out of memory for %zu parameters", key->param->count);
    else
        code = cpu_device_alloc(device, packed->bytes, &packed->data, err);
    if (!code) {
        memset(packed->data, 0, packed->bytes); /* padding */
        param_read(key->param, values);
        if (key->kind == CPU_PACK_PLAIN) {
            memcpy(packed->data, values, packed->bytes);
        } else {
            cpu_pack_lanes(&key->in, in, NULL);
            cpu_pack_lanes(&key->out, out, NULL);
            pack_scatter(key, values, in, out, packed->data);
        }
    }
    free(values);
    free(in);
    free(out);
    return code;
}

enum error_code cpu_pack_get(struct cpu_device *device, const struct cpu_pack_key *key, const float **out,
                             struct error *err)
{
    struct cpu_packs *packs = &device->packs;
    for (size_t i = 0; i < packs->count; i++) {
        *out = packs->list[i].data;
        if (pack_same_key(&packs->list[i].key, key))
            return OK;
    }
    if (packs->count == packs->capacity) {
        const size_t capacity = packs->capacity * 2 + 64;
        struct cpu_packed *grown = realloc(packs->list, capacity * sizeof *grown);
        if (!grown)
            return error_set(err, ERROR_NO_MEMORY, "out of memory for parameters");
        packs->list = grown;
        packs->capacity = capacity;
    }
    enum error_code code = pack_param(device, key, &packs->list[packs->count], err);
    if (code)
        return code;
    *out = packs->list[packs->count++].data;
    return OK;
}

void cpu_pack_forget(struct cpu_device *device, const struct param *const *params, size_t count)
{
    struct cpu_packs *packs = &device->packs;
    size_t left = 0;
    for (size_t i = 0; i < packs->count; i++) {
        bool forget = false;
        for (size_t p = 0; p < count && !forget; p++)
            forget = packs->list[i].key.param == params[p];
        if (forget)
            cpu_device_free(device, packs->list[i].data, packs->list[i].bytes);
        else
            packs->list[left++] = packs->list[i];
    }
    packs->count = left;
}

void cpu_pack_destroy(struct cpu_device *device)
{
    for (size_t i = 0; i < device->packs.count; i++)
        cpu_device_free(device, device->packs.list[i].data, device->packs.list[i].bytes);
    free(device->packs.list);
    device->packs = (struct cpu_packs){0};
}
