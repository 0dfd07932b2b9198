/* Faces that lie over one another in compat, where each is blended with what the earlier ones left, unrounded; the
 * default's mask at the crop's edge, and what it leaves of a face that was restored before. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "server/pipeline/paste.h"

enum { SIDE = 150, FACE = 64 };

struct place {
    int x, y;
};

/* A picture and a result with faces there, parsed or square, whose restorations are still to come. */
static struct restoration *faces_at(const struct place *places, int count, bool parse)
{
    struct error err = ERROR_INIT;
    struct restoration *r;
    if (restoration_create(&r, &err) || image_create(&r->picture, SIDE, SIDE, 3, 8, false, &err) ||
        image_create(&r->result, SIDE, SIDE, 3, 8, false, &err))
        fail_msg("%s", err.text);
    r->options.upscale = 1;
    r->options.weight = 1;
    r->faces = calloc((size_t)count, sizeof *r->faces);
    r->face_count = count;
    for (int i = 0; i < count; i++) {
        struct face *f = &r->faces[i];
        f->size = FACE;
        f->affine[0] = f->affine[4] = 1;
        f->affine[2] = -places[i].x;
        f->affine[5] = -places[i].y;
        if (parse) {
            f->classes = malloc(FACE * FACE);
            memset(f->classes, 1, FACE * FACE);
        }
    }
    return r;
}

/* White faces, parsed or square, over a gray: the result's first channel. */
static void paste(const struct place *places, int count, bool parse, int gray, uint8_t out[SIDE * SIDE])
{
    struct error err = ERROR_INIT;
    struct restoration *r = faces_at(places, count, parse);
    memset(r->picture->pixels, gray, 3 * SIDE * SIDE);
    memset(r->result->pixels, gray, 3 * SIDE * SIDE);
    r->options.compat = true;
    for (int i = 0; i < count; i++) {
        if (image_create(&r->faces[i].restoration, FACE, FACE, 3, 8, false, &err))
            fail_msg("%s", err.text);
        memset(r->faces[i].restoration->pixels, 255, 3 * FACE * FACE);
    }
    struct step step = {.r = r, .width = SIDE, .height = SIDE};
    if (paste_layers(&step, &err) || paste_step(&step, &err))
        fail_msg("%s", err.text);
    paste_end(&step);
    for (int i = 0; i < SIDE * SIDE; i++) {
        out[i] = ((const uint8_t *)r->result->pixels)[3 * i];
        assert_int_equal(out[i], ((const uint8_t *)r->result->pixels)[3 * i + 2]);
    }
    restoration_destroy(&r);
}

static void overlapping_faces_add_up(void **state)
{
    (void)state;
    static const struct place middle = {40, 42};
    static uint8_t one[SIDE * SIDE], black[SIDE * SIDE], white[SIDE * SIDE], both[SIDE * SIDE];
    for (int parse = 0; parse < 2; parse++)
        for (int dy = -50; dy <= 50; dy += 25)
            for (int dx = -39; dx <= 39; dx += 13) {
                const struct place places[2] = {middle, {middle.x + dx, middle.y + dy}};
                paste(&places[0], 1, parse, 90, one);
                paste(&places[1], 1, parse, 0, black);
                paste(&places[1], 1, parse, 255, white);
                paste(places, 2, parse, 90, both);
                int bright = 0;
                for (int i = 0; i < SIDE * SIDE; i++) {
                    /* what the second makes of what the first leaves; each of them is truncated */
                    const double wanted = black[i] + (white[i] - black[i]) / 255. * one[i];
                    if (!(both[i] <= wanted + 3 && both[i] >= wanted - 2))
                        fail_msg("the second at %d, %d of the first: %d instead of %g at %d, %d", dx, dy, both[i],
                                 wanted, i % SIDE, i / SIDE);
                    bright += both[i] >= 254;
                }
                assert_true(bright > FACE * FACE / 2);
            }
}

/* A mask that reaches the crop's edge fades to 0 there, over no less than 32 px. */
static void the_mask_fades(void **state)
{
    (void)state;
    enum { CROP = 512 };
    struct error err = ERROR_INIT;
    struct restoration *r;
    if (restoration_create(&r, &err) || image_create(&r->picture, CROP, CROP, 3, 8, false, &err))
        fail_msg("%s", err.text);
    r->options.upscale = 1;
    r->options.weight = 1;
    r->faces = calloc(1, sizeof *r->faces);
    r->face_count = 1;
    struct face *f = &r->faces[0];
    f->size = CROP;
    f->affine[0] = f->affine[4] = 1;
    f->classes = malloc(CROP * CROP);
    f->restoration_float = malloc(3 * CROP * CROP * sizeof(float));
    memset(f->classes, 1, CROP * CROP);
    for (int i = 0; i < 3 * CROP * CROP; i++)
        f->restoration_float[i] = 255;
    struct step step = {.r = r, .width = CROP, .height = CROP};
    if (paste_layers(&step, &err))
        fail_msg("%s", err.text);
    assert_int_equal(step.layer_count, 1);
    assert_int_equal(step.layers[0].width, CROP);
    const float *rgba = step.layers[0].rgba;
    float steepest = 0;
    for (int i = 0; i < CROP; i++) {
        assert_true(rgba[4 * i + 3] <= 0 && rgba[4 * (i * CROP + CROP - 1) + 3] <= 0);
        for (int k = 1; k < CROP; k++) { /* along a row and along a column */
            steepest = fmaxf(steepest, fabsf(rgba[4 * (i * CROP + k) + 3] - rgba[4 * (i * CROP + k - 1) + 3]));
            steepest = fmaxf(steepest, fabsf(rgba[4 * (k * CROP + i) + 3] - rgba[4 * ((k - 1) * CROP + i) + 3]));
        }
    }
    assert_true(steepest > 0.02f && steepest <= 1 / 32.f);
    assert_true(rgba[4 * (CROP / 2 * CROP + CROP / 2) + 3] >= 0.9999f);
    paste_end(&step);
    restoration_destroy(&r);
}

/* Faces of one gray each over a background of 120, as the default does it. */
static void lay(const struct place *places, const float *grays, int count, bool parse, float out[SIDE * SIDE])
{
    struct error err = ERROR_INIT;
    struct restoration *r = faces_at(places, count, parse);
    for (int i = 0; i < count; i++) {
        float *pixels = r->faces[i].restoration_float = malloc(sizeof(float) * 3 * FACE * FACE);
        for (int k = 0; k < 3 * FACE * FACE; k++)
            pixels[k] = grays[i];
    }
    struct step step = {.r = r, .width = SIDE, .height = SIDE};
    if (paste_layers(&step, &err))
        fail_msg("%s", err.text);
    for (int y = 0; y < SIDE; y++) {
        float row[3 * SIDE];
        for (int i = 0; i < 3 * SIDE; i++)
            row[i] = 120;
        paste_background_row(&step, y, row, NULL);
        for (int x = 0; x < SIDE; x++)
            out[y * SIDE + x] = ((const uint8_t *)r->result->pixels)[3 * (y * SIDE + x)];
    }
    paste_end(&step);
    restoration_destroy(&r);
}

/* Its eyes, nose and mouth, in 64 px of which the template has 512. */
static bool among_features(struct place place, int x, int y)
{
    x -= place.x;
    y -= place.y;
    return x >= 24 && x < 40 && y >= 30 && y < 47;
}

static void nothing_over_a_restored_face(void **state)
{
    (void)state;
    static const struct place middle = {40, 42};
    static const float grays[2] = {200, 40};
    static float first[SIDE * SIDE], second[SIDE * SIDE], both[SIDE * SIDE];
    for (int parse = 0; parse < 2; parse++)
        for (int dy = -30; dy <= 30; dy += 10)
            for (int dx = -39; dx <= 39; dx += 13) {
                const struct place places[2] = {middle, {middle.x + dx, middle.y + dy}};
                int kept = 0, features = 0;
                lay(places, grays, 1, parse, first);
                lay(places + 1, grays + 1, 1, parse, second);
                lay(places, grays, 2, parse, both);
                for (int i = 0; i < SIDE * SIDE; i++) {
                    const int x = i % SIDE, y = i / SIDE;
                    if (among_features(middle, x, y)) {
                        assert_true(first[i] > 190); /* it was restored */
                        if (!(fabsf(both[i] - first[i]) <= 1))
                            fail_msg("the second at %d, %d lies over the first: %g instead of %g at %d, %d", dx, dy,
                                     both[i], first[i], x, y);
                    } else if (among_features(places[1], x, y)) { /* it keeps what is its own */
                        features++;
                        kept += fabsf(both[i] - second[i]) <= 1;
                    }
                }
                if (abs(dx) > 30)
                    assert_true(kept > features * 9 / 10);
            }
}

/* A face whose parser finds no face in it, as with random weights: nothing is pasted, and the report says so. */
static void an_empty_mask_is_told(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    for (int compat = 0; compat < 2; compat++)
        for (int label = 0; label < 2; label++) {
            struct restoration *r = faces_at(&(struct place){40, 42}, 1, true);
            struct face *f = r->faces;
            r->options.compat = compat;
            memset(f->classes, label, FACE * FACE);
            f->restored = true;
            f->restoration_float = calloc(3 * FACE * FACE, sizeof(float));
            if (image_create(&f->restoration, FACE, FACE, 3, 8, false, &err))
                fail_msg("%s", err.text);
            memset(f->restoration->pixels, 0, 3 * FACE * FACE);
            memset(r->picture->pixels, 90, 3 * SIDE * SIDE);
            memset(r->result->pixels, 90, 3 * SIDE * SIDE);
            struct step step = {.r = r, .width = SIDE, .height = SIDE};
            if (paste_layers(&step, &err) || paste_step(&step, &err))
                fail_msg("%s", err.text);
            assert_int_equal(restoration_kept(r, f), label == 0);
            if (!compat)
                assert_true(label ? f->used >= 1 : f->used <= 0);
            json_t *report = restoration_report(r), *face = json_array_get(json_object_get(report, "faces"), 0);
            assert_string_equal(json_string_value(json_object_get(face, "action")), label ? "restored" : "kept");
            const char *reason = json_string_value(json_object_get(face, "reason"));
            assert_true(label ? !reason : reason && strstr(reason, "its mask is empty"));
            json_decref(report);
            paste_end(&step);
            restoration_destroy(&r);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(overlapping_faces_add_up), cmocka_unit_test(the_mask_fades),
                                       cmocka_unit_test(nothing_over_a_restored_face),
                                       cmocka_unit_test(an_empty_mask_is_told)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
