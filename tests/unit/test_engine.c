/* What an engine keeps between jobs: within its budget, for as long as it is to, and the same results afterwards. On
 * the device "cpu" and, where there is Vulkan, on "vulkan:0". */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "server/job/engine.h"
#include "tests/common/models.h"
#include "tests/common/picture.h"
#include "tests/common/shared.h"

#define HOUR_MS 3600000

static struct model_store *store;
static struct engine *engine;
static struct file input;
static bool vulkan;

static int open_store(void **state)
{
    (void)state;
    char path[512];
    struct error err = ERROR_INIT;
    struct device *device;
    log_set_level(LOG_ERROR);
    snprintf(path, sizeof path, "%s/two.png", shared_fixtures());
    store = models_of_fixtures();
    if (file_map(&input, path, &err))
        fail_msg("%s", err.text);
    vulkan = device_open(&device, "vulkan:0", NULL, &err) == OK;
    if (vulkan)
        device_close(&device);
    return 0;
}

static int close_store(void **state)
{
    (void)state;
    file_unmap(&input);
    model_store_destroy(&store);
    return 0;
}

static int reset(void **state)
{
    (void)state;
    engine_destroy(&engine);
    return 0;
}

static void open_engine(const char *device)
{
    struct error err = ERROR_INIT;
    if (engine_create(&engine, device, NULL, store, NULL, &err))
        fail_msg("%s", err.text);
}

static uint64_t used(void)
{
    struct device_info info;
    engine_info(engine, &info);
    return info.memory_used;
}

/* upscaler NULL: the default. */
static struct restoration *run(const char *upscaler)
{
    struct error err = ERROR_INIT;
    struct restoration *r;
    if (restoration_create(&r, &err) || (upscaler && options_set(&r->options, "bg_upsampler", upscaler, &err)))
        fail_msg("%s", err.text);
    r->input = input.data;
    r->input_bytes = input.size;
    if (engine_run(engine, r, &err))
        fail_msg("%s", err.text);
    assert_int_equal(r->face_count, 2);
    return r;
}

static void run_again(const struct restoration *before)
{
    struct restoration *r = run(NULL);
    assert_int_equal(picture_difference(image_view(r->result), image_view(before->result), NULL), 0);
    restoration_destroy(&r);
}

static void gives_back(const char *device)
{
    open_engine(device);
    const uint64_t opened = used();
    assert_int_equal(engine_give_back(engine, 0), -1); /* nothing is there yet */
    struct restoration *first = run(NULL);
    const uint64_t worked = used();
    const int left_ms = engine_give_back(engine, HOUR_MS);
    assert_true(left_ms > 0 && left_ms <= ENGINE_REST_MS); /* until buffers go */
    assert_true(used() <= worked);
    assert_int_equal(engine_give_back(engine, 0), -1);
    const uint64_t weights = used();
    assert_true(weights > opened && weights < worked);
    assert_int_equal(engine_give_back(engine, 0), -1);
    run_again(first);
    assert_int_equal(used(), worked);

    engine_give_back(engine, 0);
    struct restoration *other = run("upscaler"); /* no default: its weights go, too */
    assert_true(used() > weights);
    assert_int_equal(engine_give_back(engine, 0), -1);
    assert_int_equal(used(), weights);
    run_again(first);
    restoration_destroy(&other);
    restoration_destroy(&first);
}

/* What is kept of a plan costs little: its buffers may go, and its results stay. */
static void rests(void **state)
{
    (void)state;
    const struct timespec pause = {0, 50000000};
    open_engine("cpu");
    struct restoration *first = run(NULL);
    const uint64_t worked = used();
    int left_ms;
    while ((left_ms = engine_give_back(engine, HOUR_MS)) <= ENGINE_REST_MS)
        nanosleep(&pause, NULL);
    assert_true(left_ms <= HOUR_MS); /* the plans are still there */
    const uint64_t rested = used();
    assert_true(rested < worked);
    engine_give_back(engine, 0);
    assert_true(used() < rested);
    run_again(first);
    assert_int_equal(used(), worked);
    restoration_destroy(&first);
}

/* Bytes of this process that are in memory. */
static size_t resident(void)
{
    unsigned long size, pages;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lu %lu", &size, &pages), 2);
    fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* The holes that malloc has between what is kept, while jobs follow each other without a pause. */
static void holes_are_given_back(void **state)
{
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    skip(); /* its malloc is another */
#endif
    enum { COUNT = 2048, BLOCK = 65536, KEPT = 32 }; /* of 128 MiB one block in 32 is kept */
    static void *blocks[COUNT];
    open_engine("cpu");
    for (int i = 0; i < COUNT; i++) {
        assert_non_null(blocks[i] = malloc(BLOCK));
        memset(blocks[i], 1, BLOCK);
    }
    for (int i = 0; i < COUNT; i++)
        if (i % KEPT)
            free(blocks[i]);
    const size_t full = resident();
    struct restoration *r = run(NULL);
    assert_true(resident() < full - COUNT * BLOCK / 2);
    restoration_destroy(&r);
    for (int i = 0; i < COUNT; i += KEPT)
        free(blocks[i]);
}

static void what_was_not_used_is_given_back(void **state)
{
    gives_back("cpu");
    reset(state);
    if (vulkan)
        gives_back("vulkan:0");
}

static void the_budget_holds(const char *device)
{
    open_engine(device);
    struct restoration *first = run(NULL);
    const uint64_t worked = used();
    engine_give_back(engine, 0);
    const uint64_t weights = used();
    const uint64_t budget = weights + (worked - weights) / 2;
    engine_set_memory(engine, 2 * budget, 2); /* half of it is this engine's */
    for (int i = 0; i < 2; i++) {
        run_again(first);
        assert_true(used() <= budget);
        struct restoration *other = run("upscaler");
        assert_true(used() <= budget);
        restoration_destroy(&other);
    }
    engine_set_memory(engine, 1, 1); /* at once, and after each job: the default models' weights stay */
    assert_int_equal(used(), weights);
    run_again(first);
    assert_int_equal(used(), weights);
    restoration_destroy(&first);
}

static void a_job_leaves_no_more_than_the_budget(void **state)
{
    the_budget_holds("cpu");
    reset(state);
    if (vulkan)
        the_budget_holds("vulkan:0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(what_was_not_used_is_given_back, reset),
        cmocka_unit_test_teardown(rests, reset),
        cmocka_unit_test_teardown(holes_are_given_back, reset),
        cmocka_unit_test_teardown(a_job_leaves_no_more_than_the_budget, reset),
    };
    return cmocka_run_group_tests(tests, open_store, close_store);
}
