/* A model's file that others write to while it is in use. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/models/model.h"
#include "tests/common/shared.h"

#define SIDE 24

static char path[64];

static void copy_fixture(const char *name)
{
    char from[512];
    struct file file;
    struct error err = ERROR_INIT;
    snprintf(from, sizeof from, "%s/%s.safetensors", shared_fixtures(), name);
    if (file_map(&file, from, &err) || file_write(path, file.data, file.size, &err))
        fail_msg("%s", err.text);
    file_unmap(&file);
}

static int make_path(void **state)
{
    (void)state;
    log_set_level(LOG_ERROR);
    snprintf(path, sizeof path, "/tmp/test_model_file.XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static enum error_code run(struct session *session, int side, float *out, struct error *err)
{
    static float in[3 * 2 * SIDE * 2 * SIDE];
    const struct session_shape shape = {.n = 1, .h = side, .w = side};
    for (size_t i = 0; i < sizeof in / sizeof in[0]; i++)
        in[i] = (float)(i % 7) / 7;
    return session_run(session, &shape, (const float *[]){in}, (float *[]){out}, NULL, err);
}

/* Cut off in place, or written over in place, between two plans. */
static void changed_in_use(const char *device_name, bool cut)
{
    static float before[3 * 16 * SIDE * SIDE * 4], after[3 * 16 * SIDE * SIDE * 4];
    struct error err = ERROR_INIT;
    struct device *device;
    struct model *model;
    struct session *session = NULL;
    copy_fixture("rrdb_x4");
    if (device_open(&device, device_name, NULL, &err) || model_open(&model, path, NULL, &err) ||
        model_session(&session, model, device, PRECISION_FP32, &err) || run(session, SIDE, before, &err))
        fail_msg("%s", err.text);
    if (cut) {
        assert_int_equal(truncate(path, 4096), 0);
    } else {
        usleep(20000); /* a file system's clock may be this coarse */
        FILE *file = fopen(path, "r+b");
        assert_non_null(file);
        assert_int_equal(fseek(file, 100000, SEEK_SET), 0);
        assert_int_equal(fputc('x', file), 'x');
        assert_int_equal(fclose(file), 0);
    }
    if (strcmp(device_name, "reference") == 0) { /* reads the values at each run */
        assert_int_equal(run(session, SIDE, after, &err), ERROR_IO);
        error_clear(&err);
    } else { /* what was read before serves on */
        if (run(session, SIDE, after, &err))
            fail_msg("%s", err.text);
        assert_memory_equal(before, after, 3 * 16 * SIDE * SIDE * sizeof(float));
    }
    assert_int_equal(run(session, SIDE + 4, after, &err), ERROR_IO);
    assert_non_null(strstr(err.text, "changed or cut off"));
    assert_non_null(strstr(err.text, path));
    error_clear(&err);
    assert_int_equal(run(session, SIDE + 8, after, &err), ERROR_IO); /* and for good */
    session_destroy(&session);
    model_forget(model, device);
    model_close(&model);
    error_clear(&err);

    copy_fixture("rrdb_x4");
    if (model_open(&model, path, NULL, &err) || model_session(&session, model, device, PRECISION_FP32, &err) ||
        run(session, SIDE, after, &err))
        fail_msg("%s", err.text);
    assert_memory_equal(before, after, 3 * 16 * SIDE * SIDE * sizeof(float));
    session_destroy(&session);
    model_forget(model, device);
    model_close(&model);
    device_close(&device);
}

static void test_cut_off(void **state)
{
    (void)state;
    changed_in_use("cpu", true);
    changed_in_use("reference", true);
}

static void test_written(void **state)
{
    (void)state;
    changed_in_use("cpu", false);
}

/* On whatever GPU there is, software included. */
static void test_on_gpus(void **state)
{
    struct device_info *list;
    size_t count;
    struct error err = ERROR_INIT;
    (void)state;
    if (device_list(&list, &count, &err))
        fail_msg("%s", err.text);
    for (size_t i = 0; i < count; i++)
        if (list[i].usable && list[i].type != DEVICE_CPU)
            changed_in_use(list[i].id, true);
    free(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_off),
        cmocka_unit_test(test_written),
        cmocka_unit_test(test_on_gpus),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
