/* SRVGGNetCompact, Real-ESRGAN's small upscaler (names as in BasicSR): a chain of 3×3 convolutions at input size, a
 * pixel shuffle, and the nearest-neighbour upsampled input added to it. */
#include <math.h>

#include "runtime/models/model_build.h"

/* Convolutions are body.0, 2, 4, …; PReLU slopes, where there are any, body.1, 3, …. */
static int srvgg_convolutions(const struct weights *weights)
{
    int count = 0;
    while (build_dim(weights, build_name("body.%d.weight", 2 * count), 3) == 3)
        count++;
    return count;
}

/* Whether there are slopes: all of them, then. */
static bool srvgg_has_slopes(const struct weights *weights, int convolutions)
{
    for (int i = 0; i < convolutions; i++)
        if (weights_find(weights, build_name("body.%d.weight", 2 * i + 1)))
            return true;
    return false;
}

static bool srvgg_detect(const struct weights *weights, struct model_info *info, struct error *err)
{
    int convolutions = srvgg_convolutions(weights);
    if (!convolutions || build_dim(weights, "body.0.weight", 1) != 3)
        return false;
    const int last = build_last(weights, "body.");
    if (last >= 2 * convolutions && weights_find(weights, build_name("body.%d.weight", last)))
        error_set(err, ERROR_CORRUPT, "tensor body.%d.weight is missing or no 3×3 convolution", 2 * convolutions);
    if (convolutions < 2 || err->code)
        return false;
    int out = build_dim(weights, build_name("body.%d.weight", 2 * (convolutions - 1)), 0);
    int scale = (int)lround(sqrt(out / 3.0));
    if (scale < 1 || scale > 4 || out != 3 * scale * scale)
        return false;
    info->kind = MODEL_UPSCALER;
    info->architecture = "SRVGGNetCompact";
    info->scale = scale;
    info->radius = convolutions;
    info->exact_tiles = true;
    info->asks_activation = !srvgg_has_slopes(weights, convolutions);
    return true;
}

static void srvgg_smallest(const struct model_info *info, struct session_shape *shape)
{
    (void)info;
    shape->h = shape->w = 4;
}

static void srvgg_activation(struct model_build *b, struct node *conv, int index, bool slopes, int features)
{
    if (slopes) {
        conv->args.conv2d.activation = ACTIVATION_PRELU;
        conv->param[OP_SLOPE] = build_param(b, build_name("body.%d.weight", index), 1, &features);
        return;
    }
    const float slope = build_slope(b, 0);
    conv->args.conv2d.activation = slope > 0 ? ACTIVATION_LEAKY : ACTIVATION_RELU;
    conv->args.conv2d.slope = slope;
}

static void srvgg_build(struct model_build *b, const struct session_shape *shape)
{
    const struct weights *weights = model_weights(b->model);
    int scale = model_info(b->model)->scale, convolutions = srvgg_convolutions(weights), rgb = 3;
    int n = shape->n, h = shape->h, w = shape->w;
    const bool slopes = srvgg_has_slopes(weights, convolutions);
    struct graph *g = b->graph;
    struct view input = graph_tensor(g, TENSOR_INPUT, n, h, w, 1, &rgb), x = input;
    for (int i = 0; i < convolutions; i++) {
        int features = build_size(b, build_name("body.%d.weight", 2 * i), 0);
        struct view out = graph_temp(g, n, features, h, w);
        struct node *conv = build_conv(b, build_name("body.%d", 2 * i), x, out, 3);
        if (i < convolutions - 1)
            srvgg_activation(b, conv, 2 * i + 1, slopes, features);
        x = out;
    }
    struct node *shuffle =
        graph_node(g, OP_PIXEL_SHUFFLE, graph_tensor(g, TENSOR_OUTPUT, n, h * scale, w * scale, 1, &rgb));
    if (shuffle) {
        shuffle->in[OP_X] = x;
        shuffle->in[OP_RESIDUAL1] = input;
        shuffle->args.shuffle.factor = scale;
    }
}

const struct architecture architecture_srvgg = {srvgg_detect, srvgg_build, srvgg_smallest};
