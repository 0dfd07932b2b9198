#include "runtime/cpu/cpu_lookup.h"

#include <math.h>

#include "runtime/cpu/cpu_attention.h"

#define LOOKUP_PIXELS 64 /* an item */

static void lookup_pixel(const struct cpu_lookup *l, int image, size_t pixel)
{
    float best = -INFINITY, broken = 0;
    int entry = 0;
    for (int i = 0; i < l->entries; i++) {
        const float v = cpu_attention_lane(&l->x, image, l->lanes[i])[pixel * CPU_BLOCK];
        if (isnan(v))
            broken = v;
        if (v > best) {
            best = v;
            entry = i;
        }
    }
    for (int b = 0; b < l->y.blocks; b++) {
        const float *from = l->table + ((size_t)b * (size_t)l->entries + (size_t)entry) * CPU_BLOCK;
        float *to = l->y.data + (size_t)image * l->y.image + (size_t)b * l->y.plane + pixel * CPU_BLOCK;
        for (int k = 0; k < CPU_BLOCK; k++)
            to[k] = from[k] + broken;
    }
}

static void lookup_item(void *context, int item, int thread)
{
    const struct cpu_lookup *l = context;
    const size_t pixels = (size_t)l->y.h * (size_t)l->y.w;
    const int chunks = (int)((pixels + LOOKUP_PIXELS - 1) / LOOKUP_PIXELS);
    const size_t first = (size_t)(item % chunks) * LOOKUP_PIXELS;
    (void)thread;
    for (size_t i = first; i < pixels && i < first + LOOKUP_PIXELS; i++)
        lookup_pixel(l, item / chunks, i);
}

static void lookup_run(const struct cpu_task *task, const struct cpu_run *run)
{
    struct cpu_lookup l = task->lookup;
    const size_t pixels = (size_t)l.y.h * (size_t)l.y.w;
    cpu_pool_run(run->pool, l.y.n * (int)((pixels + LOOKUP_PIXELS - 1) / LOOKUP_PIXELS), lookup_item, &l);
}

enum error_code cpu_lookup_node(struct cpu_build *build, const struct node *node, struct error *err)
{
    struct cpu_task task = {.run = lookup_run};
    struct cpu_lookup *l = &task.lookup;
    struct cpu_layout layout;
    cpu_pack_layout(build->graph, node->out, &layout);
    l->entries = graph_channels(build->graph, node->in[OP_X]);
    const struct cpu_pack_key key = {
        .param = node->param[OP_WEIGHT], .kind = CPU_PACK_TENSOR, .taps = l->entries, .out = layout};
    enum error_code code = cpu_plan_operand(build, node->out, NULL, &l->y, err);
    if (code == OK)
        code = cpu_plan_operand(build, node->in[OP_X], NULL, &l->x, err);
    if (code == OK)
        code = cpu_attention_lanes(build, node->in[OP_X], &l->lanes, err);
    if (code == OK)
        code = cpu_pack_get(build->device, &key, &l->table, err);
    return code == OK ? cpu_plan_add(build, &task, 0, 0, err) : code;
}
