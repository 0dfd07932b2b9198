#include "runtime/models/unet.h"

#define UNET_SLOPE 0.1f

/* A temporary for a convolution's output: ceil(side/stride). */
static struct view unet_temp(struct model_build *b, const char *name, struct view x, int stride)
{
    const int channels = build_size(b, build_name("%s.weight", name), 0);
    if (x.tensor < 0)
        return VIEW_NONE;
    const struct tensor t = *graph_tensor_of(b->graph, x);
    return graph_temp(b->graph, t.n, channels, (t.h + stride - 1) / stride, (t.w + stride - 1) / stride);
}

struct node *unet_conv(struct model_build *b, const char *name, struct view x, int kernel, int stride, struct view *out)
{
    *out = unet_temp(b, name, x, stride);
    struct node *node = build_conv(b, name, x, *out, kernel);
    node->args.conv2d.stride = stride;
    return node;
}

struct view unet_act(struct model_build *b, const char *name, struct view x, int stride, struct view residual)
{
    struct view out;
    struct node *node = unet_conv(b, name, x, 3, stride, &out);
    node->in[OP_RESIDUAL1] = residual;
    node->args.conv2d.residual1_scale = 1;
    node->args.conv2d.activation = ACTIVATION_LEAKY;
    node->args.conv2d.slope = UNET_SLOPE;
    node->args.conv2d.activation_last = true;
    return out;
}

struct view unet_blocks(struct model_build *b, const char *name, struct view x)
{
    const int count = build_blocks(b, build_name("%s.", name), 0, ".conv1.weight");
    for (int i = 0; i < count; i++) {
        const struct view inner = unet_act(b, build_name("%s.%d.conv1", name, i), x, 1, VIEW_NONE);
        x = unet_act(b, build_name("%s.%d.conv2", name, i), inner, 1, x);
    }
    return x;
}

struct view unet_lateral(struct model_build *b, const char *name, struct view x, struct view skip)
{
    struct view small;
    unet_conv(b, name, x, 1, 1, &small);
    if (small.tensor < 0 || skip.tensor < 0)
        return VIEW_NONE;
    const struct tensor t = *graph_tensor_of(b->graph, skip);
    const struct view large = build_resize(b, RESIZE_NEAREST, small, t.h, t.w);
    const struct view out = build_like(b, skip, t.channels);
    struct node *add = graph_node(b->graph, OP_ADD, out);
    if (add) {
        add->in[OP_X] = large;
        add->in[OP_RESIDUAL1] = skip;
        add->args.add =
            (struct op_add){.x_scale = 1, .residual1_scale = 1, .activation = ACTIVATION_LEAKY, .slope = UNET_SLOPE};
    }
    return out;
}

struct view unet_up(struct model_build *b, const char *name, struct view x, struct view skip)
{
    const struct view sum = unet_lateral(b, build_name("%s.lateral", name), x, skip);
    return unet_blocks(b, build_name("%s.body", name), sum);
}
