/* RetinaFace (Deng et al. 2020) with the backbones ResNet-50 (torchvision's names) and MobileNet ×0.25, as in facexlib:
 * FPN, SSH context modules, and heads for class, box and landmarks, which run here as one convolution a level. */
#include "runtime/models/model_build.h"

#include <string.h>

#define RETINA_ANCHORS 2
#define RETINA_OUTPUTS (RETINA_ANCHORS * (2 + 4 + 10))

static bool retinaface_detect(const struct weights *weights, struct model_info *info, struct error *err)
{
    (void)err;
    bool resnet = weights_find(weights, "body.layer1.0.conv1.weight") != NULL;
    if (!weights_find(weights, "fpn.output1.0.weight") || !weights_find(weights, "ClassHead.0.conv1x1.weight") ||
        (!resnet && !weights_find(weights, "body.stage1.0.0.weight")))
        return false;
    info->kind = MODEL_DETECTOR;
    info->architecture = resnet ? "RetinaFace-resnet50" : "RetinaFace-mobilenet0.25";
    info->output_count = 3;
    info->asks_activation = true;
    return true;
}

static void retinaface_smallest(const struct model_info *info, struct session_shape *shape)
{
    (void)info;
    shape->h = shape->w = 64;
}

static int retinaface_out(struct model_build *b, const char *name)
{
    return build_size(b, name, 0);
}

/* A temporary for a convolution's output: ceil(side/stride). */
static struct view retinaface_temp(struct model_build *b, struct view x, int channels, int stride)
{
    if (x.tensor < 0)
        return VIEW_NONE;
    struct tensor t = *graph_tensor_of(b->graph, x);
    return graph_temp(b->graph, t.n, channels, (t.h + stride - 1) / stride, (t.w + stride - 1) / stride);
}

/* Conv (name.0) + BatchNorm (name.1) + LeakyReLU; slope 0 is ReLU, a negative one none. */
static struct node *retinaface_conv(struct model_build *b, const char *conv, const char *norm, struct view x,
                                    struct view out, int kernel, int stride, float slope)
{
    struct node *node = build_conv_bn(b, conv, norm, x, out, kernel);
    node->args.conv2d.stride = stride;
    node->args.conv2d.activation = slope < 0 ? ACTIVATION_NONE : slope > 0 ? ACTIVATION_LEAKY : ACTIVATION_RELU;
    node->args.conv2d.slope = slope;
    return node;
}

static struct view retinaface_unit(struct model_build *b, const char *name, struct view x, int kernel, int stride,
                                   float slope)
{
    struct view out = retinaface_temp(b, x, retinaface_out(b, build_name("%s.0.weight", name)), stride);
    retinaface_conv(b, build_name("%s.0", name), build_name("%s.1", name), x, out, kernel, stride, slope);
    return out;
}

/* Depthwise 3×3, then 1×1. */
static struct view retinaface_separable(struct model_build *b, const char *name, struct view x, int stride, float slope)
{
    if (x.tensor < 0)
        return VIEW_NONE;
    struct view middle = retinaface_temp(b, x, graph_channels(b->graph, x), stride);
    struct node *depthwise =
        build_depthwise_bn(b, build_name("%s.0", name), build_name("%s.1", name), x, middle, 3, stride);
    depthwise->args.depthwise.activation = ACTIVATION_LEAKY;
    depthwise->args.depthwise.slope = slope;
    struct view out = retinaface_temp(b, middle, retinaface_out(b, build_name("%s.3.weight", name)), 1);
    retinaface_conv(b, build_name("%s.3", name), build_name("%s.4", name), middle, out, 1, 1, slope);
    return out;
}

static void retinaface_mobilenet(struct model_build *b, struct view x, float slope, struct view features[3])
{
    static const int strides[3][6] = {{2, 1, 2, 1, 2, 1}, {2, 1, 1, 1, 1, 1}, {2, 1}};
    static const int units[3] = {6, 6, 2};
    for (int s = 0; s < 3; s++) {
        for (int u = 0; u < units[s]; u++) {
            struct build_text name = build_text("body.stage%d.%d", s + 1, u);
            x = s == 0 && u == 0 ? retinaface_unit(b, name.text, x, 3, 2, slope)
                                 : retinaface_separable(b, name.text, x, strides[s][u], slope);
        }
        features[s] = x;
    }
}

/* torchvision's Bottleneck: 1×1, 3×3 with the stride, 1×1, plus the (projected) input, then ReLU. */
static struct view retinaface_bottleneck(struct model_build *b, const char *name, struct view x, int stride)
{
    int inner = retinaface_out(b, build_name("%s.conv1.weight", name)),
        wide = retinaface_out(b, build_name("%s.conv3.weight", name));
    struct view identity = x;
    if (stride > 1 || x.tensor < 0 || graph_channels(b->graph, x) != wide)
        identity = retinaface_unit(b, build_name("%s.downsample", name), x, 1, stride, -1);
    struct view first = retinaface_temp(b, x, inner, 1);
    retinaface_conv(b, build_name("%s.conv1", name), build_name("%s.bn1", name), x, first, 1, 1, 0);
    struct view second = retinaface_temp(b, first, inner, stride);
    retinaface_conv(b, build_name("%s.conv2", name), build_name("%s.bn2", name), first, second, 3, stride, 0);
    struct view out = retinaface_temp(b, second, wide, 1);
    struct node *last =
        retinaface_conv(b, build_name("%s.conv3", name), build_name("%s.bn3", name), second, out, 1, 1, 0);
    last->in[OP_RESIDUAL1] = identity;
    last->args.conv2d.residual1_scale = 1;
    last->args.conv2d.activation_last = true;
    return out;
}

static void retinaface_resnet(struct model_build *b, struct view x, struct view features[3])
{
    struct view stem = retinaface_temp(b, x, retinaface_out(b, "body.conv1.weight"), 2);
    retinaface_conv(b, "body.conv1", "body.bn1", x, stem, 7, 2, 0);
    x = retinaface_temp(b, stem, retinaface_out(b, "body.conv1.weight"), 2);
    struct node *pool = graph_node(b->graph, OP_MAX_POOL, x);
    if (pool) {
        pool->in[OP_X] = stem;
        pool->args.max_pool = (struct op_max_pool){.kernel = 3, .stride = 2, .pad = 1};
    }
    for (int layer = 1; layer <= 4; layer++) {
        int blocks = build_blocks(b, build_name("body.layer%d.", layer), 0, ".conv1.weight");
        for (int i = 0; i < blocks; i++)
            x = retinaface_bottleneck(b, build_name("body.layer%d.%d", layer, i), x, i == 0 && layer > 1 ? 2 : 1);
        if (layer > 1)
            features[layer - 2] = x;
    }
}

/* A lateral 1×1 convolution plus the level above, enlarged to fit. */
static struct view retinaface_lateral(struct model_build *b, const char *name, struct view x, struct view above,
                                      float slope)
{
    struct view out = retinaface_temp(b, x, retinaface_out(b, build_name("%s.0.weight", name)), 1);
    struct view up = VIEW_NONE;
    if (above.tensor >= 0 && x.tensor >= 0)
        up = build_resize(b, RESIZE_NEAREST, above, graph_tensor_of(b->graph, x)->h, graph_tensor_of(b->graph, x)->w);
    struct node *conv = retinaface_conv(b, build_name("%s.0", name), build_name("%s.1", name), x, out, 1, 1, slope);
    conv->in[OP_RESIDUAL1] = up;
    conv->args.conv2d.residual1_scale = 1;
    return out;
}

/* A level's context module, in steps: steps with the same number do not depend on each other at any level, so a GPU
 * does them at the same time. */
#define SSH_STEPS 3
struct ssh {
    struct build_text name;
    struct view x, out, five, seven;
};

static void retinaface_ssh(struct model_build *b, struct ssh *ssh, int step, float slope)
{
    static const char *const last[SSH_STEPS] = {"conv3X3", "conv5X5_2", "conv7x7_3"};
    const char *name = ssh->name.text;
    if (ssh->x.tensor < 0)
        return;
    if (step == 0) {
        const struct tensor t = *graph_tensor_of(b->graph, ssh->x);
        int segments[SSH_STEPS];
        for (int i = 0; i < SSH_STEPS; i++)
            segments[i] = retinaface_out(b, build_name("%s.%s.0.weight", name, last[i]));
        ssh->out = graph_tensor(b->graph, TENSOR_TEMP, t.n, t.h, t.w, SSH_STEPS, segments);
    }
    const struct view from[SSH_STEPS] = {ssh->x, ssh->five, ssh->seven};
    retinaface_conv(b, build_name("%s.%s.0", name, last[step]), build_name("%s.%s.1", name, last[step]), from[step],
                    graph_segments(ssh->out, step, 1), 3, 1, 0);
    if (step == 0)
        ssh->five = retinaface_unit(b, build_name("%s.conv5X5_1", name), ssh->x, 3, 1, slope);
    if (step == 1)
        ssh->seven = retinaface_unit(b, build_name("%s.conv7X7_2", name), ssh->five, 3, 1, slope);
}

static const struct {
    const char *name;
    int outputs;
} retinaface_heads[3] = {
    {"ClassHead", RETINA_ANCHORS * 2}, {"BboxHead", RETINA_ANCHORS * 4}, {"LandmarkHead", RETINA_ANCHORS * 10}};

/* The three heads' rows one after the other; name is "heads.LEVEL.weight" or "heads.LEVEL.bias". */
static void retinaface_fill(struct model_build *b, const char *name, float *values, size_t count)
{
    int level = name[6] - '0';
    const char *part = name + 8;
    size_t row = count / RETINA_OUTPUTS;
    for (int i = 0; i < 3; i++) {
        struct build_text tensor = build_text("%s.%d.conv1x1.%s", retinaface_heads[i].name, level, part);
        const struct weights_tensor *t = weights_find(model_weights(b->model), tensor.text);
        size_t wanted = (size_t)retinaface_heads[i].outputs * row;
        if (!t || t->count != wanted) {
            build_fail(b, ERROR_CORRUPT, "tensor %s is missing or does not have %zu values", tensor.text, wanted);
            return;
        }
        weights_read_f32(t, values);
        values += wanted;
    }
}

static void retinaface_head(struct model_build *b, int level, struct view x)
{
    if (x.tensor < 0)
        return;
    struct tensor t = *graph_tensor_of(b->graph, x);
    int outputs = RETINA_OUTPUTS;
    struct view out = graph_tensor(b->graph, TENSOR_OUTPUT, t.n, t.h, t.w, 1, &outputs);
    size_t row = (size_t)graph_channels(b->graph, x);
    const struct param *weight =
        build_derived(b, build_name("heads.%d.weight", level), RETINA_OUTPUTS * row, retinaface_fill);
    const struct param *bias = build_derived(b, build_name("heads.%d.bias", level), RETINA_OUTPUTS, retinaface_fill);
    struct node *node = graph_node(b->graph, OP_CONV2D, out);
    if (node) {
        node->in[OP_X] = x;
        node->param[OP_WEIGHT] = weight;
        node->param[OP_BIAS] = bias;
        node->args.conv2d = (struct op_conv2d){.kernel = 1, .stride = 1, .upsample = 1, .gain = 1, .scale = 1};
    }
}

static void retinaface_build(struct model_build *b, const struct session_shape *shape)
{
    int rgb = 3, width = retinaface_out(b, "fpn.output1.0.weight");
    float slope = build_slope(b, width <= 64 ? 0.1f : 0); /* the reference's rule */
    struct view features[3] = {VIEW_NONE, VIEW_NONE, VIEW_NONE};
    struct view x = graph_tensor(b->graph, TENSOR_INPUT, shape->n, shape->h, shape->w, 1, &rgb);
    if (strcmp(model_info(b->model)->architecture, "RetinaFace-resnet50") == 0)
        retinaface_resnet(b, x, features);
    else {
        /* It costs little, and the reference's crops step in 1/32 px: a landmark that is off by one float rounding
         * changes a thousandth of a crop's values. */
        b->graph->exact = true;
        retinaface_mobilenet(b, x, build_slope(b, 0.1f), features);
    }
    struct view p3 = retinaface_lateral(b, "fpn.output3", features[2], VIEW_NONE, slope);
    struct view p2 = retinaface_lateral(b, "fpn.output2", features[1], p3, slope);
    p2 = retinaface_unit(b, "fpn.merge2", p2, 3, 1, slope);
    struct view p1 = retinaface_lateral(b, "fpn.output1", features[0], p2, slope);
    p1 = retinaface_unit(b, "fpn.merge1", p1, 3, 1, slope);
    struct ssh levels[3] = {{.x = p1, .out = VIEW_NONE}, {.x = p2, .out = VIEW_NONE}, {.x = p3, .out = VIEW_NONE}};
    for (int i = 0; i < 3; i++)
        levels[i].name = build_text("ssh%d", i + 1);
    for (int step = 0; step < SSH_STEPS; step++)
        for (int i = 0; i < 3; i++)
            retinaface_ssh(b, &levels[i], step, slope);
    for (int i = 0; i < 3; i++)
        retinaface_head(b, i, levels[i].out);
}

const struct architecture architecture_retinaface = {retinaface_detect, retinaface_build, retinaface_smallest};
