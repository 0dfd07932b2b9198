/* The repair of damage: which pixels count, and that all others stay as they are, bit for bit. How holes are filled:
 * test_repair_fill.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/backend/fault.h"
#include "server/image/codec.h"
#include "server/pipeline/repair.h"
#include "tests/common/models.h"
#include "tests/common/picture.h"
#include "tests/common/restoration.h"
#include "tests/common/shared.h"

/* ---- which pixels count ------------------------------------------------------------------------------------------ */

#define MAP_W 12
#define MAP_H 7

static void draw(uint8_t *map, const char *const rows[MAP_H])
{
    for (int y = 0; y < MAP_H; y++)
        for (int x = 0; x < MAP_W; x++)
            map[y * MAP_W + x] = rows[y][x] == '.' ? 100 : rows[y][x] == 'o' ? 160 : 220;
}

static void test_find(void **state)
{
    (void)state;
    static const char *const rows[MAP_H] = {
        "X.........XX", "ooX....oo...", "...X...oo...", "....X.......", "............", "X.........oX", "............",
    };
    uint8_t level[MAP_W * MAP_H], kind[MAP_W * MAP_H] = {0}, mask[MAP_W * MAP_H], grown[MAP_W * MAP_H];
    struct defect_rule rule = {.kinds = {{150, 200, 0, 0}, {150, 200, 0, 0}, {150, 200, 0, 0}, {150, 200, 0, 0}},
                               .sure = 0.5f,
                               .large = 1,
                               .least = 2};
    const struct defect_map map = {MAP_W, MAP_H, level, kind};
    struct defect_counts counts;
    struct error err = ERROR_INIT;
    draw(level, rows);
    kind[10] = kind[11] = 2;
    assert_int_equal(defect_find(&map, &rule, mask, &counts, &err), OK);
    /* the slanted line hangs together at its corners; four pixels that nothing is sure of do not count, nor does a
     * single one; half of the last one's are sure */
    assert_int_equal(counts.defects[0], 2);
    assert_int_equal(counts.pixels[0], 6 + 2);
    assert_int_equal(counts.defects[2], 1);
    for (int i = 0; i < MAP_W * MAP_H; i++) {
        const int y = i / MAP_W, x = i % MAP_W;
        const bool none = level[i] < 150 || (x > 6 && x < 9) || (y == 5 && x == 0);
        assert_int_equal(mask[i], none ? 0 : y == 0 && x > 9 ? 3 : 1);
    }
    memset(mask, 0, sizeof mask);
    mask[0] = 1;
    mask[3 * MAP_W + 5] = 2;
    mask[3 * MAP_W + 7] = 4;
    assert_int_equal(defect_grow(mask, grown, NULL, 0, MAP_W, MAP_H, NULL, &err), OK);
    for (int i = 0; i < MAP_W * MAP_H; i++) {
        const int y = i / MAP_W, x = i % MAP_W, far = y < 2 || y > 4;
        assert_int_equal(grown[i], y < 2 && x < 2 ? 1 : far || x < 4 || x > 8 ? 0 : x < 6 ? 2 : 4);
    }
    /* of a large defect more must be sure: the line of 6 px of 84, all but one of which are */
    rule.large = 5.0f / (MAP_W * MAP_H);
    for (int k = 0; k < 2; k++) {
        rule.kinds[0].sure_large = k ? 0.5f : 0.8f;
        level[1 * MAP_W + 1] = 160;
        assert_int_equal(defect_find(&map, &rule, mask, &counts, &err), OK);
        assert_int_equal(counts.defects[0], 1 + k);
        assert_int_equal(mask[0], k);
    }
    /* what is less sure is reached where it is near, and nothing else */
    memset(mask, 0, sizeof mask);
    mask[3 * MAP_W + 4] = 1;
    assert_int_equal(defect_grow(mask, grown, level, 160, MAP_W, MAP_H, NULL, &err), OK);
    for (int i = 0; i < MAP_W * MAP_H; i++)
        assert_int_equal(grown[i], i == 3 * MAP_W + 4 || i == 2 * MAP_W + 3);
}

/* ---- the step ---------------------------------------------------------------------------------------------------- */

/* Runs the pipeline on a PNG of a picture, with options name, value, …, NULL. */
static struct restoration *run(const struct image *picture, const struct image *mask, const char *const *options)
{
    struct error err = ERROR_INIT;
    struct restoration *r;
    struct codec_options level = CODEC_OPTIONS_INIT;
    struct codec_output file = {0}, second = {0};
    if (restoration_create(&r, &err) || codec_encode(picture, IMAGE_PNG, level, &file, &err) ||
        (mask && codec_encode(mask, IMAGE_PNG, level, &second, &err)))
        fail_msg("%s", err.text);
    static const char *const always[] = {"version", "none", "faces", "none", "bg_upsampler", "none", "upscale", "1"};
    for (size_t i = 0; i < sizeof always / sizeof *always; i += 2)
        assert_int_equal(options_set(&r->options, always[i], always[i + 1], &err), OK);
    for (; *options; options += 2)
        if (options_set(&r->options, options[0], options[1], &err))
            fail_msg("%s", err.text);
    r->input = file.bytes;
    r->input_bytes = file.size;
    r->mask_input = second.bytes;
    r->mask_bytes = second.size;
    if (pipeline_run(r, &restoration_worker, &err))
        fail_msg("%s", err.text);
    free(file.bytes);
    free(second.bytes);
    return r;
}
#define OPTIONS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define FINDER "damage_detector", "starter_damage" /* the fixture's: pure green is damage */

static struct image *scratched(struct image *truth)
{
    struct image *image = picture_waves(truth->width, truth->height, 3, 8);
    for (int y = 20; y < 150; y++)
        for (int x = 60; x < 63; x++)
            memcpy((uint8_t *)image->pixels + 3 * (size_t)(y * image->width + x), (uint8_t[3]){0, 255, 0}, 3);
    return image;
}

static size_t changed(const struct image *a, const struct image *b, int left, int top, int right, int bottom)
{
    size_t count = 0;
    for (int y = 0; y < a->height; y++)
        for (int x = 0; x < a->width; x++) {
            const size_t at = 3 * (size_t)(y * a->width + x);
            const bool inside = x >= left && x < right && y >= top && y < bottom;
            count += !inside && memcmp((uint8_t *)a->pixels + at, (uint8_t *)b->pixels + at, 3) != 0;
        }
    return count;
}

static void test_step(void **state)
{
    (void)state;
    struct image *truth = picture_waves(200, 180, 3, 8), *damaged = scratched(truth);
    static const char *const ways[] = {"true", "auto"};
    for (int i = 0; i < 2; i++) {
        struct restoration *r = run(damaged, NULL, OPTIONS(FINDER, "repair", ways[i]));
        assert_true(r->damage.looked && r->damage.defects[0] == 1 && r->damage.defects[1] == 0);
        assert_true(fabs(r->damage.share * 200 * 180 - 5 * 132) < 0.5); /* 3 × 130, and 1 px around */
        assert_int_equal(changed(damaged, r->result, 57, 17, 66, 153), 0);
        assert_true(picture_difference(image_view(truth), image_view(r->result), NULL) < 12);
        assert_string_equal(r->options.damage_detector, "starter_damage");
        restoration_destroy(&r);
    }
    struct restoration *r = run(damaged, NULL, OPTIONS(FINDER, "fill", "filler")); /* the fixture's changes little */
    assert_string_equal(r->model_names[ROLE_FILLER], "filler");
    assert_int_equal(changed(damaged, r->result, 57, 17, 66, 153), 0);
    const int corrected = picture_difference(image_view(truth), image_view(r->result), NULL);
    assert_true(corrected > 0 && corrected < 40);
    restoration_destroy(&r);
    r = run(damaged, NULL, OPTIONS(FINDER, "fill", "squares")); /* of 64 px: nine windows, some with a hole */
    assert_string_equal(r->model_names[ROLE_FILLER], "squares");
    assert_true(r->damage.filled > 0 &&
                r->damage.filled < repair_fill_most(200, 180, &(struct model_info){.side = 64}));
    assert_int_equal(changed(damaged, r->result, 57, 17, 66, 153), 0);
    assert_true(picture_difference(image_view(truth), image_view(r->result), NULL) > corrected);
    restoration_destroy(&r);
    r = run(truth, NULL, OPTIONS(FINDER, "repair", "true"));
    assert_true(r->damage.looked && r->damage.share == 0);
    assert_int_equal(changed(truth, r->result, 0, 0, 0, 0), 0);
    restoration_destroy(&r);
    static const char *const off[][4] = {{"repair", "false"}, {"repair_strength", "0"}, {"compat", "true"}};
    for (int i = 0; i < 3; i++) {
        r = run(damaged, NULL, OPTIONS(FINDER, off[i][0], off[i][1]));
        assert_false(r->damage.looked);
        assert_int_equal(changed(damaged, r->result, 0, 0, 0, 0), 0);
        restoration_destroy(&r);
    }
    r = run(damaged, NULL, OPTIONS("repair", "true")); /* none of the fixtures is a default */
    assert_int_equal(r->note_count, 1);
    assert_int_equal(changed(damaged, r->result, 0, 0, 0, 0), 0);
    restoration_destroy(&r);
    image_destroy(&truth);
    image_destroy(&damaged);
}

static void upright(struct image *image, int left, uint8_t green)
{
    for (int y = 20; y < 150; y++)
        for (int x = left; x < left + 3; x++)
            memcpy((uint8_t *)image->pixels + 3 * (size_t)(y * image->width + x), (uint8_t[3]){0, green, 0}, 3);
}

/* A scratch that is only likelier than not does not count, not even beside two that are sure. */
static void test_lines(void **state)
{
    (void)state;
    for (int sure = 1; sure <= 2; sure++) {
        struct image *image = picture_waves(200, 180, 3, 8);
        for (int i = 0; i < sure; i++)
            upright(image, 60 + 40 * i, 255);
        upright(image, 160, 135);
        struct restoration *r = run(image, NULL, OPTIONS(FINDER));
        assert_int_equal(r->damage.defects[0], sure);
        restoration_destroy(&r);
        image_destroy(&image);
    }
}

/* A net of hairs covers much of the picture, and half of it is sure. */
static void test_net(void **state)
{
    (void)state;
    struct image *image = picture_waves(200, 180, 3, 8);
    for (int i = 0; i < 5; i++)
        upright(image, 30 + 30 * i, i % 2 ? 135 : 255);
    for (int y = 84; y < 87; y++)
        for (int x = 33; x < 150; x++)
            memcpy((uint8_t *)image->pixels + 3 * (size_t)(y * 200 + x), (uint8_t[3]){0, 135, 0}, 3);
    struct restoration *r = run(image, NULL, OPTIONS(FINDER));
    assert_int_equal(r->damage.defects[0], 1);
    restoration_destroy(&r);
    image_destroy(&image);
}

static void box(struct image *image, int left, int top, int width, int height, const uint8_t rgb[3])
{
    for (int y = top; y < top + height; y++)
        for (int x = left; x < left + width; x++)
            memcpy((uint8_t *)image->pixels + 3 * (size_t)(y * image->width + x), rgb, 3);
}

/* A scratch that is sure beside much that is not: it alone is repaired. */
static void test_core(void **state)
{
    (void)state;
    struct image *image = picture_waves(200, 180, 3, 8);
    upright(image, 60, 255);
    box(image, 63, 40, 30, 90, (uint8_t[3]){0, 128, 0});
    struct restoration *r = run(image, NULL, OPTIONS(FINDER));
    assert_int_equal(r->damage.defects[0], 1);
    assert_true(r->damage.share > 0.01 && r->damage.share * 200 * 180 < 8 * 140); /* and what is next to it */
    restoration_destroy(&r);
    image_destroy(&image);
}

/* repair=true fills a line of which a quarter is likely, but not beside one that is sure: more is asked for there. */
static void test_true(void **state)
{
    (void)state;
    for (int sure = 0; sure < 2; sure++) {
        struct image *image = picture_waves(200, 180, 3, 8);
        if (sure)
            upright(image, 30, 255);
        upright(image, 120, 122);
        box(image, 120, 20, 3, 32, (uint8_t[3]){0, 140, 0});
        struct restoration *r = run(image, NULL, OPTIONS(FINDER, "repair", "true"));
        assert_int_equal(r->damage.defects[0], 1);
        assert_true(r->damage.share * 200 * 180 < 5 * 132 + 99); /* one of the two */
        restoration_destroy(&r);
        image_destroy(&image);
    }
}

/* On a page of text lines are no sign of damage, not two either, but they are on paper, and where there is more than a
 * page. */
static void test_page(void **state)
{
    (void)state;
    static const struct {
        int page; /* px of the picture's width */
        bool text;
        int lines;
        const char *repair;
        int found;
    } cases[] = {{200, true, 1, "auto", 0}, {200, true, 1, "true", 1},  {200, true, 2, "auto", 0},
                 {96, true, 1, "auto", 1},  {200, false, 1, "auto", 1}, {200, false, 2, "auto", 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct image *image = picture_waves(200, 180, 3, 8);
        box(image, 0, 0, cases[i].page, 180, (uint8_t[3]){222, 218, 210});
        for (int y = 4; y < 170 && cases[i].text; y += 14)
            for (int x = 2; x + 2 <= cases[i].page; x += 5)
                box(image, x, y, 2, 4 + x % 3, (uint8_t[3]){40, 40, 50});
        for (int k = 0; k < cases[i].lines; k++)
            upright(image, 100 + 40 * k, 255);
        struct restoration *r = run(image, NULL, OPTIONS(FINDER, "repair", cases[i].repair));
        assert_int_equal(r->damage.defects[0], cases[i].found);
        assert_true((r->damage.share > 0) == (cases[i].found > 0));
        restoration_destroy(&r);
        image_destroy(&image);
    }
}

/* An icon is not repaired by itself, but if one asks for it. */
static void test_icon(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct image *image = picture_waves(i < 2 ? 63 : 64, 63, 3, 8);
        box(image, 30, 15, 3, 30, (uint8_t[3]){0, 255, 0});
        struct restoration *r = run(image, NULL, OPTIONS(FINDER, "repair", i == 1 ? "true" : "auto"));
        assert_true((r->damage.share > 0) == (i > 0));
        restoration_destroy(&r);
        image_destroy(&image);
    }
}

/* A detector that looks at the picture reduced to 256 px finds what is bright, and everything likely counts. */
static void test_reduced(void **state)
{
    (void)state;
    static const int sizes[][2] = {{600, 512}, {90, 300}, {17, 400}};
    for (int i = 0; i < 3; i++) {
        const int w = sizes[i][0], h = sizes[i][1];
        struct image *damaged = picture_waves(w, h, 3, 8);
        for (int y = h / 4; y < h / 2; y++)
            memset((uint8_t *)damaged->pixels + 3 * (size_t)(y * w + w / 3), 255, 3 * (size_t)(w / 3));
        struct restoration *r = run(damaged, NULL, OPTIONS("damage_detector", "scratches", "fill", "none"));
        const double share = (double)(w / 3) * (h / 2 - h / 4) / ((double)w * h);
        assert_true(r->damage.looked && r->damage.defects[0] == 1);
        assert_true(r->damage.share > share && r->damage.share < 1.4 * share + 0.02); /* its edge is soft, and grows */
        assert_string_equal(r->options.damage_detector, "scratches");
        restoration_destroy(&r);
        image_destroy(&damaged);
    }
}

static void test_mask(void **state)
{
    (void)state;
    struct image *truth = picture_waves(200, 180, 3, 8), *damaged = scratched(truth), *mask;
    struct error err = ERROR_INIT;
    assert_int_equal(image_create(&mask, 200, 180, 1, 8, false, &err), OK);
    for (int i = 0; i < 200 * 180; i++) /* a square, and the upper part of the scratch */
        ((uint8_t *)mask->pixels)[i] = (i % 200 >= 120 && i % 200 < 128 && i / 200 >= 90 && i / 200 < 98) ||
                                               (i % 200 >= 55 && i % 200 < 68 && i / 200 < 60)
                                           ? 255
                                           : 0;
    const double square = 64.0 / (200 * 180), upper = 13.0 * 60 / (200 * 180), scratch = 5.0 * 132 / (200 * 180);
    struct restoration *r = run(damaged, mask, OPTIONS(FINDER, "repair", "true"));
    assert_true(!r->damage.looked && r->damage.given && fabs(r->damage.share - square - upper) < 1e-9);
    assert_true(changed(damaged, r->result, 53, 0, 70, 62) > 0);
    assert_int_equal(memcmp((uint8_t *)r->result->pixels + 3 * (100 * 200 + 61), (uint8_t[3]){0, 255, 0}, 3), 0);
    restoration_destroy(&r);
    r = run(damaged, mask, OPTIONS("mask_mode", "add", FINDER));
    assert_true(r->damage.looked && r->damage.given);
    assert_true(fabs(r->damage.share - square - upper - scratch + 5.0 * 41 / (200 * 180)) <
                1e-9); /* 41 rows are in both */
    restoration_destroy(&r);
    r = run(damaged, mask, OPTIONS("mask_mode", "remove", FINDER));
    assert_true(r->damage.looked && !r->damage.given);
    assert_true(fabs(r->damage.share - scratch + 5.0 * 41 / (200 * 180)) < 1e-9);
    restoration_destroy(&r);
    r = run(damaged, mask, OPTIONS("repair", "false")); /* nothing is looked for, but what is asked for is filled */
    assert_true(!r->damage.looked && r->damage.given);
    restoration_destroy(&r);
    /* pictures of 16 bits keep them, of one channel and of three */
    for (int channels = 1; channels <= 3; channels += 2) {
        struct image *deep = picture_waves(200, 180, channels, 16);
        r = run(deep, mask, OPTIONS("repair", "auto"));
        assert_int_equal(r->result->bits, 16);
        assert_int_equal(r->result->channels, channels);
        size_t inside = 0;
        for (int i = 0; i < 200 * 180 * channels; i++) {
            const int x = i / channels % 200, y = i / channels / 200;
            const bool same = ((uint16_t *)deep->pixels)[i] == ((uint16_t *)r->result->pixels)[i];
            if ((x < 118 || x >= 130 || y < 88 || y >= 100) && (x < 53 || x >= 70 || y >= 62))
                assert_true(same);
            else
                inside += !same;
        }
        assert_true(inside > 200);
        restoration_destroy(&r);
        image_destroy(&deep);
    }
    image_destroy(&mask);
    image_destroy(&truth);
    image_destroy(&damaged);
}

/* A fill that fails leaves picture and mask as they were, for another attempt. */
static void test_again(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct image *truth = picture_waves(200, 180, 3, 8), *damaged = scratched(truth), *mask;
    struct codec_output file = {0};
    struct restoration *r = NULL;
    struct worker_context own = {.store = restoration_worker.store};
    assert_int_equal(image_create(&mask, 200, 180, 1, 8, false, &err), OK);
    memset(mask->pixels, 255, 200 * 60); /* the upper part of the scratch stays */
    struct restoration *wanted = run(damaged, mask, OPTIONS(FINDER, "mask_mode", "remove", "fill", "filler"));
    if (fault_set("nan@run:1,plan=filler,until=2", &err) || device_open(&own.device, "cpu", NULL, &err) ||
        model_set_create(&own.models, own.store, own.device, &err) || restoration_create(&r, &err) ||
        codec_encode(damaged, IMAGE_PNG, (struct codec_options)CODEC_OPTIONS_INIT, &file, &err))
        fail_msg("%s", err.text);
    r->options = wanted->options;
    r->input = file.bytes;
    r->input_bytes = file.size;
    assert_int_equal(pipeline_begin(r, own.store, &err), OK);
    r->mask = mask; /* as if it had been sent */
    assert_int_equal(pipeline_compute(r, &own, &err), ERROR_DEVICE);
    assert_int_equal(fault_injected(), 2);
    error_clear(&err);
    assert_int_equal(pipeline_compute(r, &own, &err), OK);
    assert_true(r->damage.share == wanted->damage.share);
    assert_int_equal(picture_difference(image_view(r->result), image_view(wanted->result), NULL), 0);
    assert_memory_equal(r->mask->pixels, wanted->mask->pixels, 200 * 180);
    restoration_destroy(&r);
    restoration_destroy(&wanted);
    model_set_destroy(&own.models);
    device_close(&own.device);
    assert_int_equal(fault_set(NULL, &err), OK);
    free(file.bytes);
    image_destroy(&damaged);
    image_destroy(&truth);
}

/* In windows the starter detector finds what it finds in one piece, to a sixteenth of a logit: sums may be in another
 * order. */
static void test_windows(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    enum { W = 501, H = 378, N = W * H };
    if (access("models/starter/starter_damage.safetensors", R_OK))
        skip();
    struct worker_context own = {.device = restoration_worker.device, .store = models_of("models/starter", NULL)};
    struct restoration *r = NULL;
    if (model_set_create(&own.models, own.store, own.device, &err) || restoration_create(&r, &err))
        fail_msg("%s", err.text);
    struct step step = {.r = r, .context = &own};
    step.model[ROLE_DAMAGE] = models_resolve(own.store, ROLE_DAMAGE, "starter_damage");
    r->picture = picture_waves(W, H, 3, 8);
    unsigned random = 3;
    for (int i = 0; i < 150 + 8 * 300; i++) { /* dust, and leaning scratches */
        const int line = (i - 150) / 300, along = (i - 150) % 300;
        const unsigned x = i < 150 ? picture_random(&random) % (W - 3) : (unsigned)(40 + 50 * line + along / 9),
                       y = i < 150 ? picture_random(&random) % (H - 3) : (unsigned)(20 + along);
        for (unsigned k = 0; k < (i < 150 ? 9 : 2); k++)
            memset((uint8_t *)r->picture->pixels + 3 * ((y + k / 3) * W + x + k % 3), 250, 3);
    }
    uint8_t *level[2], *kind[2];
    for (int i = 0; i < 2; i++) {
        level[i] = malloc(N);
        kind[i] = malloc(N);
        if (repair_find(&step, step.r->picture, i ? 64 : 4096, level[i], kind[i], &err))
            fail_msg("%s", err.text);
    }
    int kinds = 0, high = 0;
    for (int i = 0; i < N; i++) {
        assert_true(abs(level[0][i] - level[1][i]) <= 1);
        kinds += kind[0][i] != kind[1][i];
        high += level[0][i] > 150;
    }
    printf("    %d px of %d are damage, %d of another kind\n", high, N, kinds);
    assert_true(high > 100 && kinds < N / 10000);
    for (int i = 0; i < 2; i++) {
        free(level[i]);
        free(kind[i]);
    }
    restoration_destroy(&r);
    model_set_destroy(&own.models);
    model_store_destroy(&own.store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find),  cmocka_unit_test(test_step),    cmocka_unit_test(test_lines),
        cmocka_unit_test(test_net),   cmocka_unit_test(test_core),    cmocka_unit_test(test_true),
        cmocka_unit_test(test_page),  cmocka_unit_test(test_icon),    cmocka_unit_test(test_mask),
        cmocka_unit_test(test_again), cmocka_unit_test(test_reduced), cmocka_unit_test(test_windows),
    };
    return cmocka_run_group_tests(tests, restoration_begin, restoration_end);
}
