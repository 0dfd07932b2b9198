/* How holes are filled: smoothly or by a network, in windows and in several runs at once, and what is left alone. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/backend/fault.h"
#include "server/pipeline/pull_push.h"
#include "server/pipeline/repair.h"
#include "tests/common/models.h"
#include "tests/common/picture.h"
#include "tests/common/restoration.h"

static void test_pull_push(void **state)
{
    (void)state;
    static const int sizes[][2] = {{1, 1}, {1, 9}, {13, 21}, {64, 64}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        const int h = sizes[s][0], w = sizes[s][1], n = h * w;
        float *rgb = calloc(3 * (size_t)n, sizeof *rgb), *mask = calloc((size_t)n, sizeof *mask);
        float *scratch = malloc(pull_push_scratch(h, w) * sizeof *scratch);
        for (int i = 0; i < n; i++) {
            mask[i] = i % w > 0 && i % 5 != 1; /* known in the first column and every fifth pixel */
            for (int c = 0; c < 3; c++)
                rgb[c * n + i] = mask[i] ? 999 : (float)(10 + c);
        }
        pull_push(rgb, mask, h, w, scratch);
        for (int i = 0; i < 3 * n; i++)
            assert_true(fabsf(rgb[i] - (float)(10 + i / n)) < 1e-4f); /* what is around is all alike */
        for (int i = 0; i < n; i++)
            mask[i] = 1;
        pull_push(rgb, mask, h, w, scratch);
        for (int i = 0; i < 3 * n; i++)
            assert_true(rgb[i] == 0); /* nothing is known */
        free(rgb);
        free(mask);
        free(scratch);
    }
}

static double sample(const struct image *image, size_t i)
{
    return image->bits == 16 ? ((const uint16_t *)image->pixels)[i] / 257.0 : ((const uint8_t *)image->pixels)[i];
}

/* A scratch of 3 px across everything, a spot at the border of four windows, a large hole and a corner. */
static bool hole_at(int x, int y)
{
    return abs(y - 100 - x / 7) < 2 || hypot(x - 192, y - 192) < 9 || (x > 250 && x < 300 && y > 20 && y < 90) ||
           (x < 6 && y < 9);
}

static int distance_to_hole(int x, int y)
{
    for (int d = 0; d <= REPAIR_FEATHER; d++)
        for (int i = -d; i <= d; i++)
            for (int j = -d; j <= d; j++)
                if (hole_at(x + i, y + j) && x + i >= 0 && y + j >= 0)
                    return d;
    return REPAIR_FEATHER + 1;
}

/* Of any kind of picture only holes and what is close to them change, and the fill is near the truth. */
static void test_fill(void **state)
{
    (void)state;
    static const int kinds[][2] = {{3, 8}, {1, 8}, {3, 16}, {1, 16}};
    enum { W = 420, H = 300 };
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        struct error err = ERROR_INIT;
        struct restoration *r;
        const int channels = kinds[k][0];
        if (restoration_create(&r, &err))
            fail_msg("%s", err.text);
        struct step step = {.r = r};
        struct image *truth = picture_waves(W, H, channels, kinds[k][1]),
                     *before = picture_waves(W, H, channels, kinds[k][1]);
        r->picture = picture_waves(W, H, channels, kinds[k][1]);
        uint8_t *mask = calloc(W, H);
        const size_t bytes = (size_t)kinds[k][1] / 8;
        for (int i = 0; i < W * H; i++) {
            mask[i] = hole_at(i % W, i / W) ? DEFECT_GIVEN : 0;
            for (int c = 0; mask[i] && c < channels; c++) {
                memset((uint8_t *)r->picture->pixels + bytes * (size_t)(i * channels + c), 0xff, bytes);
                memset((uint8_t *)before->pixels + bytes * (size_t)(i * channels + c), 0xff, bytes);
            }
        }
        assert_int_equal(repair_fill(&step, mask, NULL, 1, &err), OK);
        double worst = 0;
        for (int i = 0; i < W * H * channels; i++) {
            const int x = i / channels % W, y = i / channels / W, away = distance_to_hole(x, y);
            const double got = sample(r->picture, (size_t)i);
            if (away > REPAIR_FEATHER)
                assert_true(got == sample(before, (size_t)i));
            else if ((x < 248 || x > 301) &&
                     (x > 7 || y > 10)) /* the large hole and the corner hold more than is around */
                worst = fmax(worst, fabs(got - sample(truth, (size_t)i)));
        }
        printf("    %d channels of %d bits: worst %.1f levels\n", channels, kinds[k][1], worst);
        assert_true(worst < 12); /* the waves' own curvature; the damage is up to 200 levels away */
        /* strength 0 changes nothing, 0.5 goes half the way */
        struct image *full = r->picture;
        r->picture = before;
        assert_int_equal(repair_fill(&step, mask, NULL, 0.5, &err), OK);
        const size_t middle = (size_t)((100 + 70 / 7) * W + 70) * (size_t)channels;
        assert_true(fabs(sample(before, middle) - (255 + sample(full, middle)) / 2) < 1.1);
        r->picture = full;
        image_destroy(&truth);
        image_destroy(&before);
        free(mask);
        restoration_destroy(&r);
    }
}

/* A hole larger than windows, in any kind of picture: no black, no edge where windows meet. */
static void test_large_hole(void **state)
{
    (void)state;
    enum { W = 900, H = 700 };
    static const int kinds[][2] = {{3, 8}, {1, 8}, {3, 16}, {1, 16}};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        struct error err = ERROR_INIT;
        struct restoration *r;
        const size_t channels = (size_t)kinds[k][0];
        if (restoration_create(&r, &err))
            fail_msg("%s", err.text);
        struct step step = {.r = r};
        r->picture = picture_waves(W, H, kinds[k][0], kinds[k][1]);
        uint8_t *mask = calloc(W, H);
        const size_t bytes = channels * (size_t)kinds[k][1] / 8;
        for (int i = 0; i < W * H; i++) {
            mask[i] = i % W > 100 && i % W < 800 && i / W > 100 && i / W < 600 ? DEFECT_GIVEN : 0;
            memset((uint8_t *)r->picture->pixels + bytes * (size_t)i, mask[i] ? 255 : 90 + 40 * (i % W > 450), bytes);
        }
        assert_int_equal(repair_fill(&step, mask, NULL, 1, &err), OK);
        double low = 255, high = 0, jump = 0;
        for (size_t y = 105; y < 595; y++)
            for (size_t x = 105; x < 790; x++) {
                const size_t at = channels * (y * W + x);
                const double v = sample(r->picture, at), next = fabs(v - sample(r->picture, at + channels)),
                             below = fabs(v - sample(r->picture, at + channels * W));
                low = fmin(low, v);
                high = fmax(high, v);
                jump = fmax(jump, fmax(next, below));
            }
        printf("    %.0f to %.0f, steps of up to %.1f\n", low, high, jump);
        assert_true(low >= 88 && high <= 132 && jump <= 12);
        free(mask);
        restoration_destroy(&r);
    }
}

/* A worker with the starter models; without the filler the test is skipped. */
static void filler_begin(struct worker_context *own)
{
    struct error err = ERROR_INIT;
    if (access("models/starter/starter_fill.safetensors", R_OK))
        skip();
    *own = (struct worker_context){.device = restoration_worker.device, .store = models_of("models/starter", NULL)};
    if (model_set_create(&own->models, own->store, own->device, &err))
        fail_msg("%s", err.text);
}

static void filler_end(struct worker_context *own)
{
    model_set_destroy(&own->models);
    model_store_destroy(&own->store);
}

/* The starter filler goes on with an edge that a wide scratch covers, where a smooth fill cannot. */
static void test_network(void **state)
{
    (void)state;
    enum { W = 300, H = 220 };
    struct error err = ERROR_INIT;
    struct worker_context own;
    filler_begin(&own);
    uint8_t *mask = calloc(W, H), *truth = malloc(3 * W * H);
    for (int i = 0; i < W * H; i++) {
        const int x = i % W, y = i / W;
        mask[i] = abs(x - 120 - y / 9) < 5 ? DEFECT_GIVEN : 0; /* from core to core */
        memset(truth + 3 * (size_t)i, (x + 2 * y) % 90 < 45 ? 60 : 190, 3);
    }
    double error[2] = {0, 0};
    for (int k = 0; k < 2; k++) {
        struct restoration *r;
        if (restoration_create(&r, &err))
            fail_msg("%s", err.text);
        struct step step = {.r = r, .context = &own};
        step.model[ROLE_FILLER] = k ? models_resolve(own.store, ROLE_FILLER, "starter_fill") : NULL;
        r->picture = picture_waves(W, H, 3, 8);
        uint8_t *pixels = r->picture->pixels;
        for (int i = 0; i < 3 * W * H; i++)
            pixels[i] = mask[i / 3] ? 255 : truth[i];
        if (repair_fill(&step, mask, NULL, 1, &err))
            fail_msg("%s", err.text);
        for (int i = 0; i < 3 * W * H; i++) {
            const int off = pixels[i] - truth[i];
            error[k] += mask[i / 3] ? (double)off * off : 0;
        }
        restoration_destroy(&r);
    }
    printf("    squared error: smoothly %.3g, by the network %.3g\n", error[0], error[1]);
    assert_true(error[1] < error[0] / 2);
    free(mask);
    free(truth);
    filler_end(&own);
}

/* Of a picture in which a single pixel is known all becomes as that; of one in which none is, it ends. */
static void test_little_known(void **state)
{
    (void)state;
    enum { W = 500, H = 370 };
    for (int known = 1; known >= 0; known--) {
        struct error err = ERROR_INIT;
        struct restoration *r;
        if (restoration_create(&r, &err))
            fail_msg("%s", err.text);
        struct step step = {.r = r};
        r->picture = picture_waves(W, H, 3, 8);
        uint8_t *mask = malloc(W * H), *pixels = r->picture->pixels;
        memset(mask, DEFECT_GIVEN, W * H);
        mask[123 * W + 457] = known ? 0 : DEFECT_GIVEN;
        memset(pixels + 3 * (size_t)(123 * W + 457), 90, 3);
        assert_int_equal(repair_fill(&step, mask, NULL, 1, &err), OK);
        for (int i = 0; i < 3 * W * H && known; i++)
            assert_true(abs(pixels[i] - 90) <= 1);
        free(mask);
        restoration_destroy(&r);
    }
}

/* Of a plain wall a torn corner and a large hole are filled with the wall's colours, though nothing is known near: in
 * one window, and in several, of which some lie within the hole. */
static void test_deep(void **state)
{
    (void)state;
    static const int sides[][2] = {{700, 420}, {1400, 840}};
    struct error err = ERROR_INIT;
    struct worker_context own;
    filler_begin(&own);
    for (int k = 0; k < 2; k++) {
        const int width = sides[k][0], height = sides[k][1], times = k + 1;
        struct restoration *r;
        if (restoration_create(&r, &err))
            fail_msg("%s", err.text);
        struct step step = {.r = r, .context = &own};
        step.model[ROLE_FILLER] = models_resolve(own.store, ROLE_FILLER, "starter_fill");
        r->picture = picture_waves(width, height, 3, 8);
        uint8_t *mask = calloc((size_t)width, (size_t)height), *pixels = r->picture->pixels;
        for (int i = 0; i < width * height; i++) {
            const int x = i % width / times, y = i / width / times;
            mask[i] = x + y < 200 || hypot(x - 450, y - 210) < 130 ? DEFECT_GIVEN : 0;
            for (int c = 0; c < 3; c++)
                pixels[3 * i + c] = mask[i] ? 255 : (uint8_t)(180 + 10 * c + x / 20);
        }
        if (repair_fill(&step, mask, NULL, 1, &err))
            fail_msg("%s", err.text);
        double squares = 0, worst = 0;
        int count = 0;
        for (int i = 0; i < width * height; i++)
            for (int c = 0; c < 3 && mask[i]; c++) {
                const double off = pixels[3 * i + c] - (180 + 10 * c + i % width / times / 20);
                worst = fmax(worst, fabs(off));
                squares += off * off;
                count++;
            }
        printf("    off by %.1f levels, at most %.0f\n", sqrt(squares / count), worst);
        assert_true(sqrt(squares / count) < 4 && worst < 16);
        free(mask);
        restoration_destroy(&r);
    }
    filler_end(&own);
}

/* Of a light scratch that is filled in part the rest is not drawn on where the filler is not shown it. */
static void test_unknown(void **state)
{
    (void)state;
    enum { SIDE = 120 };
    struct error err = ERROR_INIT;
    struct worker_context own;
    filler_begin(&own);
    uint8_t mask[SIDE * SIDE] = {0}, unknown[SIDE * SIDE] = {0};
    double error[2] = {0, 0};
    for (int i = 0; i < SIDE * SIDE; i++) {
        const bool line = abs(i % SIDE - 60) < 4;
        mask[i] = line && i / SIDE > 60 ? DEFECT_GIVEN : 0;
        unknown[i] = abs(i % SIDE - 60) < 5;
    }
    for (int k = 0; k < 2; k++) {
        struct restoration *r;
        if (restoration_create(&r, &err))
            fail_msg("%s", err.text);
        struct step step = {.r = r, .context = &own};
        step.model[ROLE_FILLER] = models_resolve(own.store, ROLE_FILLER, "starter_fill");
        r->picture = picture_waves(SIDE, SIDE, 3, 8);
        uint8_t *pixels = r->picture->pixels;
        for (int i = 0; i < SIDE * SIDE; i++)
            memset(pixels + 3 * (size_t)i, abs(i % SIDE - 60) < 3 ? 220 : 60, 3);
        if (repair_fill(&step, mask, k ? unknown : NULL, 1, &err))
            fail_msg("%s", err.text);
        for (int i = 0; i < 3 * SIDE * SIDE; i++)
            error[k] += mask[i / 3] ? (pixels[i] - 60.0) * (pixels[i] - 60.0) : 0;
        for (int i = 0; i < SIDE * 58; i++)
            assert_int_equal(pixels[3 * i], abs(i % SIDE - 60) < 3 ? 220 : 60); /* what is not in the mask stays */
        restoration_destroy(&r);
    }
    printf("    squared error: with the rest in view %.3g, without %.3g\n", error[0], error[1]);
    assert_true(error[1] < error[0] / 2);
    filler_end(&own);
}

struct flight_case {
    int batch, fallbacks;
    enum error_code code;
    const char *faults;
    uint64_t memory; /* that the device may hold; 0: as usual */
};

/* Fills the same picture in each case, and expects the first one's result wherever there is one. */
static void check_flights(int width, int height, const uint8_t *mask, const struct flight_case *cases, size_t count)
{
    struct error err = ERROR_INIT;
    struct image *first = NULL;
    for (size_t k = 0; k < count; k++) {
        struct restoration *r = NULL;
        struct worker_context own = {.store = restoration_worker.store};
        if (fault_set(cases[k].faults, &err) || device_open(&own.device, "cpu", NULL, &err) ||
            model_set_create(&own.models, own.store, own.device, &err) || restoration_create(&r, &err))
            fail_msg("%s", err.text);
        model_set_budget(own.models, cases[k].memory, 1);
        struct step step = {.r = r, .context = &own};
        step.model[ROLE_FILLER] = models_resolve(own.store, ROLE_FILLER, "filler");
        r->limits.batch = cases[k].batch;
        r->picture = picture_waves(width, height, 3, 8);
        const enum error_code code = repair_fill(&step, mask, NULL, 1, &err);
        if (code != cases[k].code)
            fail_msg("case %zu: %s", k, err.text);
        error_clear(&err);
        assert_int_equal(r->fallbacks, cases[k].fallbacks);
        if (!first) {
            first = r->picture;
            r->picture = NULL;
        } else if (code == OK) {
            assert_true(picture_difference(image_view(r->picture), image_view(first), NULL) <= 1);
        }
        restoration_destroy(&r);
        model_set_destroy(&own.models);
        device_close(&own.device);
    }
    assert_int_equal(fault_set(NULL, &err), OK);
    image_destroy(&first);
}

/* However many windows a run has, the fill is the same: scratches in all windows, and a hole in which some show nothing
 * else. A result that is refused is computed again. A device that may hold nothing gives its memory back in between,
 * whenever a plan is made, but not that of the windows. */
static void test_batches(void **state)
{
    (void)state;
    enum { W = 330, H = 200 };
    static const struct flight_case cases[] = {{1, 0, OK, NULL, 0},
                                               {8, 0, OK, NULL, 0},
                                               {3, 0, OK, NULL, 0},
                                               {8, 1, OK, "nan@run:1,plan=filler", 0},
                                               {8, 1, OK, "nan@run:1,plan=filler", 1}};
    uint8_t *mask = calloc(W, H);
    for (int i = 0; i < W * H; i++)
        mask[i] = (i % W % 30 < 3 || (i % W > 100 && i % W < 230 && i / W > 30 && i / W < 170)) ? DEFECT_GIVEN : 0;
    check_flights(W, H, mask, cases, sizeof cases / sizeof *cases);
    free(mask);
}

/* With two flights under way on one plan, a result that is refused is computed again after the other's, and judged by
 * its own second run; whatever fails, nothing is left under way. */
static void test_flights(void **state)
{
    (void)state;
    enum { W = 16 * 192, H = 400 }; /* 16 windows, of a picture that is too large for one */
    static const struct flight_case cases[] = {{1, 0, OK, NULL, 0},
                                               {8, 0, OK, NULL, 0},
                                               {8, 1, OK, "nan@run:1,plan=filler", 0},
                                               {8, 1, OK, "nan@run:1,plan=filler", 1},
                                               {8, 2, OK, "nan@run:1,plan=filler,until=2", 0},
                                               {8, 1, ERROR_DEVICE, "nan@run:1,plan=filler nan@run:3,plan=filler", 0},
                                               {8, 0, ERROR_DEVICE_LOST, "lost@run:2,plan=filler", 0}};
    uint8_t *mask = calloc(W, H);
    for (int i = 0; i < W * H; i++)
        mask[i] = i / W < 40 && i % W % 96 < 3 ? DEFECT_GIVEN : 0;
    check_flights(W, H, mask, cases, sizeof cases / sizeof *cases);
    free(mask);
}

/* A picture of which most windows have damage is one window, with no more around it than the network needs; with less
 * damage it is not, nor where there is no room for it. */
static void test_one_window(void **state)
{
    (void)state;
    enum { W = 500, H = 390 }; /* 3 × 3 windows, or one of 512 × 416 px */
    static const struct {
        int apart; /* px from a scratch to the next */
        int windows, shrinks;
        const char *faults;
    } cases[] = {{60, 0, 0, NULL}, {500, 3, 0, NULL}, {60, 9, 1, "no_memory@plan:1,repeat,plan=filler,over=70000"}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct error err = ERROR_INIT;
        struct restoration *r = NULL;
        struct worker_context own = {.store = restoration_worker.store};
        if (fault_set(cases[k].faults, &err) || device_open(&own.device, "cpu", NULL, &err) ||
            model_set_create(&own.models, own.store, own.device, &err) || restoration_create(&r, &err))
            fail_msg("%s", err.text);
        struct step step = {.r = r, .context = &own};
        step.model[ROLE_FILLER] = models_resolve(own.store, ROLE_FILLER, "filler");
        r->picture = picture_waves(W, H, 3, 8);
        uint8_t *mask = calloc(W, H);
        for (int i = 0; i < W * H; i++)
            mask[i] = i % W % cases[k].apart > 30 && i % W % cases[k].apart < 34 ? DEFECT_GIVEN : 0;
        if (repair_fill(&step, mask, NULL, 1, &err))
            fail_msg("%s", err.text);
        const double expected = cases[k].windows ? cases[k].windows * 256 * 256 : 512 * 416;
        printf("    %g of %g px\n", 1e6 * r->damage.filled, expected);
        assert_true(fabs(1e6 * r->damage.filled - expected) < 1);
        assert_int_equal(r->shrinks, cases[k].shrinks);
        free(mask);
        restoration_destroy(&r);
        model_set_destroy(&own.models);
        device_close(&own.device);
    }
    struct error ignored = ERROR_INIT;
    assert_int_equal(fault_set(NULL, &ignored), OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pull_push),    cmocka_unit_test(test_fill),    cmocka_unit_test(test_large_hole),
        cmocka_unit_test(test_little_known), cmocka_unit_test(test_deep),    cmocka_unit_test(test_network),
        cmocka_unit_test(test_unknown),      cmocka_unit_test(test_batches), cmocka_unit_test(test_flights),
        cmocka_unit_test(test_one_window),
    };
    return cmocka_run_group_tests(tests, restoration_begin, restoration_end);
}
