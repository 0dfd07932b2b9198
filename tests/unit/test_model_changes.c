/* The model store while others change its folders, and on folders that somebody made to hurt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "server/pipeline/model_store_private.h"
#include "tests/common/models.h"
#include "tests/common/shared.h"

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    log_set_level(LOG_ERROR);
    snprintf(folder, sizeof folder, "/tmp/test_model_changes.XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

/* A fixture's copy, put in place of what was there by renaming, as `make models` does. */
static void put(const char *fixture, const char *name)
{
    char from[512], to[512];
    struct file file;
    struct error err = ERROR_INIT;
    snprintf(from, sizeof from, "%s/%s.safetensors", shared_fixtures(), fixture);
    snprintf(to, sizeof to, "%s/%s", folder, name);
    if (file_map(&file, from, &err) || file_write(to, file.data, file.size, &err))
        fail_msg("%s", err.text);
    file_unmap(&file);
}

static void test_replaced(void **state)
{
    struct error err = ERROR_INIT;
    const struct model *model, *newer;
    (void)state;
    put("srvgg_x2", "up.safetensors");
    struct model_store *store = models_of(folder, NULL);
    const struct model_entry *before = models_resolve(store, ROLE_UPSCALER, "up");
    assert_int_equal(before->info.scale, 2);
    assert_int_equal(model_store_hold(&model, before, &err), OK);
    put("srvgg_x4", "up.safetensors");
    const struct model_entry *after = models_resolve(store, ROLE_UPSCALER, "up"); /* at once, not at the next look */
    assert_ptr_not_equal(after, before);
    assert_int_equal(after->info.scale, 4);
    assert_true(model_store_replaced(before));
    assert_false(model_store_replaced(after));
    assert_int_equal(model_info(model)->scale, 2); /* who holds the old one goes on */
    assert_int_equal(model_store_hold(&newer, after, &err), OK);
    assert_int_equal(model_info(newer)->scale, 4);
    model_store_release(after);
    model_store_release(before);
    assert_int_equal(model_store_hold(&model, before, &err), ERROR_IO); /* its file is gone */
    assert_non_null(strstr(err.text, "up.safetensors: the file was just replaced"));
    error_clear(&err);
    put("srvgg_x2", "up.safetensors");
    assert_int_equal(model_store_hold(&model, after, &err), ERROR_IO); /* between the look and the opening */
    error_clear(&err);
    after = models_resolve(store, ROLE_UPSCALER, "up");
    assert_int_equal(after->info.scale, 2);
    put("detector", "up.safetensors");
    assert_int_equal(model_store_resolve(store, ROLE_UPSCALER, "up", &after, &err), ERROR_INVALID);
    assert_string_equal(err.text, "bg_upsampler: up is not an upscaler but a detector");
    error_clear(&err);
    char path[512];
    snprintf(path, sizeof path, "%s/up.safetensors", folder);
    assert_int_equal(unlink(path), 0);
    store->looked_ns = 0; /* a second has passed */
    assert_int_equal(model_store_resolve(store, ROLE_UPSCALER, "up", &after, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "up is not installed"));
    model_store_destroy(&store);
}

/* Files that come later, in folders that come later. */
static void test_added(void **state)
{
    struct error err = ERROR_INIT;
    const struct model_entry *entry;
    char path[512];
    (void)state;
    struct model_store *store = models_of(folder, NULL);
    const uint64_t generation = model_store_refresh(store);
    assert_int_equal(model_store_resolve(store, ROLE_FACE, NULL, &entry, &err), ERROR_NOT_FOUND);
    error_clear(&err);
    const size_t missing = store->missing_count;
    snprintf(path, sizeof path, "%s/official", folder);
    assert_int_equal(mkdir(path, 0777), 0);
    put("face", "official/GFPGANv1.3.safetensors");
    put("srvgg_x2", "other.safetensors");
    store->looked_ns = 0;
    entry = models_resolve(store, ROLE_FACE, NULL);
    assert_string_equal(entry->name, "GFPGANv1.3");
    assert_true(entry->is_default);
    assert_int_equal(model_store_count(store), 2);
    assert_int_equal(store->missing_count, missing - 1);
    assert_true(model_store_refresh(store) != generation);
    model_store_hash(store);
    put("srvgg_x4", "third.safetensors");
    store->looked_ns = 0;
    model_store_refresh(store);
    assert_int_equal(model_store_count(store), 3);
    for (size_t i = 0; i < 3; i++) { /* what is as it was need not be read again */
        entry = model_store_at(store, i);
        assert_int_equal(entry->sha256[0] != 0, strcmp(entry->name, "third") != 0);
        assert_string_equal(entry->known_as, ""); /* the official file of that name is another */
    }
    model_store_destroy(&store);
}

static void test_names(void **state)
{
    (void)state;
    put("srvgg_x2", "w\xff\033[2J.safetensors");
    put("srvgg_x2", "w\xfe\033[2J.safetensors");
    put("srvgg_x2", "\xc3\xa4.safetensors");
    char path[512];
    snprintf(path, sizeof path, "%s/\033]0;bad\x07.pth", folder);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
    struct model_store *store = models_of(folder, NULL);
    assert_int_equal(model_store_count(store), 4);
    for (size_t i = 0; i < 4; i++) {
        const struct model_entry *e = model_store_at(store, i);
        assert_null(strpbrk(e->name, "\033\xff\xfe\x07"));
        assert_null(strpbrk(e->shown, "\033\xff\xfe\x07"));
        assert_null(strpbrk(e->reason, "\033\xff\xfe\x07"));
    }
    models_resolve(store, ROLE_UPSCALER, "w\\xFF\\x1B[2J");
    models_resolve(store, ROLE_UPSCALER, "w\\xFE\\x1B[2J");
    const struct model_entry *plain = models_resolve(store, ROLE_UPSCALER, "\xc3\xa4");
    const struct model *model;
    struct error err = ERROR_INIT;
    assert_int_equal(model_store_hold(&model, plain, &err), OK);
    model_store_release(plain);
    model_store_destroy(&store);
}

/* Folders that are linked to each other: without a bound some 12^6 ways through them. */
static void test_links(void **state)
{
    enum { FOLDERS = 40 };
    char from[512], to[512];
    (void)state;
    for (int i = 0; i < FOLDERS; i++) {
        snprintf(from, sizeof from, "%s/%d", folder, i);
        assert_int_equal(mkdir(from, 0777), 0);
        for (int k = 0; k < FOLDERS; k++) {
            snprintf(from, sizeof from, "../%d", k);
            snprintf(to, sizeof to, "%s/%d/link%d", folder, i, k);
            assert_int_equal(symlink(from, to), 0);
        }
    }
    put("srvgg_x2", "7/deep.safetensors");
    struct model_store *store = models_of(folder, NULL);
    assert_int_equal(model_store_count(store), 1);
    assert_true(store->list.folder_count <= FOLDERS + 2);
    model_store_destroy(&store);
}

static int files_left;
static bool stop_after(void)
{
    return files_left-- <= 0;
}

static void test_cancelled(void **state)
{
    struct model_store *store;
    struct error err = ERROR_INIT;
    const struct model_defaults defaults = {.cancelled = stop_after};
    (void)state;
    for (char name[] = "a.safetensors"; name[0] < 'f'; name[0]++)
        put("srvgg_x2", name);
    files_left = 3;
    assert_int_equal(model_store_create(&store, folder, &defaults, &err), ERROR_CANCELLED);
    assert_null(store);
    files_left = 5;
    error_clear(&err);
    assert_int_equal(model_store_create(&store, folder, &defaults, &err), OK);
    model_store_stop(store);
    model_store_hash(store);
    assert_string_equal(model_store_at(store, 0)->sha256, "");
    model_store_destroy(&store);
}

/* Detectors of other names than the official ones. */
static void test_choice(void **state)
{
    const struct model_entry *entry;
    struct error err = ERROR_INIT;
    (void)state;
    put("detector", "mine.safetensors");
    put("detector_resnet50", "yours.safetensors");
    put("srvgg_x2", "own.safetensors");
    struct model_store *store = models_of(folder, NULL);
    assert_int_equal(model_store_resolve(store, ROLE_DETECTOR, NULL, &entry, &err), ERROR_NOT_FOUND);
    assert_string_equal(err.text,
                        "no official detector is installed, and none was chosen; there are mine, yours: choose "
                        "one with detector=mine, or set default_detector=mine in the configuration");
    error_clear(&err);
    assert_int_equal(model_store_resolve(store, ROLE_FACE, NULL, &entry, &err), ERROR_NOT_FOUND);
    assert_non_null(strstr(err.text, "no face network is installed"));
    error_clear(&err);
    assert_int_equal(model_store_resolve(store, ROLE_DETECTOR, "nope", &entry, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "detector: nope is not installed; there are mine, yours; nope.pth"));
    error_clear(&err);
    assert_int_equal(model_store_resolve(store, ROLE_FACE, "nope", &entry, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "version: nope is not installed; nope.pth"));
    error_clear(&err);
    assert_int_equal(model_store_resolve(store, ROLE_UPSCALER, "nope", &entry, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "bg_upsampler: nope is not installed; there is own; nope.pth"));
    model_store_destroy(&store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_replaced, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_added, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_names, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_links, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_cancelled, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_choice, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
