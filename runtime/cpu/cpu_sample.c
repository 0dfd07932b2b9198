#include "runtime/cpu/cpu_sample.h"

#include <string.h>

struct sample_run {
    const struct cpu_task *task;
    const struct cpu_isa *isa;
};

/* The sums of a block's channels times the map. */
static void sample_weighted(const struct cpu_task *task, int image, int block, size_t pixels, double sums[CPU_BLOCK])
{
    const struct cpu_operand *x = &task->mean.x, *map = &task->mean.map;
    const float *from = x->data + (size_t)image * x->image + cpu_kernel_block(x, block);
    const float *weight = map->data + (size_t)image * map->image;
    for (size_t i = 0; i < pixels; i++, from += CPU_BLOCK, weight += task->mean.map_step)
        if (*weight != 0) /* NaN, too */
            for (int k = 0; k < CPU_BLOCK; k++)
                sums[k] += (double)from[k] * *weight;
}

/* A block of an image is one item: the order of its sum never depends on the number of threads. */
static void sample_mean_item(void *context, int item, int thread)
{
    const struct sample_run *r = context;
    const struct cpu_operand *x = &r->task->mean.x, *y = &r->task->mean.y;
    const int image = item / y->blocks, block = item % y->blocks;
    const size_t pixels = (size_t)x->h * (size_t)x->w;
    double sums[2 * CPU_BLOCK] = {0};
    (void)thread;
    if (r->task->mean.map.data)
        sample_weighted(r->task, image, block, pixels, sums);
    else
        r->isa->moments(x, image, block, 0, pixels, sums);
    float *out = y->data + (size_t)image * y->image + (size_t)block * y->plane;
    for (int k = 0; k < CPU_BLOCK; k++)
        out[k] = (float)(sums[k] / (double)pixels);
}

static void sample_run_mean(const struct cpu_task *task, const struct cpu_run *run)
{
    struct sample_run r = {task, run->isa};
    cpu_pool_run(run->pool, task->mean.y.n * task->mean.y.blocks, sample_mean_item, &r);
}

/* The value of lane `lane` of a pixel. */
static float sample_lane(const struct cpu_operand *x, int image, int lane, size_t pixel)
{
    return x->data[(size_t)image * x->image + cpu_kernel_block(x, lane / CPU_BLOCK) + pixel * CPU_BLOCK +
                   (size_t)(lane % CPU_BLOCK)];
}

/* As in cpu_ref. */
static void sample_between(float at, int last, int *low, int *high, float *t)
{
    at = at < 0 ? 0 : at > (float)last ? (float)last : at;
    *low = at > 0 ? (int)at : 0;
    *high = *low + (*low < last);
    *t = at - (float)*low;
}

/* Adds what group g reads for a pixel to out; a group is a block of x. */
static void sample_add(const struct cpu_task *task, int image, int g, int oy, int ox, float *out)
{
    const struct cpu_operand *x = &task->sample.x, *places = &task->sample.places;
    const int r = task->sample.factor, k = (g * r + oy % r) * r + ox % r, ky = task->sample.groups * r * r + k;
    const size_t from = (size_t)(oy / r) * (size_t)x->w + (size_t)(ox / r), row = (size_t)x->w * CPU_BLOCK;
    const float *weight = task->sample.weight, *group = x->data + (size_t)image * x->image + cpu_kernel_block(x, g);
    int x0, x1, y0, y1;
    float tx, ty;
    sample_between((float)(ox / r) + sample_lane(places, image, k, from) + weight[k], x->w - 1, &x0, &x1, &tx);
    sample_between((float)(oy / r) + sample_lane(places, image, ky, from) + weight[ky], x->h - 1, &y0, &y1, &ty);
    const float *top = group + (size_t)y0 * row, *bottom = group + (size_t)y1 * row;
    for (int c = 0; c < task->sample.channels; c++)
        out[c] += (top[x0 * CPU_BLOCK + c] * (1 - tx) + top[x1 * CPU_BLOCK + c] * tx) * (1 - ty) +
                  (bottom[x0 * CPU_BLOCK + c] * (1 - tx) + bottom[x1 * CPU_BLOCK + c] * tx) * ty;
}

/* A row of an image; y has one block. */
static void sample_row(void *context, int item, int thread)
{
    const struct sample_run *r = context;
    const struct cpu_operand *y = &r->task->sample.y;
    const int image = item / y->h, row = item % y->h;
    float *out = y->data + (size_t)image * y->image + (size_t)row * (size_t)y->w * CPU_BLOCK;
    (void)thread;
    memset(out, 0, (size_t)y->w * CPU_BLOCK * sizeof *out);
    for (int column = 0; column < y->w; column++)
        for (int g = 0; g < r->task->sample.groups; g++)
            sample_add(r->task, image, g, row, column, out + (size_t)column * CPU_BLOCK);
}

static void sample_run_rows(const struct cpu_task *task, const struct cpu_run *run)
{
    struct sample_run r = {task, run->isa};
    cpu_pool_run(run->pool, task->sample.y.n * task->sample.y.h, sample_row, &r);
}

enum error_code cpu_mean_node(struct cpu_build *build, const struct node *node, struct error *err)
{
    struct cpu_task task = {.run = sample_run_mean};
    struct cpu_layout layout;
    cpu_pack_layout(build->graph, node->out, &layout);
    enum error_code code = cpu_plan_operand(build, node->out, NULL, &task.mean.y, err);
    if (!code)
        code = cpu_plan_operand(build, node->in[OP_X], &layout, &task.mean.x, err);
    if (!code)
        code = cpu_plan_operand(build, node->in[OP_NOISE_MAP], NULL, &task.mean.map, err);
    if (!code && task.mean.map.data)
        task.mean.map_step = cpu_plan_is_map(build, node->in[OP_NOISE_MAP].tensor) ? 1 : CPU_BLOCK;
    return code ? code : cpu_plan_add(build, &task, 0, 0, err);
}

enum error_code cpu_sample_node(struct cpu_build *build, const struct node *node, struct error *err)
{
    struct cpu_task task = {.run = sample_run_rows};
    struct cpu_pack_key weight = {.param = node->param[OP_WEIGHT], .kind = CPU_PACK_TENSOR, .taps = 1};
    cpu_pack_layout(build->graph, node->in[OP_RESIDUAL1], &weight.out); /* one segment: a lane is a channel */
    enum error_code code = cpu_plan_operand(build, node->out, NULL, &task.sample.y, err);
    task.sample.groups = node->args.sample.groups;
    task.sample.factor = node->args.sample.factor;
    task.sample.channels = graph_channels(build->graph, node->out);
    if (!code)
        code = cpu_plan_operand(build, node->in[OP_X], NULL, &task.sample.x, err);
    if (!code)
        code = cpu_plan_operand(build, node->in[OP_RESIDUAL1], NULL, &task.sample.places, err);
    if (!code)
        code = cpu_pack_get(build->device, &weight, &task.sample.weight, err);
    return code ? code : cpu_plan_add(build, &task, 0, 0, err);
}
