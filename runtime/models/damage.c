/* The damage detector (models/training/networks_damage.py): a U-Net at the picture's own size, and a small network that
 * sees the whole picture, reduced. They are two graphs of one file: MODEL_DAMAGE_CONTEXT, once for a picture, and
 * MODEL_DAMAGE_TILE, whose second input is the context enlarged and cut to the tile; or, of a picture that is one tile,
 * one: MODEL_DAMAGE_WHOLE. */
#include <math.h>

#include "runtime/models/unet.h"

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
    shape->variant = MODEL_DAMAGE_WHOLE;
}

/* The last convolution writes an output of the graph. */
static void damage_output(struct model_build *b, const char *name, struct view x, int kernel, int channels)
{
    if (x.tensor < 0)
        return;
    const struct tensor t = *graph_tensor_of(b->graph, x);
    build_conv(b, name, x, graph_tensor(b->graph, TENSOR_OUTPUT, t.n, t.h, t.w, 1, &channels), kernel);
}

static struct view damage_context(struct model_build *b, struct view x)
{
    const struct view one = unet_act(b, "whole.down1", x, 2, VIEW_NONE);
    const struct view two = unet_act(b, "whole.down2", one, 2, VIEW_NONE);
    const struct view three = unet_act(b, "whole.down3", two, 2, VIEW_NONE);
    struct view y = unet_act(b, "whole.down4", three, 2, VIEW_NONE);
    y = unet_blocks(b, "whole.bottom", y);
    y = unet_up(b, "whole.up3", y, three);
    return unet_up(b, "whole.up2", y, two);
}

void model_damage_reduced(int h, int w, int *reduced_h, int *reduced_w)
{
    const int longest = w > h ? w : h;
    const double scale = longest > MODEL_DAMAGE_SIDE ? (double)MODEL_DAMAGE_SIDE / longest : 1;
    *reduced_h = (int)fmax(1, rint(h * scale));
    *reduced_w = (int)fmax(1, rint(w * scale));
}

static void damage_tile(struct model_build *b, struct view x, struct view context)
{
    struct view joined;
    const struct view full = unet_act(b, "second", unet_act(b, "first", x, 1, VIEW_NONE), 1, VIEW_NONE);
    const struct view half = unet_blocks(b, "body1", unet_act(b, "down1", full, 2, VIEW_NONE));
    const struct view quarter = unet_blocks(b, "body2", unet_act(b, "down2", half, 2, VIEW_NONE));
    unet_conv(b, "join", context, 1, 1, &joined);
    struct view y = unet_blocks(b, "body3", unet_act(b, "down3", quarter, 2, joined));
    y = unet_up(b, "up2", y, quarter);
    y = unet_up(b, "up1", y, half);
    y = unet_lateral(b, "lateral", y, full);
    y = unet_act(b, "third", y, 1, VIEW_NONE);
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
    const struct view x = graph_tensor(b->graph, TENSOR_INPUT, n, h, w, 1, &rgb);
    if (shape->variant == MODEL_DAMAGE_CONTEXT) {
        damage_output(b, "whole.last", damage_context(b, x), 1, info->context);
    } else if (shape->variant == MODEL_DAMAGE_TILE) {
        damage_tile(b, x, graph_tensor(b->graph, TENSOR_INPUT, n, h / DAMAGE_CELL, w / DAMAGE_CELL, 1, &info->context));
    } else {
        int reduced_h, reduced_w;
        struct view context;
        model_damage_reduced(h, w, &reduced_h, &reduced_w);
        const struct view reduced = graph_tensor(b->graph, TENSOR_INPUT, n, reduced_h, reduced_w, 1, &rgb);
        unet_conv(b, "whole.last", damage_context(b, reduced), 1, 1, &context);
        damage_tile(b, x, build_resize(b, RESIZE_BILINEAR, context, h / DAMAGE_CELL, w / DAMAGE_CELL));
    }
}

const struct architecture architecture_damage = {damage_detect, damage_build, damage_smallest};
