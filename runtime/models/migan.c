/* MI-GAN (Sargsyan et al. 2023; names as in its lib/model_zoo/migan_inference.py): a filler for squares of one size. An
 * encoder and a decoder of depthwise and 1×1 convolutions; sizes are halved and doubled with the filter 1 3 3 1. Its
 * activation's limit of ±256 is left out: a guard of fp16 in training.
 *
 * It is given what fillers are given (model.h), but with nothing (0) in the holes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/models/model_build.h"

#define MIGAN_LEAST 32
#define MIGAN_MOST 2048
#define MIGAN_LEVELS 10 /* sizes from 4 to MIGAN_MOST */

static bool migan_detect(const struct weights *weights, struct model_info *info, struct error *err)
{
    int side = MIGAN_LEAST;
    (void)err;
    while (side <= MIGAN_MOST && !weights_find(weights, build_name("encoder.b%d.fromrgb.weight", side)))
        side *= 2;
    if (side > MIGAN_MOST || build_dim(weights, build_name("encoder.b%d.fromrgb.weight", side), 1) != 4 ||
        !weights_find(weights, "synthesis.b4.torgb.weight") ||
        !weights_find(weights, build_name("synthesis.b%d.conv1.noise_const", side)))
        return false;
    info->kind = MODEL_FILLER;
    info->architecture = "MI-GAN";
    info->side = info->unshuffle = side;
    return true;
}

static void migan_smallest(const struct model_info *info, struct session_shape *shape)
{
    shape->h = shape->w = info->side;
}

/* The values of the tensor that a derived param's name begins with, before its last dot. *count: how many. */
static float *migan_read(struct model_build *b, const char *derived, size_t *count)
{
    const int length = (int)(strrchr(derived, '.') - derived);
    const struct weights_tensor *t = weights_find(model_weights(b->model), build_name("%.*s", length, derived));
    float *values = t ? mem_alloc(t->count, sizeof *values) : NULL;
    *count = values ? t->count : 0;
    if (!values)
        build_fail(b, t ? ERROR_NO_MEMORY : ERROR_CORRUPT, "tensor %.*s is missing or too large", length, derived);
    else
        weights_read_f32(t, values);
    return values;
}

/* Fails unless the tensor has as many values as follow from the others. */
static bool migan_fits(struct model_build *b, const char *name, size_t there, size_t wanted)
{
    if (there != wanted)
        build_fail(b, ERROR_CORRUPT, "tensor %s has another size than follows from the others", name);
    return there == wanted;
}

/* TENSOR.root2: times the activation's gain, sqrt(2), which is the same before LeakyReLU as after it. */
static void migan_root2(struct model_build *b, const char *name, float *values, size_t count)
{
    size_t there;
    float *own = migan_read(b, name, &there);
    for (size_t i = 0; migan_fits(b, name, there, count) && i < count; i++)
        values[i] = own[i] * (float)sqrt(2.0);
    free(own);
}

/* Zeros between the pixels and then the filter 1 3 3 1 is the same as each pixel twice and then 1 2 1. */
static void migan_twice(struct model_build *b, const char *name, float *values, size_t count)
{
    static const float filter[3] = {1, 2, 1};
    (void)b;
    (void)name;
    for (size_t i = 0; i < count; i++)
        values[i] = filter[i / 3 % 3] * filter[i % 3] / 16;
}

/* Fails unless the filter that doubles sizes is the one that it always is. */
static void migan_check_filter(struct model_build *b, const char *name)
{
    static const float filter[4] = {1, 3, 3, 1};
    size_t count;
    float *own = b->loading ? migan_read(b, build_name("%s.", name), &count) : NULL;
    bool same = true;
    for (size_t i = 0; own && i < count; i++)
        same = same && fabsf(own[i] - filter[i / 4 % 4] * filter[i % 4] / 16) < 1e-5f;
    if (!same)
        build_fail(b, ERROR_UNSUPPORTED, "%s is another filter than 1 3 3 1", name);
    free(own);
}

/* The 1×1 convolution of the input: [R, G, B, hole] in place of [known - 0.5, R, G, B]. */
static void migan_input(struct model_build *b, const char *name, float *values, size_t count)
{
    size_t there;
    float *own = migan_read(b, name, &there);
    for (size_t i = 0; migan_fits(b, name, there, count) && i < count; i += 4) {
        memcpy(values + i, own + i + 1, 3 * sizeof *values);
        values[i + 3] = -own[i];
    }
    free(own);
}

static void migan_input_bias(struct model_build *b, const char *name, float *values, size_t count)
{
    size_t there, weights;
    const int length = (int)(strrchr(name, '.') - name) - (int)strlen(".bias");
    float *own = migan_read(b, name, &there),
          *weight = migan_read(b, build_name("%.*s.weight.", length, name), &weights);
    const bool fits = migan_fits(b, name, there, count) && migan_fits(b, name, weights, 4 * count);
    for (size_t i = 0; fits && i < count; i++)
        values[i] = own[i] + 0.5f * weight[4 * i];
    free(own);
    free(weight);
}

static struct node *migan_act(struct node *conv)
{
    conv->args.conv2d.activation = ACTIVATION_LEAKY;
    conv->args.conv2d.slope = 0.2f;
    conv->args.conv2d.scale = (float)sqrt(2.0);
    return conv;
}

/* The first half of a SeparableConv2d. */
static struct view migan_depthwise(struct model_build *b, const char *name, struct view x)
{
    const int channels = x.tensor < 0 ? 0 : graph_channels(b->graph, x);
    if (channels < 1)
        return VIEW_NONE;
    const struct view out = build_like(b, x, channels);
    build_param(b, build_name("%s.conv1.weight", name), 4, (int[]){channels, 1, 3, 3}); /* its shape */
    const struct param *weight = build_derived(b, build_name("%s.conv1.weight.root2", name), 9 * (size_t)channels,
                                               migan_root2),
                       *bias = build_derived(b, build_name("%s.conv1.bias.root2", name), (size_t)channels, migan_root2);
    struct op_depthwise *args = &build_depthwise_of(b, weight, bias, x, out, 3, 1)->args.depthwise;
    args->activation = ACTIVATION_LEAKY;
    args->slope = 0.2f;
    return out;
}

/* The second half; noise: VIEW_NONE or of the decoder. */
static struct view migan_point(struct model_build *b, const char *name, struct view x, bool noise, struct view add)
{
    const int channels = build_size(b, build_name("%s.conv2.weight", name), 0);
    if (x.tensor < 0 || channels < 1)
        return VIEW_NONE;
    const int side = graph_tensor_of(b->graph, x)->h;
    const struct view out = build_like(b, x, channels);
    struct node *conv = migan_act(build_conv_plain(b, build_name("%s.conv2", name), x, out, 1));
    conv->in[OP_RESIDUAL1] = add;
    conv->args.conv2d.residual1_scale = 1;
    if (noise) {
        const struct param *map = build_param(b, build_name("%s.noise_const", name), 2, (int[]){side, side});
        conv->in[OP_NOISE_MAP] = map ? graph_constant(b->graph, map, 1, side, side) : VIEW_NONE;
        conv->args.conv2d.noise_weight = build_scalar(b, build_name("%s.noise_strength", name));
    }
    return out;
}

static struct view migan_halve(struct model_build *b, const char *name, struct view x)
{
    if (x.tensor < 0)
        return VIEW_NONE;
    const struct tensor t = *graph_tensor_of(b->graph, x);
    const struct view out = graph_temp(b->graph, t.n, t.channels, t.h / 2, t.w / 2);
    build_depthwise_of(b,
                       build_param(b, build_name("%s.downsample.filter.weight", name), 4, (int[]){t.channels, 1, 4, 4}),
                       NULL, x, out, 4, 2);
    return out;
}

static struct view migan_double(struct model_build *b, struct view x)
{
    if (x.tensor < 0)
        return VIEW_NONE;
    const struct tensor t = *graph_tensor_of(b->graph, x);
    const struct view large = build_resize(b, RESIZE_NEAREST, x, 2 * t.h, 2 * t.w),
                      out = build_like(b, large, t.channels);
    const struct param *filter =
        build_derived(b, build_name("twice.%d", t.channels), 9 * (size_t)t.channels, migan_twice);
    build_depthwise_of(b, filter, NULL, large, out, 3, 1);
    return out;
}

/* An encoder's block: its feature, and what the next one gets. */
static struct view migan_encode(struct model_build *b, int side, struct view x, struct view *feature)
{
    const struct build_text first = build_text("encoder.b%d.conv1", side),
                            second = build_text("encoder.b%d.conv2", side);
    *feature = migan_point(b, first.text, migan_depthwise(b, first.text, x), false, VIEW_NONE);
    x = migan_depthwise(b, second.text, *feature);
    return migan_point(b, second.text, side > 4 ? migan_halve(b, second.text, x) : x, false, VIEW_NONE);
}

/* A decoder's block. The doubling comes before the 1×1 convolution, which may be exchanged with it, so that noise and
 * activation are part of that. */
static struct view migan_decode(struct model_build *b, int side, struct view x, struct view feature)
{
    const bool doubles = side > 4;
    const struct build_text first = build_text("synthesis.b%d.conv1", side),
                            second = build_text("synthesis.b%d.conv2", side);
    x = migan_depthwise(b, first.text, x);
    if (doubles) {
        migan_check_filter(b, build_name("%s.upsample.filter.weight", first.text));
        x = migan_double(b, x);
    }
    x = migan_point(b, first.text, x, doubles, feature);
    return migan_point(b, second.text, migan_depthwise(b, second.text, x), doubles, VIEW_NONE);
}

static void migan_build(struct model_build *b, const struct session_shape *shape)
{
    struct graph *g = b->graph;
    const int side = model_info(b->model)->side, four = 4, rgb = 3, n = shape->n;
    struct view features[MIGAN_LEVELS];
    if (shape->h != side || shape->w != side) {
        build_fail(b, ERROR_INVALID, "the filler takes %d×%d px, not %d×%d", side, side, shape->w, shape->h);
        return;
    }
    const struct build_text from = build_text("encoder.b%d.fromrgb", side);
    const int channels = build_size(b, build_name("%s.weight", from.text), 0);
    if (channels < 1)
        return;
    const struct view input = graph_tensor(g, TENSOR_INPUT, n, side, side, 1, &four);
    struct view x = graph_temp(g, n, channels, side, side), picture = VIEW_NONE;
    const struct param *weight =
        build_derived(b, build_name("%s.weight.input", from.text), 4 * (size_t)channels, migan_input);
    const struct param *bias =
        build_derived(b, build_name("%s.bias.input", from.text), (size_t)channels, migan_input_bias);
    migan_act(build_conv_of(b, weight, input, x, 1))->param[OP_BIAS] = bias;
    int levels = 0;
    for (int s = side; s >= 4; s /= 2)
        x = migan_encode(b, s, x, &features[levels++]);
    for (int s = 4; s <= side; s *= 2) {
        const struct build_text to = build_text("synthesis.b%d.torgb", s);
        x = migan_decode(b, s, x, features[--levels]);
        if (s > 4)
            migan_check_filter(b, build_name("synthesis.b%d.upsample.filter.weight", s));
        const struct view up = s > 4 ? migan_double(b, picture) : VIEW_NONE;
        picture = graph_tensor(g, s == side ? TENSOR_OUTPUT : TENSOR_TEMP, n, s, s, 1, &rgb);
        struct node *conv = build_conv(b, to.text, x, picture, 1);
        conv->in[OP_RESIDUAL1] = up;
        conv->args.conv2d.residual1_scale = 1;
    }
}

const struct architecture architecture_migan = {migan_detect, migan_build, migan_smallest};
