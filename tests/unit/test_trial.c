/* The trial of a device's speed, and what becomes of one that fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/backend/fault.h"
#include "runtime/trial.h"

static struct device *open_with(const char *faults)
{
    struct device *device;
    assert_int_equal(fault_set(faults, NULL), OK);
    assert_int_equal(device_open(&device, "cpu", NULL, NULL), OK);
    return device;
}

/* Eight convolutions of 64 channels to 64, one from 3 and one to 3, over 32², 128² or 512² pixels. */
static void check(const struct trial *trial)
{
    const double least = 9 * (8 * 64 * 64 + 2 * 3 * 64) * 32 * 32 / 1e9;
    assert_true(trial->seconds > 0);
    if (trial->seconds < 0.01) /* it went on to the largest */
        assert_float_equal(trial->gmacs / least, 256, 1e-6);
    else if (trial->gmacs > 2 * least)
        assert_float_equal(trial->gmacs / least / (trial->gmacs > 17 * least ? 256 : 16), 1, 1e-6);
    else
        assert_float_equal(trial->gmacs / least, 1, 1e-6);
}

static void works(void **state)
{
    (void)state;
    struct device *device = open_with(NULL);
    struct trial trial;
    struct error err = ERROR_INIT;
    assert_int_equal(trial_run(device, PRECISION_FP32, &trial, &err), OK);
    check(&trial);
    assert_int_equal(device_held(device), 0); /* nothing stays */
    device_close(&device);
}

static void fails(void **state)
{
    (void)state;
    static const struct {
        const char *faults;
        enum error_code code;
    } cases[] = {{"no_memory@plan:1,plan=trial", ERROR_NO_MEMORY},
                 {"no_memory@run:1,plan=trial", ERROR_NO_MEMORY},
                 {"lost@run:1,plan=trial", ERROR_DEVICE_LOST},
                 {"lost@run:2,plan=trial", ERROR_DEVICE_LOST},
                 {"no_memory@plan:2,plan=trial", OK}}; /* the smaller one has told */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct device *device = open_with(cases[i].faults);
        struct trial trial;
        struct error err = ERROR_INIT;
        assert_int_equal(trial_run(device, PRECISION_FP32, &trial, &err), cases[i].code);
        assert_int_equal(trial.seconds > 0, cases[i].code == OK);
        device_close(&device);
    }
    assert_int_equal(fault_set(NULL, NULL), OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(works), cmocka_unit_test(fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
