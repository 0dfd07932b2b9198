#include "tests/common/run_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/vulkan/vk_device.h"

struct device *run_device;
enum precision run_precision;
static run_case *const *cases;

void run_net_plan(struct run_net *net)
{
    struct error err = ERROR_INIT;
    if (graph_finish(net->graph, &err) || plan_create(&net->plan, run_device, net->graph, run_precision, "net", &err))
        fail_msg("%s", err.text);
}

void run_net_destroy(struct run_net *net)
{
    plan_destroy(&net->plan);
    if (net->weight)
        device_forget_params(run_device, (const struct param *const *)&net->weight, 1);
    graph_destroy(&net->graph);
    param_destroy(&net->weight);
}

void run_net_same(struct run_net *net, int n, int h, int w, int steps)
{
    struct error err = ERROR_INIT;
    const int rgb = 3;
    *net = (struct run_net){0};
    assert_int_equal(graph_create(&net->graph, &err), OK);
    struct view x = graph_tensor(net->graph, TENSOR_INPUT, n, h, w, 1, &rgb);
    for (int i = 0; i < steps; i++) {
        struct view y = i + 1 < steps ? graph_temp(net->graph, n, 3, h, w)
                                      : graph_tensor(net->graph, TENSOR_OUTPUT, n, h, w, 1, &rgb);
        struct node *node = graph_node(net->graph, OP_ADD, y);
        node->in[OP_X] = node->in[OP_RESIDUAL1] = x;
        node->args.add = (struct op_add){.x_scale = 0.25f, .residual1_scale = 0.75f};
        x = y;
    }
    run_net_plan(net);
}

void run_net_pair(struct run_net *net, const int first[2], const int second[2])
{
    struct error err = ERROR_INIT;
    const int rgb = 3, *const sizes[] = {first, second};
    *net = (struct run_net){0};
    assert_int_equal(graph_create(&net->graph, &err), OK);
    for (int i = 0; i < 2; i++) {
        const int h = sizes[i][0], w = sizes[i][1];
        const struct view x = graph_tensor(net->graph, TENSOR_INPUT, 1, h, w, 1, &rgb);
        struct node *node = graph_node(net->graph, OP_ADD, graph_tensor(net->graph, TENSOR_OUTPUT, 1, h, w, 1, &rgb));
        node->in[OP_X] = node->in[OP_RESIDUAL1] = x;
        node->args.add = (struct op_add){.x_scale = 0.25f, .residual1_scale = 0.75f};
    }
    run_net_plan(net);
}

void run_net_classes(struct run_net *net, int n, int h, int w, int classes)
{
    struct error err = ERROR_INIT;
    const int rgb = 3;
    float *values = malloc((size_t)(3 * classes) * sizeof *values);
    for (int i = 0; i < classes; i++)
        for (int c = 0; c < 3; c++)
            values[3 * i + c] = sinf((float)(i / 2 * 3 + c) * 1.7f);
    *net = (struct run_net){0};
    assert_int_equal(graph_create(&net->graph, &err), OK);
    assert_int_equal(param_from_values(&net->weight, values, (size_t)(3 * classes), &err), OK);
    free(values);
    struct view x = graph_tensor(net->graph, TENSOR_INPUT, n, h, w, 1, &rgb);
    struct node *node =
        graph_node(net->graph, OP_CONV2D, graph_tensor(net->graph, TENSOR_OUTPUT, n, h, w, 1, &classes));
    node->in[OP_X] = x;
    node->param[OP_WEIGHT] = net->weight;
    node->args.conv2d = (struct op_conv2d){.kernel = 1, .stride = 1, .upsample = 1, .gain = 1, .scale = 1};
    node = graph_node(net->graph, OP_ADD, graph_tensor(net->graph, TENSOR_OUTPUT, n, h, w, 1, &rgb));
    node->in[OP_X] = node->in[OP_RESIDUAL1] = x;
    node->args.add = (struct op_add){.x_scale = 1, .residual1_scale = 1};
    run_net_plan(net);
}

uint8_t run_noise(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (uint8_t)(*state >> 24);
}

void run_fill(uint8_t *bytes, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = run_noise(&seed);
}

void run_submit(struct run_net *net, const struct run_io *run)
{
    struct error err = ERROR_INIT;
    if (plan_submit(net->plan, run, &err))
        fail_msg("%s", err.text);
}

struct run_result run_await(struct run_net *net)
{
    struct error err = ERROR_INIT;
    struct run_result result;
    if (plan_wait(net->plan, &result, &err))
        fail_msg("%s", err.text);
    return result;
}

double run_allowed(void)
{
    return run_precision == PRECISION_FP16 ? 0.2 : 1e-4;
}

const struct raster_range run_unit_range = {.unit = 255, .deviation = 1, .low = 0, .high = 1};
const struct raster_range run_face_range = {
    .unit = 255, .mean = {0.5f, 0.5f, 0.5f}, .deviation = 0.5f, .low = -1, .high = 1};
const struct raster_range run_blue_range = {
    .unit = 1, .mean = {104, 117, 123}, .deviation = 1, .low = -200, .high = 200, .bgr = true};

static void run_cases(const char *name)
{
    struct device_info info;
    device_info(run_device, &info);
    for (int p = 0; p < (info.fp16 ? 2 : 1); p++) {
        run_precision = p ? PRECISION_FP16 : PRECISION_FP32;
        for (run_case *const *next = cases; *next; next++)
            (*next)();
    }
    device_info(run_device, &info);
    assert_int_equal(info.memory_used, 0);
    print_message("%s: %s\n", name, info.fp16 ? "fp32, fp16" : "fp32");
}

static void test_devices(void **state)
{
    (void)state;
    static const struct {
        const char *backend, *variable, *value;
    } ways[] = {{"vulkan", "RESTORED_VULKAN_DIRECT", "0"},
                {"vulkan", "RESTORED_VULKAN_DIRECT", "1"},
                {"vulkan", "RESTORED_VULKAN_GROUPED", "1"},
                {"cpu", "RESTORED_CPU_ISA", ""}};
    struct device_info *list = NULL;
    size_t count = 0;
    struct error err = ERROR_INIT;
    assert_int_equal(device_open(&run_device, "reference", NULL, &err), OK);
    run_cases("reference");
    device_close(&run_device);
    assert_int_equal(device_list(&list, &count, &err), OK);
    for (size_t i = 0; i < count; i++)
        for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
            if (!list[i].usable || strcmp(ways[w].backend, list[i].backend) != 0)
                continue;
            if (*ways[w].value)
                setenv(ways[w].variable, ways[w].value, 1);
            assert_int_equal(device_open(&run_device, list[i].id, NULL, &err), OK);
            run_cases(list[i].name);
            device_close(&run_device);
            unsetenv(ways[w].variable);
        }
    free(list);
    assert_int_equal(vk_validation_count(), 0);
}

int run_all_devices(const char *name, run_case *const *list)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_devices)};
    cases = list;
    setenv("RESTORED_VULKAN_VALIDATION", "1", 1);
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}
