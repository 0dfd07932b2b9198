/* The CPU device's own parts: the thread pool, what of the machine it may use, and that neither the number of threads
 * nor their timing changes a result. Its operators are tested with all devices' in tests/ops. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/backend/backend.h"
#include "runtime/base/machine.h"
#include "runtime/cpu/cpu_pool.h"

/* --- the pool ------------------------------------------------------------------------------------------------------
 */

struct tally {
    int threads;
    int done[1000]; /* times that each item was done */
    atomic_int bad_threads;
};

static void count_item(void *context, int item, int thread)
{
    struct tally *tally = context;
    tally->done[item]++;
    if (thread < 0 || thread >= tally->threads)
        atomic_fetch_add(&tally->bad_threads, 1);
}

static void every_item_is_done_once(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    for (int threads = 1; threads <= 5; threads += 2) {
        struct cpu_pool *pool;
        struct tally tally = {.threads = threads};
        int wanted[1000] = {0};
        assert_int_equal(cpu_pool_create(&pool, threads, &err), OK);
        assert_int_equal(cpu_pool_threads(pool), threads);
        for (int loop = 0; loop < 3000; loop++) { /* one right after the other */
            const int count = loop * 7 % 23;
            cpu_pool_run(pool, count, count_item, &tally);
            for (int i = 0; i < count; i++)
                wanted[i]++;
            assert_memory_equal(tally.done, wanted, sizeof wanted);
        }
        cpu_pool_run(pool, 1000, count_item, &tally);
        for (int i = 0; i < 1000; i++)
            assert_int_equal(tally.done[i], wanted[i] + 1);
        assert_int_equal(tally.bad_threads, 0);
        cpu_pool_destroy(&pool);
        assert_null(pool);
    }
}

static void slow_item(void *context, int item, int thread)
{
    count_item(context, item, thread);
    usleep(2000);
}

/* Workers that have gone to sleep are woken, and so is a caller that waits for them. */
static void sleepers_wake(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct cpu_pool *pool;
    struct tally tally = {.threads = 3};
    assert_int_equal(cpu_pool_create(&pool, 3, &err), OK);
    for (int loop = 1; loop <= 20; loop++) {
        usleep(1000);
        cpu_pool_run(pool, 4, slow_item, &tally);
        for (int i = 0; i < 4; i++)
            assert_int_equal(tally.done[i], loop);
    }
    usleep(1000);
    cpu_pool_destroy(&pool);
    cpu_pool_destroy(&pool); /* nothing */
}

/* --- what of the machine it may use --------------------------------------------------------------------------------
 */

static char root[] = "/tmp/test_cpu.XXXXXX";

static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(full, 0700);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int root_create(void **state)
{
    (void)state;
    strcpy(root, "/tmp/test_cpu.XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int root_remove(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

static void threads_without_a_limit(void **state)
{
    (void)state;
    assert_int_equal(machine_threads(root, 6), 6); /* no files at all */
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/cpu.max", "max 100000\n");
    assert_int_equal(machine_threads(root, 6), 6);
    assert_true(machine_threads(root, 0) >= 1);
}

static void threads_of_cgroup_2(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/b/cpu.max", "250000 100000\n");
    assert_int_equal(machine_threads(root, 8), 3); /* 2.5 */
    assert_int_equal(machine_threads(root, 2), 2); /* affinity is less */
    put("/sys/fs/cgroup/a/cpu.max", "150000 100000\n");
    assert_int_equal(machine_threads(root, 8), 2); /* the group above has less */
    put("/sys/fs/cgroup/a/b/cpu.max", "20000 100000\n");
    assert_int_equal(machine_threads(root, 8), 1); /* 0.2 */
    put("/sys/fs/cgroup/a/b/cpu.max", "nonsense\n");
    put("/sys/fs/cgroup/a/cpu.max", "");
    assert_int_equal(machine_threads(root, 8), 8);
}

/* In a container the host's name of the group leads nowhere, and the limit stands at the mount. */
static void threads_of_a_container(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/docker/0123abc\n");
    put("/sys/fs/cgroup/cpu.max", "400000 100000\n");
    assert_int_equal(machine_threads(root, 8), 4);
}

static void threads_of_cgroup_1(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "12:memory:/x\n4:cpu,cpuacct:/x\n1:name=systemd:/\n0::/\n");
    put("/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us", "100000\n");
    assert_int_equal(machine_threads(root, 8), 8);
    put("/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "300000\n");
    assert_int_equal(machine_threads(root, 8), 3);
    put("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "50000\n"); /* the link by the controller's own name */
    put("/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "50000\n");
    assert_int_equal(machine_threads(root, 8), 1);
}

static void memory_and_its_limits(void **state)
{
    (void)state;
    uint64_t total, available;
    put("/proc/meminfo", "MemTotal:       16384 kB\nMemFree: 1 kB\nMemAvailable:    8192 kB\n");
    machine_memory(root, &total, &available);
    assert_int_equal(total, 16u << 20);
    assert_int_equal(available, 8u << 20);
    put("/proc/self/cgroup", "0::/g\n");
    put("/sys/fs/cgroup/g/memory.max", "max\n");
    machine_memory(root, &total, &available);
    assert_int_equal(total, 16u << 20);
    put("/sys/fs/cgroup/g/memory.max", "4194304\n");
    machine_memory(root, &total, &available);
    assert_int_equal(total, 4u << 20);
    assert_int_equal(available, 4u << 20);
    put("/sys/fs/cgroup/g/memory.current", "3145728\n"); /* in use, of which 1 MiB are files that can go */
    put("/sys/fs/cgroup/g/memory.stat", "anon 2097152\ninactive_file 1048576\n");
    machine_memory(root, &total, &available);
    assert_int_equal(available, 2u << 20);
}

static void name_of_the_processor(void **state)
{
    (void)state;
    char name[64];
    machine_name(root, name, sizeof name); /* none known */
    assert_memory_equal(name, "CPU (", 5);
    put("/proc/cpuinfo", "processor\t: 0\nmodel name\t: Some  CPU @ 3 GHz\nflags\t\t: fpu\n");
    machine_name(root, name, sizeof name);
    assert_string_equal(name, "Some  CPU @ 3 GHz");
}

/* --- results -------------------------------------------------------------------------------------------------------
 */

/* Convolutions of both kinds after each other, wide enough for several items each. */
static void run_graph(int threads, int h, int w, float *out)
{
    static const int widths[] = {3, 40, 96, 20};
    struct error err = ERROR_INIT;
    struct graph *graph;
    struct param *params[3];
    struct device *device;
    struct plan *plan;
    uint32_t random = 1;
    assert_int_equal(graph_create(&graph, &err), OK);
    struct view x = graph_tensor(graph, TENSOR_INPUT, 1, h, w, 1, &widths[0]);
    for (int i = 0; i < 3; i++) {
        const size_t count = (size_t)(widths[i] * widths[i + 1]) * 9;
        float *values = malloc(count * sizeof *values);
        assert_non_null(values);
        for (size_t k = 0; k < count; k++) {
            random = random * 1664525u + 1013904223u;
            values[k] = (float)(int32_t)random / 2147483648.0f / (float)(3 * widths[i]);
        }
        assert_int_equal(param_from_values(&params[i], values, count, &err), OK);
        free(values);
        struct view y = graph_tensor(graph, i == 2 ? TENSOR_OUTPUT : TENSOR_TEMP, 1, h, w, 1, &widths[i + 1]);
        struct node *node = graph_node(graph, OP_CONV2D, y);
        assert_non_null(node);
        node->in[OP_X] = x;
        node->param[OP_WEIGHT] = params[i];
        node->args.conv2d =
            (struct op_conv2d){.kernel = 3, .stride = 1, .pad = 1, .upsample = 1, .gain = 1, .scale = 1};
        x = y;
    }
    assert_int_equal(graph_finish(graph, &err), OK);
    float *in = malloc((size_t)(3 * h * w) * sizeof *in);
    assert_non_null(in);
    for (int i = 0; i < 3 * h * w; i++)
        in[i] = (float)(i * 37 % 101) / 101.0f;
    device_set_cpu_threads(threads);
    assert_int_equal(device_open(&device, "cpu", NULL, &err), OK);
    device_set_cpu_threads(0);
    assert_int_equal(plan_create(&plan, device, graph, PRECISION_AUTO, "test", &err), OK);
    assert_true(plan_bytes(plan) > 0);
    assert_int_equal(plan_run(plan, (const float *const *)&in, &out, NULL, &err), OK);
    assert_int_equal(plan_run(plan, (const float *const *)&in, &out, NULL, &err), OK); /* again */

    struct device_info info;
    device_info(device, &info);
    assert_true(info.memory_used > plan_bytes(plan));
    plan_destroy(&plan);
    device_forget_params(device, (const struct param *const *)params, 3);
    device_info(device, &info);
    assert_int_equal(info.memory_used, 0);
    assert_true(info.memory_peak > 0);
    device_close(&device);
    graph_destroy(&graph);
    for (int i = 0; i < 3; i++)
        param_destroy(&params[i]);
    free(in);
}

static void threads_do_not_change_results(void **state)
{
    (void)state;
    enum { H = 61, W = 67, COUNT = 20 * H * W };
    float *one = calloc(COUNT, sizeof *one), *other = calloc(COUNT, sizeof *other);
    assert_true(one && other);
    run_graph(1, H, W, one);
    for (int threads = 2; threads <= 7; threads++) {
        memset(other, 0, COUNT * sizeof *other);
        run_graph(threads, H, W, other);
        assert_memory_equal(one, other, COUNT * sizeof *one);
    }
    free(one);
    free(other);
}

/* The device stands once in the list, before software Vulkan, and says what it is. */
static void device_in_the_list(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct device_info *list;
    size_t count, found = 0;
    assert_int_equal(device_list(&list, &count, &err), OK);
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            assert_true(list[i - 1].type <= list[i].type);
        if (strcmp(list[i].id, "cpu") != 0)
            continue;
        found++;
        assert_string_equal(list[i].backend, "cpu");
        assert_int_equal(list[i].type, DEVICE_CPU);
        assert_true(list[i].usable && list[i].name[0] && list[i].driver[0] && list[i].precision_reason[0]);
        assert_true(list[i].memory_total > 0 && list[i].memory_budget <= list[i].memory_total);
        assert_true(list[i].max_buffer_bytes > 0);
        assert_int_equal(list[i].preferred, PRECISION_FP32);
    }
    assert_int_equal(found, 1);
    free(list);
}

static void *cancel_soon(void *cancel)
{
    usleep(20000);
    atomic_store((atomic_int *)cancel, 1);
    return NULL;
}

/* Whoever watches a long run sees each node that is done. */
static void a_run_tells_its_progress(void **state)
{
    (void)state;
    enum { NODES = 10, SIDE = 8 };
    struct error err = ERROR_INIT;
    struct graph *graph;
    struct device *device;
    struct plan *plan;
    atomic_uint progress = 0;
    const struct run_options options = {.progress = &progress};
    const int channels = 16;
    static float in[16 * SIDE * SIDE], out[16 * SIDE * SIDE];
    const float *inputs[] = {in};
    float *outputs[] = {out};
    for (int id = 0; id < 2; id++) {
        assert_int_equal(graph_create(&graph, &err), OK);
        struct view x = graph_tensor(graph, TENSOR_INPUT, 1, SIDE, SIDE, 1, &channels);
        for (int i = 1; i <= NODES; i++) {
            struct view y = i < NODES ? graph_temp(graph, 1, channels, SIDE, SIDE)
                                      : graph_tensor(graph, TENSOR_OUTPUT, 1, SIDE, SIDE, 1, &channels);
            struct node *node = graph_node(graph, OP_MAX_POOL, y);
            assert_non_null(node);
            node->in[OP_X] = x;
            node->args.max_pool = (struct op_max_pool){.kernel = 3, .stride = 1, .pad = 1};
            x = y;
        }
        assert_int_equal(graph_finish(graph, &err), OK);
        assert_int_equal(device_open(&device, id ? "reference" : "cpu", NULL, &err), OK);
        assert_int_equal(plan_create(&plan, device, graph, PRECISION_AUTO, "test", &err), OK);
        atomic_store(&progress, 0);
        assert_int_equal(plan_run(plan, inputs, outputs, &options, &err), OK);
        assert_true(atomic_load(&progress) >= NODES);
        plan_destroy(&plan);
        device_close(&device);
        graph_destroy(&graph);
    }
}

/* A cancelled run ends between two nodes. */
static void a_run_is_cancelled(void **state)
{
    (void)state;
    enum { NODES = 2000, SIDE = 512 };
    struct error err = ERROR_INIT;
    struct graph *graph;
    struct device *device;
    struct plan *plan;
    atomic_int cancel = 0;
    atomic_uint progress = 0;
    const struct run_options options = {.cancel = &cancel, .progress = &progress};
    const int channels = 16;
    float *in = calloc((size_t)(channels * SIDE * SIDE), sizeof *in), *out = calloc((size_t)channels, sizeof *out);
    pthread_t canceller;
    assert_true(in && out);
    assert_int_equal(graph_create(&graph, &err), OK);
    struct view x = graph_tensor(graph, TENSOR_INPUT, 1, SIDE, SIDE, 1, &channels);
    for (int i = 0; i <= NODES; i++) { /* seconds of work, and one pixel at the end */
        struct view y = i < NODES ? graph_temp(graph, 1, channels, SIDE, SIDE)
                                  : graph_tensor(graph, TENSOR_OUTPUT, 1, 1, 1, 1, &channels);
        struct node *node = graph_node(graph, OP_MAX_POOL, y);
        assert_non_null(node);
        node->in[OP_X] = x;
        node->args.max_pool = (struct op_max_pool){.kernel = i < NODES ? 3 : SIDE, .stride = 1, .pad = i < NODES};
        x = y;
    }
    assert_int_equal(graph_finish(graph, &err), OK);
    assert_int_equal(device_open(&device, "cpu", NULL, &err), OK);
    assert_int_equal(plan_create(&plan, device, graph, PRECISION_AUTO, "test", &err), OK);
    assert_int_equal(pthread_create(&canceller, NULL, cancel_soon, &cancel), 0);
    assert_int_equal(plan_run(plan, (const float *const *)&in, &out, &options, &err), ERROR_CANCELLED);
    assert_int_equal(pthread_join(canceller, NULL), 0);
    assert_true(atomic_load(&progress) < NODES / 2); /* however slow the machine is */
    plan_destroy(&plan);
    device_close(&device);
    graph_destroy(&graph);
    free(in);
    free(out);
}

/* Too much is refused with an error, before the system ends the process. */
static void memory_that_is_not_there(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct graph *graph;
    struct device *device;
    struct plan *plan = NULL;
    const int channels = 1 << 15; /* 2 TiB a tensor */
    assert_int_equal(graph_create(&graph, &err), OK);
    struct view x = graph_tensor(graph, TENSOR_INPUT, 1, 4096, 4096, 1, &channels);
    struct node *node = graph_node(graph, OP_MAX_POOL, graph_tensor(graph, TENSOR_OUTPUT, 1, 4096, 4096, 1, &channels));
    assert_non_null(node);
    node->in[OP_X] = x;
    node->args.max_pool = (struct op_max_pool){.kernel = 1, .stride = 1};
    assert_int_equal(graph_finish(graph, &err), OK);
    assert_int_equal(device_open(&device, "cpu", NULL, &err), OK);
    assert_int_equal(plan_create(&plan, device, graph, PRECISION_AUTO, "test", &err), ERROR_NO_MEMORY);
    assert_null(plan);
    assert_non_null(strstr(err.text, "MiB are needed, more than half of"));
    device_close(&device);
    graph_destroy(&graph);
}

int main(void)
{
#define IN_ROOT(test) cmocka_unit_test_setup_teardown(test, root_create, root_remove)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_is_done_once),
        cmocka_unit_test(sleepers_wake),
        IN_ROOT(threads_without_a_limit),
        IN_ROOT(threads_of_cgroup_2),
        IN_ROOT(threads_of_a_container),
        IN_ROOT(threads_of_cgroup_1),
        IN_ROOT(memory_and_its_limits),
        IN_ROOT(name_of_the_processor),
        cmocka_unit_test(device_in_the_list),
        cmocka_unit_test(threads_do_not_change_results),
        cmocka_unit_test(a_run_is_cancelled),
        cmocka_unit_test(a_run_tells_its_progress),
        cmocka_unit_test(memory_that_is_not_there),
    };
    return cmocka_run_group_tests_name("cpu", tests, NULL, NULL);
}
