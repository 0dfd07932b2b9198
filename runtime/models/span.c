/* SPAN (Wan et al. 2024; names as in its authors' file): blocks of three 3×3 convolutions and a gate without
 * parameters. Each 3×3 convolution is stored as it was trained: a 1×1, a 3×3 and a 1×1 one behind each other, beside a
 * 1×1 one. They are one, and are folded when the file is read, in double; "eval_conv", which some files have of an
 * earlier state of the weights, is not used. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/models/model_build.h"

#define SPAN_BLOCKS 6
#define SPAN_MOST 256 /* channels, and how many times as many a folded convolution has within: folding takes time */
#define SPAN_WIDE 4

static bool span_detect(const struct weights *weights, struct model_info *info, struct error *err)
{
    const int in = build_dim(weights, "conv_1.sk.weight", 1), deep = build_dim(weights, "upsampler.0.weight", 0);
    const int scale = (int)lround(sqrt(deep / 3.0));
    if (!in || !deep || !weights_find(weights, "block_1.c1_r.sk.weight") || !weights_find(weights, "conv_cat.weight") ||
        !weights_find(weights, "conv_2.sk.weight"))
        return false;
    if (in != 3 || deep != 3 * scale * scale || scale < 1 || scale > 8)
        error_set(err, ERROR_UNSUPPORTED,
                  "SPAN that takes %d channels and makes %d of a pixel; 3 and a scale of 1 to 8 are "
                  "supported",
                  in, deep);
    info->kind = MODEL_UPSCALER;
    info->architecture = "SPAN";
    info->scale = scale;
    info->radius = 1 + 3 * SPAN_BLOCKS + 2;
    info->exact_tiles = true;
    return !err->code;
}

static void span_smallest(const struct model_info *info, struct session_shape *shape)
{
    (void)info;
    shape->h = shape->w = 4;
}

/* A tensor's values in double; NULL after a failure. */
static double *span_read(struct model_build *b, const char *name, size_t count)
{
    const struct weights_tensor *t = weights_find(model_weights(b->model), name);
    if (!t || t->count != count) {
        build_fail(b, ERROR_CORRUPT, "tensor %s is missing or has another shape than follows from the others", name);
        return NULL;
    }
    float *values = mem_alloc(count, sizeof *values);
    double *out = mem_alloc(count, sizeof *out);
    if (!values || !out) {
        build_fail(b, ERROR_NO_MEMORY, "out of memory for the model's parameters");
        free(values);
        free(out);
        return NULL;
    }
    weights_read_f32(t, values);
    for (size_t i = 0; i < count; i++)
        out[i] = values[i];
    free(values);
    return out;
}

/* The tensors of one folded convolution. */
struct span_parts {
    size_t in, wide_in, wide_out, out;
    double *first, *first_bias, *middle, *middle_bias, *last, *last_bias, *side, *side_bias;
};

static bool span_parts_read(struct model_build *b, const char *name, struct span_parts *p)
{
    const struct weights *weights = model_weights(b->model);
    *p = (struct span_parts){.in = (size_t)build_dim(weights, build_name("%s.sk.weight", name), 1),
                             .out = (size_t)build_dim(weights, build_name("%s.sk.weight", name), 0),
                             .wide_in = (size_t)build_dim(weights, build_name("%s.conv.0.weight", name), 0),
                             .wide_out = (size_t)build_dim(weights, build_name("%s.conv.1.weight", name), 0)};
    const struct {
        double **to;
        const char *tensor;
        size_t count;
    } all[] = {{&p->first, "conv.0.weight", p->in * p->wide_in},
               {&p->first_bias, "conv.0.bias", p->wide_in},
               {&p->middle, "conv.1.weight", p->wide_in * p->wide_out * 9},
               {&p->middle_bias, "conv.1.bias", p->wide_out},
               {&p->last, "conv.2.weight", p->wide_out * p->out},
               {&p->last_bias, "conv.2.bias", p->out},
               {&p->side, "sk.weight", p->in * p->out},
               {&p->side_bias, "sk.bias", p->out}};
    if (p->wide_in > SPAN_WIDE * p->in || p->wide_out > SPAN_WIDE * p->out || p->in > SPAN_MOST || p->out > SPAN_MOST) {
        build_fail(b, ERROR_UNSUPPORTED,
                   "%s has %zu, %zu, %zu and %zu channels; at most %d, and %d times as many within, "
                   "are supported",
                   name, p->in, p->wide_in, p->wide_out, p->out, SPAN_MOST, SPAN_WIDE);
        return false;
    }
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (!(*all[i].to = span_read(b, build_name("%s.%s", name, all[i].tensor), all[i].count)))
            return false;
    return true;
}

static void span_parts_free(struct span_parts *p)
{
    double *all[] = {p->first, p->first_bias, p->middle, p->middle_bias, p->last, p->last_bias, p->side, p->side_bias};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

/* "NAME.folded": weights [out][in][9]; for each wide output the middle's weights times the first's, then the last's. */
static void span_fold_weight(struct model_build *b, const char *name, float *values, size_t count)
{
    const int length = (int)(strlen(name) - strlen(".folded"));
    struct span_parts p;
    const bool there = span_parts_read(b, build_name("%.*s", length, name), &p);
    double *inner = there ? mem_calloc(p.wide_out * p.in * 9, sizeof *inner) : NULL;
    if (there && !inner)
        build_fail(b, ERROR_NO_MEMORY, "out of memory for the model's parameters");
    if (inner && count != p.out * p.in * 9)
        build_fail(b, ERROR_CORRUPT, "tensor %.*s.sk.weight has another shape than follows from the others", length,
                   name);
    else if (inner) {
        for (size_t o = 0; o < p.wide_out; o++)
            for (size_t m = 0; m < p.wide_in; m++)
                for (size_t i = 0; i < p.in; i++)
                    for (size_t k = 0; k < 9; k++)
                        inner[(o * p.in + i) * 9 + k] += p.middle[(o * p.wide_in + m) * 9 + k] * p.first[m * p.in + i];
        for (size_t o = 0; o < p.out; o++)
            for (size_t i = 0; i < p.in * 9; i++) {
                double sum = i % 9 == 4 ? p.side[o * p.in + i / 9] : 0; /* the middle of 3×3 */
                for (size_t m = 0; m < p.wide_out; m++)
                    sum += p.last[o * p.wide_out + m] * inner[m * p.in * 9 + i];
                values[o * p.in * 9 + i] = (float)sum;
            }
    }
    free(inner);
    span_parts_free(&p);
}

static void span_fold_bias(struct model_build *b, const char *name, float *values, size_t count)
{
    const int length = (int)(strlen(name) - strlen(".bias.folded"));
    struct span_parts p;
    if (span_parts_read(b, build_name("%.*s", length, name), &p) && count == p.out)
        for (size_t o = 0; o < p.out; o++) {
            double sum = p.last_bias[o] + p.side_bias[o];
            for (size_t m = 0; m < p.wide_out; m++) {
                double middle = p.middle_bias[m];
                for (size_t i = 0; i < p.wide_in * 9; i++)
                    middle += p.middle[m * p.wide_in * 9 + i] * p.first_bias[i / 9];
                sum += p.last[o * p.wide_out + m] * middle;
            }
            values[o] = (float)sum;
        }
    span_parts_free(&p);
}

/* Conv3XC: the picture's border is filled with zeros before the first of the convolutions, as in the folded one. */
static struct node *span_conv(struct model_build *b, const char *name, struct view x, struct view out)
{
    const size_t in = x.tensor < 0 ? 0 : (size_t)graph_channels(b->graph, x),
                 channels = out.tensor < 0 ? 0 : (size_t)graph_channels(b->graph, out);
    if (!in || !channels)
        return &b->scratch;
    const struct param *weight = build_derived(b, build_name("%s.folded", name), in * channels * 9, span_fold_weight),
                       *bias = build_derived(b, build_name("%s.bias.folded", name), channels, span_fold_bias);
    struct node *node = build_conv_of(b, weight, x, out, 3);
    node->param[OP_BIAS] = bias;
    return node;
}

/* SPAB: y = (o3 + x)·(sigmoid(o3) - 1/2). o1 is the first convolution's output, activated. */
static struct view span_block(struct model_build *b, const char *name, struct view x, struct view o1, struct view y)
{
    if (x.tensor < 0)
        return VIEW_NONE;
    const int features = graph_channels(b->graph, x);
    const struct view o2 = build_like(b, x, features), o3 = build_like(b, x, features);
    o1 = o1.tensor < 0 ? build_like(b, x, features) : o1;
    y = y.tensor < 0 ? build_like(b, x, features) : y;
    span_conv(b, build_name("%s.c1_r", name), x, o1)->args.conv2d.activation = ACTIVATION_SILU;
    span_conv(b, build_name("%s.c2_r", name), o1, o2)->args.conv2d.activation = ACTIVATION_SILU;
    span_conv(b, build_name("%s.c3_r", name), o2, o3);
    struct node *gate = graph_node(b->graph, OP_GATE, y);
    if (gate) {
        gate->in[OP_X] = gate->in[OP_RESIDUAL2] = o3;
        gate->in[OP_RESIDUAL1] = x;
        gate->args.gate.offset = -0.5f;
    }
    return y;
}

/* The picture as the network is given it: less the mean of its training pictures, times 255. */
static const float span_mean[3] = {0.4488f, 0.4371f, 0.4040f};

static void span_scale(struct model_build *b, const char *name, float *values, size_t count)
{
    (void)b;
    (void)name;
    for (size_t i = 0; i < count; i++)
        values[i] = i % 4 ? 0 : 255;
}

static void span_shift(struct model_build *b, const char *name, float *values, size_t count)
{
    (void)b;
    (void)name;
    for (size_t i = 0; i < count; i++)
        values[i] = -255 * span_mean[i];
}

static void span_build(struct model_build *b, const struct session_shape *shape)
{
    const int rgb = 3, n = shape->n, h = shape->h, w = shape->w, scale = model_info(b->model)->scale;
    const int f = build_size(b, "conv_1.sk.weight", 0);
    struct graph *g = b->graph;
    struct view x = graph_tensor(g, TENSOR_INPUT, n, h, w, 1, &rgb);
    if (f < 1)
        return;
    if (!weights_find(model_weights(b->model), "no_norm")) {
        const struct view given = graph_temp(g, n, 3, h, w);
        const struct param *by = build_derived(b, "scale", 9, span_scale),
                           *shift = build_derived(b, "shift", 3, span_shift);
        build_conv_of(b, by, x, given, 1)->param[OP_BIAS] = shift;
        x = given;
    }
    const struct view all = graph_tensor(g, TENSOR_TEMP, n, h, w, 4, (const int[]){f, f, f, f});
    span_conv(b, "conv_1", x, graph_segments(all, 0, 1));
    x = graph_segments(all, 0, 1);
    for (int i = 1; i <= SPAN_BLOCKS; i++)
        x = span_block(b, build_name("block_%d", i), x, i == SPAN_BLOCKS ? graph_segments(all, 3, 1) : VIEW_NONE,
                       i == 1 ? graph_segments(all, 2, 1) : VIEW_NONE);
    span_conv(b, "conv_2", x, graph_segments(all, 1, 1));
    const struct view joined = graph_temp(g, n, f, h, w), deep = graph_temp(g, n, 3 * scale * scale, h, w);
    build_conv(b, "conv_cat", all, joined, 1);
    build_conv(b, "upsampler.0", joined, deep, 3);
    struct node *shuffle =
        graph_node(g, OP_PIXEL_SHUFFLE, graph_tensor(g, TENSOR_OUTPUT, n, h * scale, w * scale, 1, &rgb));
    if (shuffle) {
        shuffle->in[OP_X] = deep;
        shuffle->args.shuffle.factor = scale;
    }
}

const struct architecture architecture_span = {span_detect, span_build, span_smallest};
