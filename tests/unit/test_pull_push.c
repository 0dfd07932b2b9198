/* pull_push against models/training/networks_fill.py's (PyTorch), and what it promises. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "server/pipeline/pull_push.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_pytorch), cmocka_unit_test(test_one_colour)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
