/* Every allocation of the program's own code fails once, on each of the paths below: no crash, no leak (under ASan),
 * and the right code. The linker puts the functions below in the place of malloc and its kin (the Makefile's --wrap),
 * in our code alone: what libraries allocate is theirs, but for jansson's while a report is made. (Its parser calls a
 * lack of memory a syntax error.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/models/model.h"
#include "server/config.h"
#include "server/http/upload.h"
#include "server/image/codec.h"
#include "server/job/queue.h"
#include "server/pipeline/step.h"
#include "tests/common/shared.h"

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *block, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *block, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
char *__wrap_strdup(const char *text);

static atomic_long left; /* allocations until the one that fails; 0: it has failed, negative: none is to */

static atomic_bool reporting;

static bool refused(void)
{
    return atomic_load(&left) > 0 && atomic_fetch_sub(&left, 1) == 1;
}

void *__wrap_malloc(size_t size)
{
    return refused() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return refused() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *block, size_t size)
{
    return refused() ? NULL : __real_realloc(block, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return refused() ? NULL : __real_aligned_alloc(alignment, size);
}

char *__wrap_strdup(const char *text)
{
    return refused() ? NULL : __real_strdup(text);
}

static void *json_memory(size_t size)
{
    return atomic_load(&reporting) ? __wrap_malloc(size) : __real_malloc(size);
}

/* Runs the path with its first allocation refused, then its second, and so on until none is left to refuse; `step`:
 * only every so many, unless RESTORED_FULL is set (make check-long). A refusal must end as NO_MEMORY, or, where the
 * path can do without (`spared`), in success. */
static void refuse_each(const char *what, enum error_code (*path)(void *context, struct error *err), void *context,
                        int step, bool spared)
{
    long refusals = 0;
    for (long n = 1;; n += getenv("RESTORED_FULL") ? 1 : step) {
        struct error err = ERROR_INIT;
        atomic_store(&left, n);
        const enum error_code code = path(context, &err);
        const bool all = atomic_exchange(&left, -1) > 0;
        if (all) {
            if (code)
                fail_msg("%s: %s, with no allocation refused", what, err.text);
            break;
        }
        refusals++;
        if (code != ERROR_NO_MEMORY && !(spared && code == OK))
            fail_msg("%s: allocation %ld was refused, and it ended as %s (%s)", what, n, error_code_name(code),
                     err.text);
    }
    if (!refusals)
        fail_msg("%s: allocates nothing", what);
    printf("%s: %ld allocations refused\n", what, refusals);
}

static const char *fixture(const char *name, char path[512])
{
    snprintf(path, 512, "%s/%s", shared_fixtures(), name);
    return path;
}

/* ---- pictures ---- */

struct picture {
    struct file file;
    struct image *image;
    enum image_format format;
};

static enum error_code decode(void *context, struct error *err)
{
    const struct picture *p = context;
    struct image *image = NULL;
    struct codec_info info;
    enum error_code code = codec_decode(p->file.data, p->file.size, 0, &image, &info, err);
    image_destroy(&image);
    return code;
}

static enum error_code encode(void *context, struct error *err)
{
    const struct picture *p = context;
    struct codec_output out = {0};
    enum error_code code = codec_encode(p->image, p->format, (struct codec_options)CODEC_OPTIONS_INIT, &out, err);
    free(out.bytes);
    return code;
}

static void test_pictures(void **state)
{
    static const char *const names[] = {"picture.png", "picture.jpg", "rgba.png",        "deep.png",
                                        "cmyk.jpg",    "exif_6.jpg",  "progressive.jpg", "gray.jpg"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[512], what[80];
        struct error err = ERROR_INIT;
        struct codec_info info;
        struct picture p = {0};
        assert_int_equal(file_map(&p.file, fixture(names[i], path), &err), OK);
        snprintf(what, sizeof what, "decode %s", names[i]);
        refuse_each(what, decode, &p, 1, false);
        assert_int_equal(codec_decode(p.file.data, p.file.size, 0, &p.image, &info, &err), OK);
        for (int k = 0; k < 2; k++) {
            p.format = k ? IMAGE_PNG : IMAGE_JPEG;
            snprintf(what, sizeof what, "encode %s as %s", names[i], codec_extension(p.format));
            refuse_each(what, encode, &p, 1, false);
        }
        image_destroy(&p.image);
        file_unmap(&p.file);
    }
}

/* ---- networks ---- */

struct network {
    char path[512];
    const char *device;
};

static enum error_code run_network(void *context, struct error *err)
{
    const struct network *n = context;
    struct device *device = NULL;
    struct model *model = NULL;
    struct session *session = NULL;
    float *input = NULL, *outputs[8] = {0};
    const float *inputs[1];
    enum error_code code = device_open(&device, n->device, NULL, err);
    if (!code)
        code = model_open(&model, n->path, NULL, err);
    if (!code)
        code = model_session(&session, model, device, PRECISION_FP32, err);
    if (!code) {
        const struct model_info *info = model_info(model);
        const int side = info->face_size ? info->face_size : 32;
        const struct session_shape shape = {1, side, side, 0};
        inputs[0] = input = __real_calloc((size_t)side * (size_t)side * 3, sizeof *input);
        for (int i = 0; i < info->output_count && i < 8; i++) {
            int nchw[4];
            model_output_shape(model, &shape, i, nchw);
            outputs[i] =
                __real_calloc((size_t)nchw[0] * (size_t)nchw[1] * (size_t)nchw[2] * (size_t)nchw[3], sizeof(float));
        }
        const struct run_options options = {.seed = 1};
        code = session_run(session, &shape, inputs, outputs, &options, err);
    }
    for (int i = 0; i < 8; i++)
        free(outputs[i]);
    free(input);
    session_destroy(&session);
    if (model)
        model_forget(model, device);
    model_close(&model);
    device_close(&device);
    return code;
}

static void test_networks(void **state)
{
    static const char *const names[] = {"srvgg_x2", "rrdb_x4", "detector", "detector_resnet50", "parser", "face_64"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int k = 0; k < 2; k++) {
            char file[80], what[120];
            struct network n = {.device = k ? "cpu" : "reference"};
            snprintf(file, sizeof file, "%s.safetensors", names[i]);
            fixture(file, n.path);
            snprintf(what, sizeof what, "%s on %s", names[i], n.device);
            refuse_each(what, run_network, &n, 23, true);
        }
}

static enum error_code open_weights(void *context, struct error *err)
{
    struct weights *weights = NULL;
    enum error_code code = weights_open(&weights, context, err);
    weights_close(&weights);
    return code;
}

static void test_weights(void **state)
{
    char path[512];
    (void)state;
    refuse_each("safetensors", open_weights, (void *)(uintptr_t)fixture("face_64.safetensors", path), 1, false);
    static const char *const torch[] = {"rrdb_x2_tiny.pth", "rrdb_x2_tiny_legacy.pth", "loader_views.pth"};
    for (size_t i = 0; i < sizeof torch / sizeof *torch; i++) {
        if (!shared_present()) {
            printf("skip: there are no checkpoints of torch.save here\n");
            break;
        }
        snprintf(path, sizeof path, "%s", shared_path("models/%s", torch[i]));
        refuse_each(torch[i], open_weights, path, 1, false);
    }
}

/* ---- a picture's whole way ---- */

struct way {
    struct worker_context worker;
    struct file file;
    const char *const *options;
    char folder[64]; /* of models */
};

static enum error_code restore(void *context, struct error *err)
{
    struct way *way = context;
    struct restoration *r = NULL;
    enum error_code code = restoration_create(&r, err);
    if (!code) {
        r->input = way->file.data;
        r->input_bytes = way->file.size;
    }
    for (const char *const *option = way->options; !code && *option; option += 2)
        code = options_set(&r->options, option[0], option[1], err);
    if (!code)
        code = pipeline_run(r, &way->worker, err);
    if (!code) {
        atomic_store(&reporting, true);
        json_t *report = restoration_report(r);
        atomic_store(&reporting, false);
        code = report ? OK : error_set(err, ERROR_NO_MEMORY, "no report");
        json_decref(report);
    }
    restoration_destroy(&r);
    return code;
}

/* All of it with a device and models of its own. */
static enum error_code open_and_restore(void *context, struct error *err)
{
    struct way *way = context;
    way->worker.device = NULL;
    way->worker.models = NULL;
    enum error_code code = device_open(&way->worker.device, "cpu", NULL, err);
    if (!code)
        code = model_set_create(&way->worker.models, way->worker.store, way->worker.device, err);
    if (!code)
        code = restore(way, err);
    pipeline_forget(&way->worker);
    model_set_destroy(&way->worker.models);
    device_close(&way->worker.device);
    return code;
}

static enum error_code open_store(void *context, struct error *err)
{
    static const struct model_defaults defaults = {.name = {"detector", "face_64", "parser", "srvgg_x2"}};
    struct way *way = context;
    model_store_destroy(&way->worker.store);
    return model_store_create(&way->worker.store, way->folder, &defaults, err);
}

/* One model of each role, one with an alias, and a file that is none. All fixtures would be thousands of allocations
 * that take the same paths. */
static const char *const models[] = {"detector", "face_64", "parser", "srvgg_x2", "starter_damage"};
#define MODEL_COUNT (sizeof models / sizeof *models)

static void make_folder(struct way *way)
{
    struct error err = ERROR_INIT;
    char from[512], to[600];
    assert_non_null(mkdtemp(way->folder));
    for (size_t i = 0; i < MODEL_COUNT; i++) {
        snprintf(from, sizeof from, "%s/%s.safetensors", shared_fixtures(), models[i]);
        snprintf(to, sizeof to, "%s/%s.safetensors", way->folder, models[i]);
        char *whole = realpath(from, NULL);
        assert_non_null(whole);
        assert_int_equal(symlink(whole, to), 0);
        free(whole);
    }
    snprintf(to, sizeof to, "%s/none.safetensors", way->folder);
    assert_int_equal(file_write(to, "none", 4, &err), OK);
}

static void remove_folder(struct way *way)
{
    char path[600];
    for (size_t i = 0; i <= MODEL_COUNT; i++) {
        snprintf(path, sizeof path, "%s/%s.safetensors", way->folder, i < MODEL_COUNT ? models[i] : "none");
        unlink(path);
    }
    rmdir(way->folder);
}

static void test_pipeline(void **state)
{
    static const char *const plain[] = {"upscale", "1.5", NULL}, *const compat[] = {"compat", "true", NULL},
                             *const tiles[] = {"bg_tile", "64", "ext", "jpg", NULL},
                             *const none[] = {"faces", "none", NULL};
    static const struct {
        const char *name, *const *options;
        int step;
    } ways[] = {{"default", plain, 101}, {"compat", compat, 101}, {"tiles", tiles, 101}, {"no faces", none, 101}};
    (void)state;
    char path[512];
    struct error err = ERROR_INIT;
    struct way way = {.folder = "/tmp/restored_alloc_XXXXXX"};
    make_folder(&way);
    assert_int_equal(file_map(&way.file, fixture("two.png", path), &err), OK);
    refuse_each("the store", open_store, &way, 1, true); /* a file that cannot be opened is listed with the reason */
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        way.options = ways[i].options;
        refuse_each(ways[i].name, open_and_restore, &way, ways[i].step, true);
    }
    model_store_destroy(&way.worker.store);
    file_unmap(&way.file);
    remove_folder(&way);
}

/* ---- a request ---- */

static void end_job(struct job *job, void *context)
{
    (void)job, (void)context;
}

static enum error_code request(void *context, struct error *err)
{
    const struct file *file = context;
    struct upload *upload = NULL;
    struct restoration *r = NULL;
    struct job *job = NULL;
    struct queue *queue = NULL;
    struct body body = {0};
    enum error_code code = upload_create(&upload, false, 1 << 20, err);
    if (!code)
        code = upload_field(upload, "upscale", "2", 1, err);
    if (!code)
        code = upload_begin(upload, "image/png", file->size, err);
    for (size_t at = 0; !code && at < file->size; at += 1000)
        code = upload_feed(upload, (const char *)file->data + at, file->size - at < 1000 ? file->size - at : 1000, err);
    if (!code)
        code = upload_finish(upload, err);
    if (!code)
        code = restoration_create(&r, err);
    if (!code) {
        upload_take(upload, &body);
        code = job_create(&job, "0", &r, &body, end_job, NULL, err);
    }
    if (!code)
        code = queue_create(&queue, 4, 1, err);
    if (!code)
        code = queue_push(queue, job, err);
    if (!code) {
        assert_true(queue_remove(queue, job));
        struct job *held = job;
        job_release(&held);
    }
    if (queue)
        queue_destroy(&queue);
    job_release(&job);
    restoration_destroy(&r);
    body_clear(&body);
    upload_destroy(&upload);
    return code;
}

static void test_request(void **state)
{
    char path[512];
    struct error err = ERROR_INIT;
    struct file file;
    (void)state;
    assert_int_equal(file_map(&file, fixture("picture.png", path), &err), OK);
    refuse_each("a request", request, &file, 1, false);
    file_unmap(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pictures), cmocka_unit_test(test_weights), cmocka_unit_test(test_networks),
        cmocka_unit_test(test_pipeline), cmocka_unit_test(test_request),
    };
    atomic_store(&left, -1);
    log_set_level(LOG_ERROR);
    json_set_alloc_funcs(json_memory, free);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
