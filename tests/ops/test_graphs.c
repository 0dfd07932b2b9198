/* Operators that a backend may do together or without waiting between them, in graphs, on every device against the
 * reference: convolutions that read what others have written in dense blocks, whose memory comes round again, a pixel
 * shuffle behind one, a scale and shift of half of one's channels, a value a channel that one adds, a U-Net, and a sum
 * with what is enlarged. Under the validation layer. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/backend/backend.h"
#include "runtime/vulkan/vk_device.h"

enum { MAX_PARAMS = 128 };

struct net {
    struct graph *graph;
    struct param *params[MAX_PARAMS];
    int param_count;
    uint32_t state;
};

static float draw(struct net *net)
{
    net->state = net->state * 1664525u + 1013904223u;
    return (float)(int32_t)net->state / 2147483648.0f;
}

static const struct param *values(struct net *net, int count, float range)
{
    struct error err = ERROR_INIT;
    float *list = malloc((size_t)count * sizeof *list);
    assert_non_null(list);
    assert_true(net->param_count < MAX_PARAMS);
    for (int i = 0; i < count; i++)
        list[i] = draw(net) * range;
    assert_int_equal(param_from_values(&net->params[net->param_count], list, (size_t)count, &err), OK);
    free(list);
    return net->params[net->param_count++];
}

static struct node *conv(struct net *net, struct view x, struct view y, int kernel)
{
    const int in = graph_channels(net->graph, x), out = graph_channels(net->graph, y);
    struct node *node = graph_node(net->graph, OP_CONV2D, y);
    assert_non_null(node);
    node->in[OP_X] = x;
    node->param[OP_WEIGHT] = values(net, in * out * kernel * kernel, sqrtf(5.7f / (float)(in * kernel * kernel)));
    node->param[OP_BIAS] = values(net, out, 0.1f);
    node->args.conv2d = (struct op_conv2d){.kernel = kernel,
                                           .stride = 1,
                                           .pad = kernel / 2,
                                           .upsample = 1,
                                           .activation = ACTIVATION_LEAKY,
                                           .slope = 0.2f,
                                           .gain = 1,
                                           .scale = 1};
    return node;
}

/* RRDBNet's blocks: each convolution reads the outputs of those before it, and the last adds the block's input. */
static struct view dense(struct net *net, int n, int h, int w, struct view wide, int blocks)
{
    static const int segments[] = {32, 16, 16, 16};
    for (int block = 0; block < blocks; block++) {
        struct view next = graph_tensor(net->graph, TENSOR_TEMP, n, h, w, 4, segments);
        for (int i = 0; i < 3; i++)
            conv(net, graph_segments(wide, 0, i + 1), graph_segments(wide, i + 1, 1), i == 1 ? 1 : 3);
        struct node *last = conv(net, wide, graph_segments(next, 0, 1), 3);
        last->args.conv2d.activation = ACTIVATION_NONE;
        last->args.conv2d.scale = 0.2f;
        last->args.conv2d.residual1_scale = 1;
        last->in[OP_RESIDUAL1] = graph_segments(wide, 0, 1);
        wide = next;
    }
    return graph_segments(wide, 0, 1);
}

struct form {
    int n, h, w, blocks, factor, channels; /* of the result */
    bool residual;                         /* the input is added to it */
};

static void net_create(struct net *net, const struct form *form)
{
    static const int segments[] = {32, 16, 16, 16};
    struct error err = ERROR_INIT;
    const int rgb = 3, n = form->n, h = form->h, w = form->w, f = form->factor;
    *net = (struct net){.state = 5};
    assert_int_equal(graph_create(&net->graph, &err), OK);
    const struct view x = graph_tensor(net->graph, TENSOR_INPUT, n, h, w, 1, &rgb);
    struct view wide = graph_tensor(net->graph, TENSOR_TEMP, n, h, w, 4, segments);
    conv(net, x, graph_segments(wide, 0, 1), 3);
    const struct view deep = dense(net, n, h, w, wide, form->blocks);
    const struct view flat = graph_temp(net->graph, n, form->channels * f * f, h, w);
    conv(net, deep, flat, 3)->args.conv2d.activation = ACTIVATION_NONE;
    struct node *node = graph_node(net->graph, OP_PIXEL_SHUFFLE,
                                   graph_tensor(net->graph, TENSOR_OUTPUT, n, h * f, w * f, 1, &form->channels));
    assert_non_null(node);
    node->in[OP_X] = flat;
    if (form->residual)
        node->in[OP_RESIDUAL1] = x;
    node->args.shuffle.factor = f;
    assert_int_equal(graph_finish(net->graph, &err), OK);
}

/* Where a GPU with matrices may not do the transform with the convolution, or may. */
enum between { NOTHING, A_READER, THE_SCALE };

struct transform {
    int n, h, w, half; /* channels */
    enum between between;
};

/* GFPGAN's: a modulated convolution into two halves, of which the second is scaled and shifted by what two others have
 * made, and a convolution that reads both; beside them a branch of its own. */
static void transform_create(struct net *net, const struct transform *form)
{
    struct error err = ERROR_INIT;
    const int rgb = 3, few = 16, halves[] = {form->half, form->half}, n = form->n, h = form->h, w = form->w;
    const int pixels = h * w, channels = 2 * form->half;
    *net = (struct net){.state = 9};
    assert_int_equal(graph_create(&net->graph, &err), OK);
    struct graph *graph = net->graph;
    const struct view x = graph_tensor(graph, TENSOR_INPUT, n, h, w, 1, &rgb), style = graph_temp(graph, n, 40, 1, 1);
    const struct view feature = graph_temp(graph, n, 40, h, w), aside = graph_temp(graph, n, few, h, w);
    const struct view scale = graph_temp(graph, n, form->half, h, w), shift = graph_temp(graph, n, form->half, h, w);
    const struct view styled = graph_tensor(graph, TENSOR_TEMP, n, h, w, 2, halves);
    const struct view half = graph_segments(styled, 1, 1);
    struct node *node = graph_node(graph, OP_LINEAR, style);
    assert_non_null(node);
    node->in[OP_X] = x;
    node->param[OP_WEIGHT] = values(net, 3 * pixels * 40, 3 / sqrtf((float)(3 * pixels)));
    conv(net, x, feature, 3);
    if (form->between != THE_SCALE)
        conv(net, feature, scale, 3);
    conv(net, feature, shift, 3)->args.conv2d.activation = ACTIVATION_NONE;
    node = conv(net, feature, styled, 3);
    node->in[OP_IN_SCALE] = style;
    node->in[OP_OUT_SCALE] = graph_constant(graph, values(net, channels, 1), channels, 1, 1);
    node->in[OP_NOISE_MAP] = graph_constant(graph, values(net, pixels, 1), 1, h, w);
    node->args.conv2d.noise_weight = 0.3f;
    node->args.conv2d.gain = sqrtf(2);
    node->args.conv2d.scale = 0.7f;
    struct view deep = x;
    for (int i = 0; i < 3; i++) { /* whoever waits for it comes behind the transform, if nothing else counts */
        const struct view next = graph_temp(graph, n, few, h, w);
        conv(net, deep, next, 1);
        deep = next;
    }
    node = conv(net, form->between == A_READER ? styled : x, aside, 3);
    node->in[OP_RESIDUAL1] = deep;
    node->args.conv2d.residual1_scale = 1;
    if (form->between == THE_SCALE)
        conv(net, feature, scale, 3);
    node = graph_node(graph, OP_SCALE_SHIFT, half);
    assert_non_null(node);
    node->in[OP_X] = half;
    node->in[OP_RESIDUAL1] = scale;
    node->in[OP_RESIDUAL2] = shift;
    node = conv(net, styled, graph_tensor(graph, TENSOR_OUTPUT, n, h, w, 1, &few), 3);
    node->in[OP_RESIDUAL1] = aside;
    node->args.conv2d.residual1_scale = 1;
    assert_int_equal(graph_finish(graph, &err), OK);
}

struct level {
    int n, h, w, deep, channels;
};

/* One value a channel, of the whole input. */
static struct view vector(struct net *net, struct view x, int n, int pixels, int channels)
{
    const struct view out = graph_temp(net->graph, n, channels, 1, 1);
    struct node *node = graph_node(net->graph, OP_LINEAR, out);
    assert_non_null(node);
    node->in[OP_X] = x;
    node->param[OP_WEIGHT] = values(net, 3 * pixels * channels, 3 / sqrtf((float)(3 * pixels)));
    return out;
}

/* FBCNN's block: x, what two convolutions make of it, scaled, and `plus`. */
static struct view level_block(struct net *net, struct view x, int channels, struct view gamma, struct view plus)
{
    const struct tensor t = *graph_tensor_of(net->graph, x);
    const struct view inner = graph_temp(net->graph, t.n, channels, t.h, t.w);
    const struct view out = graph_temp(net->graph, t.n, channels, t.h, t.w);
    conv(net, x, inner, 3);
    struct node *node = conv(net, inner, out, 3);
    node->in[OP_OUT_SCALE] = gamma;
    node->in[OP_RESIDUAL1] = x;
    node->in[OP_RESIDUAL2] = plus;
    node->args.conv2d.residual1_scale = 1;
    node->args.conv2d.residual2_scale = 0.5f;
    return out;
}

/* As in Real-CUGAN and FBCNN: channels, scaled before the sum, that a shuffle spreads over a larger picture; a block
 * that adds its input and a value a channel, and one that adds a picture, too, to which that was added before. */
static void level_create(struct net *net, const struct level *form)
{
    struct error err = ERROR_INIT;
    const int rgb = 3, n = form->n, h = form->h, w = form->w, c = form->channels;
    *net = (struct net){.state = 17};
    assert_int_equal(graph_create(&net->graph, &err), OK);
    struct graph *graph = net->graph;
    const struct view x = graph_tensor(graph, TENSOR_INPUT, n, h, w, 1, &rgb);
    const struct view factors = vector(net, x, n, h * w, form->deep), gamma = vector(net, x, n, h * w, c),
                      shift = vector(net, x, n, h * w, c);
    const struct view deep = graph_temp(graph, n, form->deep, h, w), flat = graph_temp(graph, n, 4 * c, h, w);
    const struct view up = graph_temp(graph, n, c, 2 * h, 2 * w), skip = graph_temp(graph, n, c, 2 * h, 2 * w);
    const struct view all = graph_temp(graph, n, c, 2 * h, 2 * w);
    conv(net, x, deep, 3);
    conv(net, deep, flat, 1)->in[OP_IN_SCALE] = factors;
    struct node *node = graph_node(graph, OP_PIXEL_SHUFFLE, up);
    assert_non_null(node);
    node->in[OP_X] = flat;
    node->args.shuffle.factor = 2;
    conv(net, up, skip, 3);
    node = graph_node(graph, OP_ADD, skip);
    assert_non_null(node);
    node->in[OP_X] = skip;
    node->in[OP_RESIDUAL1] = shift;
    node->args.add = (struct op_add){.x_scale = 1, .residual1_scale = 1};
    node = graph_node(graph, OP_RESIZE, all);
    assert_non_null(node);
    node->in[OP_X] = shift;
    node->args.resize.mode = RESIZE_NEAREST;
    const struct view once = level_block(net, up, c, gamma, all), twice = level_block(net, once, c, gamma, skip);
    conv(net, twice, graph_tensor(graph, TENSOR_OUTPUT, n, 2 * h, 2 * w, 1, &rgb), 3);
    assert_int_equal(graph_finish(graph, &err), OK);
}

struct unet {
    int n, h, w, channels, deep;
};

/* x, and two convolutions of it behind a factor a channel, some of which are 0, and `plus`. */
static struct view unet_block(struct net *net, struct view x, struct view plus)
{
    const int channels = graph_channels(net->graph, x);
    const struct tensor t = *graph_tensor_of(net->graph, x);
    const struct view inner = graph_temp(net->graph, t.n, channels, t.h, t.w);
    const struct view out = graph_temp(net->graph, t.n, channels, t.h, t.w);
    float factors[128];
    struct error err = ERROR_INIT;
    conv(net, x, inner, 3);
    struct node *node = conv(net, inner, out, 3);
    for (int i = 0; i < channels; i++)
        factors[i] = i % 5 == 2 ? 0 : draw(net);
    assert_int_equal(param_from_values(&net->params[net->param_count], factors, (size_t)channels, &err), OK);
    node->in[OP_OUT_SCALE] = graph_constant(net->graph, net->params[net->param_count++], channels, 1, 1);
    node->in[OP_RESIDUAL1] = x;
    node->in[OP_RESIDUAL2] = plus;
    node->args.conv2d.activation = ACTIVATION_NONE;
    node->args.conv2d.residual1_scale = 1;
    node->args.conv2d.residual2_scale = 0.5f;
    return out;
}

/* DRUNet's: blocks, half the size, blocks, the whole size again, and what was there before. */
static void unet_create(struct net *net, const struct unet *form)
{
    struct error err = ERROR_INIT;
    const int rgb = 3, n = form->n, h = form->h, w = form->w, c = form->channels;
    *net = (struct net){.state = 23};
    assert_int_equal(graph_create(&net->graph, &err), OK);
    struct graph *graph = net->graph;
    const struct view x = graph_tensor(graph, TENSOR_INPUT, n, h, w, 1, &rgb);
    const struct view first = graph_temp(graph, n, c, h, w), deep = graph_temp(graph, n, form->deep, h / 2, w / 2);
    const struct view flat = graph_temp(graph, n, 4 * c, h / 2, w / 2), up = graph_temp(graph, n, c, h, w);
    conv(net, x, first, 3);
    struct node *node = conv(net, unet_block(net, unet_block(net, first, VIEW_NONE), VIEW_NONE), deep, 2);
    node->args.conv2d.stride = 2;
    node->args.conv2d.pad = 0;
    conv(net, unet_block(net, unet_block(net, deep, VIEW_NONE), deep), flat, 1);
    node = graph_node(graph, OP_PIXEL_SHUFFLE, up);
    assert_non_null(node);
    node->in[OP_X] = flat;
    node->args.shuffle.factor = 2;
    conv(net, unet_block(net, unet_block(net, up, VIEW_NONE), first),
         graph_tensor(graph, TENSOR_OUTPUT, n, h, w, 1, &rgb), 3);
    assert_int_equal(graph_finish(graph, &err), OK);
}

/* starter_damage's way up: a half of the size, half as many channels, enlarged by nearest neighbour and added to what
 * was there before. Of an odd side the enlarged picture is not twice as large. */
static void sum_create(struct net *net, const struct unet *form)
{
    struct error err = ERROR_INIT;
    const int rgb = 3, n = form->n, h = form->h, w = form->w, c = form->channels, half_h = (h + 1) / 2,
              half_w = (w + 1) / 2;
    *net = (struct net){.state = 31};
    assert_int_equal(graph_create(&net->graph, &err), OK);
    struct graph *graph = net->graph;
    const struct view x = graph_tensor(graph, TENSOR_INPUT, n, h, w, 1, &rgb);
    const struct view skip = graph_temp(graph, n, c, h, w), sum = graph_temp(graph, n, c, h, w);
    const struct view deep = graph_temp(graph, n, form->deep, half_h, half_w);
    const struct view body = graph_temp(graph, n, form->deep, half_h, half_w);
    const struct view side = graph_temp(graph, n, c, half_h, half_w), large = graph_temp(graph, n, c, h, w);
    conv(net, x, skip, 3);
    conv(net, skip, deep, 3)->args.conv2d.stride = 2;
    conv(net, deep, body, 3);
    conv(net, body, side, 1);
    struct node *node = graph_node(graph, OP_RESIZE, large);
    assert_non_null(node);
    node->in[OP_X] = side;
    node->args.resize.mode = RESIZE_NEAREST;
    node = graph_node(graph, OP_ADD, sum);
    assert_non_null(node);
    node->in[OP_X] = large;
    node->in[OP_RESIDUAL1] = skip;
    node->args.add =
        (struct op_add){.x_scale = 0.5f, .residual1_scale = 1, .activation = ACTIVATION_LEAKY, .slope = 0.1f};
    conv(net, sum, graph_tensor(graph, TENSOR_OUTPUT, n, h, w, 1, &rgb), 3);
    assert_int_equal(graph_finish(graph, &err), OK);
}

static void net_destroy(struct net *net, struct device *const *devices, int count)
{
    for (int i = 0; i < count; i++)
        device_forget_params(devices[i], (const struct param *const *)net->params, (size_t)net->param_count);
    graph_destroy(&net->graph);
    for (int i = 0; i < net->param_count; i++)
        param_destroy(&net->params[i]);
}

/* Twice, since a plan's runs share its memory. */
static void run(struct net *net, struct device *device, enum precision precision, const float *input, float *output)
{
    const struct run_options options = {0};
    struct error err = ERROR_INIT;
    struct plan *plan = NULL;
    if (plan_create(&plan, device, net->graph, precision, "test", &err))
        fail_msg("%s", err.text);
    for (int i = 0; i < 2; i++)
        if (plan_run(plan, &input, &output, &options, &err))
            fail_msg("%s", err.text);
    plan_destroy(&plan);
}

static double worst(const float *got, const float *expected, size_t count)
{
    double range = 0, most = 0;
    for (size_t i = 0; i < count; i++) {
        range = fmax(range, fabs((double)expected[i]));
        const double off = fabs((double)got[i] - (double)expected[i]);
        most = off <= most ? most : off;
    }
    return most / range;
}

static size_t value_count(const struct graph *graph, int tensor)
{
    const struct tensor *t = &graph->tensors[tensor];
    return (size_t)(t->n * t->channels * t->h * t->w);
}

/* Compares the devices, and destroys the net. */
static void compare(struct device *reference, struct device *device, struct net *net, const char *what, size_t form)
{
    const size_t inputs = value_count(net->graph, net->graph->inputs[0]);
    const size_t count = value_count(net->graph, net->graph->outputs[0]);
    float *input = malloc(inputs * sizeof *input), *expected = malloc(count * sizeof *expected);
    float *got = malloc(count * sizeof *got);
    struct device_info info;
    device_info(device, &info);
    assert_true(input && expected && got);
    for (size_t i = 0; i < inputs; i++)
        input[i] = draw(net);
    run(net, reference, PRECISION_FP32, input, expected);
    for (int half = 0; half <= info.fp16; half++) {
        run(net, device, half ? PRECISION_FP16 : PRECISION_FP32, input, got);
        const double off = worst(got, expected, count);
        if (!(off <= (half ? 2e-2 : 1e-5)))
            fail_msg("%s, %s, %s %zu: off by %.2g of the range", info.name, half ? "fp16" : "fp32", what, form, off);
    }
    net_destroy(net, (struct device *const[]){reference, device}, 2);
    free(input);
    free(expected);
    free(got);
}

/* Numbers beyond what fp32 on matrices can take, in the input or the weights, in front of fp16: the run is right, or
 * says that it is not finite. ReLU and what rounds to fp16 would hide it. */
static void test_wide(struct device *reference, struct device *device, float input, float weight)
{
    enum { H = 18, W = 20 };
    static float x[16][H][W], expected[16][H][W], got[16][H][W];
    const int channels = 16;
    const struct run_input in = {.planes = x[0][0]};
    const struct run_output out = {.planes = got[0][0]};
    struct error err = ERROR_INIT;
    struct device_info info;
    struct plan *plan = NULL;
    struct net net = {.state = 3};
    assert_int_equal(graph_create(&net.graph, &err), OK);
    net.graph->fp32 = true;
    const struct view first = graph_tensor(net.graph, TENSOR_INPUT, 1, H, W, 1, &channels);
    const struct view inner = graph_temp(net.graph, 1, channels, H, W);
    net.graph->fp32 = false;
    struct node *node = graph_node(net.graph, OP_CONV2D, inner);
    float *weights = calloc(16 * 16 * 9, sizeof *weights);
    assert_true(node && weights);
    for (int c = 0; c < 16; c++)
        weights[(c * 16 + c) * 9 + 4] = weight; /* the tap in the middle */
    assert_int_equal(param_from_values(&net.params[net.param_count], weights, 16 * 16 * 9, &err), OK);
    free(weights);
    node->in[OP_X] = first;
    node->param[OP_WEIGHT] = net.params[net.param_count++];
    node->args.conv2d = (struct op_conv2d){
        .kernel = 3, .stride = 1, .pad = 1, .upsample = 1, .activation = ACTIVATION_RELU, .gain = 1, .scale = 1e-3f};
    conv(&net, inner, graph_tensor(net.graph, TENSOR_OUTPUT, 1, H, W, 1, &channels), 3);
    assert_int_equal(graph_finish(net.graph, &err), OK);
    float *values = x[0][0];
    for (int i = 0; i < 16 * H * W; i++)
        values[i] = draw(&net);
    x[5][7][9] = input;
    run(&net, reference, PRECISION_FP32, x[0][0], expected[0][0]);
    device_info(device, &info);
    if (plan_create(&plan, device, net.graph, info.fp16 ? PRECISION_FP16 : PRECISION_FP32, "wide", &err) ||
        plan_submit(plan, &(struct run_io){.inputs = &in, .outputs = &out}, &err))
        fail_msg("%s", err.text);
    struct run_result result;
    if (plan_wait(plan, &result, &err))
        fail_msg("%s", err.text);
    const double off = worst(got[0][0], expected[0][0], sizeof got / sizeof got[0][0][0]);
    print_message("%s, input %g, weight %g: %s, off by %.2g\n", info.name, (double)input, (double)weight,
                  result.finite ? "finite" : "not finite", off);
    assert_true(!result.finite || off <= 2e-2);
    plan_destroy(&plan);
    net_destroy(&net, (struct device *const[]){reference, device}, 2);
}

static void test_device(struct device *reference, struct device *device)
{
    static const struct form forms[] = {
        {1, 33, 21, 2, 4, 3, true},
        {2, 16, 40, 1, 2, 3, true},
        {1, 7, 5, 1, 3, 8, false},
        {3, 5, 18, 14, 4, 3, false},
    };
    static const struct transform transforms[] = {
        {1, 21, 35, 32, NOTHING}, {3, 13, 17, 32, NOTHING}, {2, 9, 18, 80, NOTHING},
        {2, 9, 18, 24, NOTHING},  {3, 5, 7, 32, A_READER},  {1, 19, 16, 32, THE_SCALE},
    };
    static const struct level levels[] = {
        {1, 17, 19, 32, 32}, {2, 9, 16, 64, 48}, {3, 5, 7, 16, 16}, {1, 6, 5, 12, 20}};
    static const struct unet unets[] = {{1, 200, 24, 32, 64}, {2, 34, 46, 64, 96}, {1, 78, 20, 16, 48}};
    static const struct unet sums[] = {
        {1, 34, 22, 16, 48}, {2, 18, 46, 48, 80}, {1, 20, 14, 12, 36}, {1, 17, 18, 48, 96}};
    struct device_info info;
    struct net net;
    device_info(device, &info);
    for (size_t i = 0; i < sizeof sums / sizeof sums[0]; i++) {
        sum_create(&net, &sums[i]);
        compare(reference, device, &net, "a sum with what is enlarged", i);
    }
    for (size_t i = 0; i < sizeof unets / sizeof unets[0]; i++) {
        unet_create(&net, &unets[i]);
        compare(reference, device, &net, "a U-Net", i);
    }
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        level_create(&net, &levels[i]);
        compare(reference, device, &net, "shuffle and a value a channel", i);
    }
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        net_create(&net, &forms[i]);
        compare(reference, device, &net, "dense blocks", i);
    }
    for (size_t i = 0; i < sizeof transforms / sizeof transforms[0]; i++) {
        transform_create(&net, &transforms[i]);
        compare(reference, device, &net, "scale and shift", i);
    }
    test_wide(reference, device, 16000, 1);
    test_wide(reference, device, 20000, 1);
    test_wide(reference, device, 1, 300);
    print_message("%s: right\n", info.name);
}

static void test_devices(void **state)
{
    struct device *reference = NULL, *device = NULL;
    struct device_info *list = NULL;
    struct error err = ERROR_INIT;
    size_t count = 0;
    (void)state;
    assert_int_equal(device_open(&reference, "reference", NULL, &err), OK);
    assert_int_equal(device_list(&list, &count, &err), OK);
    for (size_t i = 0; i < count; i++) {
        if (!list[i].usable)
            continue;
        assert_int_equal(device_open(&device, list[i].id, NULL, &err), OK);
        test_device(reference, device);
        device_close(&device);
    }
    free(list);
    device_close(&reference);
    assert_int_equal(vk_validation_count(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_devices)};
    setenv("RESTORED_VULKAN_VALIDATION", "1", 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
