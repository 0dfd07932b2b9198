/* pull_push against models/training/networks_fill.py's (PyTorch), and what it promises. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "server/pipeline/pull_push.h"
#include "server/pipeline/repair_private.h"
#include "tests/common/picture.h"

enum { HEIGHT = 5, WIDTH = 7, PLANE = HEIGHT * WIDTH };

static void fill(float *rgb, const float *mask, int h, int w)
{
    float *scratch = malloc(pull_push_scratch(h, w) * sizeof *scratch);
    assert_non_null(scratch);
    pull_push(rgb, mask, h, w, scratch);
    free(scratch);
}

/* The picture and the holes that PyTorch had. */
static void make(float *rgb, float *mask)
{
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < PLANE; i++)
            rgb[c * PLANE + i] = (float)((i * (3 + 2 * c) + c) % 11) / 8 - 0.5f;
    for (int i = 0; i < PLANE; i++)
        mask[i] = i * 5 % 7 > 2;
}

static void test_as_pytorch(void **state)
{
    (void)state;
    static const float red[PLANE] = {-0.5f,  0.283252f, 0.387777f, 0.625f, 0.319092f, 0.280566f, 0.375f,
                                     0.75f,  0.314758f, 0.376534f, 0.5f,   0.310205f, 0.272009f, 0.25f,
                                     0.625f, 0.377771f, 0.354049f, 0.375f, 0.292432f, 0.254895f, 0.125f,
                                     0.5f,   0.381128f, 0.322632f, 0.25f,  0.278033f, 0.244977f, 0.0f,
                                     0.375f, 0.324829f, 0.282284f, 0.125f, 0.26701f,  0.242255f, -0.125f};
    float rgb[3 * PLANE], mask[PLANE], before[3 * PLANE];
    make(rgb, mask);
    make(before, mask);
    fill(rgb, mask, HEIGHT, WIDTH);
    for (int i = 0; i < PLANE; i++)
        assert_true(fabsf(rgb[i] - red[i]) < 2e-6f);
    for (int i = 0; i < 3 * PLANE; i++)
        if (mask[i % PLANE] == 0)
            assert_true(rgb[i] == before[i]);
}

/* One colour stays one, however few pixels show it; with none there is nothing to fill with. */
static void test_one_colour(void **state)
{
    (void)state;
    enum { SIDE = 37 };
    static float rgb[3 * SIDE * SIDE], mask[SIDE * SIDE];
    for (int known = 1; known >= 0; known--) {
        for (int i = 0; i < SIDE * SIDE; i++)
            mask[i] = !(known && i == 5 * SIDE + 30);
        for (int i = 0; i < 3 * SIDE * SIDE; i++)
            rgb[i] = mask[i % (SIDE * SIDE)] > 0 ? 9 : 0.25f;
        fill(rgb, mask, SIDE, SIDE);
        for (int i = 0; i < 3 * SIDE * SIDE; i++)
            assert_true(fabsf(rgb[i] - (known ? 0.25f : 0)) < 1e-5f);
    }
}

/* Scratches, a spot, and single pixels beside tiles' borders. */
static bool hole_at(int x, int y)
{
    return x - 40 == y / 3 || x + y == 131 || (abs(x - 150) < 12 && abs(y - 50) < 9) || (x % 72 == 71 && y % 40 == 8) ||
           (x % 80 == 40 && y % 56 == 47);
}

/* The holes of a window, of which a part may lie beyond the picture, as pull_push fills them: bit for bit. */
static void compare(const struct image *picture, int width, int height)
{
    const struct fill_cut cut = {.width = width, .height = height, .pixels = width * height, .columns = 1, .rows = 1};
    uint8_t *mask = calloc((size_t)picture->width, (size_t)picture->height);
    void *memory = malloc(fill_window_bytes(&cut)), *scratch = malloc(fill_scratch_bytes(&cut));
    float *rgb = calloc(3 * (size_t)cut.pixels, sizeof *rgb), *holes = calloc((size_t)cut.pixels, sizeof *holes);
    struct fill_window w;
    fill_window_place(&w, &cut, memory, scratch);
    w.picture = picture;
    w.mask_of = mask;
    w.plain = true;
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) {
            float own[3] = {0};
            const bool there = x < picture->width && y < picture->height;
            if (there) {
                mask[y * picture->width + x] = hole_at(x, y);
                repair_row(picture, y, x, 1, own);
            }
            holes[y * width + x] = !there || hole_at(x, y);
            for (int c = 0; c < 3; c++)
                rgb[c * cut.pixels + y * width + x] = own[c];
        }
    fill(rgb, holes, height, width);
    fill_begin(&w);
    for (int y = 0; y < height; y += PULL_BAND)
        fill_read(&w, y, true);
    fill_count(&w, true);
    for (int y = height - height % PULL_BAND; y >= 0; y -= PULL_BAND) /* in any order */
        fill_spread(&w, y);
    for (int y = 0; y < height; y += PULL_BAND)
        fill_list(&w, y, true);
    fill_count_near(&w);
    for (int y = 0; y < height; y += PULL_BAND)
        fill_holes(&w, y, false);
    assert_true(w.hole_count > 0 && w.hole_count < cut.pixels / 2);
    for (int i = 0; i < w.hole_count; i++)
        for (int c = 0; c < 3; c++)
            assert_true(w.rgb[c * cut.pixels + (int)w.holes[i]] == rgb[c * cut.pixels + (int)w.holes[i]]);
    free(holes);
    free(rgb);
    free(scratch);
    free(memory);
    free(mask);
}

static void test_in_bands(void **state)
{
    (void)state;
    static const int sizes[][4] = {{256, 128, 256, 128}, {250, 123, 256, 128}, {201, 99, 201, 99}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int bits = 8; bits <= 16; bits += 8)
            for (int channels = 1; channels <= 3; channels += 2) {
                struct image *picture = picture_waves(sizes[i][0], sizes[i][1], channels, bits);
                compare(picture, sizes[i][2], sizes[i][3]);
                image_destroy(&picture);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_pytorch), cmocka_unit_test(test_one_colour),
                                       cmocka_unit_test(test_in_bands)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
