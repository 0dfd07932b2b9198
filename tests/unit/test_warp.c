/* Warps: the reference's crops, masks and pasted pictures from its own matrices, and the smooth warp's promises. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/image/filter.h"
#include "server/image/resize.h"
#include "server/image/warp.h"
#include "tests/common/picture.h"
#include "tests/common/worst.h"

enum { SIDE = 512 };

static struct image *golden_file(const char *golden_case, const char *form, size_t index)
{
    char name[64];
    snprintf(name, sizeof name, "%s_%zu.png", form, index);
    return picture_golden(golden_case, name);
}

static struct image *golden_input(const json_t *meta)
{
    struct image *input = picture_golden(".", json_string_value(json_object_get(meta, "input")));
    struct error err = ERROR_INIT;
    assert_int_equal(image_reduce(input, true, &err), OK);
    return input;
}

static size_t golden_faces(const json_t *meta)
{
    return json_array_size(json_object_get(meta, "affine"));
}

static void crops_equal_the_reference(void **state)
{
    (void)state;
    static const char *const cases[] = {"A_parse_nobg", "B_parse_rrdbx2tile", "C_parse_rrdbx2", "F_gray2d",
                                        "H_rgba_rrdbx2"};
    static const uint8_t border[3] = {132, 133, 135};
    int faces = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *meta = picture_meta(cases[i]);
        struct image *input = golden_input(meta);
        const struct view_u8 from = image_view(input);
        for (size_t f = 0; f < golden_faces(meta); f++, faces++) {
            double affine[6];
            size_t differing;
            struct image *golden = golden_file(cases[i], "crop", f), *crop = NULL;
            struct error err = ERROR_INIT;
            assert_int_equal(image_create(&crop, SIDE, SIDE, 3, 8, false, &err), OK);
            const struct view_u8 to = image_view(crop);
            picture_matrix(meta, "affine", f, affine);
            warp_exact_u8(&to, 0, 0, &from, affine, border);
            picture_difference(to, image_view(golden), &differing);
            assert_int_equal(differing, 0);
            image_destroy(&golden);
            image_destroy(&crop);
        }
        image_destroy(&input);
        json_decref(meta);
    }
    assert_int_equal(faces, 8);
}

/* The worst distance of a plane on its rectangle from a 16-bit golden of the whole picture, in 1/65535; outside the
 * rectangle the golden must be 0. */
static double plane_distance(const double *plane, struct rect r, const struct image *golden)
{
    double worst = 0;
    assert_int_equal(golden->bits, 16);
    assert_int_equal(golden->channels, 1);
    for (int y = 0; y < golden->height; y++)
        for (int x = 0; x < golden->width; x++) {
            bool inside = x >= r.x && y >= r.y && x < r.x + r.width && y < r.y + r.height;
            double v = inside ? plane[(size_t)(y - r.y) * (size_t)r.width + (size_t)(x - r.x)] : 0;
            double g = ((const uint16_t *)golden->pixels)[(size_t)y * (size_t)golden->width + (size_t)x];
            worst = worst_of(worst, fabs(v * 65535 - g));
        }
    return worst;
}

/* One face on its rectangle: mask, and in the square mode the eroded edge that multiplies the face. */
struct face {
    struct rect rect;
    double *mask;
    float *edge; /* NULL with ParseNet's mask */
    uint8_t *pixels;
};

static void parse_mask(struct face *face, const double matrix[6], const struct image *classes)
{
    double *mask = malloc(SIDE * SIDE * sizeof *mask);
    struct error err = ERROR_INIT;
    const struct view_f64 from = {mask, SIDE, SIDE, 1, SIDE};
    for (int k = 0; k < SIDE * SIDE; k++) {
        int c = ((const uint8_t *)classes->pixels)[k];
        mask[k] = (c >= 1 && c <= 13) || c == 15 ? 255 : 0;
    }
    assert_int_equal(filter_gaussian_f64(&from, &from, 101, 11, &err), OK);
    assert_int_equal(filter_gaussian_f64(&from, &from, 101, 11, &err), OK);
    for (int k = 0; k < SIDE * SIDE; k++) {
        bool edge = k % SIDE < 10 || k % SIDE >= SIDE - 10 || k / SIDE < 10 || k / SIDE >= SIDE - 10;
        mask[k] = edge ? 0 : mask[k] / 255.;
    }
    const struct view_f64 to = {face->mask, face->rect.width, face->rect.height, 1, (size_t)face->rect.width};
    warp_exact_f64(&to, face->rect.x, face->rect.y, &from, matrix, 0);
    free(mask);
}

static void square_mask(struct face *face, const double matrix[6], double scale, const json_t *meta, size_t f)
{
    size_t n = (size_t)face->rect.width * (size_t)face->rect.height;
    float *ones = malloc(SIDE * SIDE * sizeof *ones), *mask = malloc(n * sizeof *mask);
    struct error err = ERROR_INIT;
    const struct view_f32 from = {ones, SIDE, SIDE, 1, SIDE};
    const struct view_f32 soft = {mask, face->rect.width, face->rect.height, 1, (size_t)face->rect.width};
    struct view_f32 edge = soft;
    edge.data = face->edge = malloc(n * sizeof *face->edge);
    for (int k = 0; k < SIDE * SIDE; k++)
        ones[k] = 1;
    warp_exact_f32(&soft, face->rect.x, face->rect.y, &from, matrix, 0);
    const char *tag = json_string_value(json_object_get(meta, "tag"));
    struct image *golden = golden_file(tag, "invmask", f);
    for (size_t k = 0; k < n; k++)
        face->mask[k] = mask[k];
    assert_true(plane_distance(face->mask, face->rect, golden) <= 1);
    image_destroy(&golden);

    assert_int_equal(filter_erode_f32(&edge, &soft, (int)(2 * scale), &err), OK);
    double area = 0;
    for (size_t k = 0; k < n; k++)
        area += face->mask[k] = face->edge[k];
    golden = golden_file(tag, "erode1", f);
    assert_true(plane_distance(face->mask, face->rect, golden) <= 1);
    image_destroy(&golden);
    const json_t *numbers = json_array_get(json_object_get(meta, "square_mask"), f);
    int width = (int)sqrt(area) / 20;
    assert_true(fabs(area - json_real_value(json_object_get(numbers, "total_face_area"))) < 1);
    assert_int_equal(2 * width, json_integer_value(json_array_get(json_object_get(numbers, "erode2_kernel"), 0)));
    assert_int_equal(2 * width + 1, json_integer_value(json_array_get(json_object_get(numbers, "blur"), 0)));

    assert_int_equal(filter_erode_f32(&soft, &edge, 2 * width, &err), OK);
    assert_int_equal(filter_gaussian_f32(&soft, &soft, 2 * width + 1, 0, &err), OK);
    for (size_t k = 0; k < n; k++)
        face->mask[k] = mask[k];
    free(ones);
    free(mask);
}

static void paste(double *picture, int width, const struct face *face)
{
    for (int y = 0; y < face->rect.height; y++)
        for (int x = 0; x < face->rect.width; x++)
            for (int c = 0; c < 3; c++) {
                size_t k = (size_t)y * (size_t)face->rect.width + (size_t)x;
                double *p = picture + ((size_t)(face->rect.y + y) * (size_t)width + (size_t)(face->rect.x + x)) * 3 + c;
                if (face->edge) {
                    float m = (float)face->mask[k], v = face->edge[k] * (float)face->pixels[k * 3 + (size_t)c];
                    float a = m * v, b = (1 - m) * (float)*p;
                    *p = a + b;
                } else {
                    *p = face->mask[k] * face->pixels[k * 3 + (size_t)c] + (1 - face->mask[k]) * *p;
                }
            }
}

/* From golden classes, restored faces and matrices to the golden picture, each face on its rectangle alone. */
static void paste_case(const char *golden_case, bool whole_background)
{
    json_t *meta = picture_meta(golden_case);
    const char *source = json_string_value(json_object_get(meta, "same_crops_as"));
    bool parse = json_is_true(json_object_get(meta, "use_parse"));
    double scale = json_number_value(json_object_get(meta, "upscale"));
    struct image *input = golden_input(meta), *final = picture_golden(golden_case, "final.png"), *out = NULL;
    struct error err = ERROR_INIT;
    if (whole_background) {
        out = picture_golden(golden_case, "bg_resized.png");
    } else {
        assert_int_equal(image_create(&out, final->width, final->height, 3, 8, false, &err), OK);
        const struct view_u8 from = image_view(input), to = image_view(out);
        assert_int_equal(resize_lanczos4_exact(&to, &from, &err), OK);
    }
    size_t n = (size_t)out->width * (size_t)out->height * 3;
    double *picture = malloc(n * sizeof *picture);
    for (size_t i = 0; i < n; i++)
        picture[i] = ((const uint8_t *)out->pixels)[i];
    for (size_t f = 0; f < golden_faces(meta); f++) {
        double matrix[6];
        picture_matrix(meta, "inverse_affine_with_offset", f, matrix);
        struct face face = {.rect = warp_bounds(matrix, SIDE, SIDE, out->width, out->height, 2)};
        size_t area = (size_t)face.rect.width * (size_t)face.rect.height;
        assert_true(area > 0 && area < n / 3);
        face.mask = malloc(area * sizeof *face.mask);
        face.pixels = malloc(area * 3);
        const json_t *there = json_array_get(json_object_get(meta, "crop_index_there"), f);
        struct image *restored =
            golden_file(source ? source : golden_case, "restored", there ? (size_t)json_integer_value(there) : f);
        const struct view_u8 from = image_view(restored),
                             to = {face.pixels, face.rect.width, face.rect.height, 3, (size_t)face.rect.width * 3};
        warp_exact_u8(&to, face.rect.x, face.rect.y, &from, matrix, (const uint8_t[3]){0});
        if (parse) {
            struct image *classes = golden_file(golden_case, "parse", f);
            parse_mask(&face, matrix, classes);
            image_destroy(&classes);
        } else {
            square_mask(&face, matrix, scale, meta, f);
        }
        struct image *soft = golden_file(golden_case, "softmask", f);
        double off = plane_distance(face.mask, face.rect, soft);
        assert_true(off <= 1);
        paste(picture, out->width, &face);
        image_destroy(&soft);
        image_destroy(&restored);
        free(face.mask);
        free(face.edge);
        free(face.pixels);
    }
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)out->pixels)[i] = (uint8_t)picture[i];
    size_t differing;
    int worst = picture_difference(image_view(out), image_view(final), &differing);
    printf("%s: %zu of %zu samples differ, by at most %d\n", golden_case, differing, n, worst);
    assert_int_equal(differing, 0);
    free(picture);
    image_destroy(&input);
    image_destroy(&final);
    image_destroy(&out);
    json_decref(meta);
}

static void pasted_pictures_equal_the_reference(void **state)
{
    (void)state;
    paste_case("A_parse_nobg", false);
    paste_case("A_square_nobg", false);
    paste_case("B_parse_rrdbx2tile", true);
    paste_case("B_parse_up1.5", false);
    paste_case("B_square_up1", false);
    paste_case("C_square_center", false);
    paste_case("F_gray2d", false);
}

static void similarity(double scale, double angle, double tx, double ty, double m[6])
{
    m[0] = m[4] = scale * cos(angle);
    m[3] = scale * sin(angle);
    m[1] = -m[3];
    m[2] = tx;
    m[5] = ty;
}

static void nothing_is_touched_outside_the_bounds(void **state)
{
    (void)state;
    enum { W = 150, H = 120, SW = 40, SH = 30 };
    static uint8_t source[SW * SH], out[W * H], part[W * H];
    static float smooth[W * H];
    unsigned seed = 5;
    memset(source, 255, sizeof source);
    for (int round = 0; round < 60; round++) {
        double m[6];
        similarity(exp(picture_random(&seed) / 32767. * 3 - 2), picture_random(&seed) * 1e-3,
                   picture_random(&seed) % 200 - 30., picture_random(&seed) % 160 - 30., m);
        const struct view_u8 from = {source, SW, SH, 1, SW}, to = {out, W, H, 1, W};
        const struct view_f32 to_smooth = {smooth, W, H, 1, W};
        warp_exact_u8(&to, 0, 0, &from, m, (const uint8_t[]){0});
        warp_smooth_u8(&to_smooth, 0, 0, &from, m, (const float[]){0});
        struct rect r = warp_bounds(m, SW, SH, W, H, 0);
        for (int i = 0; i < W * H; i++) {
            bool inside = i % W >= r.x && i / W >= r.y && i % W < r.x + r.width && i / W < r.y + r.height;
            assert_true(inside || (out[i] == 0 && smooth[i] == 0));
        }
        if (r.width == 0)
            continue;
        /* the rectangle alone gives the same */
        const struct view_u8 piece = {part, r.width, r.height, 1, W};
        warp_exact_u8(&piece, r.x, r.y, &from, m, (const uint8_t[]){0});
        for (int y = 0; y < r.height; y++)
            assert_memory_equal(part + y * W, out + (r.y + y) * W + r.x, (size_t)r.width);
    }
}

static void smooth_is_bilinear_when_it_does_not_shrink(void **state)
{
    (void)state;
    enum { W = 20, H = 15 };
    float source[W * H * 3], out[W * H * 3];
    const struct view_f32 from = {source, W, H, 3, W * 3}, to = {out, W, H, 3, W * 3};
    const float border[3] = {1, 2, 3};
    for (int i = 0; i < W * H; i++) { /* bilinear interpolation keeps planes */
        source[i * 3] = (float)(i % W);
        source[i * 3 + 1] = (float)(i / W);
        source[i * 3 + 2] = (float)(2 * (i % W) - 3 * (i / W) + 5);
    }
    double m[6];
    similarity(1, 0, 0, 0, m);
    warp_smooth_f32(&to, 0, 0, &from, m, border);
    assert_memory_equal(source, out, sizeof out);
    similarity(1.7, 0.3, -2.5, 1.25, m);
    warp_smooth_f32(&to, 0, 0, &from, m, border);
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++) {
            double d = m[0] * m[4] - m[1] * m[3];
            double sx = (m[4] * (x - m[2]) - m[1] * (y - m[5])) / d, sy = (m[0] * (y - m[5]) - m[3] * (x - m[2])) / d;
            const float *p = out + (y * W + x) * 3;
            if (sx >= 0 && sy >= 0 && sx <= W - 1 && sy <= H - 1) {
                assert_true(fabs(p[0] - sx) < 1e-4 && fabs(p[1] - sy) < 1e-4);
                assert_true(fabs(p[2] - (2 * sx - 3 * sy + 5)) < 1e-4);
            } else if (sx < -1 || sy < -1 || sx > W || sy > H) {
                assert_true(p[0] == 1 && p[1] == 2 && p[2] == 3);
            }
        }
}

static void smooth_antialiases_when_it_shrinks(void **state)
{
    (void)state;
    enum { W = 300, H = 200, OUT = 30 };
    uint8_t *source = malloc(W * H), exact[OUT * OUT];
    float out[OUT * OUT];
    double m[6];
    for (int i = 0; i < W * H; i++) /* a fine checkerboard: its mean is all that a small picture can show */
        source[i] = (i % W + i / W) % 2 ? 255 : 0;
    const struct view_u8 from = {source, W, H, 1, W}, to = {exact, OUT, OUT, 1, OUT};
    const struct view_f32 smooth = {out, OUT, OUT, 1, OUT};
    similarity(0.17, 0.2, 3, -6, m); /* the output lies within the source */
    warp_smooth_u8(&smooth, 0, 0, &from, m, (const float[]){0});
    warp_exact_u8(&to, 0, 0, &from, m, (const uint8_t[]){0});
    float least = 255, most = 0, exact_least = 255, exact_most = 0;
    for (int i = 0; i < OUT * OUT; i++) {
        int x = i % OUT, y = i / OUT;
        if (x < 12 || y < 4 || x >= 28 || y >= 24) /* clear of the border */
            continue;
        least = fminf(least, out[i]);
        most = fmaxf(most, out[i]);
        exact_least = fminf(exact_least, exact[i]);
        exact_most = fmaxf(exact_most, exact[i]);
    }
    assert_true(least > 120 && most < 135);
    assert_true(exact_most - exact_least > 100);
    free(source);
}

/* The header's definition in double, one sample at a time: the tent-weighted mean, the border beyond the picture. */
static double tent_mean(const float *p, int width, int height, int channels, int c, double sx, double sy, double r,
                        double border)
{
    double sum = 0, whole = 0;
    for (int v = (int)floor(sy - r) - 1; v <= sy + r + 1; v++)
        for (int u = (int)floor(sx - r) - 1; u <= sx + r + 1; u++) {
            double w = fmax(0, 1 - fabs(u - sx) / r) * fmax(0, 1 - fabs(v - sy) / r);
            bool inside = u >= 0 && v >= 0 && u < width && v < height;
            sum += w * (inside ? p[(v * width + u) * channels + c] : border);
            whole += w;
        }
    return sum / whole;
}

static void smooth_is_the_mean_under_a_tent(void **state)
{
    (void)state;
    enum { W = 41, H = 33, OW = 50, OH = 47 };
    static const double scales[] = {3.1, 1.2, 1, 0.97, 0.7, 0.5, 0.45, 0.21, 0.08};
    static float source[W * H * 4], out[OW * OH * 4];
    static uint8_t bytes[W * H * 4];
    static uint16_t words[W * H * 4];
    const float border[4] = {132, 13, 255, 0};
    unsigned seed = 3;
    for (size_t k = 0; k < sizeof scales / sizeof scales[0]; k++)
        for (int channels = 1; channels <= 4; channels++) {
            const struct view_f32 from = {source, W, H, channels, (size_t)(W * channels)};
            const struct view_u8 from_bytes = {bytes, W, H, channels, (size_t)(W * channels)};
            const struct view_u16 from_words = {words, W, H, channels, (size_t)(W * channels)};
            const struct view_f32 to = {out, OW, OH, channels, (size_t)(OW * channels)};
            double m[6], s = scales[k], worst = 0;
            for (int i = 0; i < W * H * channels; i++)
                source[i] = bytes[i] = (uint8_t)picture_random(&seed);
            similarity(s, s < 1 ? 0.4 : 0.15 * channels, 25 - 18 * s, 22 - 17 * s, m);
            for (int i = 0; i < W * H * channels; i++)
                words[i] = (uint16_t)(257 * bytes[i]);
            for (int kind = 0; kind < 3; kind++) {
                if (kind == 2)
                    warp_smooth_u16(&to, -3, 2, &from_words, m, border);
                else if (kind)
                    warp_smooth_u8(&to, -3, 2, &from_bytes, m, border);
                else
                    warp_smooth_f32(&to, -3, 2, &from, m, border);
                for (int i = 0; i < OW * OH; i++) {
                    double x = i % OW - 3, y = i / OW + 2, d = m[0] * m[4] - m[1] * m[3];
                    double sx = (m[4] * (x - m[2]) - m[1] * (y - m[5])) / d;
                    double sy = (m[0] * (y - m[5]) - m[3] * (x - m[2])) / d, r = fmax(1, 1 / s);
                    for (int c = 0; c < channels; c++) {
                        double v = tent_mean(source, W, H, channels, c, sx, sy, r, border[c]);
                        worst = worst_of(worst, fabs(out[i * channels + c] - v));
                    }
                }
            }
            if (worst > 5e-4) /* 32 units in the last place of a float near 255, for sums of up to 25 taps each way */
                fail_msg("scale %g, %d channels: off by %g", s, channels, worst);
        }
}

static void hostile_matrices_do_no_harm(void **state)
{
    (void)state;
    uint8_t source[4 * 4] = {9}, out[5 * 5];
    float smooth[5 * 5];
    const struct view_u8 from = {source, 4, 4, 1, 4}, to = {out, 5, 5, 1, 5};
    const struct view_f32 to_smooth = {smooth, 5, 5, 1, 5};
    static const double matrices[][6] = {{0, 0, 0, 0, 0, 0},         {NAN, NAN, NAN, NAN, NAN, NAN},
                                         {1e300, 0, 0, 0, 1e300, 0}, {1e-300, 0, 1e300, 0, 1e-300, -1e300},
                                         {INFINITY, 0, 0, 0, 1, 0},  {1e-9, 0, 2, 0, 1e-9, 2}};
    for (size_t i = 0; i < sizeof matrices / sizeof matrices[0]; i++) {
        warp_exact_u8(&to, 0, 0, &from, matrices[i], (const uint8_t[]){7});
        warp_smooth_u8(&to_smooth, 0, 0, &from, matrices[i], (const float[]){7});
        struct rect r = warp_bounds(matrices[i], 4, 4, 5, 5, 2);
        assert_true(r.x >= 0 && r.y >= 0 && r.x + r.width <= 5 && r.y + r.height <= 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crops_equal_the_reference),
        cmocka_unit_test(pasted_pictures_equal_the_reference),
        cmocka_unit_test(nothing_is_touched_outside_the_bounds),
        cmocka_unit_test(smooth_is_bilinear_when_it_does_not_shrink),
        cmocka_unit_test(smooth_antialiases_when_it_shrinks),
        cmocka_unit_test(smooth_is_the_mean_under_a_tent),
        cmocka_unit_test(hostile_matrices_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
