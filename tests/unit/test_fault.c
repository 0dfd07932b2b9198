/* What becomes of a restoration when its device fails: every kind of fault, at every point where it can happen, with
 * real networks on the device "cpu" and, where there is Vulkan, on "vulkan:0". Either the picture that a sound device
 * gives or a clear error; nothing kept that should be freed; and the next job on the same engine works. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/backend/fault.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/models/model.h"
#include "server/job/engine.h"
#include "tests/common/models.h"
#include "tests/common/picture.h"
#include "tests/common/restoration.h"
#include "tests/common/shared.h"

static struct model_store *store;
static struct engine *engine;
static struct file input;

static int open_store(void **state)
{
    (void)state;
    log_set_level(LOG_ERROR + 1); /* what is lost here is meant to be */
    device_set_cpu_threads(1);
    store = models_of_fixtures();
    return 0;
}

static int close_store(void **state)
{
    (void)state;
    model_store_destroy(&store);
    return 0;
}

/* A new engine on a device that fails by the spec. */
static void open_engine(const char *device, const char *spec)
{
    struct error err = ERROR_INIT;
    engine_destroy(&engine);
    if (fault_set(spec, &err) || engine_create(&engine, device, NULL, store, NULL, &err))
        fail_msg("%s: %s", spec, err.text);
}

static int reset(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    engine_destroy(&engine);
    file_unmap(&input);
    return fault_set(NULL, &err) != OK;
}

/* options: name, value, ..., NULL */
static struct restoration *begin(const char *picture, const char *const *options)
{
    return restoration_of(&input, picture, options);
}
#define OPTIONS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define DEFAULTS ((const char *const[]){NULL})
#define BACKGROUND OPTIONS("version", "none")

static struct restoration *run(const char *picture, const char *const *options)
{
    struct error err = ERROR_INIT;
    struct restoration *r = begin(picture, options);
    if (engine_run(engine, r, &err))
        fail_msg("%s: %s", picture, err.text);
    assert_true(r->output_bytes > 0);
    return r;
}

/* The engine fails with this code, a text that has each of these, and no output. */
static void check_fails(const char *picture, const char *const *options, enum error_code code, const char *const *says)
{
    struct error err = ERROR_INIT;
    struct restoration *r = begin(picture, options);
    if (engine_run(engine, r, &err) != code)
        fail_msg("wanted %s, got %s: %s", error_code_name(code), error_code_name(err.code), err.text);
    for (; *says; says++)
        if (!strstr(err.text, *says))
            fail_msg("\"%s\" does not say \"%s\"", err.text, *says);
    assert_null(r->output);
    restoration_destroy(&r);
}
#define SAYS(...) ((const char *const[]){__VA_ARGS__, NULL})

static bool noted(const struct restoration *r, const char *text)
{
    for (int i = 0; i < r->note_count; i++)
        if (strstr(r->notes[i], text))
            return true;
    return false;
}

static void check_same(const struct restoration *a, const struct restoration *b)
{
    assert_int_equal(a->output_bytes, b->output_bytes);
    assert_memory_equal(a->output, b->output, a->output_bytes);
}

/* ---- the layer itself ---- */

static void test_specs(void **state)
{
    (void)state;
    static const char *const right[] = {"",
                                        " ; ",
                                        "no_memory@plan:2",
                                        "no_memory@alloc:1,device=cpu",
                                        "lost@run:3,repeat,plan=face ; fp16",
                                        "nan@run:1,precision=fp16,until=4",
                                        "flat@run:1,over=100\nfp16,device=vulkan:0",
                                        "lost@submit:9",
                                        "slow@run:1,ms=5",
                                        "lost@open:1"};
    static const char *const wrong[] = {"lost",
                                        "lost@run",
                                        "lost@run:",
                                        "lost@run:0",
                                        "lost@run:-1",
                                        "lost@run:1x",
                                        "lost@alloc:1",
                                        "nan@plan:1",
                                        "soon@run:1",
                                        "lost@run:1,later",
                                        "lost@run:3,until=2",
                                        "lost@run:1,precision=int8",
                                        "lost@run:1,device=",
                                        "no_memory@alloc:1,plan=x",
                                        "lost@submit:1,over=5",
                                        "nan@run:1,ms=5",
                                        "slow@plan:1,ms=5",
                                        "slow@run:1,ms=x",
                                        "fp16,repeat",
                                        "fp32"};
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        struct error err = ERROR_INIT;
        if (fault_set(right[i], &err))
            fail_msg("%s: %s", right[i], err.text);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct error err = ERROR_INIT;
        if (fault_set(wrong[i], &err) != ERROR_INVALID)
            fail_msg("%s was taken", wrong[i]);
        assert_int_equal(strncmp(err.text, "RESTORED_FAULTS is wrong: ", 26), 0); /* the cause, before all else */
    }
}

/* Runs srvgg_x2 at size × size on a device; what it gives and, in *first, the first value. */
static enum error_code run_network(struct device *device, enum precision precision, int size, float *first)
{
    char path[512];
    struct error err = ERROR_INIT;
    struct model *model;
    struct session *session;
    snprintf(path, sizeof path, "%s/srvgg_x2.safetensors", shared_fixtures());
    if (model_open(&model, path, NULL, &err) || model_session(&session, model, device, precision, &err))
        fail_msg("%s", err.text);
    const size_t count = 3 * (size_t)size * (size_t)size;
    float *in = malloc(count * sizeof *in), *out = malloc(4 * count * sizeof *out);
    for (size_t i = 0; i < count; i++)
        in[i] = (float)(i % 17) / 17;
    const struct session_shape shape = {.n = 1, .h = size, .w = size};
    enum error_code code = session_run(session, &shape, (const float *const[]){in}, (float *const[]){out}, NULL, &err);
    *first = out[0];
    free(in);
    free(out);
    session_destroy(&session);
    model_forget(model, device);
    model_close(&model);
    return code;
}

/* The options narrow a fault down; a device that is lost stays lost until it is reopened. */
static void test_layer(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "reference"};
    for (int d = 0; d < 2; d++) {
        struct error err = ERROR_INIT;
        struct device *device;
        struct device_info info;
        float value;
        assert_int_equal(fault_set("lost@run:2 ; no_memory@plan:1,over=100,precision=fp16,until=2 ; fp16 ; "
                                   "lost@run:1,device=elsewhere ; lost@run:1,plan=other",
                                   &err),
                         OK);
        assert_int_equal(device_open(&device, devices[d], NULL, &err), OK);
        device_info(device, &info);
        assert_string_equal(info.id, devices[d]);
        assert_true(info.fp16);
        assert_int_equal(info.preferred, PRECISION_FP16);
        assert_int_equal(run_network(device, PRECISION_FP16, 16, &value), ERROR_NO_MEMORY);
        assert_int_equal(run_network(device, PRECISION_FP32, 16, &value), OK);
        assert_int_equal(run_network(device, PRECISION_FP16, 16, &value), ERROR_NO_MEMORY);
        assert_int_equal(fault_seen(1), 2);
        assert_int_equal(run_network(device, PRECISION_FP16, 16, &value), ERROR_DEVICE_LOST);
        assert_int_equal(run_network(device, PRECISION_FP16, 8, &value), ERROR_DEVICE_LOST);
        assert_int_equal(fault_injected(), 3);
        assert_int_equal(fault_seen(0), 2);
        assert_int_equal(fault_seen(3) + fault_seen(4), 0);
        device_info(device, &info);
        assert_int_equal(info.memory_used, 0);
        device_close(&device);
        assert_int_equal(device_open(&device, devices[d], NULL, &err), OK);
        assert_int_equal(run_network(device, PRECISION_FP32, 8, &value), OK);
        device_close(&device);
        assert_int_equal(fault_set("no_memory@open:2", &err), OK);
        assert_int_equal(device_open(&device, devices[d], NULL, &err), OK);
        device_close(&device);
        assert_int_equal(device_open(&device, devices[d], NULL, &err), ERROR_NO_MEMORY);
        assert_null(device);
    }
}

/* Without a fault that is meant for it, a device is as it is. */
static void test_no_layer(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct device *device;
    assert_int_equal(fault_set("lost@run:1,repeat,device=vulkan:9", &err), OK);
    assert_int_equal(device_open(&device, "cpu", NULL, &err), OK);
    assert_ptr_equal(device->backend, &cpu_backend);
    device_close(&device);
}

/* ---- out of memory ---- */

/* Smaller tiles give what a run that was asked for such tiles gives; with exact seams, what no tiles give. */
static void test_smaller_tiles(void **state)
{
    (void)state;
    /* exact seams, feathered seams; and the largest window, px, for which there is to be room: that of tiles of 96 px,
     * of which 240 × 128 px take 3 × 2, but not that of tiles of 128 px, which are 2 × 1 */
    static const struct {
        const char *network, *spec;
    } cases[] = {{"srvgg_x2", "no_memory@plan:1,repeat,over=10000"},
                 {"upscaler", "no_memory@plan:1,repeat,over=20000"}};
    for (int i = 0; i < 2; i++) {
        const char *const whole_options[] = {"version", "none", "bg_upsampler", cases[i].network, NULL};
        const char *const tile_options[] = {"version", "none", "bg_upsampler", cases[i].network, "bg_tile", "96", NULL};
        const char *const large_options[] = {"version", "none", "bg_upsampler", cases[i].network, "bg_tile",
                                             "200",     NULL};
        open_engine("cpu", NULL);
        struct restoration *whole = run("two.png", whole_options), *wanted = run("two.png", tile_options);
        assert_int_equal(whole->tiles, 1);
        assert_int_equal(wanted->tiles, 6);
        open_engine("cpu", cases[i].spec);
        struct restoration *got = run("two.png", whole_options);
        assert_int_equal(fault_injected(), 2 * 3); /* the whole, 192, 128, each tried again with the device empty */
        assert_int_equal(got->tiles, 6);
        assert_int_equal(got->shrinks, 3);
        assert_int_equal(atomic_load(&got->tiles_done), 6);
        assert_false(noted(got, "bg_tile")); /* nobody asked for another */
        check_same(got, wanted);
        if (i == 0)
            assert_int_equal(picture_difference(image_view(whole->result), image_view(got->result), NULL), 0);
        restoration_destroy(&got);
        got = run("two.png", large_options);
        assert_true(noted(got, "bg_tile=200 does not fit the device's memory; tiles of 96 px"));
        check_same(got, wanted);
        restoration_destroy(&got);
        restoration_destroy(&wanted);
        restoration_destroy(&whole);
    }
}

/* No memory while a tile is in work: all rows come again. */
static void test_out_of_memory_in_work(void **state)
{
    (void)state;
    open_engine("cpu", NULL);
    struct restoration *wanted = run("two.png", OPTIONS("bg_tile", "128"));
    open_engine("cpu", "no_memory@run:2,until=3,plan=srvgg"); /* the second tile, and its second try */
    struct restoration *got = run("two.png", OPTIONS("bg_tile", "192"));
    assert_int_equal(fault_injected(), 2);
    assert_int_equal(got->tiles, 2);
    check_same(got, wanted);
    restoration_destroy(&got);
    restoration_destroy(&wanted);
}

static void test_no_room(void **state)
{
    (void)state;
    open_engine("cpu", "no_memory@plan:1,repeat,plan=srvgg");
    check_fails("two.png", BACKGROUND, ERROR_NO_MEMORY,
                SAYS("background: even a tile of 64 px with srvgg_x2 does not fit the memory of cpu",
                     "free memory there", "bg_upsampler=none"));
    assert_int_equal(fault_injected(), 2 * 5); /* the whole, 192, 128, 96, 64, each tried again with the device empty */
    check_fails("two.png", OPTIONS("version", "none", "bg_tile", "32"), ERROR_NO_MEMORY, SAYS("a tile of 32 px"));
    check_fails("one_pixel.png", BACKGROUND, ERROR_NO_MEMORY, SAYS("even the picture of 1 px"));
    check_fails("two.png", OPTIONS("version", "none", "compat", "true"), ERROR_NO_MEMORY, SAYS("a tile of 64 px"));
    open_engine("cpu", "no_memory@alloc:1,repeat"); /* as the backend says it */
    check_fails("two.png", BACKGROUND, ERROR_NO_MEMORY, SAYS("a tile of 64 px", "out of memory for "));
    open_engine("cpu", "no_memory@plan:1,repeat,plan=face_64");
    check_fails("picture.png", DEFAULTS, ERROR_NO_MEMORY,
                SAYS("restore: a face of 64 × 64 px with face_64 does not fit the memory of cpu",
                     "or choose another device or version=none"));
    open_engine("cpu", "no_memory@plan:1,repeat,plan=parser");
    check_fails("picture.png", DEFAULTS, ERROR_NO_MEMORY,
                SAYS("parse: a face of 64 × 64 px with parser", "parse=false"));
    open_engine("cpu", "no_memory@plan:1,repeat,plan=detector");
    check_fails("picture.png", DEFAULTS, ERROR_NO_MEMORY, SAYS("detect: a picture of 160 px with detector"));
}

/* A face network has no smaller shape, but what the other networks hold may make room for it. */
static void test_room_is_made(void **state)
{
    (void)state;
    struct device_info before, after;
    open_engine("cpu", NULL);
    struct restoration *wanted = run("picture.png", DEFAULTS);
    engine_info(engine, &before);
    open_engine("cpu", "no_memory@plan:1,plan=face_64 ; no_memory@plan:1,plan=parser ; no_memory@plan:1,plan=srvgg");
    struct restoration *got = run("picture.png", DEFAULTS);
    assert_int_equal(fault_injected(), 3);
    assert_int_equal(got->note_count, 0);
    check_same(got, wanted);
    engine_info(engine, &after);
    assert_true(after.memory_used < before.memory_used); /* only the upscaler is left there */
    restoration_destroy(&got);
    got = run("picture.png", DEFAULTS); /* the others come back */
    check_same(got, wanted);
    engine_info(engine, &after);
    assert_int_equal(after.memory_used, before.memory_used);
    restoration_destroy(&got);
    restoration_destroy(&wanted);
}

/* ---- how often a network runs ---- */

/* auto_rotate looks once where faces are upright, and from all sides where none is. */
static void test_sides(void **state)
{
    (void)state;
    static const struct {
        const char *picture, *how;
        unsigned long looks;
    } cases[] = {{"picture.png", "off", 1}, {"picture.png", "report", 1}, {"picture.png", "apply", 1},
                 {"none.png", "off", 1},    {"none.png", "report", 4},    {"none.png", "apply", 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        open_engine("cpu", "nan@run:1000000,plan=detector");
        struct restoration *r = run(cases[i].picture, OPTIONS("auto_rotate", cases[i].how, "bg_upsampler", "none"));
        if (fault_seen(0) != cases[i].looks)
            fail_msg("%s, %s: %lu looks", cases[i].picture, cases[i].how, fault_seen(0));
        assert_int_equal(r->rotation.looked, i % 3 > 0);
        assert_int_equal(r->rotation.degrees, 0);
        restoration_destroy(&r);
    }
}

/* ---- a lost device ---- */

static void test_lost(void **state)
{
    (void)state;
    open_engine("cpu", NULL);
    struct restoration *wanted = run("picture.png", DEFAULTS), *got;
    static const char *const once[] = {"lost@run:1", "lost@run:4", "lost@plan:2", "lost@run:1,plan=parser"};
    for (size_t i = 0; i < sizeof once / sizeof once[0]; i++) {
        open_engine("cpu", once[i]);
        got = run("picture.png", DEFAULTS);
        assert_int_equal(fault_injected(), 1);
        assert_int_equal(engine_losses(engine), 1);
        assert_true(engine_usable(engine));
        check_same(got, wanted);
        restoration_destroy(&got);
    }
    open_engine("cpu", "lost@run:2,until=3");
    check_fails("picture.png", DEFAULTS, ERROR_DEVICE_LOST, SAYS("cpu was lost twice while it worked on this picture"));
    assert_int_equal(engine_losses(engine), 2);
    assert_false(engine_usable(engine));
    got = run("picture.png", DEFAULTS); /* it is there again */
    assert_int_equal(engine_losses(engine), 2);
    assert_true(engine_usable(engine));
    check_same(got, wanted);
    restoration_destroy(&got);
    open_engine("cpu", "lost@run:2 ; lost@open:2,until=3");
    check_fails("picture.png", DEFAULTS, ERROR_DEVICE_LOST, SAYS("cpu is not usable", "could not open"));
    assert_int_equal(engine_losses(engine), 1);
    assert_false(engine_usable(engine));
    check_fails("picture.png", DEFAULTS, ERROR_DEVICE_LOST, SAYS("cpu is not usable"));
    got = run("picture.png", DEFAULTS);
    check_same(got, wanted);
    restoration_destroy(&got);
    restoration_destroy(&wanted);
}

/* ---- results that are none ---- */

static void test_fallback(void **state)
{
    (void)state;
    open_engine("cpu", "fp16");
    struct restoration *sound = run("picture.png", OPTIONS("precision", "fp32"));
    assert_int_equal(sound->fallbacks, 0);
    assert_int_equal(sound->note_count, 0);
    static const char *const kinds[][3] = {
        {"nan@run:1,repeat,precision=fp16 ; fp16", "nan@run:1,repeat", "not finite"},
        {"flat@run:1,repeat,precision=fp16 ; fp16", "flat@run:1,repeat", "entirely flat"},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        open_engine("cpu", kinds[i][0]);
        struct restoration *r = run("picture.png", DEFAULTS);
        assert_int_equal(r->precision, PRECISION_FP16);
        assert_int_equal(r->fallbacks, 4); /* detector, face, parser, background */
        assert_int_equal(fault_injected(), 4);
        assert_int_equal(r->note_count, 4);
        assert_true(noted(r, "restore: a result of face_64 was "));
        assert_true(noted(r, kinds[i][2]));
        check_same(r, sound);
        restoration_destroy(&r);
        open_engine("cpu", kinds[i][1]);
        check_fails("picture.png", DEFAULTS, ERROR_DEVICE,
                    SAYS("detect: the result of detector on cpu is", kinds[i][2], "in fp32 too", "choose another"));
        assert_int_equal(fault_injected(), 2);
        /* each network by itself */
        static const char *const stages[][2] = {{"face_64", "restore"}, {"parser", "parse"}, {"srvgg", "background"}};
        for (size_t k = 0; k < sizeof stages / sizeof stages[0]; k++) {
            char spec[128];
            snprintf(spec, sizeof spec, "%s,plan=%s", kinds[i][1], stages[k][0]);
            open_engine("cpu", spec);
            check_fails("picture.png", DEFAULTS, ERROR_DEVICE, SAYS(stages[k][1], kinds[i][2]));
            assert_int_equal(fault_injected(), 2);
        }
    }
    restoration_destroy(&sound);
}

/* ---- every point ---- */

/* One job with the fault, then one without, on the same engine: the first gives the wanted picture or fails with this
 * code, the second gives the picture, and the device holds what it held without the fault. Whether the first was fine.
 */
static bool check_point(const char *device, const char *spec, const char *picture, const char *const *options,
                        const struct restoration *wanted, uint64_t used, enum error_code may)
{
    struct error err = ERROR_INIT;
    struct device_info info;
    open_engine(device, spec);
    struct restoration *r = begin(picture, options);
    enum error_code code = engine_run(engine, r, &err);
    if (fault_injected() == 0)
        fail_msg("%s did not happen", spec);
    if (code == OK)
        check_same(r, wanted);
    else if (code != may || !err.text[0] || r->output)
        fail_msg("%s: %s: %s", spec, error_code_name(code), err.text);
    restoration_destroy(&r);
    if (fault_set(NULL, &err)) /* what a device has of the layer stays, without a fault */
        fail_msg("%s", err.text);
    r = run(picture, options);
    check_same(r, wanted);
    assert_int_equal(r->fallbacks, 0);
    restoration_destroy(&r);
    engine_info(engine, &info);
    if (info.memory_used != used)
        fail_msg("%s: the device holds %llu bytes, %llu without the fault", spec, (unsigned long long)info.memory_used,
                 (unsigned long long)used);
    return code == OK;
}

/* How often an event happens in a sound job, the picture that it gives, and what the device then holds. */
static unsigned long count_events(const char *device, const char *event, const char *picture,
                                  const char *const *options, struct restoration **wanted, uint64_t *used)
{
    char spec[64];
    struct device_info info;
    snprintf(spec, sizeof spec, "%s:1000000", event);
    restoration_destroy(wanted);
    open_engine(device, spec);
    *wanted = run(picture, options);
    engine_info(engine, &info);
    *used = info.memory_used;
    assert_int_equal(fault_injected(), 0);
    return fault_seen(0);
}

struct loop {
    const char *event, *more; /* more: options of the fault */
    enum error_code may;      /* the error that a job may end with */
    bool must;                /* every job must give the picture all the same */
    unsigned long step, full; /* of n, the latter with RESTORED_FULL (make check-long) */
};

static void check_points(const char *device, const char *picture, const char *const *options, const struct loop *loops,
                         size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct restoration *wanted = NULL;
        uint64_t used;
        unsigned long events = count_events(device, loops[i].event, picture, options, &wanted, &used), fine = 0,
                      done = 0;
        assert_true(events > 0);
        for (unsigned long n = 1; n <= events; n += getenv("RESTORED_FULL") ? loops[i].full : loops[i].step, done++) {
            char spec[96];
            snprintf(spec, sizeof spec, "%s:%lu%s", loops[i].event, n, loops[i].more);
            fine += check_point(device, spec, picture, options, wanted, used, loops[i].may);
        }
        printf("    %s: %s%s at %lu of %lu points: %lu pictures, %lu errors\n", device, loops[i].event, loops[i].more,
               done, events, fine, done - fine);
        assert_true(loops[i].must ? fine == done : fine < done);
        restoration_destroy(&wanted);
    }
}

/* Points of the detector's and the upscaler's, of the face network's, and of a whole job's: of those that are many only
 * some, and every one of the small jobs' with RESTORED_FULL. */
static void test_every_point(void **state)
{
    (void)state;
    static const struct loop small[] = {{"no_memory@alloc", "", ERROR_NO_MEMORY, true, 7, 1},
                                        {"no_memory@alloc", ",repeat", ERROR_NO_MEMORY, false, 23, 5}};
    static const struct loop whole[] = {
        {"no_memory@alloc", "", ERROR_NO_MEMORY, true, 47, 11},
        {"no_memory@alloc", ",repeat", ERROR_NO_MEMORY, false, 101, 47},
        {"no_memory@plan", "", ERROR_NO_MEMORY, true, 1, 1},
        {"no_memory@run", "", ERROR_NO_MEMORY, true, 1, 1},
        {"lost@plan", "", ERROR_DEVICE_LOST, true, 1, 1},
        {"lost@run", "", ERROR_DEVICE_LOST, true, 1, 1},
        {"lost@run", ",repeat", ERROR_DEVICE_LOST, false, 2, 1},
        {"nan@run", "", ERROR_DEVICE, true, 1, 1},
        {"flat@run", "", ERROR_DEVICE, true, 2, 1},
        {"nan@run", ",repeat", ERROR_DEVICE, false, 2, 1},
    };
    check_points("cpu", "one_pixel.png", DEFAULTS, small, 2);
    check_points("cpu", "one_pixel.png", OPTIONS("aligned", "true"), small, 2);
    check_points("cpu", "picture.png", OPTIONS("bg_tile", "96", "upscale", "1"), whole, sizeof whole / sizeof whole[0]);
}

/* The same through Vulkan's own allocator and queue. */
static void test_every_point_of_vulkan(void **state)
{
    (void)state;
    static const struct loop loops[] = {{"no_memory@alloc", "", ERROR_NO_MEMORY, true, 1, 1},
                                        {"no_memory@alloc", ",repeat", ERROR_NO_MEMORY, false, 3, 3},
                                        {"lost@submit", "", ERROR_DEVICE_LOST, true, 1, 1},
                                        {"lost@submit", ",repeat", ERROR_DEVICE_LOST, false, 2, 1},
                                        {"nan@run", "", ERROR_DEVICE, true, 1, 1}};
    struct device *device;
    struct error err = ERROR_INIT;
    if (device_open(&device, "vulkan:0", NULL, &err)) {
        printf("skipped: %s\n", err.text);
        skip();
    }
    device_close(&device);
    check_points("vulkan:0", "one_pixel.png", BACKGROUND, loops, sizeof loops / sizeof loops[0]);
    /* with faces beside tiles */
    static const struct loop whole[] = {{"no_memory@alloc", "", ERROR_NO_MEMORY, true, 19, 13},
                                        {"no_memory@run", "", ERROR_NO_MEMORY, true, 4, 2},
                                        {"lost@submit", "", ERROR_DEVICE_LOST, true, 11, 5},
                                        {"nan@run", "", ERROR_DEVICE, true, 4, 2}};
    check_points("vulkan:0", "picture.png", OPTIONS("bg_tile", "96"), whole, sizeof whole / sizeof whole[0]);
}

int main(void)
{
#define CASE(test) cmocka_unit_test_teardown(test, reset)
    const struct CMUnitTest tests[] = {
        CASE(test_specs),
        CASE(test_layer),
        CASE(test_no_layer),
        CASE(test_smaller_tiles),
        CASE(test_out_of_memory_in_work),
        CASE(test_no_room),
        CASE(test_room_is_made),
        CASE(test_sides),
        CASE(test_lost),
        CASE(test_fallback),
        CASE(test_every_point),
        CASE(test_every_point_of_vulkan),
    };
    return cmocka_run_group_tests_name("fault", tests, open_store, close_store);
}
