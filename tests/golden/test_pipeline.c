/* The pipeline against the reference's pictures (../shared/golden/pipeline): every case stage by stage, each from the
 * golden of the stage before, and end to end from the file's bytes. Runs on the oracle and on the CPU, or on
 * RESTORED_TEST_DEVICE alone. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/file.h"
#include "server/image/warp.h"
#include "server/pipeline/align.h"
#include "server/pipeline/paste.h"
#include "tests/common/picture.h"
#include "tests/common/shared.h"
#include "tests/common/worst.h"

struct golden {
    const char *name, *input, *crops; /* crops: the case that holds this one's crops and restored faces */
    double upscale;
    bool parse;
    const char *upsampler;
    int tile;
    bool centre, aligned, paste;
};

static const struct golden goldens[] = {
    {"A_parse_nobg", "A.png", "A_parse_nobg", 2, true, "none", 0, false, false, true},
    {"A_square_nobg", "A.png", "A_parse_nobg", 2, false, "none", 0, false, false, true},
    {"A_parse_center_srvggx4", "A.png", "A_parse_nobg", 2, true, "realesr-animevideov3", 0, true, false, true},
    {"B_parse_rrdbx2tile", "B.png", "B_parse_rrdbx2tile", 2, true, "rrdb_x2_tiny", 200, false, false, true},
    {"B_square_up1", "B.png", "B_parse_rrdbx2tile", 1, false, "none", 0, false, false, true},
    {"B_parse_up1.5", "B.png", "B_parse_rrdbx2tile", 1.5, true, "none", 0, false, false, true},
    {"C_parse_rrdbx2", "C.png", "C_parse_rrdbx2", 2, true, "rrdb_x2_tiny", 0, false, false, true},
    {"C_square_center", "C.png", "C_parse_rrdbx2", 2, false, "none", 0, true, false, true},
    {"D_aligned512", "D_aligned512_input.png", "D_aligned512", 2, true, "none", 0, false, true, false},
    {"D_aligned_resize", "D_aligned_resize_input.png", "D_aligned_resize", 2, true, "none", 0, false, true, false},
    {"E_noface", "E_noface_input.png", "E_noface", 2, true, "none", 0, false, false, true},
    {"F_gray2d", "F_gray2d_input.png", "F_gray2d", 2, true, "none", 0, false, false, true},
    {"G_nopaste", "A.png", "A_parse_nobg", 2, true, "none", 0, false, false, false},
    {"H_rgba_rrdbx2", "H_rgba_rrdbx2_input.png", "H_rgba_rrdbx2", 2, true, "rrdb_x2_tiny", 0, false, false, true},
};

static const char *devices[] = {"reference", "cpu"};
static size_t device_count = sizeof devices / sizeof devices[0];

static struct worker_context workers[sizeof devices / sizeof devices[0]], *worker; /* worker: the test's */
static struct model_store *store;

struct trial {
    const struct golden *golden;
    struct worker_context *worker;
};

static int open_workers(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    if (!shared_present())
        return 0;
    const struct model_defaults defaults = {
        .name = {"detection_mobilenet0.25_distilled", "gfpgan_tiny", "parsing_parsenet_tiny", "none"}};
    setenv("RESTORED_VULKAN_VALIDATION", "1", 0);
    if (model_store_create(&store, shared_path("models"), &defaults, &err))
        fail_msg("%s", err.text);
    for (size_t i = 0; i < device_count; i++) {
        workers[i].store = store;
        if (device_open(&workers[i].device, devices[i], NULL, &err) ||
            model_set_create(&workers[i].models, store, workers[i].device, &err))
            fail_msg("%s", err.text);
    }
    return 0;
}

static int close_workers(void **state)
{
    (void)state;
    for (size_t i = 0; i < device_count; i++) {
        model_set_destroy(&workers[i].models);
        if (workers[i].device)
            device_close(&workers[i].device);
    }
    model_store_destroy(&store);
    return 0;
}

/* How two pictures differ: samples by more than 0, 1, 2 and 5 levels, and the largest. */
struct spread {
    double share[6]; /* of samples that differ by more than the index */
    int worst;
};

static struct spread compare(const char *golden, const char *what, const struct image *got, const struct image *wanted)
{
    struct spread s = {{0}, 0};
    assert_non_null(got);
    assert_int_equal(got->width, wanted->width);
    assert_int_equal(got->height, wanted->height);
    size_t pixels = (size_t)got->width * (size_t)got->height;
    const uint8_t *a = got->pixels, *b = wanted->pixels;
    for (size_t i = 0; i < 3 * pixels; i++) {
        /* a gray golden stands for three equal channels */
        int d = abs(a[i] - (wanted->channels == 3 ? b[i] : b[i / 3]));
        s.worst = d > s.worst ? d : s.worst;
        for (int k = 0; k < 6; k++)
            s.share[k] += (d > k) / (3. * (double)pixels);
    }
    printf("    %-24s %-12s max %d, over 0: %.2g, over 1: %.2g, over 2: %.2g\n", golden, what, s.worst, s.share[0],
           s.share[1], s.share[2]);
    return s;
}

/* The largest difference of a plane of 0..1 from a 16-bit golden, in its units; what lies outside rect must be 0. */
static double compare_plane(const char *golden, const char *what, const double *plane, struct rect rect,
                            const struct image *wanted)
{
    double worst = 0;
    const uint16_t *b = wanted->pixels;
    assert_int_equal(wanted->bits, 16);
    for (int y = 0; y < wanted->height; y++)
        for (int x = 0; x < wanted->width; x++) {
            bool inside = x >= rect.x && y >= rect.y && x < rect.x + rect.width && y < rect.y + rect.height;
            double v = inside ? plane[(size_t)(y - rect.y) * (size_t)rect.width + (size_t)(x - rect.x)] : 0;
            double d = fabs(v * 65535 - b[(size_t)y * (size_t)wanted->width + (size_t)x]);
            worst = d > worst ? d : worst;
        }
    printf("    %-24s %-12s max %.3g / 65535\n", golden, what, worst);
    return worst;
}

static void set(struct options *options, const char *name, const char *value)
{
    struct error err = ERROR_INIT;
    if (options_set(options, name, value, &err))
        fail_msg("%s", err.text);
}

/* A restoration of a golden's input with the golden's options. */
static struct restoration *begin(const struct golden *g, struct file *file)
{
    struct error err = ERROR_INIT;
    struct restoration *r;
    char text[32];
    if (restoration_create(&r, &err) || file_map(file, shared_path("golden/pipeline/%s", g->input), &err))
        fail_msg("%s", err.text);
    r->input = file->data;
    r->input_bytes = file->size;
    r->keep_faces = true;
    set(&r->options, "compat", "true");
    set(&r->options, "ext", "png");
    set(&r->options, "precision", "fp32");
    set(&r->options, "png_level", "1");
    set(&r->options, "bg_upsampler", g->upsampler);
    set(&r->options, "parse", g->parse ? "true" : "false");
    set(&r->options, "aligned", g->aligned ? "true" : "false");
    set(&r->options, "only_center_face", g->centre ? "true" : "false");
    snprintf(text, sizeof text, "%g", g->upscale);
    set(&r->options, "upscale", text);
    snprintf(text, sizeof text, "%d", g->tile);
    set(&r->options, "bg_tile", text);
    return r;
}

/* The same ready for single steps: models resolved, the picture decoded. */
static struct step begin_steps(const struct golden *g, struct file *file)
{
    struct error err = ERROR_INIT;
    struct step step = {.r = begin(g, file), .context = worker};
    struct options *o = &step.r->options;
    if (model_store_resolve(worker->store, ROLE_FACE, o->version, &step.model[ROLE_FACE], &err) ||
        model_store_resolve(worker->store, ROLE_DETECTOR, o->detector, &step.model[ROLE_DETECTOR], &err) ||
        model_store_resolve(worker->store, ROLE_PARSER, NULL, &step.model[ROLE_PARSER], &err) ||
        model_store_resolve(worker->store, ROLE_UPSCALER, o->bg_upsampler, &step.model[ROLE_UPSCALER], &err) ||
        decode_step(&step, &err))
        fail_msg("%s", err.text);
    step.r->precision = PRECISION_FP32;
    step.width = (int)(step.r->picture->width * o->upscale);
    step.height = (int)(step.r->picture->height * o->upscale);
    return step;
}

static void end_steps(struct step *step, struct file *file)
{
    paste_end(step);
    restoration_destroy(&step->r);
    file_unmap(file);
}

/* The faces that the reference used, from its landmarks. */
static void golden_faces(struct restoration *r, const json_t *meta)
{
    const json_t *used = json_object_get(meta, "landmarks_used");
    r->face_count = (int)json_array_size(used);
    r->faces = calloc((size_t)r->face_count + 1, sizeof *r->faces);
    for (int i = 0; i < r->face_count; i++) {
        r->faces[i].id = i;
        for (size_t k = 0; k < 10; k++)
            r->faces[i].landmarks[k / 2][k % 2] =
                json_number_value(json_array_get(json_array_get(json_array_get(used, (size_t)i), k / 2), k % 2));
    }
}

/* Where this case's face i is stored. */
static int stored_index(const json_t *meta, int i)
{
    const json_t *there = json_object_get(meta, "crop_index_there");
    return there ? (int)json_integer_value(json_array_get(there, (size_t)i)) : i;
}

static struct image *golden_face(const struct golden *g, const json_t *meta, const char *kind, int i)
{
    char name[64];
    snprintf(name, sizeof name, "%s_%d.png", kind, stored_index(meta, i));
    return picture_golden(g->crops, name);
}

static struct image *golden_own(const struct golden *g, const char *kind, int i)
{
    char name[64];
    snprintf(name, sizeof name, "%s_%d.png", kind, i);
    return picture_golden(g->name, name);
}

static void check_matrix(const double got[6], const double wanted[6], const double points[][2], int count)
{
    for (int k = 0; k < count; k++)
        for (int row = 0; row < 2; row++) {
            const double *a = got + 3 * row, *b = wanted + 3 * row;
            double d = (a[0] - b[0]) * points[k][0] + (a[1] - b[1]) * points[k][1] + a[2] - b[2];
            assert_true(fabs(d) < 1e-3);
        }
}

/* ---- each stage from the golden before it ---- */

static void check_detect(const struct golden *g, struct step *step, const json_t *meta)
{
    struct error err = ERROR_INIT;
    const json_t *detections = json_object_get(meta, "detections");
    double worst = 0;
    if (detect_step(step, &err))
        fail_msg("%s", err.text);
    assert_int_equal(step->r->face_count, json_array_size(detections));
    for (int i = 0; i < step->r->face_count; i++) {
        const json_t *d = json_array_get(detections, (size_t)i), *marks = json_object_get(d, "landmarks5");
        const struct face *f = &step->r->faces[i];
        for (size_t k = 0; k < 4; k++)
            worst = worst_of(worst, fabs(f->box[k] - json_number_value(json_array_get(json_object_get(d, "box"), k))));
        for (size_t k = 0; k < 10; k++)
            worst = worst_of(worst, fabs(f->landmarks[k / 2][k % 2] -
                                         json_number_value(json_array_get(json_array_get(marks, k / 2), k % 2))));
        assert_true(fabs(f->score - json_number_value(json_object_get(d, "score"))) < 5e-6);
    }
    printf("    %-24s %-12s max %.2g px\n", g->name, "detect", worst);
    assert_true(worst <= 5e-4);
    int chosen = 0; /* and the choice is the reference's */
    for (int i = 0; i < step->r->face_count; i++)
        chosen += !step->r->faces[i].reason[0];
    assert_int_equal(chosen, json_array_size(json_object_get(meta, "landmarks_used")));
    free(step->r->faces);
    step->r->faces = NULL;
}

static void check_align(const struct golden *g, struct step *step, const json_t *meta)
{
    struct error err = ERROR_INIT;
    struct restoration *r = step->r;
    if (g->aligned) {
        if (detect_step(step, &err) || align_step(step, &err))
            fail_msg("%s", err.text);
    } else {
        golden_faces(r, meta);
        if (align_step(step, &err))
            fail_msg("%s", err.text);
    }
    for (int i = 0; i < r->face_count; i++) {
        struct face *f = &r->faces[i];
        struct image *crop = golden_face(g, meta, "crop", i);
        if (!g->aligned) {
            double wanted[6];
            picture_matrix(meta, "affine", (size_t)i, wanted);
            check_matrix(f->affine, wanted, f->landmarks, 5);
            memcpy(f->affine, wanted, sizeof wanted);
            image_destroy(&f->crop);
            if (align_warp(r, f, &err))
                fail_msg("%s", err.text);
        }
        assert_int_equal(compare(g->name, "crop", f->crop, crop).worst, 0);
        image_destroy(&f->crop);
        f->crop = crop;
    }
}

static void check_restore(const struct golden *g, struct step *step, const json_t *meta)
{
    struct error err = ERROR_INIT;
    struct restoration *r = step->r;
    bool own = strcmp(g->crops, g->name) == 0; /* crops of another case were restored there */
    if (own && restore_step(step, &err))
        fail_msg("%s", err.text);
    for (int i = 0; i < r->face_count; i++) {
        struct image *wanted = golden_face(g, meta, "restored", i);
        if (own) {
            struct spread s = compare(g->name, "restored", r->faces[i].restoration, wanted);
            assert_true(s.worst <= 1 && s.share[0] < 1e-4);
            image_destroy(&r->faces[i].restoration);
        }
        r->faces[i].restoration = wanted;
        r->faces[i].restored = true;
    }
    if (own)
        assert_int_equal(atomic_load(&r->faces_done), r->face_count);
}

static void check_parse(const struct golden *g, struct step *step, const json_t *meta)
{
    struct error err = ERROR_INIT;
    struct restoration *r = step->r;
    double *mask = malloc(512 * 512 * sizeof *mask);
    if (parse_step(step, &err))
        fail_msg("%s", err.text);
    for (int i = 0; i < r->face_count; i++) {
        struct face *f = &r->faces[i];
        struct image *labels = golden_face(g, meta, "parse", i), *wanted = golden_face(g, meta, "mask512", i);
        int wrong = 0;
        for (size_t k = 0; k < 512 * 512; k++)
            wrong += f->classes[k] != ((uint8_t *)labels->pixels)[k];
        printf("    %-24s %-12s %d of %d differ\n", g->name, "parse", wrong, 512 * 512);
        assert_true(wrong <= 512 * 512 * 3 / 10000);
        memcpy(f->classes, labels->pixels, 512 * 512);
        if (paste_parse_mask(f->classes, 512, mask, &err))
            fail_msg("%s", err.text);
        assert_true(compare_plane(g->name, "mask512", mask, (struct rect){0, 0, 512, 512}, wanted) <= 1);
        image_destroy(&labels);
        image_destroy(&wanted);
    }
    free(mask);
}

/* The masks as they lie in the result. */
static void check_warped_masks(const struct golden *g, struct step *step)
{
    struct error err = ERROR_INIT;
    for (int i = 0; i < step->r->face_count; i++) {
        const struct face *f = &step->r->faces[i];
        const struct patch *p = &step->patches[i];
        struct image *soft = golden_own(g, "softmask", i);
        size_t area = (size_t)p->rect.width * (size_t)p->rect.height;
        double *plane = malloc(area * sizeof *plane), *mask = malloc(512 * 512 * sizeof *mask);
        if (f->classes) {
            struct view_f64 to = {plane, p->rect.width, p->rect.height, 1, (size_t)p->rect.width};
            struct view_f64 from = {mask, 512, 512, 1, 512};
            if (paste_parse_mask(f->classes, 512, mask, &err))
                fail_msg("%s", err.text);
            warp_exact_f64(&to, p->rect.x, p->rect.y, &from, p->matrix, 0);
        } else {
            struct image *eroded = golden_own(g, "erode1", i);
            float *planes = malloc(2 * area * sizeof *planes);
            if (paste_square_mask(step, p, 512, planes, planes + area, &err))
                fail_msg("%s", err.text);
            for (size_t k = 0; k < area; k++)
                plane[k] = planes[k];
            assert_true(compare_plane(g->name, "erode1", plane, p->rect, eroded) <= 1);
            for (size_t k = 0; k < area; k++)
                plane[k] = planes[area + k];
            free(planes);
            image_destroy(&eroded);
        }
        assert_true(compare_plane(g->name, "softmask", plane, p->rect, soft) <= 1);
        free(plane);
        free(mask);
        image_destroy(&soft);
    }
}

static void check_paste(const struct golden *g, struct step *step, const json_t *meta)
{
    struct error err = ERROR_INIT;
    struct restoration *r = step->r;
    if (background_step(step, &err))
        fail_msg("%s", err.text);
    for (int i = 0; i < r->face_count; i++) {
        double wanted[6];
        picture_matrix(meta, "inverse_affine_with_offset", (size_t)i, wanted);
        for (int k = 0; k < 6; k++)
            assert_true(fabs(step->patches[i].matrix[k] - wanted[k]) < 1e-9);
    }
    if (strcmp(g->name, "A_parse_nobg") == 0 || strcmp(g->name, "B_parse_rrdbx2tile") == 0) {
        struct image *background = picture_golden(g->name, "bg_resized.png");
        struct spread s = compare(g->name, "background", r->result, background);
        assert_true(s.worst <= (strcmp(g->upsampler, "none") == 0 ? 0 : 1));
        memcpy(r->result->pixels, background->pixels, 3 * (size_t)background->width * (size_t)background->height);
        image_destroy(&background);
    }
    check_warped_masks(g, step);
    if (paste_step(step, &err))
        fail_msg("%s", err.text);
    struct image *wanted = picture_golden(g->name, "final.png");
    struct spread s = compare(g->name, "final", r->result, wanted);
    assert_true(s.worst <= 1);
    image_destroy(&wanted);
}

static void test_stages(void **state)
{
    const struct golden *g = ((const struct trial *)*state)->golden;
    worker = ((const struct trial *)*state)->worker;
    struct file file;
    picture_need_shared();
    json_t *meta = picture_meta(g->name);
    struct step step = begin_steps(g, &file);
    if (!g->aligned)
        check_detect(g, &step, meta);
    check_align(g, &step, meta);
    check_restore(g, &step, meta);
    if (g->paste) {
        if (g->parse)
            check_parse(g, &step, meta);
        check_paste(g, &step, meta);
    }
    json_decref(meta);
    end_steps(&step, &file);
}

/* ---- end to end ---- */

static void test_whole(void **state)
{
    const struct golden *g = ((const struct trial *)*state)->golden;
    worker = ((const struct trial *)*state)->worker;
    struct error err = ERROR_INIT;
    struct file file;
    picture_need_shared();
    json_t *meta = picture_meta(g->name);
    struct restoration *r = begin(g, &file);
    if (pipeline_run(r, worker, &err))
        fail_msg("%s", err.text);
    int used = 0;
    for (int i = 0; i < r->face_count; i++) {
        if (!r->faces[i].restored)
            continue;
        struct image *crop = golden_face(g, meta, "crop", used);
        struct spread s = compare(g->name, "own crop", r->faces[i].crop, crop);
        assert_true(s.worst <= 5 && s.share[0] <= 1e-3);
        image_destroy(&crop);
        used++;
    }
    assert_int_equal(used, json_integer_value(json_object_get(meta, "n_faces")));
    struct image *wanted = NULL;
    if (g->paste)
        wanted = picture_golden(g->name, "final.png");
    else if (g->aligned)
        wanted = golden_face(g, meta, "restored", 0);
    if (wanted) { /* read back from the encoded file */
        struct image *got = NULL;
        char path[64];
        snprintf(path, sizeof path, "/tmp/test_pipeline.%d.png", (int)getpid());
        if (file_write(path, r->output, r->output_bytes, &err))
            fail_msg("%s", err.text);
        got = picture_load(path);
        unlink(path);
        struct spread s = compare(g->name, "own final", got, wanted);
        assert_true(s.share[1] <= 5e-3 && s.share[2] <= 1e-4);
        image_destroy(&got);
        image_destroy(&wanted);
    }
    json_decref(meta);
    restoration_destroy(&r);
    file_unmap(&file);
}

int main(void)
{
    enum { COUNT = sizeof goldens / sizeof goldens[0], DEVICES = sizeof devices / sizeof devices[0] };
    struct CMUnitTest tests[2 * COUNT * DEVICES];
    struct trial trials[COUNT * DEVICES];
    char names[2 * COUNT * DEVICES][96];
    size_t count = 0;
    if (getenv("RESTORED_TEST_DEVICE")) {
        devices[0] = getenv("RESTORED_TEST_DEVICE");
        device_count = 1;
    }
    for (size_t i = 0; i < COUNT * device_count; i++) {
        trials[i] = (struct trial){&goldens[i % COUNT], &workers[i / COUNT]};
        for (int whole = 0; whole < 2; whole++, count++) {
            snprintf(names[count], sizeof names[count], "%s %s on %s", trials[i].golden->name,
                     whole ? "end to end" : "by stages", devices[i / COUNT]);
            tests[count] = (struct CMUnitTest){names[count], whole ? test_whole : test_stages, NULL, NULL, &trials[i]};
        }
    }
    return _cmocka_run_group_tests("pipeline goldens", tests, count, open_workers, close_workers);
}
