#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/cpu/cpu_ops.h"
#include "runtime/cpu/cpu_plan_private.h"
#include "runtime/nn/arena_plan.h"

#define ALIGNMENT 256 /* bytes, of tensors in the arena: a multiple of a cache line */

static struct view plan_whole_view(const struct graph *graph, int tensor)
{
    return (struct view){tensor, 0, graph->tensors[tensor].segment_count};
}

/* --- for cpu_ops ---------------------------------------------------------------------------------------------------
 */

enum error_code cpu_plan_memory(struct cpu_build *build, size_t bytes, void **out, struct error *err)
{
    struct plan_memory *m = mem_calloc(1, sizeof *m);
    *out = NULL;
    if (!m)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a plan");
    enum error_code code = cpu_device_alloc(build->device, bytes, &m->data, err);
    if (code) {
        free(m);
        return code;
    }
    m->bytes = bytes;
    m->next = build->plan->memory;
    build->plan->memory = m;
    build->plan->held += bytes;
    *out = memset(m->data, 0, bytes);
    return OK;
}

enum error_code cpu_plan_add(struct cpu_build *build, const struct cpu_task *task, size_t shared_floats,
                             size_t thread_floats, struct error *err)
{
    struct cpu_plan *plan = build->plan;
    if (plan->task_count == plan->task_capacity) {
        const size_t capacity = plan->task_capacity * 2 + 64;
        struct cpu_task *grown = realloc(plan->tasks, capacity * sizeof *grown);
        if (!grown)
            return error_set(err, ERROR_NO_MEMORY, "out of memory for a plan");
        plan->tasks = grown;
        plan->task_capacity = capacity;
    }
    plan->tasks[plan->task_count] = *task;
    plan->tasks[plan->task_count++].node = build->node;
    plan->shared_floats = shared_floats > plan->shared_floats ? shared_floats : plan->shared_floats;
    plan->thread_floats = thread_floats > plan->thread_floats ? thread_floats : plan->thread_floats;
    return OK;
}

static uint64_t plan_align(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* The place for a copy of that size until the node is done. */
static float *plan_copy(struct cpu_build *build, uint64_t bytes)
{
    struct cpu_plan *plan = build->plan;
    char *copy = build->device->arena.base + plan_align(plan->tensor_bytes) + plan->copies;
    plan->copies += plan_align(bytes);
    if (plan->copies > plan->copy_bytes)
        plan->copy_bytes = plan->copies;
    return (float *)(void *)copy;
}

bool cpu_plan_is_map(const struct cpu_build *build, int tensor)
{
    return build->plan->maps[tensor];
}

/* Where a segment of a tensor is in the arena. */
static char *plan_place(const struct cpu_build *build, const struct tensor *tensor, struct view view)
{
    const struct cpu_plan *plan = build->plan;
    const struct arena_piece *piece = &plan->pieces[plan->first_piece[view.tensor]];
    while (piece->first + piece->count <= view.first)
        piece++;
    const struct cpu_band_layer *banded = cpu_band_layer_of(&plan->band, view.tensor);
    const size_t plane = (size_t)(banded ? banded->room : tensor->h) * (size_t)tensor->w;
    size_t before = 0;
    for (int i = piece->first; i < view.first; i++)
        before += (size_t)((tensor->segment[i] + CPU_BLOCK - 1) / CPU_BLOCK);
    return build->device->arena.base + piece->offset + before * plane * CPU_BLOCK * sizeof(float);
}

/* The places of the blocks of a view whose segments lie apart. */
static enum error_code plan_find_blocks(struct cpu_build *build, struct view view, struct cpu_operand *out,
                                        struct error *err)
{
    const struct tensor *tensor = graph_tensor_of(build->graph, view);
    void *memory;
    enum error_code code = cpu_plan_memory(build, (size_t)out->blocks * sizeof *out->places, &memory, err);
    if (code)
        return code;
    size_t *places = memory, *place = places;
    char *lowest = (char *)out->data;
    for (int i = view.first; i < view.first + view.count; i++) {
        char *at = plan_place(build, tensor, (struct view){view.tensor, i, 1});
        lowest = at < lowest ? at : lowest;
    }
    for (int i = view.first; i < view.first + view.count; i++) {
        const size_t at =
            (size_t)(plan_place(build, tensor, (struct view){view.tensor, i, 1}) - lowest) / sizeof(float);
        for (int b = 0; b * CPU_BLOCK < tensor->segment[i]; b++)
            *place++ = at + (size_t)b * out->plane;
    }
    out->data = (float *)(void *)lowest;
    out->places = places;
    return OK;
}

enum error_code cpu_plan_operand(struct cpu_build *build, struct view view, const struct cpu_layout *wanted,
                                 struct cpu_operand *out, struct error *err)
{
    *out = (struct cpu_operand){0};
    if (view.tensor < 0)
        return OK;
    const struct tensor *tensor = graph_tensor_of(build->graph, view);
    const struct cpu_band_layer *banded = cpu_band_layer_of(&build->plan->band, view.tensor);
    const size_t plane = (size_t)(banded ? banded->room : tensor->h) * (size_t)tensor->w;
    struct cpu_layout layout, all;
    cpu_pack_layout(build->graph, view, &layout);
    cpu_pack_layout(build->graph, plan_whole_view(build->graph, view.tensor), &all);
    const bool map = build->plan->maps[view.tensor];
    *out = (struct cpu_operand){
        .n = tensor->n, .h = tensor->h, .w = tensor->w, .blocks = layout.blocks, .plane = plane * CPU_BLOCK};
    if (tensor->role == TENSOR_CONSTANT) {
        const struct cpu_pack_key key = {
            .param = tensor->param, .kind = map ? CPU_PACK_PLAIN : CPU_PACK_TENSOR, .taps = (int)plane, .out = all};
        const float *data;
        enum error_code code = cpu_pack_get(build->device, &key, &data, err);
        if (code)
            return code;
        size_t before = 0;
        for (int i = 0; i < view.first; i++)
            before += (size_t)((tensor->segment[i] + CPU_BLOCK - 1) / CPU_BLOCK);
        /* never written: graphs are checked for that */
        out->data = (float *)(uintptr_t)data + before * plane * CPU_BLOCK;
    } else {
        out->image = plane * (map ? 1 : (size_t)all.blocks * CPU_BLOCK);
        out->data = (float *)(void *)plan_place(build, tensor, view);
        const int piece = build->plan->first_piece[view.tensor];
        if (view.count > 1 && build->plan->first_piece[view.tensor + 1] > piece + 1) {
            enum error_code code = plan_find_blocks(build, view, out, err);
            if (code)
                return code;
        }
    }
    if (!wanted || cpu_pack_same(&layout, wanted))
        return OK;
    struct cpu_operand copy = *out;
    copy.blocks = wanted->blocks;
    copy.image = out->image ? plane * (size_t)wanted->blocks * CPU_BLOCK : 0;
    copy.n = out->image ? tensor->n : 1;
    copy.data = plan_copy(build, (uint64_t)copy.n * plane * (uint64_t)wanted->blocks * CPU_BLOCK * sizeof(float));
    enum error_code code = cpu_ops_relayout(build, out, &layout, &copy, wanted, err);
    copy.n = tensor->n;
    *out = copy;
    return code;
}

/* --- building ------------------------------------------------------------------------------------------------------
 */

/* Tensors of one channel that are only noise maps need no lanes. */
static void plan_find_maps(const struct graph *graph, bool *maps)
{
    for (int t = 0; t < graph->tensor_count; t++)
        maps[t] = graph->tensors[t].channels == 1;
    for (int i = 0; i < graph->node_count; i++) {
        const struct node *node = &graph->nodes[i];
        if (node->kind != OP_NOISE)
            maps[node->out.tensor] = false;
        for (int k = 0; k < OP_MAX_INPUTS; k++)
            if (node->in[k].tensor >= 0 && k != OP_NOISE_MAP)
                maps[node->in[k].tensor] = false;
    }
}

/* The tensors whose segments need not follow each other: where several are read at once, it is by a convolution that
 * has its input copied or transformed block by block. In a dense block all but the first are soon dead. */
static void plan_find_apart(const struct graph *graph, bool *apart)
{
    for (int t = 0; t < graph->tensor_count; t++)
        apart[t] =
            graph->tensors[t].segment_count > 1 && graph->tensors[t].n == 1 && graph->tensors[t].role == TENSOR_TEMP;
    for (int i = 0; i < graph->node_count; i++) {
        const struct node *node = &graph->nodes[i];
        const bool blocks = node->kind == OP_CONV2D && node->args.conv2d.pad > 0;
        if (node->out.count > 1)
            apart[node->out.tensor] = false;
        for (int k = 0; k < OP_MAX_INPUTS; k++)
            if (node->in[k].tensor >= 0 && node->in[k].count > 1 && !(k == OP_X && blocks))
                apart[node->in[k].tensor] = false;
    }
}

static enum error_code plan_measure(const struct cpu_build *build, struct arena_piece *piece, struct error *err)
{
    const struct tensor *t = &build->graph->tensors[piece->tensor];
    const struct cpu_band_layer *banded = cpu_band_layer_of(&build->plan->band, piece->tensor);
    struct cpu_layout layout;
    size_t floats;
    cpu_pack_layout(build->graph, (struct view){piece->tensor, piece->first, piece->count}, &layout);
    if (!mem_mul((size_t)t->n * (size_t)(banded ? banded->room : t->h), (size_t)t->w, &floats) ||
        !mem_mul(floats, build->plan->maps[piece->tensor] ? 1 : (size_t)layout.blocks * CPU_BLOCK, &floats) ||
        floats > SIZE_MAX / 16)
        return error_set(err, ERROR_TOO_LARGE, "%s: a tensor of %d×%d×%d×%d is too large", build->plan->name, t->n,
                         t->channels, t->h, t->w);
    piece->bytes = t->role == TENSOR_CONSTANT ? 0 : floats * sizeof(float);
    return OK;
}

/* Lists the pieces of all tensors. */
static enum error_code plan_cut_tensors(struct cpu_build *build, struct error *err)
{
    const struct graph *graph = build->graph;
    struct cpu_plan *plan = build->plan;
    enum error_code code = OK;
    int most = 0, count = 0;
    for (int t = 0; t < graph->tensor_count; t++)
        most += graph->tensors[t].segment_count;
    bool *apart = mem_calloc((size_t)graph->tensor_count, sizeof *apart);
    plan->pieces = mem_calloc((size_t)most, sizeof *plan->pieces);
    if (!apart || !plan->pieces)
        code = error_set(err, ERROR_NO_MEMORY, "out of memory for a plan");
    else
        plan_find_apart(graph, apart);
    for (int t = 0; t < graph->tensor_count && code == OK; t++) {
        const int segments = graph->tensors[t].segment_count, each = apart[t] ? 1 : segments;
        plan->first_piece[t] = count;
        for (int i = 0; i < segments && code == OK; i += each, count++) {
            plan->pieces[count] = (struct arena_piece){.tensor = t, .first = i, .count = each};
            code = plan_measure(build, &plan->pieces[count], err);
        }
    }
    plan->first_piece[graph->tensor_count] = count;
    free(apart);
    return code;
}

static enum error_code plan_place_tensors(struct cpu_build *build, struct error *err)
{
    const struct graph *graph = build->graph;
    struct cpu_plan *plan = build->plan;
    enum error_code code = plan_cut_tensors(build, err);
    int *step = mem_alloc((size_t)graph->node_count, sizeof *step);
    if (!step && code == OK)
        code = error_set(err, ERROR_NO_MEMORY, "out of memory for a plan");
    for (int i = 0; i < graph->node_count && code == OK; i++) /* a band's layers take turns */
        step[i] = plan->band.count && i > plan->band.first ? plan->band.first : i;
    if (code == OK)
        code = arena_plan_pieces(graph, step, plan->pieces, plan->first_piece[graph->tensor_count], ALIGNMENT,
                                 &plan->tensor_bytes, err);
    free(step);
    if (code == OK)
        code = cpu_arena_reserve(build->device, err);
    /* Before the weights are packed, because the caller may try again with a smaller tile. */
    return code ? code : cpu_arena_grow(build->device, build->plan->tensor_bytes, err);
}

static enum error_code plan_build_output(struct cpu_build *build, int tensor, struct cpu_output *out, struct error *err)
{
    struct cpu_layout layout;
    void *lanes;
    cpu_pack_layout(build->graph, plan_whole_view(build->graph, tensor), &layout);
    enum error_code code = cpu_plan_operand(build, plan_whole_view(build->graph, tensor), NULL, &out->operand, err);
    out->channels = layout.channels;
    if (code || build->plan->maps[tensor])
        return code;
    code = cpu_plan_memory(build, (size_t)layout.channels * sizeof *out->lanes, &lanes, err);
    out->lanes = lanes;
    if (!code)
        cpu_pack_lanes(&layout, out->lanes, NULL);
    return code;
}

static enum error_code plan_build_tasks(struct cpu_build *build, struct error *err)
{
    struct cpu_plan *plan = build->plan;
    const struct graph *graph = build->graph;
    enum error_code code = OK;
    for (int i = 0; i < graph->input_count && code == OK; i++)
        code = cpu_ops_input(build, plan_whole_view(graph, graph->inputs[i]), &plan->inputs[i], err);
    for (int i = 0; i < graph->node_count && code == OK; i++) {
        build->node = i;
        plan->copies = 0;
        if (i == plan->band.first)
            plan->band_task = plan->task_count;
        code = cpu_ops_node(build, &graph->nodes[i], err);
    }
    if (code == OK && plan->band.count && plan->band_task + (size_t)plan->band.count != plan->task_count)
        code = error_set(err, ERROR_INTERNAL, "%s: a layer at the end is more than one task", plan->name);
    for (int i = 0; i < graph->output_count && code == OK; i++)
        code = plan_build_output(build, graph->outputs[i], &plan->outputs[i], err);
    return code;
}

/* Frees what only building needed. */
static void plan_trim(struct cpu_plan *plan)
{
    struct cpu_task *tasks = plan->task_count ? realloc(plan->tasks, plan->task_count * sizeof *tasks) : NULL;
    plan->tasks = tasks ? tasks : plan->tasks;
    free(plan->pieces);
    free(plan->first_piece);
    free(plan->maps);
    plan->pieces = NULL;
    plan->first_piece = NULL;
    plan->maps = NULL;
}

/* The arena need be no larger than the largest plan that is left. */
static void plan_leave(struct cpu_plan *plan, struct cpu_device *device)
{
    uint64_t most = 0;
    if (plan->before)
        plan->before->after = plan->after;
    else
        device->plans = plan->after;
    if (plan->after)
        plan->after->before = plan->before;
    for (const struct cpu_plan *other = device->plans; other; other = other->after)
        most = other->bytes > most ? other->bytes : most;
    cpu_arena_shrink(device, most);
}

/* What the layers at the end need behind the other scratch memory. Their weights are transformed once in a run. */
static void plan_place_band(struct cpu_plan *plan)
{
    if (!plan->band.count)
        return;
    const struct cpu_operand *y = &plan->outputs[0].operand;
    const int room = plan->band.layer[plan->band.count - 1].room;
    size_t floats = (size_t)plan->outputs[0].channels * (size_t)room * (size_t)y->w;
    for (int i = 0; i < plan->band.count; i++) {
        const size_t kept = cpu_task_kept_floats(&plan->tasks[plan->band_task + (size_t)i]);
        floats = (floats + 63) / 64 * 64;
        plan->band_shared[i] = kept ? plan->rows + floats : NULL;
        floats += kept;
    }
    plan->bytes += (uint64_t)floats * sizeof(float);
}

enum error_code cpu_plan_create(struct plan **out, struct device *base, const struct graph *graph,
                                enum precision precision, const char *name, struct error *err)
{
    struct cpu_device *device = (struct cpu_device *)base;
    (void)precision; /* fp32: the device offers no other */
    struct cpu_plan *plan = mem_calloc(1, sizeof *plan);
    if (!plan)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a plan");
    plan->base = (struct plan){.backend = &cpu_backend, .device = base};
    plan->input_count = graph->input_count;
    plan->output_count = graph->output_count;
    plan->node_count = graph->node_count;
    snprintf(plan->name, sizeof plan->name, "%s", name);
    plan->first_piece = mem_calloc((size_t)graph->tensor_count + 1, sizeof *plan->first_piece);
    plan->maps = mem_calloc((size_t)graph->tensor_count, sizeof *plan->maps);
    plan->after = device->plans;
    if (plan->after)
        plan->after->before = plan;
    device->plans = plan;
    plan->isa = graph->exact ? device->isa->exact : device->isa;
    struct cpu_build build = {device, plan->isa, plan, graph, 0};
    enum error_code code = OK;
    if (!plan->first_piece || !plan->maps)
        code = error_set(err, ERROR_NO_MEMORY, "out of memory for a plan");
    if (code == OK) {
        plan_find_maps(graph, plan->maps);
        cpu_band_plan(&plan->band, graph, cpu_pool_threads(device->pool));
        code = plan_place_tensors(&build, err);
    }
    if (code == OK)
        code = plan_build_tasks(&build, err);
    if (code == OK) {
        const size_t threads = (size_t)cpu_pool_threads(device->pool);
        const uint64_t scratch = plan_align(plan->tensor_bytes) + plan->copy_bytes;
        plan->thread_floats = (plan->thread_floats + 63) / 64 * 64; /* threads share no line */
        plan->shared_floats = (plan->shared_floats + 63) / 64 * 64;
        plan->scratch = (float *)(void *)(device->arena.base + scratch);
        plan->rows = plan->scratch + plan->shared_floats + threads * plan->thread_floats;
        plan->bytes = scratch + (plan->shared_floats + threads * plan->thread_floats) * sizeof(float);
        plan_place_band(plan);
        code = cpu_arena_grow(device, plan->bytes, err);
    }
    plan_trim(plan);
    if (code) {
        cpu_plan_destroy(&plan->base);
        return code;
    }
    *out = &plan->base;
    log_event(LOG_DEBUG, "plan-made", "plan=\"%s\" tasks=%zu tensors=%llu arena=%llu isa=%s", plan->name,
              plan->task_count, (unsigned long long)plan->tensor_bytes, (unsigned long long)plan->bytes,
              plan->isa->name);
    return OK;
}

void cpu_plan_destroy(struct plan *base)
{
    struct cpu_plan *plan = (struct cpu_plan *)base;
    struct cpu_device *device = (struct cpu_device *)base->device;
    for (struct plan_memory *m = plan->memory, *next; m; m = next) {
        next = m->next;
        cpu_device_free(device, m->data, m->bytes);
        free(m);
    }
    plan_leave(plan, device);
    free(plan->pieces);
    free(plan->first_piece);
    free(plan->maps);
    free(plan->tasks);
    free(plan->node_ms);
    free(plan);
}

uint64_t cpu_plan_bytes(const struct plan *base)
{
    const struct cpu_plan *plan = (const struct cpu_plan *)base;
    return plan->bytes + plan->held;
}

enum error_code cpu_plan_profile(struct plan *base, struct error *err)
{
    struct cpu_plan *plan = (struct cpu_plan *)base;
    if (!plan->node_ms)
        plan->node_ms = mem_calloc((size_t)plan->node_count, sizeof *plan->node_ms);
    return plan->node_ms ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory for a plan");
}

double cpu_plan_ms(const struct plan *base, double *node_ms)
{
    const struct cpu_plan *plan = (const struct cpu_plan *)base;
    for (int i = 0; i < plan->node_count && node_ms; i++)
        node_ms[i] = plan->node_ms ? plan->node_ms[i] : 0;
    return plan->run_ms;
}
