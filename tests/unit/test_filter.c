/* Blur and erosion against their definitions, on parts of a picture, and against the goldens. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/image/filter.h"
#include "tests/common/npy.h"
#include "tests/common/picture.h"
#include "tests/common/shared.h"
#include "tests/common/worst.h"

static struct view_f32 plane_f32(float *data, int width, int height)
{
    return (struct view_f32){data, width, height, 1, (size_t)width};
}

static void fill_f32(float *data, int n, unsigned seed)
{
    for (int i = 0; i < n; i++)
        data[i] = (float)picture_random(&seed) / 32767.f;
}

static int reflect(int i, int n)
{
    while (n > 1 && (i < 0 || i >= n))
        i = i < 0 ? -i : 2 * n - 2 - i;
    return n > 1 ? i : 0;
}

/* The documented order, one pixel at a time. */
static float blurred(const float *p, int width, int height, const double *k, int n, int x, int y)
{
    int r = n / 2;
    float column[300];
    for (int j = -r; j <= r; j++) {
        const float *row = p + reflect(y + j, height) * width;
        float s = (float)k[0] * row[reflect(x - r, width)];
        for (int i = 1; i < n; i++)
            s = fmaf((float)k[i], row[reflect(x - r + i, width)], s);
        column[j + r] = s;
    }
    float s = (float)k[r] * column[r];
    for (int i = 1; i <= r; i++)
        s = fmaf((float)k[r + i], column[r + i] + column[r - i], s);
    return s;
}

static void blur_follows_the_documented_order(void **state)
{
    (void)state;
    static const struct {
        int width, height, n;
        double sigma;
    } cases[] = {{23, 17, 1, 0},  {23, 17, 3, 0}, {9, 31, 7, 0},    {40, 3, 9, 0},    {1, 1, 11, 0},
                 {37, 29, 13, 0}, {5, 6, 41, 0},  {64, 1, 21, 2.5}, {33, 40, 101, 11}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int width = cases[i].width, height = cases[i].height, n = cases[i].n;
        float *in = calloc((size_t)(width * height), sizeof *in), *out = calloc((size_t)(width * height), sizeof *out);
        double k[101], sum = 0;
        struct error err = ERROR_INIT;
        fill_f32(in, width * height, (unsigned)i);
        filter_gaussian_kernel(k, n, cases[i].sigma);
        for (int j = 0; j < n; j++)
            sum += k[j];
        assert_true(fabs(sum - 1) < 1e-12);
        const struct view_f32 from = plane_f32(in, width, height), to = plane_f32(out, width, height);
        assert_int_equal(filter_gaussian_f32(&to, &from, n, cases[i].sigma, &err), OK);
        for (int y = 0; y < height; y++)
            for (int x = 0; x < width; x++)
                assert_true(out[y * width + x] == blurred(in, width, height, k, n, x, y));
        assert_int_equal(filter_gaussian_f32(&from, &from, n, cases[i].sigma, &err), OK); /* in place */
        assert_memory_equal(in, out, (size_t)(width * height) * sizeof *in);
        free(in);
        free(out);
    }
}

static void kernel_equals_opencv(void **state)
{
    (void)state;
    struct npy golden;
    double k[101];
    picture_need_shared();
    assert_true(npy_load(shared_path("golden/gauss_kernel_101_s11.npy"), &golden));
    assert_int_equal(golden.count, 101);
    filter_gaussian_kernel(k, 101, 11);
    int differing = 0;
    for (int i = 0; i < 101; i++)
        differing += k[i] != ((const double *)golden.data)[i];
    assert_int_equal(differing, 0);
    npy_free(&golden);
}

static float eroded(const float *p, int width, int height, int n, int x, int y)
{
    float least = INFINITY;
    n = n ? n : 3;
    for (int v = y - n / 2; v < y - n / 2 + n; v++)
        for (int u = x - n / 2; u < x - n / 2 + n; u++)
            if (u >= 0 && v >= 0 && u < width && v < height)
                least = fminf(least, p[v * width + u]);
    return least;
}

static void erosion_is_the_minimum(void **state)
{
    (void)state;
    static const int sizes[][2] = {{1, 1}, {17, 5}, {5, 17}, {33, 29}}, windows[] = {0, 1, 2, 3, 4, 5, 8, 15, 16, 40};
    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < sizeof windows / sizeof windows[0]; j++) {
            int width = sizes[i][0], height = sizes[i][1];
            float in[33 * 29], out[33 * 29];
            struct error err = ERROR_INIT;
            fill_f32(in, width * height, (unsigned)(i * 100 + j));
            const struct view_f32 from = plane_f32(in, width, height), to = plane_f32(out, width, height);
            assert_int_equal(filter_erode_f32(&to, &from, windows[j], &err), OK);
            for (int y = 0; y < height; y++)
                for (int x = 0; x < width; x++)
                    assert_true(out[y * width + x] == eroded(in, width, height, windows[j], x, y));
        }
}

/* What the header promises of rectangles: a mask's rectangle with 2 px of zeros gives the whole picture's values. */
static void a_rectangle_gives_the_whole_pictures_values(void **state)
{
    (void)state;
    enum { SIDE = 90, AT = 20, MASK = 50, PART = MASK + 4, N = 12, BLUR = 13 };
    static float whole[SIDE * SIDE], out[SIDE * SIDE], part[SIDE * SIDE];
    struct error err = ERROR_INIT;
    memset(whole, 0, sizeof whole);
    for (int y = 0; y < MASK; y++)
        for (int x = 0; x < MASK; x++)
            whole[(AT + y) * SIDE + AT + x] = 0.5f + (float)((x * 7 + y * 3) % 11) / 22.f;
    const struct view_f32 all = plane_f32(whole, SIDE, SIDE), result = plane_f32(out, SIDE, SIDE);
    const struct view_f32 from = {whole + (AT - 2) * SIDE + AT - 2, PART, PART, 1, SIDE};
    const struct view_f32 to = {part + (AT - 2) * SIDE + AT - 2, PART, PART, 1, SIDE};
    memset(part, 0, sizeof part);
    assert_int_equal(filter_erode_f32(&to, &from, N, &err), OK);
    assert_int_equal(filter_gaussian_f32(&to, &to, BLUR, 0, &err), OK);
    assert_int_equal(filter_erode_f32(&result, &all, N, &err), OK);
    assert_int_equal(filter_gaussian_f32(&result, &result, BLUR, 0, &err), OK);
    for (int i = 0; i < SIDE * SIDE; i++)
        assert_true(part[i] == out[i]);
}

/* ParseNet's mask: opaque classes, blurred twice in double, the outer 10 px zeroed. */
static void parse_masks_equal_the_reference(void **state)
{
    (void)state;
    static const char *const names[][3] = {{"A_parse_nobg", "parse_0.png", "mask512_0.png"},
                                           {"A_parse_nobg", "parse_1.png", "mask512_1.png"},
                                           {"C_parse_rrdbx2", "parse_2.png", "mask512_2.png"},
                                           {"F_gray2d", "parse_0.png", "mask512_0.png"}};
    enum { SIDE = 512, EDGE = 10 };
    static double mask[SIDE * SIDE]; /* static: a golden that is absent leaves this function by longjmp */
    const struct view_f64 view = {mask, SIDE, SIDE, 1, SIDE};
    struct error err = ERROR_INIT;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct image *classes = picture_golden(names[i][0], names[i][1]),
                     *golden = picture_golden(names[i][0], names[i][2]);
        assert_int_equal(classes->width, SIDE);
        assert_int_equal(golden->bits, 16);
        for (int k = 0; k < SIDE * SIDE; k++) {
            int c = ((const uint8_t *)classes->pixels)[k];
            mask[k] = (c >= 1 && c <= 13) || c == 15 ? 255 : 0;
        }
        assert_int_equal(filter_gaussian_f64(&view, &view, 101, 11, &err), OK);
        assert_int_equal(filter_gaussian_f64(&view, &view, 101, 11, &err), OK);
        double worst = 0;
        for (int k = 0; k < SIDE * SIDE; k++) {
            int x = k % SIDE, y = k / SIDE;
            bool inside = x >= EDGE && y >= EDGE && x < SIDE - EDGE && y < SIDE - EDGE;
            double v = inside ? mask[k] / 255 * 65535 : 0;
            worst = worst_of(worst, fabs(v - ((const uint16_t *)golden->pixels)[k]));
        }
        printf("%s %s: off by at most %.3f / 65535\n", names[i][0], names[i][2], worst);
        assert_true(worst <= 1);
        image_destroy(&classes);
        image_destroy(&golden);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blur_follows_the_documented_order),
        cmocka_unit_test(kernel_equals_opencv),
        cmocka_unit_test(erosion_is_the_minimum),
        cmocka_unit_test(a_rectangle_gives_the_whole_pictures_values),
        cmocka_unit_test(parse_masks_equal_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
