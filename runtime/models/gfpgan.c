/* GFPGAN (Wang et al. 2021, "Towards Real-World Blind Face Restoration with Generative Facial Prior"; the versions 1,
 * 1.2, 1.3 and 1.4, whose layers gfpgan_layers.h has): a U-Net that predicts a latent code a layer and spatial scales
 * and shifts, and a StyleGAN2 decoder modulated by them. The modulation scales the convolution's input channels by the
 * style and its output channels by the demodulation, which is the same as scaling the weights (Karras et al. 2020, eq.
 * 1 and 3) and keeps the weights shared by all faces of a batch. */
#include "runtime/models/gfpgan_layers.h"

#define GFPGAN_MAX_LEVELS 8
#define GFPGAN_MAX_LAYERS (2 + 3 * GFPGAN_MAX_LEVELS)

/* log2(size) - 2 */
static int gfpgan_levels(const struct weights *weights)
{
    return build_count(weights, gfpgan_is_original(weights) ? "conv_body_down.%d.conv1.0.weight"
                                                            : "conv_body_down.%d.conv1.weight");
}

static bool gfpgan_detect(const struct weights *weights, struct model_info *info, struct error *err)
{
    const bool original = gfpgan_is_original(weights);
    const int levels = gfpgan_levels(weights);
    (void)err;
    if (levels < 1 || levels > GFPGAN_MAX_LEVELS || (!original && !weights_find(weights, "conv_body_first.weight")) ||
        !weights_find(weights, "stylegan_decoder.constant_input.weight"))
        return false;
    info->kind = MODEL_FACE;
    info->architecture = original ? "GFPGANv1" : "GFPGANv1Clean";
    info->face_size = 4 << levels;
    info->noise_count = 2 * levels + 1;
    return true;
}

static void gfpgan_smallest(const struct model_info *info, struct session_shape *shape)
{
    shape->h = shape->w = info->face_size;
    shape->variant = MODEL_NOISE_STORED;
}

/* condition_scale and condition_shift i of the feature: for each a convolution with LeakyReLU, and later another; they
 * are kept apart so that what comes in between need not wait. */
static void gfpgan_conditions(struct model_build *b, int i, bool first, const struct view in[2], struct view out[2])
{
    for (int k = 0; k < 2; k++)
        out[k] = gfpgan_condition(b, build_name("condition_%s.%d", k == 0 ? "scale" : "shift", i), in[k], first);
}

/* The latent code of decoder layer i: one segment each where the network predicts several (different_w), else the same.
 */
static struct view gfpgan_latent(const struct graph *g, struct view latents, int i)
{
    return latents.tensor >= 0 && graph_tensor_of(g, latents)->segment_count > 1 ? graph_segments(latents, i, 1)
                                                                                 : latents;
}

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
        gfpgan_linear(b, build_name("%s.modulated_conv.modulation", m->layer.text), gfpgan_latent(g, latents, code),
                      m->style);
    }
    for (int i = 0; i < layers; i++) {
        if (i == 1 || (i >= 2 && (i - 2) % 3 == 2)) /* to RGB */
            continue;
        const struct param *squares = gfpgan_squares(b, out[i].layer.text, (size_t)in[i] * (size_t)channels[i]);
        out[i].demodulation = graph_temp(g, n, channels[i], 1, 1);
        struct node *node = graph_node(g, OP_DEMODULATE, out[i].demodulation);
        if (node) {
            node->in[OP_X] = out[i].style;
            node->param[OP_WEIGHT] = squares;
            node->args.demodulate.epsilon = 1e-8f;
        }
    }
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
    gfpgan_style_conv(b, &modulations[0], x, out, gfpgan_noise(b, shape->variant, n, 0, 4, noise_inputs), false);
    struct view skip = gfpgan_rgb(b, &modulations[1], out, VIEW_NONE, TENSOR_TEMP);
    for (int i = 0; i < levels; i++) {
        int side = 8 << i, layer = 2 * i + 1;
        const struct modulation *m = &modulations[3 * i];
        channels = build_size(b, build_name("stylegan_decoder.style_convs.%d.modulated_conv.weight", 2 * i), 1);
        struct view scale = conditions[2 * i], shift = conditions[2 * i + 1];
        if (scale.tensor < 0 || channels < 1)
            return;
        int conditioned = graph_channels(g, scale), segments[2] = {channels - conditioned, conditioned};
        bool half = conditioned < channels; /* sft_half: only the second half is transformed */
        struct view styled = graph_tensor(g, TENSOR_TEMP, n, side, side, half ? 2 : 1, half ? segments : &channels);
        gfpgan_style_conv(b, &m[2], out, styled, gfpgan_noise(b, shape->variant, n, layer, side, noise_inputs), true);
        struct view up = gfpgan_enlarge(b, skip, side);
        struct view part = half ? graph_segments(styled, 1, 1) : styled;
        struct node *transform = graph_node(g, OP_SCALE_SHIFT, part);
        if (transform) {
            transform->in[OP_X] = part;
            transform->in[OP_RESIDUAL1] = scale;
            transform->in[OP_RESIDUAL2] = shift;
        }
        out = graph_temp(g, n, channels, side, side);
        gfpgan_style_conv(b, &m[3], styled, out, gfpgan_noise(b, shape->variant, n, layer + 1, side, noise_inputs),
                          false);
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
    build_blocks(b, "conv_body_down.", 0, gfpgan_is_original(weights) ? ".conv1.0.weight" : ".conv1.weight");
    struct view x = graph_tensor(g, TENSOR_INPUT, n, size, size, 1, &rgb);
    for (int i = 0; i < 2 * levels + 1; i++)
        noise_inputs[i] = shape->variant == MODEL_NOISE_INPUT
                              ? graph_tensor(g, TENSOR_INPUT, n, gfpgan_side(i), gfpgan_side(i), 1, &one)
                              : VIEW_NONE;
    struct view feature = gfpgan_activated(b, "conv_body_first", x, 1);
    for (int i = 0; i < levels; i++)
        skips[levels - 1 - i] = feature = gfpgan_block(b, build_name("conv_body_down.%d", i), feature, size >> (i + 1));
    struct view last = gfpgan_activated(b, "final_conv", feature, 3);

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
    gfpgan_linear(b, "final_linear", last, latents);
    gfpgan_modulations(b, levels, n, latents, modulations);
    if (g->error.code)
        return;

    struct view middle[2], sum = gfpgan_add(b, last, skips[0]);
    for (int i = 0; i < levels; i++) {
        feature = gfpgan_block(b, build_name("conv_body_up.%d", i), sum, 8 << i);
        gfpgan_conditions(b, i, true, (struct view[]){feature, feature}, middle);
        if (i + 1 < levels)
            sum = gfpgan_add(b, feature, skips[i + 1]);
        gfpgan_conditions(b, i, false, middle, &conditions[2 * i]);
    }
    gfpgan_decoder(b, levels, shape, modulations, conditions, noise_inputs);
}

const struct architecture architecture_gfpgan = {gfpgan_detect, gfpgan_build, gfpgan_smallest};
