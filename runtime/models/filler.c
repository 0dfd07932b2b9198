/* The filler of damage (models/training/networks_fill.py): a U-Net from 1/2 of the picture's size on, which corrects
 * what its holes were filled with before. */
#include "runtime/models/unet.h"

#define FILLER_LEVELS 8 /* at most; sides must be multiples of 2^levels */

static int filler_levels(const struct weights *weights)
{
    return build_count(weights, "down.%d.weight") + 1;
}

static bool filler_detect(const struct weights *weights, struct model_info *info, struct error *err)
{
    if (build_dim(weights, "head.weight", 1) != 16 || build_dim(weights, "tail.weight", 0) != 12 ||
        !weights_find(weights, "body.0.0.conv1.weight") || !weights_find(weights, "up.0.lateral.weight"))
        return false;
    const int levels = filler_levels(weights);
    if (levels > FILLER_LEVELS)
        error_set(err, ERROR_UNSUPPORTED, "a filler of %d sizes; at most %d are supported", levels, FILLER_LEVELS);
    info->kind = MODEL_FILLER;
    info->architecture = "FillUNet";
    info->unshuffle = 1 << levels;
    return !err->code;
}

static void filler_smallest(const struct model_info *info, struct session_shape *shape)
{
    shape->h = shape->w = info->unshuffle;
}

static void filler_build(struct model_build *b, const struct session_shape *shape)
{
    const int cell = model_info(b->model)->unshuffle, levels = build_blocks(b, "down.", 0, ".weight") + 1;
    const int four = 4, rgb = 3, quarters[2] = {12, 4}, n = shape->n, h = shape->h, w = shape->w;
    struct graph *g = b->graph;
    if (h % cell || w % cell) {
        build_fail(b, ERROR_INVALID, "%d×%d px are not multiples of %d", w, h, cell);
        return;
    }
    /* The picture's samples and the mask's lie apart, so that the former can be added at the end. */
    struct view deep = graph_tensor(g, TENSOR_TEMP, n, h / 2, w / 2, 2, quarters), skips[FILLER_LEVELS];
    struct node *split = graph_node(g, OP_PIXEL_UNSHUFFLE, deep);
    if (split) {
        split->in[OP_X] = graph_tensor(g, TENSOR_INPUT, n, h, w, 1, &four);
        split->args.shuffle.factor = 2;
    }
    struct view y = unet_blocks(b, "body.0", unet_act(b, "head", deep, 1, VIEW_NONE));
    for (int i = 1; i < levels; i++) {
        skips[i] = y;
        y = unet_act(b, build_name("down.%d", i - 1), y, 2, VIEW_NONE);
        y = unet_blocks(b, build_name("body.%d", i), y);
    }
    for (int i = levels - 1; i > 0; i--)
        y = unet_up(b, build_name("up.%d", i - 1), y, skips[i]);
    struct view quarter;
    struct node *tail = unet_conv(b, "tail", y, 3, 1, &quarter);
    tail->in[OP_RESIDUAL1] = graph_segments(deep, 0, 1);
    tail->args.conv2d.residual1_scale = 1;
    struct node *join = graph_node(g, OP_PIXEL_SHUFFLE, graph_tensor(g, TENSOR_OUTPUT, n, h, w, 1, &rgb));
    if (join) {
        join->in[OP_X] = quarter;
        join->args.shuffle.factor = 2;
    }
}

const struct architecture architecture_filler = {filler_detect, filler_build, filler_smallest};
