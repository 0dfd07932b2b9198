/* GFPGANv1Clean (Wang et al. 2021, "Towards Real-World Blind Face Restoration with Generative Facial Prior"; the
 * versions 1.2, 1.3 and 1.4): a U-Net that predicts a latent code a layer and spatial scales and shifts, and a
 * StyleGAN2 decoder modulated by them. The modulation scales the convolution's input channels by the style and its
 * output channels by the demodulation, which is the same as scaling the weights (Karras et al. 2020, eq. 1 and 3) and
 * keeps the weights shared by all faces of a batch. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/models/model_build.h"

#define GFPGAN_MAX_LEVELS 8
#define GFPGAN_MAX_LAYERS (2 + 3 * GFPGAN_MAX_LEVELS)

static int gfpgan_levels(const struct weights *weights)
{
    return build_count(weights, "conv_body_down.%d.conv1.weight"); /* log2(size) - 2 */
}

static bool gfpgan_detect(const struct weights *weights, struct model_info *info, struct error *err)
{
    if (weights_find(weights, "conv_body_first.0.weight") &&
        weights_find(weights, "stylegan_decoder.style_conv1.weight")) {
        error_set(err, ERROR_UNSUPPORTED,
                  "GFPGANv1 (the original architecture) is not supported yet; use 1.2, 1.3 or 1.4");
        return false;
    }
    if (weights_find(weights, "quantize.embedding.weight")) {
        error_set(err, ERROR_UNSUPPORTED, "RestoreFormer is not supported yet; use 1.2, 1.3 or 1.4");
        return false;
    }
    int levels = gfpgan_levels(weights);
    if (levels < 1 || levels > GFPGAN_MAX_LEVELS || !weights_find(weights, "conv_body_first.weight") ||
        !weights_find(weights, "stylegan_decoder.constant_input.weight"))
        return false;
    info->kind = MODEL_FACE;
    info->architecture = "GFPGANv1Clean";
    info->face_size = 4 << levels;
    info->noise_count = 2 * levels + 1;
    return true;
}

static void gfpgan_smallest(const struct model_info *info, struct session_shape *shape)
{
    shape->h = shape->w = info->face_size;
    shape->variant = MODEL_NOISE_STORED;
}

static int gfpgan_out(struct model_build *b, const char *name)
{
    return build_size(b, name, 0);
}

static void gfpgan_leaky(struct node *conv)
{
    conv->args.conv2d.activation = ACTIVATION_LEAKY;
    conv->args.conv2d.slope = 0.2f;
}

/* ResBlock: two convolutions around a bilinear resize to side × side, plus a 1×1 convolution of the resized input. */
static struct view gfpgan_block(struct model_build *b, const char *name, struct view x, int side)
{
    if (x.tensor < 0)
        return VIEW_NONE;
    struct view first = build_like(b, x, graph_channels(b->graph, x));
    gfpgan_leaky(build_conv(b, build_name("%s.conv1", name), x, first, 3));
    int channels = gfpgan_out(b, build_name("%s.conv2.weight", name));
    const struct build_text skip_name = build_text("%s.skip", name);
    struct view skip, inner;
    if (side > graph_tensor_of(b->graph, x)->h) { /* a 1×1 convolution may just as well come before the enlargement */
        struct view small = build_like(b, x, channels);
        build_conv_plain(b, skip_name.text, x, small, 1);
        inner = build_resize(b, RESIZE_BILINEAR, first, side, side);
        skip = build_resize(b, RESIZE_BILINEAR, small, side, side);
    } else {
        struct view small = build_resize(b, RESIZE_BILINEAR, x, side, side);
        inner = build_resize(b, RESIZE_BILINEAR, first, side, side);
        skip = build_like(b, inner, channels);
        build_conv_plain(b, skip_name.text, small, skip, 1);
    }
    struct view out = build_like(b, inner, channels);
    struct node *second = build_conv(b, build_name("%s.conv2", name), inner, out, 3);
    gfpgan_leaky(second);
    second->in[OP_RESIDUAL1] = skip;
    second->args.conv2d.residual1_scale = 1;
    return out;
}

/* condition_scale and condition_shift i of the feature: for each a convolution with LeakyReLU, and later another; they
 * are kept apart so that what comes in between need not wait. */
static void gfpgan_conditions(struct model_build *b, int i, struct view feature, struct view middle[2])
{
    for (int k = 0; k < 2; k++) {
        const struct build_text name = build_text("condition_%s.%d.0", k == 0 ? "scale" : "shift", i);
        middle[k] = build_like(b, feature, gfpgan_out(b, build_name("%s.weight", name.text)));
        gfpgan_leaky(build_conv(b, name.text, feature, middle[k], 3));
    }
}

static void gfpgan_conditions_end(struct model_build *b, int i, const struct view middle[2], struct view out[2])
{
    for (int k = 0; k < 2; k++) {
        const struct build_text name = build_text("condition_%s.%d.2", k == 0 ? "scale" : "shift", i);
        out[k] = build_like(b, middle[k], gfpgan_out(b, build_name("%s.weight", name.text)));
        build_conv(b, name.text, middle[k], out[k], 3);
    }
}

/* The sum over the kernel of the squared weights [o][i], for OP_DEMODULATE. name is "….modulated_conv.demodulation". */
static void gfpgan_squares(struct model_build *b, const char *name, float *values, size_t count)
{
    int length = (int)(strrchr(name, '.') - name);
    const struct weights_tensor *t = weights_find(model_weights(b->model), build_name("%.*s.weight", length, name));
    float *weight = t && t->count % count == 0 ? mem_alloc(t->count, sizeof(float)) : NULL;
    if (!weight) {
        build_fail(b, t ? ERROR_NO_MEMORY : ERROR_CORRUPT, "tensor %.*s.weight is missing or too large", length, name);
        return;
    }
    weights_read_f32(t, weight);
    size_t kernel = t->count / count;
    for (size_t i = 0; i < count; i++) {
        double sum = 0;
        for (size_t k = 0; k < kernel; k++)
            sum += (double)weight[i * kernel + k] * weight[i * kernel + k];
        values[i] = (float)sum;
    }
    free(weight);
}

/* The latent code of decoder layer i: one segment each where the network predicts several (different_w), else the same.
 */
static struct view gfpgan_latent(const struct graph *g, struct view latents, int i)
{
    return latents.tensor >= 0 && graph_tensor_of(g, latents)->segment_count > 1 ? graph_segments(latents, i, 1)
                                                                                 : latents;
}

/* A layer of the decoder, and what its ModulatedConv2d gets from the latent code: the factors of the input's and of the
 * output's channels (none of the latter where it makes RGB). */
struct modulation {
    struct build_text layer;
    struct view style, demodulation;
};

/* All layers in order: style_conv1, to_rgb1, and three at each size. First all styles, then all demodulations: a device
 * can do those of one kind at the same time. */
static void gfpgan_modulations(struct model_build *b, int levels, int n, struct view latents, struct modulation *out)
{
    struct graph *g = b->graph;
    int layers = 2 + 3 * levels, in[GFPGAN_MAX_LAYERS], channels[GFPGAN_MAX_LAYERS];
    for (int i = 0; i < layers; i++) {
        int level = (i - 2) / 3, of = (i - 2) % 3, code = i < 2 ? i : 2 * level + 1 + of;
        struct modulation *m = &out[i];
        *m = (struct modulation){.demodulation = VIEW_NONE};
        m->layer = i == 0   ? build_text("stylegan_decoder.style_conv1")
                   : i == 1 ? build_text("stylegan_decoder.to_rgb1")
                   : of < 2 ? build_text("stylegan_decoder.style_convs.%d", 2 * level + of)
                            : build_text("stylegan_decoder.to_rgbs.%d", level);
        const struct build_text weight = build_text("%s.modulated_conv.weight", m->layer.text);
        channels[i] = build_size(b, weight.text, 1);
        in[i] = build_size(b, weight.text, 2);
        if (in[i] < 1 || channels[i] < 1)
            return;
        m->style = graph_temp(g, n, in[i], 1, 1);
        build_linear(b, build_name("%s.modulated_conv.modulation", m->layer.text), gfpgan_latent(g, latents, code),
                     m->style);
    }
    for (int i = 0; i < layers; i++) {
        if (i == 1 || (i >= 2 && (i - 2) % 3 == 2)) /* to RGB */
            continue;
        const struct param *squares = build_derived(b, build_name("%s.modulated_conv.demodulation", out[i].layer.text),
                                                    (size_t)in[i] * (size_t)channels[i], gfpgan_squares);
        out[i].demodulation = graph_temp(g, n, channels[i], 1, 1);
        struct node *node = graph_node(g, OP_DEMODULATE, out[i].demodulation);
        if (node) {
            node->in[OP_X] = out[i].style;
            node->param[OP_WEIGHT] = squares;
            node->args.demodulate.epsilon = 1e-8f;
        }
    }
}

/* ModulatedConv2d of x into out. */
static struct node *gfpgan_modulated(struct model_build *b, const struct modulation *m, struct view x, struct view out,
                                     int kernel)
{
    struct node *conv = build_conv_plain(b, build_name("%s.modulated_conv", m->layer.text), x, out, kernel);
    conv->in[OP_IN_SCALE] = m->style;
    conv->in[OP_OUT_SCALE] = m->demodulation;
    return conv;
}

/* StyleConv: modulated convolution, times sqrt(2), noise, bias, LeakyReLU. */
static void gfpgan_style_conv(struct model_build *b, const struct modulation *m, struct view x, struct view out,
                              struct view noise)
{
    const struct param *bias = NULL;
    if (out.tensor >= 0) {
        int shape[3] = {graph_channels(b->graph, out), 1, 1};
        bias = build_param(b, build_name("%s.bias", m->layer.text), 3, shape);
    }
    struct node *conv = gfpgan_modulated(b, m, x, out, 3);
    gfpgan_leaky(conv);
    conv->args.conv2d.gain = (float)sqrt(2.0);
    conv->args.conv2d.noise_weight = build_scalar(b, build_name("%s.weight", m->layer.text));
    conv->in[OP_NOISE_MAP] = noise;
    conv->param[OP_BIAS] = bias;
}

/* ToRGB: modulated 1×1 convolution without demodulation, plus the smaller picture, already enlarged. */
static struct view gfpgan_rgb(struct model_build *b, const struct modulation *m, struct view x, struct view up,
                              enum tensor_role role)
{
    if (x.tensor < 0)
        return VIEW_NONE;
    struct tensor t = *graph_tensor_of(b->graph, x);
    int rgb = 3, shape[3] = {3, 1, 1};
    struct view out = graph_tensor(b->graph, role, t.n, t.h, t.w, 1, &rgb);
    const struct param *bias = build_param(b, build_name("%s.bias", m->layer.text), 3, shape);
    struct node *conv = gfpgan_modulated(b, m, x, out, 1);
    conv->param[OP_BIAS] = bias;
    conv->in[OP_RESIDUAL1] = up;
    conv->args.conv2d.residual1_scale = 1;
    return out;
}

/* The noise map of layer i, side × side. inputs: the tensors for MODEL_NOISE_INPUT. */
static struct view gfpgan_noise(struct model_build *b, int variant, int n, int layer, int side,
                                const struct view *inputs)
{
    if (variant == MODEL_NOISE_INPUT)
        return inputs[layer];
    if (variant == MODEL_NOISE_SEED) {
        struct view out = graph_temp(b->graph, n, 1, side, side);
        struct node *node = graph_node(b->graph, OP_NOISE, out);
        if (node)
            node->args.noise.layer = layer;
        return out;
    }
    int shape[2] = {side, side};
    const struct param *stored = build_param(b, build_name("stylegan_decoder.noises.noise%d", layer), 2, shape);
    return stored ? graph_constant(b->graph, stored, 1, side, side) : VIEW_NONE;
}

static int gfpgan_side(int layer)
{
    return 4 << ((layer + 1) / 2);
}

/* StyleGAN2 with spatial feature transforms; conditions[2*i], [2*i+1]: scale and shift at size 8 << i. */
static void gfpgan_decoder(struct model_build *b, int levels, const struct session_shape *shape,
                           const struct modulation *modulations, const struct view *conditions,
                           const struct view *noise_inputs)
{
    struct graph *g = b->graph;
    int n = shape->n, channels = build_size(b, "stylegan_decoder.constant_input.weight", 1);
    int constant_shape[3] = {channels, 4, 4};
    const struct param *constant = build_param(b, "stylegan_decoder.constant_input.weight", 3, constant_shape);
    if (!constant)
        return;
    /* A constant serves every image of the batch, but a convolution's input has the batch's own n. */
    struct view x = graph_temp(g, n, channels, 4, 4), seed = graph_constant(g, constant, channels, 4, 4);
    struct node *spread = graph_node(g, OP_ADD, x);
    if (spread) {
        spread->in[OP_X] = spread->in[OP_RESIDUAL1] = seed;
        spread->args.add.x_scale = 1;
    }
    struct view out = graph_temp(g, n, channels, 4, 4);
    gfpgan_style_conv(b, &modulations[0], x, out, gfpgan_noise(b, shape->variant, n, 0, 4, noise_inputs));
    struct view skip = gfpgan_rgb(b, &modulations[1], out, VIEW_NONE, TENSOR_TEMP);
    for (int i = 0; i < levels; i++) {
        int side = 8 << i, layer = 2 * i + 1;
        const struct modulation *m = &modulations[3 * i];
        channels = build_size(b, build_name("stylegan_decoder.style_convs.%d.modulated_conv.weight", 2 * i), 1);
        struct view scale = conditions[2 * i], shift = conditions[2 * i + 1],
                    big = build_resize(b, RESIZE_BILINEAR, out, side, side);
        if (scale.tensor < 0 || channels < 1)
            return;
        int conditioned = graph_channels(g, scale), segments[2] = {channels - conditioned, conditioned};
        bool half = conditioned < channels; /* sft_half: only the second half is transformed */
        struct view styled = graph_tensor(g, TENSOR_TEMP, n, side, side, half ? 2 : 1, half ? segments : &channels);
        gfpgan_style_conv(b, &m[2], big, styled, gfpgan_noise(b, shape->variant, n, layer, side, noise_inputs));
        struct view up = build_resize(b, RESIZE_BILINEAR, skip, side, side);
        struct view part = half ? graph_segments(styled, 1, 1) : styled;
        struct node *transform = graph_node(g, OP_SCALE_SHIFT, part);
        if (transform) {
            transform->in[OP_X] = part;
            transform->in[OP_RESIDUAL1] = scale;
            transform->in[OP_RESIDUAL2] = shift;
        }
        out = graph_temp(g, n, channels, side, side);
        gfpgan_style_conv(b, &m[3], styled, out, gfpgan_noise(b, shape->variant, n, layer + 1, side, noise_inputs));
        skip = gfpgan_rgb(b, &m[4], out, up, i == levels - 1 ? TENSOR_OUTPUT : TENSOR_TEMP);
    }
}

/* feat + unet_skip, into a new tensor: feat itself is still needed for the conditions. */
static struct view gfpgan_add(struct model_build *b, struct view x, struct view y)
{
    struct view out = x.tensor < 0 ? VIEW_NONE : build_like(b, x, graph_channels(b->graph, x));
    struct node *node = graph_node(b->graph, OP_ADD, out);
    if (node) {
        node->in[OP_X] = x;
        node->in[OP_RESIDUAL1] = y;
        node->args.add.x_scale = node->args.add.residual1_scale = 1;
    }
    return out;
}

static void gfpgan_build(struct model_build *b, const struct session_shape *shape)
{
    const struct weights *weights = model_weights(b->model);
    struct graph *g = b->graph;
    int levels = gfpgan_levels(weights), size = 4 << levels, n = shape->n, rgb = 3, one = 1;
    struct view skips[GFPGAN_MAX_LEVELS], conditions[2 * GFPGAN_MAX_LEVELS], noise_inputs[2 * GFPGAN_MAX_LEVELS + 1];
    struct modulation modulations[GFPGAN_MAX_LAYERS];
    if (shape->h != size || shape->w != size) {
        build_fail(b, ERROR_INVALID, "the face network takes %d×%d px, not %d×%d", size, size, shape->w, shape->h);
        return;
    }
    build_blocks(b, "conv_body_down.", 0, ".conv1.weight"); /* as many as there are levels */
    struct view x = graph_tensor(g, TENSOR_INPUT, n, size, size, 1, &rgb);
    for (int i = 0; i < 2 * levels + 1; i++)
        noise_inputs[i] = shape->variant == MODEL_NOISE_INPUT
                              ? graph_tensor(g, TENSOR_INPUT, n, gfpgan_side(i), gfpgan_side(i), 1, &one)
                              : VIEW_NONE;
    struct view feature = build_like(b, x, gfpgan_out(b, "conv_body_first.weight"));
    gfpgan_leaky(build_conv(b, "conv_body_first", x, feature, 1));
    for (int i = 0; i < levels; i++)
        skips[levels - 1 - i] = feature = gfpgan_block(b, build_name("conv_body_down.%d", i), feature, size >> (i + 1));
    struct view last = build_like(b, feature, gfpgan_out(b, "final_conv.weight"));
    gfpgan_leaky(build_conv(b, "final_conv", feature, last, 3));

    int features = build_size(b, "stylegan_decoder.style_conv1.modulated_conv.modulation.weight", 1);
    int outputs = build_size(b, "final_linear.weight", 0), codes = features ? outputs / features : 0;
    int segments[GRAPH_MAX_SEGMENTS];
    if (features < 1 || (codes != 1 && codes != 2 * levels + 2) || codes * features != outputs) {
        build_fail(b, ERROR_CORRUPT, "final_linear makes %d values, not %d latent codes of %d", outputs, 2 * levels + 2,
                   features);
        return;
    }
    for (int i = 0; i < codes; i++)
        segments[i] = features;
    struct view latents = graph_tensor(g, TENSOR_TEMP, n, 1, 1, codes, segments);
    build_linear(b, "final_linear", last, latents);
    gfpgan_modulations(b, levels, n, latents, modulations);
    if (g->error.code)
        return;

    struct view middle[2], sum = gfpgan_add(b, last, skips[0]);
    for (int i = 0; i < levels; i++) {
        feature = gfpgan_block(b, build_name("conv_body_up.%d", i), sum, 8 << i);
        gfpgan_conditions(b, i, feature, middle);
        if (i + 1 < levels)
            sum = gfpgan_add(b, feature, skips[i + 1]);
        gfpgan_conditions_end(b, i, middle, &conditions[2 * i]);
    }
    gfpgan_decoder(b, levels, shape, modulations, conditions, noise_inputs);
}

const struct architecture architecture_gfpgan = {gfpgan_detect, gfpgan_build, gfpgan_smallest};
