/* Operators that a backend may do together or without waiting between them, in graphs, on every device against the
 * reference: convolutions that read what others have written in dense blocks, whose memory comes round again, and a
 * pixel shuffle behind one. Under the validation layer. */
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

static void test_device(struct device *reference, struct device *device)
{
    static const struct form forms[] = {
        {1, 33, 21, 2, 4, 3, true},
        {2, 16, 40, 1, 2, 3, true},
        {1, 7, 5, 1, 3, 8, false},
        {3, 5, 18, 14, 4, 3, false},
    };
    struct device_info info;
    device_info(device, &info);
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        const struct form *form = &forms[i];
        const size_t pixels = (size_t)(form->n * form->h * form->w);
        const size_t count = pixels * (size_t)(form->channels * form->factor * form->factor);
        float *input = malloc(pixels * 3 * sizeof *input), *expected = malloc(count * sizeof *expected);
        float *got = malloc(count * sizeof *got);
        struct net net;
        net_create(&net, form);
        for (size_t k = 0; k < pixels * 3; k++)
            input[k] = draw(&net);
        run(&net, reference, PRECISION_FP32, input, expected);
        for (int half = 0; half <= info.fp16; half++) {
            run(&net, device, half ? PRECISION_FP16 : PRECISION_FP32, input, got);
            const double off = worst(got, expected, count);
            if (!(off <= (half ? 2e-2 : 1e-5)))
                fail_msg("%s, %s, form %zu: off by %.2g of the range", info.name, half ? "fp16" : "fp32", i, off);
        }
        net_destroy(&net, (struct device *const[]){reference, device}, 2);
        free(input);
        free(expected);
        free(got);
    }
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
