/* The background upscaler against RealESRGANer.enhance (../shared/golden/esrganer_*): odd sizes, pre_pad, tiles and
 * outscale, gray, 16 bits, and transparency in both of its ways; and what the default way of tiling promises: with the
 * exact pad, tiles change nothing; with feathered seams, little. Runs on RESTORED_TEST_DEVICE, else on the oracle. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/pipeline/background.h"
#include "server/pipeline/deep.h"
#include "server/pipeline/reference.h"
#include "tests/common/picture.h"
#include "tests/common/shared.h"

static struct worker_context worker;

static int open_worker(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    const char *device = getenv("RESTORED_TEST_DEVICE");
    setenv("RESTORED_VULKAN_VALIDATION", "1", 0);
    if (!shared_present())
        return 0;
    if (device_open(&worker.device, device ? device : "reference", NULL, &err) ||
        model_store_create(&worker.store, shared_path("models"), NULL, &err) ||
        model_set_create(&worker.models, worker.store, worker.device, &err))
        fail_msg("%s", err.text);
    return 0;
}

static int close_worker(void **state)
{
    (void)state;
    model_set_destroy(&worker.models);
    model_store_destroy(&worker.store);
    if (worker.device)
        device_close(&worker.device);
    return 0;
}

static struct step begin(const char *model)
{
    struct error err = ERROR_INIT;
    struct step step = {.context = &worker};
    if (restoration_create(&step.r, &err) ||
        model_store_resolve(worker.store, ROLE_UPSCALER, model, &step.model[ROLE_UPSCALER], &err))
        fail_msg("%s", err.text);
    step.r->precision = PRECISION_FP32;
    return step;
}

static double number(const json_t *golden, const char *key)
{
    return json_number_value(json_object_get(golden, key));
}

static unsigned sample(const void *plane, int bits, size_t i)
{
    return bits == 16 ? ((const uint16_t *)plane)[i] : ((const uint8_t *)plane)[i];
}

static size_t compare(const void *a, const void *b, int bits, size_t n, int *worst)
{
    size_t differing = 0;
    for (size_t i = 0; i < n; i++) {
        const int d = abs((int)sample(a, bits, i) - (int)sample(b, bits, i));
        *worst = d > *worst ? d : *worst;
        differing += d != 0;
    }
    return differing;
}

static void check_golden(const json_t *golden)
{
    struct error err = ERROR_INIT;
    const char *ckpt = json_string_value(json_object_get(golden, "ckpt"));
    const char *alpha = json_string_value(json_object_get(golden, "alpha_upsampler")); /* by default realesrgan */
    struct image *wanted = picture_load(shared_path("golden/%s", json_string_value(json_object_get(golden, "output"))));
    struct image *got = NULL;
    struct step step = begin(ckpt);
    struct restoration *r = step.r;
    struct tile_compat cut = {(int)number(golden, "tile"), (int)number(golden, "tile_pad"),
                              (int)number(golden, "pre_pad")};
    r->picture = picture_load(shared_path("golden/%s", json_string_value(json_object_get(golden, "input"))));
    r->options.compat = r->faceless = true;
    r->output_format = IMAGE_PNG;
    if (deep_begin(r, &err))
        fail_msg("%s", err.text);
    struct view_u8 view = image_view(r->picture);
    if (r->deep || r->picture->alpha ? reference_upscale(&step, &cut, number(golden, "outscale"),
                                                         !alpha || strcmp(alpha, "bicubic") != 0, &got, &err)
                                     : background_compat(&step, &view, &cut, number(golden, "outscale"), &got, &err))
        fail_msg("%s", err.text);
    assert_int_equal(got->width, wanted->width);
    assert_int_equal(got->height, wanted->height);
    assert_int_equal(got->channels, wanted->channels);
    assert_int_equal(got->bits, wanted->bits);
    assert_int_equal(got->alpha != NULL, wanted->alpha != NULL);
    const size_t pixels = (size_t)got->width * (size_t)got->height, samples = pixels * (size_t)got->channels;
    int worst = 0;
    size_t differing = compare(got->pixels, wanted->pixels, got->bits, samples, &worst);
    if (got->alpha)
        differing += compare(got->alpha, wanted->alpha, got->bits, pixels, &worst);
    printf("    %-22s max %d, %zu of %zu samples differ\n", json_string_value(json_object_get(golden, "tag")), worst,
           differing, samples + (got->alpha ? pixels : 0));
    assert_true(worst <= 1);
    image_destroy(&got);
    image_destroy(&wanted);
    restoration_destroy(&step.r);
}

static void test_goldens(void **state)
{
    (void)state;
    json_error_t error;
    picture_need_shared();
    json_t *goldens = json_load_file(shared_path("golden/esrganer_cases.json"), 0, &error), *golden;
    size_t index, checked = 0;
    assert_non_null(goldens);
    json_array_foreach(goldens, index, golden)
    {
        check_golden(golden);
        checked++;
    }
    assert_int_equal(checked, 13);
    json_decref(goldens);
}

/* A result in floats. */
struct floats {
    float *data;
    size_t line;         /* floats of a row */
    size_t pixels, rows; /* that came; px high */
};

static void into_floats(void *user, const struct rect *rect, const struct rect *run, struct raster_target *target)
{
    (void)run;
    struct floats *f = user;
    *target = (struct raster_target){.form = RASTER_F32,
                                     .data = f->data + (size_t)rect->y * f->line + 3 * (size_t)rect->x,
                                     .stride = f->line * sizeof(float),
                                     .x = rect->x,
                                     .y = rect->y,
                                     .width = rect->width,
                                     .height = rect->height};
}

static void count_pixels(void *user, const struct rect *rect)
{
    struct floats *f = user;
    f->pixels += (size_t)rect->width * (size_t)rect->height;
}

/* The default way at a tile's edge: all rows, 0..255. */
static float *run_tiles(struct step *step, const struct image *input, int core, int scale)
{
    struct error err = ERROR_INIT;
    struct view_u8 view = image_view(input);
    struct tile_job *job;
    struct floats f = {.line = 3 * (size_t)(input->width * scale), .rows = (size_t)(input->height * scale)};
    const struct tile_sink sink = {&f, into_floats, count_pixels, NULL, false, false};
    f.data = calloc(f.line * f.rows, sizeof(float));
    if (tile_begin(&job, step, &view, core, &sink, &err) || tile_advance(job, 0, &err))
        fail_msg("%s", err.text);
    tile_end(&job);
    assert_int_equal(3 * f.pixels, f.line * f.rows);
    return f.data;
}

static double worst_difference(const float *a, const float *b, size_t count, double *mean)
{
    double worst = 0, sum = 0;
    for (size_t i = 0; i < count; i++) {
        double d = fabs((double)a[i] - b[i]);
        worst = d > worst ? d : worst;
        sum += d;
    }
    *mean = sum / (double)count;
    return worst;
}

/* The largest error that tiles make against the whole picture, of 255. */
static double tile_error(const char *model, const char *picture, int core, int scale, double *mean)
{
    struct step step = begin(model);
    struct error err = ERROR_INIT;
    struct image *input = picture_load(shared_path("golden/%s", picture));
    if (image_reduce(input, true, &err))
        fail_msg("%s", err.text);
    float *whole = run_tiles(&step, input, 0, scale);
    assert_int_equal(step.r->tiles, 1);
    float *tiled = run_tiles(&step, input, core, scale);
    assert_true(step.r->tiles > 1);
    size_t count = 3 * (size_t)(input->width * scale) * (size_t)(input->height * scale);
    double worst = worst_difference(whole, tiled, count, mean);
    printf("    %-22s %d tiles: max %.3g, mean %.3g of 255\n", model, step.r->tiles, worst, *mean);
    free(whole);
    free(tiled);
    image_destroy(&input);
    restoration_destroy(&step.r);
    return worst;
}

static void test_exact_tiles(void **state)
{
    (void)state;
    double mean;
    picture_need_shared();
    /* Another shape may sum in another order or, on a GPU, by another algorithm: both within what the goldens allow
     * each, 2e-5 of the output. */
    assert_true(tile_error("realesr-animevideov3", "esrganer_in_rgb.png", 32, 4, &mean) < 2e-5 * 255);
    assert_true(tile_error("upscayl-lite-4x", "esrganer_in_rgb.png", 48, 4, &mean) < 2e-5 * 255);
}

/* The same picture in hard-cropped tiles, as the reference cuts them. */
static double hard_error(const char *model, const char *picture, int tile, int scale, double *mean)
{
    struct step step = begin(model);
    struct error err = ERROR_INIT;
    struct image *input = picture_load(shared_path("golden/%s", picture)), *whole = NULL, *tiled = NULL;
    if (image_reduce(input, true, &err))
        fail_msg("%s", err.text);
    struct view_u8 view = image_view(input);
    struct tile_compat none = {0, 0, 0}, cut = {tile, 10, 0};
    if (background_compat(&step, &view, &none, scale, &whole, &err) ||
        background_compat(&step, &view, &cut, scale, &tiled, &err))
        fail_msg("%s", err.text);
    size_t differing, count = 3 * (size_t)whole->width * (size_t)whole->height;
    int worst = picture_difference(image_view(whole), image_view(tiled), &differing);
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += abs(((uint8_t *)whole->pixels)[i] - ((uint8_t *)tiled->pixels)[i]);
    *mean = sum / (double)count;
    printf("    %-22s hard tiles: max %d, mean %.3g of 255\n", model, worst, *mean);
    image_destroy(&whole);
    image_destroy(&tiled);
    image_destroy(&input);
    restoration_destroy(&step.r);
    return worst;
}

static void test_feathered_tiles(void **state)
{
    (void)state;
    picture_need_shared();
    /* odd sizes and a network that begins with pixel-unshuffle: tiles keep its phase */
    double hard_mean, mean, hard = hard_error("rrdb_x2_tiny", "pipeline/E_noface_input.png", 32, 2, &hard_mean);
    double worst = tile_error("rrdb_x2_tiny", "pipeline/E_noface_input.png", 32, 2, &mean);
    assert_true(worst < hard / 2 && mean < hard_mean / 2);
}

/* Sides shorter than what is mirrored onto them. */
static void test_tiny_pictures(void **state)
{
    (void)state;
    picture_need_shared();
    static const int sizes[][2] = {{1, 1}, {1, 2}, {2, 1}, {3, 5}, {1, 9}};
    for (int compat = 0; compat < 2; compat++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            struct error err = ERROR_INIT;
            struct step step = begin("rrdb_x2_tiny");
            struct image *input;
            if (image_create(&input, sizes[i][0], sizes[i][1], 3, 8, false, &err))
                fail_msg("%s", err.text);
            struct view_u8 view = image_view(input);
            picture_fill(view, 7);
            if (compat) {
                struct image *out = NULL;
                struct tile_compat cut = {.tile = 4, .tile_pad = 2, .pre_pad = 3};
                if (background_compat(&step, &view, &cut, 2, &out, &err))
                    fail_msg("%s", err.text);
                assert_int_equal(out->width, 2 * sizes[i][0]);
                assert_int_equal(out->height, 2 * sizes[i][1]);
                image_destroy(&out);
            } else {
                free(run_tiles(&step, input, 0, 2));
            }
            image_destroy(&input);
            restoration_destroy(&step.r);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goldens),
        cmocka_unit_test(test_exact_tiles),
        cmocka_unit_test(test_feathered_tiles),
        cmocka_unit_test(test_tiny_pictures),
    };
    return cmocka_run_group_tests_name("upscaler goldens", tests, open_worker, close_worker);
}
