/* weight=auto: what of a restoration is used, for pictures of which it is known what is right. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/thread.h"
#include "server/image/filter.h"
#include "server/image/warp.h"
#include "server/pipeline/strength.h"
#include "server/pipeline/strength_change.h"

enum { CROP = 512, PLANE = CROP * CROP };

static uint32_t seed;

/* About normal, variance 1. */
static float normal(void)
{
    float sum = -6;
    for (int i = 0; i < 12; i++) {
        seed = seed * 1664525 + 1013904223;
        sum += (float)(seed >> 8) / (1 << 24);
    }
    return sum;
}

/* Something like a face: large shapes, strong fine lines in places, and smooth skin. */
static void draw(float *luma, double phase)
{
    for (int y = 0; y < CROP; y++)
        for (int x = 0; x < CROP; x++) {
            const double large = 50 * sin(x / 41.0 + phase) * cos(y / 37.0 + phase);
            const double hair = fmax(0, sin(x / 53.0) * sin(y / 59.0));
            luma[y * CROP + x] = (float)(125 + large + 40 * hair * hair * sin(x * 0.9 + y * 0.35));
        }
}

static void blur(float *luma, double sigma)
{
    struct error err = ERROR_INIT;
    const struct view_f32 view = {luma, CROP, CROP, 1, CROP};
    assert_int_equal(filter_gaussian_f32(&view, &view, 2 * (int)ceil(3 * sigma) + 1, sigma, &err), OK);
}

static void add_noise(float *luma, float sigma)
{
    seed = 7;
    for (int i = 0; i < PLANE; i++)
        luma[i] += sigma * normal();
}

/* Each block of 8 × 8 is its mean and its coarsest part. */
static void compress(float *luma)
{
    for (int y = 0; y < CROP; y += 8)
        for (int x = 0; x < CROP; x += 8) {
            float mean = 0;
            for (int i = 0; i < 64; i++)
                mean += luma[(y + i / 8) * CROP + x + i % 8] / 64;
            for (int i = 0; i < 64; i++) {
                float *at = &luma[(y + i / 8) * CROP + x + i % 8];
                *at = mean + 0.2f * (*at - mean);
            }
        }
}

static float white; /* the standard deviation of noise that weigh() adds to the picture's own px */

/* Restoring `picture` to `restoration`, both 512 × 512, the picture reduced to the scale. Sets the face's figures. */
static struct face weigh(const float *picture, const float *restoration, double scale, double weight)
{
    struct error err = ERROR_INIT;
    struct restoration *r;
    const int side = (int)(CROP * scale);
    if (restoration_create(&r, &err) || image_create(&r->picture, side, side, 3, 8, false, &err))
        fail_msg("%s", err.text);
    float *small = malloc((size_t)side * (size_t)side * sizeof *small), border[1] = {0};
    const double shift = 0.5 * scale - 0.5, reduce[6] = {scale, 0, shift, 0, scale, shift};
    float *copy = malloc(PLANE * sizeof *copy);
    memcpy(copy, picture, PLANE * sizeof *copy);
    const struct view_f32 to = {small, side, side, 1, (size_t)side}, from = {copy, CROP, CROP, 1, CROP};
    warp_smooth_f32(&to, 0, 0, &from, reduce, border);
    for (int i = 0; i < side * side; i++) {
        const float v = white > 0 ? small[i] + white * normal() : small[i];
        memset((uint8_t *)r->picture->pixels + 3 * i, (int)fminf(fmaxf(rintf(v), 0), 255), 3);
    }
    struct face face = {.size = CROP, .restoration_float = malloc(3 * PLANE * sizeof(float))};
    face.affine[0] = face.affine[4] = 1 / scale;
    face.affine[2] = face.affine[5] = 0.5 / scale - 0.5;
    for (int i = 0; i < 3 * PLANE; i++)
        face.restoration_float[i] = restoration[i / 3];
    r->options.weight = weight;
    struct strength strength;
    if (strength_of(r, &face, &strength, &err))
        fail_msg("%s", err.text);
    assert_true(face.weighed);
    assert_true((strength.used != NULL) == (weight < 0));
    for (int i = 0; i < strength.rect.width * strength.rect.height; i++)
        assert_true(strength.used[i] >= 0 && strength.used[i] <= 1);
    strength_free(&strength);
    free(face.restoration_float);
    face.restoration_float = NULL;
    free(copy);
    free(small);
    restoration_destroy(&r);
    return face;
}

static float truth[PLANE], worse[PLANE];

static void set(double phase)
{
    draw(truth, phase);
    memcpy(worse, truth, sizeof truth);
}

static void detail_stays(void **state)
{
    (void)state;
    static const double scales[] = {0.5, 1, 1.5, 3};
    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
        set(0);
        blur(worse, 2 / fmin(scales[i], 1));
        const struct face f = weigh(truth, worse, scales[i], -1);
        printf("    a sharp picture at %g: %.3f is used, change %.3f\n", scales[i], f.used, f.change);
        assert_true(f.used < 0.15);
        assert_true(f.change < 0.15);
    }
}

/* Sharp pictures, but for a part of their width in which a restoration has more of the same detail, or as much of
 * another: that part stays, too. */
static void soft_places_stay(void **state)
{
    (void)state;
    static const float amplitudes[2][2][2] = {{{6, 4}, {4, 6}}, {{10, 4}, {7, 7}}}; /* elsewhere, there */
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < PLANE; i++) {
            const bool there = i % CROP > 300;
            const float at = (float)(i % CROP) * 0.9f + (float)i / CROP * 0.35f;
            truth[i] = 125 + amplitudes[round][there][0] * sinf(at);
            worse[i] = 125 + amplitudes[round][there][1] * sinf(at + (round && there ? 1.6f : 0));
        }
        const double used = weigh(truth, worse, 1, -1).used;
        printf("    soft in a part of it: %.3f\n", used);
        assert_true(used < 0.05);
    }
}

/* A sharp picture with scratches: what a restoration does without them is used there, and more of it in the whole face.
 */
static void scratches_go(void **state)
{
    (void)state;
    static float scratched[PLANE];
    set(0);
    blur(worse, 1);
    const double whole = weigh(truth, worse, 1, -1).used;
    memcpy(scratched, truth, sizeof scratched);
    for (int y = 0; y < CROP; y++)
        for (int line = 0; line < 3; line++)
            scratched[y * CROP + 190 + 60 * line + y / 16] = 235;
    const double spoilt = weigh(scratched, worse, 1, -1).used;
    set(0);
    blur(worse, 1);
    for (int i = 0; i < PLANE; i++)
        scratched[i] = truth[i] + (i % CROP / 2 == 100 ? 20 : 0);
    const double faint = weigh(scratched, worse, 0.5, -1).used;
    double few[2]; /* of an undamaged picture and of one with JPEG's blocks */
    for (int round = 0; round < 2; round++) {
        set(0);
        for (int i = 0; i < PLANE && round; i++)
            truth[i] += (i % CROP / 8 + i / CROP / 8) % 2 ? 0.67f : -0.67f;
        blur(worse, 1);
        for (int i = 0; i < PLANE; i++)
            scratched[i] = truth[i] + (i % CROP == 200 ? 17 : 0);
        few[round] = weigh(scratched, worse, 1, -1).used;
    }
    printf("    without scratches %.3f, with them %.3f, with a faint one %.3f, with one %.3f, and blocks %.3f\n", whole,
           spoilt, faint, few[0], few[1]);
    assert_true(whole < 0.2 && spoilt > 0.5 && faint > 0.95 && few[0] < 0.15 && few[1] > 0.65);
}

static void damage_goes(void **state)
{
    (void)state;
    set(0);
    blur(worse, 4);
    struct face f = weigh(worse, truth, 1, -1);
    printf("    blurred: %.3f, change %.3f\n", f.used, f.change);
    assert_true(f.used > 0.95);
    static const double scales[] = {0.25, 0.5, 1, 1.5};
    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
        set(0);
        add_noise(worse, (float)(12 / fmin(scales[i], 1)));
        f = weigh(worse, truth, scales[i], -1);
        printf("    noise at %g: %.3f, change %.3f\n", scales[i], f.used, f.change);
        /* where there is more than noise, a little of it stays: more where the crop holds less */
        assert_true(f.used > 0.85 && f.used < 0.98);
    }
    set(0);
    compress(worse);
    float *smooth = malloc(sizeof truth);
    memcpy(smooth, truth, sizeof truth);
    blur(smooth, 0.7);
    f = weigh(worse, smooth, 1, -1);
    printf("    blocks: %.3f\n", f.used);
    assert_true(f.used > 0.9);
    free(smooth);
}

/* A face of 41 px, whose picture has much in common with any restoration: grain and scratches go all the same, and a
 * sharp one stays. */
static void tiny_faces(void **state)
{
    (void)state;
    static float given[PLANE];
    for (int y = 0; y < CROP; y++)
        for (int x = 0; x < CROP; x++) {
            const double large = 50 * sin(x / 41.0) * cos(y / 37.0);
            truth[y * CROP + x] = (float)(125 + large + 45 * sin(x * 0.09 + y * 0.05) * sin(x / 97.0) * sin(y / 83.0));
        }
    memcpy(worse, truth, sizeof truth);
    blur(worse, 6);
    const double sharp = weigh(truth, worse, 0.125, -1).used;
    memcpy(given, truth, sizeof truth);
    add_noise(given, 26); /* some 3 levels in the picture */
    const double grain = weigh(given, worse, 0.125, -1).used;
    memcpy(given, worse, sizeof worse);
    for (int i = 0; i < PLANE; i++)
        if (i % CROP / 8 == 29)
            given[i] += 30;
    const double scratched = weigh(given, truth, 0.125, -1).used;
    memcpy(worse, truth, sizeof truth);
    blur(worse, 2);
    for (int i = 0; i < PLANE; i++) /* so faint that none of its px is unlike the others */
        given[i] = worse[i] + (i % CROP / 16 == 14 ? 15 : 0);
    const double faint = weigh(given, truth, 0.125, -1).used;
    printf("    of 41 px: sharp %.3f, with grain %.3f, out of focus and scratched %.3f, faintly %.3f\n", sharp, grain,
           scratched, faint);
    assert_true(sharp < 0.15 && grain > 0.8 && grain < 0.95 && scratched > 0.9 && faint > 0.9);
}

/* Twice as large as its crop: even detail is no noise, and what is as small as the error of a network that sees half of
 * the pixels changes nothing. */
static void large_faces(void **state)
{
    (void)state;
    for (int y = 0; y < CROP; y++)
        for (int x = 0; x < CROP; x++) {
            const double large = 125 + 50 * sin(x / 41.0) * cos(y / 37.0);
            const double fine = 14 * (0.7 + 0.3 * sin(x / 53.0) * sin(y / 59.0)) * sin(x * 0.9 + y * 0.35);
            truth[y * CROP + x] = (float)(large + fine);
            worse[y * CROP + x] = (float)(large + 0.3 * fine);
        }
    const double even = weigh(truth, worse, 2.1, -1).used;
    set(0);
    for (int i = 0; i < PLANE; i++)
        truth[i] += 0.24f * (truth[i] - 125);
    const double little = weigh(worse, truth, 2, -1).used;
    for (int y = 0; y < CROP; y++) /* JPEG's blocks, of 4 px here and 8 in the picture */
        for (int x = 0; x < CROP; x++)
            worse[y * CROP + x] += (x / 4 + y / 4) % 2 ? 4.0f : -4.0f;
    const double blocks = weigh(worse, truth, 2, -1).used;
    printf("    even detail: %.3f, little added: %.3f, to one with blocks: %.3f\n", even, little, blocks);
    assert_true(even < 0.1 && little < 0.2 && blocks > 0.95);
    for (int i = 0; i < PLANE; i++) { /* fine lines of a sharp face, far apart */
        const double large = 125 + 50 * sin(i % CROP / 41.0) * cos(i / CROP / 37.0);
        const double fine = 4 * sin(i % CROP * 0.9 + i / CROP * 0.35);
        worse[i] = (float)(large + 0.3 * fine);
        truth[i] = (float)(large + fine + (i % CROP > 256 && i % CROP % 37 == 0 ? 45 : 0));
    }
    const double lines = weigh(truth, worse, 2, -1).used;
    for (int i = 0; i < PLANE; i++) /* without the lines, but for a piece of one */
        truth[i] -= i % CROP > 256 && i % CROP % 37 == 0 ? i % CROP == 296 && i / CROP / 24 == 10 ? 15 : 45.0f : 0.0f;
    const double piece = weigh(truth, worse, 2, -1).used;
    printf("    with fine lines: %.3f, with a piece of one: %.4f\n", lines, piece);
    assert_true(lines < 0.3 && piece < 0.001);
    for (int i = 0; i < PLANE; i++) { /* smooth skin; the picture has more: JPEG's blocks, everywhere alike */
        worse[i] = (float)(125 + 50 * sin(i % CROP / 41.0) * cos(i / CROP / 37.0));
        truth[i] = worse[i] + ((i % CROP / 4 + i / CROP / 4) % 2 ? 3.5f : -3.5f);
    }
    const double rough = weigh(truth, worse, 2, -1).used;
    printf("    with nothing but blocks: %.3f\n", rough);
    assert_true(rough > 0.95);
    set(0); /* six times as large: a map of 1024 px hardly has the noise of 3072 */
    blur(worse, 1);
    const double clean = weigh(truth, worse, 6, -1).used;
    white = 12;
    const double noisy = weigh(truth, worse, 6, -1).used;
    white = 7.5f;
    const double less = weigh(truth, worse, 3, -1).used;
    white = 0;
    printf("    of 2000 px: %.3f, with noise %.3f, of 1000 px, with less %.3f\n", clean, noisy, less);
    assert_true(clean < 0.1 && noisy > 0.7 && less > 0.7);
}

/* A face a little out of focus: what is added is no more than the network's own error, so the picture stays; where it
 * is more, half of it; but where all detail is the restoration's, the picture is blurred, and nothing of it is kept. */
static void little_is_left(void **state)
{
    (void)state;
    set(0);
    blur(worse, 0.25);
    for (int i = 0; i < PLANE; i++)
        truth[i] = worse[i] + 0.05f * (truth[i] - 125);
    struct face f = weigh(worse, truth, 1, -1);
    printf("    hardly out of focus: %.3f\n", f.used);
    assert_true(f.used < 0.1);
    for (int i = 0; i < PLANE; i++) {
        const float fine = sinf((float)(i % CROP) * 0.9f + (float)i / CROP * 0.35f);
        worse[i] = 125 + 10 * fine;
        truth[i] = 125 + 12.5f * fine;
    }
    f = weigh(worse, truth, 1, -1);
    printf("    a little out of focus: %.3f\n", f.used);
    assert_true(f.used > 0.45 && f.used < 0.55);
    for (int i = 0; i < PLANE; i++) /* with other damage in nearly a half: all of the restoration is used */
        if (i % CROP > 280)
            truth[i] = 125 + 10 * sinf((float)(i % CROP) * 0.9f + (float)i / CROP * 0.35f + 0.25f);
    f = weigh(worse, truth, 1, -1);
    printf("    in a part of it: %.3f\n", f.used);
    assert_true(f.used > 0.95);
    for (int i = 0; i < PLANE; i++) { /* smooth skin, blurred: as little is added, but all detail is */
        worse[i] = 125;
        truth[i] = 125 + 1.2f * sinf((float)(i % CROP) * 0.9f + (float)i / CROP * 0.35f);
    }
    f = weigh(worse, truth, 1, -1);
    printf("    smooth and out of focus: %.3f\n", f.used);
    assert_true(f.used > 0.95);
}

static void another_face(void **state)
{
    (void)state;
    static float other[PLANE];
    set(0);
    draw(other, 1.2);
    blur(worse, 3);
    struct face f = weigh(worse, other, 1, -1);
    assert_true(f.change > 0.6 && f.used < 0.05);
    f = weigh(worse, other, 1, 0.5); /* as it was asked for */
    assert_true(f.change > 0.6 && f.used == 0.5);
    for (int i = 0; i < PLANE; i++)
        other[i] = worse[i] + 40; /* another colour */
    f = weigh(worse, other, 1, -1);
    assert_true(f.change > 0.55 && f.change < 0.7 && f.used < 0.05);
    f = weigh(worse, worse, 1, -1);
    assert_true(f.change < 0.02);
    for (int i = 0; i < PLANE; i++)
        other[i] = 128;
    f = weigh(other, other, 1, -1); /* flat: nothing to compare */
    assert_true(f.change < 0.02 && f.used > 0.99);
}

/* Noise of 10 levels, and blocks of 8 px whose means differ; however many threads look. */
static void threads_change_nothing(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct image *picture;
    assert_int_equal(image_create(&picture, 1210, 1111, 3, 8, false, &err), OK);
    seed = 5;
    for (int i = 0; i < 1210 * 1111; i++) {
        const int block = (i % 1210 / 8 * 7 + i / 1210 / 8 * 3) % 4;
        memset((uint8_t *)picture->pixels + 3 * i, (int)rintf(100 + 20 * (float)block + 10 * normal()), 3);
    }
    const struct rect covered = {3, 5, 1204, 1101};
    thread_set_count(1);
    const double white_one = strength_white(picture, &covered), block_one = strength_block(picture, &covered);
    printf("    noise of %.2f, blocks %.3f\n", white_one, block_one);
    assert_true(white_one > 10 && white_one < 15 && block_one > 1.2 && block_one < 2);
    for (int threads = 2; threads < 8; threads++) {
        thread_set_count(threads);
        assert_true(strength_white(picture, &covered) == white_one);
        assert_true(strength_block(picture, &covered) == block_one);
    }
    thread_set_count(0);
    const struct rect small = {0, 0, 2, 1}; /* nothing has neighbours */
    assert_true(strength_white(picture, &small) == 0 && strength_block(picture, &small) == 0);
    image_destroy(&picture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(detail_stays),   cmocka_unit_test(soft_places_stay),
                                       cmocka_unit_test(scratches_go),   cmocka_unit_test(damage_goes),
                                       cmocka_unit_test(tiny_faces),     cmocka_unit_test(large_faces),
                                       cmocka_unit_test(little_is_left), cmocka_unit_test(another_face),
                                       cmocka_unit_test(threads_change_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
