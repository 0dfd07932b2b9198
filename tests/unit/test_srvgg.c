/* SRVGGNetCompact without PReLU, of which tensors do not say with which activation it was trained: against values that
 * follow from its definition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "server/pipeline/model_store_private.h"
#include "tests/common/checkpoint_writer.h"
#include "tests/common/models.h"

#define COUNT 12 /* values of a 2×2 picture */

static struct device *device;

static int open_device(void **state)
{
    struct error err = ERROR_INIT;
    (void)state;
    log_set_level(LOG_ERROR);
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

/* A network that gives x + f(x - 0.5), f being the activation. With slopes it is a PReLU of those. metadata: what the
 * file says of its activation, or NULL. */
static void make(struct checkpoint_buffer *file, const float *slopes, const char *metadata)
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
    struct checkpoint_buffer plain = {0};
    checkpoint_safetensors(&plain, tensors, slopes ? 5 : 4, CHECKPOINT_F32);
    static const char begin[] = "{\"__metadata__\":{";
    char line[128] = "";
    if (metadata)
        snprintf(line, sizeof line, "\"activation\":\"%s\",", metadata);
    uint64_t header;
    memcpy(&header, plain.data, 8); /* tests run on little-endian machines */
    checkpoint_put_le(file, header + strlen(line), 8);
    checkpoint_put(file, begin, strlen(begin));
    checkpoint_put(file, line, strlen(line));
    checkpoint_put(file, plain.data + 8 + strlen(begin), plain.size - 8 - strlen(begin));
    checkpoint_free(&plain);
}

static void run(const struct model *model, const float *in, float *out)
{
    struct session *session;
    struct error err = ERROR_INIT;
    assert_string_equal(model_info(model)->architecture, "SRVGGNetCompact");
    const struct session_shape shape = {.n = 1, .h = 2, .w = 2};
    if (model_session(&session, model, device, PRECISION_FP32, &err) ||
        session_run(session, &shape, &in, &out, NULL, &err))
        fail_msg("%s", err.text);
    session_destroy(&session);
    model_forget(model, device);
}

/* That negative values are multiplied by slope, which each channel has. */
static void check_model(const struct model *model, const float slope[3])
{
    float in[COUNT], out[COUNT];
    for (int i = 0; i < COUNT; i++)
        in[i] = (float)i / 10;
    run(model, in, out);
    for (int i = 0; i < COUNT; i++) {
        float x = in[i] - 0.5f;
        assert_float_equal(out[i], in[i] + (x < 0 ? slope[i / 4] * x : x), 1e-6);
    }
}

static void check_said(const float *slopes, const char *metadata, const struct model_settings *settings,
                       const float slope[3])
{
    struct checkpoint_buffer file = {0};
    struct model *model;
    struct error err = ERROR_INIT;
    make(&file, slopes, metadata);
    if (model_open_memory(&model, "srvgg", file.data, file.size, settings, &err))
        fail_msg("%s", err.text);
    check_model(model, slope);
    model_close(&model);
    checkpoint_free(&file);
}

static void check(const float *slopes, const struct model_settings *settings, const float slope[3])
{
    check_said(slopes, NULL, settings, slope);
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

static void test_metadata(void **state)
{
    static const struct model_settings relu = {.activation = ACTIVATION_RELU};
    static const float own[3] = {0.5f, -0.25f, 0};
    struct checkpoint_buffer file = {0};
    struct model *model;
    struct error err = ERROR_INIT;
    (void)state;
    check_said(NULL, "relu", NULL, (float[]){0, 0, 0});
    check_said(NULL, "leakyrelu", NULL, (float[]){0.1f, 0.1f, 0.1f});
    check_said(NULL, "leakyrelu:0.25", NULL, (float[]){0.25f, 0.25f, 0.25f});
    check_said(NULL, "leakyrelu:0.25", &relu, (float[]){0, 0, 0}); /* the settings go before */
    check_said(NULL, "swish", &relu, (float[]){0, 0, 0});
    check_said(own, "swish", NULL, own); /* and the tensors before all */
    make(&file, NULL, "swish");
    assert_int_equal(model_open_memory(&model, "srvgg", file.data, file.size, NULL, &err), ERROR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "its metadata has the activation \"swish\""));
    checkpoint_free(&file);
}

static void put_conf(const char *folder, const char *text)
{
    char path[96];
    struct error err = ERROR_INIT;
    snprintf(path, sizeof path, "%s/models.conf", folder);
    assert_int_equal(file_write(path, text, strlen(text), &err), OK);
}

/* As the store opens it now, of which no look is owed for a second. */
static void check_stored(struct model_store *store, float slope)
{
    const struct model *model;
    struct error err = ERROR_INIT;
    store->looked_ns = 0;
    const struct model_entry *entry = models_resolve(store, ROLE_UPSCALER, "up");
    if (model_store_hold(&model, entry, &err))
        fail_msg("%s", err.text);
    check_model(model, (float[]){slope, slope, slope});
    model_store_release(entry);
}

/* A models.conf of the user's in the folder of his models, there from the beginning or later. */
static void test_conf(void **state)
{
    char folder[] = "/tmp/test_srvgg.XXXXXX", path[96], command[64];
    struct checkpoint_buffer file = {0};
    (void)state;
    assert_non_null(mkdtemp(folder));
    make(&file, NULL, "leakyrelu:0.25");
    snprintf(path, sizeof path, "%s/up.safetensors", folder);
    assert_true(checkpoint_save(&file, path));
    checkpoint_free(&file);
    put_conf(folder, "# mine\n[other]\nactivation = leakyrelu:0.75\n\n[model up]\nactivation = leakyrelu:0.5\n");
    struct model_store *store = models_of(folder, NULL);
    check_stored(store, 0.5f);
    put_conf(folder, "[up]\nactivation = relu\n");
    check_stored(store, 0);
    put_conf(folder, "[up]\nactivation = leakyrelu\n");
    check_stored(store, 0.1f);
    static const char *const refused[] = {"[up]\nactivation = swish\n",
                                          "[up]\nactivation = leakyrelu:\n",
                                          "[up]\nactivation = leakyrelu:2\n",
                                          "[up]\nactivation = leakyrelu:nan\n",
                                          "[up]\nsha256 = 12\n",
                                          "[up]\ndefault = true\n"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) { /* none of it is used */
        put_conf(folder, refused[i]);
        check_stored(store, 0.25f);
    }
    snprintf(path, sizeof path, "%s/models.conf", folder);
    assert_int_equal(remove(path), 0);
    check_stored(store, 0.25f);
    model_store_destroy(&store);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_activations), cmocka_unit_test(test_metadata),
                                       cmocka_unit_test(test_conf)};
    return cmocka_run_group_tests(tests, open_device, close_device);
}
