/* ParseNet, facexlib's face parser (from PSFRGAN, Chen et al. 2021): residual blocks down, at the bottom and up again,
 * every convolution padded by reflection. Outputs: class logits and a picture that the pipeline does not use. */
#include "runtime/models/model_build.h"

static bool parsenet_detect(const struct weights *weights, struct model_info *info, struct error *err)
{
    if (!weights_find(weights, "encoder.0.conv2d.weight") || !weights_find(weights, "out_img_conv.conv2d.weight") ||
        !weights_find(weights, "decoder.0.conv1.conv2d.weight"))
        return false;
    info->kind = MODEL_PARSER;
    info->architecture = "ParseNet";
    info->classes = build_dim(weights, "out_mask_conv.conv2d.weight", 0);
    info->output_count = 2;
    if (info->classes > MODEL_MAX_CLASSES)
        error_set(err, ERROR_UNSUPPORTED, "a face parser of %d classes; at most %d are supported", info->classes,
                  MODEL_MAX_CLASSES);
    return info->classes > 0 && info->classes <= MODEL_MAX_CLASSES;
}

static void parsenet_smallest(const struct model_info *info, struct session_shape *shape)
{
    (void)info;
    shape->h = shape->w = 512; /* a multiple of 2^steps for any network that is meant for 512 px */
}

/* One block; scale -1 halves, 1 doubles, 0 keeps the size. extra is added to the result (VIEW_NONE: nothing). */
static struct view parsenet_block(struct model_build *b, const char *name, struct view x, int scale, struct view extra)
{
    int out = build_size(b, build_name("%s.conv1.conv2d.weight", name), 0);
    if (x.tensor < 0)
        return VIEW_NONE;
    struct tensor t = *graph_tensor_of(b->graph, x);
    int h = scale < 0 ? t.h / 2 : scale > 0 ? t.h * 2 : t.h, w = scale < 0 ? t.w / 2 : scale > 0 ? t.w * 2 : t.w;
    struct view identity = x;
    if (scale || out != t.channels) {
        identity = graph_temp(b->graph, t.n, out, h, w);
        struct node *shortcut = build_conv(b, build_name("%s.shortcut_func.conv2d", name), x, identity, 3);
        shortcut->args.conv2d.pad_mode = PAD_REFLECT;
        shortcut->args.conv2d.stride = scale < 0 ? 2 : 1;
        shortcut->args.conv2d.upsample = scale > 0 ? 2 : 1;
    }
    struct view middle = graph_temp(b->graph, t.n, out, scale > 0 ? h : t.h, scale > 0 ? w : t.w);
    struct node *first =
        build_conv_bn(b, build_name("%s.conv1.conv2d", name), build_name("%s.conv1.norm.norm", name), x, middle, 3);
    first->args.conv2d.pad_mode = PAD_REFLECT;
    first->args.conv2d.upsample = scale > 0 ? 2 : 1;
    first->args.conv2d.activation = ACTIVATION_LEAKY;
    first->args.conv2d.slope = 0.2f;
    struct view result = graph_temp(b->graph, t.n, out, h, w);
    struct node *second = build_conv_bn(b, build_name("%s.conv2.conv2d", name), build_name("%s.conv2.norm.norm", name),
                                        middle, result, 3);
    second->args.conv2d.pad_mode = PAD_REFLECT;
    second->args.conv2d.stride = scale < 0 ? 2 : 1;
    second->in[OP_RESIDUAL1] = identity;
    second->in[OP_RESIDUAL2] = extra;
    second->args.conv2d.residual1_scale = second->args.conv2d.residual2_scale = 1;
    return result;
}

static void parsenet_build(struct model_build *b, const struct session_shape *shape)
{
    static const char rest[] = ".conv1.conv2d.weight";
    struct graph *g = b->graph;
    int steps = build_blocks(b, "encoder.", 1, rest), depth = build_blocks(b, "body.", 0, rest),
        ups = build_blocks(b, "decoder.", 0, rest); /* encoder.1, encoder.2, …: each halves the size */
    int rgb = 3, n = shape->n, h = shape->h, w = shape->w;
    if (steps > 12 || ups != steps || h % (1 << steps) || w % (1 << steps)) {
        build_fail(b, ERROR_INVALID, "%d×%d cannot be halved %d times and doubled %d times", w, h, steps, ups);
        return;
    }
    struct view x = graph_tensor(g, TENSOR_INPUT, n, h, w, 1, &rgb);
    struct view feature = build_like(b, x, build_size(b, "encoder.0.conv2d.weight", 0));
    build_conv(b, "encoder.0.conv2d", x, feature, 3)->args.conv2d.pad_mode = PAD_REFLECT;
    for (int i = 1; i <= steps; i++)
        feature = parsenet_block(b, build_name("encoder.%d", i), feature, -1, VIEW_NONE);
    x = feature;
    for (int i = 0; i < depth; i++)
        x = parsenet_block(b, build_name("body.%d", i), x, 0, i == depth - 1 ? feature : VIEW_NONE);
    for (int i = 0; i < ups; i++)
        x = parsenet_block(b, build_name("decoder.%d", i), x, 1, VIEW_NONE);
    int classes = model_info(b->model)->classes;
    struct view mask = graph_tensor(g, TENSOR_OUTPUT, n, h, w, 1, &classes),
                picture = graph_tensor(g, TENSOR_OUTPUT, n, h, w, 1, &rgb);
    build_conv(b, "out_mask_conv.conv2d", x, mask, 3)->args.conv2d.pad_mode = PAD_REFLECT;
    build_conv(b, "out_img_conv.conv2d", x, picture, 3)->args.conv2d.pad_mode = PAD_REFLECT;
}

const struct architecture architecture_parsenet = {parsenet_detect, parsenet_build, parsenet_smallest};
