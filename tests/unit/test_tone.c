/* tone: what fading took comes back, sound pictures and tints stay, and no pixel becomes black or white. */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/pipeline/deep.h"
#include "tests/common/picture.h"
#include "tests/common/shared.h"

enum { WIDTH = 192, HEIGHT = 144, SAMPLES = 3 * WIDTH * HEIGHT };

/* What becomes of a picture, which the restoration takes. */
static struct restoration *taken(struct image *image, enum option_tone tone)
{
    struct error err = ERROR_INIT;
    struct restoration *r;
    if (restoration_create(&r, &err))
        fail_msg("%s", err.text);
    struct step step = {.r = r};
    r->options.tone = tone;
    r->output_format = IMAGE_PNG;
    r->picture = image;
    if (deep_begin(r, &err) || tone_step(&step, &err))
        fail_msg("%s", err.text);
    return r;
}

static struct restoration *correct(struct image *image)
{
    return taken(image, TONE_AUTO);
}

static double sample(const struct image *image, size_t i)
{
    return image->bits == 16 ? ((const uint16_t *)image->pixels)[i] / 257.0 : ((const uint8_t *)image->pixels)[i];
}

/* The picture that the networks would get. */
static const struct image *corrected(const struct restoration *r)
{
    return r->deep && r->deep->pixels ? r->deep->pixels : r->picture;
}

/* A picture in floats, 0..255. */
static struct image *picture_of(const double *values, int bits)
{
    struct error err = ERROR_INIT;
    struct image *image;
    if (image_create(&image, WIDTH, HEIGHT, 3, bits, false, &err))
        fail_msg("%s", err.text);
    for (size_t i = 0; i < SAMPLES; i++) {
        const double v = fmin(fmax(values[i], 0), 255);
        if (bits == 16)
            ((uint16_t *)image->pixels)[i] = (uint16_t)(257 * v + 0.5);
        else
            ((uint8_t *)image->pixels)[i] = (uint8_t)(v + 0.5);
    }
    return image;
}

/* Patches of all brightnesses and colours, with shading and grain, from black to white. */
static void scene(double *values, unsigned seed)
{
    double patch[12][9][3];
    for (int i = 0; i < 108; i++) {
        const double luma = 10 + picture_random(&seed) % 236;
        for (int c = 0; c < 3; c++)
            patch[i / 9][i % 9][c] = luma + ((double)(picture_random(&seed) % 120) - 60) * (1 - fabs(luma / 128 - 1));
    }
    memset(patch[3][4], 0, sizeof patch[3][4]);
    for (int c = 0; c < 3; c++)
        patch[7][2][c] = 255;
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++)
            for (int c = 0; c < 3; c++)
                values[3 * (y * WIDTH + x) + c] =
                    fmin(fmax(patch[x / 16][y / 16][c] + 6 * sin(x / 5.0) + (double)(picture_random(&seed) % 7) - 3, 0),
                         255);
}

/* Dyes that keep a part of their density on paper that yellowed, or light that lies over everything. */
static void fade(double *to, const double *from, unsigned seed)
{
    const bool haze = seed % 2;
    double part[3], base[3];
    for (int c = 0; c < 3; c++) {
        part[c] = (haze ? 0.5 : 0.4) + 0.3 * (picture_random(&seed) % 100) / 100;
        base[c] = (haze ? 45 : 0.02 + 0.03 * c) * (1 + 0.5 * (picture_random(&seed) % 100) / 100);
    }
    for (size_t i = 0; i < SAMPLES; i++) {
        const double density = -log10(fmax(pow(from[i] / 255, 2.2), 0.004));
        to[i] = haze ? base[i % 3] + part[i % 3] * from[i]
                     : 255 * pow(pow(10, -density * part[i % 3] - base[i % 3]), 1 / 2.2);
    }
}

static double error_of(const struct image *image, const double *truth)
{
    double sum = 0;
    for (size_t i = 0; i < SAMPLES; i++)
        sum += (sample(image, i) - truth[i]) * (sample(image, i) - truth[i]);
    return sqrt(sum / SAMPLES);
}

/* The share of pixels that have a sample at an end of the scale now and had none there before. */
static double clipped(const struct image *before, const struct image *after)
{
    const size_t pixels = (size_t)before->width * (size_t)before->height;
    size_t count = 0;
    for (size_t i = 0; i < pixels; i++) {
        bool now = false, then = false;
        for (size_t k = 3 * i; k < 3 * i + 3; k++) {
            now = now || sample(after, k) <= 0 || sample(after, k) >= 255;
            then = then || sample(before, k) <= 0 || sample(before, k) >= 255;
        }
        count += now && !then;
    }
    return (double)count / (double)pixels;
}

static struct image *copy(const struct image *image)
{
    struct error err = ERROR_INIT;
    struct image *out;
    const size_t bytes =
        (size_t)image->width * (size_t)image->height * (size_t)image->channels * (size_t)(image->bits / 8);
    if (image_create(&out, image->width, image->height, image->channels, image->bits, image->alpha != NULL, &err))
        fail_msg("%s", err.text);
    memcpy(out->pixels, image->pixels, bytes);
    if (image->alpha)
        memcpy(out->alpha, image->alpha, bytes / (size_t)image->channels);
    return out;
}

static void fading_is_undone(void **state)
{
    (void)state;
    static double truth[SAMPLES], old[SAMPLES];
    double sum = 0;
    for (unsigned seed = 1; seed <= 40; seed++) {
        scene(truth, seed);
        fade(old, truth, seed);
        const int bits = seed % 3 ? 8 : 16;
        struct image *faded = picture_of(old, bits), *before = copy(faded);
        struct restoration *r = correct(faded);
        const double was = error_of(before, truth), is = error_of(corrected(r), truth);
        if (is > 0.7 * was || r->tone.monochrome || r->tone.strength < 0.5)
            fail_msg("seed %u: %.1f -> %.1f levels, strength %.2f", seed, was, is, r->tone.strength);
        sum += is / was / 40;
        assert_true(clipped(before, corrected(r)) <= 0.005);
        /* rising in each channel: what was lighter is not darker now */
        float level[3][256];
        for (int i = 0; i < 3 * 256; i++)
            level[i / 256][i % 256] = -1;
        for (size_t i = 0; i < SAMPLES && bits == 8; i++)
            level[i % 3][(int)sample(before, i)] = (float)sample(corrected(r), i);
        for (int c = 0; c < 3; c++)
            for (int v = 0, last = 0; v < 256; v++)
                if (level[c][v] >= 0) {
                    assert_true(level[c][v] >= (float)last);
                    last = (int)level[c][v];
                }
        if (bits == 16) /* both pictures, and the rounded one is that of the other */
            for (size_t i = 0; i < SAMPLES; i++)
                assert_true(fabs(sample(r->picture, i) - sample(corrected(r), i)) <= 0.51);
        image_destroy(&before);
        restoration_destroy(&r);
    }
    assert_true(sum < 0.45);
}

static void sound_pictures_stay(void **state)
{
    (void)state;
    static double truth[SAMPLES];
    for (unsigned seed = 1; seed <= 10; seed++) {
        scene(truth, seed);
        if (seed % 2) /* a dusk: no whites, but blacks */
            for (size_t i = 0; i < SAMPLES; i++)
                truth[i] *= 0.55;
        struct image *image = picture_of(truth, 8), *before = copy(image);
        struct restoration *r = correct(image);
        assert_int_equal(picture_difference(image_view(before), image_view(r->picture), NULL), 0);
        assert_true(r->tone.asked && r->tone.change <= 0);
        image_destroy(&before);
        restoration_destroy(&r);
    }
}

/* A gray picture stays gray; a sepia one, strong or weak, keeps what is between its channels, and both get contrast. */
static void tints_are_kept(void **state)
{
    (void)state;
    static double truth[SAMPLES], toned[SAMPLES];
    for (unsigned seed = 1; seed <= 12; seed++) {
        const double tint = seed % 4 * 15.0;
        unsigned grain = seed;
        scene(truth, seed);
        for (size_t i = 0; i < SAMPLES; i++) {
            const double v = 70 + 0.45 * truth[i - i % 3 + 1];
            toned[i] = v + tint * ((i % 3 == 0) - (i % 3 == 2)) * sin(v / 255 * acos(-1)) +
                       (tint > 0 ? (double)(picture_random(&grain) % 9) - 4 : 0);
        }
        const int bits = seed % 2 ? 8 : 16;
        struct image *image = picture_of(toned, bits), *before = copy(image);
        struct restoration *r = correct(image);
        const struct image *after = corrected(r);
        assert_true(r->tone.monochrome && r->tone.strength > 0.5);
        double low = 255, high = 0, worst = 0;
        for (size_t i = 0; i < SAMPLES; i += 3) {
            const double red = sample(after, i), green = sample(after, i + 1), blue = sample(after, i + 2);
            low = fmin(low, green);
            high = fmax(high, green);
            if (tint <= 0)
                assert_true(red == green && green == blue);
            if (red > 40 && red < 240 && blue > 40 && blue < 240)
                worst = fmax(worst, fabs((red - blue) - (sample(before, i) - sample(before, i + 2))));
        }
        if (worst > 1.01 || low > 20 || high < 235)
            fail_msg("seed %u: the tint moved by %.2f levels; %.0f to %.0f", seed, worst, low, high);
        assert_true(clipped(before, after) <= 0.005);
        image_destroy(&before);
        restoration_destroy(&r);
    }
}

static void what_is_around_does_not_count(void **state)
{
    (void)state;
    static double truth[SAMPLES], old[SAMPLES], framed[SAMPLES];
    struct error err = ERROR_INIT;
    scene(truth, 2);
    fade(old, truth, 2);
    memcpy(framed, old, sizeof framed);
    for (int y = 0; y < HEIGHT; y++) /* a scanner's lid to the right, and below it nothing */
        for (int x = 0; x < WIDTH; x++)
            for (int c = 0; c < 3; c++)
                if (x >= WIDTH - 40)
                    framed[3 * (y * WIDTH + x) + c] = y < HEIGHT / 2 ? 255 : 0;
    struct restoration *plain = correct(picture_of(old, 8)), *lid = correct(picture_of(framed, 8));
    struct image *hidden = picture_of(framed, 8);
    assert_int_equal(image_add_alpha(hidden, &err), OK);
    for (int y = 0; y < HEIGHT; y++)
        for (int x = WIDTH - 40; x < WIDTH; x++) {
            ((uint8_t *)hidden->alpha)[y * WIDTH + x] = 0;
            memset((uint8_t *)hidden->pixels + 3 * (y * WIDTH + x), x % 256, 3);
        }
    struct restoration *seen = correct(hidden);
    for (int c = 0; c < 3; c++) {
        assert_true(fabs(lid->tone.black[c] - plain->tone.black[c]) < 6 &&
                    fabs(lid->tone.white[c] - plain->tone.white[c]) < 6);
        assert_true(seen->tone.black[c] == lid->tone.black[c] && seen->tone.white[c] == lid->tone.white[c]);
    }
    restoration_destroy(&plain);
    restoration_destroy(&lid);
    restoration_destroy(&seen);
    for (int v = 0; v < 256; v += 51) { /* nothing to correct in what is flat, nor anything to divide by */
        for (size_t i = 0; i < SAMPLES; i++)
            old[i] = i % 3 ? v : 255 - v;
        struct restoration *flat = correct(picture_of(old, 8));
        assert_true(flat->tone.change <= 0);
        restoration_destroy(&flat);
    }
}

static void only_where_asked(void **state)
{
    (void)state;
    static double truth[SAMPLES], old[SAMPLES];
    struct error err = ERROR_INIT;
    scene(truth, 2);
    fade(old, truth, 2);
    for (int way = 0; way < 2; way++) {
        struct restoration *r;
        assert_int_equal(restoration_create(&r, &err), OK);
        struct step step = {.r = r};
        struct image *before = picture_of(old, 8);
        r->picture = copy(before);
        r->options.tone = way ? TONE_AUTO : TONE_OFF;
        r->options.compat = way;
        assert_int_equal(tone_step(&step, &err), OK);
        assert_int_equal(picture_difference(image_view(before), image_view(r->picture), NULL), 0);
        assert_false(r->tone.asked);
        image_destroy(&before);
        restoration_destroy(&r);
    }
}

/* tone=strong changes sound pictures, too: they spread about their median, and nothing becomes black or white. */
static void strong_is_more(void **state)
{
    (void)state;
    static double truth[SAMPLES];
    for (int bits = 8; bits <= 16; bits += 8) {
        scene(truth, 3);
        struct image *image = picture_of(truth, bits), *before = copy(image);
        struct restoration *r = taken(image, TONE_STRONG);
        const struct image *after = corrected(r);
        assert_true(r->tone.strength <= 0 && r->tone.change > 4);
        double sum[2] = {0}, squares[2] = {0};
        for (size_t i = 0; i < SAMPLES; i++) {
            const double was = sample(before, i), is = sample(after, i);
            assert_true((is >= 0.5 || was < 0.5) && (is <= 254.5 || was > 254.5));
            sum[0] += was;
            sum[1] += is;
            squares[0] += was * was;
            squares[1] += is * is;
        }
        const double mean[2] = {sum[0] / SAMPLES, sum[1] / SAMPLES};
        const double was = sqrt(squares[0] / SAMPLES - mean[0] * mean[0]);
        const double is = sqrt(squares[1] / SAMPLES - mean[1] * mean[1]);
        assert_true(is > 1.05 * was && is < 1.3 * was && fabs(mean[1] - mean[0]) < 8);
        struct error err = ERROR_INIT;
        struct step again = {.r = r}; /* another device takes over: once is enough */
        image_destroy(&before);
        before = copy(after);
        assert_int_equal(tone_step(&again, &err), OK);
        assert_memory_equal(before->pixels, after->pixels, SAMPLES * (size_t)bits / 8);
        image_destroy(&before);
        restoration_destroy(&r);
    }
}

/* Photos: of no one does more than one pixel in 200 become black or white; those that are well exposed hardly change.
 */
static void photos(void **state)
{
    (void)state;
    picture_need_shared();
    DIR *folder = opendir(shared_path("photos"));
    assert_non_null(folder);
    int well = 0, gray = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        const char *dot = strrchr(entry->d_name, '.');
        if (!dot || (strcmp(dot, ".jpg") && strcmp(dot, ".png")))
            continue;
        struct image *image = picture_load(shared_path("photos/%s", entry->d_name));
        const bool one = image->channels == 1;
        struct restoration *plain = taken(picture_load(shared_path("photos/%s", entry->d_name)), TONE_OFF);
        const struct image *before = corrected(plain);
        struct restoration *r = correct(image);
        if (clipped(before, corrected(r)) > 0.005)
            fail_msg("%s: %.4f", entry->d_name, clipped(before, corrected(r)));
        const double black = fmin(fmin(r->tone.black[0], r->tone.black[1]), r->tone.black[2]);
        if (black < 25) {
            well++;
            if (r->tone.change > 2)
                fail_msg("%s changes by %.1f levels", entry->d_name, r->tone.change);
        }
        for (size_t i = 0; one && i < 3 * (size_t)before->width * (size_t)before->height; i += 3)
            assert_true(sample(corrected(r), i) == sample(corrected(r), i + 1) &&
                        sample(corrected(r), i) == sample(corrected(r), i + 2));
        gray += one;
        restoration_destroy(&plain);
        restoration_destroy(&r);
    }
    closedir(folder);
    assert_true(well >= 6 && gray >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(fading_is_undone),
                                       cmocka_unit_test(sound_pictures_stay),
                                       cmocka_unit_test(tints_are_kept),
                                       cmocka_unit_test(what_is_around_does_not_count),
                                       cmocka_unit_test(only_where_asked),
                                       cmocka_unit_test(strong_is_more),
                                       cmocka_unit_test(photos)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
