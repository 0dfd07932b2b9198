/* SRVGGNetCompact without PReLU, of which tensors do not say with which activation it was trained: against values that
 * follow from its definition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/models/model.h"
#include "tests/common/checkpoint_writer.h"

#define COUNT 12 /* values of a 2×2 picture */

static struct device *device;

static int open_device(void **state)
{
    struct error err = ERROR_INIT;
    (void)state;
    if (device_open(&device, "reference", NULL, &err))
        fail_msg("%s", err.text);
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    device_close(&device);
    return 0;
}

/* A network that gives x + f(x - 0.5), f being the activation. With slopes it is a PReLU of those. */
static void run(const float *slopes, const struct model_settings *settings, const float *in, float *out)
{
    float identity[3 * 3 * 9] = {0};
    const float shift[3] = {-0.5f, -0.5f, -0.5f}, none[3] = {0};
    for (int c = 0; c < 3; c++)
        identity[(c * 3 + c) * 9 + 4] = 1;
    const struct checkpoint_tensor tensors[] = {{"body.0.weight", 4, {3, 3, 3, 3}, identity},
                                                {"body.0.bias", 1, {3}, shift},
                                                {"body.2.weight", 4, {3, 3, 3, 3}, identity},
                                                {"body.2.bias", 1, {3}, none},
                                                {"body.1.weight", 1, {3}, slopes}};
    struct checkpoint_buffer file = {0};
    struct model *model;
    struct session *session;
    struct error err = ERROR_INIT;
    checkpoint_safetensors(&file, tensors, slopes ? 5 : 4, CHECKPOINT_F32);
    if (model_open_memory(&model, "srvgg", file.data, file.size, settings, &err))
        fail_msg("%s", err.text);
    assert_string_equal(model_info(model)->architecture, "SRVGGNetCompact");
    const struct session_shape shape = {.n = 1, .h = 2, .w = 2};
    if (model_session(&session, model, device, PRECISION_FP32, &err) ||
        session_run(session, &shape, &in, &out, NULL, &err))
        fail_msg("%s", err.text);
    session_destroy(&session);
    model_forget(model, device);
    model_close(&model);
    checkpoint_free(&file);
}

static void check(const float *slopes, const struct model_settings *settings, const float slope[3])
{
    float in[COUNT], out[COUNT];
    for (int i = 0; i < COUNT; i++)
        in[i] = (float)i / 10;
    run(slopes, settings, in, out);
    for (int i = 0; i < COUNT; i++) {
        float x = in[i] - 0.5f;
        assert_float_equal(out[i], in[i] + (x < 0 ? slope[i / 4] * x : x), 1e-6);
    }
}

static void test_activations(void **state)
{
    static const float own[3] = {0.5f, -0.25f, 0};
    static const struct model_settings relu = {.activation = ACTIVATION_RELU}, leaky = {.activation = ACTIVATION_LEAKY},
                                       steep = {.activation = ACTIVATION_LEAKY, .activation_slope = 0.3f};
    (void)state;
    check(NULL, NULL, (float[]){0, 0, 0});
    check(NULL, &relu, (float[]){0, 0, 0});
    check(NULL, &leaky, (float[]){0.1f, 0.1f, 0.1f});
    check(NULL, &steep, (float[]){0.3f, 0.3f, 0.3f});
    check(own, &leaky, own); /* what the tensors say counts */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_activations)};
    return cmocka_run_group_tests(tests, open_device, close_device);
}
