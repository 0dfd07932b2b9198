/* The Vulkan backend beside its operators: listing, limits, cancelling, memory, splitting into submits, and the noise's
 * known answers. Runs on every usable Vulkan device, under the validation layer. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/cpu/cpu_ref.h"
#include "runtime/vulkan/vk_device.h"
#include "runtime/vulkan/vk_pack.h"
#include "runtime/vulkan/vk_plan.h"
#include "tests/common/net.h"

static void test_list(void **state)
{
    struct device_info *list = NULL;
    size_t count = 0;
    struct error err = ERROR_INIT;
    (void)state;
    assert_int_equal(device_list(&list, &count, &err), OK);
    assert_true(count > 0);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(list[i].backend, "vulkan") != 0)
            continue;
        assert_true(list[i].name[0] && list[i].driver[0] && list[i].api_version[0]);
        assert_int_equal(strlen(list[i].uuid), 36);
        assert_true(list[i].usable || list[i].reason[0]);
        assert_true(list[i].memory_total > 0 && list[i].max_buffer_bytes >= 1u << 27);
        assert_true(list[i].precision_reason[0]);
        if (list[i].type == DEVICE_SOFTWARE) {
            assert_int_equal(list[i].preferred, PRECISION_FP32);
            assert_non_null(strstr(list[i].reason, "slow"));
        }
    }
    free(list);
}

/* All share one instance, until it is abandoned; it ends with its last holder, or is kept for the next. */
static void test_instance(void **state)
{
    struct vk_instance *a, *b, *c;
    (void)state;
    assert_int_equal(vk_instance_hold(&a), VK_SUCCESS);
    assert_int_equal(vk_instance_hold(&b), VK_SUCCESS);
    assert_ptr_equal(a, b);
    vk_instance_abandon(a);
    assert_int_equal(vk_instance_hold(&c), VK_SUCCESS);
    assert_ptr_not_equal(c, a);
    assert_true(vk_instance_handle(c) != vk_instance_handle(a));
    vk_instance_release(&a);
    assert_null(a);
    vk_instance_abandon(b); /* once more, and not the one that others get now */
    vk_instance_release(&b);
    assert_int_equal(vk_instance_hold(&b), VK_SUCCESS);
    assert_ptr_equal(b, c);
    vk_instance_keep(c);
    const VkInstance handle = vk_instance_handle(c);
    vk_instance_release(&b);
    vk_instance_release(&c);
    vk_instance_release(&c);
    struct device *device = net_device(NULL);
    assert_int_equal(vk_instance_hold(&a), VK_SUCCESS);
    assert_true(vk_instance_handle(a) == handle);
    vk_instance_abandon(a);
    vk_instance_release(&a);
    device_close(&device); /* its last holder */
}

/* A graph that adds tensors of {1, 4, h, 4096} up: all of them are alive at once. */
static enum error_code plan_wide(struct device *device, int inputs, int h, struct error *err)
{
    struct graph *graph;
    struct plan *plan = NULL;
    assert_int_equal(graph_create(&graph, err), OK);
    struct view sum = graph_tensor(graph, TENSOR_INPUT, 1, h, 4096, 1, (int[]){4});
    for (int i = 1; i < inputs; i++) {
        struct view y = i + 1 < inputs ? graph_temp(graph, 1, 4, h, 4096)
                                       : graph_tensor(graph, TENSOR_OUTPUT, 1, h, 4096, 1, (int[]){4});
        struct node *node = graph_node(graph, OP_ADD, y);
        assert_non_null(node);
        node->in[OP_X] = sum;
        node->in[OP_RESIDUAL1] = graph_tensor(graph, TENSOR_INPUT, 1, h, 4096, 1, (int[]){4});
        node->args.add = (struct op_add){.x_scale = 1, .residual1_scale = 1};
        sum = y;
    }
    enum error_code code = graph_finish(graph, err);
    if (code == OK)
        code = plan_create(&plan, device, graph, PRECISION_FP32, "wide", err);
    plan_destroy(&plan);
    graph_destroy(&graph);
    return code;
}

static void test_too_large(void **state)
{
    struct device *device = net_device(NULL);
    struct error err = ERROR_INIT;
    const struct device_info info = net_device_info(device);
    const uint64_t row = 4096 * 16;
    (void)state;
    assert_int_equal(plan_wide(device, 2, (int)(info.max_buffer_bytes / row) + 1, &err), ERROR_TOO_LARGE);
    assert_non_null(strstr(err.text, "larger than"));
    error_clear(&err);
    /* Each tensor may be, but not all together. */
    const uint64_t each = info.max_buffer_bytes / row * row;
    const int inputs = (int)(info.memory_total / each) + 2;
    if (inputs <= 64)
        assert_int_equal(plan_wide(device, inputs, (int)(each / row), &err), ERROR_TOO_LARGE);
    assert_int_equal(net_device_info(device).memory_used, 0);
    device_close(&device);
}

static void test_memory_is_given_back(void **state)
{
    struct device *device = net_device(NULL);
    struct net net;
    (void)state;
    net_create(&net, 12, 10, 10, 3);
    for (int i = 0; i < 40; i++) {
        struct plan *plan = net_plan(&net, device);
        if (i % 10 == 0)
            assert_int_equal(net_run(&net, plan, net.output, NULL), OK);
        assert_true(net_device_info(device).memory_used > plan_bytes(plan));
        plan_destroy(&plan);
        if (i % 3 == 0) {
            device_forget_params(device, (const struct param *const *)&net.param, 1);
            assert_int_equal(net_device_info(device).memory_used, 0);
        }
    }
    device_forget_params(device, (const struct param *const *)&net.param, 1);
    assert_int_equal(net_device_info(device).memory_used, 0);
    assert_true(net_device_info(device).memory_peak > 0);
    net_destroy(&net);
    device_close(&device);
}

/* One convolution that is more than one submit on a software device: it is divided, and comes out whole. */
static void test_long_convolution_is_split(void **state)
{
    struct device *device = net_device(NULL);
    struct net net;
    (void)state;
    net_create(&net, 64, 173, 190, 1);
    net_expect(&net);
    struct plan *plan = net_plan(&net, device);
    if (net_device_info(device).type == DEVICE_SOFTWARE)
        assert_true(vk_plan_submits(plan) >= 2);
    assert_int_equal(net_run(&net, plan, net.output, NULL), OK);
    net_check(&net);
    plan_destroy(&plan);
    net_destroy(&net);
    device_close(&device);
}

static atomic_int cancel_flag;

static void *cancel_soon(void *unused)
{
    usleep(20000);
    atomic_store(&cancel_flag, 1);
    return unused;
}

static void test_cancel(void **state)
{
    struct device *device = net_device(NULL);
    const struct run_options options = {.cancel = &cancel_flag};
    struct net net, small;
    pthread_t thread;
    (void)state;
    net_create(&net, 64, 128, 128, 40); /* 24 GMAC */
    net_create(&small, 4, 6, 6, 1);
    net_expect(&small);
    struct plan *plan = net_plan(&net, device), *after = net_plan(&small, device);
    atomic_store(&cancel_flag, 1);
    assert_int_equal(net_run(&net, plan, net.output, &options), ERROR_CANCELLED);
    if (net_device_info(device).type == DEVICE_SOFTWARE) { /* others may be done before the thread wakes */
        atomic_store(&cancel_flag, 0);
        assert_int_equal(pthread_create(&thread, NULL, cancel_soon, NULL), 0);
        assert_int_equal(net_run(&net, plan, net.output, &options), ERROR_CANCELLED);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    atomic_uint progress = 0;
    const struct run_options watched = {.progress = &progress};
    assert_int_equal(net_run(&small, after, small.output, &watched), OK); /* the device goes on */
    assert_true(atomic_load(&progress) >= 2); /* what goes in and the rest: each submit tells */
    net_check(&small);
    plan_destroy(&plan);
    plan_destroy(&after);
    net_destroy(&net);
    net_destroy(&small);
    device_close(&device);
}

/* Random123's known answers for philox4x32-10, and the same through the device's noise. */
static void test_noise_known_answers(void **state)
{
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {{{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
                 {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
                  {0xffffffff, 0xffffffff},
                  {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
                 {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                  {0xa4093822, 0x299f31d0},
                  {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        uint32_t out[4];
        cpu_ref_philox(known[i].counter, known[i].key, out);
        assert_memory_equal(out, known[i].out, sizeof out);
    }
    struct device *device = net_device(NULL);
    struct graph *graph;
    struct plan *plan = NULL;
    struct error err = ERROR_INIT;
    float values[4], *out = values;
    const struct run_options options = {.seed = 0, .first_image = 0};
    assert_int_equal(graph_create(&graph, &err), OK);
    struct view y = graph_tensor(graph, TENSOR_OUTPUT, 1, 2, 2, 1, (int[]){1});
    assert_non_null(graph_node(graph, OP_NOISE, y));
    assert_int_equal(graph_finish(graph, &err), OK);
    assert_int_equal(plan_create(&plan, device, graph, PRECISION_FP32, "noise", &err), OK);
    assert_int_equal(plan_run(plan, NULL, &out, &options, &err), OK);
    for (int i = 0; i < 4; i++) {
        const uint32_t *u = known[0].out + (i & 2);
        const double r = sqrt(-2 * log((u[0] + 1.0) / 4294967296.0)), t = 2 * M_PI * u[1] / 4294967296.0;
        assert_true(fabs(values[i] - r * (i & 1 ? sin(t) : cos(t))) < 1e-6);
    }
    plan_destroy(&plan);
    graph_destroy(&graph);
    device_close(&device);
}

/* An error while a plan is made leaves nothing behind. */
static void test_unfinished_plan(void **state)
{
    struct device *device = net_device(NULL);
    struct net net;
    struct plan *plan = NULL;
    struct error err = ERROR_INIT;
    (void)state;
    net_create(&net, 8, 6, 6, 2);
    net.graph->nodes[1].kind = OP_KIND_COUNT;
    assert_int_equal(plan_create(&plan, device, net.graph, PRECISION_FP32, "net", &err), ERROR_UNSUPPORTED);
    assert_null(plan);
    device_forget_params(device, (const struct param *const *)&net.param, 1);
    assert_int_equal(net_device_info(device).memory_used, 0);
    net_destroy(&net);
    device_close(&device);
}

static void test_layouts(void **state)
{
    struct graph *graph;
    struct error err = ERROR_INIT;
    struct vk_layout a, b;
    uint32_t lanes[12];
    static const uint32_t wanted[12] = {
        0, 1, 2, 3, 4, 5, VK_PACK_NO_CHANNEL, VK_PACK_NO_CHANNEL, 6, 7, 8, VK_PACK_NO_CHANNEL};
    (void)state;
    assert_int_equal(graph_create(&graph, &err), OK);
    struct view view = graph_tensor(graph, TENSOR_TEMP, 1, 2, 2, 3, (int[]){4, 2, 3});
    vk_pack_layout(graph, view, false, &a);
    assert_int_equal(a.channels, 9);
    assert_int_equal(a.blocks, 3);
    vk_pack_lanes(&a, lanes);
    assert_memory_equal(lanes, wanted, sizeof wanted);
    vk_pack_layout_dense(9, false, &b);
    assert_false(vk_pack_layout_same(&a, &b));
    vk_pack_layout(graph, graph_segments(view, 0, 2), false, &a);
    vk_pack_layout_dense(6, false, &b);
    assert_true(vk_pack_layout_same(&a, &b)); /* 4 and 2 lie as 6 do */

    /* Groups as large as the smallest segment half fills: 2 quads for 8 channels, which 20 then fill up to 24 lanes. */
    view = graph_tensor(graph, TENSOR_TEMP, 1, 2, 2, 3, (int[]){20, 8, 64});
    vk_pack_layout(graph, view, true, &a);
    assert_int_equal(a.group_log, 1);
    assert_int_equal(a.blocks, 6 + 2 + 16);
    vk_pack_layout(graph, graph_segments(view, 1, 2), true, &a);
    vk_pack_layout_dense(72, true, &b); /* 5 groups of 4 quads, padded to 80 lanes */
    assert_int_equal(b.group_log, 2);
    assert_int_equal(b.blocks, 20);
    assert_false(vk_pack_layout_same(&a, &b));
    vk_pack_layout(graph, graph_segments(view, 2, 1), true, &a);
    vk_pack_layout_dense(64, true, &b);
    assert_true(vk_pack_layout_same(&a, &b)); /* grouped otherwise, but the same lanes */
    graph_destroy(&graph);
}

/* Each limit that is too low is named, with what it is and what is needed. */
static void test_limits(void **state)
{
    const VkPhysicalDeviceLimits enough = {.maxPerStageDescriptorStorageBuffers = 16,
                                           .maxDescriptorSetStorageBuffers = 16,
                                           .maxPerStageResources = 128,
                                           .maxStorageBufferRange = 1u << 27,
                                           .maxComputeSharedMemorySize = 16384,
                                           .maxComputeWorkGroupInvocations = 128,
                                           .maxComputeWorkGroupSize = {128, 128, 64},
                                           .maxPushConstantsSize = 128};
    VkPhysicalDeviceLimits limits = enough;
    char text[480];
    (void)state;
    vk_device_lacking(&limits, text, sizeof text);
    assert_string_equal(text, "");
    limits.maxPushConstantsSize = 127;
    vk_device_lacking(&limits, text, sizeof text);
    assert_string_equal(text, "maxPushConstantsSize 127 (128 needed)");
    limits = enough;
    limits.maxComputeWorkGroupSize[0] = 64;
    limits.maxStorageBufferRange--;
    vk_device_lacking(&limits, text, sizeof text);
    assert_string_equal(text, "maxStorageBufferRange 134217727 (134217728 needed); "
                              "maxComputeWorkGroupSize 64 (128 needed)");
    limits = (VkPhysicalDeviceLimits){0};
    vk_device_lacking(&limits, text, sizeof text);
    assert_non_null(strstr(text, "maxPushConstantsSize 0 (128 needed)")); /* all fit */
    vk_device_lacking(&limits, text, 30);
    assert_int_equal(strlen(text), 29);
}

/* The device's own clock: a run takes some time, its nodes one by one about as much, and the results stay. */
static void test_times(void **state)
{
    (void)state;
    enum { LAYERS = 3 };
    struct device *device = net_device(NULL);
    struct error err = ERROR_INIT;
    struct net net;
    double node_ms[LAYERS] = {-1, -1, -1};
    net_create(&net, 16, 40, 60, LAYERS);
    net_expect(&net);
    struct plan *plan = net_plan(&net, device);
    assert_int_equal(net_run(&net, plan, net.output, NULL), OK);
    double ms = plan_ms(plan, node_ms);
    if (ms >= 0) {
        assert_true(ms > 0 && ms < 60000);
        for (int i = 0; i < LAYERS; i++)
            assert_true(node_ms[i] == 0); /* nobody asked */
        for (int run = 0; run < 2; run++) {
            assert_int_equal(plan_profile(plan, &err), OK);
            memset(net.output, 0, net.values * sizeof(float));
            assert_int_equal(net_run(&net, plan, net.output, NULL), OK);
            net_check(&net);
            ms = plan_ms(plan, node_ms);
            double sum = 0;
            for (int i = 0; i < LAYERS; i++) {
                assert_true(node_ms[i] > 0);
                sum += node_ms[i];
            }
            assert_true(fabs(sum - ms) < 1e-6 * ms);
        }
    } else {
        print_message("skipped: the device has no clock\n");
    }
    plan_destroy(&plan);
    device_close(&device);
    net_destroy(&net);
}

static void test_validation_is_silent(void **state)
{
    (void)state;
    assert_int_equal(vk_validation_count(), 0);
}

static int run_all(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_instance),
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_memory_is_given_back),
        cmocka_unit_test(test_long_convolution_is_split),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_noise_known_answers),
        cmocka_unit_test(test_unfinished_plan),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_validation_is_silent),
    };
    return cmocka_run_group_tests_name("vulkan", tests, NULL, NULL);
}

int main(void)
{
    return net_each_device(run_all);
}
