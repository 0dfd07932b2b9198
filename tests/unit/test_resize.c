/* Resizing: the reference's pictures bit for bit, and what the float kernels promise. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/image/resize.h"
#include "server/image/resize_patches.h"
#include "tests/common/picture.h"

static struct image *picture(int width, int height, int channels)
{
    struct image *image = NULL;
    struct error err = ERROR_INIT;
    assert_int_equal(image_create(&image, width, height, channels, 8, false, &err), OK);
    picture_fill(image_view(image), (unsigned)(width * 31 + height));
    return image;
}

static void compare_with_golden(const char *golden_case, const char *input, const char *name, bool lanczos)
{
    struct image *from = picture_golden(".", input), *golden = picture_golden(golden_case, name), *out = NULL;
    struct error err = ERROR_INIT;
    size_t differing;
    assert_int_equal(image_reduce(from, true, &err), OK);
    assert_int_equal(image_create(&out, golden->width, golden->height, 3, 8, false, &err), OK);
    const struct view_u8 src = image_view(from), dst = image_view(out);
    assert_int_equal((lanczos ? resize_lanczos4_exact : resize_linear_exact)(&dst, &src, &err), OK);
    picture_difference(dst, image_view(golden), &differing);
    assert_int_equal(differing, 0);
    image_destroy(&from);
    image_destroy(&golden);
    image_destroy(&out);
}

static void exact_equals_the_reference(void **state)
{
    (void)state;
    compare_with_golden("E_noface", "E_noface_input.png", "final.png", true);
    compare_with_golden("A_parse_nobg", "A.png", "bg_resized.png", true);
    compare_with_golden("D_aligned_resize", "D_aligned_resize_input.png", "crop_0.png", false);
}

/* Away from OpenCV's rounding, its kernels are those of the float path where nothing shrinks: at most one level apart.
 */
static void exact_and_smooth_agree_when_they_enlarge(void **state)
{
    (void)state;
    static const int sizes[][4] = {{37, 29, 74, 58}, {37, 29, 100, 31}, {5, 3, 64, 48}, {1, 1, 9, 4}, {40, 1, 41, 7}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int channels = 1; channels <= 3; channels += 2)
            for (int lanczos = 0; lanczos < 2; lanczos++) {
                struct image *from = picture(sizes[i][0], sizes[i][1], channels),
                             *a = picture(sizes[i][2], sizes[i][3], channels);
                struct image *b = picture(sizes[i][2], sizes[i][3], channels);
                struct error err = ERROR_INIT;
                const struct view_u8 src = image_view(from), exact = image_view(a), smooth = image_view(b);
                assert_int_equal((lanczos ? resize_lanczos4_exact : resize_linear_exact)(&exact, &src, &err), OK);
                assert_int_equal(resize_smooth_u8(&smooth, &src, lanczos ? RESIZE_LANCZOS4 : RESIZE_LINEAR, &err), OK);
                assert_true(picture_difference(exact, smooth, NULL) <= 1);
                image_destroy(&from);
                image_destroy(&a);
                image_destroy(&b);
            }
}

static void an_exact_half_by_linear_is_the_mean_of_four(void **state)
{
    (void)state;
    struct image *from = picture(24, 18, 3), *to = picture(12, 9, 3);
    struct error err = ERROR_INIT;
    const struct view_u8 src = image_view(from), dst = image_view(to);
    assert_int_equal(resize_linear_exact(&dst, &src, &err), OK);
    for (int y = 0; y < 9; y++)
        for (int x = 0; x < 12; x++)
            for (int c = 0; c < 3; c++) {
                const uint8_t *p = src.data + (size_t)y * 2 * src.stride + x * 6 + c;
                assert_int_equal(dst.data[(size_t)y * dst.stride + (size_t)(x * 3 + c)],
                                 (p[0] + p[3] + p[src.stride] + p[src.stride + 3] + 2) / 4);
            }
    image_destroy(&from);
    image_destroy(&to);
}

static void the_same_size_changes_nothing(void **state)
{
    (void)state;
    struct image *from = picture(33, 21, 3), *to = picture(33, 21, 3);
    const struct view_u8 src = image_view(from), dst = image_view(to);
    struct error err = ERROR_INIT;
    for (int k = 0; k < 5; k++) {
        memset(dst.data, 0, 33 * 21 * 3);
        enum error_code code = k == 3   ? resize_lanczos4_exact(&dst, &src, &err)
                               : k == 4 ? resize_linear_exact(&dst, &src, &err)
                                        : resize_smooth_u8(&dst, &src, (enum resize_kernel)k, &err);
        assert_int_equal(code, OK);
        assert_int_equal(picture_difference(dst, src, NULL), 0);
    }
    image_destroy(&from);
    image_destroy(&to);
}

static void area_is_the_mean_of_what_a_pixel_covers(void **state)
{
    (void)state;
    const float source[5] = {10, 20, 30, 40, 50};
    float data[5], out[2];
    memcpy(data, source, sizeof data);
    const struct view_f32 src = {data, 5, 1, 1, 5}, dst = {out, 2, 1, 1, 2};
    struct error err = ERROR_INIT;
    assert_int_equal(resize_smooth_f32(&dst, &src, RESIZE_AREA, &err), OK); /* 2.5 px each */
    assert_true(fabsf(out[0] - (10 + 20 + 15) / 2.5f) < 1e-5f);
    assert_true(fabsf(out[1] - (15 + 40 + 50) / 2.5f) < 1e-5f);
}

static void shrinking_antialiases_and_keeps_flat_areas(void **state)
{
    (void)state;
    enum { N = 210 };
    uint8_t *board = malloc(N * N), *flat = malloc(N * N), out[31 * 47];
    for (int i = 0; i < N * N; i++) {
        board[i] = (i % N + i / N) % 2 ? 255 : 0;
        flat[i] = 201;
    }
    const struct view_u8 from = {board, N, N, 1, N}, level = {flat, N, N, 1, N}, to = {out, 31, 47, 1, 31};
    struct error err = ERROR_INIT;
    for (int k = 0; k < 3; k++) {
        assert_int_equal(resize_smooth_u8(&to, &from, (enum resize_kernel)k, &err), OK);
        for (int i = 0; i < 31 * 47; i++)
            assert_in_range(out[i], 122, 133); /* 124 to 131 come out */
        assert_int_equal(resize_smooth_u8(&to, &level, (enum resize_kernel)k, &err), OK);
        for (int i = 0; i < 31 * 47; i++)
            assert_int_equal(out[i], 201);
    }
    free(board);
    free(flat);
}

/* Every push is followed by pulls until false: each destination row comes exactly once, in order, and the last with the
 * last source row at the latest. */
static void the_stream_gives_every_row(void **state)
{
    (void)state;
    static const int heights[][2] = {{1, 1}, {1, 40}, {40, 1}, {17, 17}, {50, 23}, {23, 50}, {400, 3}};
    for (size_t i = 0; i < sizeof heights / sizeof heights[0]; i++)
        for (int kernel = 0; kernel < 3; kernel++) {
            struct resize_stream *s = NULL;
            struct error err = ERROR_INIT;
            float row[8], last = -1;
            int rows = 0;
            assert_int_equal(
                resize_stream_create(&s, 4, heights[i][0], 2, heights[i][1], 4, (enum resize_kernel)kernel, &err), OK);
            for (int y = 0; y < heights[i][0]; y++) {
                float line[16];
                for (int k = 0; k < 16; k++)
                    line[k] = (float)(y + k % 4);
                resize_stream_push(s, line, 1);
                for (; resize_stream_pull(s, row, 1); rows++) {
                    assert_true(rows == 0 ||
                                row[0] >= last - 0.2f); /* a ramp stays one, but for Lanczos' ripple at its ends */
                    assert_true(fabsf(row[7] - row[4] - 3) < 1e-3f); /* channels do not mix */
                    last = row[0];
                }
            }
            assert_int_equal(rows, heights[i][1]);
            assert_int_equal(resize_stream_pull(s, row, 1), 0);
            resize_stream_destroy(&s);
            assert_null(s);
        }
}

/* What stands beside a picture's rows does not matter: patches that cover it, the last of a row and column smaller, in
 * pushes of some rows, give what the whole rows give. */
static void check_patches(int width, int height, int to_width, int to_height, int columns, int rows, int some)
{
    struct error err = ERROR_INIT;
    const size_t line = 3 * (size_t)width, out = 3 * (size_t)to_width;
    float *from = malloc(line * (size_t)height * sizeof *from),
          *patch = malloc(3 * (size_t)columns * (size_t)some * sizeof *patch);
    float *whole = malloc(out * (size_t)to_height * sizeof *whole),
          *by_patches = malloc(out * (size_t)to_height * sizeof *whole);
    struct resize_stream *stream;
    struct resize_patches *patches;
    unsigned random = 1;
    int got = 0, done = 0;
    assert_true(from && patch && whole && by_patches);
    for (size_t i = 0; i < line * (size_t)height; i++)
        from[i] = (float)((random = random * 1664525 + 1013904223) >> 8) / 65536;
    assert_int_equal(resize_stream_create(&stream, width, height, to_width, to_height, 3, RESIZE_LANCZOS4, &err), OK);
    for (int y = 0; y < height; y++) {
        resize_stream_push(stream, from + (size_t)y * line, 1);
        got += resize_stream_pull(stream, whole + (size_t)got * out, to_height);
    }
    assert_int_equal(got, to_height);
    assert_int_equal(resize_patches_create(&patches, width, height, to_width, to_height, columns, rows, &err), OK);
    for (int top = 0; top < height; top += rows)
        for (int left = 0; left < width; left += columns)
            for (int y = top; y < top + rows && y < height;) {
                const int end = top + rows < height ? top + rows : height;
                const struct rect rect = {left, y, width - left < columns ? width - left : columns,
                                          end - y < some ? end - y : some};
                for (int r = 0; r < rect.height; r++)
                    memcpy(patch + 3 * (size_t)(r * rect.width), from + (size_t)(y + r) * line + 3 * (size_t)left,
                           3 * (size_t)rect.width * sizeof *patch);
                resize_patches_push(patches, &rect, patch);
                for (int pulled; (pulled = resize_patches_pull(patches, by_patches + (size_t)done * out, 3));
                     done += pulled)
                    assert_true(done + pulled <= to_height);
                y += rect.height;
            }
    assert_int_equal(done, to_height);
    assert_memory_equal(whole, by_patches, out * (size_t)to_height * sizeof *whole);
    resize_stream_destroy(&stream);
    resize_patches_destroy(&patches);
    free(from);
    free(patch);
    free(whole);
    free(by_patches);
}

static void patches_give_what_rows_give(void **state)
{
    (void)state;
    static const int cases[][7] = {{200, 150, 50, 38, 64, 60, 17}, {200, 150, 199, 150, 37, 41, 41},
                                   {97, 90, 31, 7, 5, 3, 2},       {64, 64, 1, 1, 16, 16, 16},
                                   {90, 50, 45, 25, 90, 10, 3},    {33, 300, 33, 77, 8, 128, 128}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int *c = cases[i];
        check_patches(c[0], c[1], c[2], c[3], c[4], c[5], c[6]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_equals_the_reference),
        cmocka_unit_test(exact_and_smooth_agree_when_they_enlarge),
        cmocka_unit_test(an_exact_half_by_linear_is_the_mean_of_four),
        cmocka_unit_test(the_same_size_changes_nothing),
        cmocka_unit_test(area_is_the_mean_of_what_a_pixel_covers),
        cmocka_unit_test(shrinking_antialiases_and_keeps_flat_areas),
        cmocka_unit_test(the_stream_gives_every_row),
        cmocka_unit_test(patches_give_what_rows_give),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
