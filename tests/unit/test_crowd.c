/* Pictures of many faces, and detectors that find too many: what is held and done stays bounded. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/backend/fault.h"
#include "runtime/base/file.h"
#include "runtime/models/retinaface_decode.h"
#include "server/image/codec.h"
#include "server/pipeline/step.h"
#include "tests/common/models.h"
#include "tests/common/picture.h"
#include "tests/common/restoration.h"
#include "tests/common/shared.h"

#define COLUMNS 7
#define ROWS 5

static struct worker_context worker;
static struct codec_output crowd;   /* the fixture of one face, COLUMNS × ROWS times */
static struct codec_output doubled; /* each pixel of it four times */

static void make_crowd(void)
{
    struct error err = ERROR_INIT;
    struct file file;
    struct image *one = NULL, *all = NULL;
    char path[512];
    snprintf(path, sizeof path, "%s/picture.png", shared_fixtures());
    if (file_map(&file, path, &err) || codec_decode(file.data, file.size, 0, &one, NULL, &err) ||
        image_create(&all, one->width * COLUMNS, one->height * ROWS, 3, 8, false, &err))
        fail_msg("%s", err.text);
    const size_t row = 3 * (size_t)one->width;
    for (int y = 0; y < all->height; y++)
        for (int x = 0; x < COLUMNS; x++)
            memcpy((uint8_t *)all->pixels + ((size_t)y * COLUMNS + (size_t)x) * row,
                   (const uint8_t *)one->pixels + (size_t)(y % one->height) * row, row);
    if (codec_encode(all, IMAGE_PNG, (struct codec_options){.png_level = 1}, &crowd, &err))
        fail_msg("%s", err.text);
    struct image *large;
    if (image_create(&large, 2 * all->width, 2 * all->height, 3, 8, false, &err))
        fail_msg("%s", err.text);
    for (int y = 0; y < large->height; y++)
        for (int x = 0; x < large->width; x++)
            memcpy((uint8_t *)large->pixels + 3 * ((size_t)y * (size_t)large->width + (size_t)x),
                   (const uint8_t *)all->pixels + 3 * ((size_t)(y / 2) * (size_t)all->width + (size_t)(x / 2)), 3);
    if (codec_encode(large, IMAGE_PNG, (struct codec_options){.png_level = 1}, &doubled, &err))
        fail_msg("%s", err.text);
    image_destroy(&large);
    image_destroy(&one);
    image_destroy(&all);
    file_unmap(&file);
}

static int open_worker(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    if (fault_set("nan@run:1000000", &err)) /* so that the device has the layer of faults */
        fail_msg("%s", err.text);
    restoration_open_worker(&worker, "cpu", models_of_fixtures());
    make_crowd();
    return 0;
}

static int close_worker(void **state)
{
    (void)state;
    free(crowd.bytes);
    free(doubled.bytes);
    restoration_close_worker(&worker);
    return 0;
}

static struct restoration *begin(void)
{
    struct error err = ERROR_INIT;
    struct restoration *r;
    if (restoration_create(&r, &err))
        fail_msg("%s", err.text);
    r->input = crowd.bytes;
    r->input_bytes = crowd.size;
    return r;
}

static void run(struct restoration *r)
{
    struct error err = ERROR_INIT;
    if (pipeline_run(r, &worker, &err))
        fail_msg("%s", err.text);
}

/* More than a group: each is restored, and looks as the faces of the first group do. */
static void crowd_restored(bool compat)
{
    struct restoration *r = begin();
    r->options.compat = compat;
    r->keep_faces = true;
    run(r);
    assert_int_equal(r->face_count, COLUMNS * ROWS);
    assert_true(r->face_count > 2 * STEP_GROUP);
    assert_int_equal(atomic_load(&r->faces_done), r->face_count);
    for (int i = 0; i < r->face_count; i++) {
        const struct face *f = &r->faces[i];
        assert_true(f->restored);
        assert_null(f->crop_float);
        assert_null(f->restoration_float);
        if (!compat)
            assert_null(f->classes);
        /* what surrounds them differs a little, since the tiles' edges do */
        size_t count = 3 * (size_t)f->size * (size_t)f->size;
        double sum = 0;
        for (size_t k = 0; k < count; k++)
            sum += fabs((double)((const uint8_t *)f->restoration->pixels)[k] -
                        ((const uint8_t *)r->faces[0].restoration->pixels)[k]);
        assert_true(sum / (double)count < 4);
    }
    restoration_destroy(&r);
}

static void test_groups(void **state)
{
    (void)state;
    crowd_restored(false);
    crowd_restored(true);
}

static void test_max_faces(void **state)
{
    (void)state;
    struct restoration *all = begin(), *some = begin();
    all->detect_only = some->detect_only = true;
    some->limits.max_faces = 10;
    run(all);
    run(some);
    assert_int_equal(all->face_count, COLUMNS * ROWS);
    assert_int_equal(all->note_count, 0);
    assert_int_equal(some->face_count, 10);
    assert_string_equal(some->notes[0], "35 faces were found; the 10 largest and surest were taken, and 25 left out "
                                        "(max_faces)");
    double least = INFINITY; /* none of those left out weighs more than one that was taken */
    for (int i = 0; i < some->face_count; i++) {
        const struct face *f = &some->faces[i];
        assert_int_equal(f->id, i);
        assert_true(i == 0 || f->score <= some->faces[i - 1].score);
        least = fmin(least, f->score * (f->box[2] - f->box[0]) * (f->box[3] - f->box[1]));
    }
    int heavier = 0;
    for (int i = 0; i < all->face_count; i++) {
        const struct face *f = &all->faces[i];
        heavier += f->score * (f->box[2] - f->box[0]) * (f->box[3] - f->box[1]) > least * 1.000001;
    }
    assert_true(heavier <= 9);
    restoration_destroy(&all);
    restoration_destroy(&some);
}

/* The fixture's face, and over it the same once more, 32 px to the right and paler, so that it is the less sure one. */
static struct codec_output make_pair(void)
{
    struct error err = ERROR_INIT;
    struct image *image, *out;
    struct codec_output pair;
    if (codec_decode(crowd.bytes, crowd.size, 0, &image, NULL, &err))
        fail_msg("%s", err.text);
    const int width = image->width / COLUMNS + 32, height = image->height / ROWS;
    if (image_create(&out, width, height, 3, 8, false, &err))
        fail_msg("%s", err.text);
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) {
            const bool second = x >= width / 2;
            const uint8_t *from =
                (const uint8_t *)image->pixels + 3 * ((size_t)y * (size_t)image->width + (size_t)(second ? x - 32 : x));
            uint8_t *to = (uint8_t *)out->pixels + 3 * ((size_t)y * (size_t)width + (size_t)x);
            for (int c = 0; c < 3; c++)
                to[c] = second ? (uint8_t)((7 * from[c] + 128) / 8) : from[c];
        }
    if (codec_encode(out, IMAGE_PNG, (struct codec_options){.png_level = 1}, &pair, &err))
        fail_msg("%s", err.text);
    image_destroy(&image);
    image_destroy(&out);
    return pair;
}

static struct restoration *restore_listed(const struct codec_output *pair, int count, const int *ids)
{
    struct restoration *r = begin();
    r->input = pair->bytes;
    r->input_bytes = pair->size;
    r->options.compat = true;
    r->options.upscale = 2;
    r->options.parse = PARSE_FALSE;
    r->options.faces = count ? FACES_LISTED : FACES_NONE;
    r->options.face_id_count = count;
    for (int i = 0; i < count; i++)
        r->options.face_ids[i] = ids[i];
    run(r);
    assert_int_equal(r->face_count, 2);
    assert_int_equal(atomic_load(&r->faces_total), count);
    return r;
}

/* compat: where the later of two faces that lie over each other changes nothing, the earlier one is seen as if it were
 * alone, wherever the two begin. */
static void test_over_each_other(void **state)
{
    (void)state;
    struct codec_output pair = make_pair();
    struct restoration *none = restore_listed(&pair, 0, NULL), *earlier = restore_listed(&pair, 1, (int[]){0}),
                       *later = restore_listed(&pair, 1, (int[]){1}), *both = restore_listed(&pair, 2, (int[]){0, 1});
    assert_true(both->faces[0].restored && both->faces[1].restored);
    assert_true(both->faces[0].box[0] < both->faces[1].box[0]); /* the earlier one is further left */
    const struct image *image = both->result;
    const size_t row = 3 * (size_t)image->width;
    int seen = 0;
    for (size_t y = 0; y < (size_t)image->height; y++) {
        const uint8_t *n = (const uint8_t *)none->result->pixels + y * row;
        const uint8_t *e = (const uint8_t *)earlier->result->pixels + y * row;
        const uint8_t *l = (const uint8_t *)later->result->pixels + y * row;
        const uint8_t *b = (const uint8_t *)image->pixels + y * row;
        size_t untouched = 0; /* values at the row's left that the later one leaves as they are */
        while (untouched < row && l[untouched] == n[untouched])
            untouched++;
        for (size_t i = 0; i < untouched; i++)
            assert_in_range(b[i] + 2, e[i], e[i] + 4);
        for (size_t i = untouched < row ? untouched - untouched / 10 : row; i < untouched; i++)
            seen += abs(e[i] - n[i]) > 10;
    }
    assert_true(seen > 100);
    restoration_destroy(&none);
    restoration_destroy(&earlier);
    restoration_destroy(&later);
    restoration_destroy(&both);
    free(pair.bytes);
}

/* Faces are looked for on a reduction, and lie where they are in the whole picture. */
static void test_reduced(void **state)
{
    (void)state;
    struct restoration *whole = begin(), *reduced = begin();
    struct error err = ERROR_INIT;
    reduced->input = doubled.bytes;
    reduced->input_bytes = doubled.size;
    whole->detect_only = reduced->detect_only = true;
    run(whole);
    reduced->limits.detect_max_side = whole->in_info.width;
    run(reduced); /* sees the same pixels */
    assert_int_equal(reduced->in_info.width, 2 * whole->in_info.width);
    assert_int_equal(reduced->face_count, whole->face_count);
    for (int i = 0; i < whole->face_count; i++) {
        for (int c = 0; c < 4; c++)
            assert_float_equal(reduced->faces[i].box[c], 2 * whole->faces[i].box[c], 1e-3);
        assert_float_equal(reduced->faces[i].landmarks[4][1], 2 * whole->faces[i].landmarks[4][1], 1e-3);
    }
    /* where the device has no room it is reduced further, and the report says so */
    if (fault_set("no_memory@plan:1,over=100000,repeat", &err))
        fail_msg("%s", err.text);
    struct restoration *shrunk = begin();
    shrunk->input = doubled.bytes; /* of a size that has no plan yet */
    shrunk->input_bytes = doubled.size;
    shrunk->detect_only = true;
    run(shrunk);
    assert_true(shrunk->shrinks > 0);
    assert_non_null(strstr(shrunk->notes[0], "the device's memory is too small to detect at full size"));
    restoration_destroy(&shrunk);
    /* another error there is one of the whole; last, since the device stays lost */
    if (fault_set("lost@run:1", &err))
        fail_msg("%s", err.text);
    assert_int_equal(pipeline_run(reduced, &worker, &err), ERROR_DEVICE_LOST);
    restoration_destroy(&whole);
    restoration_destroy(&reduced);
}

/* ---- the decoder alone ---- */

#define SIDE 1024

struct maps {
    float *maps[3];
};

static struct maps make_maps(void)
{
    struct maps m;
    for (int level = 0; level < 3; level++) {
        const size_t plane = (size_t)(SIDE >> (3 + level)) * (size_t)(SIDE >> (3 + level));
        m.maps[level] = calloc(32 * plane, sizeof(float));
        assert_non_null(m.maps[level]);
        for (size_t i = 0; i < plane; i++)
            for (size_t anchor = 0; anchor < 2; anchor++)
                m.maps[level][2 * anchor * plane + i] = 20; /* background */
    }
    return m;
}

static void free_maps(struct maps *m)
{
    for (int level = 0; level < 3; level++)
        free(m->maps[level]);
}

static const float tiny_sizes[3][2] = {{2, 4}, {2, 4}, {2, 4}};

/* All 43,008 anchors are surer than the threshold: those that are looked at are the surest. */
static void test_everywhere(void **state)
{
    struct maps m = make_maps();
    struct face_box *faces;
    size_t count;
    struct error err = ERROR_INIT;
    (void)state;
    for (int level = 0; level < 3; level++) {
        const size_t plane = (size_t)(SIDE >> (3 + level)) * (size_t)(SIDE >> (3 + level));
        for (size_t i = 0; i < plane; i++)
            for (size_t anchor = 0; anchor < 2; anchor++) {
                const size_t mixed = (i * 2 + anchor) * 2654435761u % 65536;
                m.maps[level][2 * anchor * plane + i] = 0;
                m.maps[level][(2 * anchor + 1) * plane + i] = 4 + 8 * (float)mixed / 65536;
            }
    }
    assert_int_equal(
        retinaface_decode((const float *const *)m.maps, SIDE, SIDE, tiny_sizes, 0.97f, 2, &faces, &count, &err), OK);
    assert_int_equal(count, RETINAFACE_CANDIDATES); /* an overlap of 2 suppresses none */
    for (size_t i = 1; i < count; i++)
        assert_true(faces[i].score <= faces[i - 1].score);
    size_t surer = 0; /* of all anchors, than the last of them */
    for (int level = 0; level < 3; level++) {
        const size_t plane = (size_t)(SIDE >> (3 + level)) * (size_t)(SIDE >> (3 + level));
        for (size_t i = 0; i < 2 * plane; i++)
            surer += 1 / (1 + expf(-m.maps[level][(2 * (i % 2) + 1) * plane + i / 2])) > faces[count - 1].score;
    }
    assert_true(surer < RETINAFACE_CANDIDATES);
    free(faces);
    free_maps(&m);
}

/* Two faces of one score: the first in the order of the maps is kept. At the very last cell of each map, too. */
static void test_order(void **state)
{
    struct maps m = make_maps();
    struct face_box *faces;
    size_t count;
    struct error err = ERROR_INIT;
    (void)state;
    for (int level = 0; level < 3; level++) {
        const size_t side = (size_t)SIDE >> (3 + level), plane = side * side;
        m.maps[level][3 * plane + plane - 1] = 40; /* the second anchor */
    }
    m.maps[0][1 * (SIDE / 8) * (SIDE / 8)] = 40; /* the first anchor of the first cell */
    assert_int_equal(
        retinaface_decode((const float *const *)m.maps, SIDE, SIDE, tiny_sizes, 0.97f, 0.4f, &faces, &count, &err), OK);
    assert_int_equal(count, 4);
    assert_float_equal(faces[0].box[0], 4 - 1, 1e-3); /* the middle of its cell, less half its size */
    for (int level = 0; level < 3; level++) {
        assert_float_equal(faces[1 + level].box[2], SIDE - (4 << level) + 2, 1e-3);
        assert_float_equal(faces[1 + level].landmarks[4][1], SIDE - (4 << level), 1e-3);
    }
    free(faces);
    free_maps(&m);
    m = make_maps();
    assert_int_equal(
        retinaface_decode((const float *const *)m.maps, SIDE, SIDE, tiny_sizes, 0.97f, 0.4f, &faces, &count, &err), OK);
    assert_int_equal(count, 0);
    assert_null(faces);
    free_maps(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups),  cmocka_unit_test(test_max_faces),  cmocka_unit_test(test_over_each_other),
        cmocka_unit_test(test_reduced), cmocka_unit_test(test_everywhere), cmocka_unit_test(test_order),
    };
    return cmocka_run_group_tests(tests, open_worker, close_worker);
}
