#include "runtime/vulkan/vk_ops.h"

#include <assert.h>

#include "runtime/vulkan/vk_direct.h"
#include "runtime/vulkan/vk_frame.h"
#include "runtime/vulkan/vk_join.h"
#include "runtime/vulkan/vk_matrix.h"
#include "runtime/vulkan/vk_moments.h"
#include "runtime/vulkan/vk_tiled.h"

static_assert((int)ACTIVATION_RELU == 1 && (int)ACTIVATION_LEAKY == 2 && (int)ACTIVATION_PRELU == 3 &&
                  (int)ACTIVATION_SILU == 4 && (int)ACTIVATION_MISH == 5 && (int)ACTIVATION_TANH == 6 &&
                  (int)ACTIVATION_GELU == 7 && (int)ACTIVATION_SIGMOID == 8,
              "shaders/include/common.glsl has the same numbers");

#define NORM_GROUP 512       /* invocations of a group norm, at most */
#define NORM_HELD 16         /* quads that each of them holds, at most; with more of them three dispatches are faster */
#define ATTENTION_GROUPS 128 /* workgroups of an attention, at least: about as many as a GPU has processors */

/* --- convolution ---------------------------------------------------------------------------------------------------
 */

/* Whether one value a channel is added where a map of noise would be: see vk_join.h. */
static bool ops_shifts(const struct vk_frame *frame)
{
    const struct vk_operand *map = &frame->in[OP_NOISE_MAP];
    return map->n && map->h == 1 && map->w == 1 && frame->y.h * frame->y.w > 1;
}

static uint32_t ops_conv_flags(const struct vk_frame *frame)
{
    const struct op_conv2d *args = &frame->node->args.conv2d;
    return vk_frame_bias_flag(frame) | (frame->in[OP_RESIDUAL1].n ? FLAG_RESIDUAL1 : 0) |
           (frame->in[OP_RESIDUAL2].n ? FLAG_RESIDUAL2 : 0) | (frame->in[OP_IN_SCALE].n ? FLAG_IN_SCALE : 0) |
           (frame->in[OP_OUT_SCALE].n ? FLAG_OUT_SCALE : 0) |
           (frame->in[OP_NOISE_MAP].n ? ops_shifts(frame) ? FLAG_SHIFT : FLAG_NOISE : 0) |
           (args->activation_last ? FLAG_ACTIVATION_LAST : 0) |
           (vk_join_transforms(frame->build->graph, frame->node) ? FLAG_TRANSFORM : 0) |
           (args->gain != 1.0f || args->scale != 1.0f ? FLAG_SCALED : 0) |
           (args->pad_mode == PAD_REFLECT ? FLAG_REFLECT : 0);
}

/* Sets the dispatch's constants, groups and tiles_x for shaders/conv2d.comp. In software a subgroup is a row of 8
 * pixels. Weights are loaded once for all of them, and pixels one by one, so many rows pay, until the unrolled code
 * takes longer to compile than to run. It depends on the picture's size only as small or not, so that few pipelines
 * serve all. */
static void ops_plain_conv2d(struct vk_frame *frame, uint32_t flags)
{
    const struct op_conv2d *args = &frame->node->args.conv2d;
    struct vk_dispatch *dispatch = &frame->dispatch;
    const uint32_t columns = 8, blocks = (uint32_t)frame->y.layout.blocks, out_per = blocks > 1 ? 2 : 1;
    const uint32_t rows = args->kernel <= 3 && frame->y.h >= 8 ? 8 : frame->y.h >= 4 ? 4 : 1;
    const uint32_t constants[] = {columns,
                                  1,
                                  rows,
                                  out_per,
                                  (uint32_t)args->kernel,
                                  (uint32_t)args->stride,
                                  (uint32_t)args->pad,
                                  (uint32_t)args->upsample,
                                  args->activation,
                                  flags};
    for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++)
        vk_frame_spec(dispatch, constants[i]);
    dispatch->push.conv2d.tiles_x = vk_frame_div_up(frame->y.w, columns);
    dispatch->groups[0] = dispatch->push.conv2d.tiles_x * vk_frame_div_up(frame->y.h, rows);
    dispatch->groups[1] = vk_frame_div_up(blocks, out_per);
    dispatch->groups[2] = frame->y.n;
}

/* The factor of the pixel shuffle that was joined to the convolution, or 1. */
static int ops_joined_factor(const struct vk_frame *frame)
{
    const struct graph *graph = frame->build->graph;
    const struct node *next = frame->node + 1;
    return next < graph->nodes + graph->node_count && vk_join_shuffles(next) ? next->args.shuffle.factor : 1;
}

/* Makes the larger picture look like one of the convolution's size with the channels of each pixel in quads of their
 * own, which fill the same bytes. */
static void ops_unshuffle_result(struct vk_frame *frame, int factor)
{
    vk_pack_layout_shuffled(frame->y.layout.channels, frame->y.layout.group_log, factor, &frame->y.layout);
    frame->y.h /= (uint32_t)factor;
    frame->y.w /= (uint32_t)factor;
}

static enum error_code ops_conv2d(struct vk_frame *frame, struct error *err)
{
    const struct op_conv2d *args = &frame->node->args.conv2d;
    struct vk_dispatch *dispatch = &frame->dispatch;
    struct params_conv2d *push = &dispatch->push.conv2d;
    const bool matrix = vk_matrix_takes(frame->build, frame->node);
    const bool transforms = vk_join_transforms(frame->build->graph, frame->node);
    const bool shifts = ops_shifts(frame);
    const int factor = ops_joined_factor(frame);
    enum error_code code = OK;
    if (factor > 1)
        ops_unshuffle_result(frame, factor);
    /* Noise is added to every channel and must not be to padding; the rest leaves zeros as they are. */
    if (frame->in[OP_NOISE_MAP].n && !shifts && (code = vk_frame_fit_result(frame, err)) != OK)
        return code;
    if ((code = vk_frame_fit(frame, OP_IN_SCALE, &frame->in[OP_X].layout, err)) != OK ||
        (code = vk_frame_fit(frame, OP_OUT_SCALE, &frame->y.layout, err)) != OK ||
        (shifts && (code = vk_frame_fit(frame, OP_NOISE_MAP, &frame->y.layout, err)) != OK) ||
        (factor == 1 && !transforms && (code = vk_frame_fit(frame, OP_RESIDUAL1, &frame->y.layout, err)) != OK) ||
        (!transforms && (code = vk_frame_fit(frame, OP_RESIDUAL2, &frame->y.layout, err)) != OK) ||
        (code = vk_frame_pack_vectors(frame, err)) != OK)
        return code;
    *push = (struct params_conv2d){.in_h = frame->in[OP_X].h,
                                   .in_w = frame->in[OP_X].w,
                                   .out_h = frame->y.h,
                                   .out_w = frame->y.w,
                                   .in_blocks = (uint32_t)frame->in[OP_X].layout.blocks,
                                   .out_blocks = (uint32_t)frame->y.layout.blocks,
                                   .out_channels = (uint32_t)frame->y.layout.channels,
                                   .slope = args->slope,
                                   .gain = args->gain,
                                   .scale = args->scale,
                                   .residual1_scale = args->residual1_scale,
                                   .residual2_scale = args->residual2_scale,
                                   .noise_weight = args->noise_weight};
    const struct {
        int slot;
        uint32_t bind;
        struct params_operand *at;
    } inputs[] = {{OP_X, BIND_X, &push->x},
                  {OP_RESIDUAL1, BIND_RESIDUAL1, &push->residual1},
                  {OP_RESIDUAL2, BIND_RESIDUAL2, &push->residual2},
                  {OP_IN_SCALE, BIND_IN_SCALE, &push->in_scale},
                  {OP_OUT_SCALE, BIND_OUT_SCALE, &push->out_scale},
                  {OP_NOISE_MAP, BIND_NOISE, &push->noise}};
    push->y = vk_plan_bind(frame->build, dispatch, BIND_Y, &frame->y);
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++)
        if (frame->in[inputs[i].slot].n)
            *inputs[i].at = vk_plan_bind(frame->build, dispatch, inputs[i].bind, &frame->in[inputs[i].slot]);
    if (transforms) { /* where all channels would begin */
        push->residual1.base -= push->out_blocks / 2 * push->out_h * push->out_w;
        push->residual2.base -= push->out_blocks / 2 * push->out_h * push->out_w;
    }
    const uint32_t taps = (uint32_t)(args->kernel * args->kernel);
    if (matrix && factor == 1 && vk_direct_takes(frame->build, args, &frame->in[OP_X])) {
        vk_direct_conv2d(frame->build->device, args, &frame->in[OP_X], &frame->y, &frame->in[OP_RESIDUAL1],
                         ops_conv_flags(frame), dispatch);
        code = vk_frame_pack(frame, OP_WEIGHT, PACK_DIRECT, taps, false, BIND_WEIGHT, err);
    } else if (matrix) {
        vk_matrix_conv2d(frame->build->device, args, &frame->in[OP_X], &frame->y, &frame->in[OP_RESIDUAL1],
                         &frame->in[OP_RESIDUAL2], ops_conv_flags(frame), factor, dispatch);
        code = vk_frame_pack(frame, OP_WEIGHT, PACK_MATRIX, taps, false, BIND_WEIGHT, err);
    } else if (vk_tiled_takes(frame->build, args)) {
        vk_tiled_conv2d(frame->build, args, &frame->in[OP_X], &frame->y, ops_conv_flags(frame), dispatch);
        if (vk_tiled_wants(frame->build->device, dispatch, PACK_CONV))
            code = vk_frame_pack(frame, OP_WEIGHT, PACK_CONV, taps, false, BIND_WEIGHT, err);
        if (code == OK && vk_tiled_wants(frame->build->device, dispatch, PACK_WINOGRAD))
            code = vk_frame_pack(frame, OP_WEIGHT, PACK_WINOGRAD, taps,
                                 !vk_tiled_packed(frame->build->device, &dispatch->tune), BIND_WINOGRAD, err);
    } else {
        ops_plain_conv2d(frame, ops_conv_flags(frame));
        code = vk_frame_pack(frame, OP_WEIGHT, PACK_CONV, taps, false, BIND_WEIGHT, err);
    }
    if (code != OK)
        return code;
    dispatch->work = graph_node_macs(frame->build->graph, frame->node);
    if (dispatch->work < vk_frame_quad_work(&frame->y))
        dispatch->work = vk_frame_quad_work(&frame->y);
    code = vk_plan_add(frame->build, dispatch, err);
    return code == OK ? vk_frame_copy_result(frame, err) : code;
}

/* --- the other operators -------------------------------------------------------------------------------------------
 */

static enum error_code ops_depthwise(struct vk_frame *frame, struct error *err)
{
    const struct op_depthwise *args = &frame->node->args.depthwise;
    enum error_code code = vk_frame_fit(frame, OP_X, &frame->y.layout, err);
    if (code == OK)
        code = vk_frame_pack(frame, OP_WEIGHT, PACK_DEPTHWISE, (uint32_t)(args->kernel * args->kernel), false,
                             BIND_WEIGHT, err);
    if (code == OK)
        code = vk_frame_pack_vectors(frame, err);
    if (code != OK)
        return code;
    vk_frame_spec(&frame->dispatch, (uint32_t)args->kernel);
    vk_frame_spec(&frame->dispatch, (uint32_t)args->stride);
    vk_frame_spec(&frame->dispatch, (uint32_t)args->pad);
    vk_frame_spec(&frame->dispatch, args->activation);
    vk_frame_spec(&frame->dispatch, vk_frame_bias_flag(frame) | (args->pad_mode == PAD_REFLECT ? FLAG_REFLECT : 0));
    frame->dispatch.push.pixel.slope = args->slope;
    frame->dispatch.work = graph_node_macs(frame->build->graph, frame->node) + vk_frame_quad_work(&frame->y);
    return vk_frame_add_pixel(frame, err);
}

/* linear and demodulate */
static enum error_code ops_vector(struct vk_frame *frame, struct error *err)
{
    const bool linear = frame->node->kind == OP_LINEAR;
    const struct vk_operand *x = &frame->in[OP_X];
    struct vk_dispatch *dispatch = &frame->dispatch;
    enum error_code code = linear ? vk_frame_pack_vectors(frame, err) : vk_frame_fit_result(frame, err);
    if (code == OK)
        code = vk_frame_pack(frame, OP_WEIGHT, PACK_LINEAR, x->h * x->w, !linear, BIND_WEIGHT, err);
    if (code != OK)
        return code;
    vk_frame_spec(dispatch, (uint32_t)x->layout.blocks);
    vk_frame_spec(dispatch, x->h * x->w);
    if (linear) {
        vk_frame_spec(dispatch, frame->node->args.linear.activation);
        vk_frame_spec(dispatch, vk_frame_bias_flag(frame));
        dispatch->push.vector.slope = frame->node->args.linear.slope;
    } else {
        vk_frame_spec(dispatch, (uint32_t)frame->y.layout.channels);
        dispatch->push.vector.epsilon = frame->node->args.demodulate.epsilon;
    }
    dispatch->push.vector.x = vk_plan_bind(frame->build, dispatch, BIND_X, x);
    dispatch->push.vector.y = vk_plan_bind(frame->build, dispatch, BIND_Y, &frame->y);
    dispatch->groups[0] = (uint32_t)frame->y.layout.blocks;
    dispatch->groups[1] = 1;
    dispatch->groups[2] = frame->y.n;
    dispatch->work = graph_node_macs(frame->build->graph, frame->node) * 8; /* it waits for the weights' bytes */
    code = vk_plan_add(frame->build, dispatch, err);
    return code == OK ? vk_frame_copy_result(frame, err) : code;
}

static enum error_code ops_shuffle(struct vk_frame *frame, struct error *err)
{
    struct vk_layout dense;
    enum error_code code = vk_frame_fit_result(frame, err);
    vk_pack_layout_dense(frame->in[OP_X].layout.channels, frame->build->grouped, &dense);
    if (code == OK)
        code = vk_frame_fit(frame, OP_X, &dense, err);
    if (code == OK)
        code = vk_frame_fit(frame, OP_RESIDUAL1, &frame->y.layout, err);
    if (code != OK)
        return code;
    vk_frame_spec(&frame->dispatch, (uint32_t)frame->node->args.shuffle.factor);
    vk_frame_spec(&frame->dispatch, (uint32_t)frame->y.layout.channels);
    if (frame->node->kind == OP_PIXEL_SHUFFLE)
        vk_frame_spec(&frame->dispatch, frame->in[OP_RESIDUAL1].n ? FLAG_RESIDUAL1 : 0);
    return vk_frame_add_pixel(frame, err);
}

/* By how many pixels an input reaches beyond each side of the output, and whether residual1 is of one pixel alone. */
static void ops_spec_sides(struct vk_frame *frame, int larger)
{
    const struct vk_operand *y = &frame->y, *in = &frame->in[larger], *residual = &frame->in[OP_RESIDUAL1];
    const bool single = residual->h == 1 && residual->w == 1;
    vk_frame_spec(&frame->dispatch, larger == OP_RESIDUAL1 && single ? 0 : (in->h - y->h) / 2);
    vk_frame_spec(&frame->dispatch, single);
}

/* Operators whose inputs all have the channels of y: lanes match lanes. */
static enum error_code ops_lanewise(struct vk_frame *frame, struct error *err)
{
    const union op_args *args = &frame->node->args;
    struct vk_dispatch *dispatch = &frame->dispatch;
    enum error_code code = vk_frame_pack_vectors(frame, err);
    for (int slot = OP_X; slot <= OP_RESIDUAL2 && code == OK; slot++)
        code = vk_frame_fit(frame, slot, &frame->y.layout, err);
    if (code != OK)
        return code;
    if (frame->node->kind == OP_RESIZE) {
        const struct vk_operand *x = &frame->in[OP_X], *y = &frame->y;
        const bool bilinear = args->resize.mode == RESIZE_BILINEAR;
        const bool doubles = bilinear && y->h == 2 * x->h && y->w == 2 * x->w;
        vk_frame_spec(dispatch, (bilinear ? FLAG_BILINEAR : 0) | (doubles ? FLAG_DOUBLES : 0) |
                                    (x->h == 2 * y->h && x->w == 2 * y->w ? FLAG_HALVES : 0));
        dispatch->work = vk_frame_quad_work(y);
        if (doubles)
            vk_frame_pixel_groups(dispatch, x);
    } else if (frame->node->kind == OP_MAX_POOL) {
        vk_frame_spec(dispatch, (uint32_t)args->max_pool.kernel);
        vk_frame_spec(dispatch, (uint32_t)args->max_pool.stride);
        vk_frame_spec(dispatch, (uint32_t)args->max_pool.pad);
    } else if (frame->node->kind == OP_ADD) {
        vk_frame_spec(dispatch, args->add.activation);
        ops_spec_sides(frame, OP_RESIDUAL1);
        vk_frame_spec(dispatch, frame->in[OP_X].h != frame->y.h); /* vk_join.h */
        dispatch->push.pixel.slope = args->add.slope;
        dispatch->push.pixel.x_scale = args->add.x_scale;
        dispatch->push.pixel.residual1_scale = args->add.residual1_scale;
    } else if (frame->node->kind == OP_SCALE_SHIFT) {
        ops_spec_sides(frame, OP_X);
    } else if (frame->node->kind == OP_GATE) {
        vk_frame_spec(dispatch, frame->in[OP_RESIDUAL1].n ? FLAG_RESIDUAL1 : 0);
        dispatch->push.pixel.x_scale = args->gate.offset;
    }
    return vk_frame_add_pixel(frame, err);
}

static enum error_code ops_mean(struct vk_frame *frame, struct error *err)
{
    const struct vk_operand *x = &frame->in[OP_X];
    struct vk_dispatch *dispatch = &frame->dispatch;
    enum error_code code = vk_frame_fit(frame, OP_X, &frame->y.layout, err);
    if (code != OK)
        return code;
    if (vk_moments_wanted_mean(x->h * x->w))
        return vk_moments_mean(frame->build, &frame->y, x, &frame->in[OP_NOISE_MAP], err);
    vk_frame_spec(dispatch, (uint32_t)x->layout.blocks);
    vk_frame_spec(dispatch, 1);
    vk_frame_spec(dispatch, frame->in[OP_NOISE_MAP].n ? FLAG_NOISE : 0);
    dispatch->push.vector.x = vk_plan_bind(frame->build, dispatch, BIND_X, x);
    dispatch->push.vector.y = vk_plan_bind(frame->build, dispatch, BIND_Y, &frame->y);
    if (frame->in[OP_NOISE_MAP].n)
        dispatch->push.vector.noise = vk_plan_bind(frame->build, dispatch, BIND_NOISE, &frame->in[OP_NOISE_MAP]);
    dispatch->push.vector.pixels = x->h * x->w;
    dispatch->groups[0] = (uint32_t)frame->y.layout.blocks;
    dispatch->groups[1] = 1;
    dispatch->groups[2] = frame->y.n;
    dispatch->work = vk_frame_quad_work(x);
    return vk_plan_add(frame->build, dispatch, err);
}

static enum error_code ops_sample(struct vk_frame *frame, struct error *err)
{
    const struct op_sample *args = &frame->node->args.sample;
    const struct vk_layout *layout = &frame->in[OP_X].layout;
    struct vk_pack_key weight = {.param = frame->node->param[OP_WEIGHT], .kind = PACK_TENSOR, .taps = 1};
    struct vk_layout places;
    vk_pack_layout_dense(2 * args->groups * args->factor * args->factor, frame->build->grouped, &places);
    weight.out = places;
    if (layout->blocks != args->groups || layout->group_log)
        return error_set(err, ERROR_INTERNAL, "operator sample: a group of channels is not one quad");
    enum error_code code = vk_frame_fit_result(frame, err);
    if (code == OK)
        code = vk_frame_fit(frame, OP_RESIDUAL1, &places, err);
    if (code == OK)
        code = vk_pack_get(frame->build->device, &weight, &frame->dispatch.bind[BIND_WEIGHT], err);
    if (code != OK)
        return code;
    vk_frame_spec(&frame->dispatch, (uint32_t)args->groups);
    vk_frame_spec(&frame->dispatch, (uint32_t)args->factor);
    frame->dispatch.work = graph_node_macs(frame->build->graph, frame->node) * 4 + vk_frame_quad_work(&frame->y);
    return vk_frame_add_pixel(frame, err);
}

static enum error_code ops_noise(struct vk_frame *frame, struct error *err)
{
    vk_frame_spec(&frame->dispatch, (uint32_t)frame->node->args.noise.layer);
    frame->dispatch.bind[BIND_X] = vk_plan_run_params(frame->build);
    vk_frame_pixel_groups(&frame->dispatch, &frame->y);
    frame->dispatch.groups[0] = vk_frame_div_up(vk_frame_div_up(frame->y.h * frame->y.w, 4), PIXEL_GROUP);
    return vk_frame_add_pixel(frame, err);
}

/* Binds what the shaders of tokens share, appends, and copies a result out of scratch. */
static enum error_code ops_add_tokens(struct vk_frame *frame, struct error *err)
{
    struct vk_dispatch *dispatch = &frame->dispatch;
    struct params_tokens *push = &dispatch->push.tokens;
    const struct vk_operand *like = &frame->in[OP_RESIDUAL1], *values = &frame->in[OP_RESIDUAL2];
    push->size = frame->y.h * frame->y.w;
    push->y = vk_plan_bind(frame->build, dispatch, BIND_Y, &frame->y);
    push->x = vk_plan_bind(frame->build, dispatch, BIND_X, &frame->in[OP_X]);
    if (like->n)
        push->like = vk_plan_bind(frame->build, dispatch, BIND_RESIDUAL1, like);
    if (values->n)
        push->values = vk_plan_bind(frame->build, dispatch, BIND_RESIDUAL2, values);
    dispatch->groups[2] = frame->y.n;
    enum error_code code = vk_plan_add(frame->build, dispatch, err);
    return code == OK ? vk_frame_copy_result(frame, err) : code;
}

/* Makes all operands dense: quads are then counted through all channels. */
static enum error_code ops_fit_dense(struct vk_frame *frame, struct error *err)
{
    struct vk_layout dense;
    enum error_code code = vk_frame_fit_result(frame, err);
    vk_pack_layout_dense(graph_channels(frame->build->graph, frame->node->in[OP_X]), frame->build->grouped, &dense);
    for (int slot = OP_X; slot <= OP_RESIDUAL2 && code == OK; slot++)
        code = vk_frame_fit(frame, slot, &dense, err);
    return code;
}

/* The widest workgroup for `count` things of which an invocation takes a few; a power of 2. */
static uint32_t ops_group_of(const struct vk_frame *frame, uint32_t count, uint32_t most)
{
    const VkPhysicalDeviceLimits *limits = &frame->build->device->traits.limits;
    uint32_t group = PIXEL_GROUP;
    while (group < most && group < count && 2 * group <= limits->maxComputeWorkGroupInvocations &&
           2 * group <= limits->maxComputeWorkGroupSize[0])
        group *= 2;
    return group;
}

/* Quads that each invocation of a group norm holds, a power of 2 so that few pipelines serve all sizes; 0: too many. */
static uint32_t ops_norm_held(uint32_t count, uint32_t group)
{
    uint32_t held = 1;
    while (held <= NORM_HELD && held * group < count)
        held *= 2;
    return held <= NORM_HELD ? held : 0;
}

/* Invocations that share a pixel of a layer norm: more where few pixels would leave a GPU idle. */
static uint32_t ops_layer_shares(uint32_t quads, uint32_t size)
{
    uint32_t shares = 1;
    while (shares < 32 && shares * 8 <= quads && size * shares < 32768)
        shares *= 2;
    return shares;
}

static enum error_code ops_norm(struct vk_frame *frame, struct error *err)
{
    const struct op_norm *args = &frame->node->args.norm;
    struct vk_dispatch *dispatch = &frame->dispatch;
    const bool layer = frame->node->kind == OP_LAYER_NORM;
    enum error_code code = ops_fit_dense(frame, err);
    if (code == OK)
        code = vk_frame_pack(frame, OP_WEIGHT, PACK_TENSOR, 1, true, BIND_WEIGHT, err);
    if (code == OK)
        code = vk_frame_pack_vectors(frame, err);
    if (code != OK)
        return code;
    const uint32_t size = frame->y.h * frame->y.w, channels = (uint32_t)frame->y.layout.channels;
    const uint32_t each = channels / (uint32_t)args->groups, quads = each < 4 ? 1 : each / 4;
    const float count = (float)each * (float)(layer ? 1 : size);
    dispatch->push.tokens.mean_factor = 1 / count;
    dispatch->push.tokens.variance_factor = 1 / (args->unbiased ? count - 1 : count);
    dispatch->push.tokens.epsilon = args->epsilon;
    vk_frame_spec(dispatch, layer ? (uint32_t)frame->y.layout.blocks : quads);
    if (!layer)
        vk_frame_spec(dispatch, each);
    vk_frame_spec(dispatch, channels);
    if (!layer)
        vk_frame_spec(dispatch, args->activation);
    vk_frame_spec(dispatch, vk_frame_bias_flag(frame) | (frame->node->param[OP_WEIGHT] ? FLAG_IN_SCALE : 0) |
                                (frame->in[OP_RESIDUAL1].n ? FLAG_RESIDUAL1 : 0));
    const uint32_t shares = ops_layer_shares(vk_frame_div_up(channels, 4), size);
    vk_frame_spec(dispatch, layer ? shares : (uint32_t)frame->y.layout.blocks);
    const uint32_t group = ops_group_of(frame, quads * size / 4, NORM_GROUP);
    const uint32_t held = ops_norm_held(quads * size, group);
    if (!layer) {
        vk_frame_spec(dispatch, group);
        vk_frame_spec(dispatch, held);
    }
    dispatch->groups[0] =
        layer ? vk_frame_div_up(size, PIXEL_GROUP / shares) : vk_frame_div_up(vk_frame_div_up(channels, 4), quads);
    dispatch->groups[1] = 1;
    dispatch->work = 4 * vk_frame_quad_work(&frame->y);
    if (layer || held > 0 || !vk_moments_wanted_norm(quads, size))
        return ops_add_tokens(frame, err);
    code = vk_moments_norm(frame->build, dispatch, &frame->y, &frame->in[OP_X], &frame->in[OP_RESIDUAL1], err);
    return code == OK ? vk_frame_copy_result(frame, err) : code;
}

/* How a workgroup of an attention is divided: constants of the shader. */
struct attention_group {
    uint32_t group, tokens, width;
};

static bool ops_attention_fits(const struct vk_frame *frame, const struct attention_group *g, uint32_t size,
                               uint32_t quads)
{
    return g->tokens * quads * 16 + g->group * 20 + g->tokens * size * 4 + g->tokens * 4 <=
           frame->build->device->traits.limits.maxComputeSharedMemorySize;
}

/* It does not depend on the number of images, so that the same picture gives the same bytes. */
static struct attention_group ops_attention_group(const struct vk_frame *frame, uint32_t size, uint32_t quads,
                                                  uint32_t heads)
{
    const uint32_t most = ops_group_of(frame, 8 * quads, 512);
    struct attention_group g = {most, 1, 4};
    while (g.tokens < 8 && (uint64_t)size * heads >= g.tokens * 2 * ATTENTION_GROUPS)
        g.tokens *= 2;
    while (!ops_attention_fits(frame, &g, size, quads) && (g.tokens > 1 || g.group > PIXEL_GROUP)) {
        if (g.group > 2 * PIXEL_GROUP || g.tokens == 1) { /* fewer invocations rather than fewer tokens */
            g.group /= 2;
        } else {
            g.tokens /= 2;
            g.group = most;
        }
    }
    while (g.width < quads && g.width < g.group)
        g.width *= 2;
    return g;
}

static enum error_code ops_attention(struct vk_frame *frame, struct error *err)
{
    const struct op_attention *args = &frame->node->args.attention;
    struct vk_dispatch *dispatch = &frame->dispatch;
    enum error_code code = ops_fit_dense(frame, err);
    if (code != OK)
        return code;
    const uint32_t size = frame->y.h * frame->y.w, quads = (uint32_t)(frame->y.layout.channels / args->heads / 4);
    const struct attention_group g = ops_attention_group(frame, size, quads, (uint32_t)args->heads);
    const uint32_t constants[] = {size, quads, (uint32_t)frame->y.layout.blocks, g.group, g.tokens, g.width};
    for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++)
        vk_frame_spec(dispatch, constants[i]);
    dispatch->push.tokens.scale = args->scale;
    dispatch->groups[0] = vk_frame_div_up(size, g.tokens);
    dispatch->groups[1] = (uint32_t)args->heads;
    dispatch->work = graph_node_macs(frame->build->graph, frame->node);
    return ops_add_tokens(frame, err);
}

static enum error_code ops_lookup(struct vk_frame *frame, struct error *err)
{
    struct vk_dispatch *dispatch = &frame->dispatch;
    const uint32_t entries = (uint32_t)frame->in[OP_X].layout.channels, size = frame->y.h * frame->y.w;
    enum error_code code = ops_fit_dense(frame, err);
    if (code == OK)
        code = vk_frame_pack(frame, OP_WEIGHT, PACK_TENSOR, entries, false, BIND_WEIGHT, err);
    if (code != OK)
        return code;
    vk_frame_spec(dispatch, entries);
    vk_frame_spec(dispatch, (uint32_t)frame->y.layout.blocks);
    dispatch->groups[0] = size;
    dispatch->groups[1] = 1;
    dispatch->work = graph_node_macs(frame->build->graph, frame->node) + vk_frame_quad_work(&frame->y);
    return ops_add_tokens(frame, err);
}

enum error_code vk_ops_node(struct vk_build *build, const struct node *node, struct error *err)
{
    static enum error_code (*const makers[OP_KIND_COUNT])(struct vk_frame *, struct error *) = {
        [OP_CONV2D] = ops_conv2d,           [OP_DEPTHWISE] = ops_depthwise, [OP_LINEAR] = ops_vector,
        [OP_DEMODULATE] = ops_vector,       [OP_RESIZE] = ops_lanewise,     [OP_PIXEL_SHUFFLE] = ops_shuffle,
        [OP_PIXEL_UNSHUFFLE] = ops_shuffle, [OP_ADD] = ops_lanewise,        [OP_SCALE_SHIFT] = ops_lanewise,
        [OP_MAX_POOL] = ops_lanewise,       [OP_NOISE] = ops_noise,         [OP_GROUP_NORM] = ops_norm,
        [OP_LAYER_NORM] = ops_norm,         [OP_ATTENTION] = ops_attention, [OP_LOOKUP] = ops_lookup,
        [OP_GATE] = ops_lanewise,           [OP_MEAN] = ops_mean,           [OP_SAMPLE] = ops_sample,
    };
    struct vk_frame frame = {.build = build, .node = node, .dispatch.key.shader = op_name(node->kind)};
    if ((unsigned)node->kind >= OP_KIND_COUNT || !makers[node->kind])
        return error_set(err, ERROR_UNSUPPORTED, "the Vulkan backend has no operator %s", op_name(node->kind));
    enum error_code code = vk_plan_operand(build, node->out, &frame.y, err);
    for (int i = 0; i < OP_MAX_INPUTS && code == OK; i++)
        if (node->in[i].tensor >= 0)
            code = vk_plan_operand(build, node->in[i], &frame.in[i], err);
    if (code == OK)
        code = vk_frame_narrow(&frame, err);
    return code == OK ? makers[node->kind](&frame, err) : code;
}
