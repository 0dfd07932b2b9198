/* How much grain a fill gets: as much as is around, in each tone, and none where there is none. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/pipeline/repair.h"
#include "server/pipeline/repair_private.h"
#include "tests/common/picture.h"
#include "tests/common/restoration.h"

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

/* A picture with a grain_print of its own that is repaired, and what of it is to be filled: nothing yet. */
struct print {
    struct restoration *r;
    struct step step;
    uint8_t *pixels, *mask;
};

static void print_begin(struct print *print, int blurs, double deviation, bool uneven)
{
    struct error err = ERROR_INIT;
    *print = (struct print){0};
    if (restoration_create(&print->r, &err))
        fail_msg("%s", err.text);
    print->step.r = print->r;
    print->r->picture = picture_waves(256, 256, 3, 8);
    print->pixels = print->r->picture->pixels;
    print->mask = calloc(256, 256);
    grain_print(print->r->picture, blurs, deviation, uneven);
}

static void print_fill(struct print *print)
{
    struct error err = ERROR_INIT;
    assert_int_equal(repair_fill(&print->step, print->mask, NULL, 1, &err), OK);
}

static void print_end(struct print *print)
{
    free(print->mask);
    restoration_destroy(&print->r);
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
        struct print print;
        print_begin(&print, cases[k].blurs, cases[k].deviation, !cases[k].grain && cases[k].deviation > 1);
        for (int i = 0; i < W * H; i++) {
            const int x = i % W;
            print.mask[i] = (x >= 60 && x < 66) || (x >= 140 && x < 200) ? DEFECT_GIVEN : 0;
            if (print.mask[i])
                memset(print.pixels + 3 * (size_t)i, 238, 3);
        }
        print_fill(&print);
        const double around = rough(print.r->picture, 4, 56), thin = rough(print.r->picture, 61, 65),
                     wide = rough(print.r->picture, 155, 185);
        printf("    rough: the print %.1f, a thin hole %.1f, a wide one %.1f\n", around, thin, wide);
        if (cases[k].grain) {
            assert_true(thin > 0.75 * around && thin < 1.15 * around);
            assert_true(wide > 0.75 * around && wide < 1.15 * around);
        } else {
            assert_true(thin < 0.5 * around && wide < 0.2 * around);
        }
        print_end(&print);
    }
}

/* A print whose lighter half has more grain gets in each half's hole as much as is around it, and a hole so large that
 * nothing is known near its middle gets grain there, too. */
static void test_grain_places(void **state)
{
    (void)state;
    enum { W = 256, H = 256 };
    static const double deviations[2][2] = {{3, 7}, {6, 6}}; /* of the halves */
    for (int large = 0; large < 2; large++) {
        struct print print;
        print_begin(&print, 0, 10, false);
        for (int i = 0; i < W * H; i++) {
            const int x = i % W, half = x >= W / 2;
            const double noise = (print.pixels[3 * i] - 120) / 10.0;
            const bool hole = large ? x >= 50 && x < 200 : (x >= 50 && x < 58) || (x >= 190 && x < 198);
            print.mask[i] = hole ? DEFECT_GIVEN : 0;
            memset(print.pixels + 3 * (size_t)i,
                   hole ? 250 : (int)lrint((large || half ? 170 : 60) + deviations[large][half] * noise), 3);
        }
        print_fill(&print);
        const struct image *picture = print.r->picture;
        for (int half = 0; half < 2; half++) {
            const double around = half ? rough(picture, 206, 250) : rough(picture, 4, 46),
                         filled = large  ? rough(picture, 100, 150)
                                  : half ? rough(picture, 191, 197)
                                         : rough(picture, 51, 57);
            printf("    rough: around %.1f, filled %.1f\n", around, filled);
            assert_true(filled > 0.8 * around && filled < 1.15 * around);
        }
        print_end(&print);
    }
}

/* A screen of dots is no grain: what is filled in a printed picture gets no noise, at any pitch and angle of its dots;
 * where a screen is faint beside the grain, it does. */
static void test_screen(void **state)
{
    (void)state;
    enum { W = 256, H = 256 };
    static const struct {
        double pitch, angle, dots, grain;
        bool noise;
    } cases[] = {{2.6, 0.8, 20, 0, false}, {3, 0, 30, 1, false},  {4, 0.3, 25, 2, false},
                 {5.5, 0.8, 40, 4, false}, {6.5, 0, 25, 3, false}, {4, 0.3, 1, 6, true}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct print print;
        print_begin(&print, 0, 10, false);
        for (int i = 0; i < W * H; i++) {
            const int x = i % W, y = i / W;
            const double step = 3.14159265 / cases[k].pitch, a = (x * cos(cases[k].angle) + y * sin(cases[k].angle)),
                         b = (y * cos(cases[k].angle) - x * sin(cases[k].angle)),
                         noise = (print.pixels[3 * i] - 120) / 10.0;
            print.mask[i] = x >= 140 && x < 200 ? DEFECT_GIVEN : 0;
            memset(print.pixels + 3 * (size_t)i,
                   print.mask[i] ? 250
                                 : (int)lrint(120 + cases[k].dots * sin(a * step) * sin(b * step) +
                                              cases[k].grain * noise),
                   3);
        }
        print_fill(&print);
        const double around = rough(print.r->picture, 4, 130), filled = rough(print.r->picture, 155, 185);
        printf("    rough: the print %.1f, filled %.1f\n", around, filled);
        assert_true(cases[k].noise ? filled > 0.75 * around : filled < 0.2 * around);
        print_end(&print);
    }
}

/* What is clipped to white in a grainy print has no grain, nor has what is filled there. */
static void test_clipped(void **state)
{
    (void)state;
    enum { W = 256, H = 256 };
    struct print print;
    print_begin(&print, 0, 6, false);
    for (int i = 0; i < W * H; i++) {
        print.mask[i] = i % W % 170 >= 60 && i % W % 170 < 66 ? DEFECT_GIVEN : 0;
        if (print.mask[i] || i % W > 190)
            memset(print.pixels + 3 * (size_t)i, print.mask[i] ? 40 : 255, 3);
    }
    print_fill(&print);
    assert_true(rough(print.r->picture, 61, 65) > 4);
    for (int i = 0; i < W * H; i++)
        assert_true(i % W < 231 || i % W >= 235 || print.pixels[3 * i] > 250);
    print_end(&print);
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
        fill_holes(&w, y, false);
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
        const float once = fill_grain_at(&row, x, x % 3, 120);
        assert_true(once == fill_grain_at(&alone, x, x % 3, 120));
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
        cmocka_unit_test(test_grain),
        cmocka_unit_test(test_grain_places),
        cmocka_unit_test(test_screen),
        cmocka_unit_test(test_clipped),
        cmocka_unit_test(test_lack),
    };
    return cmocka_run_group_tests(tests, restoration_begin, restoration_end);
}
