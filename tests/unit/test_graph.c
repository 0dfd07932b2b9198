/* The graph builder's checks, the arena planner, and sessions on the oracle. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#include "runtime/nn/arena_plan.h"
#include "runtime/session.h"

/* y = x + x over a chain of `length` tensors, every third result kept alive to the end. */
static struct graph *chain(int length)
{
    struct graph *g;
    struct error err = ERROR_INIT;
    assert_int_equal(graph_create(&g, &err), OK);
    int c = 3;
    struct view x = graph_tensor(g, TENSOR_INPUT, 1, 4, 4, 1, &c), kept = x;
    for (int i = 0; i < length; i++) {
        struct view y = i == length - 1 ? graph_tensor(g, TENSOR_OUTPUT, 1, 4, 4, 1, &c) : graph_temp(g, 1, c, 4, 4);
        struct node *node = graph_node(g, OP_ADD, y);
        node->in[OP_X] = x;
        node->in[OP_RESIDUAL1] = kept;
        node->args.add.x_scale = node->args.add.residual1_scale = 1;
        if (i % 3 == 0)
            kept = y;
        x = y;
    }
    assert_int_equal(graph_finish(g, &err), OK);
    return g;
}

static void test_arena_plan(void **state)
{
    (void)state;
    struct graph *g = chain(20);
    struct error err = ERROR_INIT;
    uint64_t bytes[32], offsets[32], total, sum = 0;
    int first[32], last[32];
    for (int t = 0; t < g->tensor_count; t++) {
        bytes[t] = 100 + (uint64_t)(t * 37 % 11) * 50;
        sum += bytes[t];
        first[t] = g->node_count;
        last[t] = -1;
    }
    assert_int_equal(arena_plan(g, NULL, bytes, 64, offsets, &total, &err), OK);
    for (int n = 0; n < g->node_count; n++) {
        int touched[3] = {g->nodes[n].out.tensor, g->nodes[n].in[OP_X].tensor, g->nodes[n].in[OP_RESIDUAL1].tensor};
        for (int i = 0; i < 3; i++) {
            first[touched[i]] = n < first[touched[i]] ? n : first[touched[i]];
            last[touched[i]] = n;
        }
    }
    first[g->inputs[0]] = 0;
    last[g->outputs[0]] = g->node_count;
    for (int a = 0; a < g->tensor_count; a++) {
        assert_int_equal(offsets[a] % 64, 0);
        assert_true(offsets[a] + bytes[a] <= total);
        for (int b = 0; b < a; b++) /* alive together: apart in memory */
            if (first[a] <= last[b] && first[b] <= last[a])
                assert_true(offsets[a] + bytes[a] <= offsets[b] || offsets[b] + bytes[b] <= offsets[a]);
    }
    assert_true(total < sum / 2); /* a chain needs few tensors at a time */
    graph_destroy(&g);
}

static void test_arena_overflow(void **state)
{
    (void)state;
    struct graph *g = chain(3);
    struct error err = ERROR_INIT;
    uint64_t bytes[8], offsets[8], total;
    for (int t = 0; t < g->tensor_count; t++)
        bytes[t] = UINT64_MAX / 2;
    assert_int_equal(arena_plan(g, NULL, bytes, 64, offsets, &total, &err), ERROR_TOO_LARGE);
    graph_destroy(&g);
}

static void expect_finish(struct graph *g, enum error_code code, const char *part)
{
    struct error err = ERROR_INIT;
    assert_int_equal(graph_finish(g, &err), code);
    if (!strstr(err.text, part))
        fail_msg("\"%s\" does not say \"%s\"", err.text, part);
    graph_destroy(&g);
}

static struct graph *conv_graph(int out_side, size_t weights)
{
    struct graph *g;
    struct error err = ERROR_INIT;
    struct param *weight = NULL;
    assert_int_equal(graph_create(&g, &err), OK);
    int c = 2;
    struct view x = graph_tensor(g, TENSOR_INPUT, 1, 5, 5, 1, &c),
                y = graph_tensor(g, TENSOR_OUTPUT, 1, out_side, out_side, 1, &c);
    struct node *node = graph_node(g, OP_CONV2D, y);
    assert_int_equal(param_from_values(&weight, NULL, weights, &err), OK);
    node->in[OP_X] = x;
    node->param[OP_WEIGHT] = weight;
    node->args.conv2d = (struct op_conv2d){.kernel = 3, .stride = 2, .pad = 1, .upsample = 1, .gain = 1, .scale = 1};
    return g;
}

static void test_checks(void **state)
{
    (void)state;
    struct graph *g = conv_graph(3, 36);
    struct param *weight = (struct param *)(uintptr_t)g->nodes[0].param[OP_WEIGHT];
    assert_int_equal(graph_macs(g), 3 * 3 * 2 * 2 * 9);
    expect_finish(g, OK, "");
    param_destroy(&weight);

    g = conv_graph(4, 36);
    weight = (struct param *)(uintptr_t)g->nodes[0].param[OP_WEIGHT];
    expect_finish(g, ERROR_INTERNAL, "conv2d: the output's shape");
    param_destroy(&weight);

    g = conv_graph(3, 35);
    weight = (struct param *)(uintptr_t)g->nodes[0].param[OP_WEIGHT];
    expect_finish(g, ERROR_INTERNAL, "conv2d: the weight's count");
    param_destroy(&weight);

    struct error err = ERROR_INIT;
    int huge = INT32_MAX;
    assert_int_equal(graph_create(&g, &err), OK);
    graph_tensor(g, TENSOR_TEMP, INT32_MAX, INT32_MAX, INT32_MAX, 1, &huge);
    assert_null(graph_node(g, OP_ADD, VIEW_NONE)); /* after an error nothing is added */
    expect_finish(g, ERROR_TOO_LARGE, "at most 65536 are supported");

    int one = 1;
    assert_int_equal(graph_create(&g, &err), OK);
    graph_tensor(g, TENSOR_TEMP, INT32_MAX, INT32_MAX, INT32_MAX, 1, &one);
    expect_finish(g, ERROR_TOO_LARGE, "too large");

    assert_int_equal(graph_create(&g, &err), OK);
    graph_tensor(g, TENSOR_TEMP, 0, 5, 7, 2, (const int[]){1, 1});
    expect_finish(g, ERROR_INTERNAL, "a tensor of shape 0×?×5×7 in 2 segments");

    assert_int_equal(graph_create(&g, &err), OK);
    const struct node *node = graph_node(g, OP_ADD, graph_temp(g, 1, 1, 2, 2));
    for (int i = 0; i < OP_MAX_INPUTS; i++)
        assert_int_equal(node->in[i].tensor, VIEW_NONE.tensor);
    graph_destroy(&g);
}

/* Where its values lie one after the other, and only there, they may be read as they are. */
static void test_raw(void **state)
{
    (void)state;
    static const struct {
        int64_t stride[2];
        bool raw;
    } cases[] = {{{3, 1}, true}, {{5, 1}, false}, {{1, 2}, false}, {{0, 1}, false}};
    const float values[16] = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct weights_tensor tensor = {.dtype = WEIGHTS_F32,
                                              .rank = 2,
                                              .shape = {2, 3},
                                              .stride = {cases[i].stride[0], cases[i].stride[1]},
                                              .count = 6,
                                              .data = (const uint8_t *)values};
        struct param *param;
        enum weights_dtype type;
        assert_int_equal(param_from_tensor(&param, &tensor, NULL, 0, NULL), OK);
        assert_ptr_equal(param_raw(param, &type), cases[i].raw ? tensor.data : NULL);
        param_destroy(&param);
    }
}

static int builds;

static enum error_code build_double(const void *model, const struct session_shape *shape, struct graph *g,
                                    struct error *err)
{
    (void)model;
    int c = 1;
    builds++;
    struct view x = graph_tensor(g, TENSOR_INPUT, shape->n, shape->h, shape->w, 1, &c);
    struct node *node = graph_node(g, OP_ADD, graph_tensor(g, TENSOR_OUTPUT, shape->n, shape->h, shape->w, 1, &c));
    if (node) {
        node->in[OP_X] = node->in[OP_RESIDUAL1] = x;
        node->args.add.x_scale = node->args.add.residual1_scale = 1;
    }
    return graph_finish(g, err);
}

static void test_session(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct device *device;
    struct session *session;
    assert_int_equal(device_open(&device, "reference", NULL, &err), OK);
    assert_int_equal(session_create(&session, device, PRECISION_AUTO, "double", build_double, NULL, &err), OK);
    for (int round = 0; round < 2; round++) {
        for (int side = 1; side <= 40; side++) { /* more shapes than plans are kept */
            float in[40 * 40], out[40 * 40] = {0};
            const float *inputs[] = {in};
            float *outputs[] = {out};
            for (int i = 0; i < side * side; i++)
                in[i] = (float)i;
            assert_int_equal(
                session_run(session, &(struct session_shape){1, side, side, 0}, inputs, outputs, NULL, &err), OK);
            for (int i = 0; i < side * side; i++)
                assert_true(out[i] == 2.0f * (float)i);
        }
    }
    int before = builds; /* the last shape is still planned */
    float one[40 * 40] = {0}, two[40 * 40];
    const float *inputs[] = {one};
    float *outputs[] = {two};
    assert_int_equal(session_run(session, &(struct session_shape){1, 40, 40, 0}, inputs, outputs, NULL, &err), OK);
    assert_int_equal(builds, before);
    atomic_int cancel = 1;
    assert_int_equal(session_run(session, &(struct session_shape){1, 40, 40, 0}, inputs, outputs,
                                 &(struct run_options){.cancel = &cancel}, &err),
                     ERROR_CANCELLED);
    session_destroy(&session);
    device_close(&device);
}

static void test_device_names(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct device *device;
    assert_int_equal(device_open(&device, "vulkan:99", NULL, &err), ERROR_NOT_FOUND);
    assert_non_null(strstr(err.text, "vulkan:99"));
    assert_non_null(strstr(err.text, "the devices are"));

    struct device_info list[] = {{.id = "cpu", .uuid = "", .name = "Core 10", .type = DEVICE_CPU},
                                 {.id = "vulkan:0", .uuid = "12-34", .name = "llvmpipe (LLVM 15.0)"},
                                 {.id = "vulkan:1", .uuid = "12-35", .name = "LLVM 16"}};
    const struct {
        const char *wanted;
        int index;
        size_t fits;
    } cases[] = {{"CPU", 0, 0}, {"12-34", 1, 0}, {"core 10", 0, 0}, {"llvm 16", 2, 0}, {"pipe", 1, 1},
                 {"re", 0, 1},  {"LL", -1, 2},   {"0", -1, 0},      {"10", -1, 0},     {"C", -1, 0},
                 {"", -1, 0},   {"m 16", 2, 1},  {"gpu", -1, 0},    {"auto", -1, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t fits;
        assert_int_equal(device_find(list, 3, cases[i].wanted, &fits), cases[i].index);
        assert_int_equal(fits, cases[i].fits);
    }
    list[1].type = list[2].type = DEVICE_SOFTWARE;
    assert_string_equal(device_hint(list, 3), "; restored doctor says why a GPU is missing");
    list[1].type = DEVICE_INTEGRATED;
    assert_string_equal(device_hint(list, 3), "");
}

static void test_too_many_layers(void **state)
{
    (void)state;
    struct graph *g;
    struct error err = ERROR_INIT;
    assert_int_equal(graph_create(&g, &err), OK);
    const struct view x = graph_temp(g, 1, 1, 1, 1);
    for (int i = 0; i < GRAPH_MAX_NODES; i++)
        assert_non_null(graph_node(g, OP_ADD, x));
    assert_null(graph_node(g, OP_ADD, x));
    assert_int_equal(g->error.code, ERROR_TOO_LARGE);
    assert_non_null(strstr(g->error.text, "more than 8192 layers"));
    graph_destroy(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arena_plan),      cmocka_unit_test(test_arena_overflow),
        cmocka_unit_test(test_checks),          cmocka_unit_test(test_raw),
        cmocka_unit_test(test_session),         cmocka_unit_test(test_device_names),
        cmocka_unit_test(test_too_many_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
