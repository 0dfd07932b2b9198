#include "runtime/vulkan/vk_frame.h"

#include <assert.h>
#include <stdlib.h>

#include "runtime/base/mem.h"

uint32_t vk_frame_div_up(uint32_t a, uint32_t b)
{
    return (a + b - 1) / b;
}

void vk_frame_spec(struct vk_dispatch *dispatch, uint32_t value)
{
    assert(dispatch->key.spec_count < VK_PIPELINE_MAX_SPEC);
    dispatch->key.spec[dispatch->key.spec_count++] = value;
}

/* --- channels ------------------------------------------------------------------------------------------------------
 */

uint64_t vk_frame_quad_work(const struct vk_operand *y)
{
    return (uint64_t)y->n * (uint64_t)y->layout.blocks * y->h * y->w * 64;
}

void vk_frame_pixel_groups(struct vk_dispatch *dispatch, const struct vk_operand *y)
{
    dispatch->groups[0] = vk_frame_div_up(y->h * y->w << y->layout.group_log, PIXEL_GROUP);
    dispatch->groups[1] = (uint32_t)y->layout.blocks >> y->layout.group_log;
    dispatch->groups[2] = y->n;
    if (dispatch->work == 0)
        dispatch->work = vk_frame_quad_work(y);
}

/* Uploads for each lane of `to` the lane of `from` (NULL: the channel) that it takes, or none. */
static enum error_code frame_lane_map(struct vk_build *build, const struct vk_layout *to, const struct vk_layout *from,
                                      struct vk_slice *out, struct error *err)
{
    const size_t count = (size_t)to->blocks * 4, from_count = from ? (size_t)from->blocks * 4 : 0;
    enum error_code code = OK;
    uint32_t *lanes = mem_alloc(count, sizeof *lanes);
    uint32_t *from_lanes = mem_alloc(from_count, sizeof *from_lanes);
    uint32_t *lane_of = mem_alloc((size_t)to->channels, sizeof *lane_of);
    if (lanes && from_lanes && lane_of) {
        vk_pack_lanes(to, lanes);
        if (from) {
            vk_pack_lanes(from, from_lanes);
            for (uint32_t i = 0; i < from_count; i++)
                if (from_lanes[i] != VK_PACK_NO_CHANNEL)
                    lane_of[from_lanes[i]] = i;
            for (size_t i = 0; i < count; i++)
                lanes[i] = lanes[i] == VK_PACK_NO_CHANNEL ? VK_PACK_NO_CHANNEL : lane_of[lanes[i]];
        }
        code = vk_plan_words(build, lanes, count, out, err);
    } else {
        code = error_set(err, ERROR_NO_MEMORY, "out of memory for a plan");
    }
    free(lanes);
    free(from_lanes);
    free(lane_of);
    return code;
}

/* Copies x to y, which has the same channels in other lanes, or is narrower. */
static enum error_code frame_regroup(struct vk_build *build, const struct vk_operand *x, const struct vk_operand *y,
                                     struct error *err)
{
    struct vk_dispatch dispatch = {.key.shader = "regroup"};
    enum error_code code = frame_lane_map(build, &y->layout, &x->layout, &dispatch.bind[BIND_WEIGHT], err);
    if (code != OK)
        return code;
    vk_frame_spec(&dispatch, (uint32_t)x->layout.blocks * 4);
    vk_frame_spec(&dispatch, y->fp16 && !x->fp16);
    dispatch.push.pixel.out_h = y->h;
    dispatch.push.pixel.out_w = y->w;
    dispatch.push.pixel.x = vk_plan_bind(build, &dispatch, BIND_X, x);
    dispatch.push.pixel.y = vk_plan_bind(build, &dispatch, BIND_Y, y);
    vk_frame_pixel_groups(&dispatch, y);
    return vk_plan_add(build, &dispatch, err);
}

enum error_code vk_frame_fit(struct vk_frame *frame, int slot, const struct vk_layout *layout, struct error *err)
{
    struct vk_operand *in = &frame->in[slot], copy;
    if (in->n == 0 || vk_pack_layout_same(&in->layout, layout))
        return OK;
    enum error_code code = vk_plan_scratch(frame->build, layout, in->n, in->h, in->w, &copy, err);
    if (code == OK)
        code = frame_regroup(frame->build, in, &copy, err);
    *in = copy;
    return code;
}

/* The slot before this one that has the same view, or none: -1. */
static int frame_same_view(const struct node *node, int slot)
{
    const struct view *view = &node->in[slot];
    for (int i = 0; i < slot; i++)
        if (node->in[i].tensor == view->tensor && node->in[i].first == view->first && node->in[i].count == view->count)
            return i;
    return -1;
}

enum error_code vk_frame_narrow(struct vk_frame *frame, struct error *err)
{
    struct vk_operand copy;
    enum error_code code = OK;
    for (int slot = 0; slot < OP_MAX_INPUTS && code == OK; slot++) {
        struct vk_operand *in = &frame->in[slot];
        const int same = frame_same_view(frame->node, slot);
        if (in->n == 0 || in->fp16 == frame->build->fp16)
            continue;
        if (in->fp16)
            return error_set(err, ERROR_INTERNAL, "a node in fp32 reads fp16");
        if (same < 0) {
            code = vk_plan_scratch(frame->build, &in->layout, in->n, in->h, in->w, &copy, err);
            if (code == OK)
                code = frame_regroup(frame->build, in, &copy, err);
            *in = copy;
        } else {
            *in = frame->in[same];
        }
    }
    return code;
}

enum error_code vk_frame_fit_result(struct vk_frame *frame, struct error *err)
{
    struct vk_layout dense;
    vk_pack_layout_dense(frame->y.layout.channels, frame->build->grouped, &dense);
    if (vk_pack_layout_same(&frame->y.layout, &dense))
        return OK;
    frame->result = frame->y;
    return vk_plan_scratch(frame->build, &dense, frame->y.n, frame->y.h, frame->y.w, &frame->y, err);
}

enum error_code vk_frame_copy_result(struct vk_frame *frame, struct error *err)
{
    return frame->result.n ? frame_regroup(frame->build, &frame->y, &frame->result, err) : OK;
}

enum error_code vk_frame_lanes(struct vk_build *build, const struct vk_layout *layout, struct vk_slice *out,
                               struct error *err)
{
    return frame_lane_map(build, layout, NULL, out, err);
}

/* --- parts of operators --------------------------------------------------------------------------------------------
 */

enum error_code vk_frame_pack(struct vk_frame *frame, int param, enum vk_pack_kind kind, uint32_t taps, bool fp32,
                              uint32_t slot, struct error *err)
{
    struct vk_pack_key key = {.param = frame->node->param[param],
                              .kind = kind,
                              .fp16 = frame->build->fp16 && !fp32,
                              .taps = (int)taps,
                              .out = frame->y.layout};
    if (!key.param)
        return OK;
    if (kind == PACK_CONV || kind == PACK_WINOGRAD || kind == PACK_MATRIX || kind == PACK_DIRECT || kind == PACK_LINEAR)
        key.in = frame->in[OP_X].layout;
    return vk_pack_get(frame->build->device, &key, &frame->dispatch.bind[slot], err);
}

enum error_code vk_frame_pack_vectors(struct vk_frame *frame, struct error *err)
{
    enum error_code code = vk_frame_pack(frame, OP_BIAS, PACK_TENSOR, 1, true, BIND_BIAS, err);
    return code == OK ? vk_frame_pack(frame, OP_SLOPE, PACK_TENSOR, 1, true, BIND_SLOPE, err) : code;
}

uint32_t vk_frame_bias_flag(const struct vk_frame *frame)
{
    return frame->node->param[OP_BIAS] ? FLAG_BIAS : 0;
}

enum error_code vk_frame_add_pixel(struct vk_frame *frame, struct error *err)
{
    struct vk_dispatch *dispatch = &frame->dispatch;
    struct params_pixel *push = &dispatch->push.pixel;
    push->in_h = frame->in[OP_X].h;
    push->in_w = frame->in[OP_X].w;
    push->out_h = frame->y.h;
    push->out_w = frame->y.w;
    push->y = vk_plan_bind(frame->build, dispatch, BIND_Y, &frame->y);
    if (frame->in[OP_X].n)
        push->x = vk_plan_bind(frame->build, dispatch, BIND_X, &frame->in[OP_X]);
    if (frame->in[OP_RESIDUAL1].n)
        push->residual1 = vk_plan_bind(frame->build, dispatch, BIND_RESIDUAL1, &frame->in[OP_RESIDUAL1]);
    if (frame->in[OP_RESIDUAL2].n)
        push->residual2 = vk_plan_bind(frame->build, dispatch, BIND_RESIDUAL2, &frame->in[OP_RESIDUAL2]);
    if (dispatch->groups[0] == 0)
        vk_frame_pixel_groups(dispatch, &frame->y);
    enum error_code code = vk_plan_add(frame->build, dispatch, err);
    return code == OK ? vk_frame_copy_result(frame, err) : code;
}
