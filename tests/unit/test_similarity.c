/* Similarity transforms: exact cases of our own, and the matrices that the reference found. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/image/similarity.h"
#include "tests/common/picture.h"
#include "tests/common/worst.h"

static void map_point(const double m[6], const double p[2], double out[2])
{
    out[0] = m[0] * p[0] + m[1] * p[1] + m[2];
    out[1] = m[3] * p[0] + m[4] * p[1] + m[5];
}

static double matrix_distance(const double a[6], const double b[6], const double points[][2], int n)
{
    double worst = 0;
    for (int i = 0; i < n; i++) {
        double p[2], q[2];
        map_point(a, points[i], p);
        map_point(b, points[i], q);
        worst = worst_of(worst, hypot(p[0] - q[0], p[1] - q[1]));
    }
    return worst;
}

static void both_find_an_exact_similarity(void **state)
{
    (void)state;
    const double truth[6] = {0.8, -0.6, 31.5, 0.6, 0.8, -7.25}; /* maps the template to the points */
    double points[5][2], back[6], inverse[6], found[6];
    for (int i = 0; i < 5; i++)
        map_point(truth, similarity_template[i], points[i]);
    similarity_invert(truth, inverse);
    assert_true(similarity_fit(points, similarity_template, 5, found));
    assert_true(matrix_distance(found, inverse, points, 5) < 1e-9);
    assert_true(similarity_fit_lmeds(points, similarity_template, 5, found));
    assert_true(matrix_distance(found, inverse, points, 5) < 1e-3); /* its points are floats */
    similarity_invert(inverse, back);
    for (int i = 0; i < 6; i++)
        assert_true(fabs(back[i] - truth[i]) < 1e-9);
}

/* Neither turned nor, then, with anything left of a first axis: one of the two numbers is exactly 0. */
static void upright_and_lying_faces_are_found(void **state)
{
    (void)state;
    for (int quarter = 0; quarter < 4; quarter++) {
        static const double square[4][2] = {{-1, -1}, {1, -1}, {-1, 1}, {1, 1}};
        double turned[4][2], m[6];
        for (int i = 0; i < 4; i++) {
            double x = square[i][0], y = square[i][1];
            turned[i][0] = 10 + 2 * (quarter == 0 ? x : quarter == 1 ? -y : quarter == 2 ? -x : y);
            turned[i][1] = 20 + 2 * (quarter == 0 ? y : quarter == 1 ? x : quarter == 2 ? -y : -x);
        }
        assert_true(similarity_fit(square, turned, 4, m));
        assert_true(m[quarter % 2 ? 0 : 3] == 0);
        for (int i = 0; i < 4; i++) {
            double p[2];
            map_point(m, square[i], p);
            assert_true(hypot(p[0] - turned[i][0], p[1] - turned[i][1]) < 1e-12);
        }
    }
}

static double squared_error(const double m[6], const double from[][2], const double to[][2], int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        double p[2];
        map_point(m, from[i], p);
        sum += pow(p[0] - to[i][0], 2) + pow(p[1] - to[i][1], 2);
    }
    return sum;
}

static void least_squares_is_a_minimum(void **state)
{
    (void)state;
    const double points[5][2] = {{100, 90}, {160, 101}, {128, 130}, {99, 155}, {150, 170}};
    double m[6];
    assert_true(similarity_fit(points, similarity_template, 5, m));
    assert_true(m[0] == m[4] && m[1] == -m[3]);
    double least = squared_error(m, points, similarity_template, 5);
    for (int k = 0; k < 4; k++)
        for (int sign = -1; sign <= 1; sign += 2) {
            double other[6] = {m[0], m[1], m[2], m[3], m[4], m[5]}, step = sign * (k < 2 ? 1e-4 : 1e-2);
            if (k == 0) {
                other[0] += step;
                other[4] += step;
            } else if (k == 1) {
                other[1] -= step;
                other[3] += step;
            } else {
                other[k == 2 ? 2 : 5] += step;
            }
            assert_true(squared_error(other, points, similarity_template, 5) > least);
        }
}

static void lmeds_leaves_an_outlier_out(void **state)
{
    (void)state;
    double points[5][2], found[6];
    const double truth[6] = {0.5, -0.1, 40, 0.1, 0.5, 60}; /* maps the template to the points */
    for (int i = 0; i < 5; i++)
        map_point(truth, similarity_template[i], points[i]);
    points[2][0] += 60;
    double inverse[6];
    similarity_invert(truth, inverse);
    assert_true(similarity_fit_lmeds(points, similarity_template, 5, found));
    double kept[4][2] = {{points[0][0], points[0][1]},
                         {points[1][0], points[1][1]},
                         {points[3][0], points[3][1]},
                         {points[4][0], points[4][1]}};
    assert_true(matrix_distance(found, inverse, kept, 4) < 1e-2);
    assert_true(similarity_fit(points, similarity_template, 5, found));
    assert_true(matrix_distance(found, inverse, kept, 4) > 1);
}

static void degenerate_points_are_refused(void **state)
{
    (void)state;
    const double same[5][2] = {{7, 7}, {7, 7}, {7, 7}, {7, 7}, {7, 7}};
    const double lost[5][2] = {{NAN, 7}, {1, 2}, {3, 4}, {5, 7}, {7, 8}};
    double m[6];
    assert_false(similarity_fit(same, similarity_template, 5, m));
    assert_false(similarity_fit_lmeds(same, similarity_template, 5, m));
    assert_false(similarity_fit(lost, similarity_template, 5, m));
    assert_false(similarity_fit(similarity_template, same, 5, m));
    const double flat[6] = {0};
    similarity_invert(flat, m);
    for (int i = 0; i < 6; i++)
        assert_true(m[i] == 0);
}

static const char *const cases[] = {"A_parse_nobg",       "A_square_nobg",   "A_parse_center_srvggx4",
                                    "B_parse_rrdbx2tile", "B_square_up1",    "B_parse_up1.5",
                                    "C_parse_rrdbx2",     "C_square_center", "F_gray2d",
                                    "H_rgba_rrdbx2",      "G_nopaste"};

static void lmeds_equals_the_reference(void **state)
{
    (void)state;
    double worst = 0, worst_inverse = 0;
    int faces = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *meta = picture_meta(cases[i]);
        const json_t *all = json_object_get(meta, "landmarks_used");
        for (size_t f = 0; f < json_array_size(all); f++, faces++) {
            double points[5][2], golden[6], golden_inverse[6], found[6], inverse[6];
            for (size_t k = 0; k < 10; k++)
                points[k / 2][k % 2] =
                    json_number_value(json_array_get(json_array_get(json_array_get(all, f), k / 2), k % 2));
            picture_matrix(meta, "affine", f, golden);
            assert_true(similarity_fit_lmeds(points, similarity_template, 5, found));
            worst = worst_of(worst, matrix_distance(found, golden, points, 5));
            if (json_array_size(json_object_get(meta, "inverse_affine_before_scale")) == 0)
                continue; /* nothing was pasted */
            picture_matrix(meta, "inverse_affine_before_scale", f, golden_inverse);
            similarity_invert(golden, inverse);
            worst_inverse = worst_of(worst_inverse, matrix_distance(inverse, golden_inverse, similarity_template, 5));
        }
        json_decref(meta);
    }
    printf("%d faces: landmarks off by at most %.2g px of the crop, inverse by %.2g px\n", faces, worst, worst_inverse);
    assert_true(faces >= 14);
    assert_true(worst < 1e-3);
    assert_true(worst_inverse < 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_find_an_exact_similarity), cmocka_unit_test(upright_and_lying_faces_are_found),
        cmocka_unit_test(least_squares_is_a_minimum),    cmocka_unit_test(lmeds_leaves_an_outlier_out),
        cmocka_unit_test(degenerate_points_are_refused), cmocka_unit_test(lmeds_equals_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
