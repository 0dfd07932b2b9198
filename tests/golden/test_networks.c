/* Every network against PyTorch's fp32 outputs (../shared/golden), on the oracle and on every device present, in fp32
 * and, where the device has it, fp16. Prints the largest error of each golden. RESTORED_TEST_DEVICE limits it to one
 * device. */
#include <math.h>
#include <png.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#include "runtime/models/model.h"
#include "runtime/vulkan/vk_device.h"
#include "tests/common/npy.h"
#include "tests/common/shared.h"

/* ---- devices ---- */
static struct {
    struct device *device;
    struct device_info info;
} devices[8];
static int device_count;

static void devices_add(const char *id)
{
    const char *only = getenv("RESTORED_TEST_DEVICE");
    struct error err = ERROR_INIT;
    if (only && strcmp(only, id) != 0)
        return;
    if (device_open(&devices[device_count].device, id, NULL, &err))
        fail_msg("%s: %s", id, err.text);
    device_info(devices[device_count].device, &devices[device_count].info);
    device_count++;
}

static int devices_open(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct device_info *list;
    size_t count;
    setenv("RESTORED_VULKAN_VALIDATION", "1", 0);
    devices_add("reference");
    if (device_list(&list, &count, &err))
        fail_msg("%s", err.text);
    for (size_t i = 0; i < count && device_count < 8; i++)
        if (list[i].usable)
            devices_add(list[i].id);
    free(list);
    return 0;
}

static int devices_close(void **state)
{
    (void)state;
    for (int i = 0; i < device_count; i++)
        device_close(&devices[i].device);
    return 0;
}

/* ---- comparison ---- */
/* tolerance: the largest absolute error in fp32. In fp16: mean 1e-3 and max 1e-2 of the output's range. */
static void compare(const char *golden, int d, enum precision precision, const float *got, const float *wanted,
                    size_t count, double tolerance)
{
    double worst = 0, sum = 0, low = wanted[0], high = wanted[0];
    for (size_t i = 0; i < count; i++) {
        double e = fabs((double)got[i] - wanted[i]);
        if (!(e <= worst))
            worst = e; /* also NaN */
        sum += e;
        low = fmin(low, wanted[i]);
        high = fmax(high, wanted[i]);
    }
    double range = high - low > 0 ? high - low : 1, mean = sum / (double)count;
    printf("    %-38s %-10s %s max %.3g mean %.3g (of range: max %.2g mean %.2g)\n", golden, devices[d].info.id,
           precision == PRECISION_FP16 ? "fp16" : "fp32", worst, mean, worst / range, mean / range);
    if (precision == PRECISION_FP16)
        assert_true(mean <= 1e-3 * range && worst <= 1e-2 * range);
    else
        assert_true(worst <= tolerance);
}

static struct npy load(const char *name)
{
    struct npy a;
    if (!npy_load(shared_path("golden/%s", name), &a))
        fail_msg("cannot read %s", name);
    return a;
}

/* ---- running ---- */
struct run {
    struct model *model;
    struct session_shape shape;
    const float *inputs[32];
    float *outputs[4];
};

static float *values(const int shape[4])
{
    return calloc((size_t)shape[0] * (size_t)shape[1] * (size_t)shape[2] * (size_t)shape[3], sizeof(float));
}

static void run_open(struct run *r, const char *file, const struct model_settings *settings)
{
    struct error err = ERROR_INIT;
    if (model_open(&r->model, shared_path("models/%s", file), settings, &err))
        fail_msg("%s", err.text);
}

static void run_on(struct run *r, int d, enum precision precision)
{
    struct error err = ERROR_INIT;
    struct session *session;
    for (int i = 0; i < model_info(r->model)->output_count; i++) {
        int shape[4];
        model_output_shape(r->model, &r->shape, i, shape);
        if (!r->outputs[i])
            r->outputs[i] = values(shape);
    }
    if (model_session(&session, r->model, devices[d].device, precision, &err) ||
        session_run(session, &r->shape, r->inputs, r->outputs, NULL, &err))
        fail_msg("%s: %s", devices[d].info.id, err.text);
    session_destroy(&session);
    model_forget(r->model, devices[d].device);
}

static void run_close(struct run *r)
{
    for (int i = 0; i < 4; i++)
        free(r->outputs[i]);
    model_close(&r->model);
}

/* Calls check for each device and precision. */
static void each(struct run *r, void (*check)(struct run *, int, enum precision, void *), void *data)
{
    for (int d = 0; d < device_count; d++) {
        for (int p = 0; p < 2; p++) {
            enum precision precision = p ? PRECISION_FP16 : PRECISION_FP32;
            if (precision == PRECISION_FP16 && !devices[d].info.fp16)
                continue;
            run_on(r, d, precision);
            check(r, d, precision, data);
        }
    }
}

/* uint8 HWC -> float NCHW; channel c comes from source channel swap ? 2-c : c. */
static float *planar(const struct npy *a, bool swap, double scale, const double offset[3])
{
    size_t h = a->shape[0], w = a->shape[1];
    float *out = malloc(3 * h * w * sizeof *out);
    for (size_t c = 0; c < 3; c++)
        for (size_t i = 0; i < h * w; i++)
            out[c * h * w + i] = (float)(((const uint8_t *)a->data)[i * 3 + (swap ? 2 - c : c)] * scale + offset[c]);
    return out;
}

/* GFPGAN's and ParseNet's input: ((float)(u8/255) - 0.5)/0.5, RGB from BGR. */
static float *planar_face(const struct npy *a)
{
    static const double zero[3] = {0, 0, 0};
    float *out = planar(a, true, 1 / 255.0, zero);
    for (size_t i = 0; i < a->count; i++)
        out[i] = (out[i] - 0.5f) / 0.5f;
    return out;
}

/* ---- upscalers ---- */
struct golden_check {
    const char *name;
    struct npy wanted;
    double tolerance;
    int step; /* the golden holds every step-th row and column */
};

static float *strided(const float *got, const int shape[4], int step)
{
    int h = (shape[2] + step - 1) / step, w = (shape[3] + step - 1) / step;
    float *out = malloc((size_t)shape[1] * (size_t)h * (size_t)w * sizeof *out);
    for (int c = 0; c < shape[1]; c++)
        for (int y = 0; y < h; y++)
            for (int x = 0; x < w; x++)
                out[(c * h + y) * w + x] =
                    got[((size_t)c * (size_t)shape[2] + (size_t)(y * step)) * (size_t)shape[3] + (size_t)(x * step)];
    return out;
}

static void check_output(struct run *r, int d, enum precision precision, void *data)
{
    struct golden_check *g = data;
    int shape[4];
    model_output_shape(r->model, &r->shape, 0, shape);
    float *part = strided(r->outputs[0], shape, g->step);
    compare(g->name, d, precision, part, g->wanted.data, g->wanted.count, g->tolerance);
    free(part);
}

static void upscaler(const char *file, const char *golden, double tolerance)
{
    static const double zero[3] = {0, 0, 0};
    struct npy in = load("sr_in_48x64_rgb_u8.npy");
    struct run r = {.shape = {1, 48, 64, 0}};
    float *x = planar(&in, false, 1 / 255.0, zero);
    struct golden_check g = {golden, load(golden), tolerance, 1};
    r.inputs[0] = x;
    run_open(&r, file, NULL);
    each(&r, check_output, &g);
    run_close(&r);
    free(x);
    npy_free(&in);
    npy_free(&g.wanted);
}

static void test_upscalers(void **state)
{
    (void)state;
    upscaler("realesr-animevideov3.pth", "srvgg_animevideov3_out.npy", 2e-5);
    upscaler("upscayl-lite-4x.pth", "srvgg_lite4x_out.npy", 2e-5);
    upscaler("rrdb_x2_tiny.pth", "rrdb_x2_tiny_out.npy", 1e-5);
    upscaler("rrdb_x4_tiny.pth", "rrdb_x4_tiny_out.npy", 1e-5);
    upscaler("rrdb_x2_tiny_fp16.pth", "rrdb_x2_tiny_fp16w_out.npy", 1e-5);
}

/* ---- GFPGAN ---- */

/* torch's CPU normal_(): mt19937, 24-bit uniforms, Box-Muller over groups of 16 (golden/recipes/noise_port.py). */
struct torch_random {
    uint32_t state[624];
    int at;
};

static void torch_seed(struct torch_random *r, uint32_t seed)
{
    r->state[0] = seed;
    for (uint32_t i = 1; i < 624; i++)
        r->state[i] = 1812433253u * (r->state[i - 1] ^ (r->state[i - 1] >> 30)) + i;
    r->at = 624;
}

static float torch_uniform(struct torch_random *r)
{
    if (r->at == 624) {
        for (int i = 0; i < 624; i++) {
            uint32_t y = (r->state[i] & 0x80000000u) | (r->state[(i + 1) % 624] & 0x7fffffffu);
            r->state[i] = r->state[(i + 397) % 624] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
        }
        r->at = 0;
    }
    uint32_t y = r->state[r->at++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    y ^= y >> 18;
    return (float)(y & 0xffffff) * 0x1p-24f;
}

/* count: a multiple of 16, as all noise maps have. */
static void torch_normal(struct torch_random *r, float *out, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = torch_uniform(r);
    for (size_t g = 0; g < count; g += 16) {
        for (size_t i = g; i < g + 8; i++) {
            float u1 = 1 - out[i], angle = (float)(2 * 3.14159265358979323846) * out[i + 8],
                  radius = sqrtf(-2 * logf(u1));
            out[i] = radius * cosf(angle);
            out[i + 8] = radius * sinf(angle);
        }
    }
}

static void gfpgan(const char *file, const char *input, const char *golden, double tolerance, int step, int variant,
                   int seed)
{
    struct npy in = load(input);
    int size = (int)in.shape[0];
    struct run r = {.shape = {1, size, size, variant}};
    float *x = planar_face(&in), *noise[32] = {0};
    struct golden_check g = {golden, load(golden), tolerance, step};
    struct torch_random random;
    r.inputs[0] = x;
    run_open(&r, file, NULL);
    assert_int_equal(model_info(r.model)->face_size, size);
    torch_seed(&random, (uint32_t)seed);
    for (int i = 0; variant == MODEL_NOISE_INPUT && i < model_info(r.model)->noise_count; i++) {
        size_t side = (size_t)4 << ((i + 1) / 2);
        r.inputs[1 + i] = noise[i] = calloc(side * side, sizeof(float));
        if (seed)
            torch_normal(&random, noise[i], side * side);
    }
    each(&r, check_output, &g);
    run_close(&r);
    for (int i = 0; i < 32; i++)
        free(noise[i]);
    free(x);
    npy_free(&in);
    npy_free(&g.wanted);
}

static void test_torch_normal(void **state)
{
    (void)state;
    struct npy wanted = load("torch_normal_seed1234_first16_64.npy");
    struct torch_random random;
    float got[80];
    torch_seed(&random, 1234);
    torch_normal(&random, got, 16);
    torch_normal(&random, got + 16, 64);
    for (size_t i = 0; i < 80; i++)
        assert_true(fabs((double)got[i] - ((const float *)wanted.data)[i]) <= 1e-6);
    npy_free(&wanted);
}

static void test_gfpgan_micro(void **state)
{
    (void)state;
    gfpgan("gfpgan_micro.pth", "gfpgan_micro_in_64_bgr_u8.npy", "gfpgan_micro_out.npy", 2e-5, 1, MODEL_NOISE_STORED, 0);
    gfpgan("gfpgan_micro.pth", "gfpgan_micro_in_64_bgr_u8.npy", "gfpgan_micro_out_zeronoise.npy", 2e-5, 1,
           MODEL_NOISE_INPUT, 0);
}

/* The original architecture. */
static void test_gfpgan_v1(void **state)
{
    (void)state;
    gfpgan("gfpganv1_micro.pth", "gfpganv1_micro_in_128_bgr_u8.npy", "gfpganv1_micro_out.npy", 4e-5, 1,
           MODEL_NOISE_STORED, 0);
}

static void test_gfpgan_tiny(void **state)
{
    (void)state;
    const char *in = "gfpgan_tiny_in_512_bgr_u8.npy";
    gfpgan("gfpgan_tiny.pth", in, "gfpgan_tiny_out.npy", 1e-5, 1, MODEL_NOISE_STORED, 0);
    gfpgan("gfpgan_tiny.pth", in, "gfpgan_tiny_out_zeronoise_s4.npy", 1e-5, 4, MODEL_NOISE_INPUT, 0);
    gfpgan("gfpgan_tiny.pth", in, "gfpgan_tiny_out_randnoise_seed1234_s4.npy", 1e-5, 4, MODEL_NOISE_INPUT, 1234);
}

static void check_u8(struct run *r, int d, enum precision precision, void *data)
{
    const uint8_t *wanted = data; /* RGB */
    size_t off = 0, far = 0, plane = 512 * 512;
    for (size_t i = 0; i < 3 * plane; i++) {
        float v = r->outputs[0][i % 3 * plane + i / 3];
        v = v < -1 ? -1 : v > 1 ? 1 : v;
        long u = lrintf((v + 1) / 2 * 255);
        off += u != wanted[i];
        far += labs(u - wanted[i]) > 1;
    }
    printf("    %-38s %-10s %s %.2g of values differ by 1\n", "gfpgan_tiny_out_u8.png", devices[d].info.id,
           precision == PRECISION_FP16 ? "fp16" : "fp32", (double)off / (double)(3 * plane));
    if (precision == PRECISION_FP32)
        assert_true(far == 0 && off < 3 * plane / 10000);
}

static void test_gfpgan_u8(void **state)
{
    (void)state;
    png_image image = {.version = PNG_IMAGE_VERSION};
    assert_true(png_image_begin_read_from_file(&image, shared_path("golden/gfpgan_tiny_out_u8.png")));
    image.format = PNG_FORMAT_RGB;
    uint8_t *wanted = malloc(PNG_IMAGE_SIZE(image));
    assert_true(png_image_finish_read(&image, NULL, wanted, 0, NULL));
    struct npy in = load("gfpgan_tiny_in_512_bgr_u8.npy");
    struct run r = {.shape = {1, 512, 512, MODEL_NOISE_STORED}};
    float *x = planar_face(&in);
    r.inputs[0] = x;
    run_open(&r, "gfpgan_tiny.pth", NULL);
    each(&r, check_u8, wanted);
    run_close(&r);
    free(x);
    free(wanted);
    npy_free(&in);
}

/* ---- RetinaFace ---- */

/* Channels first+anchor*width .. of the three maps in the order of PyTorch's output [1, anchors, width]. */
static float *retina_output(const struct run *r, int first, int width, size_t count)
{
    float *out = malloc(count * sizeof *out), *at = out;
    for (int level = 0; level < 3; level++) {
        int shape[4];
        model_output_shape(r->model, &r->shape, level, shape);
        size_t plane = (size_t)shape[2] * (size_t)shape[3];
        for (size_t i = 0; i < plane; i++)
            for (int c = 0; c < 2 * width; c++)
                *at++ = r->outputs[level][(size_t)(first + c) * plane + i];
    }
    assert_int_equal(at - out, count);
    return out;
}

static void check_retina(struct run *r, int d, enum precision precision, void *data)
{
    static const struct {
        const char *key;
        int first, width;
        double tolerance;
    } parts[] = {{"loc", 4, 4, 5e-5}, {"conf", 0, 2, 5e-6}, {"landm", 12, 10, 5e-5}};
    const char *golden = data;
    for (int p = 0; p < 3; p++) {
        struct npy wanted;
        assert_true(npz_load(shared_path("golden/%s", golden), parts[p].key, &wanted));
        float *got = retina_output(r, parts[p].first, parts[p].width, wanted.count);
        for (size_t i = 0; p == 1 && i < wanted.count; i += 2) { /* softmax of the pair */
            double e = exp((double)got[i + 1] - (double)got[i]);
            got[i] = (float)(1 / (1 + e));
            got[i + 1] = (float)(e / (1 + e));
        }
        char name[128];
        snprintf(name, sizeof name, "%s %s", golden, parts[p].key);
        compare(name, d, precision, got, wanted.data, wanted.count, parts[p].tolerance);
        free(got);
        npy_free(&wanted);
    }
}

static void retina(const char *file, const char *golden, const struct model_settings *settings)
{
    static const double mean[3] = {-104, -117, -123};
    struct npy in = load("retina_in_211x318_bgr_u8.npy");
    struct run r = {.shape = {1, 211, 318, 0}};
    float *x = planar(&in, false, 1, mean);
    r.inputs[0] = x;
    run_open(&r, file, settings);
    each(&r, check_retina, (void *)(uintptr_t)golden);
    run_close(&r);
    free(x);
    npy_free(&in);
}

static void test_retinaface(void **state)
{
    (void)state;
    struct model_settings slope0 = {.has_slope = true, .slope = 0};
    retina("detection_mobilenet0.25_biubug6.pth", "retina_biubug6_slope0.npz", &slope0);
    retina("detection_mobilenet0.25_biubug6.pth", "retina_biubug6_slope0.1.npz", NULL);
    retina("detection_mobilenet0.25_distilled.pth", "retina_distilled.npz", NULL);
    retina("detection_Resnet50_tiny.pth", "retina_resnet50_tiny.npz", NULL);
}

/* ---- ParseNet ---- */
static void check_parse_512(struct run *r, int d, enum precision precision, void *data)
{
    (void)data;
    int logits_shape[4] = {1, 19, 512, 512}, image_shape[4] = {1, 3, 512, 512};
    struct npy wanted = load("parsenet_tiny_logits_s8.npy");
    float *part = strided(r->outputs[0], logits_shape, 8);
    compare("parsenet_tiny_logits_s8", d, precision, part, wanted.data, wanted.count, 5e-5);
    free(part);
    npy_free(&wanted);
    wanted = load("parsenet_tiny_img_s8.npy");
    part = strided(r->outputs[1], image_shape, 8);
    compare("parsenet_tiny_img_s8", d, precision, part, wanted.data, wanted.count, 5e-5);
    free(part);
    npy_free(&wanted);
    wanted = load("parsenet_tiny_logits_corner24.npy");
    part = malloc(wanted.count * sizeof *part);
    for (size_t i = 0; i < wanted.count; i++)
        part[i] = r->outputs[0][i / 576 * 512 * 512 + i / 24 % 24 * 512 + i % 24];
    compare("parsenet_tiny_logits_corner24", d, precision, part, wanted.data, wanted.count, 5e-5);
    free(part);
    npy_free(&wanted);

    wanted = load("parsenet_tiny_labels_u8.npy");
    size_t wrong = 0, plane = 512 * 512;
    for (size_t i = 0; i < plane; i++) {
        int best = 0;
        for (int c = 1; c < 19; c++)
            if (r->outputs[0][(size_t)c * plane + i] > r->outputs[0][(size_t)best * plane + i])
                best = c;
        wrong += best != ((const uint8_t *)wanted.data)[i];
    }
    npy_free(&wanted);
    printf("    %-38s %-10s %s %.3g of labels differ\n", "parsenet_tiny_labels_u8", devices[d].info.id,
           precision == PRECISION_FP16 ? "fp16" : "fp32", (double)wrong / (double)plane);
    assert_true((double)wrong <= (precision == PRECISION_FP16 ? 0.0016 : 0.0003) * (double)plane);
}

static void parse(const char *input, int size, void (*check)(struct run *, int, enum precision, void *), void *data)
{
    struct npy in = load(input);
    struct run r = {.shape = {1, size, size, 0}};
    float *x = planar_face(&in);
    r.inputs[0] = x;
    run_open(&r, "parsing_parsenet_tiny.pth", NULL);
    each(&r, check, data);
    run_close(&r);
    free(x);
    npy_free(&in);
}

static void test_parsenet(void **state)
{
    (void)state;
    struct golden_check g = {"parsenet_tiny_out64_logits", load("parsenet_tiny_out64_logits.npy"), 5e-5, 1};
    parse("gfpgan_tiny_in_512_bgr_u8.npy", 512, check_parse_512, NULL);
    parse("parsenet_tiny_in64_bgr_u8.npy", 64, check_output, &g);
    npy_free(&g.wanted);
}

/* What must be refused, and how. */
static void test_refused(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct model *model;
    assert_int_equal(model_open(&model, shared_path("models/loader_views.pth"), NULL, &err), ERROR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "not a network that we know"));
}

/* The validation layer had nothing to say of what ran before. */
static void test_validation_is_silent(void **state)
{
    (void)state;
    assert_int_equal(vk_validation_count(), 0);
}

int main(void)
{
    if (!shared_present()) {
        printf("skip: ../shared is absent, and with it the goldens of the networks\n");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torch_normal), cmocka_unit_test(test_upscalers),
        cmocka_unit_test(test_gfpgan_micro), cmocka_unit_test(test_gfpgan_v1),
        cmocka_unit_test(test_gfpgan_tiny),  cmocka_unit_test(test_gfpgan_u8),
        cmocka_unit_test(test_retinaface),   cmocka_unit_test(test_parsenet),
        cmocka_unit_test(test_refused),      cmocka_unit_test(test_validation_is_silent),
    };
    return cmocka_run_group_tests(tests, devices_open, devices_close);
}
