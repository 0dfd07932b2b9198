/* Real-CUGAN (bilibili 2022; names as in its upcunet_v3.py): two U-Nets behind each other, the second of which corrects
 * what the first one has enlarged. Convolutions are not padded; the picture is, by reflection, unless it comes with its
 * border (MODEL_BORDERED). Four blocks scale their channels by factors that a mean over the picture decides (squeeze
 * and excitation): over what is given, or, for a tile, a mean that is given, too (enum model_means); the "nose" files
 * are without them. "pro" files work on a narrower range of values. */
#include <string.h>

#include "runtime/models/model_build.h"
#include "runtime/models/transposed.h"

#define CUGAN_LOW 0.15f /* pro: values are LOW + SPAN·x */
#define CUGAN_SPAN 0.7f
#define CUGAN_CROP 20 /* what the second U-Net takes off each side */

static int cugan_scale(const struct weights *weights)
{
    if (weights_find(weights, "conv_final.weight"))
        return 4;
    return build_dim(weights, "unet1.conv_bottom.weight", 2) == 5 ? 3 : 2;
}

/* Whether the file has any of the four blocks that scale channels: then it must have all. */
static bool cugan_gated(const struct weights *weights)
{
    for (size_t i = 0; i < weights_count(weights); i++)
        if (strstr(weights_at(weights, i)->name, ".seblock."))
            return true;
    return false;
}

/* The means, in the order in which they decide each other. */
static void cugan_pools(const struct weights *weights, struct model_info *info)
{
    static const char *const names[MODEL_POOLS] = {"unet1.conv2", "unet2.conv2", "unet2.conv3", "unet2.conv4"};
    static const struct model_pool pools[3][MODEL_POOLS] = {{{0, 2, 12}, {0, 4, 14}, {0, 2, 3}, {0, 4, 2}},
                                                            {{0, 2, 8}, {0, 6, 14}, {0, 3, 3}, {0, 6, 2}},
                                                            {{0, 2, 13}, {0, 4, 16}, {0, 2, 4}, {0, 4, 4}}};
    info->pool_count = MODEL_POOLS;
    for (int i = 0; i < MODEL_POOLS; i++) {
        info->pools[i] = pools[info->scale - 2][i];
        info->pools[i].channels = build_dim(weights, build_name("%s.seblock.conv2.weight", names[i]), 0);
    }
}

static bool cugan_detect(const struct weights *weights, struct model_info *info, struct error *err)
{
    const int in = build_dim(weights, "unet1.conv1.conv.0.weight", 1);
    if (!in || !weights_find(weights, "unet1.conv2_up.weight") || !weights_find(weights, "unet2.conv4_up.weight") ||
        !weights_find(weights, "unet1.conv_bottom.weight") || !weights_find(weights, "unet2.conv_bottom.weight"))
        return false;
    const int scale = cugan_scale(weights), out = scale == 4 ? build_dim(weights, "conv_final.weight", 0) / 4
                                                             : build_dim(weights, "unet2.conv_bottom.weight", 0);
    if (in != 3 || out != 3)
        error_set(err, ERROR_UNSUPPORTED, "Real-CUGAN that takes %d channels and gives %d; 3 are supported%s", in, out,
                  in == 12 ? ", and the fast form is not" : "");
    info->kind = MODEL_UPSCALER;
    info->architecture = weights_find(weights, "pro") ? "Real-CUGAN pro"
                         : cugan_gated(weights)       ? "Real-CUGAN"
                                                      : "Real-CUGAN nose";
    info->scale = scale;
    info->unshuffle = scale == 3 ? 4 : 2;
    info->full_body = true;
    info->radius = info->border = scale == 3 ? 14 : scale == 2 ? 18 : 19;
    info->exact_tiles = true; /* with the means of the whole picture */
    if (cugan_gated(weights))
        cugan_pools(weights, info);
    return !err->code;
}

static void cugan_smallest(const struct model_info *info, struct session_shape *shape)
{
    (void)info;
    shape->h = shape->w = 4;
}

/* "crop FACTOR of N": each channel times the factor. */
static void cugan_fill(struct model_build *b, const char *name, float *values, size_t count)
{
    (void)b;
    for (size_t i = 0; i < count; i++)
        values[i] = name[0] == 'p'   ? CUGAN_SPAN
                    : name[0] == 'b' ? CUGAN_LOW
                    : name[0] == 'u' ? 1 / CUGAN_SPAN
                    : name[0] == 'l' ? -CUGAN_LOW / CUGAN_SPAN
                                     : 1;
}

/* A pixel for each pixel: with `pad` more of them on each side, by reflection, or fewer where it is below 0. */
static struct node *cugan_move(struct model_build *b, const char *factor, const char *bias, struct view x, int pad,
                               struct view *out)
{
    *out = VIEW_NONE;
    if (x.tensor < 0)
        return &b->scratch;
    const struct tensor t = *graph_tensor_of(b->graph, x);
    *out = graph_temp(b->graph, t.n, t.channels, t.h + 2 * pad, t.w + 2 * pad);
    const struct param *by =
                           build_derived(b, build_name("%s of %d", factor, t.channels), (size_t)t.channels, cugan_fill),
                       *plus = bias ? build_derived(b, build_name("%s of %d", bias, t.channels), (size_t)t.channels,
                                                    cugan_fill)
                                    : NULL;
    struct node *node = build_depthwise_of(b, by, plus, x, *out, 1, 1);
    node->args.depthwise.pad = pad;
    node->args.depthwise.pad_mode = pad > 0 ? PAD_REFLECT : PAD_ZERO;
    return node;
}

static struct view cugan_crop(struct model_build *b, struct view x, int by)
{
    struct view out;
    cugan_move(b, "as it is", NULL, x, -by, &out);
    return out;
}

/* An unpadded convolution; with LeakyReLU(0.1) unless it is the last. */
static struct view cugan_conv(struct model_build *b, const char *name, struct view x, int kernel, int stride, bool act,
                              struct view factors)
{
    const int channels = build_size(b, build_name("%s.weight", name), 0);
    if (x.tensor < 0 || channels < 1)
        return VIEW_NONE;
    const struct tensor t = *graph_tensor_of(b->graph, x);
    const struct view out =
        graph_temp(b->graph, t.n, channels, (t.h - kernel) / stride + 1, (t.w - kernel) / stride + 1);
    struct node *node = build_conv(b, name, x, out, kernel);
    node->args.conv2d.pad = 0;
    node->args.conv2d.stride = stride;
    node->args.conv2d.activation = act ? ACTIVATION_LEAKY : ACTIVATION_NONE;
    node->args.conv2d.slope = 0.1f;
    node->in[OP_IN_SCALE] = factors;
    return out;
}

/* UNetConv: two convolutions. */
static struct view cugan_pair(struct model_build *b, const char *name, struct view x)
{
    x = cugan_conv(b, build_name("%s.conv.0", name), x, 3, 1, true, VIEW_NONE);
    return cugan_conv(b, build_name("%s.conv.2", name), x, 3, 1, true, VIEW_NONE);
}

/* The means while a graph is built. */
struct cugan_means {
    int variant, next;
    struct view given[MODEL_POOLS];
    bool done; /* the one that the graph is for is there */
};

/* The next mean: given, or of x; as the graph's output it is the last of its nodes. */
static struct view cugan_mean(struct model_build *b, struct cugan_means *means, struct view x)
{
    static const int one = 1;
    const int index = means->next++;
    const struct tensor t = *graph_tensor_of(b->graph, x);
    if (means->variant > MODEL_MEANS_FIRST + index)
        return means->given[index];
    means->done = means->variant == MODEL_MEANS_FIRST + index;
    const struct view map = means->done ? graph_tensor(b->graph, TENSOR_INPUT, t.n, t.h, t.w, 1, &one) : VIEW_NONE,
                      mean = means->done ? graph_tensor(b->graph, TENSOR_OUTPUT, t.n, 1, 1, 1, &t.channels)
                                         : graph_temp(b->graph, t.n, t.channels, 1, 1);
    struct node *node = graph_node(b->graph, OP_MEAN, mean);
    if (node) {
        node->in[OP_X] = x;
        node->in[OP_NOISE_MAP] = map;
    }
    return mean;
}

/* SEBlock: the factors of its channels, {n, c, 1, 1}; none where the network has no such blocks. */
static struct view cugan_factors(struct model_build *b, struct cugan_means *means, const char *name, struct view x)
{
    if (!cugan_gated(model_weights(b->model)))
        return VIEW_NONE;
    const int inner = build_size(b, build_name("%s.seblock.conv1.weight", name), 0);
    if (x.tensor < 0 || inner < 1)
        return VIEW_NONE;
    const struct tensor t = *graph_tensor_of(b->graph, x);
    const struct view mean = cugan_mean(b, means, x);
    if (means->done)
        return VIEW_NONE;
    const struct view small = graph_temp(b->graph, t.n, inner, 1, 1), out = graph_temp(b->graph, t.n, t.channels, 1, 1);
    build_conv(b, build_name("%s.seblock.conv1", name), mean, small, 1)->args.conv2d.activation = ACTIVATION_RELU;
    build_conv(b, build_name("%s.seblock.conv2", name), small, out, 1)->args.conv2d.activation = ACTIVATION_SIGMOID;
    return out;
}

/* The sum of x and `plus`, of which only the middle counts. */
static struct view cugan_add(struct model_build *b, struct view x, struct view plus)
{
    struct node *add = x.tensor < 0 || plus.tensor < 0 ? NULL : graph_node(b->graph, OP_ADD, x);
    if (!add)
        return VIEW_NONE;
    add->in[OP_X] = x;
    add->in[OP_RESIDUAL1] = plus;
    add->args.add = (struct op_add){.x_scale = 1, .residual1_scale = 1};
    return x;
}

/* A transposed 2×2 convolution of x times the factors, activated, plus the middle of `skip`. */
static struct view cugan_up(struct model_build *b, const char *name, struct view x, struct view factors,
                            struct view skip)
{
    struct node *conv;
    const struct view up = build_transposed(b, name, TRANSPOSED_2_2_0, x, &conv);
    conv->args.conv2d.activation = ACTIVATION_LEAKY;
    conv->args.conv2d.slope = 0.1f;
    conv->in[OP_IN_SCALE] = factors;
    return cugan_add(b, up, skip);
}

/* VIEW_NONE where a mean was all that is wanted. */
static struct view cugan_first(struct model_build *b, struct cugan_means *means, int scale, struct view x)
{
    const struct view whole = cugan_pair(b, "unet1.conv1", x);
    x = cugan_conv(b, "unet1.conv1_down", whole, 2, 2, true, VIEW_NONE);
    x = cugan_pair(b, "unet1.conv2", x);
    const struct view factors = cugan_factors(b, means, "unet1.conv2", x);
    if (means->done)
        return VIEW_NONE;
    x = cugan_up(b, "unet1.conv2_up", x, factors, whole);
    x = cugan_conv(b, "unet1.conv3", x, 3, 1, true, VIEW_NONE);
    struct node *conv;
    return build_transposed(b, "unet1.conv_bottom", scale == 3 ? TRANSPOSED_5_3_2 : TRANSPOSED_4_2_3, x, &conv);
}

/* The middle of x times the factors, and `plus`: where the factors are needed for more than one convolution. */
static struct view cugan_scaled(struct model_build *b, struct view x, struct view factors, struct view plus)
{
    if (x.tensor < 0 || plus.tensor < 0 || factors.tensor < 0)
        return cugan_add(b, plus, x);
    const struct view out = build_like(b, plus, graph_channels(b->graph, plus));
    struct node *node = graph_node(b->graph, OP_SCALE_SHIFT, out);
    if (!node)
        return VIEW_NONE;
    node->in[OP_X] = x;
    node->in[OP_RESIDUAL1] = factors;
    node->in[OP_RESIDUAL2] = plus;
    return out;
}

/* The second U-Net. */
static struct view cugan_second(struct model_build *b, struct cugan_means *means, struct view x)
{
    const struct view whole = cugan_pair(b, "unet2.conv1", x);
    x = cugan_conv(b, "unet2.conv1_down", whole, 2, 2, true, VIEW_NONE);
    const struct view half = cugan_pair(b, "unet2.conv2", x), factors = cugan_factors(b, means, "unet2.conv2", half);
    if (means->done)
        return VIEW_NONE;
    x = cugan_conv(b, "unet2.conv2_down", half, 2, 2, true, factors);
    x = cugan_pair(b, "unet2.conv3", x);
    struct node *conv;
    const struct view deep = cugan_factors(b, means, "unet2.conv3", x);
    if (means->done)
        return VIEW_NONE;
    x = build_transposed(b, "unet2.conv3_up", TRANSPOSED_2_2_0, x, &conv);
    conv->args.conv2d.activation = ACTIVATION_LEAKY;
    conv->args.conv2d.slope = 0.1f;
    conv->in[OP_IN_SCALE] = deep;
    x = cugan_pair(b, "unet2.conv4", cugan_scaled(b, half, factors, x));
    const struct view last = cugan_factors(b, means, "unet2.conv4", x);
    if (means->done)
        return VIEW_NONE;
    x = cugan_up(b, "unet2.conv4_up", x, last, whole);
    x = cugan_conv(b, "unet2.conv5", x, 3, 1, true, VIEW_NONE);
    return cugan_conv(b, "unet2.conv_bottom", x, 3, 1, false, VIEW_NONE);
}

static void cugan_build(struct model_build *b, const struct session_shape *shape)
{
    const struct model_info *info = model_info(b->model);
    const bool pro = weights_find(model_weights(b->model), "pro");
    const int rgb = 3, scale = info->scale;
    struct graph *g = b->graph;
    if (shape->h % info->unshuffle || shape->w % info->unshuffle) {
        build_fail(b, ERROR_INVALID, "%d×%d is not a multiple of %d", shape->w, shape->h, info->unshuffle);
        return;
    }
    const int border = shape->variant & MODEL_BORDERED ? info->border : 0;
    const struct view input =
        graph_tensor(g, TENSOR_INPUT, shape->n, shape->h + 2 * border, shape->w + 2 * border, 1, &rgb);
    struct cugan_means means = {.variant = shape->variant & ~MODEL_BORDERED};
    for (int i = 0; i < info->pool_count && i < means.variant - MODEL_MEANS_FIRST; i++)
        means.given[i] = graph_tensor(g, TENSOR_INPUT, shape->n, 1, 1, 1, &info->pools[i].channels);
    struct view x, first;
    cugan_move(b, pro ? "pro" : "as it is", pro ? "by" : NULL, input, info->border - border, &x);
    x = cugan_first(b, &means, scale, x);
    if (means.done)
        return;
    struct view second = cugan_second(b, &means, x);
    if (means.done)
        return;
    first = x; /* its middle counts */
    if (pro && scale < 4)
        cugan_move(b, "undone", "less", x, -CUGAN_CROP, &first);
    if (second.tensor < 0 || first.tensor < 0)
        return;
    const struct view out = graph_tensor(g, TENSOR_OUTPUT, shape->n, shape->h * scale, shape->w * scale, 1, &rgb);
    struct node *add = graph_node(g, OP_ADD, scale < 4 ? out : second);
    if (!add)
        return;
    add->in[OP_X] = second;
    add->in[OP_RESIDUAL1] = first;
    add->args.add = (struct op_add){.x_scale = pro && scale < 4 ? 1 / CUGAN_SPAN : 1, .residual1_scale = 1};
    if (scale < 4)
        return;
    const struct tensor t = *graph_tensor_of(g, second);
    const struct view last = graph_temp(g, t.n, 12, t.h - 2, t.w - 2);
    struct node *conv = build_conv(b, "conv_final", second, last, 3);
    conv->args.conv2d.pad = 0;
    conv->args.conv2d.scale = pro ? 1 / CUGAN_SPAN : 1; /* and so the picture is added as it was given */
    build_derived(b, "as it is of 3", 3, cugan_fill);   /* while loading, for graphs with a border */
    /* Twice as large by the shuffle, twice by the first U-Net: the picture added is enlarged by four. */
    const struct view middle = cugan_crop(b, last, 1), given = border ? cugan_crop(b, input, border) : input,
                      large = build_resize(b, RESIZE_NEAREST, given, shape->h * 2, shape->w * 2);
    struct node *shuffle = graph_node(g, OP_PIXEL_SHUFFLE, out);
    if (!shuffle)
        return;
    shuffle->in[OP_X] = middle;
    shuffle->args.shuffle.factor = 2;
    shuffle->in[OP_RESIDUAL1] = large;
}

const struct architecture architecture_cugan = {cugan_detect, cugan_build, cugan_smallest};
