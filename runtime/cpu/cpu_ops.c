#include "runtime/cpu/cpu_ops.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/cpu/cpu_attention.h"
#include "runtime/cpu/cpu_lookup.h"
#include "runtime/cpu/cpu_norm.h"
#include "runtime/cpu/cpu_sample.h"

static enum error_code ops_tensor_pack(struct cpu_build *build, const struct param *param, int taps,
                                       const struct cpu_layout *layout, const float **out, struct error *err)
{
    *out = NULL;
    if (!param)
        return OK;
    const struct cpu_pack_key key = {.param = param, .kind = CPU_PACK_TENSOR, .taps = taps, .out = *layout};
    return cpu_pack_get(build->device, &key, out, err);
}

static enum error_code ops_sum_pack(struct cpu_build *build, const struct param *param, int taps,
                                    const struct cpu_layout *in, const struct cpu_layout *out, const float **weight,
                                    struct error *err)
{
    const struct cpu_pack_key key = {.param = param, .kind = CPU_PACK_SUM, .taps = taps, .in = *in, .out = *out};
    return cpu_pack_get(build->device, &key, weight, err);
}

/* The value in the lane of each channel, 0 in padding. */
static enum error_code ops_uniform_lanes(struct cpu_build *build, const struct cpu_layout *layout, float value,
                                         const float **out, struct error *err)
{
    void *memory;
    enum error_code code =
        cpu_plan_memory(build, (size_t)layout->blocks * CPU_BLOCK * (sizeof(float) + sizeof(int)), &memory, err);
    float *lanes = memory;
    if (!code) {
        int *places = (int *)(lanes + layout->blocks * CPU_BLOCK);
        cpu_pack_lanes(layout, places, NULL);
        for (int i = 0; i < layout->channels; i++)
            lanes[places[i]] = value;
    }
    *out = lanes;
    return code;
}

/* The slope of each lane; NULL without an activation. */
static enum error_code ops_slopes(struct cpu_build *build, const struct node *node, enum activation activation,
                                  float slope, const struct cpu_layout *layout, const float **out, struct error *err)
{
    *out = NULL;
    switch (activation) {
    case ACTIVATION_NONE:
    case ACTIVATION_SILU:
    case ACTIVATION_MISH:
    case ACTIVATION_TANH:
    case ACTIVATION_GELU:
    case ACTIVATION_SIGMOID:
        return OK;
    case ACTIVATION_PRELU:
        return ops_tensor_pack(build, node->param[OP_SLOPE], 1, layout, out, err);
    default:
        return ops_uniform_lanes(build, layout, activation == ACTIVATION_RELU ? 0 : slope, out, err);
    }
}

static enum cpu_curve ops_curve(enum activation activation)
{
    switch (activation) {
    case ACTIVATION_SILU:
        return CPU_CURVE_SILU;
    case ACTIVATION_MISH:
        return CPU_CURVE_MISH;
    case ACTIVATION_TANH:
        return CPU_CURVE_TANH;
    case ACTIVATION_GELU:
        return CPU_CURVE_GELU;
    case ACTIVATION_SIGMOID:
        return CPU_CURVE_SIGMOID;
    default:
        return CPU_CURVE_NONE;
    }
}

/* The layouts of x and y, and y's operand. */
struct sides {
    struct cpu_layout x, y;
    struct cpu_operand out;
};

static enum error_code ops_find_sides(struct cpu_build *build, const struct node *node, struct sides *sides,
                                      struct error *err)
{
    if (node->in[OP_X].tensor >= 0)
        cpu_pack_layout(build->graph, node->in[OP_X], &sides->x);
    cpu_pack_layout(build->graph, node->out, &sides->y);
    return cpu_plan_operand(build, node->out, NULL, &sides->out, err);
}

static enum error_code ops_used_of(struct cpu_build *build, const struct cpu_layout *layout, int **out,
                                   struct error *err)
{
    void *memory;
    enum error_code code = cpu_plan_memory(build, (size_t)layout->blocks * sizeof **out, &memory, err);
    *out = memory;
    if (!code)
        cpu_pack_lanes(layout, NULL, *out);
    return code;
}

static enum error_code ops_build_conv2d(struct cpu_build *build, const struct node *node, struct error *err)
{
    const struct op_conv2d *a = &node->args.conv2d;
    struct sides s = {0};
    struct cpu_operand scale, gains, noise;
    struct cpu_task task = {.run = cpu_task_conv};
    struct cpu_conv *c = &task.conv.conv;
    struct cpu_finish *f = &c->finish;
    int *used = NULL;
    enum error_code code = ops_find_sides(build, node, &s, err);
    *c = (struct cpu_conv){.kernel = a->kernel,
                           .stride = a->stride,
                           .pad = a->pad,
                           .upsample = a->upsample,
                           .reflect = a->pad_mode == PAD_REFLECT};
    *f = (struct cpu_finish){.y = s.out,
                             .gain = a->gain,
                             .scale = a->scale,
                             .r1_scale = a->residual1_scale,
                             .r2_scale = a->residual2_scale,
                             .activation_last = a->activation_last,
                             .curve = ops_curve(a->activation)};
    if (!code)
        code = cpu_plan_operand(build, node->in[OP_X], NULL, &c->x, err);
    if (!code)
        code = cpu_plan_operand(build, node->in[OP_RESIDUAL1], &s.y, &f->r1, err);
    if (!code)
        code = cpu_plan_operand(build, node->in[OP_RESIDUAL2], &s.y, &f->r2, err);
    if (!code)
        code = cpu_plan_operand(build, node->in[OP_IN_SCALE], &s.x, &scale, err);
    if (!code)
        code = cpu_plan_operand(build, node->in[OP_OUT_SCALE], &s.y, &gains, err);
    if (!code)
        code = cpu_plan_operand(build, node->in[OP_NOISE_MAP], NULL, &noise, err);
    if (!code && noise.data)
        code = ops_uniform_lanes(build, &s.y, a->noise_weight, &f->noise_weight, err);
    if (!code)
        code = ops_sum_pack(build, node->param[OP_WEIGHT], a->kernel * a->kernel, &s.x, &s.y, &c->weight, err);
    if (!code)
        code = ops_tensor_pack(build, node->param[OP_BIAS], 1, &s.y, &f->bias, err);
    if (!code)
        code = ops_slopes(build, node, a->activation, a->slope, &s.y, &f->slope, err);
    if (!code)
        code = ops_used_of(build, &s.x, &used, err);
    if (code)
        return code;
    c->in_scale = scale.data;
    c->in_scale_image = scale.image;
    f->gains = gains.data;
    f->gains_image = gains.image;
    f->noise = noise.data;
    f->noise_image = noise.image;
    f->noise_step = noise.data && cpu_plan_is_map(build, node->in[OP_NOISE_MAP].tensor) ? 1 : CPU_BLOCK;
    code = cpu_conv_plan(&task.conv, build->isa, cpu_pool_threads(build->device->pool), used, err);
    if (!code) { /* the terms must live as long as the plan */
        const size_t bytes = (size_t)task.conv.term_count * sizeof *task.conv.terms;
        struct cpu_term *terms = task.conv.terms;
        void *memory;
        code = cpu_plan_memory(build, bytes, &memory, err);
        if (!code)
            task.conv.terms = memcpy(memory, terms, bytes);
        free(terms);
    }
    return code ? code : cpu_plan_add(build, &task, task.conv.shared_floats, task.conv.thread_floats, err);
}

static enum error_code ops_build_linear(struct cpu_build *build, const struct node *node, struct error *err)
{
    const bool linear = node->kind == OP_LINEAR;
    struct sides s = {0};
    struct cpu_task task = {.run = cpu_task_linear};
    struct cpu_linear *l = &task.linear;
    int *used;
    enum error_code code = ops_find_sides(build, node, &s, err);
    l->finish = (struct cpu_finish){.y = s.out, .gain = 1, .scale = 1};
    if (linear)
        l->finish.curve = ops_curve(node->args.linear.activation);
    if (!code)
        code = cpu_plan_operand(build, node->in[OP_X], NULL, &l->x, err);
    if (!code)
        code = ops_sum_pack(build, node->param[OP_WEIGHT], l->x.h * l->x.w, &s.x, &s.y, &l->weight, err);
    if (!code && linear)
        code = ops_tensor_pack(build, node->param[OP_BIAS], 1, &s.y, &l->finish.bias, err);
    if (!code && linear)
        code =
            ops_slopes(build, node, node->args.linear.activation, node->args.linear.slope, &s.y, &l->finish.slope, err);
    if (!code && !linear) {
        code = ops_used_of(build, &s.y, &used, err);
        l->used = used;
        l->epsilon = node->args.demodulate.epsilon;
    }
    const size_t squares = linear ? 0 : (size_t)l->x.n * (size_t)l->x.blocks * CPU_BLOCK;
    return code ? code : cpu_plan_add(build, &task, squares, CPU_GEMM_ROWS * CPU_GEMM_COLS * CPU_BLOCK, err);
}

static enum error_code ops_build_window(struct cpu_build *build, const struct node *node, struct error *err)
{
    struct sides s = {0};
    struct cpu_task task = {.run = node->kind == OP_DEPTHWISE ? cpu_task_depthwise : cpu_task_max_pool};
    struct cpu_window *w = &task.window;
    enum error_code code = ops_find_sides(build, node, &s, err);
    w->y = s.out;
    if (!code)
        code = cpu_plan_operand(build, node->in[OP_X], &s.y, &w->x, err);
    if (node->kind == OP_DEPTHWISE) {
        const struct op_depthwise *a = &node->args.depthwise;
        w->kernel = a->kernel;
        w->stride = a->stride;
        w->pad = a->pad;
        w->reflect = a->pad_mode == PAD_REFLECT;
        if (!code)
            code = ops_tensor_pack(build, node->param[OP_WEIGHT], a->kernel * a->kernel, &s.y, &w->weight, err);
        if (!code)
            code = ops_tensor_pack(build, node->param[OP_BIAS], 1, &s.y, &w->bias, err);
        if (!code)
            code = ops_slopes(build, node, a->activation, a->slope, &s.y, &w->slope, err);
    } else {
        w->kernel = node->args.max_pool.kernel;
        w->stride = node->args.max_pool.stride;
        w->pad = node->args.max_pool.pad;
    }
    return code ? code : cpu_plan_add(build, &task, 0, 0, err);
}

static enum error_code ops_build_resize(struct cpu_build *build, const struct node *node, struct error *err)
{
    struct sides s = {0};
    struct cpu_task task = {.run = cpu_task_resize};
    enum error_code code = ops_find_sides(build, node, &s, err);
    task.resize.y = s.out;
    task.resize.bilinear = node->args.resize.mode == RESIZE_BILINEAR;
    if (!code)
        code = cpu_plan_operand(build, node->in[OP_X], &s.y, &task.resize.x, err);
    return code ? code : cpu_plan_add(build, &task, 0, 0, err);
}

static enum error_code ops_build_combine(struct cpu_build *build, const struct node *node, struct error *err)
{
    struct sides s = {0};
    struct cpu_task task = {.run = cpu_task_combine};
    struct cpu_combine *c = &task.combine;
    enum error_code code = ops_find_sides(build, node, &s, err);
    c->y = s.out;
    if (!code)
        code = cpu_plan_operand(build, node->in[OP_X], &s.y, &c->x, err);
    if (!code)
        code = cpu_plan_operand(build, node->in[OP_RESIDUAL1], &s.y, &c->a, err);
    if (node->kind == OP_SCALE_SHIFT) {
        if (!code)
            code = cpu_plan_operand(build, node->in[OP_RESIDUAL2], &s.y, &c->b, err);
    } else if (node->kind == OP_GATE) {
        c->offset = node->args.gate.offset;
        if (!code)
            code = cpu_plan_operand(build, node->in[OP_RESIDUAL2], &s.y, &c->gate, err);
    } else {
        const struct op_add *a = &node->args.add;
        c->x_scale = a->x_scale;
        c->a_scale = a->residual1_scale;
        if (!code)
            code = ops_slopes(build, node, a->activation, a->slope, &s.y, &c->slope, err);
    }
    return code ? code : cpu_plan_add(build, &task, 0, 0, err);
}

/* offsets[lane of y] = floats from a pixel of x to the channel for channel[lane's channel] there, or -1. */
static enum error_code ops_offsets_create(struct cpu_build *build, int blocks, int phases, ptrdiff_t **out,
                                          struct error *err)
{
    const size_t count = (size_t)blocks * (size_t)phases * CPU_BLOCK;
    void *memory;
    enum error_code code = cpu_plan_memory(build, count * sizeof **out, &memory, err);
    *out = memory;
    for (size_t i = 0; i < count && !code; i++)
        (*out)[i] = -1;
    return code;
}

/* Where a lane of a tensor of that plane is, relative to the pixel in its first block. */
static ptrdiff_t ops_lane_offset(int lane, const struct cpu_operand *x)
{
    return (ptrdiff_t)((size_t)(lane / CPU_BLOCK) * x->plane + (size_t)(lane % CPU_BLOCK));
}

/* The lanes of x's and y's channels, in one allocation that is the caller's to free(). */
static enum error_code ops_lanes_of(const struct cpu_layout *x, const struct cpu_layout *y, int **xs, int **ys,
                                    struct error *err)
{
    *xs = mem_alloc((size_t)x->channels + (size_t)y->channels, sizeof **xs);
    if (!*xs)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a plan");
    *ys = *xs + x->channels;
    cpu_pack_lanes(x, *xs, NULL);
    cpu_pack_lanes(y, *ys, NULL);
    return OK;
}

static enum error_code ops_build_shuffle(struct cpu_build *build, const struct node *node, struct error *err)
{
    const int r = node->args.shuffle.factor, phases = node->kind == OP_PIXEL_SHUFFLE ? r * r : 1;
    struct sides s = {0};
    struct cpu_task task = {.run = cpu_task_gather};
    struct cpu_gather *g = &task.gather;
    struct cpu_operand x, residual;
    ptrdiff_t *offsets = NULL, *residual_offsets = NULL;
    int *xs = NULL, *ys = NULL;
    enum error_code code = ops_find_sides(build, node, &s, err);
    if (!code)
        code = cpu_plan_operand(build, node->in[OP_X], NULL, &x, err);
    if (!code)
        code = cpu_plan_operand(build, node->in[OP_RESIDUAL1], &s.y, &residual, err);
    if (!code)
        code = ops_offsets_create(build, s.y.blocks, phases, &offsets, err);
    if (!code)
        code = ops_offsets_create(build, s.y.blocks, 1, &residual_offsets, err);
    if (!code)
        code = ops_lanes_of(&s.x, &s.y, &xs, &ys, err);
    if (code)
        return code;
    *g = (struct cpu_gather){.x = x.data,
                             .x_image = x.image,
                             .x_step = CPU_BLOCK,
                             .x_width = x.w,
                             .times = phases == 1 ? r : 1,
                             .over = phases == 1 ? 1 : r,
                             .offsets = offsets,
                             .residual = residual.data,
                             .residual_image = residual.image,
                             .residual_offsets = residual_offsets,
                             .y = s.out};
    for (int c = 0; c < s.y.channels; c++) {
        const int block = ys[c] / CPU_BLOCK, lane = ys[c] % CPU_BLOCK;
        if (residual.data)
            residual_offsets[ys[c]] = ops_lane_offset(ys[c], &residual);
        if (node->kind == OP_PIXEL_UNSHUFFLE) {
            const int i = c / r % r, j = c % r;
            offsets[ys[c]] = ops_lane_offset(xs[c / (r * r)], &x) + (ptrdiff_t)(i * x.w + j) * CPU_BLOCK;
            continue;
        }
        for (int phase = 0; phase < phases; phase++)
            offsets[(block * phases + phase) * CPU_BLOCK + lane] = ops_lane_offset(xs[c * phases + phase], &x);
    }
    free(xs);
    return cpu_plan_add(build, &task, 0, 0, err);
}

enum error_code cpu_ops_relayout(struct cpu_build *build, const struct cpu_operand *x, const struct cpu_layout *from,
                                 const struct cpu_operand *y, const struct cpu_layout *to, struct error *err)
{
    struct cpu_task task = {.run = cpu_task_gather};
    ptrdiff_t *offsets = NULL;
    int *xs = NULL, *ys = NULL;
    enum error_code code = ops_offsets_create(build, to->blocks, 1, &offsets, err);
    if (!code)
        code = ops_lanes_of(from, to, &xs, &ys, err);
    if (code)
        return code;
    for (int c = 0; c < to->channels; c++)
        offsets[ys[c]] = ops_lane_offset(xs[c], x);
    free(xs);
    task.gather = (struct cpu_gather){.x = x->data,
                                      .x_image = x->image,
                                      .x_step = CPU_BLOCK,
                                      .x_width = x->w,
                                      .times = 1,
                                      .over = 1,
                                      .offsets = offsets,
                                      .y = *y};
    return cpu_plan_add(build, &task, 0, 0, err);
}

enum error_code cpu_ops_input(struct cpu_build *build, struct view whole, struct cpu_task *out, struct error *err)
{
    const bool map = cpu_plan_is_map(build, whole.tensor);
    const struct tensor *tensor = graph_tensor_of(build->graph, whole);
    const size_t plane = (size_t)tensor->h * (size_t)tensor->w;
    struct cpu_layout layout;
    ptrdiff_t *offsets = NULL;
    *out = (struct cpu_task){.run = map ? cpu_task_copy : cpu_task_gather};
    cpu_pack_layout(build->graph, whole, &layout);
    enum error_code code = cpu_plan_operand(build, whole, NULL, &out->gather.y, err);
    if (code || map)
        return code;
    out->gather.x_image = plane * (size_t)layout.channels;
    out->gather.x_step = 1;
    out->gather.x_width = tensor->w;
    out->gather.times = out->gather.over = 1;
    int *ys = mem_alloc((size_t)layout.channels, sizeof *ys);
    code = ys ? ops_offsets_create(build, layout.blocks, 1, &offsets, err)
              : error_set(err, ERROR_NO_MEMORY, "out of memory for a plan");
    if (!code) {
        cpu_pack_lanes(&layout, ys, NULL);
        for (int c = 0; c < layout.channels; c++)
            offsets[ys[c]] = (ptrdiff_t)((size_t)c * plane);
        out->gather.offsets = offsets;
    }
    free(ys);
    return code;
}

static enum error_code ops_build_noise(struct cpu_build *build, const struct node *node, struct error *err)
{
    struct cpu_task task = {.run = cpu_task_noise};
    task.noise.step = cpu_plan_is_map(build, node->out.tensor) ? 1 : CPU_BLOCK;
    task.noise.layer = node->args.noise.layer;
    enum error_code code = cpu_plan_operand(build, node->out, NULL, &task.noise.y, err);
    return code ? code : cpu_plan_add(build, &task, 0, 0, err);
}

enum error_code cpu_ops_node(struct cpu_build *build, const struct node *node, struct error *err)
{
    switch (node->kind) {
    case OP_CONV2D:
        return ops_build_conv2d(build, node, err);
    case OP_LINEAR:
    case OP_DEMODULATE:
        return ops_build_linear(build, node, err);
    case OP_DEPTHWISE:
    case OP_MAX_POOL:
        return ops_build_window(build, node, err);
    case OP_RESIZE:
        return ops_build_resize(build, node, err);
    case OP_PIXEL_SHUFFLE:
    case OP_PIXEL_UNSHUFFLE:
        return ops_build_shuffle(build, node, err);
    case OP_ADD:
    case OP_SCALE_SHIFT:
    case OP_GATE:
        return ops_build_combine(build, node, err);
    case OP_MEAN:
        return cpu_mean_node(build, node, err);
    case OP_SAMPLE:
        return cpu_sample_node(build, node, err);
    case OP_NOISE:
        return ops_build_noise(build, node, err);
    case OP_GROUP_NORM:
    case OP_LAYER_NORM:
        return cpu_norm_node(build, node, err);
    case OP_ATTENTION:
        return cpu_attention_node(build, node, err);
    case OP_LOOKUP:
        return cpu_lookup_node(build, node, err);
    default:
        return error_set(err, ERROR_UNSUPPORTED, "the CPU device has no operator %s", op_name(node->kind));
    }
}
