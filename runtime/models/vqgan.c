#include "runtime/models/vqgan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"

#define VQGAN_GROUPS 32

struct view vqgan_norm(struct model_build *b, const char *name, struct view x, bool silu)
{
    if (x.tensor < 0)
        return VIEW_NONE;
    const struct view out = build_like(b, x, graph_channels(b->graph, x));
    build_norm_layer(b, name, OP_GROUP_NORM, x, out)->args.norm = (struct op_norm){
        .groups = VQGAN_GROUPS, .epsilon = 1e-6f, .activation = silu ? ACTIVATION_SILU : ACTIVATION_NONE};
    return out;
}

struct view vqgan_conv(struct model_build *b, const char *name, struct view x, int kernel)
{
    const struct view out = build_like(b, x, build_size(b, build_name("%s.weight", name), 0));
    build_conv(b, name, x, out, kernel);
    return out;
}

struct view vqgan_residual(struct model_build *b, const char *name, const char *shortcut, struct view x)
{
    if (x.tensor < 0)
        return VIEW_NONE;
    const struct view first = vqgan_norm(b, build_name("%s.norm1", name), x, true),
                      middle = vqgan_conv(b, build_name("%s.conv1", name), first, 3),
                      second = vqgan_norm(b, build_name("%s.norm2", name), middle, true);
    if (second.tensor < 0)
        return VIEW_NONE;
    const int channels = graph_channels(b->graph, second);
    const struct view skip =
        channels == graph_channels(b->graph, x) ? x : vqgan_conv(b, build_name("%s.%s", name, shortcut), x, 1);
    const struct view out = build_like(b, x, channels);
    struct node *conv = build_conv(b, build_name("%s.conv2", name), second, out, 3);
    conv->in[OP_RESIDUAL1] = skip;
    conv->args.conv2d.residual1_scale = 1;
    return out;
}

struct view vqgan_attention(struct model_build *b, const char *name, const char *norm, const char *from_norm,
                            struct view x, struct view from, int heads)
{
    const struct view y = vqgan_norm(b, build_name("%s.%s", name, norm), x, false);
    const struct view asked = from.tensor < 0 ? y : vqgan_norm(b, build_name("%s.%s", name, from_norm), from, false);
    const struct view q = vqgan_conv(b, build_name("%s.q", name), asked, 1),
                      k = vqgan_conv(b, build_name("%s.k", name), y, 1),
                      v = vqgan_conv(b, build_name("%s.v", name), y, 1);
    if (v.tensor < 0 || q.tensor < 0)
        return VIEW_NONE;
    const int channels = graph_channels(b->graph, q);
    const struct view seen = build_like(b, x, channels), out = build_like(b, x, graph_channels(b->graph, x));
    struct node *node = graph_node(b->graph, OP_ATTENTION, seen);
    if (node) {
        node->in[OP_X] = q;
        node->in[OP_RESIDUAL1] = k;
        node->in[OP_RESIDUAL2] = v;
        node->args.attention =
            (struct op_attention){.heads = heads, .scale = (float)(1 / sqrt((double)channels / heads))};
    }
    struct node *conv = build_conv(b, build_name("%s.proj_out", name), seen, out, 1);
    conv->in[OP_RESIDUAL1] = x;
    conv->args.conv2d.residual1_scale = 1;
    return out;
}

/* Kernels of 3×3 as those of 4×4 that reach one pixel further up and to the left, where they are 0: so a padding on all
 * sides is one to the right and below. name is "….halving". */
static void vqgan_fill_halving(struct model_build *b, const char *name, float *values, size_t count)
{
    const int length = (int)(strrchr(name, '.') - name);
    const struct weights_tensor *t = weights_find(model_weights(b->model), build_name("%.*s.weight", length, name));
    if (!t || t->count != count / 16 * 9) {
        build_fail(b, ERROR_CORRUPT, "tensor %.*s.weight is missing or not of 3×3 kernels between equal channels",
                   length, name);
        return;
    }
    float *from = mem_alloc(t->count, sizeof *from);
    if (!from) {
        build_fail(b, ERROR_NO_MEMORY, "out of memory for the model's parameters");
        return;
    }
    weights_read_f32(t, from);
    for (size_t i = 0; i < count / 16; i++)
        for (size_t k = 0; k < 9; k++)
            values[i * 16 + (k / 3 + 1) * 4 + k % 3 + 1] = from[i * 9 + k];
    free(from);
}

struct view vqgan_halve(struct model_build *b, const char *name, struct view x)
{
    if (x.tensor < 0)
        return VIEW_NONE;
    const struct tensor t = *graph_tensor_of(b->graph, x);
    const int channels = graph_channels(b->graph, x);
    const struct view out = graph_temp(b->graph, t.n, channels, t.h / 2, t.w / 2);
    const struct param *weight =
        build_derived(b, build_name("%s.halving", name), (size_t)channels * (size_t)channels * 16, vqgan_fill_halving);
    const struct param *bias = build_param(b, build_name("%s.bias", name), 1, &channels);
    struct node *conv = build_conv_of(b, weight, x, out, 4);
    conv->args.conv2d.stride = 2;
    conv->args.conv2d.pad = 1;
    conv->param[OP_BIAS] = bias;
    return out;
}

struct view vqgan_double(struct model_build *b, const char *name, struct view x)
{
    if (x.tensor < 0)
        return VIEW_NONE;
    const struct tensor t = *graph_tensor_of(b->graph, x);
    const struct view out =
        graph_temp(b->graph, t.n, build_size(b, build_name("%s.weight", name), 0), 2 * t.h, 2 * t.w);
    build_conv(b, name, x, out, 3)->args.conv2d.upsample = 2;
    return out;
}

/* Reads a codebook, [entries][channels], whose name without ".weight" is before the last point; the caller frees it. */
static float *vqgan_read_book(struct model_build *b, const char *name, size_t count, size_t *entries)
{
    const int length = (int)(strrchr(name, '.') - name);
    const struct weights_tensor *t = weights_find(model_weights(b->model), build_name("%.*s.weight", length, name));
    if (!t || t->rank != 2 || t->count < count) {
        build_fail(b, ERROR_CORRUPT, "tensor %.*s.weight is missing or not of two dimensions", length, name);
        return NULL;
    }
    float *book = mem_alloc(t->count, sizeof *book);
    if (!book) {
        build_fail(b, ERROR_NO_MEMORY, "out of memory for the model's parameters");
        return NULL;
    }
    weights_read_f32(t, book);
    *entries = (size_t)t->shape[0];
    return book;
}

/* Half the squared length of each entry, negated: with it as bias, the largest product is with the nearest entry. */
static void vqgan_fill_lengths(struct model_build *b, const char *name, float *values, size_t count)
{
    size_t entries;
    float *book = vqgan_read_book(b, name, count, &entries);
    const size_t channels =
        book ? (size_t)build_dim(model_weights(b->model),
                                 build_name("%.*s.weight", (int)(strrchr(name, '.') - name), name), 1)
             : 0;
    for (size_t i = 0; book && i < count; i++) {
        double sum = 0;
        for (size_t c = 0; c < channels; c++)
            sum += (double)book[i * channels + c] * book[i * channels + c];
        values[i] = (float)(sum / -2);
    }
    free(book);
}

/* The codebook as LOOKUP wants it: [channels][entries]. */
static void vqgan_fill_table(struct model_build *b, const char *name, float *values, size_t count)
{
    size_t entries;
    float *book = vqgan_read_book(b, name, count, &entries);
    const size_t channels = book ? count / entries : 0;
    for (size_t i = 0; book && i < count; i++)
        values[i] = book[i % entries * channels + i / entries];
    free(book);
}

struct view vqgan_entry(struct model_build *b, const char *name, struct view scores)
{
    const struct build_text weight = build_text("%s.weight", name);
    const int entries = build_size(b, weight.text, 0), channels = build_size(b, weight.text, 1);
    if (scores.tensor < 0 || entries < 1 || channels < 1)
        return VIEW_NONE;
    const struct view out = build_like(b, scores, channels);
    const struct param *table =
        build_derived(b, build_name("%s.table", name), (size_t)entries * (size_t)channels, vqgan_fill_table);
    struct node *node = graph_node(b->graph, OP_LOOKUP, out);
    if (node) {
        node->in[OP_X] = scores;
        node->param[OP_WEIGHT] = table;
    }
    return out;
}

struct view vqgan_nearest(struct model_build *b, const char *name, struct view x)
{
    const int entries = build_size(b, build_name("%s.weight", name), 0);
    if (x.tensor < 0 || entries < 1)
        return VIEW_NONE;
    const struct view scores = build_like(b, x, entries);
    const struct param *book =
        build_param(b, build_name("%s.weight", name), 2, (int[]){entries, graph_channels(b->graph, x)});
    const struct param *lengths = build_derived(b, build_name("%s.lengths", name), (size_t)entries, vqgan_fill_lengths);
    build_conv_of(b, book, x, scores, 1)->param[OP_BIAS] = lengths;
    return vqgan_entry(b, name, scores);
}
