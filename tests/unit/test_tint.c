/* preserve_color: what a restored face keeps of the picture's colours. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/pipeline/tint.h"
#include "tests/common/picture.h"

enum { SIDE = 256, PIXELS = SIDE * SIDE };

static float crop[3 * PIXELS], own[3 * PIXELS], before[3 * PIXELS];

static float luma(const float *rgb)
{
    return 0.299f * rgb[0] + 0.587f * rgb[1] + 0.114f * rgb[2];
}

/* A picture at the crop's place, enlarged so many times for it, of which only the first `seen` columns are there. */
static void keep(int seen, int times)
{
    struct error err = ERROR_INIT;
    struct restoration *r;
    struct face face = {.size = SIDE, .crop_float = crop, .restoration_float = own};
    face.affine[0] = face.affine[4] = times;
    face.affine[2] = face.affine[5] = 0.5 * times - 0.5;
    memcpy(before, own, sizeof own);
    assert_int_equal(restoration_create(&r, &err), OK);
    assert_int_equal(image_create(&r->picture, seen, SIDE / times, 3, 8, false, &err), OK);
    assert_int_equal(tint_keep(r, &face, &err), OK);
    for (int i = 0; i < PIXELS; i++)
        assert_true(fabsf(luma(own + 3 * i) - luma(before + 3 * i)) < 0.01f);
    restoration_destroy(&r);
}

/* Noise for brightness; a restoration with more of it, and red cheeks. */
static void fill(float slope)
{
    unsigned seed = 4;
    for (int i = 0; i < PIXELS; i++) {
        const float y = 60 + (float)(picture_random(&seed) % 100), z = y + (float)(picture_random(&seed) % 41) - 20;
        const float red = 30 * sinf((float)(i % SIDE) / 20) + (float)(picture_random(&seed) % 20);
        for (int c = 0; c < 3; c++) {
            crop[3 * i + c] = y + slope * (float)(1 - c) * (y - 100);
            own[3 * i + c] = z + (c == 0 ? red : 0);
        }
    }
}

static float worst_chroma(float slope)
{
    float worst = 0;
    for (int i = 0; i < PIXELS; i++) {
        const float y = luma(own + 3 * i);
        /* the crop's red minus brightness for each level, from its formula */
        const float light = 1 + slope * (0.299f - 0.114f), at = 100 + (y - 100) / light;
        worst = fmaxf(worst, fabsf(own[3 * i] - y - (at + slope * (at - 100) - y)));
        worst = fmaxf(worst, fabsf(own[3 * i + 2] - y - (at - slope * (at - 100) - y)));
    }
    return worst;
}

static void a_black_and_white_face_is_not_tinted(void **state)
{
    (void)state;
    fill(0);
    assert_true(worst_chroma(0) > 20);
    keep(SIDE, 1);
    assert_true(worst_chroma(0) < 0.05f);
}

static void a_toned_face_keeps_its_tone(void **state)
{
    (void)state;
    fill(0.2f);
    assert_true(worst_chroma(0.2f) > 20);
    keep(SIDE, 1);
    if (worst_chroma(0.2f) > 4) /* the restoration is up to 15 levels brighter or darker, of which a fifth is chroma */
        fail_msg("off by %g", (double)worst_chroma(0.2f));
}

static void a_coloured_face_keeps_the_broad_colours(void **state)
{
    (void)state;
    double crop_red = 0, own_red = 0, fine = 0;
    fill(0);
    for (int i = 0; i < PIXELS; i++) /* green to the left, blue to the right */
        crop[3 * i + (i % SIDE < SIDE / 2 ? 1 : 2)] += 60;
    keep(SIDE, 1);
    for (int y = 64; y < 128; y++)
        for (int x = 32; x < 96; x++) {
            const int i = y * SIDE + x;
            crop_red += crop[3 * i] - luma(crop + 3 * i);
            own_red += own[3 * i] - luma(own + 3 * i);
            const float *a = own + 3 * i, *b = own + 3 * i + 3;
            fine += fabsf((a[0] - luma(a)) - (b[0] - luma(b)));
        }
    assert_true(fabs(crop_red - own_red) / 4096 < 0.5);
    assert_true(fine / 4096 > 2); /* the restoration's fine colours are still there */
}

static void what_lies_outside_of_the_picture_says_nothing(void **state)
{
    (void)state;
    fill(0);
    for (int i = 0; i < PIXELS; i++)
        if (i % SIDE >= SIDE / 2)
            crop[3 * i] = 255; /* would be a red half */
    keep(SIDE / 2, 1);
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE / 2 - 16; x++) {
            const float *a = own + 3 * (y * SIDE + x);
            assert_true(fabsf(a[0] - luma(a)) < 1);
        }
}

/* Its px are red or green by chance. */
static void the_noise_in_the_colours_of_a_tiny_face_is_not_kept(void **state)
{
    (void)state;
    enum { TIMES = 8 };
    unsigned seed = 6;
    float noise[SIDE / TIMES][SIDE / TIMES];
    double came = 0, stays = 0, mean = 0;
    fill(0);
    for (int i = 0; i < SIDE / TIMES * (SIDE / TIMES); i++)
        noise[i / (SIDE / TIMES)][i % (SIDE / TIMES)] = 10 + (picture_random(&seed) % 2 ? 20.0f : -20.0f);
    for (int i = 0; i < PIXELS; i++) {
        const float y = luma(own + 3 * i), red = noise[i / SIDE / TIMES][i % SIDE / TIMES];
        for (int c = 0; c < 3; c++) {
            own[3 * i + c] = y;
            crop[3 * i + c] = y + (c == 0 ? red : c == 1 ? -0.299f / 0.587f * red : 0);
        }
        came += (red - 10) * (red - 10) / PIXELS;
    }
    keep(SIDE / TIMES, TIMES);
    for (int i = 0; i < PIXELS; i++) {
        const double red = own[3 * i] - luma(own + 3 * i);
        mean += red / PIXELS;
        stays += (red - 10) * (red - 10) / PIXELS;
    }
    assert_true(fabs(mean - 10) < 2); /* the broad colour is the picture's */
    if (stays > 0.1 * came)
        fail_msg("%.3f of the noise stays", stays / came);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_black_and_white_face_is_not_tinted),
        cmocka_unit_test(a_toned_face_keeps_its_tone),
        cmocka_unit_test(a_coloured_face_keeps_the_broad_colours),
        cmocka_unit_test(what_lies_outside_of_the_picture_says_nothing),
        cmocka_unit_test(the_noise_in_the_colours_of_a_tiny_face_is_not_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
