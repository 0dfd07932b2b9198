/* The networks in their official sizes, with random weights, on the CPU device with each instruction set against the
 * oracle: rounding errors grow with a network's depth and width. It is for `make check-long` (RESTORED_FULL), since the
 * oracle takes minutes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/models/model.h"
#include "runtime/models/model_random.h"
#include "tests/common/worst.h"

#define TOLERANCE 1e-4 /* of the output's range: a tenth of what is asked for */

static const struct full {
    const char *name; /* in model_random */
    int side;         /* of the input: as small as lets every layer work as it does on a picture */
    float low, high;  /* of the input */
} networks[] = {
    {"rrdbnet_x4", 48, 0, 1}, {"srvgg_x4_32", 64, 0, 1},          {"gfpgan", 512, -1, 1},
    {"parsenet", 256, -1, 1}, {"retinaface_r50", 224, -120, 140}, {"retinaface_mobilenet", 320, -120, 140},
};

#define OUTPUTS 3

static float *outputs_create(const struct model *model, const struct session_shape *shape, int i, size_t *count)
{
    int dims[4];
    model_output_shape(model, shape, i, dims);
    *count = (size_t)dims[0] * (size_t)dims[1] * (size_t)dims[2] * (size_t)dims[3];
    float *out = calloc(*count, sizeof *out);
    assert_non_null(out);
    return out;
}

/* False if the device does not work with that instruction set (NULL: any). */
static bool run(const struct model *model, const char *device_id, const char *set, const struct session_shape *shape,
                const float *input, float *outputs[OUTPUTS])
{
    struct error err = ERROR_INIT;
    struct device *device;
    struct session *session;
    const float *inputs[1] = {input};
    struct device_info info;
    if (device_open(&device, device_id, NULL, &err))
        fail_msg("%s", err.text);
    device_info(device, &info);
    const bool does = !set || strncmp(info.driver, set, strlen(set)) == 0;
    if (does) {
        if (model_session(&session, model, device, PRECISION_FP32, &err) ||
            session_run(session, shape, inputs, outputs, NULL, &err))
            fail_msg("%s", err.text);
        session_destroy(&session);
        model_forget(model, device);
    }
    device_close(&device);
    return does;
}

static double error_of(const float *got, const float *wanted, size_t count)
{
    double worst = 0, low = wanted[0], high = wanted[0];
    for (size_t i = 0; i < count; i++) {
        const double e = fabs((double)got[i] - wanted[i]);
        if (!(e <= worst))
            worst = e; /* also NaN */
        low = fmin(low, wanted[i]);
        high = fmax(high, wanted[i]);
    }
    assert_true(high > low && isfinite(high - low));
    return worst / (high - low);
}

static void test_network(void **state)
{
    static const char *const sets[] = {"base", "avx2", "avx512"};
    const struct full *n = *state;
    struct error err = ERROR_INIT;
    struct model *model;
    uint8_t *file;
    size_t size;
    if (!getenv("RESTORED_FULL")) {
        printf("skip: the networks in their official sizes are for `make check-long`\n");
        skip();
    }
    if (model_random_file(n->name, &file, &size, &err) || model_open_memory(&model, n->name, file, size, NULL, &err))
        fail_msg("%s", err.text);
    const struct session_shape shape = {.n = 1, .h = n->side, .w = n->side, .variant = MODEL_NOISE_STORED};
    const int count = model_info(model)->output_count;
    size_t values = 3 * (size_t)n->side * (size_t)n->side, sizes[OUTPUTS];
    float *input = malloc(values * sizeof *input), *wanted[OUTPUTS], *got[OUTPUTS];
    assert_true(input && count <= OUTPUTS);
    uint32_t random = 1;
    for (size_t i = 0; i < values; i++) {
        random = random * 1664525u + 1013904223u;
        input[i] = n->low + (n->high - n->low) * (float)(random >> 8) / 16777216.0f;
    }
    for (int i = 0; i < count; i++) {
        wanted[i] = outputs_create(model, &shape, i, &sizes[i]);
        got[i] = outputs_create(model, &shape, i, &sizes[i]);
    }
    run(model, "reference", NULL, &shape, input, wanted);
    for (size_t s = 0; s < sizeof sets / sizeof sets[0]; s++) {
        double worst = 0;
        setenv("RESTORED_CPU_ISA", sets[s], 1);
        if (!run(model, "cpu", sets[s], &shape, input, got))
            continue; /* the processor lacks it */
        for (int i = 0; i < count; i++)
            worst = worst_of(worst, error_of(got[i], wanted[i], sizes[i]));
        printf("    %-22s %d×%d on %-7s largest error %.2g of the range\n", n->name, n->side, n->side, sets[s], worst);
        assert_true(worst <= TOLERANCE);
    }
    unsetenv("RESTORED_CPU_ISA");
    for (int i = 0; i < count; i++) {
        free(wanted[i]);
        free(got[i]);
    }
    free(input);
    model_close(&model);
    free(file);
}

int main(void)
{
    enum { COUNT = sizeof networks / sizeof networks[0] };
    struct CMUnitTest tests[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        tests[i] = (struct CMUnitTest){networks[i].name, test_network, NULL, NULL, (void *)(uintptr_t)&networks[i]};
    return cmocka_run_group_tests_name("full-size networks", tests, NULL, NULL);
}
