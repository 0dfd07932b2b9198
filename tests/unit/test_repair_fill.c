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
#include "server/pipeline/repair_private.h"
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

/* A hole larger than windows: no black, no edge where windows meet. */
static void test_large_hole(void **state)
{
    (void)state;
    enum { W = 900, H = 700 };
    struct error err = ERROR_INIT;
    struct restoration *r;
    if (restoration_create(&r, &err))
        fail_msg("%s", err.text);
    struct step step = {.r = r};
    r->picture = picture_waves(W, H, 3, 8);
    uint8_t *mask = calloc(W, H);
    for (int i = 0; i < W * H; i++) {
        mask[i] = i % W > 100 && i % W < 800 && i / W > 100 && i / W < 600 ? DEFECT_GIVEN : 0;
        memset((uint8_t *)r->picture->pixels + 3 * (size_t)i, mask[i] ? 255 : 90 + 40 * (i % W > 450), 3);
    }
    assert_int_equal(repair_fill(&step, mask, NULL, 1, &err), OK);
    int low = 255, high = 0, jump = 0;
    const uint8_t *p = r->picture->pixels;
    for (int y = 105; y < 595; y++)
        for (int x = 105; x < 790; x++) {
            const int v = p[3 * (y * W + x)], next = abs(v - p[3 * (y * W + x + 1)]),
                      below = abs(v - p[3 * ((y + 1) * W + x)]);
            low = v < low ? v : low;
            high = v > high ? v : high;
            jump = next > jump ? next : below > jump ? below : jump;
        }
    printf("    %d to %d, steps of up to %d\n", low, high, jump);
    assert_true(low >= 88 && high <= 132 && jump <= 12);
    free(mask);
    restoration_destroy(&r);
}

/* How much a gray picture's rectangle differs from what is three rows below, as a deviation. */
static double rough(const struct image *image, int left, int right)
{
    double squares = 0;
    int count = 0;
    for (int y = 10; y < image->height - 10; y++)
        for (int x = left; x < right; x++) {
            const uint8_t *v = (const uint8_t *)image->pixels + 3 * ((size_t)y * (size_t)image->width + (size_t)x);
            const double step = v[0] - v[9 * image->width];
            squares += step * step / 2;
            count++;
        }
    return sqrt(squares / count);
}

/* A print of 256 × 256: 120 and a noise of some deviation, blurred n times by 1 2 1 in both directions. uneven: each
 * 16 × 16 has another part of it, as what is painted has, not a print. */
static void grain_print(struct image *image, int blurs, double deviation, bool uneven)
{
    enum { SIDE = 256 };
    float *noise = malloc(SIDE * SIDE * sizeof *noise), *other = malloc(SIDE * SIDE * sizeof *other);
    unsigned seed = 7;
    double squares = 0;
    for (int i = 0; i < SIDE * SIDE; i++)
        noise[i] = (float)(picture_random(&seed) % 1000 + picture_random(&seed) % 1000 + picture_random(&seed) % 1000) -
                   1498.5f;
    for (int k = 0; k < 2 * blurs; k++) {
        memcpy(other, noise, SIDE * SIDE * sizeof *noise);
        const int by = k % 2 ? SIDE : 1;
        for (int i = 0; i < SIDE * SIDE; i++)
            noise[i] =
                other[i] / 2 + (other[(i + by) % (SIDE * SIDE)] + other[(i + SIDE * SIDE - by) % (SIDE * SIDE)]) / 4;
    }
    for (int i = 0; i < SIDE * SIDE; i++)
        squares += noise[i] * noise[i];
    const double scale = deviation / sqrt(squares / (SIDE * SIDE));
    for (int i = 0; i < SIDE * SIDE; i++) {
        const int cell = i / SIDE / 16 * 16 + i % SIDE / 16;
        const double part = uneven ? 0.25 + (cell * 37 % 16) / 8.0 : 1;
        memset((uint8_t *)image->pixels + 3 * (size_t)i, (int)lrint(fmin(fmax(120 + part * scale * noise[i], 0), 255)),
               3);
    }
    free(noise);
    free(other);
}

/* On a grainy print a thin hole gets grain like its surroundings', fine or coarse, as a wide one does; where there is
 * structure and no grain, neither gets any. */
static void test_grain(void **state)
{
    (void)state;
    enum { W = 256, H = 256 };
    static const struct {
        int blurs;
        double deviation;
        bool grain;
    } cases[] = {{0, 6, true}, {3, 6, true}, {0, 12, true}, {0, 12, false}, {3, 6, false}, {0, 0.7, false}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct error err = ERROR_INIT;
        struct restoration *r;
        if (restoration_create(&r, &err))
            fail_msg("%s", err.text);
        struct step step = {.r = r};
        r->picture = picture_waves(W, H, 3, 8);
        grain_print(r->picture, cases[k].blurs, cases[k].deviation, !cases[k].grain && cases[k].deviation > 1);
        uint8_t *mask = calloc(W, H);
        for (int i = 0; i < W * H; i++) {
            const int x = i % W;
            mask[i] = (x >= 60 && x < 66) || (x >= 140 && x < 200) ? DEFECT_GIVEN : 0;
            if (mask[i])
                memset((uint8_t *)r->picture->pixels + 3 * (size_t)i, 238, 3);
        }
        assert_int_equal(repair_fill(&step, mask, NULL, 1, &err), OK);
        const double around = rough(r->picture, 4, 56), thin = rough(r->picture, 61, 65),
                     wide = rough(r->picture, 155, 185);
        printf("    rough: the print %.1f, a thin hole %.1f, a wide one %.1f\n", around, thin, wide);
        if (cases[k].grain) {
            assert_true(thin > 0.75 * around && thin < 1.15 * around);
            assert_true(wide > 0.75 * around && wide < 1.15 * around);
        } else {
            assert_true(thin < 0.5 * around && wide < 0.2 * around);
        }
        free(mask);
        restoration_destroy(&r);
    }
}

/* What is clipped to white in a grainy print has no grain, nor has what is filled there. */
static void test_clipped(void **state)
{
    (void)state;
    enum { W = 256, H = 256 };
    struct error err = ERROR_INIT;
    struct restoration *r;
    if (restoration_create(&r, &err))
        fail_msg("%s", err.text);
    struct step step = {.r = r};
    r->picture = picture_waves(W, H, 3, 8);
    uint8_t *mask = calloc(W, H), *pixels = r->picture->pixels;
    grain_print(r->picture, 0, 6, false);
    for (int i = 0; i < W * H; i++) {
        mask[i] = i % W % 170 >= 60 && i % W % 170 < 66 ? DEFECT_GIVEN : 0;
        if (mask[i] || i % W > 190)
            memset(pixels + 3 * (size_t)i, mask[i] ? 40 : 255, 3);
    }
    assert_int_equal(repair_fill(&step, mask, NULL, 1, &err), OK);
    assert_true(rough(r->picture, 61, 65) > 4);
    for (int i = 0; i < W * H; i++)
        assert_true(i % W < 231 || i % W >= 235 || pixels[3 * i] > 250);
    free(mask);
    restoration_destroy(&r);
}

/* The starter filler goes on with an edge that a wide scratch covers, where a smooth fill cannot. */
static void test_network(void **state)
{
    (void)state;
    enum { W = 300, H = 220 };
    if (access("models/starter/starter_fill.safetensors", R_OK))
        skip();
    struct error err = ERROR_INIT;
    struct worker_context own = {.device = restoration_worker.device, .store = models_of("models/starter", NULL)};
    if (model_set_create(&own.models, own.store, own.device, &err))
        fail_msg("%s", err.text);
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
    model_set_destroy(&own.models);
    model_store_destroy(&own.store);
}

/* Of a light scratch that is filled in part the rest is not drawn on where the filler is not shown it. */
static void test_unknown(void **state)
{
    (void)state;
    enum { SIDE = 120 };
    if (access("models/starter/starter_fill.safetensors", R_OK))
        skip();
    struct error err = ERROR_INIT;
    struct worker_context own = {.device = restoration_worker.device, .store = models_of("models/starter", NULL)};
    if (model_set_create(&own.models, own.store, own.device, &err))
        fail_msg("%s", err.text);
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
    model_set_destroy(&own.models);
    model_store_destroy(&own.store);
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

/* What parts of a window lack of grain does not depend on which is measured first, or by which thread. */
static void test_lack(void **state)
{
    (void)state;
    enum { W = 512, H = 192, BLOCKS = 6 * 2 };
    const struct fill_cut grain = {128, 128, 96, 96, 8, 128 * 128, BLOCKS / 2, 2, NULL};
    const struct fill_cut cut = {W, H, W, H, 0, W * H, 1, 1, &grain};
    void *memory = malloc(fill_window_bytes(&cut)), *scratch = malloc(fill_scratch_bytes(&cut));
    float *result = malloc(3 * sizeof *result * W * H);
    uint8_t mask[W * H] = {0};
    struct image *picture = picture_waves(W, H, 3, 8);
    struct fill_window w;
    struct fill_grain lack[2][BLOCKS];
    unsigned seed = 3;
    for (int i = 0; i < W * H; i++) {
        mask[i] = abs(i / W - 96) < 14;
        for (int c = 0; c < 3; c++) {
            ((uint8_t *)picture->pixels)[3 * i + c] = (uint8_t)(100 + picture_random(&seed) % 60);
            result[3 * i + c] = (float)(picture_random(&seed) % 100) / 1000;
        }
    }
    fill_window_place(&w, &cut, memory, scratch);
    w.picture = picture;
    w.mask_of = mask;
    w.result = result;
    fill_begin(&w);
    for (int y = 0; y < H; y += PULL_BAND)
        fill_read(&w, y, true);
    fill_count(&w, true);
    for (int y = 0; y < H; y += PULL_BAND)
        fill_spread(&w, y);
    for (int y = 0; y < H; y += PULL_BAND)
        fill_list(&w, y, true);
    fill_count_near(&w);
    for (int y = 0; y < H; y += PULL_BAND)
        fill_holes(&w, y, NULL, false);
    for (int backwards = 0; backwards < 2; backwards++) {
        for (int y = 0; y < H; y += PULL_BAND)
            fill_take(&w, y);
        for (int i = 0; i < BLOCKS; i++)
            fill_grain(&w, i);
        for (int i = 0; i < BLOCKS; i++)
            fill_lack(&w, backwards ? BLOCKS - 1 - i : i);
        memcpy(lack[backwards], w.grain, sizeof lack[0]);
    }
    for (int i = 0; i < BLOCKS; i++) {
        assert_true(lack[0][i].lack[0] > 1);
        assert_memory_equal(&lack[0][i], &lack[1][i], sizeof lack[0][i]);
    }
    /* a place gets the same whichever was asked for before */
    int rougher = 0;
    struct fill_grain_row row = {.w = &w, .y = 100};
    for (int x = 0; x < W; x++) {
        struct fill_grain_row alone = {.w = &w, .y = 100};
        const float once = fill_grain_at(&row, x, x % 3);
        assert_true(once == fill_grain_at(&alone, x, x % 3));
        rougher += once != 0;
    }
    assert_true(rougher > W * 9 / 10);
    image_destroy(&picture);
    free(result);
    free(scratch);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pull_push), cmocka_unit_test(test_fill),       cmocka_unit_test(test_large_hole),
        cmocka_unit_test(test_grain),     cmocka_unit_test(test_clipped),    cmocka_unit_test(test_lack),
        cmocka_unit_test(test_network),   cmocka_unit_test(test_unknown),    cmocka_unit_test(test_batches),
        cmocka_unit_test(test_flights),   cmocka_unit_test(test_one_window),
    };
    return cmocka_run_group_tests(tests, restoration_begin, restoration_end);
}
