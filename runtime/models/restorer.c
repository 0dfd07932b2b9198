#include "runtime/models/restorer.h"

#include <string.h>

int restorer_channels(int in, int out, bool *level, const char *network, struct error *err)
{
    *level = in == out + 1;
    if ((in == out || *level) && (out == 1 || out == 3))
        return out;
    if (network)
        error_set(err, ERROR_UNSUPPORTED,
                  "%s that takes %d channels and gives %d; 1 and 3 are supported, and a noise level", network, in, out);
    return 0;
}

/* Rows are outputs: luma (ITU-R BT.601) or RGB, then nothing of the picture for the noise level. */
static void restorer_fill(struct model_build *b, const char *name, float *values, size_t count)
{
    static const float gray[6] = {0.299f, 0.587f, 0.114f}, colour[12] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
    (void)b;
    (void)name;
    memcpy(values, count <= 6 ? gray : colour, count * sizeof *values);
}

static void restorer_fill_level(struct model_build *b, const char *name, float *values, size_t count)
{
    const struct model_settings *settings = build_settings(b);
    (void)name;
    values[count - 1] = (settings->has_noise_level ? settings->noise_level : RESTORER_NOISE) / 255;
}

/* What was changed: the result less the luma, in each of three channels. */
static void restorer_fill_change(struct model_build *b, const char *name, float *values, size_t count)
{
    (void)b;
    (void)name;
    for (size_t i = 0; i < count; i++)
        values[i] = i % 2 ? -1 : 1;
}

/* The picture as `count` channels by a 1×1 convolution. */
static void restorer_convert(struct model_build *b, struct view picture, struct view out, bool level)
{
    if (out.tensor < 0)
        return;
    const size_t count = (size_t)graph_channels(b->graph, out);
    struct node *node = build_conv_of(
        b, build_derived(b, build_name("picture to %zu", count), 3 * count, restorer_fill), picture, out, 1);
    if (level)
        node->param[OP_BIAS] = build_derived(b, "noise level", count, restorer_fill_level);
}

void restorer_begin(struct model_build *b, const struct session_shape *shape, int channels, bool level,
                    struct restorer *r)
{
    const int rgb = 3, n = shape->n, h = shape->h, w = shape->w;
    r->channels = channels;
    r->picture = r->x = graph_tensor(b->graph, TENSOR_INPUT, n, h, w, 1, &rgb);
    r->pair = VIEW_NONE;
    if (channels == 1) {
        r->pair = graph_tensor(b->graph, TENSOR_TEMP, n, h, w, 2, (const int[]){1, 1});
        restorer_convert(b, r->picture, graph_segments(r->pair, 1, 1), false);
        r->x = graph_segments(r->pair, 1, 1);
    }
    if (level) {
        r->x = graph_temp(b->graph, n, channels + 1, h, w);
        restorer_convert(b, r->picture, r->x, true);
    }
}

static struct view restorer_output(struct model_build *b, const struct restorer *r)
{
    const int rgb = 3;
    if (r->picture.tensor < 0)
        return VIEW_NONE;
    const struct tensor t = *graph_tensor_of(b->graph, r->picture);
    return graph_tensor(b->graph, TENSOR_OUTPUT, t.n, t.h, t.w, 1, &rgb);
}

struct view restorer_result(struct model_build *b, struct restorer *r)
{
    return r->channels == 1 ? graph_segments(r->pair, 0, 1) : restorer_output(b, r);
}

void restorer_end(struct model_build *b, const struct restorer *r)
{
    if (r->channels != 1)
        return;
    const struct param *weight = build_derived(b, "change", 6, restorer_fill_change);
    struct node *node = build_conv_of(b, weight, r->pair, restorer_output(b, r), 1);
    node->in[OP_RESIDUAL1] = r->picture;
    node->args.conv2d.residual1_scale = 1;
}

struct node *restorer_conv(struct model_build *b, const char *name, struct view x, struct view out, int kernel)
{
    return weights_find(model_weights(b->model), build_name("%s.bias", name))
               ? build_conv(b, name, x, out, kernel)
               : build_conv_plain(b, name, x, out, kernel);
}

/* ResBlock: x + conv(relu(conv(x))), of "name.res.0" and "name.res.2", plus `skip` if there is one. */
static struct view restorer_block(struct model_build *b, const char *name, struct view x, struct view skip)
{
    if (x.tensor < 0)
        return VIEW_NONE;
    const int channels = graph_channels(b->graph, x);
    const struct view inner = build_like(b, x, channels), out = build_like(b, x, channels);
    restorer_conv(b, build_name("%s.res.0", name), x, inner, 3)->args.conv2d.activation = ACTIVATION_RELU;
    struct node *second = restorer_conv(b, build_name("%s.res.2", name), inner, out, 3);
    second->in[OP_RESIDUAL1] = x;
    second->in[OP_RESIDUAL2] = skip;
    second->args.conv2d.residual1_scale = second->args.conv2d.residual2_scale = 1;
    return out;
}

struct view restorer_blocks(struct model_build *b, const char *name, int first, int count, struct view x,
                            struct view skip)
{
    for (int i = 0; i < count; i++)
        x = restorer_block(b, build_name("%s.%d", name, first + i), x, i == count - 1 ? skip : VIEW_NONE);
    return x;
}

struct view restorer_halve(struct model_build *b, const char *name, struct view x)
{
    const int channels = build_size(b, build_name("%s.weight", name), 0);
    if (x.tensor < 0 || channels < 1)
        return VIEW_NONE;
    const struct tensor t = *graph_tensor_of(b->graph, x);
    const struct view out = graph_temp(b->graph, t.n, channels, t.h / 2, t.w / 2);
    struct node *node = restorer_conv(b, name, x, out, 2);
    node->args.conv2d.stride = 2;
    node->args.conv2d.pad = 0;
    return out;
}
