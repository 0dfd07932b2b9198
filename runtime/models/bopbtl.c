/* The scratch detector of "Bringing Old Photos Back to Life" (Wan et al. 2020; names as in its
 * Global/detection_models/networks.py): a U-Net from gray to one logit. Every convolution is padded by reflection, and
 * what is halved is blurred before. It was trained at, and is given, about 256 px: MODEL_DAMAGE_SIDE. */
#include "runtime/models/model_build.h"

#define BOPBTL_LEVELS 8 /* at most; there are 4 */

static bool bopbtl_detect(const struct weights *weights, struct model_info *info, struct error *err)
{
    const int levels = build_count(weights, "down_path.%d.block.1.weight");
    if (build_dim(weights, "first.1.weight", 1) != 1 || levels < 1 || !weights_find(weights, "down_sample.0.4.filt") ||
        !weights_find(weights, "up_path.0.conv_block.block.1.weight"))
        return false;
    if (levels > BOPBTL_LEVELS)
        error_set(err, ERROR_UNSUPPORTED, "a scratch detector of %d levels; at most %d are supported", levels,
                  BOPBTL_LEVELS);
    info->kind = MODEL_DAMAGE;
    info->architecture = "BOPBTL-UNet";
    info->classes = build_dim(weights, "last.1.weight", 0);
    info->unshuffle = 1 << levels;
    if (info->classes != 1 && !err->code)
        error_set(err, ERROR_UNSUPPORTED, "a scratch detector of %d outputs; one is known", info->classes);
    return !err->code;
}

static void bopbtl_smallest(const struct model_info *info, struct session_shape *shape)
{
    shape->h = shape->w = 2 * info->unshuffle; /* so that reflection finds a second pixel everywhere */
}

/* Rec. 601 luma of RGB -0.5..0.5, as -1..1. */
static void bopbtl_luma(struct model_build *b, const char *name, float *values, size_t count)
{
    static const float luma[3] = {0.299f, 0.587f, 0.114f};
    (void)b;
    (void)name;
    for (size_t i = 0; i < count; i++)
        values[i] = 2 * luma[i];
}

/* A convolution with batch norm and LeakyReLU into out. */
static void bopbtl_act(struct model_build *b, const char *conv, const char *norm, struct view x, struct view out)
{
    struct op_conv2d *args = &build_conv_bn(b, conv, norm, x, out, 3)->args.conv2d;
    args->pad_mode = PAD_REFLECT;
    args->activation = ACTIVATION_LEAKY;
    args->slope = 0.2f;
}

/* UNetConvBlock: two of them. The second one's output is `out`. */
static void bopbtl_block(struct model_build *b, const char *name, struct view x, struct view out)
{
    if (out.tensor < 0)
        return;
    const struct view middle = build_like(b, out, graph_channels(b->graph, out));
    bopbtl_act(b, build_name("%s.block.1", name), build_name("%s.block.2", name), x, middle);
    bopbtl_act(b, build_name("%s.block.5", name), build_name("%s.block.6", name), middle, out);
}

/* down_sample: a convolution, and a fixed blur that halves the size. */
static struct view bopbtl_halve(struct model_build *b, int level, struct view x)
{
    const int channels = x.tensor < 0 ? 0 : graph_channels(b->graph, x);
    if (channels < 1)
        return VIEW_NONE;
    const struct tensor t = *graph_tensor_of(b->graph, x);
    const struct view sharp = build_like(b, x, channels), out = graph_temp(b->graph, t.n, channels, t.h / 2, t.w / 2);
    bopbtl_act(b, build_name("down_sample.%d.1", level), build_name("down_sample.%d.2", level), x, sharp);
    const struct param *filter =
        build_param(b, build_name("down_sample.%d.4.filt", level), 4, (int[]){channels, 1, 3, 3});
    build_depthwise_of(b, filter, NULL, sharp, out, 3, 2)->args.depthwise.pad_mode = PAD_REFLECT;
    return out;
}

static void bopbtl_build(struct model_build *b, const struct session_shape *shape)
{
    struct graph *g = b->graph;
    const int cell = model_info(b->model)->unshuffle, rgb = 3, one = 1, n = shape->n, h = shape->h, w = shape->w;
    const int levels = build_blocks(b, "down_path.", 0, ".block.1.weight");
    struct view wide[BOPBTL_LEVELS]; /* what comes up, and what went down there */
    if (h % cell || w % cell) {
        build_fail(b, ERROR_INVALID, "%d×%d px are not multiples of %d", w, h, cell);
        return;
    }
    const struct view gray = graph_temp(g, n, 1, h, w);
    build_conv_of(b, build_derived(b, "luma", 3, bopbtl_luma), graph_tensor(g, TENSOR_INPUT, n, h, w, 1, &rgb), gray,
                  1);
    struct view x = VIEW_NONE;
    for (int i = 0; i < levels; i++) {
        const int channels = build_size(b, i ? build_name("down_path.%d.block.1.weight", i - 1) : "first.1.weight", 0);
        if (channels < 1)
            return;
        wide[i] = graph_tensor(g, TENSOR_TEMP, n, h >> i, w >> i, 2, (int[]){channels, channels});
        const struct view side = graph_segments(wide[i], 1, 1);
        if (i) {
            bopbtl_block(b, build_name("down_path.%d", i - 1), x, side);
        } else {
            struct op_conv2d *args = &build_conv(b, "first.1", gray, side, 7)->args.conv2d;
            args->pad_mode = PAD_REFLECT;
            args->activation = ACTIVATION_LEAKY;
            args->slope = 0.2f;
        }
        x = bopbtl_halve(b, i, side);
    }
    struct view bottom = VIEW_NONE;
    if (x.tensor >= 0)
        bottom = build_like(b, x, build_size(b, build_name("down_path.%d.block.1.weight", levels - 1), 0));
    bopbtl_block(b, build_name("down_path.%d", levels - 1), x, bottom);
    x = bottom;
    for (int i = levels - 1; i >= 0 && x.tensor >= 0; i--) {
        const struct build_text name = build_text("up_path.%d", levels - 1 - i);
        const struct view large = build_resize(b, RESIZE_BILINEAR, x, h >> i, w >> i),
                          up = graph_segments(wide[i], 0, 1);
        build_conv(b, build_name("%s.up.2", name.text), large, up, 3)->args.conv2d.pad_mode = PAD_REFLECT;
        x = build_like(b, up, graph_channels(g, up));
        bopbtl_block(b, build_name("%s.conv_block", name.text), wide[i], x);
    }
    build_conv(b, "last.1", x, graph_tensor(g, TENSOR_OUTPUT, n, h, w, 1, &one), 3)->args.conv2d.pad_mode = PAD_REFLECT;
}

const struct architecture architecture_bopbtl = {bopbtl_detect, bopbtl_build, bopbtl_smallest};
