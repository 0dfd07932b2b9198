/* Mapped files that others write to while they are read. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/file.h"
#include "runtime/base/thread.h"

#define PAGES 64
#define BYTES ((size_t)PAGES * 4096)

static char path[64];

/* A file of that many bytes, each 0xa5. */
static void write_file(size_t size)
{
    static unsigned char bytes[BYTES];
    memset(bytes, 0xa5, sizeof bytes);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static int make_path(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/test_file.XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static struct file map(void)
{
    struct file file;
    struct error err = ERROR_INIT;
    if (file_map(&file, path, &err))
        fail_msg("%s", err.text);
    return file;
}

struct reading {
    const struct file *file;
    unsigned char first[PAGES];
};

static void read_page(void *context, int item)
{
    struct reading *reading = context;
    reading->first[item] = ((const volatile uint8_t *)reading->file->data)[(size_t)item * 4096];
}

static void test_cut_off(void **state)
{
    (void)state;
    write_file(BYTES);
    struct file file = map(), other = map();
    struct reading reading = {.file = &file};
    assert_false(file_changed(&file));
    assert_int_equal(truncate(path, 4096), 0);
    thread_for(PAGES, read_page, &reading); /* on every thread there is */
    assert_int_equal(reading.first[0], 0xa5);
    for (int i = 1; i < PAGES; i++)
        assert_int_equal(reading.first[i], 0);
    assert_true(file_changed(&file));
    assert_true(file_changed(&other)); /* though nobody read it */
    file_unmap(&file);
    file_unmap(&other);
}

static void test_written(void **state)
{
    (void)state;
    write_file(BYTES);
    struct file file = map();
    struct file_id before = file_id(&file), now;
    assert_true(file_identify(&now, path));
    assert_true(file_same(&before, &now));
    usleep(20000); /* a file system's clock may be this coarse */
    write_file(BYTES);
    assert_true(file_changed(&file));
    assert_true(file_identify(&now, path));
    assert_false(file_same(&before, &now));
    file_unmap(&file);
    file = map();
    assert_false(file_changed(&file)); /* a slot that served before */
    assert_int_equal(unlink(path), 0);
    write_file(1);
    assert_false(file_changed(&file)); /* the old file is whole */
    before = file_id(&file);
    assert_true(file_identify(&now, path));
    assert_false(file_same(&before, &now));
    file_unmap(&file);
    assert_false(file_identify(&now, "/nowhere/at/all"));
}

/* A map that is not ours: as if there were no handler. */
static void test_others(void **state)
{
    int status;
    (void)state;
    write_file(BYTES);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGBUS, SIG_DFL); /* cmocka has one, too */
        struct file file = map();
        FILE *own = fopen(path, "rb");
        volatile const char *p = mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE, fileno(own), 0);
        alarm(20); /* where it would be answered for ever */
        if (p == MAP_FAILED || truncate(path, 0) != 0)
            _exit(1);
        _exit(file.data && p[BYTES - 1] ? 2 : 3);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
}

/* What is left half written: nobody has that number any more, or only this process, which writes nothing now. */
static void test_left(void **state)
{
    char name[64];
    (void)state;
    const pid_t child = fork();
    if (child == 0)
        _exit(0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    const long left[] = {child, getpid()};
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "a.png.%ld.part", left[i]);
        assert_true(file_is_left(name));
    }
    snprintf(name, sizeof name, "a.png.%ld.part", (long)getppid());
    assert_false(file_is_left(name));
    static const char *const other[] = {".part",   "a.part", "12.part", "a.png.0.part", "a.png.99999999999.part",
                                        "a.png.12"};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        assert_false(file_is_left(other[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_off),
        cmocka_unit_test(test_written),
        cmocka_unit_test(test_others),
        cmocka_unit_test(test_left),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
