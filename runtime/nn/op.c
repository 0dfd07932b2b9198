#include "runtime/nn/op.h"

#include "runtime/nn/graph.h"

/* Shape of a view while it is checked. */
struct op_shape {
    int n, c, h, w;
};

static struct op_shape op_shape(const struct graph *graph, struct view view)
{
    const struct tensor *t = graph_tensor_of(graph, view);
    return (struct op_shape){t->n, graph_channels(graph, view), t->h, t->w};
}

static bool op_same(struct op_shape a, struct op_shape b)
{
    return a.n == b.n && a.c == b.c && a.h == b.h && a.w == b.w;
}

/* True if the optional input in this slot is absent or has that shape; a constant's n of 1 serves every image. */
static bool op_optional(const struct graph *graph, const struct node *node, int slot, struct op_shape wanted)
{
    if (node->in[slot].tensor < 0)
        return true;
    struct op_shape s = op_shape(graph, node->in[slot]);
    if (graph_tensor_of(graph, node->in[slot])->role == TENSOR_CONSTANT)
        s.n = wanted.n;
    return op_same(s, wanted);
}

/* True if the middle of the input is of y's shape. */
static bool op_middle(const struct graph *graph, const struct node *node, int slot, struct op_shape y)
{
    const struct op_shape s = op_shape(graph, node->in[slot]);
    const int more = s.h - y.h;
    return more >= 0 && more % 2 == 0 && op_optional(graph, node, slot, (struct op_shape){y.n, y.c, s.h, y.w + more});
}

/* True if it is one value a channel. */
static bool op_single(const struct graph *graph, const struct node *node, int slot, struct op_shape y)
{
    return op_optional(graph, node, slot, (struct op_shape){y.n, y.c, 1, 1});
}

static bool op_param(const struct node *node, int slot, uint64_t count)
{
    return node->param[slot] && node->param[slot]->count == count;
}

static int op_conv_side(int in, int kernel, int stride, int pad)
{
    int room = in + 2 * pad - kernel;
    return room < 0 ? 0 : room / stride + 1;
}

static const char *op_check_conv2d(const struct graph *g, const struct node *node, struct op_shape x, struct op_shape y)
{
    const struct op_conv2d *a = &node->args.conv2d;
    if (a->kernel < 1 || a->stride < 1 || a->pad < 0 || (a->upsample != 1 && a->upsample != 2))
        return "kernel, stride, pad or upsample out of range";
    if (x.n != y.n || y.h != op_conv_side(x.h * a->upsample, a->kernel, a->stride, a->pad) ||
        y.w != op_conv_side(x.w * a->upsample, a->kernel, a->stride, a->pad))
        return "the output's shape does not follow from the input's";
    if (!op_param(node, OP_WEIGHT, (uint64_t)x.c * (uint64_t)y.c * (uint64_t)a->kernel * (uint64_t)a->kernel))
        return "the weight's count is wrong";
    if (!op_optional(g, node, OP_RESIDUAL1, y) || !op_optional(g, node, OP_RESIDUAL2, y))
        return "a residual's shape is not the output's";
    if (!op_optional(g, node, OP_IN_SCALE, (struct op_shape){x.n, x.c, 1, 1}) ||
        !op_optional(g, node, OP_OUT_SCALE, (struct op_shape){x.n, y.c, 1, 1}) ||
        !op_optional(g, node, OP_NOISE_MAP, (struct op_shape){x.n, 1, y.h, y.w}))
        return "a scale's or the noise's shape is wrong";
    return NULL;
}

static const char *op_check_norm(const struct graph *g, const struct node *node, struct op_shape x, struct op_shape y)
{
    const struct op_norm *a = &node->args.norm;
    const bool layer = node->kind == OP_LAYER_NORM;
    if (!op_same(x, y) || !op_optional(g, node, OP_RESIDUAL1, y) || (layer && node->in[OP_RESIDUAL1].tensor >= 0))
        return "the shapes differ";
    const int each = a->groups > 0 && a->groups <= x.c && x.c % a->groups == 0 ? x.c / a->groups : 0;
    if (layer ? a->groups != 1 : each != 1 && each != 2 && (each < 4 || each % 4 != 0))
        return "the groups do not divide the channels into 1, 2 or a multiple of 4";
    return !node->param[OP_WEIGHT] || op_param(node, OP_WEIGHT, (uint64_t)y.c) ? NULL : "the weight's count is wrong";
}

static const char *op_check_attention(const struct graph *g, const struct node *node, struct op_shape x,
                                      struct op_shape y)
{
    const int heads = node->args.attention.heads;
    if (!op_same(x, y) || node->in[OP_RESIDUAL1].tensor < 0 || node->in[OP_RESIDUAL2].tensor < 0 ||
        !op_optional(g, node, OP_RESIDUAL1, y) || !op_optional(g, node, OP_RESIDUAL2, y))
        return "the shapes differ";
    if (heads < 1 || heads > x.c || x.c % heads != 0 || x.c / heads % 4 != 0)
        return "the channels of a head are not a multiple of 4";
    if (x.c / heads > OP_ATTENTION_HEAD)
        return "a head has too many channels";
    return x.h <= OP_ATTENTION_TOKENS && x.w <= OP_ATTENTION_TOKENS / x.h ? NULL : "there are too many tokens";
}

static const char *op_check_sample(const struct graph *g, const struct node *node, struct op_shape x, struct op_shape y)
{
    const int groups = node->args.sample.groups, r = node->args.sample.factor;
    const struct tensor *t = graph_tensor_of(g, node->in[OP_X]);
    if (groups < 1 || groups > GRAPH_MAX_SEGMENTS || r < 1 || r > 16)
        return "groups or factor out of range";
    bool same = x.n == y.n && y.h == x.h * r && y.w == x.w * r && y.c <= 4 && node->in[OP_X].count == groups &&
                node->out.count == 1;
    for (int i = 0; i < node->in[OP_X].count && same; i++)
        same = t->segment[node->in[OP_X].first + i] == y.c;
    if (!same)
        return "the output's shape does not follow from the input's";
    const int places = 2 * groups * r * r;
    if (node->in[OP_RESIDUAL1].tensor < 0 || node->in[OP_RESIDUAL1].count != 1 ||
        !op_optional(g, node, OP_RESIDUAL1, (struct op_shape){x.n, places, x.h, x.w}))
        return "the places' shape is wrong";
    return op_param(node, OP_WEIGHT, (uint64_t)places) ? NULL : "the weight's count is wrong";
}

static const char *op_check_kind(const struct graph *g, const struct node *node, struct op_shape x, struct op_shape y)
{
    switch (node->kind) {
    case OP_CONV2D:
        return op_check_conv2d(g, node, x, y);
    case OP_DEPTHWISE: {
        const struct op_depthwise *a = &node->args.depthwise;
        if (a->kernel < 1 || a->stride < 1 || (a->pad < 0 && a->pad_mode != PAD_ZERO) || x.n != y.n || x.c != y.c ||
            y.h != op_conv_side(x.h, a->kernel, a->stride, a->pad) ||
            y.w != op_conv_side(x.w, a->kernel, a->stride, a->pad))
            return "the output's shape does not follow from the input's";
        return op_param(node, OP_WEIGHT, (uint64_t)x.c * (uint64_t)a->kernel * (uint64_t)a->kernel)
                   ? NULL
                   : "the weight's count is wrong";
    }
    case OP_LINEAR:
        if (x.n != y.n || y.h != 1 || y.w != 1)
            return "the output is not {n, c, 1, 1}";
        return op_param(node, OP_WEIGHT, (uint64_t)x.c * (uint64_t)x.h * (uint64_t)x.w * (uint64_t)y.c)
                   ? NULL
                   : "the weight's count is wrong";
    case OP_DEMODULATE:
        if (x.n != y.n || x.h != 1 || x.w != 1 || y.h != 1 || y.w != 1)
            return "not {n, c, 1, 1}";
        return op_param(node, OP_WEIGHT, (uint64_t)x.c * (uint64_t)y.c) ? NULL : "the weight's count is wrong";
    case OP_RESIZE:
        return x.n == y.n && x.c == y.c ? NULL : "batch or channels differ";
    case OP_PIXEL_SHUFFLE: {
        int r = node->args.shuffle.factor;
        if (r < 1 || x.n != y.n || x.c != y.c * r * r || y.h != x.h * r || y.w != x.w * r)
            return "the output's shape does not follow from the input's";
        return op_optional(g, node, OP_RESIDUAL1, (struct op_shape){x.n, y.c, x.h, x.w})
                   ? NULL
                   : "the residual's shape is wrong";
    }
    case OP_PIXEL_UNSHUFFLE: {
        int r = node->args.shuffle.factor;
        return r >= 1 && x.n == y.n && y.c == x.c * r * r && x.h == y.h * r && x.w == y.w * r
                   ? NULL
                   : "the output's shape does not follow from the input's";
    }
    case OP_ADD:
        return op_optional(g, node, OP_X, y) && node->in[OP_RESIDUAL1].tensor >= 0 &&
                       (op_middle(g, node, OP_RESIDUAL1, y) || op_single(g, node, OP_RESIDUAL1, y))
                   ? NULL
                   : "the shapes differ";
    case OP_SCALE_SHIFT:
        return x.n == y.n && op_middle(g, node, OP_X, y) && node->in[OP_RESIDUAL1].tensor >= 0 &&
                       node->in[OP_RESIDUAL2].tensor >= 0 &&
                       (op_optional(g, node, OP_RESIDUAL1, y) || op_single(g, node, OP_RESIDUAL1, y)) &&
                       op_optional(g, node, OP_RESIDUAL2, y)
                   ? NULL
                   : "the shapes differ";
    case OP_MAX_POOL: {
        const struct op_max_pool *a = &node->args.max_pool;
        return a->kernel >= 1 && a->stride >= 1 && a->pad >= 0 && a->pad < a->kernel && x.n == y.n && x.c == y.c &&
                       y.h == op_conv_side(x.h, a->kernel, a->stride, a->pad) &&
                       y.w == op_conv_side(x.w, a->kernel, a->stride, a->pad)
                   ? NULL
                   : "the output's shape does not follow from the input's";
    }
    case OP_GROUP_NORM:
    case OP_LAYER_NORM:
        return op_check_norm(g, node, x, y);
    case OP_ATTENTION:
        return op_check_attention(g, node, x, y);
    case OP_LOOKUP:
        if (x.n != y.n || x.h != y.h || x.w != y.w)
            return "the output's shape does not follow from the input's";
        return op_param(node, OP_WEIGHT, (uint64_t)x.c * (uint64_t)y.c) ? NULL : "the weight's count is wrong";
    case OP_GATE:
        return op_same(x, y) && op_optional(g, node, OP_RESIDUAL1, y) && node->in[OP_RESIDUAL2].tensor >= 0 &&
                       op_optional(g, node, OP_RESIDUAL2, y)
                   ? NULL
                   : "the shapes differ";
    case OP_MEAN:
        if (x.n != y.n || x.c != y.c || y.h != 1 || y.w != 1)
            return "the output is not {n, c, 1, 1}";
        return op_optional(g, node, OP_NOISE_MAP, (struct op_shape){x.n, 1, x.h, x.w}) ? NULL
                                                                                       : "the map's shape is wrong";
    case OP_SAMPLE:
        return op_check_sample(g, node, x, y);
    default:
        return "unknown operator";
    }
}

static enum activation op_activation(const struct node *node)
{
    switch (node->kind) {
    case OP_CONV2D:
        return node->args.conv2d.activation;
    case OP_DEPTHWISE:
        return node->args.depthwise.activation;
    case OP_LINEAR:
        return node->args.linear.activation;
    case OP_ADD:
        return node->args.add.activation;
    case OP_GROUP_NORM:
        return node->args.norm.activation;
    default:
        return ACTIVATION_NONE;
    }
}

/* Whether the operator has the activation. */
static bool op_activates(const struct node *node)
{
    const enum activation activation = op_activation(node);
    if (node->kind == OP_GROUP_NORM)
        return activation == ACTIVATION_NONE || activation == ACTIVATION_SILU;
    return activation < ACTIVATION_SILU || node->kind == OP_CONV2D || node->kind == OP_LINEAR;
}

static bool op_view_ok(const struct graph *graph, struct view view)
{
    return view.tensor >= 0 && view.tensor < graph->tensor_count && view.first >= 0 && view.count >= 1 &&
           view.first + view.count <= graph->tensors[view.tensor].segment_count;
}

enum error_code op_check(const struct graph *graph, const struct node *node, struct error *err)
{
    const char *why = NULL;
    if (!op_view_ok(graph, node->out) || graph_tensor_of(graph, node->out)->role == TENSOR_INPUT ||
        graph_tensor_of(graph, node->out)->role == TENSOR_CONSTANT)
        why = "the output is not a view that can be written";
    for (int i = 0; i < OP_MAX_INPUTS && !why; i++)
        if (node->in[i].tensor >= 0 && !op_view_ok(graph, node->in[i]))
            why = "an input is not a view of a tensor";
    if (!why) {
        struct op_shape y = op_shape(graph, node->out);
        if (node->kind == OP_NOISE)
            why = y.c == 1 ? NULL : "noise has one channel";
        else if (node->in[OP_X].tensor < 0)
            why = "there is no input";
        else
            why = op_check_kind(graph, node, op_shape(graph, node->in[OP_X]), y);
        if (!why && node->param[OP_BIAS] && node->param[OP_BIAS]->count != (size_t)y.c)
            why = "the bias' count is wrong";
        if (!why && op_activation(node) == ACTIVATION_PRELU && !op_param(node, OP_SLOPE, (uint64_t)y.c))
            why = "the slopes' count is wrong";
        if (!why && !op_activates(node))
            why = "it does not have that activation";
    }
    return why ? error_set(err, ERROR_INTERNAL, "operator %s: %s", op_name(node->kind), why) : OK;
}

const char *op_name(enum op_kind kind)
{
    static const char *const names[OP_KIND_COUNT] = {
        [OP_CONV2D] = "conv2d",
        [OP_DEPTHWISE] = "depthwise",
        [OP_LINEAR] = "linear",
        [OP_DEMODULATE] = "demodulate",
        [OP_RESIZE] = "resize",
        [OP_PIXEL_SHUFFLE] = "pixel_shuffle",
        [OP_PIXEL_UNSHUFFLE] = "pixel_unshuffle",
        [OP_ADD] = "add",
        [OP_SCALE_SHIFT] = "scale_shift",
        [OP_MAX_POOL] = "max_pool",
        [OP_NOISE] = "noise",
        [OP_GROUP_NORM] = "group_norm",
        [OP_LAYER_NORM] = "layer_norm",
        [OP_ATTENTION] = "attention",
        [OP_LOOKUP] = "lookup",
        [OP_GATE] = "gate",
        [OP_MEAN] = "mean",
        [OP_SAMPLE] = "sample",
    };
    return (unsigned)kind < OP_KIND_COUNT ? names[kind] : "unknown";
}
