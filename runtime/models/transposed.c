#include "runtime/models/transposed.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"

/* y[y] sums w[k]·x[(y + pad - k)/stride] over the k that leave no remainder. With y = stride·t + phase, that is x[t +
 * d] for k = phase + pad - stride·d; d goes from `first` on, `taps` of them. */
static const struct transposed {
    int kernel, stride, pad;
    int first, taps;
    int over; /* pixels at the end that the shuffle makes beyond y */
} transposed_kinds[] = {{2, 2, 0, 0, 1, 0}, {4, 2, 3, 0, 3, 0}, {5, 3, 2, -1, 3, 2}};

static enum transposed_kind transposed_of(const char *name)
{
    return (enum transposed_kind)(name[strlen(name) - 1] - '0');
}

/* The tensor that "TENSOR.transposed.N" is made of; NULL after a failure. */
static float *transposed_read(struct model_build *b, const char *name, const struct weights_tensor **out)
{
    const int length = (int)(strlen(name) - strlen(".transposed.N"));
    const struct weights_tensor *t = weights_find(model_weights(b->model), build_name("%.*s", length, name));
    float *values = t ? mem_alloc(t->count, sizeof *values) : NULL;
    if (!t)
        build_fail(b, ERROR_CORRUPT, "tensor %.*s is missing", length, name);
    else if (!values)
        build_fail(b, ERROR_NO_MEMORY, "out of memory for the model's parameters");
    else
        weights_read_f32(t, values);
    *out = t;
    return values;
}

static void transposed_weight(struct model_build *b, const char *name, float *values, size_t count)
{
    const struct transposed *k = &transposed_kinds[transposed_of(name)];
    const struct weights_tensor *t;
    float *from = transposed_read(b, name, &t);
    if (!from)
        return;
    const size_t in = (size_t)t->shape[0], out = (size_t)t->shape[1], side = (size_t)k->kernel, taps = (size_t)k->taps,
                 phases = (size_t)(k->stride * k->stride);
    for (size_t i = 0; i < count; i++) { /* [out][phase y][phase x][in][tap y][tap x] */
        const size_t input = i / (taps * taps) % in, row = i / (taps * taps * in);
        const int phase = (int)(row % phases), dy = (int)(i / taps % taps) + k->first, dx = (int)(i % taps) + k->first;
        const int ky = phase / k->stride + k->pad - k->stride * dy, kx = phase % k->stride + k->pad - k->stride * dx;
        values[i] = ky >= 0 && ky < k->kernel && kx >= 0 && kx < k->kernel
                        ? from[((input * out + row / phases) * side + (size_t)ky) * side + (size_t)kx]
                        : 0;
    }
    free(from);
}

static void transposed_bias(struct model_build *b, const char *name, float *values, size_t count)
{
    const int stride = transposed_kinds[transposed_of(name)].stride;
    const struct weights_tensor *t;
    float *from = transposed_read(b, name, &t);
    if (from && t->count * (size_t)(stride * stride) != count)
        build_fail(b, ERROR_CORRUPT, "tensor %s has %zu values, not one an output channel", t->name, (size_t)t->count);
    else if (from)
        for (size_t i = 0; i < count; i++)
            values[i] = from[i / (size_t)(stride * stride)];
    free(from);
}

static void transposed_corner(struct model_build *b, const char *name, float *values, size_t count)
{
    (void)b;
    (void)name;
    for (size_t i = 0; i < count; i++)
        values[i] = i % 9 ? 0 : 1;
}

/* Leaves out the last two rows and columns: each pixel is the first of a window of 3×3. */
static struct view transposed_shorten(struct model_build *b, struct view x)
{
    if (x.tensor < 0)
        return VIEW_NONE;
    const struct tensor t = *graph_tensor_of(b->graph, x);
    const struct view out = graph_temp(b->graph, t.n, t.channels, t.h - 2, t.w - 2);
    const struct param *corner =
        build_derived(b, build_name("corner of %d", t.channels), 9 * (size_t)t.channels, transposed_corner);
    build_depthwise_of(b, corner, NULL, x, out, 3, 1)->args.depthwise.pad = 0;
    return out;
}

struct view build_transposed(struct model_build *b, const char *name, enum transposed_kind kind, struct view x,
                             struct node **conv)
{
    const struct transposed *k = &transposed_kinds[kind];
    const struct build_text weight = build_text("%s.weight", name), bias = build_text("%s.bias", name);
    const int out = build_size(b, weight.text, 1), in = x.tensor < 0 ? 0 : graph_channels(b->graph, x);
    *conv = &b->scratch;
    if (out < 1 || in < 1)
        return VIEW_NONE;
    const struct tensor t = *graph_tensor_of(b->graph, x);
    const int phases = k->stride * k->stride, pad = -k->first, h = t.h + 2 * pad - k->taps + 1,
              w = t.w + 2 * pad - k->taps + 1;
    build_param(b, weight.text, 4, (const int[]){in, out, k->kernel, k->kernel}); /* its shape */
    const struct view deep = graph_temp(b->graph, t.n, out * phases, h, w),
                      y = graph_temp(b->graph, t.n, out, h * k->stride, w * k->stride);
    const size_t rows = (size_t)out * (size_t)phases;
    const struct param *made = build_derived(b, build_name("%s.transposed.%d", weight.text, (int)kind),
                                             rows * (size_t)in * (size_t)(k->taps * k->taps), transposed_weight);
    struct node *node = build_conv_of(b, made, x, deep, k->taps);
    node->args.conv2d.pad = pad;
    if (weights_find(model_weights(b->model), bias.text))
        node->param[OP_BIAS] =
            build_derived(b, build_name("%s.transposed.%d", bias.text, (int)kind), rows, transposed_bias);
    const int at = b->graph->node_count - 1;
    struct node *shuffle = graph_node(b->graph, OP_PIXEL_SHUFFLE, y);
    if (shuffle) {
        shuffle->in[OP_X] = deep;
        shuffle->args.shuffle.factor = k->stride;
    }
    const struct view result = k->over ? transposed_shorten(b, y) : y;
    if (!b->graph->error.code)
        *conv = &b->graph->nodes[at]; /* the list may have moved */
    return result;
}
