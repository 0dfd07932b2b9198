/* Plans of several sessions under one budget, by a device that counts; and the arena that plans of the CPU share. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/session.h"

/* ---- a device that counts ---------------------------------------------------------------------------------------- */

#define PLAN_COST 100 /* bytes a px of its input */

static int made, destroyed;
static uint64_t staged_each;
static bool unmeasured; /* every plan leaves something to measure */

struct counted_plan {
    struct plan base;
    uint64_t bytes;
    int runs;
};

static void counting_info(const struct device *device, struct device_info *out)
{
    (void)device;
    *out = (struct device_info){.id = "counting", .type = DEVICE_CPU, .usable = true, .preferred = PRECISION_FP32};
}

static enum error_code counting_create(struct plan **out, struct device *device, const struct graph *graph,
                                       enum precision precision, const char *name, struct error *err)
{
    const struct tensor *x = &graph->tensors[graph->inputs[0]];
    struct counted_plan *plan = mem_calloc(1, sizeof *plan);
    (void)precision;
    (void)name;
    if (!plan)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    plan->base = (struct plan){.backend = device->backend, .device = device};
    plan->bytes = PLAN_COST * (uint64_t)(x->h * x->w);
    device->held += plan->bytes;
    device->staged += staged_each;
    made++;
    *out = &plan->base;
    return OK;
}

static void counting_destroy(struct plan *base)
{
    base->device->held -= ((struct counted_plan *)base)->bytes;
    base->device->staged -= staged_each;
    destroyed++;
    free(base);
}

static enum error_code counting_submit(struct plan *base, const struct run_io *run, struct error *err)
{
    (void)run;
    (void)err;
    ((struct counted_plan *)base)->runs++;
    return OK;
}

static enum error_code counting_wait(struct plan *base, bool discard, struct run_result *result, struct error *err)
{
    (void)discard;
    (void)err;
    ((struct counted_plan *)base)->runs--;
    *result = (struct run_result){.finite = true};
    return OK;
}

static bool counting_whole(const struct plan *plan)
{
    (void)plan;
    return !unmeasured;
}

static const struct backend counting_backend = {.name = "counting",
                                                .info = counting_info,
                                                .plan_create = counting_create,
                                                .plan_destroy = counting_destroy,
                                                .plan_whole = counting_whole,
                                                .plan_submit = counting_submit,
                                                .plan_wait = counting_wait};

static enum error_code build_double(const void *model, const struct session_shape *shape, struct graph *g,
                                    struct error *err)
{
    int c = 1;
    (void)model;
    struct view x = graph_tensor(g, TENSOR_INPUT, shape->n, shape->h, shape->w, 1, &c);
    struct node *node = graph_node(g, OP_ADD, graph_tensor(g, TENSOR_OUTPUT, shape->n, shape->h, shape->w, 1, &c));
    if (node) {
        node->in[OP_X] = node->in[OP_RESIDUAL1] = x;
        node->args.add.x_scale = node->args.add.residual1_scale = 1;
    }
    return graph_finish(g, err);
}

struct bench {
    struct device device;
    struct plan_cache *cache;
    struct session *sessions[2];
};

static int setup(void **state)
{
    static struct bench bench;
    struct error err = ERROR_INIT;
    bench = (struct bench){.device = {.backend = &counting_backend}};
    made = destroyed = 0;
    staged_each = 0;
    unmeasured = false;
    *state = &bench;
    if (plan_cache_create(&bench.cache, &bench.device, &err))
        return -1;
    for (int i = 0; i < 2; i++)
        if (session_create(&bench.sessions[i], &bench.device, PRECISION_FP32, i ? "b" : "a", build_double, NULL, &err))
            return -1;
    return 0;
}

static int teardown(void **state)
{
    struct bench *bench = *state;
    session_destroy(&bench->sessions[0]);
    session_destroy(&bench->sessions[1]);
    plan_cache_destroy(&bench->cache);
    return made == destroyed && bench->device.held == 0 && !bench->device.cache ? 0 : -1;
}

static void prepare(struct bench *bench, int session, int width)
{
    struct error err = ERROR_INIT;
    const struct session_shape shape = {.n = 1, .h = 1, .w = width};
    assert_int_equal(session_prepare(bench->sessions[session], &shape, &err), OK);
}

static struct plan *submit(struct bench *bench, int session, int width)
{
    static const float in[64];
    static float out[64];
    struct error err = ERROR_INIT;
    struct plan *plan = NULL;
    const struct session_shape shape = {.n = 1, .h = 1, .w = width};
    const struct run_input input = {.planes = in};
    const struct run_output output = {.planes = out};
    const struct run_io run = {.inputs = &input, .outputs = &output};
    assert_int_equal(session_submit(bench->sessions[session], &shape, &run, &plan, &err), OK);
    return plan;
}

static bool there(struct bench *bench, int session, int width)
{
    const struct session_shape shape = {.n = 1, .h = 1, .w = width};
    return plan_cache_find(bench->cache, bench->sessions[session], &shape) != NULL;
}

static void the_oldest_of_all_sessions_goes_first(void **state)
{
    struct bench *bench = *state;
    plan_cache_set_budget(bench->cache, 3 * 10 * PLAN_COST, 1);
    prepare(bench, 0, 10);
    prepare(bench, 1, 10); /* its own plan, of the same shape */
    prepare(bench, 0, 9);
    assert_int_equal(made, 3);
    prepare(bench, 0, 10); /* used once more: the other session's is the oldest now */
    assert_int_equal(made, 3);
    prepare(bench, 1, 8);
    assert_int_equal(plan_cache_count(bench->cache), 3);
    assert_false(there(bench, 1, 10));
    assert_true(there(bench, 0, 9));
    assert_true(there(bench, 0, 10));
    assert_true(there(bench, 1, 8));
}

static void the_budget_holds(void **state)
{
    struct bench *bench = *state;
    plan_cache_set_budget(bench->cache, 100 * PLAN_COST, 1);
    for (int width = 1; width <= 60; width++) {
        prepare(bench, width % 2, width);
        assert_true(bench->device.held <= 100 * PLAN_COST);
        assert_true(there(bench, width % 2, width));
    }
    plan_cache_set_budget(bench->cache, 100 * PLAN_COST, 4); /* a quarter of it */
    assert_int_equal(plan_cache_limit(bench->cache), 25 * PLAN_COST);
    assert_true(plan_cache_over(bench->cache));
    prepare(bench, 0, 5);
    assert_false(plan_cache_over(bench->cache));
    prepare(bench, 0, 30); /* larger than the budget: what a run needs it gets, alone */
    assert_int_equal(plan_cache_count(bench->cache), 1);
    assert_int_equal(bench->device.held, 30 * PLAN_COST);
}

static void many_small_ones_are_bounded(void **state)
{
    struct bench *bench = *state;
    for (int width = 1; width <= 1000; width++)
        prepare(bench, 0, width);
    assert_true(plan_cache_count(bench->cache) < 300);
    assert_true(there(bench, 0, 1000));
}

static void buffers_in_host_memory_are_bounded(void **state)
{
    struct bench *bench = *state;
    staged_each = UINT64_C(300) << 20;
    for (int width = 1; width <= 10; width++) {
        prepare(bench, width % 2, width);
        assert_true(device_staged(&bench->device) <= UINT64_C(1) << 30);
    }
    assert_int_equal(plan_cache_count(bench->cache), 3);
}

static void a_plan_under_way_stays(void **state)
{
    struct bench *bench = *state;
    struct error err = ERROR_INIT;
    plan_cache_set_budget(bench->cache, 20 * PLAN_COST, 1);
    struct plan *busy = submit(bench, 0, 20);
    prepare(bench, 1, 10);
    prepare(bench, 1, 11); /* the one of 10 goes, the older one that is at work does not */
    assert_true(there(bench, 0, 20));
    assert_false(there(bench, 1, 10));
    assert_false(plan_cache_drop_all(bench->cache, bench->sessions[0]));
    plan_cache_drop(bench->cache, busy);
    assert_true(there(bench, 0, 20));
    while (plan_cache_drop_oldest(bench->cache))
        ;
    assert_true(isinf(plan_cache_oldest(bench->cache)));
    assert_int_equal(plan_cache_count(bench->cache), 1);
    assert_int_equal(plan_wait(busy, NULL, &err), OK);
    assert_true(plan_cache_oldest(bench->cache) <= log_clock_ms());
    assert_true(plan_cache_drop_oldest(bench->cache));
    assert_false(plan_cache_drop_oldest(bench->cache));
    assert_int_equal(bench->device.held, 0);
}

/* As the windows of a large picture ask for it: each looks for a plan, and then runs it. */
static void measuring_goes_on_only_now_and_then(void **state)
{
    struct bench *bench = *state;
    struct error err = ERROR_INIT;
    unmeasured = true;
    for (int window = 0; window < 64; window++) {
        if (window == 48)
            unmeasured = false;
        prepare(bench, 0, 10);
        assert_int_equal(plan_wait(submit(bench, 0, 10), NULL, &err), OK);
    }
    assert_int_equal(made, 3); /* at 0, 16 and 32; not once a window, nor where nothing is left */
}

static void a_session_takes_its_plans_along(void **state)
{
    struct bench *bench = *state;
    prepare(bench, 0, 10);
    prepare(bench, 1, 10);
    struct plan *busy = submit(bench, 0, 11);
    assert_int_equal(plan_under_way(busy), 1);
    session_destroy(&bench->sessions[0]);
    assert_int_equal(bench->device.held, 10 * PLAN_COST);
    assert_true(there(bench, 1, 10));
    assert_false(session_empty(bench->sessions[1]));
    assert_true(session_trim(bench->sessions[1]));
    assert_true(session_empty(bench->sessions[1]));
}

static void the_usual_budget(void **state)
{
    (void)state;
    const uint64_t gib = UINT64_C(1) << 30;
    struct device_info info = {.type = DEVICE_CPU, .memory_total = 8 * gib, .memory_budget = gib};
    assert_int_equal(plan_cache_usual(&info), 2 * gib);
    info.memory_total = 64 * gib;
    assert_int_equal(plan_cache_usual(&info), 4 * gib);
    info.type = DEVICE_INTEGRATED;
    assert_int_equal(plan_cache_usual(&info), 4 * gib);
    info.type = DEVICE_SOFTWARE;
    assert_int_equal(plan_cache_usual(&info), gib / 8);
    info.type = DEVICE_DISCRETE;
    info.memory_budget = 10 * gib;
    assert_int_equal(plan_cache_usual(&info), 9 * gib);
    assert_int_equal(plan_cache_usual(&(struct device_info){.type = DEVICE_CPU}), UINT64_MAX);
}

/* ---- the arena of the CPU ---------------------------------------------------------------------------------------- */

struct net {
    struct param *params[2];
};

/* Two convolutions, so that there is something between input and output. */
static enum error_code build_net(const void *model, const struct session_shape *shape, struct graph *g,
                                 struct error *err)
{
    static const int channels[] = {3, 20, 3};
    const struct net *net = model;
    struct view x = graph_tensor(g, TENSOR_INPUT, shape->n, shape->h, shape->w, 1, &channels[0]);
    for (int i = 0; i < 2; i++) {
        struct view y =
            graph_tensor(g, i ? TENSOR_OUTPUT : TENSOR_TEMP, shape->n, shape->h, shape->w, 1, &channels[i + 1]);
        struct node *node = graph_node(g, OP_CONV2D, y);
        if (!node)
            break;
        node->in[OP_X] = x;
        node->param[OP_WEIGHT] = net->params[i];
        node->args.conv2d =
            (struct op_conv2d){.kernel = 3, .stride = 1, .pad = 1, .upsample = 1, .gain = 1, .scale = 1};
        x = y;
    }
    return graph_finish(g, err);
}

static void net_create(struct net *net)
{
    struct error err = ERROR_INIT;
    float weights[20 * 3 * 9];
    for (int i = 0; i < 20 * 3 * 9; i++)
        weights[i] = (float)(i * 29 % 53) / 100.0f - 0.25f;
    for (int i = 0; i < 2; i++)
        assert_int_equal(param_from_values(&net->params[i], weights, 20 * 3 * 9, &err), OK);
}

static struct device *open_cpu(const char *id)
{
    struct error err = ERROR_INIT;
    struct device *device;
    device_set_cpu_threads(2);
    assert_int_equal(device_open(&device, id, NULL, &err), OK);
    device_set_cpu_threads(0);
    return device;
}

static float *run_net(struct session *session, int h, int w)
{
    struct error err = ERROR_INIT;
    const struct session_shape shape = {.n = 1, .h = h, .w = w};
    float *in = malloc((size_t)(3 * h * w) * sizeof *in), *out = calloc((size_t)(3 * h * w), sizeof *out);
    assert_non_null(in);
    assert_non_null(out);
    for (int i = 0; i < 3 * h * w; i++)
        in[i] = (float)(i * 37 % 101) / 101.0f;
    if (session_run(session, &shape, (const float *const *)&in, &out, NULL, &err))
        fail_msg("%s", err.text);
    free(in);
    return out;
}

static const int shapes[][2] = {{40, 56}, {200, 310}, {17, 9}, {96, 300}};

/* Plans of several shapes in turns give what each gives on a handle of its own. */
static void shared_is_as_separate(const char *id)
{
    struct error err = ERROR_INIT;
    struct net net;
    struct session *session, *alone;
    net_create(&net);
    struct device *device = open_cpu(id);
    assert_int_equal(session_create(&session, device, PRECISION_AUTO, "net", build_net, &net, &err), OK);
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            struct device *own = open_cpu(id);
            assert_int_equal(session_create(&alone, own, PRECISION_AUTO, "net", build_net, &net, &err), OK);
            float *shared = run_net(session, shapes[i][0], shapes[i][1]),
                  *separate = run_net(alone, shapes[i][0], shapes[i][1]);
            assert_memory_equal(shared, separate, (size_t)(3 * shapes[i][0] * shapes[i][1]) * sizeof(float));
            if (i % 2)
                device_give_back(device, 0);
            free(shared);
            free(separate);
            session_destroy(&alone);
            device_forget_params(own, (const struct param *const *)net.params, 2);
            device_close(&own);
        }
    session_destroy(&session);
    device_close(&device);
    for (int i = 0; i < 2; i++)
        param_destroy(&net.params[i]);
}

static void plans_of_the_cpu_share(void **state)
{
    (void)state;
    shared_is_as_separate("cpu");
}

static void plans_of_the_reference_share(void **state)
{
    (void)state;
    shared_is_as_separate("reference");
}

static void one_arena_as_large_as_the_largest(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct net net;
    struct session *session;
    net_create(&net);
    struct device *device = open_cpu("cpu");
    assert_int_equal(session_create(&session, device, PRECISION_AUTO, "net", build_net, &net, &err), OK);
    free(run_net(session, 300, 300));
    const uint64_t one = device_held(device);
    for (int width = 100; width < 300; width += 10)
        free(run_net(session, 300, width));
    assert_true(device_held(device) < one + one / 4); /* twenty more */
    free(run_net(session, 900, 300));                 /* layers of a chain exist by bands of rows */
    assert_true(device_held(device) > one + one / 4);
    const uint64_t much = device_held(device);
    device_give_back(device, much);
    assert_int_equal(device_held(device), much);
    device_give_back(device, one / 2);
    assert_true(device_held(device) < one && device_held(device) > one / 4);
    device_give_back(device, 0);
    const uint64_t little = device_held(device);
    assert_true(little < one / 4);
    free(run_net(session, 300, 200));
    assert_true(device_held(device) > little + one / 3);
    session_trim(session);
    free(run_net(session, 20, 20));
    assert_true(device_held(device) < one / 2);
    struct device_info info;
    device_info(device, &info);
    assert_int_equal(info.memory_used, device_held(device));
    session_destroy(&session);
    device_forget_params(device, (const struct param *const *)net.params, 2);
    assert_int_equal(device_held(device), 0);
    device_close(&device);
    for (int i = 0; i < 2; i++)
        param_destroy(&net.params[i]);
}

/* What a step keeps from picture to picture counts, and goes before any plan. */
static void room_that_is_kept_counts(void **state)
{
    struct bench *bench = *state;
    size_t bytes = 15 * PLAN_COST, any = 1;
    plan_cache_set_budget(bench->cache, 30 * PLAN_COST, 1);
    void *room = device_take_room(&bench->device, &bytes);
    assert_non_null(room);
    prepare(bench, 0, 10);
    prepare(bench, 1, 10);
    assert_false(plan_cache_over(bench->cache)); /* who has it needs it: that is not for the next one */
    device_keep_room(&bench->device, room, bytes);
    assert_true(plan_cache_over(bench->cache));
    prepare(bench, 0, 5);
    assert_int_equal(plan_cache_count(bench->cache), 3);
    assert_false(plan_cache_over(bench->cache));
    assert_non_null(room = device_take_room(&bench->device, &any));
    assert_int_equal(any, 1); /* the one that was kept is gone */
    free(room);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_oldest_of_all_sessions_goes_first, setup, teardown),
        cmocka_unit_test_setup_teardown(the_budget_holds, setup, teardown),
        cmocka_unit_test_setup_teardown(many_small_ones_are_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(buffers_in_host_memory_are_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(room_that_is_kept_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(a_plan_under_way_stays, setup, teardown),
        cmocka_unit_test_setup_teardown(measuring_goes_on_only_now_and_then, setup, teardown),
        cmocka_unit_test_setup_teardown(a_session_takes_its_plans_along, setup, teardown),
        cmocka_unit_test(the_usual_budget),
        cmocka_unit_test(plans_of_the_cpu_share),
        cmocka_unit_test(plans_of_the_reference_share),
        cmocka_unit_test(one_arena_as_large_as_the_largest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
