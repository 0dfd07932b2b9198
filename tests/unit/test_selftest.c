/* The self-test: its stored answers against the oracle, that devices which work pass it, and that each way to be wrong
 * is found: a device of ours lies in the way that a case says. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/backend/fault.h"
#include "runtime/selftest.h"

/* --- a device that lies: the oracle, with results spoilt -----------------------------------------------------------
 */

enum lie { HONEST, OFF_BY_SOME, ONE_VALUE, NOT_A_NUMBER, FLAT, UNWRITTEN, REFUSES, IS_LOST, COARSE_FP16 };

static struct backend liar;
static struct {
    enum lie in_sum, in_network, in_fp16; /* when the lie is told */
    enum lie beside;                      /* of what a plan of fp16 computes in fp32 */
    bool fp16;                            /* it has fp16 */
    int plans, packed;                    /* plans there are, and calls of forget_params */
} lies;
static enum precision precision_asked;
static bool fp32_asked; /* of the tensors */

static enum error_code liar_plan_create(struct plan **out, struct device *device, const struct graph *graph,
                                        enum precision precision, const char *name, struct error *err)
{
    precision_asked = precision;
    fp32_asked = graph->tensors[0].fp32;
    enum error_code code = cpu_ref_backend.plan_create(out, device, graph, PRECISION_FP32, name, err);
    if (!code) {
        (*out)->backend = &liar;
        lies.plans++;
    }
    return code;
}

static void liar_plan_destroy(struct plan *plan)
{
    lies.plans--;
    cpu_ref_backend.plan_destroy(plan);
}

static enum error_code liar_plan_run(struct plan *plan, const float *const *inputs, float *const *outputs,
                                     const struct run_options *options, struct error *err)
{
    const bool sum = inputs[0][0] == 1;
    const int count = sum ? 4 : 96;
    const enum lie lie = sum                                 ? lies.in_sum
                         : precision_asked != PRECISION_FP16 ? lies.in_network
                         : fp32_asked                        ? lies.beside
                                                             : lies.in_fp16;
    float *y = outputs[0];
    if (lie == REFUSES)
        return error_set(err, ERROR_DEVICE, "it does not want to");
    if (lie == IS_LOST)
        return error_set(err, ERROR_DEVICE_LOST, "it is gone");
    if (lie == UNWRITTEN)
        return OK;
    enum error_code code = cpu_ref_backend.plan_run(plan, inputs, outputs, options, err);
    for (int i = 0; i < count; i++)
        switch (lie) {
        case OFF_BY_SOME:
            y[i] *= 1.001f;
            break;
        case FLAT:
            y[i] = 0;
            break;
        case COARSE_FP16:
            y[i] = rintf(y[i] * 2) / 2; /* a few bits */
            break;
        default:
            break;
        }
    if (lie == ONE_VALUE)
        y[count - 1] += 0.01f;
    if (lie == NOT_A_NUMBER)
        y[count / 2] = NAN;
    return code;
}

static void liar_info(const struct device *device, struct device_info *out)
{
    cpu_ref_backend.info(device, out);
    out->fp16 = lies.fp16;
    out->preferred = lies.fp16 ? PRECISION_FP16 : PRECISION_FP32;
}

static void liar_forget(struct device *device, const struct param *const *params, size_t count)
{
    assert_int_equal(lies.plans, 0);
    assert_true(count > 0);
    lies.packed++;
    cpu_ref_backend.forget_params(device, params, count);
}

static struct selftest test_liar(enum lie in_sum, enum lie in_network, bool fp16, enum lie in_fp16)
{
    struct device *device;
    struct selftest result;
    assert_int_equal(device_open(&device, "reference", NULL, NULL), OK);
    liar = cpu_ref_backend;
    liar.plan_create = liar_plan_create;
    liar.plan_destroy = liar_plan_destroy;
    liar.plan_run = liar_plan_run;
    liar.info = liar_info;
    liar.forget_params = liar_forget;
    device->backend = &liar;
    lies.in_sum = in_sum;
    lies.in_network = in_network;
    lies.in_fp16 = in_fp16;
    lies.fp16 = fp16;
    selftest_device(device, &result);
    assert_int_equal(lies.plans, 0);
    device_close(&device);
    return result;
}

/* --- the cases -----------------------------------------------------------------------------------------------------
 */

/* The answers come from PyTorch in float64, the oracle is plain C: the two share nothing but the formulas. */
static void the_oracle_gives_the_stored_answers(void **state)
{
    (void)state;
    struct selftest result;
    selftest_run("reference", NULL, &result);
    print_message("reference: error %.2g, %.1f ms\n", result.fp32.max_error, result.ms);
    assert_int_equal(result.fp32.state, SELFTEST_PASSED);
    assert_true(result.fp32.max_error < 2e-6); /* rounding to float32 at each operator */
    assert_int_equal(result.fp16.state, SELFTEST_NOT_RUN);
    assert_string_equal(result.fp16.reason, "the oracle computes in fp32");
}

static void every_device_here_passes(void **state)
{
    (void)state;
    struct device_info *list;
    size_t count;
    assert_int_equal(device_list(&list, &count, NULL), OK);
    for (size_t i = 0; i < count; i++) {
        struct selftest result;
        selftest_run(list[i].id, NULL, &result);
        print_message("%s: fp32 %s, error %.2g; fp16 %s, error %.2g; %.1f ms\n", list[i].id,
                      selftest_state_name(result.fp32.state), result.fp32.max_error,
                      selftest_state_name(result.fp16.state), result.fp16.max_error, result.ms);
        if (!list[i].usable) {
            assert_int_equal(result.fp32.state, SELFTEST_FAILED);
            continue;
        }
        assert_int_equal(result.fp32.state, SELFTEST_PASSED);
        assert_string_equal(result.fp32.reason, "");
        assert_true(result.fp32.max_error < 1e-5);
        assert_int_equal(result.fp16.state, list[i].fp16 ? SELFTEST_PASSED : SELFTEST_NOT_RUN);
        assert_true(list[i].fp16 ? result.fp16.max_error > 1e-6 : result.fp16.max_error == 0);
        assert_true(result.ms > 0);
        struct device *device;
        struct device_info info;
        assert_int_equal(device_open(&device, list[i].id, NULL, NULL), OK);
        device_info(device, &info);
        assert_int_equal(info.preferred, list[i].preferred); /* nothing was found against it */
        device_close(&device);
    }
    free(list);
}

static void an_honest_device_passes(void **state)
{
    (void)state;
    struct selftest result = test_liar(HONEST, HONEST, true, HONEST);
    assert_int_equal(result.fp32.state, SELFTEST_PASSED);
    assert_int_equal(result.fp16.state, SELFTEST_PASSED);
    assert_string_equal(result.fp16.reason, "");
    assert_int_equal(lies.packed, 2); /* of each network */
}

static void every_lie_is_found(void **state)
{
    (void)state;
    static const struct {
        enum lie lie;
        const char *reason;
    } found[] = {
        {OFF_BY_SOME, "is off by 0.0006"}, {ONE_VALUE, "is off by 0.0012"},
        {FLAT, "is off by 0.62"},          {NOT_A_NUMBER, "gave values that are not numbers"},
        {UNWRITTEN, "not numbers"},        {REFUSES, "the small network could not be run: it does not want to"},
        {IS_LOST, "it is gone"},
    };
    for (size_t i = 0; i < sizeof found / sizeof *found; i++) {
        struct selftest result = test_liar(HONEST, found[i].lie, true, HONEST);
        if (result.fp32.state != SELFTEST_FAILED || !strstr(result.fp32.reason, found[i].reason))
            fail_msg("lie %d: %s: %s", (int)found[i].lie, selftest_state_name(result.fp32.state), result.fp32.reason);
        assert_int_equal(result.fp16.state, SELFTEST_NOT_RUN);
        assert_string_equal(result.fp16.reason, "fp32 failed");
    }
    struct selftest nan = test_liar(HONEST, NOT_A_NUMBER, false, HONEST);
    assert_true(isinf(nan.fp32.max_error));
    struct selftest sum = test_liar(OFF_BY_SOME, HONEST, true, HONEST);
    assert_int_equal(sum.fp32.state, SELFTEST_FAILED);
    assert_string_equal(sum.fp32.reason, "1+2 is off by 0.001 of its range; allowed is 0.0001");
}

static void wrong_fp16_leaves_fp32(void **state)
{
    (void)state;
    const enum lie found[] = {COARSE_FP16, NOT_A_NUMBER, FLAT, REFUSES};
    for (size_t i = 0; i < sizeof found / sizeof *found; i++) {
        struct selftest result = test_liar(HONEST, HONEST, true, found[i]);
        assert_int_equal(result.fp32.state, SELFTEST_PASSED);
        assert_int_equal(result.fp16.state, SELFTEST_FAILED);
        assert_non_null(strstr(result.fp16.reason, "in fp16"));
    }
    /* what is within fp16's bound and far from fp32's */
    assert_int_equal(test_liar(HONEST, HONEST, true, OFF_BY_SOME).fp16.state, SELFTEST_PASSED);
}

static void fp32_beside_fp16_has_the_bound_of_fp32(void **state)
{
    (void)state;
    lies.beside = OFF_BY_SOME;
    struct selftest result = test_liar(HONEST, HONEST, true, HONEST);
    lies.beside = HONEST;
    assert_int_equal(result.fp32.state, SELFTEST_PASSED);
    assert_int_equal(result.fp16.state, SELFTEST_FAILED);
    assert_non_null(strstr(result.fp16.reason, "in fp32 beside fp16 is off by"));
}

/* --- what follows from it ------------------------------------------------------------------------------------------
 */

static void a_device_is_used_as_it_was_judged(void **state)
{
    (void)state;
    struct device *device, *open;
    struct device_info info, *list;
    struct error err = ERROR_INIT;
    size_t count;
    assert_int_equal(device_open(&open, "cpu", NULL, NULL), OK);
    device_judge("cpu", NULL, "its fp16 failed");
    device_info(open, &info);
    assert_false(info.fp16);
    assert_int_equal(info.preferred, PRECISION_FP32);
    assert_string_equal(info.precision_reason, "its fp16 failed");

    device_judge("cpu", "it cannot add", NULL);
    assert_int_equal(device_open(&device, "cpu", NULL, &err), ERROR_DEVICE);
    assert_non_null(strstr(err.text, "cannot be used: it cannot add"));
    assert_int_equal(device_list(&list, &count, NULL), OK);
    for (size_t i = 0; i < count; i++)
        if (!strcmp(list[i].id, "cpu"))
            assert_false(list[i].usable);
    free(list);
    device_close(&open);

    struct selftest result;
    selftest_run("cpu", NULL, &result); /* tests it anew */
    assert_int_equal(result.fp32.state, SELFTEST_PASSED);
    assert_int_equal(device_open(&device, "cpu", NULL, NULL), OK);
    device_close(&device);
}

/* "off by inf" says nothing to anybody. */
static void values_that_are_no_numbers_are_called_so(void **state)
{
    (void)state;
    struct device *device;
    struct device_info info;
    struct selftest result;
    assert_int_equal(fault_set("fp16,device=cpu nan@run:1,repeat,device=cpu,plan=selftest,precision=fp16", NULL), OK);
    selftest_run("cpu", NULL, &result);
    assert_int_equal(result.fp32.state, SELFTEST_PASSED);
    assert_int_equal(result.fp16.state, SELFTEST_FAILED);
    assert_int_equal(device_open(&device, "cpu", NULL, NULL), OK);
    device_info(device, &info);
    assert_string_equal(info.precision_reason, "its fp16 failed the self-test: it gave values that are not numbers");
    device_close(&device);
    assert_int_equal(fault_set(NULL, NULL), OK);
    device_judge("cpu", NULL, NULL);
}

static void a_device_that_is_not_there_has_failed(void **state)
{
    (void)state;
    struct selftest result;
    selftest_run("vulkan:99", NULL, &result);
    assert_int_equal(result.fp32.state, SELFTEST_FAILED);
    assert_non_null(strstr(result.fp32.reason, "there is no device \"vulkan:99\""));
}

/* AUTO on a device whose fp16 is wrong is fp32; fp16 by name is refused with what was found. */
static void auto_is_fp32_where_fp16_is_wrong(void **state)
{
    (void)state;
    struct device *device;
    struct graph *graph;
    struct plan *plan;
    struct error err = ERROR_INIT;
    assert_int_equal(device_open(&device, "reference", NULL, NULL), OK);
    liar = cpu_ref_backend;
    liar.plan_create = liar_plan_create;
    liar.plan_destroy = liar_plan_destroy;
    liar.info = liar_info;
    lies.fp16 = true;
    device->backend = &liar;
    assert_int_equal(graph_create(&graph, NULL), OK);
    const struct view x = graph_tensor(graph, TENSOR_INPUT, 1, 1, 1, 1, (const int[]){1});
    struct node *add = graph_node(graph, OP_ADD, graph_tensor(graph, TENSOR_OUTPUT, 1, 1, 1, 1, (const int[]){1}));
    add->in[OP_X] = add->in[OP_RESIDUAL1] = x;
    assert_int_equal(graph_finish(graph, NULL), OK);

    assert_int_equal(plan_create(&plan, device, graph, PRECISION_AUTO, "t", NULL), OK);
    assert_int_equal(precision_asked, PRECISION_FP16);
    plan_destroy(&plan);
    device_judge("reference", NULL, "its fp16 failed the self-test, off by 0.3");
    assert_int_equal(plan_create(&plan, device, graph, PRECISION_AUTO, "t", NULL), OK);
    assert_int_equal(precision_asked, PRECISION_FP32);
    plan_destroy(&plan);
    assert_int_equal(plan_create(&plan, device, graph, PRECISION_FP16, "t", &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "its fp16 failed the self-test, off by 0.3; use precision fp32 or auto"));
    device_judge("reference", NULL, NULL);
    graph_destroy(&graph);
    device_close(&device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_oracle_gives_the_stored_answers),
        cmocka_unit_test(every_device_here_passes),
        cmocka_unit_test(an_honest_device_passes),
        cmocka_unit_test(every_lie_is_found),
        cmocka_unit_test(wrong_fp16_leaves_fp32),
        cmocka_unit_test(fp32_beside_fp16_has_the_bound_of_fp32),
        cmocka_unit_test(a_device_is_used_as_it_was_judged),
        cmocka_unit_test(values_that_are_no_numbers_are_called_so),
        cmocka_unit_test(a_device_that_is_not_there_has_failed),
        cmocka_unit_test(auto_is_fp32_where_fp16_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
