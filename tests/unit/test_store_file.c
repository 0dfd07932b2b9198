/* The file of the store of jobs: foreign, damaged, read-only, on a full disk, or left by a process that was killed. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/common/store_case.h"

/* --- small words for what the tests do -----------------------------------------------------------------------------
 */

/* A text of so many bytes; free(). */
static char *text_of(char letter, size_t bytes)
{
    char *text = malloc(bytes + 1);
    assert_non_null(text);
    memset(text, letter, bytes);
    text[bytes] = 0;
    return text;
}

static uint8_t *read_whole(const char *name, size_t *size)
{
    FILE *f = fopen(name, "rb");
    assert_non_null(f);
    uint8_t *data = malloc(1 << 20);
    assert_non_null(data);
    *size = fread(data, 1, 1 << 20, f);
    assert_true(*size < 1 << 20);
    fclose(f);
    return data;
}

static void write_whole(const char *name, const void *data, size_t size)
{
    FILE *f = fopen(name, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

/* The store does not open, says so, and leaves the file as it is. */
static void expect_refused(enum error_code code, const char *text)
{
    size_t size, after;
    uint8_t *data = read_whole(case_path, &size);
    case_err = (struct error)ERROR_INIT;
    assert_int_equal(store_open(&case_store, case_path, &case_err), code);
    assert_null(case_store);
    assert_non_null(strstr(case_err.text, text));
    assert_non_null(strstr(case_err.text, case_path));
    uint8_t *now = read_whole(case_path, &after);
    assert_int_equal(after, size);
    assert_memory_equal(now, data, size);
    free(data);
    free(now);
}

/* open() of the process comes here, by the name of its symbol: the headers may have made a macro of the function's. */
static int open_fails_with;

int open_of_tests(const char *name, int flags, int mode) __asm__("open");
int open_of_tests(const char *name, int flags, int mode)
{
    if (open_fails_with && flags & O_CREAT && strstr(name, ".new")) {
        errno = open_fails_with;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, name, flags, mode);
}

/* A disk that is full, or the user's share of it, is told from one that is broken. */
static void test_no_room_to_make(void **state)
{
    static const int causes[] = {ENOSPC, EDQUOT, EIO};
    (void)state;
    store_close(&case_store);
    case_remove_files();
    for (int i = 0; i < 3; i++) {
        case_err = (struct error)ERROR_INIT;
        open_fails_with = causes[i];
        const enum error_code code = store_open(&case_store, case_path, &case_err);
        open_fails_with = 0;
        assert_int_equal(code, causes[i] == EIO ? ERROR_IO : ERROR_FULL);
        assert_null(case_store);
    }
}

static void test_foreign(void **state)
{
    (void)state;
    char journal[128];
    case_put("a1", "a");
    store_close(&case_store);
    case_sql("PRAGMA user_version = 5");
    expect_refused(ERROR_UNSUPPORTED, "newer version");
    case_sql("ALTER TABLE jobs DROP COLUMN progress"); /* what the first version had is brought up to date */
    case_sql("ALTER TABLE jobs DROP COLUMN needs");
    case_sql("DROP TABLE workers");
    case_sql("DROP TABLE hooks");
    case_sql("PRAGMA user_version = 1");
    FINE(store_open(&case_store, case_path, &case_err));
    case_expect_queued(1);
    store_close(&case_store);
    assert_int_equal(case_sql("PRAGMA user_version"), 4);
    case_sql("PRAGMA application_id = 0");
    expect_refused(ERROR_CORRUPT, "another program's file");
    case_sql("PRAGMA application_id = 1920169060");
    case_sql("CREATE TABLE more (x)");
    expect_refused(ERROR_CORRUPT, "damaged");
    case_sql("DROP TABLE more");
    case_sql("DROP INDEX jobs_expires");
    expect_refused(ERROR_CORRUPT, "damaged");
    case_remove_files();
    write_whole(case_path, "", 0);
    expect_refused(ERROR_CORRUPT, "another program's file");
    write_whole(case_path, "This is a letter, and no database of any kind.\n", 47);
    expect_refused(ERROR_CORRUPT, "damaged");
    case_remove_files();
    snprintf(journal, sizeof journal, "%s-wal", case_path);
    write_whole(journal, "some frames", 11);
    case_err = (struct error)ERROR_INIT;
    assert_int_equal(store_open(&case_store, case_path, &case_err), ERROR_CORRUPT);
    assert_non_null(strstr(case_err.text, "journal"));
    case_remove_files();
    assert_int_equal(mkdir(case_path, 0700), 0);
    case_err = (struct error)ERROR_INIT;
    assert_int_equal(store_open(&case_store, case_path, &case_err), ERROR_IO);
    assert_int_equal(rmdir(case_path), 0);
}

/* What was committed is there after the process has died: the files as they lie, copied. A start that was cut off while
 * it made the file is made again. */
static void test_killed(void **state)
{
    (void)state;
    size_t size, journal_size;
    char name[128];
    case_put("a1", "a");
    FINE(store_begin(case_store, &case_err));
    case_put("a2", "a"); /* not committed */
    uint8_t *data = read_whole(case_path, &size);
    snprintf(name, sizeof name, "%s-wal", case_path);
    uint8_t *journal = read_whole(name, &journal_size);
    assert_true(journal_size > 0);
    store_close(&case_store);
    case_remove_files();
    write_whole(case_path, data, size);
    write_whole(name, journal, journal_size);
    FINE(store_open(&case_store, case_path, &case_err));
    case_expect_order("a1");
    store_close(&case_store);
    case_remove_files();
    snprintf(name, sizeof name, "%s.new", case_path);
    write_whole(name, data, size / 2);
    FINE(store_open(&case_store, case_path, &case_err));
    case_expect_queued(0);
    struct stat stat_of;
    assert_int_equal(stat(case_path, &stat_of), 0);
    assert_int_equal(stat_of.st_mode & 0777, 0600);
    assert_int_equal(access(name, F_OK), -1);
    free(data);
    free(journal);
}

static void test_read_only(void **state)
{
    (void)state;
    int status;
    store_close(&case_store);
    assert_int_equal(chmod(case_path, 0444), 0);
    assert_int_equal(chmod(case_folder, 0555), 0);
    const pid_t child = fork(); /* root may write anywhere */
    if (child == 0) {
        if (geteuid() == 0 && setuid(65534))
            _exit(9);
        enum error_code code = store_open(&case_store, case_path, &case_err);
        _exit(code == ERROR_IO && !case_store && strstr(case_err.text, case_path) ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(chmod(case_folder, 0700), 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void ignore_file(void *context, const char *id, bool input, bool output)
{
    assert_false(input && output);
    if (*id) /* else the row is damaged */
        case_ignore_id(context, id);
}

#define TRY(call)                                                                                                      \
    (failed += ((case_err = (struct error)ERROR_INIT, (call)) != OK), assert_true(!case_err.code || *case_err.text))

static int use_everything(void)
{
    struct store_filter filter = {.limit = 100};
    struct store_counts counts;
    struct store_job job = case_job("new1", "a");
    enum store_inserted what;
    enum store_state before;
    bool more, found, held, cancel;
    char existing[33], id[16];
    uint64_t number;
    double seconds;
    int failed = 0;
    TRY(store_list(case_store, &filter, case_ignore_job, NULL, &more, &case_err));
    filter = (struct store_filter){.limit = 5, .token = "t", .batch = "b", .states = 5, .after = "d3"};
    TRY(store_list(case_store, &filter, case_ignore_job, NULL, &more, &case_err));
    TRY(store_count(case_store, NULL, NULL, &counts, &case_err));
    TRY(store_count(case_store, "b", "t", &counts, &case_err));
    TRY(store_waiting(case_store, "a", "[]", &number, &case_err));
    TRY(store_position(case_store, "d19", &number, &seconds, &found, 0, NULL, NULL, &case_err));
    TRY(store_files(case_store, ignore_file, NULL, &case_err));
    for (int i = 0; i < 20; i++) {
        snprintf(id, sizeof id, "d%d", i);
        TRY(store_get(case_store, id, &job, &found, &case_err));
        store_job_clear(&job);
    }
    TRY(store_begin(case_store, &case_err));
    job = case_job("new1", "a");
    TRY(store_insert(case_store, &job, "k1", (const uint8_t[32]){0}, &what, existing, &case_err));
    TRY(store_cancel(case_store, "d17", 1, 2, &before, &found, &case_err));
    TRY(store_renew(case_store, "d18", "me", 1, 9, &held, &cancel, &case_err));
    TRY(store_give_back(case_store, "d16", "me", 1, &case_err));
    TRY(store_recover(case_store, 1, 2, 3, &case_err));
    TRY(store_claim(case_store, "me", 5000, 6000, 9000, 3, &job, &found, NULL, NULL, &case_err));
    if (!case_err.code && found) {
        job.state = STORE_DONE;
        TRY(store_finish(case_store, &job, "me", &held, &case_err));
    }
    store_job_clear(&job);
    TRY(store_forget(case_store, "d2", &found, &case_err));
    TRY(store_expire(case_store, INT64_MAX / 2, 100, case_ignore_id, NULL, &case_err));
    store_rollback(case_store);
    return failed;
}

/* Jobs in every state, with keys, batches and results. */
static void put_many(void)
{
    struct store_job job;
    bool held;
    char key[16];
    FINE(store_begin(case_store, &case_err));
    for (int i = 0; i < 20; i++) {
        job = case_job("", i % 3 ? "a" : "b");
        snprintf(job.id, sizeof job.id, "d%d", i);
        snprintf(job.token, sizeof job.token, "%s", i % 2 ? "t" : "");
        snprintf(job.batch, sizeof job.batch, "%s", i % 3 ? "b" : "");
        snprintf(key, sizeof key, "k%d", i);
        FINE(store_insert(case_store, &job, key, (const uint8_t[32]){0}, &(enum store_inserted){0}, (char[33]){0},
                          &case_err));
    }
    for (int i = 0; i < 15; i++) {
        assert_true(case_claim(&job, 2000));
        job.state = (enum store_state)(STORE_DONE + i % 3);
        job.expires = 3000 + i;
        job.report = text_of('r', 3000);
        job.error = strdup("{}");
        if (i < 12)
            FINE(store_finish(case_store, &job, "me", &held, &case_err));
        store_job_clear(&job);
    }
    FINE(store_commit(case_store, &case_err));
}

/* Bytes changed at many places: it opens and answers, with errors where it must, or it is refused. */
static void test_damaged(void **state)
{
    (void)state;
    const bool full = getenv("RESTORED_FULL") != NULL;
    int opened = 0, refused = 0, failed = 0;
    size_t size;
    uint64_t random = 88172645463325252u;
    put_many();
    store_close(&case_store);
    uint8_t *data = read_whole(case_path, &size);
    for (int i = 0; i < (full ? 20000 : 400); i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        /* half of them where a page begins: its kind, its number of cells, where they lie */
        const size_t at = i % 2 ? random % size : random % (size / 4096) * 4096 + (random >> 32) % 24;
        const uint8_t old = data[at];
        data[at] ^= (uint8_t)(1 + (random >> 40) % 255);
        case_remove_files();
        write_whole(case_path, data, size);
        data[at] = old;
        case_err = (struct error)ERROR_INIT;
        const enum error_code code = store_open(&case_store, case_path, &case_err);
        if (code) {
            assert_true(code == ERROR_CORRUPT || code == ERROR_UNSUPPORTED || code == ERROR_IO);
            assert_non_null(strstr(case_err.text, case_path));
            refused++;
            continue;
        }
        opened++;
        failed += use_everything() > 0;
        store_close(&case_store);
    }
    printf("of %d damaged stores %d opened, %d of them with errors later; %d were refused\n", opened + refused, opened,
           failed, refused);
    assert_true(refused > opened / 10 && opened > 0);
    case_remove_files();
    for (size_t cut = 0; cut < size; cut += 4096 + 1000) { /* and the end is missing */
        write_whole(case_path, data, cut);
        case_err = (struct error)ERROR_INIT;
        if (!store_open(&case_store, case_path, &case_err))
            use_everything();
        store_close(&case_store);
        case_remove_files();
    }
    free(data);
}

/* The file may not grow: as on a full disk, but for the number of the error. */
static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* Inserts jobs with options of this size in one group until one fails or all are in; then commits. */
static enum error_code put_large(int count, size_t bytes)
{
    struct store_job job = case_job("", "a");
    enum store_inserted what;
    enum error_code code = OK, again;
    char existing[33];
    job.options = text_of('o', bytes);
    FINE(store_begin(case_store, &case_err));
    for (int i = 0; i < count && !code; i++) {
        snprintf(job.id, sizeof job.id, "large%d", i);
        code = store_insert(case_store, &job, NULL, NULL, &what, existing, &case_err);
    }
    if (code) { /* what comes behind does not pretend */
        struct error second = ERROR_INIT;
        strcpy(job.id, "small");
        again = store_insert(case_store, &job, NULL, NULL, &what, existing, &second);
        assert_int_equal(again, code);
    }
    case_err = (struct error)ERROR_INIT;
    again = store_commit(case_store, &case_err);
    if (code)
        assert_int_equal(again, code);
    free(job.options);
    return again;
}

static void test_full(void **state)
{
    (void)state;
    case_put("a1", "a");
    case_put("a2", "a");
    signal(SIGXFSZ, SIG_IGN);
    limit_files(200000);
    assert_int_equal(put_large(1, 300000), ERROR_FULL); /* found out by the commit */
    assert_non_null(strstr(case_err.text, "no room"));
    case_expect_queued(2);
    assert_int_equal(put_large(100, 300000), ERROR_FULL); /* and while the group is being made */
    case_expect_queued(2);
    case_put("a3", "a"); /* there is room for a small one */
    limit_files(RLIM_INFINITY);
    assert_int_equal(put_large(3, 300000), OK);
    case_expect_queued(6);
    store_close(&case_store);
    FINE(store_open(&case_store, case_path, &case_err));
    case_expect_queued(6);
    store_close(&case_store);
    case_remove_files();
    limit_files(5000);
    case_err = (struct error)ERROR_INIT;
    assert_int_equal(store_open(&case_store, case_path, &case_err), ERROR_FULL);
    limit_files(RLIM_INFINITY);
    assert_int_equal(access(case_path, F_OK), -1);
    signal(SIGXFSZ, SIG_DFL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_no_room_to_make, case_setup, case_teardown),
        cmocka_unit_test_setup_teardown(test_foreign, case_setup, case_teardown),
        cmocka_unit_test_setup_teardown(test_killed, case_setup, case_teardown),
        cmocka_unit_test_setup_teardown(test_read_only, case_setup, case_teardown),
        cmocka_unit_test_setup_teardown(test_damaged, case_setup, case_teardown),
        cmocka_unit_test_setup_teardown(test_full, case_setup, case_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
