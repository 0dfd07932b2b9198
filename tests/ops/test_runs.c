/* Runs on every device: what is said of their results, and runs that follow each other before the first is over. What
 * becomes of pictures: test_rasters.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <sys/resource.h>

#include "runtime/base/thread.h"
#include "tests/common/run_case.h"

/* What is said of results. */
static void test_verdicts(void)
{
    enum { W = 6, H = 4, N = 3 };
    static float in[N][3][H][W], out[N][3][H][W];
    struct run_net net;
    struct run_input input = {.planes = in[0][0][0]};
    struct run_output output = {.planes = out[0][0][0]};
    run_net_same(&net, N, H, W, 1);
    float *values = in[0][0][0];
    for (int i = 0; i < N * 3 * H * W; i++)
        values[i] = i / (3 * H * W) == 1 ? 0.5f : (float)i / 100;
    run_submit(&net, &(struct run_io){.inputs = &input, .outputs = &output});
    struct run_result result = run_await(&net);
    assert_true(result.finite);
    assert_int_equal(result.flat, 2);
    in[1][2][H - 1][W - 1] = 0.75f; /* the very last */
    in[2][1][1][1] = run_precision == PRECISION_FP16 ? 1 : INFINITY;
    run_submit(&net, &(struct run_io){.inputs = &input, .outputs = &output});
    result = run_await(&net);
    assert_int_equal(result.finite, run_precision == PRECISION_FP16);
    assert_int_equal(result.flat, 0);
    in[2][1][1][1] = NAN;
    if (run_precision == PRECISION_FP32) { /* a narrower number may make something else of it */
        run_submit(&net, &(struct run_io){.inputs = &input, .outputs = &output});
        assert_false(run_await(&net).finite);
    }
    output = (struct run_output){0}; /* nobody looks */
    run_submit(&net, &(struct run_io){.inputs = &input, .outputs = &output});
    result = run_await(&net);
    assert_true(result.finite && result.flat == 0);
    run_net_destroy(&net);
}

/* Runs follow each other before the first is over, each with what it was given, and end in order. */
static void test_under_way(void)
{
    enum { W = 64, H = 48, RUNS = 7 };
    static uint8_t in[H][W][3], out[RUNS][H][W][3];
    struct error err = ERROR_INIT;
    struct run_net net;
    const struct raster_source source = {RASTER_U8, in, sizeof in[0], NULL, NULL, 0, 0, 0};
    const struct run_input input = {.images = &source};
    run_net_same(&net, 1, H, W, 20);
    assert_int_equal(plan_under_way(net.plan), 0);
    for (int run = 0, ended = 0; ended < RUNS;) {
        if (run < RUNS && plan_under_way(net.plan) < PLAN_RUNS) {
            struct raster_target target = {.form = RASTER_U8, out[run], sizeof out[run][0], 0, 0, W, H};
            const struct run_image image = {.targets = &target, .target_count = 1};
            const struct run_output output = {.images = &image};
            run_fill(in[0][0], sizeof in, (uint32_t)run);
            run_submit(&net, &(struct run_io){.inputs = &input,
                                              .outputs = &output,
                                              .range = &run_unit_range,
                                              .options = {.background = run % 2 == 0}});
            memset(in, 0, sizeof in); /* they were read */
            memset(&target, 0, sizeof target);
            run++;
            continue;
        }
        run_await(&net);
        run_fill(in[0][0], sizeof in, (uint32_t)ended);
        assert_memory_equal(in, out[ended], sizeof in);
        ended++;
    }
    /* one too many, one too late, and those that nobody waits for */
    atomic_int cancel = 0;
    struct raster_target target = {.form = RASTER_U8, out[0], sizeof out[0][0], 0, 0, W, H};
    const struct run_image image = {.targets = &target, .target_count = 1};
    const struct run_output output = {.images = &image};
    const struct run_io run = {
        .inputs = &input, .outputs = &output, .range = &run_unit_range, .options = {.cancel = &cancel}};
    for (int i = 0; i < PLAN_RUNS; i++)
        run_submit(&net, &run);
    assert_int_equal(plan_submit(net.plan, &run, &err), ERROR_INTERNAL);
    plan_discard(net.plan);
    assert_int_equal(plan_under_way(net.plan), 0);
    run_submit(&net, &run);
    for (int i = 0; !plan_ready(net.plan); i++) {
        assert_true(i < 600000); /* ten minutes */
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    run_await(&net);
    error_clear(&err);
    atomic_store(&cancel, 1);
    assert_int_equal(plan_submit(net.plan, &run, &err), ERROR_CANCELLED);
    atomic_store(&cancel, 0);
    run_submit(&net, &run); /* left under way */
    run_net_destroy(&net);
    assert_true(device_busy_ms(run_device) > 0);
}

/* A run whose outputs are named when it is under way, and what may not be done before they are. */
static void test_shown_later(void)
{
    enum { W = 64, H = 48 };
    static uint8_t in[H][W][3], out[2][H][W][3];
    struct error err = ERROR_INIT;
    struct device_info info;
    struct run_net net;
    const struct raster_source source = {RASTER_U8, in, sizeof in[0], NULL, NULL, 0, 0, 0};
    const struct run_input input = {.images = &source};
    struct raster_target target = {.form = RASTER_U8, out[0], sizeof out[0][0], 0, 0, W, H};
    const struct run_image image = {.targets = &target, .target_count = 1};
    const struct run_output output = {.images = &image};
    struct run_io run = {.inputs = &input, .range = &run_unit_range, .options = {.background = true}};
    device_info(run_device, &info);
    run_net_same(&net, 1, H, W, 20);
    run_fill(in[0][0], sizeof in, 7);
    if (!info.asynchronous) {
        assert_int_equal(plan_submit(net.plan, &run, &err), ERROR_INTERNAL);
        run_net_destroy(&net);
        return;
    }
    run_submit(&net, &run);
    assert_false(plan_ready(net.plan));
    struct run_io full = run;
    full.outputs = &output;
    assert_int_equal(plan_submit(net.plan, &full, &err), ERROR_INTERNAL); /* what it would overwrite nobody has seen */
    error_clear(&err);
    if (plan_show(net.plan, &full, &err))
        fail_msg("%s", err.text);
    assert_int_equal(plan_show(net.plan, &full, &err), ERROR_INTERNAL);
    error_clear(&err);
    target.data = out[1];
    full.options.background = false;
    run_submit(&net, &full); /* goes before none of its plan */
    run_await(&net);
    run_await(&net);
    assert_memory_equal(in, out[0], sizeof in);
    assert_memory_equal(in, out[1], sizeof in);
    run_submit(&net, &run);
    assert_int_equal(plan_wait(net.plan, NULL, &err), ERROR_INTERNAL);
    assert_int_equal(plan_under_way(net.plan), 0);
    run_submit(&net, &run);
    plan_discard(net.plan);
    run_submit(&net, &full);
    run_await(&net);
    run_submit(&net, &run); /* left under way */
    run_net_destroy(&net);
}

/* A run in which a sum of fp32 on matrices was not finite says so, though all values that it gives are, and so do all
 * of those that follow each other. Here as if there had been one: test_graphs.c makes one where there are matrices. */
static void test_wild(void)
{
    enum { W = 6, H = 4 };
    static float in[3][H][W], out[PLAN_RUNS][3][H][W];
    struct device_info info;
    struct run_net net;
    const struct run_input input = {.planes = in[0][0]};
    device_info(run_device, &info);
    if (strcmp(info.backend, "vulkan") != 0)
        return;
    in[0][0][0] = 1;
    for (int wild = 0; wild < 2; wild++) {
        setenv("RESTORED_VULKAN_WILD", wild ? "1" : "", 1);
        run_net_same(&net, 1, H, W, 1);
        unsetenv("RESTORED_VULKAN_WILD");
        for (int i = 0; i < PLAN_RUNS; i++) {
            const struct run_output output = {.planes = out[i][0][0]};
            run_submit(&net, &(struct run_io){.inputs = &input, .outputs = &output});
        }
        for (int i = 0; i < PLAN_RUNS; i++) {
            assert_int_equal(run_await(&net).finite, !wild);
            assert_memory_equal(in, out[i], sizeof in);
        }
        run_net_destroy(&net);
    }
}

/* While threads are kept awake, 8 or more, who waits for a device does not sleep; else it does. */
static void test_awake(void)
{
    enum { W = 64, H = 48 };
    static float in[3 * W * H], out[3 * W * H];
    struct device_info info;
    struct run_net net;
    struct rusage before, after;
    const struct run_input input = {.planes = in};
    const struct run_output output = {.planes = out};
    device_info(run_device, &info);
    run_net_same(&net, 1, H, W, 3);
    bool seen[2] = {false, false}; /* to sleep; to look for 100 µs of its own time and not sleep */
    thread_set_count(8);
    for (int way = 0; way < 2 && info.asynchronous; way++) {
        if (way)
            thread_keep_awake(true);
        for (int i = 0; i < 3000 && !seen[way]; i++) {
            struct timespec begun, over;
            run_submit(&net, &(struct run_io){.inputs = &input, .outputs = &output});
            assert_int_equal(getrusage(RUSAGE_THREAD, &before), 0);
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begun);
            run_await(&net);
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &over);
            assert_int_equal(getrusage(RUSAGE_THREAD, &after), 0);
            const bool slept = before.ru_nvcsw != after.ru_nvcsw;
            seen[way] =
                way ? !slept && (over.tv_sec - begun.tv_sec) * 1000000000 + over.tv_nsec - begun.tv_nsec > 100000
                    : slept;
        }
        if (way)
            thread_keep_awake(false);
    }
    thread_set_count(0);
    assert_true(seen[0] == info.asynchronous && seen[1] == info.asynchronous);
    run_net_destroy(&net);
}

/* Outputs that a device cannot make, which it may find out when it has begun: that run is over, and others are right.
 */
static void test_refused(void)
{
    enum { W = 16, H = 12, VALUES = 3 * W * H };
    static uint8_t in[H][W][3], out[H][W][3];
    static float planes[VALUES];
    const int rgb = 3, apart[2] = {1, 2};
    struct error err = ERROR_INIT;
    struct run_net net = {0};
    assert_int_equal(graph_create(&net.graph, &err), OK);
    const struct view x = graph_tensor(net.graph, TENSOR_INPUT, 1, H, W, 1, &rgb);
    struct node *node = graph_node(net.graph, OP_ADD, graph_tensor(net.graph, TENSOR_OUTPUT, 1, H, W, 2, apart));
    node->in[OP_X] = node->in[OP_RESIDUAL1] = x;
    node->args.add = (struct op_add){.x_scale = 0.25f, .residual1_scale = 0.75f};
    run_net_plan(&net);
    const struct raster_source source = {RASTER_U8, in, sizeof in[0], NULL, NULL, 0, 0, 0};
    const struct run_input input = {.images = &source};
    struct raster_target target = {.form = RASTER_U8, out, sizeof out[0], 0, 0, W, H};
    const struct run_image image = {.targets = &target, .target_count = 1};
    const struct run_output outputs[] = {{.images = &image}, {.planes = planes}};
    run_fill(in[0][0], sizeof in, 8);
    for (int i = 0; i < 2 * (PLAN_RUNS + 1); i++) {
        const struct run_io run = {.inputs = &input, .outputs = &outputs[i % 2], .range = &run_unit_range};
        const enum error_code code = plan_submit(net.plan, &run, &err);
        assert_true(code == OK || (code == ERROR_UNSUPPORTED && i % 2 == 0));
        error_clear(&err);
        assert_int_equal(plan_under_way(net.plan), code == OK);
        if (code == OK)
            run_await(&net);
    }
    for (int i = 0; i < VALUES; i++)
        assert_true(fabs((double)planes[i] * 255 - in[i % (W * H) / W][i % W][i / (W * H)]) <= run_allowed());
    run_net_destroy(&net);
}

int main(void)
{
    static run_case *const cases[] = {test_verdicts, test_wild, test_under_way, test_shown_later, test_refused,
                                      test_awake,    NULL};
    return run_all_devices("runs", cases);
}
