#include "runtime/vulkan/vk_moments.h"

#define NORM_WHOLE 4096 /* quads that one workgroup does in the 15 µs that three dispatches take, on an H200 */
#define MEAN_WHOLE 1024 /* pixels, likewise */
#define PARTS 128       /* of a picture, at most: each join reads them all */

static uint32_t moments_div_up(uint32_t a, uint32_t b)
{
    return (a + b - 1) / b;
}

bool vk_moments_wanted_norm(uint32_t quads, uint32_t pixels)
{
    return (uint64_t)quads * pixels > NORM_WHOLE;
}

bool vk_moments_wanted_mean(uint32_t pixels)
{
    return pixels > MEAN_WHOLE;
}

/* Pixels of a part: whole turns of a workgroup. */
static uint32_t moments_chunk(const struct vk_operand *x)
{
    const uint32_t turn = (PIXEL_GROUP >> x->layout.group_log) * MOMENTS_RUN;
    return turn * moments_div_up(x->h * x->w, turn * PARTS);
}

/* Room for `each` vectors of 4 floats for each quad of x. */
static enum error_code moments_room(struct vk_build *build, const struct vk_operand *x, uint32_t each,
                                    struct vk_operand *out, struct error *err)
{
    const struct vk_layout layout = {.blocks = (int)((uint32_t)x->layout.blocks * x->n * each * (build->fp16 ? 2 : 1))};
    return vk_plan_scratch(build, &layout, 1, 1, 1, out, err);
}

static uint64_t moments_work(const struct vk_operand *x)
{
    return (uint64_t)x->n * (uint64_t)x->layout.blocks * x->h * x->w * 64;
}

/* Appends the moments of x's parts. each: vectors of a part, 1 for means alone. */
static enum error_code moments_take(struct vk_build *build, const struct vk_operand *x, const struct vk_operand *noise,
                                    uint32_t each, struct vk_operand *out, struct error *err)
{
    struct vk_dispatch dispatch = {.key = {.shader = "moments",
                                           .spec = {(uint32_t)x->layout.blocks, each - 1, noise ? FLAG_NOISE : 0},
                                           .spec_count = 3}};
    struct params_tokens *push = &dispatch.push.tokens;
    push->size = x->h * x->w;
    push->chunk = moments_chunk(x);
    const uint32_t parts = moments_div_up(push->size, push->chunk);
    enum error_code code = moments_room(build, x, parts * each, out, err);
    if (code != OK)
        return code;
    vk_plan_bind(build, &dispatch, BIND_Y, out);
    push->x = vk_plan_bind(build, &dispatch, BIND_X, x);
    if (noise)
        push->like = vk_plan_bind(build, &dispatch, BIND_NOISE, noise);
    dispatch.groups[0] = parts;
    dispatch.groups[1] = (uint32_t)x->layout.blocks >> x->layout.group_log;
    dispatch.groups[2] = x->n;
    dispatch.work = moments_work(x);
    return vk_plan_add(build, &dispatch, err);
}

static enum error_code moments_apply(struct vk_build *build, uint32_t activation, const struct vk_operand *factors,
                                     const struct vk_operand *y, const struct vk_operand *x, struct error *err)
{
    const uint32_t blocks = (uint32_t)y->layout.blocks;
    struct vk_dispatch dispatch = {.key = {.shader = "moments_apply", .spec = {blocks, activation}, .spec_count = 2},
                                   .groups = {moments_div_up(y->h * y->w << y->layout.group_log, PIXEL_GROUP),
                                              blocks >> y->layout.group_log, y->n},
                                   .work = moments_work(y)};
    dispatch.push.pixel.out_h = y->h;
    dispatch.push.pixel.out_w = y->w;
    dispatch.push.pixel.y = vk_plan_bind(build, &dispatch, BIND_Y, y);
    dispatch.push.pixel.x = vk_plan_bind(build, &dispatch, BIND_X, x);
    vk_plan_bind(build, &dispatch, BIND_WEIGHT, factors);
    return vk_plan_add(build, &dispatch, err);
}

enum error_code vk_moments_norm(struct vk_build *build, const struct vk_dispatch *whole, const struct vk_operand *y,
                                const struct vk_operand *x, const struct vk_operand *like, struct error *err)
{
    enum { ACTIVATION = 3 }; /* constant of group_norm.comp */
    struct vk_dispatch join = *whole;
    struct vk_operand of_x, of_like, factors;
    enum error_code code = moments_take(build, x, NULL, 2, &of_x, err);
    if (code == OK && like->n)
        code = moments_take(build, like, NULL, 2, &of_like, err);
    if (code == OK)
        code = moments_room(build, y, 3, &factors, err);
    if (code != OK)
        return code;
    join.key.shader = "moments_join";
    join.push.tokens.size = x->h * x->w;
    join.push.tokens.chunk = moments_chunk(x);
    join.groups[2] = y->n;
    join.work = (uint64_t)PARTS * (uint64_t)x->layout.blocks * x->n * 64;
    vk_plan_bind(build, &join, BIND_Y, &factors);
    vk_plan_bind(build, &join, BIND_X, &of_x);
    if (like->n)
        vk_plan_bind(build, &join, BIND_RESIDUAL1, &of_like);
    code = vk_plan_add(build, &join, err);
    return code == OK ? moments_apply(build, whole->key.spec[ACTIVATION], &factors, y, x, err) : code;
}

enum error_code vk_moments_mean(struct vk_build *build, const struct vk_operand *y, const struct vk_operand *x,
                                const struct vk_operand *noise, struct error *err)
{
    const uint32_t blocks = (uint32_t)x->layout.blocks;
    struct vk_operand means;
    struct vk_dispatch join = {.key = {.shader = "mean_join", .spec = {blocks}, .spec_count = 1},
                               .groups = {blocks, 1, y->n},
                               .work = (uint64_t)PARTS * blocks * x->n * 64};
    enum error_code code = moments_take(build, x, noise->n ? noise : NULL, 1, &means, err);
    if (code != OK)
        return code;
    join.push.tokens.size = x->h * x->w;
    join.push.tokens.chunk = moments_chunk(x);
    join.push.tokens.y = vk_plan_bind(build, &join, BIND_Y, y);
    vk_plan_bind(build, &join, BIND_X, &means);
    return vk_plan_add(build, &join, err);
}
