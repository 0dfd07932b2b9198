/* Runs that go together and runs that overlap: faces and tiles in batches, the background beside the faces, all of it
 * stopped at any moment, and with hardly any memory. On the device "cpu" and, where there is Vulkan, on "vulkan:0". */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "runtime/backend/fault.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/vulkan/vk_instance.h"
#include "server/job/engine.h"
#include "tests/common/models.h"
#include "tests/common/picture.h"
#include "tests/common/restoration.h"

static struct model_store *store;
static struct engine *engine;
static struct file input;
static bool vulkan;
static bool full; /* the long form (make check-long) */

static int open_store(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct device *device;
    setenv("RESTORED_VULKAN_VALIDATION", "1", 0);
    log_set_level(LOG_ERROR);
    store = models_of_fixtures();
    full = getenv("RESTORED_FULL");
    vulkan = device_open(&device, "vulkan:0", NULL, &err) == OK;
    if (vulkan)
        device_close(&device);
    return 0;
}

static int close_store(void **state)
{
    (void)state;
    model_store_destroy(&store);
    return 0;
}

static int reset(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    engine_destroy(&engine);
    file_unmap(&input);
    unsetenv("RESTORED_VULKAN_MEMORY");
    return fault_set(NULL, &err) != OK;
}

/* An engine that counts the runs of two networks: faults that never come. */
static void open_engine(const char *device)
{
    struct error err = ERROR_INIT;
    engine_destroy(&engine);
    if (fault_set("nan@run:1000000,plan=face_64 ; nan@run:1000000,plan=parser ; nan@run:1000000,plan=srvgg", &err) ||
        engine_create(&engine, device, NULL, store, NULL, &err))
        fail_msg("%s: %s", device, err.text);
}

/* options: name, value, ..., NULL */
static struct restoration *begin(const char *picture, int batch, const char *const *options)
{
    struct restoration *r = restoration_of(&input, picture, options);
    r->limits.batch = batch;
    return r;
}
#define OPTIONS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define DEFAULTS ((const char *const[]){NULL})

static struct restoration *run(const char *picture, int batch, const char *const *options)
{
    struct error err = ERROR_INIT;
    struct restoration *r = begin(picture, batch, options);
    if (engine_run(engine, r, &err))
        fail_msg("%s: %s", picture, err.text);
    return r;
}

static void check_near(struct restoration *a, struct restoration *b)
{
    assert_int_equal(a->result->width, b->result->width);
    assert_true(picture_difference(image_view(a->result), image_view(b->result), NULL) <= 1);
}

/* --- together ------------------------------------------------------------------------------------------------------
 */

static void check_batches(const char *device, bool both_seeds)
{
    static const char *const seeds[][3] = {{NULL}, {"seed", "7", NULL}};
    for (int s = both_seeds ? 0 : 1; s < 2; s++) {
        open_engine(device);
        struct restoration *one = run("two.png", 1, seeds[s]);
        assert_int_equal(one->face_count, 2);
        assert_int_equal(fault_seen(0), 2);
        assert_int_equal(fault_seen(1), 2);
        open_engine(device);
        struct restoration *both = run("two.png", 8, seeds[s]);
        assert_int_equal(fault_seen(0), 1);
        assert_int_equal(fault_seen(1), 1);
        assert_int_equal(both->faces_done, 2);
        check_near(one, both);
        restoration_destroy(&both);
        restoration_destroy(&one);
    }
    /* 4×2 tiles, four at a time; and feathered ones, which share sums */
    static const char *const networks[] = {"srvgg_x2", "upscaler"};
    for (int n = 0; n < 2; n++) {
        const char *const options[] = {"version", "none", "bg_upsampler", networks[n], "bg_tile", "64", NULL};
        open_engine(device);
        struct restoration *one = run("two.png", 1, options), *four = run("two.png", 4, options);
        assert_int_equal(one->tiles, 8);
        assert_int_equal(four->tiles_done, 8);
        assert_int_equal(fault_seen(2), n == 0 ? 8 + 2 : 0);
        check_near(one, four);
        restoration_destroy(&four);
        restoration_destroy(&one);
    }
}

static void test_batches(void **state)
{
    (void)state;
    check_batches("cpu", true);
    if (vulkan)
        check_batches("vulkan:0", full);
}

/* Where several do not fit, fewer do. */
static void test_smaller_batches(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    open_engine("cpu");
    struct restoration *wanted = run("two.png", 1, DEFAULTS);
    engine_destroy(&engine);
    assert_int_equal(fault_set("no_memory@plan:1,plan=face_64,over=5000,repeat", &err), OK);
    assert_int_equal(engine_create(&engine, "cpu", NULL, store, NULL, &err), OK);
    struct restoration *got = run("two.png", 2, DEFAULTS);
    assert_true(fault_injected() > 0);
    check_near(got, wanted);
    assert_int_equal(got->note_count, 0);
    restoration_destroy(&got);
    restoration_destroy(&wanted);
}

/* --- beside each other ---------------------------------------------------------------------------------------------
 */

static void test_overlap(void **state)
{
    (void)state;
    static const char *const cases[][8] = {{NULL},
                                           {"bg_upsampler", "upscaler", "bg_tile", "64", "upscale", "3", NULL},
                                           {"compat", "true", "bg_tile", "64", NULL},
                                           {"upscale", "1.5", NULL}, /* from here on in the long form */
                                           {"weight", "0.5", "parse", "false", NULL}};
    if (!vulkan)
        skip();
    for (size_t i = 0; i < (full ? sizeof cases / sizeof cases[0] : 3); i++) {
        open_engine("cpu");
        struct restoration *wanted = run("two.png", 0, cases[i]);
        open_engine("vulkan:0");
        struct restoration *got = run("two.png", 0, cases[i]);
        assert_int_equal(got->face_count, 2);
        assert_int_equal(got->tiles, wanted->tiles);
        check_near(got, wanted);
        double network = 0;
        for (int stage = 0; stage < STAGE_COUNT; stage++) {
            assert_true(got->network_ms[stage] >= 0 && got->network_ms[stage] <= got->stage_ms[stage]);
            network += got->network_ms[stage];
        }
        assert_true(network > 0 && network < got->total_ms);
        restoration_destroy(&got);
        restoration_destroy(&wanted);
    }
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Stopped at any moment, with whatever is on the device then: nothing is kept, and the next job works. */
static void test_stopped(void **state)
{
    (void)state;
    struct device_info info;
    if (!vulkan)
        skip();
    open_engine("vulkan:0");
    const char *const *options = OPTIONS("bg_tile", "64");
    struct restoration *wanted = run("two.png", 0, options);
    restoration_destroy(&wanted); /* that compiled the shaders */
    const int64_t start = now_ns();
    wanted = run("two.png", 0, options);
    const int64_t whole = now_ns() - start;
    engine_info(engine, &info);
    int stopped = 0;
    for (int i = 1; i <= 8; i++) {
        struct error err = ERROR_INIT;
        struct restoration *r = begin("two.png", 0, options);
        r->deadline_ns = now_ns() + whole * i / 11;
        const enum error_code code = engine_run(engine, r, &err);
        if (code != OK && code != ERROR_TIMEOUT)
            fail_msg("%s", err.text);
        stopped += code != OK;
        restoration_destroy(&r);
    }
    assert_true(stopped > 0);
    struct restoration *got = run("two.png", 0, options);
    assert_int_equal(picture_difference(image_view(got->result), image_view(wanted->result), NULL), 0);
    struct device_info after;
    engine_info(engine, &after);
    assert_int_equal(after.memory_used, info.memory_used);
    restoration_destroy(&got);
    restoration_destroy(&wanted);
}

/* --- ahead ---------------------------------------------------------------------------------------------------------
 */

static struct restoration *following; /* begun when all of another's work is on the device */
static int spared, repaired;          /* of those that follow: before they are computed */

static void spare(void *user)
{
    spared++;
    if (following)
        engine_ahead(user, following);
    repaired += following && following->repaired;
}

static struct restoration *begun(const char *picture, const char *const *options)
{
    struct error err = ERROR_INIT;
    struct restoration *r = begin(picture, 0, options);
    if (pipeline_begin(r, store, &err))
        fail_msg("%s", err.text);
    return r;
}

static void compute(struct restoration *r, struct restoration *next)
{
    struct error err = ERROR_INIT;
    following = next;
    if (engine_compute(engine, r, &err))
        fail_msg("%s", err.text);
    following = NULL;
}

static void check_ends(struct restoration *r, struct restoration *wanted, int fallbacks)
{
    struct error err = ERROR_INIT;
    assert_int_equal(pipeline_end(r, &err), OK);
    assert_int_equal(r->fallbacks, fallbacks);
    assert_int_equal(picture_difference(image_view(r->result), image_view(wanted->result), NULL), 0);
    restoration_destroy(&r);
}

/* Computed with a scratch, which the fixtures' damage detector finds, whether it looks or not. */
static struct restoration *begun_scratched(const char *picture, const char *const *options)
{
    struct restoration *r = begun(picture, options);
    for (int y = 10; y < 60; y++)
        for (int x = 50; x < 53; x++)
            memcpy((uint8_t *)r->picture->pixels + 3 * (size_t)(y * r->picture->width + x), (uint8_t[3]){0, 255, 0}, 3);
    return r;
}

/* The next picture is repaired, and its background begins, before the last one is over, and neither takes harm,
 * whatever comes of it. */
static void test_ahead(void **state)
{
    (void)state;
    static const char *const ways[][9] = {
        {"bg_tile", "64", "precision", "fp32", NULL},
        {"bg_tile", "64", "precision", "fp32", "damage_detector", "starter_damage", "fill", "filler", NULL},
        {"bg_tile", "auto", "precision", "fp32", NULL}, /* in the long form */
    };
    if (!vulkan)
        skip();
    for (int i = 0; i < (full ? 3 : 2); i++) {
        open_engine("vulkan:0");
        struct restoration *wanted = begun_scratched("two.png", ways[i]), *other = begun_scratched("none.png", ways[i]);
        compute(wanted, NULL);
        compute(other, NULL);
        engine_set_spare(engine, spare, engine);
        spared = repaired = 0;
        /* one after the other, of one size and of several */
        struct restoration *r[4];
        for (int k = 0; k < 4; k++)
            r[k] = begun_scratched(k == 2 ? "none.png" : "two.png", ways[i]);
        for (int k = 0; k < 4; k++) {
            compute(r[k], k + 1 < 4 ? r[k + 1] : NULL);
            assert_int_equal(r[k]->damage.defects[0], i == 1);
        }
        assert_int_equal(spared, 4);
        assert_int_equal(repaired, i == 1 ? 2 : 0); /* the last one is much larger than the one before */
        for (int k = 0; k < 4; k++)
            check_ends(r[k], k == 2 ? other : wanted, 0);
        restoration_destroy(&wanted);
        restoration_destroy(&other);
    }
}

static void test_ahead_in_vain(void **state)
{
    (void)state;
    const char *const *options = OPTIONS("bg_tile", "64", "precision", "fp32");
    const char *const *repair =
        OPTIONS("bg_tile", "64", "precision", "fp32", "damage_detector", "starter_damage", "fill", "filler");
    struct error err = ERROR_INIT;
    struct device_info before, after;
    if (!vulkan)
        skip();
    open_engine("vulkan:0");
    struct restoration *wanted = run("two.png", 0, options), *mended = begun_scratched("two.png", repair);
    compute(mended, NULL);
    engine_info(engine, &before);
    engine_set_spare(engine, spare, engine);
    /* one that was stopped; given up; computed all the same; never computed */
    struct restoration *first = begun("two.png", options), *next = begun("two.png", options);
    compute(first, next);
    atomic_store(&next->cancel, 1);
    assert_int_equal(engine_compute(engine, next, &err), ERROR_CANCELLED);
    error_clear(&err);
    check_ends(first, wanted, 0);
    restoration_destroy(&next);
    first = begun("two.png", options), next = begun("two.png", options);
    compute(first, next);
    engine_forget(engine);
    compute(next, NULL);
    check_ends(first, wanted, 0);
    check_ends(next, wanted, 0);
    engine_info(engine, &after);
    assert_int_equal(after.memory_used, before.memory_used);
    first = begun("two.png", options), next = begun("picture.png", options);
    compute(first, next);
    engine_destroy(&engine);
    restoration_destroy(&next);
    check_ends(first, wanted, 0);
    /* the first is done once more; the device is lost under it; and under the next one's repair */
    static const char *const faults[] = {"nan@run:1,plan=srvgg", "lost@run:4", "lost@run:2,plan=filler"};
    for (int k = 0; k < 3; k++) {
        assert_int_equal(fault_set(faults[k], &err), OK);
        assert_int_equal(engine_create(&engine, "vulkan:0", NULL, store, NULL, &err), OK);
        engine_set_spare(engine, spare, engine);
        first = k == 2 ? begun_scratched("two.png", repair) : begun("two.png", options);
        next = k == 2 ? begun_scratched("two.png", repair) : begun("two.png", options);
        compute(first, next);
        compute(next, NULL);
        assert_int_equal(fault_injected(), 1);
        check_ends(first, k == 2 ? mended : wanted, k == 0);
        check_ends(next, k == 2 ? mended : wanted, 0);
        engine_destroy(&engine);
    }
    restoration_destroy(&wanted);
    restoration_destroy(&mended);
}

/* --- memory --------------------------------------------------------------------------------------------------------
 */

/* With less memory than all networks take, they make room for each other, the background in the midst of it too. */
static void test_little_memory(void **state)
{
    (void)state;
    struct device_info info;
    const char *const *options = OPTIONS("bg_upsampler", "upscaler");
    if (!vulkan)
        skip();
    open_engine("vulkan:0");
    struct restoration *wanted = run("two.png", 0, options);
    engine_info(engine, &info);
    const uint64_t plenty = info.memory_peak;
    assert_true(plenty > 30 << 20);
    setenv("RESTORED_VULKAN_MEMORY", "27262976", 1); /* 26 MiB; weights are allocated 16 at a time */
    open_engine("vulkan:0");
    struct restoration *got = run("two.png", 0, options);
    engine_info(engine, &info);
    assert_int_equal(info.memory_total, 26 << 20);
    assert_true(info.memory_peak <= 26 << 20);
    assert_true(got->tiles > wanted->tiles);
    size_t differing;
    assert_true(picture_difference(image_view(got->result), image_view(wanted->result), &differing) <= 2); /* seams */
    restoration_destroy(&got);
    restoration_destroy(&wanted);
}

static void test_validation_is_silent(void **state)
{
    (void)state;
    assert_int_equal(vk_validation_count(), 0);
}

int main(void)
{
#define CASE(test) cmocka_unit_test_teardown(test, reset)
    const struct CMUnitTest tests[] = {
        CASE(test_batches), CASE(test_smaller_batches), CASE(test_overlap),       CASE(test_stopped),
        CASE(test_ahead),   CASE(test_ahead_in_vain),   CASE(test_little_memory), CASE(test_validation_is_silent),
    };
    return cmocka_run_group_tests_name("overlap", tests, open_store, close_store);
}
