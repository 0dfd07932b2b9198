/* FBCNN (Jiang et al. 2021; names as in its authors' models/network_fbcnn.py): a U-Net of residual blocks against
 * JPEG's artefacts, whose second half is steered by the file's quality. It finds that by itself, by a mean over the
 * picture it is given, or is told. */
#include <stdlib.h>

#include "runtime/base/mem.h"
#include "runtime/models/restorer.h"
#include "runtime/models/transposed.h"

#define FBCNN_LEVELS 3

static bool fbcnn_detect(const struct weights *weights, struct model_info *info, struct error *err)
{
    bool level;
    if (!weights_find(weights, "m_head.weight") || !weights_find(weights, "m_tail.weight") ||
        !weights_find(weights, "m_body_encoder.0.res.0.weight") || !weights_find(weights, "qf_pred.0.res.0.weight"))
        return false;
    const int blocks = build_count(weights, "m_body_encoder.%d.res.0.weight");
    if (build_dim(weights, build_name("m_down1.%d.weight", blocks), 2) != 2 ||
        build_dim(weights, "m_up3.0.weight", 2) != 2)
        error_set(
            err, ERROR_UNSUPPORTED,
            "FBCNN that changes sizes by other layers than convolutions of 2×2 px, which its authors' files have");
    const int in = build_dim(weights, "m_head.weight", 1), out = build_dim(weights, "m_tail.weight", 0);
    if (err->code || !restorer_channels(in, out, &level, "FBCNN", err))
        return false;
    if (level)
        error_set(err, ERROR_UNSUPPORTED, "FBCNN that takes %d channels and gives %d; 1 and 3 are supported", in, out);
    info->kind = MODEL_UPSCALER;
    info->architecture = "FBCNN";
    info->unshuffle = 1 << FBCNN_LEVELS;
    info->full_body = true;
    info->repeats = true;
    info->radius = 2 + 4 * blocks * (1 + 2 + 4) + 4 * blocks * 8;
    return !err->code;
}

static void fbcnn_smallest(const struct model_info *info, struct session_shape *shape)
{
    shape->h = shape->w = info->unshuffle;
}

static struct view fbcnn_linear(struct model_build *b, const char *name, struct view x, enum activation activation)
{
    if (x.tensor < 0)
        return VIEW_NONE;
    const struct tensor t = *graph_tensor_of(b->graph, x);
    const struct view out = graph_temp(b->graph, t.n, build_size(b, build_name("%s.weight", name), 0), 1, 1);
    build_linear(b, name, x, out)->args.linear.activation = activation;
    return out;
}

/* What the network takes quality for: 1 - q/100. */
static void fbcnn_told(struct model_build *b, const char *name, float *values, size_t count)
{
    (void)name;
    values[count - 1] = 1 - build_settings(b)->jpeg_quality / 100;
}

/* The quality as a vector: found in the deepest layer, or told. */
static struct view fbcnn_quality(struct model_build *b, struct view deep, int n)
{
    struct view x;
    if (build_settings(b)->has_jpeg_quality) {
        const int one = 1;
        const struct param *told = build_derived(b, "quality", 1, fbcnn_told);
        x = graph_temp(b->graph, n, 1, 1, 1);
        if (!told)
            return VIEW_NONE;
        const struct view constant = graph_constant(b->graph, told, one, 1, 1);
        struct node *copy = graph_node(b->graph, OP_ADD, x);
        if (copy) {
            copy->in[OP_X] = copy->in[OP_RESIDUAL1] = constant;
            copy->args.add = (struct op_add){.x_scale = 0.5f, .residual1_scale = 0.5f};
        }
    } else {
        const int blocks = build_count(model_weights(b->model), "qf_pred.%d.res.0.weight");
        deep = restorer_blocks(b, "qf_pred", 0, blocks, deep, VIEW_NONE);
        if (deep.tensor < 0)
            return VIEW_NONE;
        x = graph_temp(b->graph, n, graph_channels(b->graph, deep), 1, 1);
        struct node *mean = graph_node(b->graph, OP_MEAN, x);
        if (mean)
            mean->in[OP_X] = deep;
        for (int i = 0; i < 3; i++) /* behind the mean and a flattening, every second one an activation */
            x = fbcnn_linear(b, build_name("qf_pred.%d", blocks + 2 + 2 * i), x,
                             i < 2 ? ACTIVATION_RELU : ACTIVATION_SIGMOID);
    }
    for (int i = 0; i < 3; i++)
        x = fbcnn_linear(b, build_name("qf_embed.%d", 2 * i), x, ACTIVATION_RELU);
    return x;
}

/* Adds a value a channel to x, in place. */
static void fbcnn_add(struct model_build *b, struct view x, struct view shift)
{
    struct node *add = x.tensor < 0 || shift.tensor < 0 ? NULL : graph_node(b->graph, OP_ADD, x);
    if (!add)
        return;
    add->in[OP_X] = x;
    add->in[OP_RESIDUAL1] = shift;
    add->args.add = (struct op_add){.x_scale = 1, .residual1_scale = 1};
}

/* gamma times the bias of the block's second convolution, and beta: one value a channel. */
static struct view fbcnn_shift(struct model_build *b, const char *name, struct view gamma, struct view beta)
{
    if (gamma.tensor < 0 || beta.tensor < 0)
        return VIEW_NONE;
    const int channels = graph_channels(b->graph, gamma);
    const struct view shift = build_like(b, gamma, channels);
    const struct param *bias = build_param(b, build_name("%s.res.2.bias", name), 1, &channels);
    struct node *node = bias ? graph_node(b->graph, OP_SCALE_SHIFT, shift) : NULL;
    if (!node)
        return VIEW_NONE;
    node->in[OP_X] = gamma;
    node->in[OP_RESIDUAL2] = beta;
    const struct view constant = graph_constant(b->graph, bias, channels, 1, 1);
    b->graph->nodes[b->graph->node_count - 1].in[OP_RESIDUAL1] = constant;
    return shift;
}

/* QFAttention: x + gamma·conv(relu(conv(x))) + shift; gamma is one value a channel, and so is shift, unless it is
 * already in `skip`, which is added where there is one. */
static struct view fbcnn_block(struct model_build *b, const char *name, struct view x, struct view gamma,
                               struct view shift, struct view skip)
{
    if (x.tensor < 0 || gamma.tensor < 0 || shift.tensor < 0)
        return VIEW_NONE;
    const struct tensor t = *graph_tensor_of(b->graph, x);
    const struct view inner = build_like(b, x, t.channels), out = build_like(b, x, t.channels);
    build_conv(b, build_name("%s.res.0", name), x, inner, 3)->args.conv2d.activation = ACTIVATION_RELU;
    const struct view plus = skip.tensor < 0 ? build_resize(b, RESIZE_NEAREST, shift, t.h, t.w) : skip;
    struct node *second = build_conv_plain(b, build_name("%s.res.2", name), inner, out, 3);
    second->in[OP_OUT_SCALE] = gamma;
    second->in[OP_RESIDUAL1] = x;
    second->in[OP_RESIDUAL2] = plus;
    second->args.conv2d.residual1_scale = second->args.conv2d.residual2_scale = 1;
    return out;
}

/* Level i of the half that quality steers: x enlarged, its blocks, and `skip` added. What is made of the quality comes
 * first, so that nothing stands between the convolutions. */
static struct view fbcnn_up(struct model_build *b, int i, int blocks, struct view x, struct view quality,
                            struct view skip)
{
    const struct build_text name = build_text("m_up%d", i);
    struct node *conv;
    const struct view gamma = fbcnn_linear(b, build_name("to_gamma_%d.0", i), quality, ACTIVATION_SIGMOID),
                      beta = fbcnn_linear(b, build_name("to_beta_%d.0", i), quality, ACTIVATION_TANH);
    struct view *shifts = mem_alloc((size_t)blocks + 1, sizeof *shifts);
    if (!shifts) {
        build_fail(b, ERROR_NO_MEMORY, "out of memory for the model");
        return VIEW_NONE;
    }
    for (int k = 1; k <= blocks; k++)
        shifts[k] = fbcnn_shift(b, build_name("%s.%d", name.text, k), gamma, beta);
    if (blocks > 0)
        fbcnn_add(b, skip, shifts[blocks]);
    x = build_transposed(b, build_name("%s.0", name.text), TRANSPOSED_2_2_0, x, &conv);
    for (int k = 1; k <= blocks; k++)
        x = fbcnn_block(b, build_name("%s.%d", name.text, k), x, gamma, shifts[k], k == blocks ? skip : VIEW_NONE);
    free(shifts);
    return x;
}

static void fbcnn_build(struct model_build *b, const struct session_shape *shape)
{
    const int blocks = build_blocks(b, "m_body_encoder.", 0, ".res.0.weight"), cell = 1 << FBCNN_LEVELS;
    struct view down[FBCNN_LEVELS + 1];
    struct restorer r;
    bool level;
    if (shape->h % cell || shape->w % cell) {
        build_fail(b, ERROR_INVALID, "%d×%d is not a multiple of %d", shape->w, shape->h, cell);
        return;
    }
    const int channels =
        restorer_channels(build_size(b, "m_head.weight", 1), build_size(b, "m_tail.weight", 0), &level, NULL, NULL);
    restorer_begin(b, shape, channels, false, &r);
    down[0] = build_like(b, r.x, build_size(b, "m_head.weight", 0));
    build_conv(b, "m_head", r.x, down[0], 3);
    for (int i = 1; i <= FBCNN_LEVELS; i++) {
        const struct build_text name = build_text("m_down%d", i);
        const struct view x = restorer_blocks(b, name.text, 0, blocks, down[i - 1], VIEW_NONE);
        down[i] = restorer_halve(b, build_name("%s.%d", name.text, blocks), x);
    }
    struct view x = restorer_blocks(b, "m_body_encoder", 0, blocks, down[FBCNN_LEVELS], VIEW_NONE);
    const struct view quality = fbcnn_quality(b, x, shape->n);
    x = restorer_blocks(b, "m_body_decoder", 0, blocks, x, down[FBCNN_LEVELS]);
    for (int i = FBCNN_LEVELS; i >= 1; i--)
        x = fbcnn_up(b, i, blocks, x, quality, down[i - 1]);
    build_conv(b, "m_tail", x, restorer_result(b, &r), 3);
    restorer_end(b, &r);
}

const struct architecture architecture_fbcnn = {fbcnn_detect, fbcnn_build, fbcnn_smallest};
