/* Every network of the fixtures at sizes that no golden has: odd, 1×1, one row,
 * batches; each device present against the oracle. A batch must also equal its images one by one. */
#include <dirent.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#include "runtime/models/model.h"
#include "runtime/vulkan/vk_device.h"

static struct device *reference, *devices[8];
static int device_count;

static int devices_open(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct device_info *list = NULL;
    size_t count = 0;
    setenv("RESTORED_VULKAN_VALIDATION", "1", 0);
    if (device_open(&reference, "reference", NULL, &err) || device_list(&list, &count, &err))
        fail_msg("%s", err.text);
    for (size_t i = 0; i < count && device_count < 8; i++)
        if (list[i].usable && device_open(&devices[device_count++], list[i].id, NULL, &err))
            fail_msg("%s", err.text);
    free(list);
    return 0;
}

static int devices_close(void **state)
{
    (void)state;
    for (int i = 0; i < device_count; i++)
        device_close(&devices[i]);
    device_close(&reference);
    return 0;
}

/* Smooth values with some noise, from a fixed seed: what pictures look like. */
static void fill(float *out, size_t count, uint32_t seed, float low, float high)
{
    uint32_t r = seed * 2654435761u + 1;
    for (size_t i = 0; i < count; i++) {
        r = r * 1664525u + 1013904223u;
        float noise = (float)(r >> 8) / 16777216.0f, wave = 0.5f + 0.5f * sinf((float)i * 0.05f + (float)seed);
        out[i] = low + (high - low) * (0.8f * wave + 0.2f * noise);
    }
}

struct shape_run {
    const struct model *model;
    struct session_shape shape;
    const float *inputs[32];
    int output_count;
    float *outputs[4];
    size_t counts[4];
};

static void shape_run(struct shape_run *r, struct device *device, enum precision precision)
{
    struct error err = ERROR_INIT;
    struct session *session;
    struct run_options options = {.seed = 7, .first_image = 3};
    r->output_count = model_info(r->model)->output_count;
    for (int i = 0; i < r->output_count; i++) {
        int s[4];
        model_output_shape(r->model, &r->shape, i, s);
        r->counts[i] = (size_t)s[0] * (size_t)s[1] * (size_t)s[2] * (size_t)s[3];
        r->outputs[i] = calloc(r->counts[i], sizeof(float));
    }
    if (model_session(&session, r->model, device, precision, &err) ||
        session_run(session, &r->shape, r->inputs, r->outputs, &options, &err))
        fail_msg("%s", err.text);
    session_destroy(&session);
    model_forget(r->model, device);
}

static void shape_free(struct shape_run *r)
{
    for (int i = 0; i < r->output_count; i++)
        free(r->outputs[i]);
}

/* got against wanted. fp32: 2e-5 of the output's range, fp16: mean 1e-3 and max 1e-2 of it. The range of a picture is
 * at least the one it is meant to have (`nominal`): a 1×1 output has none of its own. */
static void compare(const float *got, const float *wanted, size_t count, enum precision precision, double nominal,
                    double *worst_of_all)
{
    double low = wanted[0], high = wanted[0], worst = 0, sum = 0;
    for (size_t i = 0; i < count; i++) {
        low = fmin(low, wanted[i]);
        high = fmax(high, wanted[i]);
        double e = fabs((double)got[i] - wanted[i]);
        if (!(e <= worst))
            worst = e;
        sum += e;
    }
    double range = fmax(fmax(high - low, nominal), fmax(fabs(low), fabs(high))), mean = sum / (double)count;
    *worst_of_all = fmax(*worst_of_all, worst / range);
    double most = precision == PRECISION_FP16 ? 1e-2 : 2e-5, most_mean = precision == PRECISION_FP16 ? 1e-3 : 2e-5;
    if (!(worst <= most * range && mean <= most_mean * range))
        fail_msg("fp%d: max %g, mean %g, of a range of %g (%g to %g)", precision == PRECISION_FP16 ? 16 : 32, worst,
                 mean, range, low, high);
}

static void one_shape(const struct model *model, struct session_shape shape)
{
    const struct model_info *info = model_info(model);
    size_t image = (info->kind == MODEL_FILLER ? 4 : 3) * (size_t)shape.h * (size_t)shape.w;
    float *x = malloc((size_t)shape.n * image * sizeof *x);
    bool detector = info->kind == MODEL_DETECTOR;
    fill(x, (size_t)shape.n * image, (uint32_t)(shape.h * 31 + shape.w),
         detector          ? -120
         : info->scale > 1 ? 0
                           : -1,
         detector ? 130 : 1);
    /* upscalers make 0..1, face networks and the parser's second output -1..1; logits and boxes have no range of their
     * own */
    double picture = info->kind == MODEL_UPSCALER ? 1 : 2;
    const double nominal[2] = {detector || info->kind == MODEL_PARSER ? 0 : picture,
                               info->kind == MODEL_PARSER ? picture : 0};
    float *context = NULL;
    size_t second = 0; /* values of an image's second input */
    if (info->context && shape.variant == MODEL_DAMAGE_TILE)
        second = (size_t)info->context * (size_t)(shape.h / 8) * (size_t)(shape.w / 8);
    if (info->context && shape.variant == MODEL_DAMAGE_WHOLE) {
        int h, w;
        model_damage_reduced(shape.h, shape.w, &h, &w);
        second = 3 * (size_t)h * (size_t)w;
    }
    if (second) {
        context = malloc((size_t)shape.n * second * sizeof *context);
        fill(context, (size_t)shape.n * second, 5, -1, 1);
    }
    struct shape_run wanted = {.model = model, .shape = shape, .inputs = {x, context}};
    shape_run(&wanted, reference, PRECISION_FP32);
    for (int d = 0; d < device_count; d++) {
        struct device_info device;
        device_info(devices[d], &device);
        double worst[2] = {0, 0};
        for (int p = 0; p < (device.fp16 ? 2 : 1); p++) {
            enum precision precision = p ? PRECISION_FP16 : PRECISION_FP32;
            struct shape_run got = {.model = model, .shape = shape, .inputs = {x, context}};
            shape_run(&got, devices[d], precision);
            for (int i = 0; i < got.output_count; i++)
                compare(got.outputs[i], wanted.outputs[i], got.counts[i], precision, nominal[i > 0], &worst[p]);
            shape_free(&got);
        }
        printf("    %-26s %d×%d×%d variant %d: %s fp32 %.2g fp16 %.2g of range\n", info->architecture, shape.n, shape.w,
               shape.h, shape.variant, device.id, worst[0], worst[1]);
    }
    if (shape.n > 1 && shape.variant != MODEL_NOISE_SEED) { /* each image alone gives the same values */
        struct shape_run single = {
            .model = model, .shape = shape, .inputs = {x + image, context ? context + second : NULL}};
        single.shape.n = 1;
        shape_run(&single, reference, PRECISION_FP32);
        for (int i = 0; i < single.output_count; i++)
            assert_memory_equal(single.outputs[i], wanted.outputs[i] + single.counts[i],
                                single.counts[i] * sizeof(float));
        shape_free(&single);
    }
    shape_free(&wanted);
    free(context);
    free(x);
}

static void one_model(const char *path)
{
    struct error err = ERROR_INIT;
    struct model *model;
    enum error_code code = model_open(&model, path, NULL, &err);
    if (code)
        fail_msg("%s", err.text);
    const struct model_info *info = model_info(model);
    printf("  %s: %s\n", path, info->architecture);
    if (info->kind == MODEL_FACE) {
        for (int variant = MODEL_NOISE_STORED; variant <= MODEL_NOISE_SEED; variant++)
            one_shape(model, (struct session_shape){2, info->face_size, info->face_size, variant});
    } else if (info->side) {
        for (int n = 1; n <= 2; n++)
            one_shape(model, (struct session_shape){n, info->side, info->side, 0});
    } else if (info->kind == MODEL_PARSER) {
        one_shape(model, (struct session_shape){1, 16, 48, 0});
        one_shape(model, (struct session_shape){2, 32, 32, 0});
    } else {
        if (info->context) {
            one_shape(model, (struct session_shape){1, 45, 61, MODEL_DAMAGE_CONTEXT});
            one_shape(model, (struct session_shape){1, 136, 184, MODEL_DAMAGE_WHOLE});
            one_shape(model, (struct session_shape){2, 24, 320, MODEL_DAMAGE_WHOLE}); /* reduced, by no whole number */
        }
        static const int sizes[][3] = {{1, 1, 1}, {1, 1, 19}, {1, 13, 1}, {1, 17, 23}, {3, 9, 6}};
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            one_shape(model, (struct session_shape){sizes[i][0], sizes[i][1] * info->unshuffle,
                                                    sizes[i][2] * info->unshuffle, 0});
    }
    model_close(&model);
}

static void all_models(const char *folder)
{
    struct dirent **names;
    int count = scandir(folder, &names, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        const char *dot = strrchr(names[i]->d_name, '.');
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
        if (dot && strcmp(dot, ".safetensors") == 0)
            one_model(path);
        free(names[i]);
    }
    if (count >= 0)
        free(names);
    assert_true(count > 0);
}

static void test_fixtures(void **state)
{
    (void)state;
    const char *folder = getenv("RESTORED_FIXTURES");
    all_models(folder ? folder : "build/fixtures");
}

/* The validation layer had nothing to say of what ran before. */
static void test_validation_is_silent(void **state)
{
    (void)state;
    assert_int_equal(vk_validation_count(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fixtures), cmocka_unit_test(test_validation_is_silent)};
    return cmocka_run_group_tests(tests, devices_open, devices_close);
}
