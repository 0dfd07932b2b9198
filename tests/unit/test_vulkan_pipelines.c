/* The pipelines of a Vulkan device: kept on disk, made for no new size, prepared, tried. Runs on every usable Vulkan
 * device, under the validation layer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/file.h"
#include "runtime/vulkan/vk_device.h"
#include "runtime/vulkan/vk_pipeline.h"
#include "runtime/vulkan/vk_plan.h"
#include "tests/common/net.h"

/* The one file in the folder, mapped. */
static struct file cache_file(const char *folder, char *path, size_t size)
{
    struct file file = {0};
    struct error err = ERROR_INIT;
    struct device *device = net_device(NULL);
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
    struct device *device = net_device(folder);
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
    struct device *device = net_device(NULL);
    struct net first, second;
    (void)state;
    net_create(&first, 8, 40, 52, 2);
    net_create(&second, 8, 47, 61, 2);
    param_destroy(&second.param);
    for (int i = 0; i < second.graph->node_count; i++)
        second.graph->nodes[i].param[OP_WEIGHT] = first.param;
    struct plan *a = net_plan(&first, device);
    const uint32_t pipelines = vk_pipeline_count((struct vk_device *)device);
    const uint64_t used = net_device_info(device).memory_used;
    struct plan *b = net_plan(&second, device);
    assert_int_equal(vk_pipeline_count((struct vk_device *)device), pipelines);
    assert_int_equal(net_device_info(device).memory_used - used, plan_bytes(b)); /* the weights are shared */
    plan_destroy(&a);
    plan_destroy(&b);
    device_close(&device);
    net_destroy(&first);
    net_destroy(&second);
}

/* What is prepared is there when the plan is made, and takes no memory but the weights'. */
static void test_prepare(void **state)
{
    struct device *base = net_device(NULL);
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
    assert_int_equal(net_device_info(base).memory_used, 0);
    device->prepares = true;
    assert_int_equal(plan_prepare(base, net.graph, PRECISION_FP32, "net", false, &whole, &err), OK);
    assert_true(whole); /* there is nothing to measure in fp32 */
    const uint32_t pipelines = vk_pipeline_count(device);
    const uint64_t weights = net_device_info(base).memory_used;
    assert_true(pipelines >= before + 4); /* the conversion of the weights, input, convolution, output */
    assert_true(weights > 0);
    struct plan *plan = net_plan(&net, base);
    assert_int_equal(vk_pipeline_count(device), pipelines);
    assert_int_equal(net_device_info(base).memory_used, weights + plan_bytes(plan));
    assert_int_equal(net_run(&net, plan, net.output, NULL), OK);
    net_check(&net);
    plan_destroy(&plan);
    net.graph->nodes[1].kind = OP_KIND_COUNT;
    assert_int_equal(plan_prepare(base, net.graph, PRECISION_FP32, "net", true, &whole, &err), ERROR_UNSUPPORTED);
    assert_int_equal(net_device_info(base).memory_used, weights);
    net_destroy(&net);
    device_close(&base);
}

/* Pipelines are made together, each once; trials beside them, which go, and do not get into the file. */
static void test_pipelines(void **state)
{
    struct device *base = net_device(NULL);
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

static void test_validation_is_silent(void **state)
{
    (void)state;
    assert_int_equal(vk_validation_count(), 0);
}

static int run_all(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pipeline_cache),
        cmocka_unit_test(test_new_size_compiles_nothing),
        cmocka_unit_test(test_prepare),
        cmocka_unit_test(test_pipelines),
        cmocka_unit_test(test_validation_is_silent),
    };
    return cmocka_run_group_tests_name("vulkan", tests, NULL, NULL);
}

int main(void)
{
    return net_each_device(run_all);
}
