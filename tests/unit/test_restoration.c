/* The pipeline in its default mode on the fixtures' networks and pictures: choices, notes, limits, and that a face
 * comes back where it was. Run by the oracle. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "runtime/base/file.h"
#include "server/image/codec.h"
#include "server/image/similarity.h"
#include "server/pipeline/paste.h"
#include "tests/common/models.h"
#include "tests/common/picture.h"
#include "tests/common/restoration.h"
#include "tests/common/shared.h"

/* ---- a restoration of a fixture ---- */

static struct worker_context worker;
static struct file input;

static int open_worker(void **state)
{
    (void)state;
    restoration_open_worker(&worker, "reference", models_of_fixtures());
    return 0;
}

static int close_worker(void **state)
{
    (void)state;
    restoration_close_worker(&worker);
    return 0;
}

static int reset(void **state)
{
    (void)state;
    file_unmap(&input);
    return 0;
}

/* options: name, value, ..., NULL */
static struct restoration *begin(const char *picture, const char *const *options)
{
    return restoration_of(&input, picture, options);
}
#define OPTIONS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define DEFAULTS ((const char *const[]){NULL})

static struct restoration *run(const char *picture, const char *const *options)
{
    struct error err = ERROR_INIT;
    struct restoration *r = begin(picture, options);
    if (pipeline_run(r, &worker, &err))
        fail_msg("%s: %s", picture, err.text);
    assert_true(r->detect_only || r->output_bytes > 0);
    return r;
}

static void end(struct restoration **r)
{
    restoration_destroy(r);
    file_unmap(&input);
}

static bool noted(const struct restoration *r, const char *text)
{
    for (int i = 0; i < r->note_count; i++)
        if (strstr(r->notes[i], text))
            return true;
    return false;
}

static int restored_count(const struct restoration *r)
{
    int count = 0;
    for (int i = 0; i < r->face_count; i++) {
        count += r->faces[i].restored;
        assert_int_equal(r->faces[i].restored, !r->faces[i].reason[0]);
        assert_int_equal(r->faces[i].id, i);
    }
    return count;
}

/* ---- the way of a picture ---- */

static void test_default(void **state)
{
    (void)state;
    struct restoration *r = run("two.png", OPTIONS("upscale", "1.5", "weight", "1"));
    assert_int_equal(r->face_count, 2);
    assert_int_equal(restored_count(r), 2);
    assert_true(r->faces[0].score >= r->faces[1].score);
    assert_int_equal(r->result->width, 360);
    assert_int_equal(r->result->height, 192);
    assert_int_equal(r->note_count, 0);
    assert_int_equal(r->fallbacks, 0);
    assert_int_equal(r->output_format, IMAGE_PNG);
    assert_string_equal(r->device, "reference");
    assert_int_equal(r->precision, PRECISION_FP32);
    for (int stage = STAGE_DECODE; stage < STAGE_COUNT; stage++)
        assert_true(r->stage_ms[stage] > 0 || stage == STAGE_REPAIR);
    json_t *report = restoration_report(r);
    assert_non_null(report);
    static const char *const keys[] = {"input",      "output", "options",    "models",   "device",
                                       "precision",  "faces",  "timings_ms", "tiles",    "notes",
                                       "network_ms", "damage", "tone",       "rotation", "note_codes"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        assert_non_null(json_object_get(report, keys[i]));
    assert_int_equal(json_object_size(report), sizeof keys / sizeof keys[0]);
    const json_t *face = json_array_get(json_object_get(report, "faces"), 1);
    assert_int_equal(json_integer_value(json_object_get(face, "id")), 1);
    assert_string_equal(json_string_value(json_object_get(face, "action")), "restored");
    assert_true(json_is_null(json_object_get(face, "reason")));
    assert_int_equal(json_array_size(json_object_get(face, "landmarks")), 5);
    assert_string_equal(json_string_value(json_object_get(json_object_get(report, "models"), "background")),
                        "srvgg_x2");
    assert_true(json_real_value(json_object_get(json_object_get(report, "options"), "upscale")) == 1.5);
    assert_true(json_is_false(json_object_get(json_object_get(report, "options"), "compat")));
    json_decref(report);
    end(&r);
}

static void test_choices(void **state)
{
    (void)state;
    struct restoration *r = run("two.png", OPTIONS("faces", "1,7", "upscale", "1"));
    assert_int_equal(restored_count(r), 1);
    assert_true(r->faces[1].restored);
    assert_true(noted(r, "face 7 was asked for"));
    end(&r);
    r = run("two.png", OPTIONS("faces", "none", "upscale", "1"));
    assert_int_equal(r->face_count, 2);
    assert_int_equal(restored_count(r), 0);
    assert_string_equal(r->faces[0].reason, "faces=none");
    assert_string_equal(r->model_names[ROLE_FACE], ""); /* none is needed */
    end(&r);
    r = run("two.png", OPTIONS("only_center_face", "true", "upscale", "1"));
    assert_int_equal(restored_count(r), 1);
    assert_true(r->faces[1].restored); /* the pale one stands nearer to the centre */
    end(&r);
    r = run("two.png", OPTIONS("version", "none", "upscale", "1"));
    assert_int_equal(r->face_count, 0);
    assert_string_equal(r->model_names[ROLE_FACE], "");
    assert_string_equal(r->model_names[ROLE_DETECTOR], "");
    end(&r);
    r = run("two.png", OPTIONS("version", "none", "faces", "none"));
    assert_string_equal(r->model_names[ROLE_DETECTOR], "");
    end(&r);
    r = run("two.png", OPTIONS("version", "none", "faces", "none", "auto_rotate", "report"));
    assert_int_equal(r->face_count, 2);
    end(&r);
    r = run("none.png", DEFAULTS);
    assert_int_equal(r->face_count, 0);
    end(&r);
    r = run("edge.png", OPTIONS("parse", "false"));
    assert_int_equal(restored_count(r), 1);
    end(&r);
    r = run("one_pixel.png", OPTIONS("bg_upsampler", "upscaler"));
    assert_int_equal(r->result->width, 2);
    end(&r);
}

static void test_detect_only(void **state)
{
    (void)state;
    struct restoration *r = begin("two.png", DEFAULTS);
    struct error err = ERROR_INIT;
    r->detect_only = true;
    if (pipeline_run(r, &worker, &err))
        fail_msg("%s", err.text);
    assert_int_equal(r->face_count, 2);
    assert_null(r->output);
    json_t *report = restoration_report(r);
    assert_int_equal(json_object_size(report), 5);
    assert_int_equal(json_integer_value(json_object_get(report, "width")), 240);
    assert_int_equal(json_array_size(json_object_get(report, "faces")), 2);
    json_decref(report);
    end(&r);
}

static void test_aligned(void **state)
{
    (void)state;
    for (int compat = 0; compat < 2; compat++) {
        struct restoration *r = run("picture.jpg", OPTIONS("aligned", "true", "compat", compat ? "true" : "false"));
        assert_int_equal(r->result->width, 64); /* this network's square */
        assert_int_equal(r->result->height, 64);
        assert_int_equal(restored_count(r), 1);
        assert_int_equal(r->output_format, IMAGE_JPEG);
        assert_memory_equal(r->result->pixels, r->faces[0].restoration->pixels, 3 * 64 * 64);
        const double box[4] = {0, 0, r->picture->width, r->picture->height};
        for (int k = 0; k < 4; k++)
            assert_true(r->faces[0].box[k] == box[k]);
        end(&r);
    }
}

/* Faces as files: their pictures go, the files stay, also when the pictures of the job are dropped. */
static void test_face_files(void **state)
{
    struct error err = ERROR_INIT;
    struct restoration *r = begin("two.png", OPTIONS("faces", "1"));
    (void)state;
    r->keep_faces = r->encode_faces = true;
    for (int attempt = 0; attempt < 2; attempt++) { /* the second one forgets what the first one left */
        assert_int_equal(pipeline_run(r, &worker, &err), OK);
        restoration_drop_pictures(r);
        assert_int_equal(r->face_count, 2);
        assert_null(r->faces[0].crop_file.bytes);
        assert_null(r->faces[1].crop);
        assert_null(r->faces[1].restoration);
        assert_memory_equal(r->faces[1].crop_file.bytes, "\x89PNG", 4);
        assert_memory_equal(r->faces[1].restoration_file.bytes, "\x89PNG", 4);
        assert_int_equal(restoration_files(r),
                         r->output_bytes + r->faces[1].crop_file.size + r->faces[1].restoration_file.size);
    }
    end(&r);
}

/* The owner's wishes count where the options leave the format open, and the input's wins among equals. */
static void test_format_weights(void **state)
{
    struct error err = ERROR_INIT;
    (void)state;
    for (int i = 0; i < 4; i++) {
        const bool ext = i == 3;
        struct restoration *r = begin("none.png", ext ? OPTIONS("ext", "png") : DEFAULTS);
        r->format_weight[IMAGE_JPEG] = i == 0 ? 0 : 500;
        r->format_weight[IMAGE_PNG] = i == 1 ? 500 : 0;
        assert_int_equal(pipeline_check(r, worker.store, &err), OK);
        assert_int_equal(r->output_format, i == 2 ? IMAGE_JPEG : IMAGE_PNG);
        end(&r);
    }
}

static void test_formats(void **state)
{
    (void)state;
    struct restoration *r = run("rgba.png", OPTIONS("version", "none"));
    assert_non_null(r->result->alpha);
    const struct view_u8 alpha = image_alpha_view(r->result); /* 0 in a corner of 32 pixels, twice as large now */
    for (int i = 0; i < 128; i++)
        if (i < 56 || i >= 72)
            assert_int_equal(alpha.data[(size_t)i * alpha.stride + (size_t)i], i < 64 ? 0 : 255);
    assert_int_equal(r->out_info.channels, 4);
    end(&r);
    r = run("rgba.png", OPTIONS("version", "none", "ext", "jpg"));
    assert_int_equal(r->out_info.channels, 3);
    assert_true(noted(r, image_note_text(IMAGE_NOTE_FLATTENED)));
    end(&r);
    r = run("rgba.png", OPTIONS("compat", "true"));
    assert_null(r->result->alpha);
    assert_true(noted(r, "compat: the picture's transparency was dropped, as inference_gfpgan.py does"));
    assert_int_equal(r->options.bg_tile, 400);
    end(&r);
    r = run("rgba.png", OPTIONS("version", "none", "compat", "true")); /* as Real-ESRGAN, which keeps it */
    assert_non_null(r->result->alpha);
    end(&r);
    r = run("picture.png", OPTIONS("compat", "true"));
    assert_false(noted(r, "transparency")); /* there was none */
    end(&r);
    r = run("deep.png", OPTIONS("version", "none"));
    assert_int_equal(r->in_info.bits, 16);
    assert_int_equal(r->out_info.bits, 16);
    assert_false(noted(r, image_note_text(IMAGE_NOTE_BITS_REDUCED)));
    end(&r);
    r = run("deep.png", OPTIONS("version", "none", "ext", "jpg"));
    assert_int_equal(r->out_info.bits, 8);
    assert_true(noted(r, image_note_text(IMAGE_NOTE_BITS_REDUCED)));
    end(&r);
    r = run("gray.png", OPTIONS("version", "none"));
    assert_int_equal(r->out_info.channels, 1);
    assert_false(noted(r, image_note_text(IMAGE_NOTE_GRAY)));
    end(&r);
    r = run("deep.png", OPTIONS("compat", "true"));
    assert_int_equal(r->out_info.bits, 8);
    end(&r);
    r = run("exif_6.jpg", OPTIONS("version", "none", "bg_upsampler", "none"));
    assert_int_equal(r->result->width, 320);
    assert_int_equal(r->result->height, 256);
    end(&r);
}

static void check_refused(const char *picture, const char *const *options, enum error_code code, const char *says)
{
    struct restoration *r = begin(picture, options);
    struct error err = ERROR_INIT;
    r->limits.input_pixels = 30000;
    r->limits.result_pixels = 100000;
    enum error_code got = pipeline_check(r, worker.store, &err);
    if (got != code || (says && !strstr(err.text, says)))
        fail_msg("%s: %s: %s", picture, error_code_name(got), err.text);
    assert_null(r->picture);
    end(&r);
}

static void test_checks(void **state)
{
    (void)state;
    check_refused("picture.png", DEFAULTS, OK, NULL);
    check_refused("two.png", DEFAULTS, ERROR_TOO_LARGE, "240 × 128");
    check_refused("picture.png", OPTIONS("upscale", "3"), ERROR_TOO_LARGE, "480 × 384");
    check_refused("picture.png", OPTIONS("upscale", "3", "aligned", "true"), OK, NULL);
    check_refused("picture.png", OPTIONS("ext", "jpg", "lossless", "true"), ERROR_INVALID, "cannot be without loss");
    check_refused("picture.png", OPTIONS("version", "nobody"), ERROR_INVALID, "nobody");
    check_refused("picture.png", OPTIONS("bg_upsampler", "face_64"), ERROR_INVALID, "bg_upsampler");
    check_refused("picture.png", OPTIONS("detector", "parser"), ERROR_INVALID, "detector");
    check_refused("picture.png", OPTIONS("version", "1"), ERROR_INVALID, "GFPGANv1.pth");
    check_refused("picture.png", OPTIONS("version", "none", "aligned", "true"), ERROR_INVALID, "needs a face network");
    check_refused("face.safetensors", DEFAULTS, ERROR_UNSUPPORTED, NULL);
}

static void test_stopped(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct restoration *r = begin("two.png", DEFAULTS);
    atomic_store(&r->cancel, 1);
    assert_int_equal(pipeline_run(r, &worker, &err), ERROR_CANCELLED);
    atomic_store(&r->cancel, 0);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    r->deadline_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    error_clear(&err);
    assert_int_equal(pipeline_run(r, &worker, &err), ERROR_TIMEOUT);
    r->deadline_ns = 0;
    error_clear(&err);
    if (pipeline_run(r, &worker, &err)) /* the same restoration again, as after a lost device */
        fail_msg("%s", err.text);
    assert_int_equal(restored_count(r), 2);
    end(&r);
}

/* ---- geometry ---- */

/* The result, with the face or, for the caller, without. */
static struct image *pasted(struct step *step, bool with_face, struct rect *place)
{
    struct error err = ERROR_INIT;
    struct restoration *r = step->r;
    r->faces[0].reason[0] = with_face ? '\0' : 'x';
    if (background_step(step, &err))
        fail_msg("%s", err.text);
    *place = step->patches[0].rect;
    if (paste_step(step, &err))
        fail_msg("%s", err.text);
    r->faces[0].reason[0] = '\0';
    if (with_face)
        return r->result;
    struct image *result = r->result;
    r->result = NULL;
    paste_end(step);
    return result;
}

/* The share of a face's middle that pasting the face's own crop back changes: the mean difference, of 255. */
static double displaced(int picture_side, double face_scale, const char *upscale, bool compat, bool parse)
{
    struct error err = ERROR_INIT;
    struct restoration *r;
    if (restoration_create(&r, &err) || image_create(&r->picture, picture_side, picture_side, 3, 8, false, &err) ||
        options_set(&r->options, "upscale", upscale, &err) || options_set(&r->options, "weight", "1", &err))
        fail_msg("%s", err.text);
    uint8_t *pixels = r->picture->pixels;
    for (int y = 0; y < picture_side; y++)
        for (int x = 0; x < picture_side; x++)
            for (int c = 0; c < 3; c++)
                pixels[3 * (y * picture_side + x) + c] = (uint8_t)lrint(
                    128 + 100 * sin((x + 0.5) / (16 / face_scale) + c) * cos((y + 0.5) / (19 / face_scale)));
    r->options.compat = compat;
    struct step step = {
        .r = r, .width = (int)(picture_side * r->options.upscale), .height = (int)(picture_side * r->options.upscale)};
    r->faces = calloc(1, sizeof *r->faces);
    r->face_count = 1;
    struct face *f = r->faces;
    double c = cos(0.2) / face_scale, s = sin(0.2) / face_scale, centre = picture_side / 2.0;
    for (int k = 0; k < 5; k++) {
        double x = similarity_template[k][0] - 256, y = similarity_template[k][1] - 256;
        f->landmarks[k][0] = centre + c * x - s * y;
        f->landmarks[k][1] = centre + s * x + c * y;
    }
    if (align_step(&step, &err))
        fail_msg("%s", err.text);
    size_t plane = (size_t)f->size * (size_t)f->size;
    f->restoration = f->crop; /* a network that changes nothing */
    f->restoration_float = f->crop_float;
    f->crop = NULL;
    f->crop_float = NULL;
    f->restored = true;
    if (parse) {
        f->classes = malloc(plane);
        memset(f->classes, 1, plane);
    }
    struct rect rect;
    struct image *background = pasted(&step, false, &rect);
    pasted(&step, true, &rect);
    double sum = 0, side = 150 / face_scale * r->options.upscale;
    int x0 = (int)(step.width / 2. - side), x1 = (int)(step.width / 2. + side), count = 0;
    for (int y = x0; y < x1; y++)
        for (int x = x0; x < x1; x++)
            for (int k = 0; k < 3; k++, count++)
                sum += abs(((uint8_t *)r->result->pixels)[3 * (y * step.width + x) + k] -
                           ((uint8_t *)background->pixels)[3 * (y * step.width + x) + k]);
    /* outside the face's rectangle nothing changes */
    for (int y = 0; y < step.height; y++)
        for (int x = 0; x < step.width; x++)
            if (y < rect.y || x < rect.x || y >= rect.y + rect.height || x >= rect.x + rect.width)
                assert_memory_equal((uint8_t *)r->result->pixels + 3 * (y * step.width + x),
                                    (uint8_t *)background->pixels + 3 * (y * step.width + x), 3);
    /* a white face, lest nothing was pasted at all */
    if (f->restoration)
        memset(f->restoration->pixels, 255, 3 * plane);
    for (size_t i = 0; i < 3 * plane && f->restoration_float; i++)
        f->restoration_float[i] = 255;
    paste_end(&step);
    pasted(&step, true, &rect);
    const size_t middle = (size_t)(step.height / 2) * (size_t)step.width + (size_t)(step.width / 2);
    assert_true(((uint8_t *)r->result->pixels)[3 * middle] >= 254); /* compat truncates */
    image_destroy(&background);
    paste_end(&step);
    restoration_destroy(&r);
    return sum / count;
}

static void test_place(void **state)
{
    (void)state;
    static const struct {
        int side;
        double face_scale; /* crop px a picture px */
        const char *upscale;
    } cases[] = {{260, 3, "2"}, {261, 2.7, "1.5"}, {200, 4, "3.3"}, {300, 2, "1"}, {900, 0.7, "1"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool enlarged = cases[i].upscale[0] != '1' || cases[i].upscale[1];
        for (int parse = 0; parse < 2; parse++) {
            double exact = displaced(cases[i].side, cases[i].face_scale, cases[i].upscale, false, parse);
            double compat = displaced(cases[i].side, cases[i].face_scale, cases[i].upscale, true, parse);
            printf("    face at %g, upscale %s, %s: %.2f levels, with compat %.2f\n", cases[i].face_scale,
                   cases[i].upscale, parse ? "parsed" : "square", exact, compat);
            assert_true(exact < 0.6); /* 0.45 at most comes out; half a pixel is 2.2 and more */
            if (enlarged)             /* the reference's half pixel */
                assert_true(compat > 3 * exact);
        }
    }
}

/* weight 0 leaves the background as it is; half a weight lies between. */
static void test_weight(void **state)
{
    (void)state;
    struct restoration *none = run("picture.png", OPTIONS("version", "none", "preserve_color", "false"));
    struct restoration *full = run("picture.png", OPTIONS("parse", "false", "preserve_color", "false", "weight", "1"));
    struct restoration *zero = run("picture.png", OPTIONS("parse", "false", "preserve_color", "false", "weight", "0"));
    struct restoration *half =
        run("picture.png", OPTIONS("parse", "false", "preserve_color", "false", "weight", "0.5"));
    struct restoration *compat = run("picture.png", OPTIONS("parse", "false", "weight", "0", "compat", "true"));
    struct restoration *kept = run("picture.png", OPTIONS("parse", "false"));
    assert_int_equal(picture_difference(image_view(none->result), image_view(zero->result), NULL), 0);
    assert_true(picture_difference(image_view(none->result), image_view(full->result), NULL) > 8);
    const uint8_t *a = none->result->pixels, *b = full->result->pixels, *m = half->result->pixels;
    for (size_t i = 0; i < 3 * (size_t)none->result->width * (size_t)none->result->height; i++)
        assert_true(abs(2 * m[i] - a[i] - b[i]) <= 2);
    assert_true(picture_difference(image_view(compat->result), image_view(zero->result), NULL) > 8); /* ignored */
    assert_false(compat->faces[0].weighed);
    assert_true(full->faces[0].used >= 1 && zero->faces[0].used <= 0);
    assert_true(kept->faces[0].used < 0.05); /* a tiny network's face is far from the picture */
    assert_true(kept->faces[0].change > 0.5 && fabs(kept->faces[0].change - full->faces[0].change) < 1e-9);
    json_t *report = restoration_report(kept);
    const json_t *face = json_array_get(json_object_get(report, "faces"), 0);
    assert_string_equal(json_string_value(json_object_get(face, "action")), "kept");
    assert_non_null(strstr(json_string_value(json_object_get(face, "reason")), "restoration"));
    assert_true(json_is_number(json_object_get(face, "used")) && json_is_number(json_object_get(face, "change")));
    json_decref(report);
    restoration_destroy(&kept);
    restoration_destroy(&none);
    restoration_destroy(&full);
    restoration_destroy(&zero);
    restoration_destroy(&half);
    end(&compat);
}

/* The same input gives the same bytes; a seed gives others, the same again for the same seed. */
static void test_seed(void **state)
{
    (void)state;
    struct restoration *a = run("picture.png", OPTIONS("parse", "false", "weight", "1")),
                       *b = run("picture.png", OPTIONS("parse", "false", "weight", "1"));
    struct restoration *c = run("picture.png", OPTIONS("parse", "false", "weight", "1", "seed", "7")),
                       *d = run("picture.png", OPTIONS("parse", "false", "weight", "1", "seed", "7"));
    struct restoration *e = run("picture.png", OPTIONS("parse", "false", "weight", "1", "seed", "8"));
    struct view_u8 va = image_view(a->result), vc = image_view(c->result);
    assert_int_equal(picture_difference(va, image_view(b->result), NULL), 0);
    assert_int_equal(picture_difference(vc, image_view(d->result), NULL), 0);
    assert_true(picture_difference(va, vc, NULL) > 0);
    assert_true(picture_difference(vc, image_view(e->result), NULL) > 0);
    restoration_destroy(&a);
    restoration_destroy(&b);
    restoration_destroy(&c);
    restoration_destroy(&d);
    end(&e);
}

/* Whoever wants no faces gets none looked for, but where a detector is asked for. */
static void test_no_detector(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct restoration *r = run("picture.png", OPTIONS("version", "none", "faces", "none"));
    assert_int_equal(r->face_count, 0);
    assert_string_equal(r->model_names[ROLE_DETECTOR], "");
    end(&r);
    r = run("picture.png", OPTIONS("version", "none", "faces", "none", "detector", "detector"));
    assert_int_equal(r->face_count, 1);
    end(&r);
    r = run("picture.png", OPTIONS("faces", "none"));
    assert_int_equal(r->face_count, 1);
    assert_string_equal(r->model_names[ROLE_DETECTOR], "detector");
    end(&r);
    /* the same where the configuration says version=none */
    const struct model_defaults defaults = {.name = {"detector", "none", "parser", "srvgg_x2"}};
    struct worker_context without = worker;
    without.store = models_of(shared_fixtures(), &defaults);
    if (model_set_create(&without.models, without.store, without.device, &err))
        fail_msg("%s", err.text);
    r = begin("picture.png", OPTIONS("faces", "none"));
    if (pipeline_run(r, &without, &err))
        fail_msg("%s", err.text);
    assert_int_equal(r->face_count, 0);
    assert_string_equal(r->model_names[ROLE_DETECTOR], "");
    end(&r);
    model_set_destroy(&without.models);
    model_store_destroy(&without.store);
}

int main(void)
{
#define CASE(test) cmocka_unit_test_teardown(test, reset)
    const struct CMUnitTest tests[] = {
        CASE(test_default),     CASE(test_choices),    CASE(test_detect_only),    CASE(test_aligned),
        CASE(test_formats),     CASE(test_face_files), CASE(test_format_weights), CASE(test_checks),
        CASE(test_stopped),     CASE(test_place),      CASE(test_weight),         CASE(test_seed),
        CASE(test_no_detector),
    };
    return cmocka_run_group_tests_name("restoration", tests, open_worker, close_worker);
}
