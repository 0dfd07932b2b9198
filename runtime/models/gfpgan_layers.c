#include "runtime/models/gfpgan_layers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"

#define ROOT_2 1.41421356f

bool gfpgan_is_original(const struct weights *weights)
{
    return weights_find(weights, "conv_body_first.0.weight") != NULL;
}

static bool gfpgan_original(const struct model_build *b)
{
    return gfpgan_is_original(model_weights(b->model));
}

/* LeakyReLU; in the original form times sqrt(2), which the caller may set otherwise. */
static struct node *gfpgan_leaky(const struct model_build *b, struct node *conv)
{
    conv->args.conv2d.activation = ACTIVATION_LEAKY;
    conv->args.conv2d.slope = 0.2f;
    if (gfpgan_original(b))
        conv->args.conv2d.scale = ROOT_2;
    return conv;
}

/* 1/sqrt(inputs of a sum), by which a stored weight of the original form counts. */
static float gfpgan_rate(const struct model_build *b, struct view x, int kernel)
{
    return x.tensor < 0 ? 1 : (float)(1 / sqrt((double)graph_channels(b->graph, x) * kernel * kernel));
}

/* A convolution of tensors that the two forms name differently; bias NULL: none. */
static struct node *gfpgan_conv(struct model_build *b, const char *weight, const char *bias, struct view x,
                                struct view out, int kernel)
{
    if (x.tensor < 0 || out.tensor < 0)
        return build_conv_of(b, NULL, VIEW_NONE, VIEW_NONE, kernel);
    const int shape[4] = {graph_channels(b->graph, out), graph_channels(b->graph, x), kernel, kernel};
    struct node *conv = build_conv_of(b, build_param(b, weight, 4, shape), x, out, kernel);
    if (bias)
        conv->param[OP_BIAS] = build_param(b, bias, 1, shape);
    if (gfpgan_original(b))
        conv->args.conv2d.gain = gfpgan_rate(b, x, kernel);
    return conv;
}

struct view gfpgan_activated(struct model_build *b, const char *name, struct view x, int kernel)
{
    const bool original = gfpgan_original(b);
    const struct build_text weight = build_text(original ? "%s.0.weight" : "%s.weight", name),
                            bias = build_text(original ? "%s.1.bias" : "%s.bias", name);
    const struct view out = build_like(b, x, build_size(b, weight.text, 0));
    gfpgan_leaky(b, gfpgan_conv(b, weight.text, bias.text, x, out, kernel));
    return out;
}

/* (1, 3, 3, 1)/8, down and across, for each channel. */
static void gfpgan_filter(struct model_build *b, const char *name, float *values, size_t count)
{
    static const float row[4] = {0.125f, 0.375f, 0.375f, 0.125f};
    (void)b;
    (void)name;
    for (size_t i = 0; i < count; i++)
        values[i] = row[i / 4 % 4] * row[i % 4];
}

/* (1, 2, 1)/4, which after doubling each pixel makes the filter (1, 3, 3, 1)/4 of a picture with zeros between. */
static void gfpgan_filter_doubled(struct model_build *b, const char *name, float *values, size_t count)
{
    static const float row[3] = {0.25f, 0.5f, 0.25f};
    (void)b;
    (void)name;
    for (size_t i = 0; i < count; i++)
        values[i] = row[i / 3 % 3] * row[i % 3];
}

/* x doubled by the filter, with `border` pixels around that its zero padding leaves. */
static struct view gfpgan_doubled(struct model_build *b, struct view x, int border)
{
    if (x.tensor < 0)
        return VIEW_NONE;
    const struct tensor t = *graph_tensor_of(b->graph, x);
    const int channels = graph_channels(b->graph, x);
    const struct param *filter =
        build_derived(b, build_name("filter doubled %d", channels), (size_t)channels * 9, gfpgan_filter_doubled);
    const struct view large = build_resize(b, RESIZE_NEAREST, x, 2 * t.h, 2 * t.w),
                      out = graph_temp(b->graph, t.n, channels, 2 * t.h + 2 * border, 2 * t.w + 2 * border);
    build_depthwise_of(b, filter, NULL, large, out, 3, 1)->args.depthwise.pad = 1 + border;
    return out;
}

/* The halving of the original form: the filter, then a convolution of every other pixel. Both orders of a 1×1 one are
 * the same, so it halves first. */
static struct node *gfpgan_halved(struct model_build *b, const char *weight, const char *bias, struct view x,
                                  struct view out, int kernel)
{
    if (x.tensor < 0)
        return build_conv_of(b, NULL, VIEW_NONE, VIEW_NONE, kernel);
    const struct tensor t = *graph_tensor_of(b->graph, x);
    const int channels = graph_channels(b->graph, x), stride = kernel == 1 ? 2 : 1, wide = kernel == 1 ? 0 : 1;
    const struct param *filter =
        build_derived(b, build_name("filter %d", channels), (size_t)channels * 16, gfpgan_filter);
    const struct view soft = graph_temp(b->graph, t.n, channels, (t.h + wide) / stride, (t.w + wide) / stride);
    build_depthwise_of(b, filter, NULL, x, soft, 4, stride)->args.depthwise.pad = kernel == 1 ? 1 : 2;
    struct node *conv = gfpgan_conv(b, weight, bias, soft, out, kernel);
    conv->args.conv2d.pad = 0;
    conv->args.conv2d.stride = 2 / stride;
    return conv;
}

/* Where the skip of a block is made: the 1×1 convolution before an enlargement, which is the same as after it. */
static struct view gfpgan_skip(struct model_build *b, const char *name, struct view x, int channels, int side)
{
    const struct tensor t = *graph_tensor_of(b->graph, x);
    const bool up = side > t.h, original = gfpgan_original(b);
    const struct build_text weight = build_text(original && !up ? "%s.skip.1.weight" : "%s.skip.weight", name);
    const struct view out = graph_temp(b->graph, t.n, channels, up ? t.h : side, up ? t.w : side);
    if (up) {
        gfpgan_conv(b, weight.text, NULL, x, out, 1);
        return build_resize(b, RESIZE_BILINEAR, out, side, side);
    }
    if (original)
        gfpgan_halved(b, weight.text, NULL, x, out, 1);
    else
        gfpgan_conv(b, weight.text, NULL, build_resize(b, RESIZE_BILINEAR, x, side, side), out, 1);
    return out;
}

struct view gfpgan_block(struct model_build *b, const char *name, struct view x, int side)
{
    if (x.tensor < 0)
        return VIEW_NONE;
    const struct tensor t = *graph_tensor_of(b->graph, x);
    const bool original = gfpgan_original(b), halves = original && side < t.h;
    const struct view first = build_like(b, x, graph_channels(b->graph, x));
    gfpgan_leaky(b, gfpgan_conv(b, build_name(original ? "%s.conv1.0.weight" : "%s.conv1.weight", name),
                                build_name(original ? "%s.conv1.1.bias" : "%s.conv1.bias", name), x, first, 3));
    const struct build_text weight = build_text(halves ? "%s.conv2.1.weight" : "%s.conv2.weight", name),
                            bias = build_text(!original ? "%s.conv2.bias"
                                              : halves  ? "%s.conv2.2.bias"
                                                        : "%s.conv2.activation.bias",
                                              name);
    const int channels = build_size(b, weight.text, 0);
    const struct view skip = gfpgan_skip(b, name, x, channels, side),
                      out = graph_temp(b->graph, t.n, channels, side, side);
    struct node *second;
    if (halves)
        second = gfpgan_halved(b, weight.text, bias.text, first, out, 3);
    else
        second = gfpgan_conv(b, weight.text, bias.text, build_resize(b, RESIZE_BILINEAR, first, side, side), out, 3);
    gfpgan_leaky(b, second);
    second->in[OP_RESIDUAL1] = skip;
    second->args.conv2d.residual1_scale = 1;
    if (original) { /* (sqrt(2)·act + skip)/sqrt(2) */
        second->args.conv2d.scale = 1;
        second->args.conv2d.residual1_scale = 1 / ROOT_2;
    }
    return out;
}

struct view gfpgan_condition(struct model_build *b, const char *name, struct view x, bool first)
{
    const struct build_text weight = build_text("%s.%d.weight", name, first ? 0 : 2),
                            bias = build_text("%s.%d.bias", name, first ? 0 : 2);
    const struct view out = build_like(b, x, build_size(b, weight.text, 0));
    struct node *conv = gfpgan_conv(b, weight.text, bias.text, x, out, 3);
    if (first)
        gfpgan_leaky(b, conv);
    return out;
}

void gfpgan_linear(struct model_build *b, const char *name, struct view x, struct view out)
{
    if (x.tensor < 0 || !gfpgan_original(b)) {
        build_linear(b, name, x, out);
        return;
    }
    const struct tensor *t = graph_tensor_of(b->graph, x);
    build_linear_rate(b, name, (float)(1 / sqrt((double)graph_channels(b->graph, x) * t->h * t->w)), x, out);
}

/* The sum over the kernel of the squared weights [o][i], for OP_DEMODULATE. name is "….modulated_conv.demodulation". */
static void gfpgan_fill_squares(struct model_build *b, const char *name, float *values, size_t count)
{
    const int length = (int)(strrchr(name, '.') - name);
    const struct weights_tensor *t = weights_find(model_weights(b->model), build_name("%.*s.weight", length, name));
    float *weight = t && t->count % count == 0 ? mem_alloc(t->count, sizeof(float)) : NULL;
    if (!weight) {
        build_fail(b, t ? ERROR_NO_MEMORY : ERROR_CORRUPT, "tensor %.*s.weight is missing or too large", length, name);
        return;
    }
    weights_read_f32(t, weight);
    const size_t kernel = t->count / count;
    const double rate = gfpgan_original(b) ? 1 / ((double)t->shape[2] * (double)kernel) : 1;
    for (size_t i = 0; i < count; i++) {
        double sum = 0;
        for (size_t k = 0; k < kernel; k++)
            sum += (double)weight[i * kernel + k] * weight[i * kernel + k];
        values[i] = (float)(sum * rate);
    }
    free(weight);
}

const struct param *gfpgan_squares(struct model_build *b, const char *layer, size_t count)
{
    return build_derived(b, build_name("%s.modulated_conv.demodulation", layer), count, gfpgan_fill_squares);
}

/* The kernels of a transposed convolution as those of a plain one: turned by 180°. name is "….modulated_conv.turned".
 */
static void gfpgan_fill_turned(struct model_build *b, const char *name, float *values, size_t count)
{
    const int length = (int)(strrchr(name, '.') - name);
    const struct weights_tensor *t = weights_find(model_weights(b->model), build_name("%.*s.weight", length, name));
    if (!t || t->count != count) {
        build_fail(b, ERROR_CORRUPT, "tensor %.*s.weight is missing or of another size", length, name);
        return;
    }
    weights_read_f32(t, values);
    for (float *kernel = values; kernel < values + count; kernel += 9)
        for (int k = 0; k < 4; k++) {
            const float last = kernel[8 - k];
            kernel[8 - k] = kernel[k];
            kernel[k] = last;
        }
}

/* ModulatedConv2d of x into out. turned: as a transposed one has it. */
static struct node *gfpgan_modulated(struct model_build *b, const struct modulation *m, struct view x, struct view out,
                                     int kernel, bool turned)
{
    if (x.tensor < 0 || out.tensor < 0)
        return build_conv_of(b, NULL, VIEW_NONE, VIEW_NONE, kernel);
    const int shape[4] = {graph_channels(b->graph, out), graph_channels(b->graph, x), kernel, kernel};
    const struct param *weight;
    if (turned)
        weight = build_derived(b, build_name("%s.modulated_conv.turned", m->layer.text),
                               (size_t)shape[0] * (size_t)shape[1] * 9, gfpgan_fill_turned);
    else
        weight = build_param(b, build_name("%s.modulated_conv.weight", m->layer.text), 4, shape);
    struct node *conv = build_conv_of(b, weight, x, out, kernel);
    conv->in[OP_IN_SCALE] = m->style;
    conv->in[OP_OUT_SCALE] = m->demodulation;
    if (gfpgan_original(b))
        conv->args.conv2d.gain = gfpgan_rate(b, x, kernel);
    return conv;
}

void gfpgan_style_conv(struct model_build *b, const struct modulation *m, struct view x, struct view out,
                       struct view noise, bool doubles)
{
    const bool original = gfpgan_original(b);
    const struct param *bias = NULL;
    if (x.tensor < 0 || out.tensor < 0)
        return;
    const int channels = graph_channels(b->graph, out);
    if (original)
        bias = build_param(b, build_name("%s.activate.bias", m->layer.text), 1, &channels);
    else
        bias = build_param(b, build_name("%s.bias", m->layer.text), 3, (int[]){channels, 1, 1});
    if (doubles && original)
        x = gfpgan_doubled(b, x, 1); /* the transposed convolution reaches a pixel further, and needs no padding */
    else if (doubles)
        x = build_resize(b, RESIZE_BILINEAR, x, 2 * graph_tensor_of(b->graph, x)->h,
                         2 * graph_tensor_of(b->graph, x)->w);
    struct node *conv = gfpgan_leaky(b, gfpgan_modulated(b, m, x, out, 3, doubles && original));
    if (doubles && original)
        conv->args.conv2d.pad = 0;
    if (!original)
        conv->args.conv2d.gain = ROOT_2;
    conv->args.conv2d.noise_weight = build_scalar(b, build_name("%s.weight", m->layer.text));
    conv->in[OP_NOISE_MAP] = noise;
    conv->param[OP_BIAS] = bias;
}

struct view gfpgan_rgb(struct model_build *b, const struct modulation *m, struct view x, struct view up,
                       enum tensor_role role)
{
    if (x.tensor < 0)
        return VIEW_NONE;
    const struct tensor t = *graph_tensor_of(b->graph, x);
    const int rgb = 3, shape[3] = {3, 1, 1};
    const struct view out = graph_tensor(b->graph, role, t.n, t.h, t.w, 1, &rgb);
    const struct param *bias = build_param(b, build_name("%s.bias", m->layer.text), 3, shape);
    struct node *conv = gfpgan_modulated(b, m, x, out, 1, false);
    conv->param[OP_BIAS] = bias;
    conv->in[OP_RESIDUAL1] = up;
    conv->args.conv2d.residual1_scale = 1;
    return out;
}

struct view gfpgan_enlarge(struct model_build *b, struct view picture, int side)
{
    return gfpgan_original(b) ? gfpgan_doubled(b, picture, 0) : build_resize(b, RESIZE_BILINEAR, picture, side, side);
}
