/* The damage detector (models/training/networks_damage.py): a U-Net at the picture's own size, and a small network that
 * sees the whole picture, reduced. They are two graphs of one file: MODEL_DAMAGE_CONTEXT, once for a picture, and
 * MODEL_DAMAGE_TILE, whose second input is the context enlarged and cut to the tile. */
#include "runtime/models/model_build.h"

#define DAMAGE_SLOPE 0.1f
#define DAMAGE_CELL 8
#define DAMAGE_HALO 112 /* an output pixel depends on nothing that is farther away; HALO there */

static bool damage_detect(const struct weights *weights, struct model_info *info, struct error *err)
{
    if (build_dim(weights, "whole.down1.weight", 1) != 3 || build_dim(weights, "first.weight", 1) != 3 ||
        !weights_find(weights, "join.weight") || !weights_find(weights, "body3.0.conv1.weight"))
        return false;
    info->kind = MODEL_DAMAGE;
    info->architecture = "DamageUNet";
    info->classes = build_dim(weights, "last.weight", 0);
    info->context = build_dim(weights, "join.weight", 1);
    info->unshuffle = DAMAGE_CELL;
    info->radius = DAMAGE_HALO;
    info->exact_tiles = true;
    if (info->classes != 1 + MODEL_DAMAGE_KINDS || info->context < 1)
        error_set(err, ERROR_UNSUPPORTED, "a damage detector of %d outputs; %d are known", info->classes,
                  1 + MODEL_DAMAGE_KINDS);
    return !err->code;
}

static void damage_smallest(const struct model_info *info, struct session_shape *shape)
{
    (void)info;
    shape->h = shape->w = 64;
    shape->variant = MODEL_DAMAGE_ALL;
}

/* A temporary for a convolution's output: ceil(side/stride). */
static struct view damage_temp(struct model_build *b, const char *name, struct view x, int stride)
{
    const int channels = build_size(b, build_name("%s.weight", name), 0);
    if (x.tensor < 0)
        return VIEW_NONE;
    const struct tensor t = *graph_tensor_of(b->graph, x);
    return graph_temp(b->graph, t.n, channels, (t.h + stride - 1) / stride, (t.w + stride - 1) / stride);
}

static struct node *damage_conv(struct model_build *b, const char *name, struct view x, int kernel, int stride,
                                struct view *out)
{
    *out = damage_temp(b, name, x, stride);
    struct node *node = build_conv(b, name, x, *out, kernel);
    node->args.conv2d.stride = stride;
    return node;
}

/* act(conv(x) + residual) */
static struct view damage_act(struct model_build *b, const char *name, struct view x, int stride, struct view residual)
{
    struct view out;
    struct node *node = damage_conv(b, name, x, 3, stride, &out);
    node->in[OP_RESIDUAL1] = residual;
    node->args.conv2d.residual1_scale = 1;
    node->args.conv2d.activation = ACTIVATION_LEAKY;
    node->args.conv2d.slope = DAMAGE_SLOPE;
    node->args.conv2d.activation_last = true;
    return out;
}

static struct view damage_blocks(struct model_build *b, const char *name, struct view x)
{
    const int count = build_blocks(b, build_name("%s.", name), 0, ".conv1.weight");
    for (int i = 0; i < count; i++) {
        const struct view inner = damage_act(b, build_name("%s.%d.conv1", name, i), x, 1, VIEW_NONE);
        x = damage_act(b, build_name("%s.%d.conv2", name, i), inner, 1, x);
    }
    return x;
}

/* act(conv(x), enlarged by nearest neighbour to skip's size, + skip); conv is 1×1. */
static struct view damage_lateral(struct model_build *b, const char *name, struct view x, struct view skip)
{
    struct view small;
    damage_conv(b, name, x, 1, 1, &small);
    if (small.tensor < 0 || skip.tensor < 0)
        return VIEW_NONE;
    const struct tensor t = *graph_tensor_of(b->graph, skip);
    const struct view large = build_resize(b, RESIZE_NEAREST, small, t.h, t.w);
    const struct view out = build_like(b, skip, t.channels);
    struct node *add = graph_node(b->graph, OP_ADD, out);
    if (add) {
        add->in[OP_X] = large;
        add->in[OP_RESIDUAL1] = skip;
        add->args.add =
            (struct op_add){.x_scale = 1, .residual1_scale = 1, .activation = ACTIVATION_LEAKY, .slope = DAMAGE_SLOPE};
    }
    return out;
}

static struct view damage_up(struct model_build *b, const char *name, struct view x, struct view skip)
{
    const struct view sum = damage_lateral(b, build_name("%s.lateral", name), x, skip);
    return damage_blocks(b, build_name("%s.body", name), sum);
}

/* The last convolution writes an output of the graph. */
static void damage_output(struct model_build *b, const char *name, struct view x, int kernel, int channels)
{
    if (x.tensor < 0)
        return;
    const struct tensor t = *graph_tensor_of(b->graph, x);
    build_conv(b, name, x, graph_tensor(b->graph, TENSOR_OUTPUT, t.n, t.h, t.w, 1, &channels), kernel);
}

static void damage_context(struct model_build *b, struct view x)
{
    const struct view one = damage_act(b, "whole.down1", x, 2, VIEW_NONE);
    const struct view two = damage_act(b, "whole.down2", one, 2, VIEW_NONE);
    const struct view three = damage_act(b, "whole.down3", two, 2, VIEW_NONE);
    struct view y = damage_act(b, "whole.down4", three, 2, VIEW_NONE);
    y = damage_blocks(b, "whole.bottom", y);
    y = damage_up(b, "whole.up3", y, three);
    y = damage_up(b, "whole.up2", y, two);
    damage_output(b, "whole.last", y, 1, model_info(b->model)->context);
}

static void damage_tile(struct model_build *b, struct view x, struct view context)
{
    struct view joined;
    const struct view full = damage_act(b, "second", damage_act(b, "first", x, 1, VIEW_NONE), 1, VIEW_NONE);
    const struct view half = damage_blocks(b, "body1", damage_act(b, "down1", full, 2, VIEW_NONE));
    const struct view quarter = damage_blocks(b, "body2", damage_act(b, "down2", half, 2, VIEW_NONE));
    damage_conv(b, "join", context, 1, 1, &joined);
    struct view y = damage_blocks(b, "body3", damage_act(b, "down3", quarter, 2, joined));
    y = damage_up(b, "up2", y, quarter);
    y = damage_up(b, "up1", y, half);
    y = damage_lateral(b, "lateral", y, full);
    y = damage_act(b, "third", y, 1, VIEW_NONE);
    damage_output(b, "last", y, 3, model_info(b->model)->classes);
}

static void damage_build(struct model_build *b, const struct session_shape *shape)
{
    const int rgb = 3, n = shape->n, h = shape->h, w = shape->w;
    const struct model_info *info = model_info(b->model);
    if (shape->variant != MODEL_DAMAGE_CONTEXT && (h % DAMAGE_CELL || w % DAMAGE_CELL)) {
        build_fail(b, ERROR_INVALID, "%d×%d px are not multiples of %d", w, h, DAMAGE_CELL);
        return;
    }
    struct view x = graph_tensor(b->graph, TENSOR_INPUT, n, h, w, 1, &rgb);
    if (shape->variant != MODEL_DAMAGE_TILE)
        damage_context(b, x);
    if (shape->variant != MODEL_DAMAGE_CONTEXT)
        damage_tile(b, x, graph_tensor(b->graph, TENSOR_INPUT, n, h / DAMAGE_CELL, w / DAMAGE_CELL, 1, &info->context));
}

const struct architecture architecture_damage = {damage_detect, damage_build, damage_smallest};
