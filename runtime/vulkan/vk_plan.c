#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/nn/arena_plan.h"
#include "runtime/vulkan/vk_chain.h"
#include "runtime/vulkan/vk_join.h"
#include "runtime/vulkan/vk_ops.h"
#include "runtime/vulkan/vk_plan_private.h"
#include "runtime/vulkan/vk_tune.h"

static uint64_t plan_align_up(const struct vk_device *device, uint64_t bytes)
{
    const uint64_t align = device->traits.limits.minStorageBufferOffsetAlignment;
    return (bytes + align - 1) / align * align;
}

/* --- operands ------------------------------------------------------------------------------------------------------
 */

bool vk_plan_halves(const struct vk_build *build, struct view view)
{
    return build->half && !graph_tensor_of(build->graph, view)->fp32;
}

static uint64_t plan_quad_bytes(bool fp16)
{
    return fp16 ? 8 : 16;
}

/* The bytes of a tensor of that many blocks, which must fit a binding. */
static enum error_code plan_tensor_bytes(const struct vk_build *build, bool fp16, int n, int blocks, int h, int w,
                                         uint64_t *bytes, struct error *err)
{
    const uint64_t limit = build->device->traits.limits.maxStorageBufferRange;
    size_t quads, size = 0;
    if (!mem_mul((size_t)n * (size_t)h, (size_t)w, &quads) || !mem_mul(quads, (size_t)blocks, &quads) ||
        !mem_mul(quads, 16, &size) || quads * plan_quad_bytes(fp16) > limit)
        return error_set(err, ERROR_TOO_LARGE, "%s: a tensor of %d×%d×%d×%d is larger than the %.0f MiB that %s takes",
                         build->plan->name, n, blocks * 4, h, w, (double)limit / 0x1p20,
                         build->device->traits.info.name);
    *bytes = quads * plan_quad_bytes(fp16);
    return OK;
}

static struct view plan_whole_view(const struct graph *graph, int tensor)
{
    return (struct view){tensor, 0, graph->tensors[tensor].segment_count};
}

enum error_code vk_plan_operand(struct vk_build *build, struct view view, struct vk_operand *out, struct error *err)
{
    const struct tensor *tensor = graph_tensor_of(build->graph, view);
    const uint32_t plane = (uint32_t)(tensor->h * tensor->w);
    struct vk_layout all;
    const bool constant = tensor->role == TENSOR_CONSTANT;
    *out = (struct vk_operand){.n = (uint32_t)tensor->n,
                               .h = (uint32_t)tensor->h,
                               .w = (uint32_t)tensor->w,
                               .fp16 = constant ? build->fp16 : vk_plan_halves(build, view)};
    vk_pack_layout(build->graph, view, build->grouped, &out->layout);
    vk_pack_layout(build->graph, plan_whole_view(build->graph, view.tensor), build->grouped, &all);
    if (view.first > 0) {
        struct vk_layout before;
        vk_pack_layout(build->graph, (struct view){view.tensor, 0, view.first}, build->grouped, &before);
        out->at.base = (uint32_t)before.blocks * plane;
    }
    out->at.stride = (uint32_t)all.group_log << OPERAND_STRIDE_BITS;
    if (constant) {
        const struct vk_pack_key key = {
            .param = tensor->param, .kind = PACK_TENSOR, .fp16 = build->fp16, .taps = (int)plane, .out = all};
        return vk_pack_get(build->device, &key, &out->slice, err);
    }
    const uint32_t image = (uint32_t)all.blocks * plane;
    out->at.stride |= tensor->n > 1 ? image : 0;
    out->slice = (struct vk_slice){&build->plan->arena, build->offsets[view.tensor],
                                   (uint64_t)tensor->n * image * plan_quad_bytes(out->fp16)};
    return OK;
}

enum error_code vk_plan_scratch(struct vk_build *build, const struct vk_layout *layout, uint32_t n, uint32_t h,
                                uint32_t w, struct vk_operand *out, struct error *err)
{
    struct vk_plan *plan = build->plan;
    uint64_t bytes = 0;
    enum error_code code = plan_tensor_bytes(build, build->fp16, (int)n, layout->blocks, (int)h, (int)w, &bytes, err);
    *out = (struct vk_operand){
        .slice = {&plan->arena, plan->arena_bytes + plan->scratch, bytes},
        .at = {0, (n > 1 ? (uint32_t)layout->blocks * h * w : 0) | (uint32_t)layout->group_log << OPERAND_STRIDE_BITS},
        .layout = *layout,
        .n = n,
        .h = h,
        .w = w,
        .fp16 = build->fp16};
    plan->scratch += plan_align_up(build->device, bytes);
    if (plan->scratch > plan->scratch_top)
        plan->scratch_top = plan->scratch;
    return code;
}

enum error_code vk_plan_words(struct vk_build *build, const uint32_t *words, size_t count, struct vk_slice *out,
                              struct error *err)
{
    struct vk_plan *plan = build->plan;
    const size_t step = plan_align_up(build->device, count * sizeof *words) / sizeof *words;
    if (plan->word_count + step > plan->word_capacity) {
        const size_t capacity = (plan->word_count + step) * 2;
        uint32_t *grown = realloc(plan->host_words, capacity * sizeof *grown);
        if (!grown)
            return error_set(err, ERROR_NO_MEMORY, "out of memory for a plan");
        memset(grown + plan->word_count, 0, (capacity - plan->word_count) * sizeof *grown);
        plan->host_words = grown;
        plan->word_capacity = capacity;
    }
    memcpy(plan->host_words + plan->word_count, words, count * sizeof *words);
    *out = (struct vk_slice){&plan->words, plan->word_count * sizeof *words, count * sizeof *words};
    plan->word_count += step;
    return OK;
}

const char *vk_plan_name(const struct vk_plan *plan)
{
    return plan->name;
}

struct vk_slice vk_plan_run_params(const struct vk_build *build)
{
    return (struct vk_slice){&build->plan->words, 0, sizeof(struct params_run)};
}

struct params_operand vk_plan_bind(const struct vk_build *build, struct vk_dispatch *dispatch, uint32_t slot,
                                   const struct vk_operand *operand)
{
    dispatch->bind[slot] = operand->slice;
    if (operand->slice.buffer == &build->plan->arena) {
        const uint64_t quads = (uint64_t)operand->layout.blocks * operand->h * operand->w;
        const uint64_t quad = plan_quad_bytes(operand->fp16), begin = operand->slice.offset + operand->at.base * quad;
        dispatch->span[slot] = (struct vk_span){
            begin,
            begin +
                ((operand->n - 1) * (uint64_t)(operand->at.stride & ((1u << OPERAND_STRIDE_BITS) - 1)) + quads) * quad};
    }
    return operand->at;
}

enum error_code vk_plan_add(struct vk_build *build, const struct vk_dispatch *dispatch, struct error *err)
{
    struct vk_plan *plan = build->plan;
    const uint32_t *limit = build->device->traits.limits.maxComputeWorkGroupCount;
    if (dispatch->groups[1] > limit[1] || dispatch->groups[2] > limit[2])
        return error_set(err, ERROR_TOO_LARGE, "%s: %s has more channels or images than %s takes", plan->name,
                         dispatch->key.shader, build->device->traits.info.name);
    if (plan->dispatch_count == plan->dispatch_capacity) {
        const uint32_t capacity = plan->dispatch_capacity * 2 + 64;
        struct vk_dispatch *grown = realloc(plan->dispatches, capacity * sizeof *grown);
        if (!grown)
            return error_set(err, ERROR_NO_MEMORY, "out of memory for a plan");
        plan->dispatches = grown;
        plan->dispatch_capacity = capacity;
    }
    plan->dispatches[plan->dispatch_count] = *dispatch;
    plan->dispatches[plan->dispatch_count].node = build->node;
    plan->dispatches[plan->dispatch_count++].key.fp16 = build->fp16;
    return OK;
}

/* --- building ------------------------------------------------------------------------------------------------------
 */

/* Places the tensors; offsets[tensor_count] is the caller's. */
static enum error_code plan_place_tensors(struct vk_build *build, uint64_t *offsets, struct error *err)
{
    const struct graph *graph = build->graph;
    enum error_code code = OK;
    uint64_t *bytes = mem_calloc((size_t)graph->tensor_count, sizeof *bytes);
    if (!bytes)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a plan");
    for (int i = 0; i < graph->tensor_count && code == OK; i++) {
        const struct tensor *tensor = &graph->tensors[i];
        struct vk_layout layout;
        vk_pack_layout(graph, plan_whole_view(graph, i), build->grouped, &layout);
        code = plan_tensor_bytes(build, build->half && !tensor->fp32, tensor->n, layout.blocks, tensor->h, tensor->w,
                                 &bytes[i], err);
        if (tensor->role == TENSOR_CONSTANT)
            bytes[i] = 0;
    }
    if (code == OK)
        code =
            arena_plan(graph, build->order->step, bytes, build->device->traits.limits.minStorageBufferOffsetAlignment,
                       offsets, &build->plan->arena_bytes, err);
    free(bytes);
    return code;
}

static enum error_code plan_build_dispatches(struct vk_build *build, struct error *err)
{
    struct vk_plan *plan = build->plan;
    const struct graph *graph = build->graph;
    enum error_code code = OK;
    for (int i = 0; i < build->order->count && code == OK; i++) {
        plan->scratch = 0;
        build->node = build->order->node[i];
        build->fp16 = vk_plan_halves(build, graph->nodes[build->node].out);
        code = vk_ops_node(build, &graph->nodes[build->node], err);
    }
    return code;
}

static enum error_code plan_write_sets(struct vk_device *device, struct vk_plan *plan, struct error *err)
{
    const VkDescriptorPoolSize size = {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, plan->dispatch_count * BIND_COUNT};
    const VkDescriptorPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
                                             .maxSets = plan->dispatch_count,
                                             .poolSizeCount = 1,
                                             .pPoolSizes = &size};
    const VkDescriptorSetLayout layout = vk_pipeline_set_layout(device);
    plan->sets = mem_calloc(plan->dispatch_count, sizeof *plan->sets);
    if (!plan->sets)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a plan");
    VkResult result = vkCreateDescriptorPool(device->handle, &pool, NULL, &plan->pool);
    for (uint32_t d = 0; d < plan->dispatch_count && result == VK_SUCCESS; d++) {
        const VkDescriptorSetAllocateInfo allocate = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
                                                      .descriptorPool = plan->pool,
                                                      .descriptorSetCount = 1,
                                                      .pSetLayouts = &layout};
        result = vkAllocateDescriptorSets(device->handle, &allocate, &plan->sets[d]);
        if (result != VK_SUCCESS)
            break;
        VkDescriptorBufferInfo buffers[BIND_COUNT];
        VkWriteDescriptorSet writes[BIND_COUNT];
        for (uint32_t i = 0; i < BIND_COUNT; i++) {
            /* Every shader declares all its buffers, even those that its constants switch off: these get the words. */
            struct vk_slice slice = plan->dispatches[d].bind[i];
            if (!slice.buffer)
                slice = (struct vk_slice){&plan->words, 0, sizeof(struct params_run)};
            buffers[i] = (VkDescriptorBufferInfo){slice.buffer->handle, slice.offset, slice.range};
            writes[i] = (VkWriteDescriptorSet){.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                               .dstSet = plan->sets[d],
                                               .dstBinding = i,
                                               .descriptorCount = 1,
                                               .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                               .pBufferInfo = &buffers[i]};
        }
        vkUpdateDescriptorSets(device->handle, BIND_COUNT, writes, 0, NULL);
    }
    return result == VK_SUCCESS ? OK : vk_device_error(device, result, "describe the buffers of a plan", err);
}

/* --- the plan ------------------------------------------------------------------------------------------------------
 */

/* Gives each convolution the fastest tile that is known. */
static void plan_choose_tiles(struct vk_device *device, struct vk_plan *plan)
{
    for (uint32_t i = 0; i < plan->dispatch_count; i++) {
        struct vk_dispatch *dispatch = &plan->dispatches[i];
        union vk_tile tile;
        if (dispatch->tune.kernel == 0)
            continue;
        vk_tune_find(device, &dispatch->tune, &tile);
        vk_tune_apply(&tile, dispatch);
    }
}

static enum error_code plan_make_pipelines(struct vk_device *device, const struct vk_plan *plan, struct error *err)
{
    struct vk_pipeline_key *keys = mem_alloc(plan->dispatch_count, sizeof *keys);
    if (!keys)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a plan");
    for (uint32_t i = 0; i < plan->dispatch_count; i++)
        keys[i] = plan->dispatches[i].key;
    enum error_code code = vk_pipeline_make(device, keys, plan->dispatch_count, err);
    free(keys);
    return code == OK ? vk_io_pipelines(plan->io, err) : code;
}

/* What a plan is made of. */
struct making {
    struct vk_build build;
    uint64_t *offsets;   /* the build's */
    struct graph joined; /* the build's, with its own nodes if some are joined */
    struct order order;  /* the build's */
};

static enum error_code making_begin(struct making *making, struct device *base, const struct graph *graph,
                                    enum precision precision, const char *name, struct error *err)
{
    struct vk_device *device = (struct vk_device *)base;
    uint64_t *offsets = mem_calloc((size_t)graph->tensor_count, sizeof *offsets);
    struct vk_plan *plan = mem_calloc(1, sizeof *plan);
    if (!offsets || !plan) {
        free(offsets);
        free(plan);
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a plan");
    }
    making->offsets = offsets;
    plan->base = (struct plan){.backend = &vk_backend, .device = base};
    snprintf(plan->name, sizeof plan->name, "%s", name);
    making->build = (struct vk_build){device,
                                      plan,
                                      graph,
                                      precision == PRECISION_FP16,
                                      precision == PRECISION_FP16,
                                      device->grouped || (precision == PRECISION_FP16 && device->matrix),
                                      offsets,
                                      &making->order,
                                      0};
    struct node *nodes = NULL;
    enum error_code code = vk_join(&making->build, &nodes, err);
    if (code != OK)
        return code;
    if (nodes) {
        making->joined = *graph;
        making->joined.nodes = nodes;
        making->build.graph = &making->joined;
    }
    code = order_create(&making->order, making->build.graph, err);
    return code == OK ? plan_place_tensors(&making->build, offsets, err) : code;
}

static void making_end(struct making *making)
{
    free(making->offsets);
    free(making->joined.nodes);
    order_free(&making->order);
}

/* Makes the dispatches and puts their params on the device. */
static enum error_code making_fill(struct making *making, struct error *err)
{
    const struct params_run none = {0};
    struct vk_slice run_params;
    enum error_code code =
        vk_plan_words(&making->build, (const uint32_t *)&none, sizeof none / sizeof(uint32_t), &run_params, err);
    if (code == OK)
        code = vk_io_create(&making->build.plan->io, &making->build, err);
    if (code == OK)
        code = plan_build_dispatches(&making->build, err);
    const enum error_code flushed = vk_pack_flush(making->build.device, err);
    return code == OK ? flushed : code;
}

/* Makes the buffers and describes them, so that dispatches may run. */
static enum error_code making_allocate(const struct making *making, struct error *err)
{
    struct vk_device *device = making->build.device;
    struct vk_plan *plan = making->build.plan;
    enum error_code code = OK;
    if (plan->arena.size < plan->arena_bytes + plan->scratch_top) {
        vk_memory_destroy(device, &plan->arena);
        code = vk_memory_create(device, &plan->arena, plan->arena_bytes + plan->scratch_top, MEMORY_DEVICE, plan->name,
                                err);
    }
    if (code == OK)
        code =
            vk_memory_create(device, &plan->words, plan->word_count * sizeof(uint32_t), MEMORY_UPLOAD, plan->name, err);
    if (code != OK)
        return code;
    memcpy(plan->words.mapped, plan->host_words, plan->word_count * sizeof(uint32_t));
    code = vk_record_counters(&plan->record, device, plan->dispatches, plan->dispatch_count, plan->name, err);
    if (code != OK)
        return code;
    code = vk_io_prepare(plan->io, &plan->record.counters, err);
    return code == OK ? plan_write_sets(device, plan, err) : code;
}

static enum error_code plan_record(struct vk_device *device, struct vk_plan *plan, int node_count, bool profile,
                                   struct error *err)
{
    return vk_record_make(&plan->record, device, plan->dispatches, plan->sets, plan->dispatch_count, node_count,
                          profile, err);
}

enum error_code vk_plan_create(struct plan **out, struct device *base, const struct graph *graph,
                               enum precision precision, const char *name, struct error *err)
{
    struct vk_device *device = (struct vk_device *)base;
    const double start = log_clock_ms();
    struct making making = {0};
    enum error_code code = making_begin(&making, base, graph, precision, name, err);
    struct vk_plan *plan = making.build.plan;
    if (code == OK) /* before the weights are packed, because the caller may try again with a smaller tile */
        code = vk_memory_create(device, &plan->arena, plan->arena_bytes, MEMORY_DEVICE, plan->name, err);
    if (code == OK)
        code = making_fill(&making, err);
    if (code == OK)
        code = making_allocate(&making, err);
    if (code == OK)
        code = vk_tune_measure(device, plan->dispatches, plan->sets, plan->dispatch_count, err);
    if (code == OK) {
        plan->guessed = vk_tune_wants(device, plan->dispatches, plan->dispatch_count);
        plan_choose_tiles(device, plan);
        vk_chain_link(plan->dispatches, plan->dispatch_count);
        code = plan_make_pipelines(device, plan, err);
    }
    if (code == OK)
        code = plan_record(device, plan, graph->node_count, false, err);
    vk_pipeline_save(device);
    making_end(&making);
    if (code == OK) {
        *out = &plan->base;
        log_event(LOG_DEBUG, "plan-made", "plan=\"%s\" dispatches=%u submits=%u bytes=%llu precision=%s ms=%.1f",
                  plan->name, plan->dispatch_count, plan->record.count, (unsigned long long)vk_plan_bytes(&plan->base),
                  making.build.half ? "fp16" : "fp32", log_clock_ms() - start);
    } else if (plan) {
        vk_plan_destroy(&plan->base);
    }
    return code;
}

enum error_code vk_plan_prepare(struct device *base, const struct graph *graph, enum precision precision,
                                const char *name, bool measure, bool *whole, struct error *err)
{
    struct vk_device *device = (struct vk_device *)base;
    struct making making = {0};
    *whole = true;
    if (!device->prepares)
        return OK;
    enum error_code code = making_begin(&making, base, graph, precision, name, err);
    struct vk_plan *plan = making.build.plan;
    if (code == OK)
        code = making_fill(&making, err);
    if (code == OK && vk_tune_wants(device, plan->dispatches, plan->dispatch_count)) {
        *whole = measure;
        if (measure)
            code = making_allocate(&making, err);
        if (code == OK && measure)
            code = vk_tune_measure(device, plan->dispatches, plan->sets, plan->dispatch_count, err);
        if (code == OK && measure)
            *whole = !vk_tune_wants(device, plan->dispatches, plan->dispatch_count);
    }
    if (code == OK && (*whole || measure)) {
        plan_choose_tiles(device, plan);
        code = plan_make_pipelines(device, plan, err);
        vk_pipeline_save(device);
    }
    making_end(&making);
    if (plan)
        vk_plan_destroy(&plan->base);
    return code;
}

void vk_plan_destroy(struct plan *base)
{
    struct vk_plan *plan = (struct vk_plan *)base;
    struct vk_device *device = (struct vk_device *)base->device;
    for (int i = 0; i < PLAN_RUNS; i++) {
        vk_command_free(device, &plan->slots[i].before, plan->slots[i].before ? 1 : 0);
        vk_command_free(device, &plan->slots[i].after, plan->slots[i].after ? 1 : 0);
        free(plan->slots[i].commands);
    }
    vk_io_destroy(&plan->io);
    vk_record_destroy(&plan->record, device);
    vkDestroyDescriptorPool(device->handle, plan->pool, NULL);
    vk_memory_destroy(device, &plan->arena);
    vk_memory_destroy(device, &plan->words);
    free(plan->host_words);
    free(plan->dispatches);
    free(plan->sets);
    free(plan);
}

bool vk_plan_whole(const struct plan *base)
{
    return !((const struct vk_plan *)base)->guessed;
}

uint64_t vk_plan_bytes(const struct plan *base)
{
    const struct vk_plan *plan = (const struct vk_plan *)base;
    return plan->arena.size + plan->words.size + plan->record.counters.size + (plan->io ? vk_io_bytes(plan->io) : 0);
}

uint32_t vk_plan_submits(const struct plan *base)
{
    return ((const struct vk_plan *)base)->record.count;
}

enum error_code vk_plan_profile(struct plan *base, struct error *err)
{
    struct vk_plan *plan = (struct vk_plan *)base;
    return plan_record((struct vk_device *)base->device, plan, plan->record.timer.node_count, true, err);
}

double vk_plan_ms(const struct plan *base, double *node_ms)
{
    const struct vk_plan *plan = (const struct vk_plan *)base;
    return vk_timer_read(&plan->record.timer, (const struct vk_device *)base->device, node_ms);
}
