/* Runs on pictures of which some pixels have values of their own, and whose results are wanted in some places alone: on
 * every device, against formulas. On Vulkan under the validation layer. */
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

enum { N = 3, W = 300, H = 230, PIXELS = W * H, MARGIN = 4 };

static struct device *device;
static uint8_t picture[N][H][(W + MARGIN) * 3];
static float own[N][3 * PIXELS], out[N][3 * PIXELS];
static uint32_t places[N][PIXELS], wanted[N][PIXELS];

/* Channel c of the result is channel c of the input, and a quarter of the fourth. */
static struct plan *make_plan(struct graph **graph, struct param **weight, enum precision precision)
{
    static const float values[3][4] = {{1, 0, 0, 0.25f}, {0, 1, 0, 0.25f}, {0, 0, 1, 0.25f}};
    const int four = 4, rgb = 3;
    struct error err = ERROR_INIT;
    struct plan *plan = NULL;
    assert_int_equal(graph_create(graph, &err), OK);
    assert_int_equal(param_from_values(weight, values[0], 12, &err), OK);
    struct node *node = graph_node(*graph, OP_CONV2D, graph_tensor(*graph, TENSOR_OUTPUT, N, H, W, 1, &rgb));
    node->in[OP_X] = graph_tensor(*graph, TENSOR_INPUT, N, H, W, 1, &four);
    node->param[OP_WEIGHT] = *weight;
    node->args.conv2d = (struct op_conv2d){.kernel = 1, .stride = 1, .upsample = 1, .gain = 1, .scale = 1};
    if (graph_finish(*graph, &err) || plan_create(&plan, device, *graph, precision, "points", &err))
        fail_msg("%s", err.text);
    return plan;
}

/* Image n has points where its pixels' number is a multiple of 3 + n, but the last none; wanted are all whose number is
 * one of 2 + n. */
static void run(enum precision precision)
{
    const struct raster_range range = {.unit = 127.5f, .mean = {1, 1, 1}, .deviation = 1, .low = -1, .high = 1};
    const double allowed = precision == PRECISION_FP16 ? 2e-3 : 1e-6;
    struct raster_source sources[N];
    struct raster_points points[N], results[N];
    struct error err = ERROR_INIT;
    struct run_result verdict;
    struct graph *graph;
    struct param *weight;
    struct plan *plan = make_plan(&graph, &weight, precision);
    for (int n = 0; n < N; n++) {
        sources[n] = (struct raster_source){.form = RASTER_U8, .data = picture[n], .stride = sizeof picture[n][0]};
        points[n] = (struct raster_points){.places = places[n], .planes = own[n]};
        results[n] = (struct raster_points){.places = wanted[n], .values = out[n]};
        for (int i = 0; i < PIXELS; i++) {
            if (n < N - 1 && i % (3 + n) == 0)
                places[n][points[n].count++] = (uint32_t)i;
            if (i % (2 + n) == 0)
                wanted[n][results[n].count++] = (uint32_t)i;
        }
        for (int i = 0; i < 3 * PIXELS; i++) {
            own[n][i] = sinf((float)(i % 1000 + n));
            out[n][i] = 99;
        }
        for (int y = 0; y < H; y++)
            for (int x = 0; x < (W + MARGIN) * 3; x++)
                picture[n][y][x] = (uint8_t)(7 * x + 13 * y + n);
    }
    const struct run_input input = {.images = sources, .points = points};
    const struct run_output output = {.points = results};
    const struct run_io io = {.inputs = &input, .outputs = &output, .range = &range};
    for (int again = 0; again < 2; again++)
        if (plan_submit(plan, &io, &err))
            fail_msg("%s", err.text);
    for (int again = 0; again < 2; again++)
        if (plan_wait(plan, &verdict, &err) || !verdict.finite || verdict.flat)
            fail_msg("%s", err.text);
    for (int n = 0; n < N; n++) {
        for (int i = 0; i < results[n].count; i++)
            for (int c = 0; c < 3; c++) {
                const int at = (int)wanted[n][i];
                const bool point = n < N - 1 && at % (3 + n) == 0;
                const double base =
                    point ? own[n][c * PIXELS + at] + 0.25 : picture[n][at / W][3 * (at % W) + c] / 127.5 - 1;
                if (!(fabs(out[n][3 * i + c] - base) <= allowed))
                    fail_msg("image %d, place %d, channel %d: %g instead of %g", n, at, c, out[n][3 * i + c], base);
            }
        assert_true(out[n][3 * results[n].count] == 99);
    }
    const struct run_output both = {.points = results};
    const struct run_input three = {.images = sources}; /* without points the tensor has a channel too many */
    assert_int_equal(plan_submit(plan, &(struct run_io){.inputs = &three, .outputs = &both, .range = &range}, &err),
                     ERROR_INTERNAL);
    error_clear(&err);
    plan_destroy(&plan);
    device_forget_params(device, (const struct param *const *)&weight, 1);
    graph_destroy(&graph);
    param_destroy(&weight);
}

/* Its rooms are kept, the two larger ones; while somebody has one, it is neither given back nor anybody else's. */
static void check_room(void)
{
    size_t bytes = 1 << 20, less = 1 << 19, more = 3 << 20, most = 5 << 20;
    char *room = device_take_room(device, &bytes), *other, *third;
    assert_non_null(room);
    device_give_back(device, 0);
    const uint64_t before = device_staged(device);
    memset(room, 1, bytes);
    device_keep_room(device, room, bytes);
    assert_ptr_equal(device_take_room(device, &less), room);
    assert_int_equal(less, 1 << 20);
    assert_non_null(other = device_take_room(device, &more));
    assert_ptr_not_equal(other, room);
    memset(other, 1, more);
    device_keep_room(device, room, less);
    device_keep_room(device, other, more);
    device_give_back(device, 4 << 20);
    assert_int_equal(device_staged(device), before + (1 << 20) + (3 << 20));
    bytes = less = 1;
    assert_ptr_equal(device_take_room(device, &bytes), room);
    assert_ptr_equal(device_take_room(device, &less), other);
    assert_int_equal(bytes + less, (1 << 20) + (3 << 20));
    assert_non_null(third = device_take_room(device, &most));
    device_keep_room(device, room, bytes);
    device_keep_room(device, third, most);
    device_keep_room(device, other, less); /* in place of the smallest */
    assert_int_equal(device_staged(device), before + (3 << 20) + (5 << 20));
    device_give_back(device, 0);
    bytes = 1;
    assert_non_null(room = device_take_room(device, &bytes));
    assert_int_equal(bytes, 1);
    device_keep_room(device, room, bytes);
}

static void run_on(const char *id)
{
    struct error err = ERROR_INIT;
    struct device_info info;
    if (device_open(&device, id, NULL, &err))
        fail_msg("%s", err.text);
    device_info(device, &info);
    run(PRECISION_FP32);
    if (info.fp16)
        run(PRECISION_FP16);
    check_room();
    device_close(&device);
    print_message("%s: %s\n", info.name, info.fp16 ? "fp32, fp16" : "fp32");
}

static void test_devices(void **state)
{
    (void)state;
    struct device_info *list = NULL;
    size_t count = 0;
    struct error err = ERROR_INIT;
    run_on("reference");
    assert_int_equal(device_list(&list, &count, &err), OK);
    for (size_t i = 0; i < count; i++)
        if (list[i].usable)
            run_on(list[i].id);
    setenv("RESTORED_VULKAN_DIRECT", "0", 1);
    for (size_t i = 0; i < count; i++)
        if (list[i].usable && !strcmp(list[i].backend, "vulkan"))
            run_on(list[i].id);
    unsetenv("RESTORED_VULKAN_DIRECT");
    free(list);
    assert_int_equal(vk_validation_count(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_devices)};
    setenv("RESTORED_VULKAN_VALIDATION", "1", 1);
    return cmocka_run_group_tests_name("points", tests, NULL, NULL);
}
