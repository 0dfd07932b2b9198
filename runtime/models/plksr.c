/* RealPLKSR (names as in its authors' file; PLKSR: Lee et al. 2024): blocks of a wide 3×3 pair, a large kernel on a
 * part of the channels, a gate and a group norm, whose mean and deviation are those of all that the network is given;
 * or a layer norm in the beginning, which sees one pixel. It ends in a pixel shuffle, or in DySample (Liu et al. 2023),
 * which reads the picture between its pixels. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/models/model_build.h"

#define PLKSR_GROUPS 4  /* of channels that are normed together: no tensor tells */
#define PLKSR_KERNEL 63 /* px, the large one at most */

static int plksr_last(const struct weights *weights)
{
    return build_last(weights, "feats.");
}

/* Those that follow each other from feats.1 on; behind them come a dropout, which has no tensors, and the last layer.
 */
static int plksr_blocks(const struct weights *weights)
{
    int blocks = 0;
    while (weights_find(weights, build_name("feats.%d.lk.conv.weight", blocks + 1)))
        blocks++;
    return blocks;
}

static bool plksr_detect(const struct weights *weights, struct model_info *info, struct error *err)
{
    const int last = plksr_last(weights), deep = build_dim(weights, build_name("feats.%d.weight", last), 0);
    const int blocks = plksr_blocks(weights), kernel = build_dim(weights, "feats.1.lk.conv.weight", 2);
    const int scale = (int)lround(sqrt(deep / 3.0));
    if (!weights_find(weights, "feats.0.weight") || !weights_find(weights, "feats.1.lk.conv.weight") ||
        !weights_find(weights, "feats.1.refine.weight") || !weights_find(weights, "feats.1.channel_mixer.0.weight"))
        return false;
    if (build_dim(weights, "feats.0.weight", 1) != 3 || scale < 1 || scale > 8 || deep != 3 * scale * scale)
        error_set(err, ERROR_UNSUPPORTED,
                  "RealPLKSR that takes %d channels and makes %d of a pixel; 3 and a scale of 1 to 8 are supported",
                  build_dim(weights, "feats.0.weight", 1), deep);
    else if (last != blocks + 2)
        error_set(err, ERROR_CORRUPT, "a RealPLKSR of %d blocks that ends in feats.%d, not in feats.%d", blocks, last,
                  blocks + 2);
    else if (kernel > PLKSR_KERNEL)
        error_set(err, ERROR_UNSUPPORTED, "RealPLKSR with kernels of %d px; at most %d are supported", kernel,
                  PLKSR_KERNEL);
    info->kind = MODEL_UPSCALER;
    info->architecture = weights_find(weights, "to_img.init_pos") ? "RealPLKSR+DySample" : "RealPLKSR";
    info->scale = scale;
    info->radius = err->code ? 0 : blocks * (3 + kernel / 2) + 2;
    return !err->code;
}

static void plksr_smallest(const struct model_info *info, struct session_shape *shape)
{
    (void)info;
    shape->h = shape->w = 4;
}

/* "TENSOR.turned": its first rows, which the large kernel takes, come last. */
static void plksr_turn(struct model_build *b, const char *name, float *values, size_t count)
{
    const struct weights *weights = model_weights(b->model);
    const struct build_text tensor = build_text("%.*s", (int)(strlen(name) - strlen(".turned")), name);
    const struct weights_tensor *t = weights_find(weights, tensor.text);
    const int part = build_dim(weights, "feats.1.lk.conv.weight", 0);
    float *from = t && t->count == count ? mem_alloc(count, sizeof *from) : NULL;
    if (!t || t->count != count || t->rank < 1 || t->shape[0] < (uint64_t)part)
        build_fail(b, ERROR_CORRUPT, "tensor %s is missing or has another shape than follows from the others",
                   tensor.text);
    else if (!from)
        build_fail(b, ERROR_NO_MEMORY, "out of memory for the model's parameters");
    else {
        const size_t first = count / (size_t)t->shape[0] * (size_t)part;
        weights_read_f32(t, from);
        memcpy(values, from + first, (count - first) * sizeof *values);
        memcpy(values + count - first, from, first * sizeof *values);
    }
    free(from);
}

static struct view plksr_block(struct model_build *b, const char *name, struct view x)
{
    const struct weights *weights = model_weights(b->model);
    const bool layer = weights_find(weights, build_name("%s.layer_norm.weight", name));
    const struct build_text large = build_text("%s.lk.conv", name);
    const int part = build_size(b, build_name("%s.weight", large.text), 0),
              kernel = build_size(b, build_name("%s.weight", large.text), 2),
              wide = build_size(b, build_name("%s.channel_mixer.0.weight", name), 0);
    if (x.tensor < 0 || part < 1 || kernel < 1 || wide < 1)
        return VIEW_NONE;
    const struct tensor t = *graph_tensor_of(b->graph, x);
    const int f = t.channels;
    if (part >= f || part != build_dim(weights, "feats.1.lk.conv.weight", 0)) {
        build_fail(b, ERROR_CORRUPT, "tensor %s.weight has %d channels of %d", large.text, part, f);
        return VIEW_NONE;
    }
    struct view from = x;
    if (layer) {
        from = build_like(b, x, f);
        build_norm_layer(b, build_name("%s.layer_norm", name), OP_LAYER_NORM, x, from)->args.norm.epsilon = 1e-6f;
    }
    const struct view mixed = build_like(b, x, wide), out = build_like(b, x, f), refined = build_like(b, x, f);
    build_conv(b, build_name("%s.channel_mixer.0", name), from, mixed, 3)->args.conv2d.activation = ACTIVATION_MISH;
    /* What the large kernel gives, what passes it, what it takes. */
    const struct view all = graph_tensor(b->graph, TENSOR_TEMP, t.n, t.h, t.w, 3, (const int[]){part, f - part, part});
    const struct view joined = graph_segments(all, 0, 2);
    const struct build_text mixer = build_text("%s.channel_mixer.2", name);
    build_param(b, build_name("%s.weight", mixer.text), 4, (const int[]){f, wide, 3, 3}); /* its shape */
    struct node *second = build_conv_of(
        b, build_derived(b, build_name("%s.weight.turned", mixer.text), (size_t)f * (size_t)wide * 9, plksr_turn),
        mixed, graph_segments(all, 1, 2), 3);
    second->param[OP_BIAS] = build_derived(b, build_name("%s.bias.turned", mixer.text), (size_t)f, plksr_turn);
    build_conv(b, large.text, graph_segments(all, 2, 1), graph_segments(all, 0, 1), kernel);
    struct view gated = joined;
    if (weights_find(weights, build_name("%s.attn.f.0.weight", name))) {
        const struct view gate = build_like(b, x, f);
        build_conv(b, build_name("%s.attn.f.0", name), joined, gate, 3);
        gated = build_like(b, x, f);
        struct node *node = graph_node(b->graph, OP_GATE, gated);
        if (node) {
            node->in[OP_X] = joined;
            node->in[OP_RESIDUAL2] = gate;
        }
    }
    struct node *refine = build_conv(b, build_name("%s.refine", name), gated, refined, 1);
    if (layer) {
        refine->in[OP_RESIDUAL1] = x;
        refine->args.conv2d.residual1_scale = 1;
        return refined;
    }
    struct node *norm = build_norm_layer(b, build_name("%s.norm", name), OP_GROUP_NORM, refined, out);
    norm->args.norm.groups = PLKSR_GROUPS;
    struct node *add = graph_node(b->graph, OP_ADD, out);
    if (add) {
        add->in[OP_X] = out;
        add->in[OP_RESIDUAL1] = x;
        add->args.add = (struct op_add){.x_scale = 1, .residual1_scale = 1};
    }
    return out;
}

/* ---- DySample ---- */

/* Each of the picture's channels, as often as the shuffle takes it apart. */
static void plksr_repeat(struct model_build *b, const char *name, float *values, size_t count)
{
    (void)b;
    (void)name;
    const size_t each = count / 9;
    for (size_t i = 0; i < count; i++)
        values[i] = i / 3 / each == i % 3;
}

/* "points.G": the end convolution of each group's channels: [group][channel of the picture][channel]. What is read
 * between pixels and what is summed over channels may be exchanged, and three channels a group are fewer. Without an
 * end convolution (×1) each group is a channel. */
static void plksr_points(struct model_build *b, const char *name, float *values, size_t count)
{
    const size_t groups = (size_t)atoi(strrchr(name, '.') + 1), channels = count / (3 * groups);
    const struct weights_tensor *t = weights_find(model_weights(b->model), "to_img.end_conv.weight");
    float *from = t && t->count == 3 * channels ? mem_alloc(t->count, sizeof *from) : NULL;
    if (t ? t->count != 3 * channels : channels != 3)
        build_fail(b, ERROR_CORRUPT,
                   "tensor to_img.end_conv.weight is missing or has another shape than follows from the others");
    else if (t && !from)
        build_fail(b, ERROR_NO_MEMORY, "out of memory for the model's parameters");
    if (from)
        weights_read_f32(t, from);
    for (size_t i = 0; i < count; i++) {
        const size_t c = i % channels, o = i / channels % 3, g = i / channels / 3;
        values[i] = c * groups / channels != g ? 0 : from ? from[o * channels + c] : o == c;
    }
    free(from);
}

/* Its bias is the first group's. */
static void plksr_points_bias(struct model_build *b, const char *name, float *values, size_t count)
{
    const struct weights_tensor *t = weights_find(model_weights(b->model), "to_img.end_conv.bias");
    (void)name;
    memset(values, 0, count * sizeof *values);
    if (t && t->count == 3)
        weights_read_f32(t, values);
    else if (t)
        build_fail(b, ERROR_CORRUPT, "tensor to_img.end_conv.bias has not three values");
}

static void plksr_sample(struct model_build *b, struct view x, int scale, struct view out)
{
    if (x.tensor < 0 || out.tensor < 0)
        return;
    const int groups = scale % 2 ? 3 : 4, places = 2 * groups * scale * scale;
    const struct tensor t = *graph_tensor_of(b->graph, x);
    const struct view offset = build_like(b, x, places), scope = build_like(b, x, places),
                      at = build_like(b, x, places);
    int segments[4] = {3, 3, 3, 3};
    const struct view points = graph_tensor(b->graph, TENSOR_TEMP, t.n, t.h, t.w, groups, segments);
    build_conv(b, "to_img.offset", x, offset, 1)->args.conv2d.scale = 0.5f;
    build_conv_plain(b, "to_img.scope", x, scope, 1);
    struct node *gate = graph_node(b->graph, OP_GATE, at);
    if (!gate)
        return;
    gate->in[OP_X] = offset;
    gate->in[OP_RESIDUAL2] = scope;
    const size_t count = 3 * (size_t)groups;
    struct node *conv = build_conv_of(
        b, build_derived(b, build_name("points.%d", groups), count * (size_t)t.channels, plksr_points), x, points, 1);
    conv->param[OP_BIAS] = build_derived(b, "points.bias", count, plksr_points_bias);
    const struct param *first = build_param(b, "to_img.init_pos", 3, (const int[]){places, 1, 1});
    struct node *sample = graph_node(b->graph, OP_SAMPLE, out);
    if (!sample)
        return;
    sample->in[OP_X] = points;
    sample->in[OP_RESIDUAL1] = at;
    sample->param[OP_WEIGHT] = first;
    sample->args.sample = (struct op_sample){.groups = groups, .factor = scale};
}

static void plksr_build(struct model_build *b, const struct session_shape *shape)
{
    const struct weights *weights = model_weights(b->model);
    const int last = plksr_last(weights), scale = model_info(b->model)->scale, rgb = 3, deep = 3 * scale * scale;
    const int n = shape->n, h = shape->h, w = shape->w;
    struct graph *g = b->graph;
    const struct view input = graph_tensor(g, TENSOR_INPUT, n, h, w, 1, &rgb);
    struct view x = build_like(b, input, build_size(b, "feats.0.weight", 0));
    build_conv(b, "feats.0", input, x, 3);
    for (int i = 1; i < last - 1; i++)
        x = plksr_block(b, build_name("feats.%d", i), x);
    const struct view all = graph_temp(g, n, deep, h, w),
                      out = graph_tensor(g, TENSOR_OUTPUT, n, h * scale, w * scale, 1, &rgb);
    if (!weights_find(weights, "to_img.init_pos")) {
        build_conv(b, build_name("feats.%d", last), x, all, 3);
        struct node *shuffle = graph_node(g, OP_PIXEL_SHUFFLE, out);
        if (shuffle) {
            shuffle->in[OP_X] = all;
            shuffle->in[OP_RESIDUAL1] = input;
            shuffle->args.shuffle.factor = scale;
        }
        return;
    }
    const struct view repeated = graph_temp(g, n, deep, h, w);
    build_conv_of(b, build_derived(b, "repeat", 3 * (size_t)deep, plksr_repeat), input, repeated, 1);
    struct node *conv = build_conv(b, build_name("feats.%d", last), x, all, 3);
    conv->in[OP_RESIDUAL1] = repeated;
    conv->args.conv2d.residual1_scale = 1;
    plksr_sample(b, all, scale, out);
}

const struct architecture architecture_plksr = {plksr_detect, plksr_build, plksr_smallest};
