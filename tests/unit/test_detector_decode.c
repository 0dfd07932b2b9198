/* RetinaFace's maps -> faces: maps of our own, for which the faces are known. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/models/retinaface_decode.h"

enum { HEIGHT = 61, WIDTH = 90, CHANNELS = 32 };

static const float sizes[3][2] = {{16, 32}, {64, 128}, {256, 512}};
static float *maps[3];

static int rows_of(int level)
{
    return (HEIGHT + (8 << level) - 1) / (8 << level);
}

static int columns_of(int level)
{
    return (WIDTH + (8 << level) - 1) / (8 << level);
}

/* No face anywhere, and boxes as the anchors are. */
static int make_maps(void **state)
{
    (void)state;
    for (int level = 0; level < 3; level++) {
        size_t plane = (size_t)(rows_of(level) * columns_of(level));
        maps[level] = calloc(CHANNELS * plane, sizeof(float));
        for (size_t i = 0; i < plane; i++)
            maps[level][i] = maps[level][2 * plane + i] = 20;
    }
    return 0;
}

static int free_maps(void **state)
{
    (void)state;
    for (int level = 0; level < 3; level++)
        free(maps[level]);
    return 0;
}

static float *value(int level, int channel, int row, int column)
{
    return &maps[level][(channel * rows_of(level) + row) * columns_of(level) + column];
}

static void put(int level, int anchor, int row, int column, float logit)
{
    *value(level, 2 * anchor, row, column) = 0;
    *value(level, 2 * anchor + 1, row, column) = logit;
}

static size_t decode(struct face_box **faces, float threshold, float nms)
{
    struct error err = ERROR_INIT;
    size_t count = 99;
    assert_int_equal(
        retinaface_decode((const float *const *)maps, HEIGHT, WIDTH, sizes, threshold, nms, faces, &count, &err), OK);
    return count;
}

static void near(double got, double wanted)
{
    if (!(fabs(got - wanted) < 1e-3))
        fail_msg("%g instead of %g", got, wanted);
}

static void no_faces(void **state)
{
    (void)state;
    struct face_box *faces;
    assert_int_equal(decode(&faces, 0.5f, 0.4f), 0);
    free(faces);
}

/* Each level and anchor, in the last cell of its map: the anchor's place, and what the map adds. */
static void one_face(void **state)
{
    for (int level = 0; level < 3; level++)
        for (int anchor = 0; anchor < 2; anchor++) {
            int row = rows_of(level) - 1, column = columns_of(level) - 1;
            double side = sizes[level][anchor], stride = 8 << level;
            double x = (column + 0.5) * stride, y = (row + 0.5) * stride;
            put(level, anchor, row, column, 2);
            for (int k = 0; k < 4; k++)
                *value(level, 4 + 4 * anchor + k, row, column) = (float)(k + 1) / 2;
            for (int k = 0; k < 10; k++)
                *value(level, 12 + 10 * anchor + k, row, column) = (float)(k - 4);
            struct face_box *faces;
            assert_int_equal(decode(&faces, 0.5f, 0.4f), 1);
            near(faces->score, 1 / (1 + exp(-2)));
            double w = side * exp(1.5 * 0.2), h = side * exp(2 * 0.2);
            near(faces->box[0], x + 0.5 * 0.1 * side - w / 2);
            near(faces->box[1], y + 1 * 0.1 * side - h / 2);
            near(faces->box[2], x + 0.5 * 0.1 * side + w / 2);
            near(faces->box[3], y + 1 * 0.1 * side + h / 2);
            for (int k = 0; k < 5; k++) {
                near(faces->landmarks[k][0], x + (2 * k - 4) * 0.1 * side);
                near(faces->landmarks[k][1], y + (2 * k - 3) * 0.1 * side);
            }
            free(faces);
            free_maps(state);
            make_maps(state);
        }
}

/* More than a list begins with room for, the surest first; what is no surer than the threshold is none. */
static void sorted_and_many(void **state)
{
    (void)state;
    int count = 0;
    for (int row = 0; row < rows_of(0); row++)
        for (int column = 0; column < columns_of(0); column++)
            put(0, 0, row, column, 0.1f + (float)(++count * 29 % 97) / 30);
    assert_true(count > 64);
    struct face_box *faces;
    assert_int_equal(decode(&faces, 0.5f, 1), count);
    for (int i = 1; i < count; i++)
        assert_true(faces[i - 1].score >= faces[i].score);
    assert_true(faces[0].score > faces[count - 1].score);
    const float middle = faces[count / 2].score;
    size_t above = 0;
    while (faces[above].score > middle)
        above++;
    free(faces);
    assert_int_equal(decode(&faces, middle, 1), above);
    free(faces);
}

/* 16 px of side, 8 px apart: of 17 inclusive pixels 9 are shared, 9 * 17 / (2 * 17 * 17 - 9 * 17) = 0.36. */
static void overlap_is_suppressed(void **state)
{
    (void)state;
    const float shared = 9.f * 17 / (2 * 17 * 17 - 9 * 17);
    for (int way = 0; way < 2; way++) { /* beside each other, below each other */
        put(0, 0, 2, 3, 1);
        put(0, 0, way ? 3 : 2, way ? 3 : 4, 2);
        struct face_box *faces;
        assert_int_equal(decode(&faces, 0.5f, shared + 0.001f), 2);
        free(faces);
        assert_int_equal(decode(&faces, 0.5f, shared - 0.001f), 1);
        near(faces->score, 1 / (1 + exp(-2))); /* the surer one stays */
        near(faces->box[0], way ? 3 * 8 + 4 - 8 : 4 * 8 + 4 - 8);
        free(faces);
        *value(0, 0, 2, 4) = 20;
        *value(0, 1, 2, 4) = 0;
    }
    put(0, 0, 3, 3, -9);
    put(0, 0, 2, 6, 1); /* a gap between them: nothing is shared, in neither direction */
    put(0, 0, 6, 3, 1);
    struct face_box *faces;
    assert_int_equal(decode(&faces, 0.5f, 0), 3);
    free(faces);
    put(0, 0, 7, 9, 1); /* apart in both directions: two negative sides make no area */
    assert_int_equal(decode(&faces, 0.5f, 0), 4);
    free(faces);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_faces, make_maps, free_maps),
        cmocka_unit_test_setup_teardown(one_face, make_maps, free_maps),
        cmocka_unit_test_setup_teardown(sorted_and_many, make_maps, free_maps),
        cmocka_unit_test_setup_teardown(overlap_is_suppressed, make_maps, free_maps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
