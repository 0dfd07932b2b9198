/* RRDBNet, Real-ESRGAN's generator (Wang et al. 2018 and 2021; names as in BasicSR): residual-in-residual dense blocks,
 * then two nearest ×2 upsamplings. Scales 2 and 1 begin with a pixel-unshuffle, so that the body always works at 1/4 of
 * the output. */
#include "runtime/models/model_build.h"

static bool rrdbnet_detect(const struct weights *weights, struct model_info *info, struct error *err)
{
    (void)err;
    int in = build_dim(weights, "conv_first.weight", 1), blocks = build_count(weights, "body.%d.rdb1.conv1.weight");
    if (!blocks || (in != 3 && in != 12 && in != 48) || !weights_find(weights, "conv_last.weight"))
        return false;
    info->kind = MODEL_UPSCALER;
    info->architecture = "RRDBNet";
    info->unshuffle = in == 3 ? 1 : in == 12 ? 2 : 4;
    info->scale = 4 / info->unshuffle;
    /* conv_first, 15 convolutions a block, conv_body, then conv_up1 at ×2 and conv_up2, conv_hr, conv_last at ×4 */
    info->radius = (1 + 15 * blocks + 1 + 2) * info->unshuffle;
    return true;
}

static void rrdbnet_smallest(const struct model_info *info, struct session_shape *shape)
{
    shape->h = shape->w = 4 * info->unshuffle;
}

/* Five convolutions, each reading all before it; the last goes to out as scale*conv + r1*rdb's input (+ r2). */
static void rrdbnet_dense(struct model_build *b, const char *name, struct view wide, struct view out, float scale,
                          float input_scale, struct view outer)
{
    for (int i = 0; i < 4; i++) {
        struct node *conv = build_conv(b, build_name("%s.conv%d", name, i + 1), graph_segments(wide, 0, i + 1),
                                       graph_segments(wide, i + 1, 1), 3);
        conv->args.conv2d.activation = ACTIVATION_LEAKY;
        conv->args.conv2d.slope = 0.2f;
    }
    struct node *last = build_conv(b, build_name("%s.conv5", name), wide, out, 3);
    last->args.conv2d.scale = scale;
    last->in[OP_RESIDUAL1] = graph_segments(wide, 0, 1);
    last->args.conv2d.residual1_scale = input_scale;
    last->in[OP_RESIDUAL2] = outer;
    last->args.conv2d.residual2_scale = 1;
}

static struct view rrdbnet_up(struct model_build *b, const char *name, struct view x, int h, int w, int features)
{
    int n = x.tensor < 0 ? 1 : graph_tensor_of(b->graph, x)->n;
    struct view out = graph_temp(b->graph, n, features, h, w);
    struct node *conv = build_conv(b, name, x, out, 3);
    conv->args.conv2d.upsample = 2;
    conv->args.conv2d.activation = ACTIVATION_LEAKY;
    conv->args.conv2d.slope = 0.2f;
    return out;
}

static void rrdbnet_build(struct model_build *b, const struct session_shape *shape)
{
    int unshuffle = model_info(b->model)->unshuffle, blocks = build_blocks(b, "body.", 0, ".rdb1.conv1.weight");
    int features = build_size(b, "conv_first.weight", 0), growth = build_size(b, "body.0.rdb1.conv1.weight", 0);
    int n = shape->n, h = shape->h / unshuffle, w = shape->w / unshuffle;
    int segments[5] = {features, growth, growth, growth, growth}, rgb = 3;
    struct graph *g = b->graph;
    if (shape->h % unshuffle || shape->w % unshuffle)
        build_fail(b, ERROR_INVALID, "%d×%d is not a multiple of %d", shape->w, shape->h, unshuffle);
    struct view x = graph_tensor(g, TENSOR_INPUT, n, shape->h, shape->w, 1, &rgb);
    if (unshuffle > 1) {
        struct view deep = graph_temp(g, n, 3 * unshuffle * unshuffle, h, w);
        struct node *node = graph_node(g, OP_PIXEL_UNSHUFFLE, deep);
        if (node) {
            node->in[OP_X] = x;
            node->args.shuffle.factor = unshuffle;
        }
        x = deep;
    }
    struct view first = graph_temp(g, n, features, h, w), wide = graph_tensor(g, TENSOR_TEMP, n, h, w, 5, segments);
    /* Computed twice: its result is needed at the end, and keeping the first wide tensor until then would cost far
     * more. */
    build_conv(b, "conv_first", x, first, 3);
    build_conv(b, "conv_first", x, graph_segments(wide, 0, 1), 3);
    struct view trunk = VIEW_NONE;
    for (int i = 0; i < blocks; i++) {
        struct view input = graph_segments(wide, 0, 1);
        for (int r = 1; r <= 3; r++) {
            bool end = r == 3, very_last = end && i == blocks - 1;
            struct view next =
                very_last ? graph_temp(g, n, features, h, w) : graph_tensor(g, TENSOR_TEMP, n, h, w, 5, segments);
            struct view out = very_last ? next : graph_segments(next, 0, 1);
            rrdbnet_dense(b, build_name("body.%d.rdb%d", i, r), wide, out, end ? 0.04f : 0.2f, end ? 0.2f : 1.0f,
                          end ? input : VIEW_NONE);
            wide = next;
            trunk = out;
        }
    }
    struct view feature = graph_temp(g, n, features, h, w);
    struct node *body = build_conv(b, "conv_body", trunk, feature, 3);
    body->in[OP_RESIDUAL1] = first;
    body->args.conv2d.residual1_scale = 1;
    struct view up = rrdbnet_up(b, "conv_up1", feature, 2 * h, 2 * w, features);
    up = rrdbnet_up(b, "conv_up2", up, 4 * h, 4 * w, features);
    struct view high = build_like(b, up, features);
    struct node *conv = build_conv(b, "conv_hr", up, high, 3);
    conv->args.conv2d.activation = ACTIVATION_LEAKY;
    conv->args.conv2d.slope = 0.2f;
    build_conv(b, "conv_last", high, graph_tensor(g, TENSOR_OUTPUT, n, 4 * h, 4 * w, 1, &rgb), 3);
}

const struct architecture architecture_rrdbnet = {rrdbnet_detect, rrdbnet_build, rrdbnet_smallest};
