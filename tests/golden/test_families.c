/* Networks of the families that people have, tiny and with random weights, against what PyTorch makes of a picture
 * (models/training/goldens_families.py): on the oracle and on every device, in fp32 and, where the device has it, fp16.
 * Each file of tests/golden/families is a checkpoint as its authors' programs write it, with the tensors golden.in and
 * golden.out; those of an ncnn model are in NAME.golden beside it. RESTORED_TEST_DEVICE limits it to one device. */
#include <dirent.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#include "runtime/models/model.h"
#include "tests/common/checkpoint_writer.h"

#define FAMILIES "tests/golden/families"
#define FAMILIES_TOLERANCE 5e-6 /* of the output's range, in fp32 */

static struct device *devices[8];
static struct device_info infos[8];
static int device_count;

static void families_device(const char *id)
{
    const char *only = getenv("RESTORED_TEST_DEVICE");
    struct error err = ERROR_INIT;
    if (device_count == 8 || (only && strcmp(only, id) != 0))
        return;
    if (device_open(&devices[device_count], id, NULL, &err))
        fail_msg("%s: %s", id, err.text);
    device_info(devices[device_count], &infos[device_count]);
    device_count++;
}

static int families_open(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct device_info *list;
    size_t count;
    setenv("RESTORED_VULKAN_VALIDATION", "1", 0);
    families_device("reference");
    if (device_list(&list, &count, &err))
        fail_msg("%s", err.text);
    for (size_t i = 0; i < count; i++)
        if (list[i].usable)
            families_device(list[i].id);
    free(list);
    return 0;
}

static int families_close(void **state)
{
    (void)state;
    while (device_count)
        device_close(&devices[--device_count]);
    return 0;
}

static float *families_tensor(const struct weights *weights, const char *name, int rank4[4])
{
    const struct weights_tensor *t = weights_find(weights, name);
    assert_non_null(t);
    assert_int_equal(t->rank, 4);
    for (int i = 0; i < 4; i++)
        rank4[i] = (int)t->shape[i];
    float *values = malloc(t->count * sizeof *values);
    assert_non_null(values);
    weights_read_f32(t, values);
    return values;
}

/* The largest error is printed as a part of the wanted output's range. fp16: mean 1e-3, at most 1e-2. */
static void families_compare(const char *name, int d, enum precision precision, const float *got, const float *wanted,
                             size_t count)
{
    double worst = 0, sum = 0, low = wanted[0], high = wanted[0];
    for (size_t i = 0; i < count; i++) {
        const double e = fabs((double)got[i] - wanted[i]);
        worst = e <= worst ? worst : e; /* also NaN */
        sum += e;
        low = fmin(low, wanted[i]);
        high = fmax(high, wanted[i]);
    }
    const double range = high - low, mean = sum / (double)count;
    printf("    %-32s %-10s %s max %.2g mean %.2g of the range\n", name, infos[d].id,
           precision == PRECISION_FP16 ? "fp16" : "fp32", worst / range, mean / range);
    assert_true(range > 0);
    if (precision == PRECISION_FP16)
        assert_true(mean <= 1e-3 * range && worst <= 1e-2 * range);
    else
        assert_true(worst <= FAMILIES_TOLERANCE * range);
}

static void families_run(const struct model *model, const char *name, int d, enum precision precision, const float *in,
                         const int shape[4], int variant, const float *wanted, const int wanted_shape[4])
{
    struct error err = ERROR_INIT;
    struct session *session;
    const struct session_shape s = {.n = shape[0], .h = shape[2], .w = shape[3], .variant = variant};
    int out_shape[4];
    model_output_shape(model, &s, 0, out_shape);
    assert_memory_equal(out_shape, wanted_shape, sizeof out_shape);
    const size_t count = (size_t)out_shape[0] * (size_t)out_shape[1] * (size_t)out_shape[2] * (size_t)out_shape[3];
    float *out = calloc(count, sizeof *out);
    assert_non_null(out);
    if (model_session(&session, model, devices[d], precision, &err) || session_run(session, &s, &in, &out, NULL, &err))
        fail_msg("%s on %s: %s", name, infos[d].id, err.text);
    families_compare(name, d, precision, out, wanted, count);
    session_destroy(&session);
    model_forget(model, devices[d]);
    free(out);
}

/* The same with means that are found first, one after the other, as for a picture in tiles (enum model_means). */
static void families_pooled(const struct model *model, const char *name, int d, enum precision precision,
                            const float *in, const int shape[4], const float *wanted, const int wanted_shape[4])
{
    const struct model_info *info = model_info(model);
    struct error err = ERROR_INIT;
    struct session *session;
    const float *inputs[2 + MODEL_POOLS] = {in};
    float *means[MODEL_POOLS + 1] = {NULL};
    char shown[320];
    struct session_shape s = {.n = shape[0], .h = shape[2], .w = shape[3]};
    if (model_session(&session, model, devices[d], precision, &err))
        fail_msg("%s on %s: %s", name, infos[d].id, err.text);
    for (int k = 0; k <= info->pool_count; k++) {
        const struct model_pool *pool = &info->pools[k];
        const size_t pixels = k < info->pool_count ? (size_t)(shape[2] * pool->per4 / 4 + pool->margin) *
                                                         (size_t)(shape[3] * pool->per4 / 4 + pool->margin)
                                                   : 0;
        float *map = malloc((pixels + 1) * sizeof *map);
        int out[4];
        s.variant = MODEL_MEANS_FIRST + k;
        model_output_shape(model, &s, 0, out);
        means[k] = malloc((size_t)(out[0] * out[1] * out[2] * out[3]) * sizeof(float));
        assert_true(map && means[k]);
        for (size_t i = 0; i < pixels; i++)
            map[i] = 1;
        inputs[1 + k] = map;
        if (session_run(session, &s, inputs, &means[k], NULL, &err))
            fail_msg("%s on %s, mean %d: %s", name, infos[d].id, k, err.text);
        inputs[1 + k] = means[k];
        free(map);
    }
    snprintf(shown, sizeof shown, "%s, means first", name);
    families_compare(shown, d, precision, means[info->pool_count], wanted,
                     (size_t)(wanted_shape[0] * wanted_shape[1] * wanted_shape[2] * wanted_shape[3]));
    for (int k = 0; k <= info->pool_count; k++)
        free(means[k]);
    session_destroy(&session);
    model_forget(model, devices[d]);
}

/* What models.conf would say of the file: its tensors golden.noise_level and golden.jpeg_quality. */
static void families_settings(const char *path, struct model_settings *settings)
{
    struct error err = ERROR_INIT;
    struct weights *weights;
    if (weights_open(&weights, path, &err))
        fail_msg("%s", err.text);
    const struct weights_tensor *level = weights_find(weights, "golden.noise_level"),
                                *quality = weights_find(weights, "golden.jpeg_quality");
    settings->has_noise_level = level;
    settings->has_jpeg_quality = quality;
    if (level)
        weights_read_f32(level, &settings->noise_level);
    if (quality)
        weights_read_f32(quality, &settings->jpeg_quality);
    weights_close(&weights);
}

static void families_file(const char *name)
{
    struct model_settings settings = {0};
    struct error err = ERROR_INIT;
    struct model *model;
    struct weights *beside = NULL;
    char path[512], stem[256];
    int shape[4], wanted_shape[4];
    snprintf(path, sizeof path, FAMILIES "/%s", name);
    families_settings(path, &settings);
    if (model_open(&model, path, &settings, &err))
        fail_msg("%s", err.text);
    snprintf(stem, sizeof stem, "%.*s", (int)strcspn(name, "."), name);
    snprintf(path, sizeof path, FAMILIES "/%s.golden", stem);
    if (strcmp(weights_format(model_weights(model)), "ncnn") == 0 && weights_open(&beside, path, &err))
        fail_msg("%s", err.text);
    const struct weights *golden = beside ? beside : model_weights(model);
    float *in = families_tensor(golden, "golden.in", shape);
    for (int variant = 0; variant <= MODEL_FIDELITY; variant += MODEL_FIDELITY / 2) {
        char output[32], shown[300];
        snprintf(output, sizeof output, variant || model_info(model)->fidelity ? "golden.out.%d" : "golden.out",
                 variant);
        if (variant && !weights_find(golden, output))
            break;
        snprintf(shown, sizeof shown, "%s%s", stem, output + strlen("golden.out"));
        float *wanted = families_tensor(golden, output, wanted_shape);
        for (int d = 0; d < device_count; d++)
            for (enum precision p = PRECISION_FP32; p <= (infos[d].fp16 ? PRECISION_FP16 : PRECISION_FP32); p++) {
                families_run(model, shown, d, p, in, shape, variant, wanted, wanted_shape);
                if (model_info(model)->pool_count)
                    families_pooled(model, shown, d, p, in, shape, wanted, wanted_shape);
            }
        free(wanted);
    }
    free(in);
    weights_close(&beside);
    model_close(&model);
}

static int families_is_model(const struct dirent *entry)
{
    return strstr(entry->d_name, ".safetensors") || strstr(entry->d_name, ".param");
}

static void test_families(void **state)
{
    (void)state;
    struct dirent **list;
    const int count = scandir(FAMILIES, &list, families_is_model, alphasort);
    assert_true(count >= 20);
    for (int i = 0; i < count; i++) {
        families_file(list[i]->d_name);
        free(list[i]);
    }
    free(list);
}

/* An RRDBNet of which only what decides is there. */
static void check_refused(int in, int out, int ups, enum error_code code, const char *why)
{
    static const float zeros[8 * 64 * 9];
    struct checkpoint_tensor tensors[16] = {{"conv_first.weight", 4, {4, (uint64_t)in, 3, 3}, zeros},
                                            {"body.0.rdb1.conv1.weight", 4, {2, 4, 3, 3}, zeros},
                                            {"conv_last.weight", 4, {(uint64_t)out, 4, 3, 3}, zeros}};
    size_t count = out ? 3 : 2;
    char names[8][40];
    for (int i = 0; i < ups; i++) {
        snprintf(names[i], sizeof names[i], "conv_up%d.weight", i + 1);
        tensors[count++] = (struct checkpoint_tensor){names[i], 4, {4, 4, 3, 3}, zeros};
    }
    struct checkpoint_buffer file = {0};
    struct error err = ERROR_INIT;
    struct model *model;
    checkpoint_safetensors(&file, tensors, count, CHECKPOINT_F32);
    assert_int_equal(model_open_memory(&model, "mine", file.data, file.size, NULL, &err), code);
    if (!strstr(err.text, why))
        fail_msg("\"%s\" does not say \"%s\"", err.text, why);
    checkpoint_free(&file);
}

static void test_refused(void **state)
{
    (void)state;
    check_refused(5, 3, 2, ERROR_UNSUPPORTED, "takes 5 channels and gives 3");
    check_refused(3, 2, 2, ERROR_UNSUPPORTED, "takes 3 channels and gives 2");
    check_refused(3, 3, 5, ERROR_UNSUPPORTED, "5 upsamplings");
    check_refused(48, 3, 1, ERROR_UNSUPPORTED, "pixel-unshuffle of 4");
    check_refused(3, 0, 2, ERROR_CORRUPT, "conv_last.weight is missing");
}

/* Networks that are not read are told by name. */
static void test_foreign(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"before_RG.1.weight", "layers.0.blocks.0.ffn.sg.norm.weight", "not read yet: DAT, a transformer"},
        {"intro.weight", "middle_blks.0.beta", "not read yet: NAFNet"},
        {"intro.weight", "middle_blks.0.temperature", "not read yet: M3SNet"},
        {"conv_1.eval_conv.weight", "block_1.c1_r.eval_conv.weight", "only the folded convolutions (eval_conv)"},
        {"position_emb", "something.weight", "not a network that we know; it has 2 tensors, the first are"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        static const float zeros[4];
        const struct checkpoint_tensor tensors[] = {{cases[i][0], 1, {4}, zeros}, {cases[i][1], 1, {4}, zeros}};
        struct checkpoint_buffer file = {0};
        struct error err = ERROR_INIT;
        struct model *model;
        checkpoint_safetensors(&file, tensors, 2, CHECKPOINT_F32);
        assert_int_equal(model_open_memory(&model, "mine", file.data, file.size, NULL, &err), ERROR_UNSUPPORTED);
        assert_non_null(strstr(err.text, cases[i][2]));
        checkpoint_free(&file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_families), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_foreign)};
    return cmocka_run_group_tests_name("families", tests, families_open, families_close);
}
