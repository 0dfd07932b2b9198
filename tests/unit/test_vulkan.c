/* The Vulkan backend beside its operators: listing, the pipeline cache on disk, limits, cancelling, memory, splitting
 * into submits, and the noise's known answers. Runs on every usable Vulkan device, under the validation layer. */
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

#include "runtime/backend/backend.h"
#include "runtime/base/file.h"
#include "runtime/cpu/cpu_ref.h"
#include "runtime/vulkan/vk_device.h"
#include "runtime/vulkan/vk_pack.h"
#include "runtime/vulkan/vk_pipeline.h"
#include "runtime/vulkan/vk_plan.h"

static char device_id[32];

static struct device *open_device(const char *cache_dir)
{
    struct device *device = NULL;
    struct error err = ERROR_INIT;
    const enum error_code code = device_open(&device, device_id, cache_dir, &err);
    if (code != OK)
        print_error("%s\n", err.text);
    assert_int_equal(code, OK);
    return device;
}

static struct device_info info_of(const struct device *device)
{
    struct device_info info;
    device_info(device, &info);
    return info;
}

/* A chain of 3x3 convolutions with the same small weights: net.param is theirs. */
struct net {
    struct graph *graph;
    struct param *param;
    size_t values; /* of input and output */
    float *input, *output, *expected;
};

static void net_create(struct net *net, int channels, int h, int w, int layers)
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

static void net_destroy(struct net *net)
{
    graph_destroy(&net->graph);
    param_destroy(&net->param);
    free(net->input);
    free(net->output);
    free(net->expected);
}

static enum error_code net_run(struct net *net, struct plan *plan, float *out, const struct run_options *options)
{
    struct error err = ERROR_INIT;
    const float *input = net->input;
    return plan_run(plan, &input, &out, options, &err);
}

static struct plan *net_plan(struct net *net, struct device *device)
{
    struct plan *plan = NULL;
    struct error err = ERROR_INIT;
    const enum error_code code = plan_create(&plan, device, net->graph, PRECISION_FP32, "net", &err);
    if (code != OK)
        print_error("%s\n", err.text);
    assert_int_equal(code, OK);
    return plan;
}

/* What the oracle makes of the net, to net->expected. */
static void net_expect(struct net *net)
{
    struct device *reference = NULL;
    struct error err = ERROR_INIT;
    assert_int_equal(device_open(&reference, "reference", NULL, &err), OK);
    struct plan *plan = net_plan(net, reference);
    assert_int_equal(net_run(net, plan, net->expected, NULL), OK);
    plan_destroy(&plan);
    device_close(&reference);
}

static void net_check(const struct net *net)
{
    for (size_t i = 0; i < net->values; i++)
        if (!(fabsf(net->output[i] - net->expected[i]) <= 1e-5f))
            fail_msg("value %zu is %g and should be %g", i, (double)net->output[i], (double)net->expected[i]);
}

/* --- tests ---------------------------------------------------------------------------------------------------------
 */

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
    struct device *device = open_device(NULL);
    assert_int_equal(vk_instance_hold(&a), VK_SUCCESS);
    assert_true(vk_instance_handle(a) == handle);
    vk_instance_abandon(a);
    vk_instance_release(&a);
    device_close(&device); /* its last holder */
}

/* The one file in the folder, mapped. */
static struct file cache_file(const char *folder, char *path, size_t size)
{
    struct file file = {0};
    struct error err = ERROR_INIT;
    struct device *device = open_device(NULL);
    const struct vk_traits *traits = &((struct vk_device *)device)->traits;
    snprintf(path, size, "%s/vulkan-%s-%08x.cache", folder, traits->info.uuid, traits->driver_version);
    device_close(&device);
    assert_int_equal(file_map(&file, path, &err), OK);
    return file;
}

/* FNV-1a of what follows the head, by words of 8 bytes, into the head. */
static void write_sum(uint8_t *bytes, size_t size)
{
    uint64_t sum = 0xcbf29ce484222325u;
    for (size_t i = 24; i < size; i += 8) {
        uint64_t word = 0;
        memcpy(&word, bytes + i, size - i < 8 ? size - i : 8);
        sum = (sum ^ word) * 0x100000001b3u;
    }
    memcpy(bytes + 16, &sum, sizeof sum);
}

static void run_with_cache(struct net *net, const char *folder)
{
    struct device *device = open_device(folder);
    struct plan *plan = net_plan(net, device);
    memset(net->output, 0, net->values * sizeof(float));
    assert_int_equal(net_run(net, plan, net->output, NULL), OK);
    net_check(net);
    plan_destroy(&plan);
    device_close(&device);
}

static void test_pipeline_cache(void **state)
{
    char base[] = "/tmp/restored-cache-XXXXXX", folder[64], path[256];
    struct error err = ERROR_INIT;
    struct net net;
    (void)state;
    assert_non_null(mkdtemp(base));
    snprintf(folder, sizeof folder, "%s/new/folder", base);
    net_create(&net, 8, 9, 11, 2);
    net_expect(&net);
    run_with_cache(&net, folder);
    struct file file = cache_file(folder, path, sizeof path);
    assert_true(file.size >= 24 + 32); /* our head and Vulkan's; some drivers keep nothing more */
    uint8_t *good = malloc(file.size), *bad = malloc(file.size);
    assert_true(good && bad);
    memcpy(good, file.data, file.size);
    const size_t size = file.size;
    file_unmap(&file);
    run_with_cache(&net, folder); /* from the good file */

    /* A flipped bit in the body, in our head and in Vulkan's; a part of the file; nothing; the cache of another device,
     * with sums that are right. */
    const struct {
        size_t flip, size;
        bool summed;
    } damages[] = {{size - 1, size, false}, {0, size, false},  {9, size, false}, {30, size, false},
                   {size, size - 7, false}, {size, 20, false}, {size, 0, false}, {24 + 20, size, true}};
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        memcpy(bad, good, size);
        if (damages[i].flip < size)
            bad[damages[i].flip] ^= 0x10;
        if (damages[i].summed)
            write_sum(bad, size);
        assert_int_equal(file_write(path, bad, damages[i].size, &err), OK);
        run_with_cache(&net, folder);
        file = cache_file(folder, path, sizeof path);
        assert_true(file.size >= 24 + 32);
        assert_memory_equal(file.data, good, 8);
        assert_true(file.size != damages[i].size || memcmp(file.data, bad, file.size) != 0);
        file_unmap(&file);
    }
    free(good);
    free(bad);
    net_destroy(&net);
    /* A folder that cannot be made is no reason to fail. */
    net_create(&net, 4, 5, 5, 1);
    net_expect(&net);
    char under_file[300];
    snprintf(under_file, sizeof under_file, "%s/no", path);
    run_with_cache(&net, under_file);
    net_destroy(&net);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
    *strrchr(folder, '/') = 0;
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(rmdir(base), 0);
}

static void test_new_size_compiles_nothing(void **state)
{
    struct device *device = open_device(NULL);
    struct net first, second;
    (void)state;
    net_create(&first, 8, 40, 52, 2);
    net_create(&second, 8, 47, 61, 2);
    param_destroy(&second.param);
    for (int i = 0; i < second.graph->node_count; i++)
        second.graph->nodes[i].param[OP_WEIGHT] = first.param;
    struct plan *a = net_plan(&first, device);
    const uint32_t pipelines = vk_pipeline_count((struct vk_device *)device);
    const uint64_t used = info_of(device).memory_used;
    struct plan *b = net_plan(&second, device);
    assert_int_equal(vk_pipeline_count((struct vk_device *)device), pipelines);
    assert_int_equal(info_of(device).memory_used - used, plan_bytes(b)); /* the weights are shared */
    plan_destroy(&a);
    plan_destroy(&b);
    device_close(&device);
    net_destroy(&first);
    net_destroy(&second);
}

/* What is prepared is there when the plan is made, and takes no memory but the weights'. */
static void test_prepare(void **state)
{
    struct device *base = open_device(NULL);
    struct vk_device *device = (struct vk_device *)base;
    struct error err = ERROR_INIT;
    struct net net;
    bool whole = false;
    (void)state;
    net_create(&net, 8, 40, 52, 2);
    net_expect(&net);
    const uint32_t before = vk_pipeline_count(device);
    device->prepares = false;
    assert_int_equal(plan_prepare(base, net.graph, PRECISION_FP32, "net", true, &whole, &err), OK);
    assert_true(whole);
    assert_int_equal(vk_pipeline_count(device), before);
    assert_int_equal(info_of(base).memory_used, 0);
    device->prepares = true;
    assert_int_equal(plan_prepare(base, net.graph, PRECISION_FP32, "net", false, &whole, &err), OK);
    assert_true(whole); /* there is nothing to measure in fp32 */
    const uint32_t pipelines = vk_pipeline_count(device);
    const uint64_t weights = info_of(base).memory_used;
    assert_true(pipelines >= before + 4); /* the conversion of the weights, input, convolution, output */
    assert_true(weights > 0);
    struct plan *plan = net_plan(&net, base);
    assert_int_equal(vk_pipeline_count(device), pipelines);
    assert_int_equal(info_of(base).memory_used, weights + plan_bytes(plan));
    assert_int_equal(net_run(&net, plan, net.output, NULL), OK);
    net_check(&net);
    plan_destroy(&plan);
    net.graph->nodes[1].kind = OP_KIND_COUNT;
    assert_int_equal(plan_prepare(base, net.graph, PRECISION_FP32, "net", true, &whole, &err), ERROR_UNSUPPORTED);
    assert_int_equal(info_of(base).memory_used, weights);
    net_destroy(&net);
    device_close(&base);
}

/* Pipelines are made together, each once; trials beside them, which go, and do not get into the file. */
static void test_pipelines(void **state)
{
    struct device *base = open_device(NULL);
    struct vk_device *device = (struct vk_device *)base;
    struct error err = ERROR_INIT;
    struct vk_pipeline_key keys[12];
    VkPipeline pipeline;
    (void)state;
    for (uint32_t i = 0; i < 12; i++) /* two of each */
        keys[i] = (struct vk_pipeline_key){.shader = "max_pool", .spec_count = 3, .spec = {2 + i / 2, 1, 0}};
    const uint32_t before = vk_pipeline_count(device);
    assert_int_equal(vk_pipeline_make(device, keys, 6, &err), OK);
    assert_int_equal(vk_pipeline_count(device), before + 3);
    assert_null(vk_pipeline_trial(device, &keys[11]));
    assert_int_equal(vk_pipeline_make_trials(device, keys, 12, &err), OK);
    assert_int_equal(vk_pipeline_count(device), before + 3);
    assert_int_equal(vk_pipeline_get(device, &keys[0], &pipeline, &err), OK);
    assert_true(vk_pipeline_trial(device, &keys[1]) == pipeline);
    assert_non_null(vk_pipeline_trial(device, &keys[11]));
    vk_pipeline_end_trials(device);
    assert_null(vk_pipeline_trial(device, &keys[11]));
    assert_int_equal(vk_pipeline_get(device, &keys[11], &pipeline, &err), OK);
    assert_int_equal(vk_pipeline_count(device), before + 4);
    keys[3].shader = "no such shader";
    assert_int_equal(vk_pipeline_make(device, keys, 12, &err), ERROR_INTERNAL);
    assert_int_equal(vk_pipeline_count(device), before + 4);
    vk_pipeline_end_trials(device); /* there are none */
    device_close(&base);
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
    struct device *device = open_device(NULL);
    struct error err = ERROR_INIT;
    const struct device_info info = info_of(device);
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
    assert_int_equal(info_of(device).memory_used, 0);
    device_close(&device);
}

static void test_memory_is_given_back(void **state)
{
    struct device *device = open_device(NULL);
    struct net net;
    (void)state;
    net_create(&net, 12, 10, 10, 3);
    for (int i = 0; i < 40; i++) {
        struct plan *plan = net_plan(&net, device);
        if (i % 10 == 0)
            assert_int_equal(net_run(&net, plan, net.output, NULL), OK);
        assert_true(info_of(device).memory_used > plan_bytes(plan));
        plan_destroy(&plan);
        if (i % 3 == 0) {
            device_forget_params(device, (const struct param *const *)&net.param, 1);
            assert_int_equal(info_of(device).memory_used, 0);
        }
    }
    device_forget_params(device, (const struct param *const *)&net.param, 1);
    assert_int_equal(info_of(device).memory_used, 0);
    assert_true(info_of(device).memory_peak > 0);
    net_destroy(&net);
    device_close(&device);
}

/* One convolution that is more than one submit on a software device: it is divided, and comes out whole. */
static void test_long_convolution_is_split(void **state)
{
    struct device *device = open_device(NULL);
    struct net net;
    (void)state;
    net_create(&net, 64, 173, 190, 1);
    net_expect(&net);
    struct plan *plan = net_plan(&net, device);
    if (info_of(device).type == DEVICE_SOFTWARE)
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
    struct device *device = open_device(NULL);
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
    if (info_of(device).type == DEVICE_SOFTWARE) { /* others may be done before the thread wakes */
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
    struct device *device = open_device(NULL);
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
    struct device *device = open_device(NULL);
    struct net net;
    struct plan *plan = NULL;
    struct error err = ERROR_INIT;
    (void)state;
    net_create(&net, 8, 6, 6, 2);
    net.graph->nodes[1].kind = OP_KIND_COUNT;
    assert_int_equal(plan_create(&plan, device, net.graph, PRECISION_FP32, "net", &err), ERROR_UNSUPPORTED);
    assert_null(plan);
    device_forget_params(device, (const struct param *const *)&net.param, 1);
    assert_int_equal(info_of(device).memory_used, 0);
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
    struct device *device = open_device(NULL);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_instance),
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_pipeline_cache),
        cmocka_unit_test(test_new_size_compiles_nothing),
        cmocka_unit_test(test_prepare),
        cmocka_unit_test(test_pipelines),
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
        snprintf(device_id, sizeof device_id, "%s", list[i].id);
        printf("%s: %s\n", list[i].id, list[i].name);
        failed += cmocka_run_group_tests_name("vulkan", tests, NULL, NULL);
        used++;
    }
    free(list);
    if (used == 0)
        fprintf(stderr, "there is no usable Vulkan device\n");
    return failed || used == 0;
}
