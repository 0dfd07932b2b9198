#include "tests/common/net.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char net_device_id[32]; /* of the one that is tested now */

struct device *net_device(const char *cache_dir)
{
    struct device *device = NULL;
    struct error err = ERROR_INIT;
    const enum error_code code = device_open(&device, net_device_id, cache_dir, &err);
    if (code != OK)
        print_error("%s\n", err.text);
    assert_int_equal(code, OK);
    return device;
}

struct device_info net_device_info(const struct device *device)
{
    struct device_info info;
    device_info(device, &info);
    return info;
}

void net_create(struct net *net, int channels, int h, int w, int layers)
{
    struct error err = ERROR_INIT;
    const size_t weights = (size_t)(channels * channels * 9);
    float *values = malloc(weights * sizeof *values);
    uint32_t state = 7;
    assert_non_null(values);
    for (size_t i = 0; i < weights; i++) {
        state = state * 1664525u + 1013904223u;
        values[i] = (float)(int32_t)state / 2147483648.0f / sqrtf((float)channels * 3);
    }
    net->values = (size_t)channels * (size_t)h * (size_t)w;
    net->input = malloc(net->values * sizeof(float));
    net->output = calloc(net->values, sizeof(float));
    net->expected = calloc(net->values, sizeof(float));
    assert_true(net->input && net->output && net->expected);
    for (size_t i = 0; i < net->values; i++) {
        state = state * 1664525u + 1013904223u;
        net->input[i] = (float)(int32_t)state / 2147483648.0f;
    }
    assert_int_equal(param_from_values(&net->param, values, weights, &err), OK);
    free(values);
    assert_int_equal(graph_create(&net->graph, &err), OK);
    struct view x = graph_tensor(net->graph, TENSOR_INPUT, 1, h, w, 1, &channels);
    for (int i = 0; i < layers; i++) {
        struct view y = i + 1 < layers ? graph_temp(net->graph, 1, channels, h, w)
                                       : graph_tensor(net->graph, TENSOR_OUTPUT, 1, h, w, 1, &channels);
        struct node *node = graph_node(net->graph, OP_CONV2D, y);
        assert_non_null(node);
        node->in[OP_X] = x;
        node->param[OP_WEIGHT] = net->param;
        node->args.conv2d =
            (struct op_conv2d){.kernel = 3, .stride = 1, .pad = 1, .upsample = 1, .gain = 1, .scale = 1};
        x = y;
    }
    assert_int_equal(graph_finish(net->graph, &err), OK);
}

void net_destroy(struct net *net)
{
    graph_destroy(&net->graph);
    param_destroy(&net->param);
    free(net->input);
    free(net->output);
    free(net->expected);
}

enum error_code net_run(struct net *net, struct plan *plan, float *out, const struct run_options *options)
{
    struct error err = ERROR_INIT;
    const float *input = net->input;
    return plan_run(plan, &input, &out, options, &err);
}

struct plan *net_plan(struct net *net, struct device *device)
{
    struct plan *plan = NULL;
    struct error err = ERROR_INIT;
    const enum error_code code = plan_create(&plan, device, net->graph, PRECISION_FP32, "net", &err);
    if (code != OK)
        print_error("%s\n", err.text);
    assert_int_equal(code, OK);
    return plan;
}

void net_expect(struct net *net)
{
    struct device *reference = NULL;
    struct error err = ERROR_INIT;
    assert_int_equal(device_open(&reference, "reference", NULL, &err), OK);
    struct plan *plan = net_plan(net, reference);
    assert_int_equal(net_run(net, plan, net->expected, NULL), OK);
    plan_destroy(&plan);
    device_close(&reference);
}

void net_check(const struct net *net)
{
    for (size_t i = 0; i < net->values; i++)
        if (!(fabsf(net->output[i] - net->expected[i]) <= 1e-5f))
            fail_msg("value %zu is %g and should be %g", i, (double)net->output[i], (double)net->expected[i]);
}

int net_each_device(int (*run)(void))
{
    struct device_info *list = NULL;
    size_t count = 0;
    struct error err = ERROR_INIT;
    int failed = 0, used = 0;
    setenv("RESTORED_VULKAN_VALIDATION", "1", 1);
    if (device_list(&list, &count, &err) != OK)
        return 1;
    for (size_t i = 0; i < count; i++) {
        if (!list[i].usable || strcmp(list[i].backend, "vulkan") != 0)
            continue;
        snprintf(net_device_id, sizeof net_device_id, "%s", list[i].id);
        printf("%s: %s\n", list[i].id, list[i].name);
        failed += run();
        used++;
    }
    free(list);
    if (used == 0)
        fprintf(stderr, "there is no usable Vulkan device\n");
    return failed || used == 0;
}
