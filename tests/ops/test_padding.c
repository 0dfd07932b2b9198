/* Where channels do not fill their group, what is behind the last one is written as well, with zeros: the next layer
 * reads it, and its zero weights do not help against an infinity that lay there before. On every device; on Vulkan with
 * groups as for matrices, and under the validation layer. */
#include <float.h>
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

enum { SIDE = 4, ALL = 32, SOME = 20, PIXELS = SIDE * SIDE };

/* -infinity in memory that is free afterwards; zeros, nearly, that it opens no gate for; the operator of some of these;
 * and a sum of that. */
static struct graph *graph_of(enum op_kind kind, const struct param *ones)
{
    struct error err = ERROR_INIT;
    struct graph *g;
    assert_int_equal(graph_create(&g, &err), OK);
    /* in this order, in which arena_plan puts y where `low` was */
    const struct view low = graph_temp(g, 1, ALL, SIDE, SIDE),
                      x = graph_tensor(g, TENSOR_INPUT, 1, SIDE, SIDE, 1, (const int[]){ALL}),
                      zeros = graph_tensor(g, TENSOR_TEMP, 1, SIDE, SIDE, 2, (const int[]){SOME, ALL - SOME}),
                      y = graph_temp(g, 1, SOME, SIDE, SIDE),
                      out = graph_tensor(g, TENSOR_OUTPUT, 1, SIDE, SIDE, 1, (const int[]){1});
    struct node *node = graph_node(g, OP_ADD, low);
    assert_non_null(node);
    node->in[OP_X] = node->in[OP_RESIDUAL1] = x;
    node->args.add = (struct op_add){.x_scale = -FLT_MAX, .residual1_scale = -FLT_MAX};
    node = graph_node(g, OP_GATE, zeros);
    assert_non_null(node);
    node->in[OP_X] = x;
    node->in[OP_RESIDUAL2] = low;
    node = graph_node(g, kind, y);
    assert_non_null(node);
    node->in[OP_X] = graph_segments(zeros, 0, 1);
    if (kind == OP_ATTENTION) {
        node->in[OP_RESIDUAL1] = node->in[OP_RESIDUAL2] = node->in[OP_X];
        node->args.attention = (struct op_attention){1, 1};
    } else {
        node->args.norm = (struct op_norm){.groups = kind == OP_GROUP_NORM ? SOME / 4 : 1, .epsilon = 1e-5f};
    }
    node = graph_node(g, OP_CONV2D, out);
    assert_non_null(node);
    node->in[OP_X] = y;
    node->param[OP_WEIGHT] = ones;
    node->args.conv2d = (struct op_conv2d){.kernel = 1, .stride = 1, .upsample = 1, .gain = 1, .scale = 1};
    if (graph_finish(g, &err))
        fail_msg("%s", err.text);
    return g;
}

static void check(struct device *device, enum op_kind kind, const struct param *ones)
{
    struct error err = ERROR_INIT;
    struct graph *g = graph_of(kind, ones);
    struct plan *plan;
    float in[ALL * PIXELS], out[PIXELS], *outputs[] = {out};
    const float *const inputs[] = {in};
    for (int i = 0; i < ALL * PIXELS; i++)
        in[i] = 1;
    if (plan_create(&plan, device, g, PRECISION_FP32, "padding", &err) || plan_run(plan, inputs, outputs, NULL, &err))
        fail_msg("%s", err.text);
    plan_destroy(&plan);
    for (int i = 0; i < PIXELS; i++)
        if (!(fabsf(out[i]) < 1e-6f)) /* a NaN too */
            fail_msg("%s: %g", op_name(kind), (double)out[i]);
    graph_destroy(&g);
}

static void padding_is_written(void **state)
{
    (void)state;
    static const enum op_kind kinds[] = {OP_GROUP_NORM, OP_LAYER_NORM, OP_ATTENTION};
    struct error err = ERROR_INIT;
    struct device_info *list;
    struct param *ones;
    float values[SOME];
    size_t count;
    for (int i = 0; i < SOME; i++)
        values[i] = 1;
    assert_int_equal(param_from_values(&ones, values, SOME, &err), OK);
    assert_int_equal(device_list(&list, &count, &err), OK);
    for (size_t i = 0; i < count; i++) {
        struct device *device;
        if (!list[i].usable)
            continue;
        if (device_open(&device, list[i].id, NULL, &err))
            fail_msg("%s", err.text);
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            check(device, kinds[k], ones);
        device_forget_params(device, (const struct param *const *)&ones, 1);
        device_close(&device);
    }
    free(list);
    param_destroy(&ones);
    assert_int_equal(vk_validation_count(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(padding_is_written)};
    setenv("RESTORED_VULKAN_VALIDATION", "1", 1);
    setenv("RESTORED_VULKAN_GROUPED", "1", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
