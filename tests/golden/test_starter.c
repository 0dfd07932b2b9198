/* The starter models, and networks of others for which there are no goldens elsewhere, against PyTorch's definitions of
 * them: `python3 -m models.training.goldens` leaves inputs and outputs in build/starter-goldens, and with the options
 * that networks_other.py tells, in build/other-networks beside weights of its own (this needs PyTorch, so neither CI
 * nor `make check` does it). RESTORED_TEST_DEVICE limits it to one device; RESTORED_STARTER names another folder of
 * models. */
#include <dirent.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>

#include <cmocka.h>

#include "runtime/models/damage_cut.h"
#include "runtime/models/model.h"
#include "tests/common/npy.h"

#define STARTER_TOLERANCE 1e-5 /* of the output's range */
#define OTHERS_TOLERANCE 3e-5  /* nobody trained these: what is rounded counts for more */

static void compare_outputs(const struct model *model, const char *goldens, const char *name, const char *device,
                            float *outputs[], const struct session_shape *shape, double tolerance)
{
    for (int i = 0; i < model_info(model)->output_count; i++) {
        char path[512];
        struct npy wanted;
        int dims[4];
        snprintf(path, sizeof path, "%s/%s.out%d.npy", goldens, name, i);
        assert_true(npy_load(path, &wanted));
        model_output_shape(model, shape, i, dims);
        assert_int_equal(wanted.rank, 4);
        for (int k = 0; k < 4; k++)
            assert_int_equal(wanted.shape[k], dims[k]);
        const float *w = wanted.data;
        double worst = 0, low = w[0], high = w[0];
        for (size_t k = 0; k < wanted.count; k++) {
            double e = fabs((double)outputs[i][k] - w[k]);
            if (!(e <= worst))
                worst = e; /* also NaN */
            low = fmin(low, w[k]);
            high = fmax(high, w[k]);
        }
        printf("    %-28s output %d %-10s max %.3g of range %.3g\n", name, i, device, worst, high - low);
        assert_true(high > low && worst <= tolerance * (high - low));
        npy_free(&wanted);
    }
}

/* The context of a damage detector's whole picture, cut to the whole picture. */
static float *make_context(const struct model *model, struct session *session, const struct session_shape *picture,
                           const float *in)
{
    struct session_shape shape = *picture;
    struct error err = ERROR_INIT;
    int d[4];
    shape.variant = MODEL_DAMAGE_CONTEXT;
    model_output_shape(model, &shape, 0, d);
    float *features = calloc((size_t)d[1] * (size_t)d[2] * (size_t)d[3], sizeof *features);
    float *out = calloc((size_t)d[1] * (size_t)(shape.h / 8) * (size_t)(shape.w / 8), sizeof *out);
    if (session_run(session, &shape, &in, &features, NULL, &err))
        fail_msg("%s", err.text);
    const struct damage_cut cut = {.context = features,
                                   .channels = d[1],
                                   .height = d[2],
                                   .width = d[3],
                                   .rows = shape.h / 8,
                                   .columns = shape.w / 8,
                                   .w = shape.w / 8,
                                   .h = shape.h / 8};
    assert_true(damage_cut(&cut, out));
    free(features);
    return out;
}

static void compare_model(const char *models, const char *goldens, const char *name, const char *device_id,
                          double tolerance)
{
    char path[512];
    struct error err = ERROR_INIT;
    struct model *model;
    struct device *device;
    struct session *session;
    struct npy in;
    snprintf(path, sizeof path, "%s/%s.pt", models, name);
    if (access(path, R_OK))
        snprintf(path, sizeof path, "%s/%s.safetensors", models, name);
    if (model_open(&model, path, NULL, &err) || device_open(&device, device_id, NULL, &err))
        fail_msg("%s", err.text);
    snprintf(path, sizeof path, "%s/%s.in.npy", goldens, name);
    assert_true(npy_load(path, &in));
    assert_int_equal(in.rank, 4);
    struct session_shape shape = {.n = (int)in.shape[0], .h = (int)in.shape[2], .w = (int)in.shape[3]};
    const float *inputs[2] = {in.data};
    float *outputs[4] = {0};
    for (int i = 0; i < model_info(model)->output_count; i++) {
        int d[4];
        model_output_shape(model, &shape, i, d);
        outputs[i] = calloc((size_t)d[0] * (size_t)d[1] * (size_t)d[2] * (size_t)d[3], sizeof(float));
    }
    float *context = NULL;
    if (model_session(&session, model, device, PRECISION_FP32, &err))
        fail_msg("%s", err.text);
    if (model_info(model)->context)
        inputs[1] = context = make_context(model, session, &shape, in.data);
    if (session_run(session, &shape, inputs, outputs, NULL, &err))
        fail_msg("%s", err.text);
    compare_outputs(model, goldens, name, device_id, outputs, &shape, tolerance);
    if (context) { /* both networks in one run; a picture this small is not reduced */
        assert_true(shape.h <= MODEL_DAMAGE_SIDE && shape.w <= MODEL_DAMAGE_SIDE);
        shape.variant = MODEL_DAMAGE_WHOLE;
        inputs[1] = in.data;
        if (session_run(session, &shape, inputs, outputs, NULL, &err))
            fail_msg("%s", err.text);
        compare_outputs(model, goldens, name, device_id, outputs, &shape, tolerance);
    }
    session_destroy(&session);
    model_forget(model, device);
    for (int i = 0; i < 4; i++)
        free(outputs[i]);
    free(context);
    npy_free(&in);
    device_close(&device);
    model_close(&model);
}

static void compare_folder(const char *models, const char *goldens, const char *how, double tolerance)
{
    static const char suffix[] = ".in.npy";
    DIR *folder = opendir(goldens);
    if (!folder) {
        printf("skip: no %s; make it with: %s\n", goldens, how);
        skip();
    }
    const char *only = getenv("RESTORED_TEST_DEVICE");
    int count = 0;
    for (struct dirent *e = readdir(folder); e; e = readdir(folder)) {
        size_t length = strlen(e->d_name);
        if (length <= strlen(suffix) || strcmp(e->d_name + length - strlen(suffix), suffix) != 0)
            continue;
        char name[256];
        snprintf(name, sizeof name, "%.*s", (int)(length - strlen(suffix)), e->d_name);
        if (only) {
            compare_model(models, goldens, name, only, tolerance);
        } else {
            compare_model(models, goldens, name, "reference", tolerance);
            compare_model(models, goldens, name, "cpu", tolerance);
        }
        count++;
    }
    closedir(folder);
    assert_true(count > 0);
}

static void test_starter(void **state)
{
    (void)state;
    const char *models = getenv("RESTORED_STARTER");
    compare_folder(models ? models : "models/starter", "build/starter-goldens", "python3 -m models.training.goldens",
                   STARTER_TOLERANCE);
}

static void test_others(void **state)
{
    (void)state;
    compare_folder("build/other-networks", "build/other-networks", "python3 -m models.training.networks_other",
                   OTHERS_TOLERANCE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_starter), cmocka_unit_test(test_others)};
    return cmocka_run_group_tests_name("starter", tests, NULL, NULL);
}
