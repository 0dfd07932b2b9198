/* A device that was prepared for usual pictures: the first one compiles nothing and brings no weights. On every usable
 * Vulkan device, with the fixtures' networks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/vulkan/vk_pipeline.h"
#include "server/job/engine.h"
#include "tests/common/models.h"
#include "tests/common/shared.h"

static char device_id[32];
static struct model_store *store;

static int open_store(void **state)
{
    (void)state;
    log_set_level(LOG_ERROR);
    store = models_of_fixtures();
    return 0;
}

static int close_store(void **state)
{
    (void)state;
    model_store_destroy(&store);
    return 0;
}

static struct restoration *begin(struct file *input, const char *picture)
{
    char path[512];
    struct error err = ERROR_INIT;
    struct restoration *r;
    snprintf(path, sizeof path, "%s/%s", shared_fixtures(), picture);
    if (restoration_create(&r, &err) || file_map(input, path, &err))
        fail_msg("%s", err.text);
    r->input = input->data;
    r->input_bytes = input->size;
    return r;
}

/* All usual shapes that the device has room for; how many those were. */
static int warm(struct worker_context *worker)
{
    int warmed = 0;
    for (int role = 0; role < ROLE_COUNT; role++) {
        const struct model_entry *entry;
        const struct model_info *info;
        struct session *session;
        struct session_shape shape;
        struct error err = ERROR_INIT;
        if (model_store_resolve(store, (enum model_role)role, NULL, &entry, &err))
            fail_msg("%s", err.text);
        if (!entry) /* no detector of damage */
            continue;
        if (model_set_session(worker->models, entry, PRECISION_AUTO, &session, &info, &err))
            fail_msg("%s", err.text);
        for (int i = 0; model_usual_shape(info, i, &shape); i++) {
            bool whole = false;
            if (role == ROLE_PARSER)
                shape.h = shape.w = 64; /* as the fixtures' faces are */
            const enum error_code code = session_warm(session, &shape, true, &whole, &err);
            if (code != OK && code != ERROR_TOO_LARGE && code != ERROR_NO_MEMORY)
                fail_msg("%s", err.text);
            assert_true(whole);
            warmed += code == OK;
            error_clear(&err);
        }
    }
    return warmed;
}

static void test_first_picture(void **state)
{
    (void)state;
    struct worker_context worker = {.store = store};
    struct file input;
    struct error err = ERROR_INIT;
    struct device_info before, after;
    if (device_open(&worker.device, device_id, NULL, &err) ||
        model_set_create(&worker.models, store, worker.device, &err))
        fail_msg("%s", err.text);
    struct vk_device *device = (struct vk_device *)worker.device;
    device->prepares = false;
    assert_true(warm(&worker) > 0);
    assert_int_equal(vk_pipeline_count(device), device->matrix); /* matrices take a look at themselves */
    device->prepares = true;
    assert_true(warm(&worker) >= 12);
    const uint32_t pipelines = vk_pipeline_count(device);
    device_info(worker.device, &before);
    assert_true(pipelines > 10);
    assert_true(before.memory_used > 0); /* weights */

    struct restoration *r = begin(&input, "two.png");
    if (pipeline_run(r, &worker, &err))
        fail_msg("%s", err.text);
    assert_int_equal(r->face_count, 2);
    device_info(worker.device, &after);
    assert_int_equal(vk_pipeline_count(device), pipelines);
    model_set_trim(worker.models, NULL); /* plans and weights: all that was there before, and all that is now */
    device_info(worker.device, &after);
    assert_int_equal(after.memory_used, 0);
    restoration_destroy(&r);
    file_unmap(&input);
    model_set_destroy(&worker.models);
    device_close(&worker.device);
}

/* The same as a worker does it. */
static void test_engine(void **state)
{
    (void)state;
    char loaded[ROLE_COUNT][128];
    struct engine *engine;
    struct device_info info;
    struct file input;
    struct error err = ERROR_INIT;
    setenv("RESTORED_VULKAN_PREPARE", "1", 1);
    if (engine_create(&engine, device_id, NULL, store, NULL, &err) || engine_preload(engine, loaded, &err))
        fail_msg("%s", err.text);
    unsetenv("RESTORED_VULKAN_PREPARE");
    assert_string_equal(loaded[ROLE_FACE], "face_64");
    assert_string_equal(loaded[ROLE_UPSCALER], "srvgg_x2");
    engine_info(engine, &info);
    assert_true(info.memory_used > 0);
    while (engine_unprepared(engine)) /* on a device that measures */
        assert_int_equal(engine_prepare(engine, &err), OK);
    assert_int_equal(engine_prepare(engine, &err), OK); /* nothing left */
    struct restoration *r = begin(&input, "two.png");
    if (engine_run(engine, r, &err))
        fail_msg("%s", err.text);
    assert_int_equal(r->face_count, 2);
    restoration_destroy(&r);
    file_unmap(&input);
    engine_destroy(&engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_first_picture), cmocka_unit_test(test_engine)};
    struct device_info *list = NULL;
    size_t count = 0;
    struct error err = ERROR_INIT;
    int failed = 0, used = 0;
    if (device_list(&list, &count, &err) != OK)
        return 1;
    for (size_t i = 0; i < count; i++) {
        if (!list[i].usable || strcmp(list[i].backend, "vulkan") != 0)
            continue;
        snprintf(device_id, sizeof device_id, "%s", list[i].id);
        printf("%s: %s\n", list[i].id, list[i].name);
        failed += cmocka_run_group_tests_name("warm", tests, open_store, close_store);
        used++;
    }
    free(list);
    if (used == 0)
        fprintf(stderr, "there is no usable Vulkan device\n");
    return failed || used == 0;
}
