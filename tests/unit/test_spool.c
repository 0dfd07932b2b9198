/* The files of the spool: whole or not there, whatever fails or ends in between. The calls that change the disk go
 * through functions of this file, which fail, or end the process, when a test says so. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/store/spool.h"

#define ID "0123456789abcdef0123456789abcdef"
#define OTHER "ffffffffffffffffffffffffffffffff"
#define PIECE 5000
#define PIECES 3
#define MOST ((uint64_t)1 << 20)

enum call { CALL_PWRITE, CALL_FSYNC, CALL_LINKAT, CALL_RENAMEAT, CALLS };

static struct {
    enum call call;
    int left;  /* 1: the next; 0: no more */
    int error; /* 0: the process ends instead, before or after the call */
    bool after;
} fault;

static char root[64], folder[128];

static bool fault_now(enum call call)
{
    return fault.left && fault.call == call && --fault.left == 0;
}

#define FAULTY(which, number)                                                                                          \
    const bool now = fault_now(which);                                                                                 \
    if (now && fault.error) {                                                                                          \
        errno = fault.error;                                                                                           \
        return -1;                                                                                                     \
    }                                                                                                                  \
    if (now && !fault.after)                                                                                           \
        _exit(9);                                                                                                      \
    const long result = number;                                                                                        \
    if (now)                                                                                                           \
        _exit(9);                                                                                                      \
    return result

/* These stand before the C library's. */
ssize_t pwrite(int fd, const void *data, size_t size, off_t at)
{
    FAULTY(CALL_PWRITE, syscall(SYS_pwrite64, fd, data, size, at));
}

int fsync(int fd)
{
    FAULTY(CALL_FSYNC, (int)syscall(SYS_fsync, fd));
}

int linkat(int from, const char *path, int to, const char *name, int flags)
{
    FAULTY(CALL_LINKAT, (int)syscall(SYS_linkat, from, path, to, name, flags));
}

int renameat(int from, const char *path, int to, const char *name)
{
    FAULTY(CALL_RENAMEAT, (int)syscall(SYS_renameat2, from, path, to, name, 0));
}

static int begin(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/test_spool.XXXXXX");
    if (!mkdtemp(root))
        return -1;
    snprintf(folder, sizeof folder, "%s/state/spool", root);
    return 0;
}

static int end(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command);
}

static struct spool *opened(uint64_t most)
{
    struct spool *spool;
    struct error err = ERROR_INIT;
    if (spool_open(&spool, folder, most, &err))
        fail_msg("%s", err.text);
    return spool;
}

/* A spool of files that have names from the start. */
static struct spool *opened_named(void)
{
    fault.call = CALL_LINKAT;
    fault.left = 1;
    fault.error = EPERM;
    struct spool *spool = opened(MOST);
    assert_int_equal(fault.left, 0);
    return spool;
}

/* Writes and keeps a file of these bytes; what fails first is told. */
static enum error_code keep(struct spool *spool, const char *id, enum spool_kind kind, char byte, int pieces)
{
    struct spool_file *file;
    struct error err = ERROR_INIT;
    char data[PIECE];
    memset(data, byte, sizeof data);
    enum error_code code = spool_create(spool, &file, &err);
    for (int i = 0; !code && i < pieces; i++) {
        code = spool_write(file, data, sizeof data, &err);
        assert_int_equal(spool_size(file), (uint64_t)(i + !code) * PIECE);
    }
    if (!code)
        code = spool_keep(spool, &file, id, kind, &err);
    assert_int_equal(err.code, code);
    assert_true(code ? file != NULL : file == NULL);
    spool_discard(&file);
    return code;
}

/* What the file of that name is made of: its byte, 0 if there is none. It must be whole. */
static char whole(struct spool *spool, const char *id, enum spool_kind kind, int pieces)
{
    int fd;
    uint64_t size;
    char data[PIECE * PIECES + 1];
    struct error err = ERROR_INIT;
    const enum error_code code = spool_read(spool, id, kind, &fd, &size, &err);
    if (code) {
        assert_int_equal(code, ERROR_NOT_FOUND);
        assert_int_equal(fd, -1);
        return 0;
    }
    assert_int_equal(size, pieces * PIECE);
    assert_int_equal(read(fd, data, sizeof data), size);
    for (uint64_t i = 1; i < size; i++)
        assert_int_equal(data[i], data[0]);
    close(fd);
    return data[0];
}

/* Entries of the folder, the lock included. */
static int entries(void)
{
    DIR *dir = opendir(folder);
    int count = 0;
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(dir);
    return count;
}

static void test_files(void **state)
{
    (void)state;
    struct spool *spool = opened(MOST);
    struct stat st;
    assert_int_equal(stat(folder, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(spool_most(spool), MOST);
    assert_int_equal(whole(spool, ID, SPOOL_INPUT, 3), 0);
    assert_int_equal(keep(spool, ID, SPOOL_INPUT, 'a', 3), OK);
    assert_int_equal(whole(spool, ID, SPOOL_INPUT, 3), 'a');
    assert_int_equal(whole(spool, ID, SPOOL_OUTPUT, 3), 0);
    assert_int_equal(keep(spool, ID, SPOOL_OUTPUT, 'b', 2), OK);
    assert_int_equal(spool_used(spool), 5 * PIECE);
    assert_int_equal(keep(spool, ID, SPOOL_OUTPUT, 'c', 1), OK); /* the job ran again */
    assert_int_equal(whole(spool, ID, SPOOL_OUTPUT, 1), 'c');
    assert_int_equal(spool_used(spool), 4 * PIECE);
    spool_close(&spool);
    spool_close(&spool); /* of nothing */
    spool = opened(MOST);
    assert_int_equal(spool_used(spool), 4 * PIECE);
    spool_remove(spool, ID, SPOOL_OUTPUT);
    spool_remove(spool, ID, SPOOL_OUTPUT);
    assert_int_equal(spool_used(spool), 3 * PIECE);
    assert_int_equal(entries(), 2);
    spool_close(&spool);
}

/* Nothing but the ids that we make becomes a path. */
static void test_ids(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "../spool/../../../tmp/aaaaaaaaaa",
                                      "0123456789abcdef0123456789abcde",
                                      "0123456789abcdef0123456789abcdef0",
                                      "0123456789ABCDEF0123456789abcdef",
                                      "0123456789abcdef/123456789abcdef"};
    struct spool *spool = opened(MOST);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int fd;
        uint64_t size;
        assert_int_equal(keep(spool, bad[i], SPOOL_INPUT, 'a', 1), ERROR_INTERNAL);
        assert_int_equal(spool_read(spool, bad[i], SPOOL_INPUT, &fd, &size, NULL), ERROR_INTERNAL);
        spool_remove(spool, bad[i], SPOOL_INPUT);
    }
    assert_int_equal(keep(spool, ID, SPOOL_KINDS, 'a', 1), ERROR_INTERNAL);
    assert_int_equal(entries(), 1);
    assert_int_equal(spool_used(spool), 0);
    spool_close(&spool);
}

static void visit(void *context, const char *id, enum spool_kind kind)
{
    struct spool **visited = context;
    assert_string_equal(id, kind == SPOOL_INPUT ? ID : OTHER);
    if (kind == SPOOL_OUTPUT)
        spool_remove(visited[0], id, kind);
    visited[1 + kind] = visited[0];
}

static void test_each(void **state)
{
    (void)state;
    struct spool *spool = opened(MOST), *visited[3] = {spool};
    char path[256];
    assert_int_equal(keep(spool, ID, SPOOL_INPUT, 'a', 1), OK);
    assert_int_equal(keep(spool, OTHER, SPOOL_OUTPUT, 'b', 1), OK);
    snprintf(path, sizeof path, "%s/" ID ".other", folder); /* not of ours: left alone */
    assert_int_equal(close(creat(path, 0600)), 0);
    spool_each(spool, visit, visited);
    assert_ptr_equal(visited[1], spool);
    assert_ptr_equal(visited[2], spool);
    assert_int_equal(whole(spool, OTHER, SPOOL_OUTPUT, 1), 0);
    assert_int_equal(whole(spool, ID, SPOOL_INPUT, 1), 'a');
    spool_close(&spool);
    assert_int_equal(access(path, F_OK), 0);
}

/* A file without a name is nowhere to be seen and counts, until it is discarded. */
static void test_nameless(void **state)
{
    (void)state;
    for (int named = 0; named < 2; named++) {
        struct spool *spool = named ? opened_named() : opened(MOST);
        struct spool_file *file, *left;
        char data[4] = "";
        assert_int_equal(spool_create(spool, &file, NULL), OK);
        assert_int_equal(spool_create(spool, &left, NULL), OK);
        assert_int_equal(spool_write(file, "abc", 3, NULL), OK);
        assert_int_equal(spool_write(file, "d", 1, NULL), OK);
        assert_int_equal(spool_write(left, "abcd", 4, NULL), OK);
        assert_int_equal(spool_used(spool), 8);
        assert_int_equal(pread(spool_descriptor(file), data, 4, 0), 4);
        assert_memory_equal(data, "abcd", 4);
        spool_discard(&file);
        spool_discard(&file); /* nothing */
        assert_int_equal(spool_used(spool), 4);
        assert_true(named ? entries() == 2 : entries() <= 2);
        spool_close(&spool); /* as when the server is killed: `left` is what it leaves */
        spool = opened(MOST);
        assert_int_equal(spool_used(spool), 0);
        assert_int_equal(entries(), 1);
        spool_close(&spool);
        close(spool_descriptor(left));
        free(left);
    }
}

static void test_second_opener(void **state)
{
    (void)state;
    struct spool *first = opened(MOST), *second;
    struct error err = ERROR_INIT;
    assert_int_equal(spool_open(&second, folder, MOST, &err), ERROR_BUSY);
    assert_null(second);
    assert_non_null(strstr(err.text, "state_dir"));
    assert_non_null(strstr(err.text, folder));
    spool_close(&first);
    first = opened(MOST);
    spool_close(&first);
}

static void test_no_folder(void **state)
{
    (void)state;
    struct spool *spool;
    char path[160];
    struct error err = ERROR_INIT;
    snprintf(path, sizeof path, "%s/file", root);
    assert_int_equal(close(creat(path, 0600)), 0);
    assert_int_equal(spool_open(&spool, path, MOST, &err), ERROR_IO);
    assert_non_null(strstr(err.text, path));
    snprintf(path, sizeof path, "%s/file/state/spool", root);
    assert_int_equal(spool_open(&spool, path, MOST, NULL), ERROR_IO);
    assert_null(spool);
}

/* The bound counts what is being written, and what is refused leaves nothing. */
static void test_bound(void **state)
{
    (void)state;
    struct spool *spool = opened(3 * PIECE);
    struct spool_file *file;
    struct error err = ERROR_INIT;
    static char data[3 * PIECE + 1];
    assert_int_equal(keep(spool, ID, SPOOL_INPUT, 'a', 2), OK);
    assert_int_equal(keep(spool, ID, SPOOL_OUTPUT, 'b', 2), ERROR_FULL);
    assert_int_equal(spool_create(spool, &file, NULL), OK);
    assert_int_equal(spool_write(file, data, sizeof data, &err), ERROR_FULL);
    assert_non_null(strstr(err.text, "spool_max_bytes"));
    assert_int_equal(spool_write(file, data, PIECE + 1, NULL), ERROR_FULL);
    assert_int_equal(spool_used(spool), 2 * PIECE);
    assert_int_equal(spool_write(file, data, PIECE, NULL), OK);
    assert_int_equal(spool_write(file, data, 1, NULL), ERROR_FULL);
    spool_discard(&file);
    spool_close(&spool);
    spool = opened(PIECE); /* it was more */
    assert_int_equal(keep(spool, ID, SPOOL_OUTPUT, 'b', 1), ERROR_FULL);
    assert_int_equal(whole(spool, ID, SPOOL_INPUT, 2), 'a');
    spool_close(&spool);
}

/* The system's own bound, where its signal is ignored, as in the program. */
static void test_file_size_limit(void **state)
{
    (void)state;
    struct spool *spool = opened(MOST);
    struct spool_file *file;
    struct rlimit before, limit;
    static char data[2 * PIECE];
    assert_int_equal(keep(spool, ID, SPOOL_INPUT, 'a', 1), OK);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = PIECE + 100;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    const enum error_code twice = keep(spool, ID, SPOOL_INPUT, 'b', 2);
    assert_int_equal(spool_create(spool, &file, NULL), OK);
    const enum error_code part = spool_write(file, data, sizeof data, NULL); /* 100 bytes more than a piece fit */
    struct stat st;
    assert_int_equal(fstat(spool_descriptor(file), &st), 0);
    const enum error_code once = keep(spool, ID, SPOOL_OUTPUT, 'c', 1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(twice, ERROR_FULL);
    assert_int_equal(part, ERROR_FULL);
    assert_int_equal(st.st_size, 0);
    assert_int_equal(once, OK);
    spool_discard(&file);
    assert_int_equal(whole(spool, ID, SPOOL_INPUT, 1), 'a');
    assert_int_equal(spool_used(spool), 2 * PIECE);
    spool_close(&spool);
}

/* What is there after each fault: the old file whole, or the new, or, if the folder could not be synchronised, none;
 * and nothing is counted that is not there. */
static void test_each_fault(void **state)
{
    (void)state;
    static const int errors[] = {EIO, ENOSPC, EDQUOT, EFBIG};
    int met = 0;
    for (int named = 0; named < 2; named++)
        for (int call = 0; call < CALLS; call++)
            for (int n = 1;; n++) {
                struct spool *spool = named ? opened_named() : opened(MOST);
                assert_int_equal(keep(spool, ID, SPOOL_INPUT, 'a', 3), OK);
                fault.call = (enum call)call;
                fault.left = n;
                fault.error = errors[n % 4];
                const enum error_code code = keep(spool, ID, SPOOL_INPUT, 'b', 3);
                const bool failed = fault.left == 0;
                fault.left = 0;
                const char found = whole(spool, ID, SPOOL_INPUT, 3);
                assert_int_equal(code, !failed ? OK : fault.error == EIO ? ERROR_IO : ERROR_FULL);
                assert_int_equal(found, !failed ? 'b' : call == CALL_FSYNC && n == 2 ? 0 : 'a');
                assert_int_equal(spool_used(spool), found ? 3 * PIECE : 0);
                assert_int_equal(entries(), found ? 2 : 1);
                spool_close(&spool);
                met += failed;
                if (!failed)
                    break;
            }
    struct spool *spool = opened_named();
    spool_close(&spool);
    assert_in_range(met, 2 * (PIECES + 2 + 1),
                    2 * (PIECES + 2 + 1) + 1); /* + 1: a link, where there are nameless ones */
}

/* The process ends before or after each call: the file is the old or the new one, and nothing else is left. */
static void test_each_end(void **state)
{
    (void)state;
    for (int named = 0; named < 2; named++)
        for (int at = 0; at < 2 * CALLS; at++)
            for (int n = 1;; n++) {
                struct spool *spool = opened(MOST);
                assert_int_equal(keep(spool, ID, SPOOL_OUTPUT, 'a', 3), OK);
                spool_close(&spool);
                const pid_t child = fork();
                if (child == 0) {
                    spool = named ? opened_named() : opened(MOST);
                    fault.call = (enum call)(at / 2);
                    fault.left = n;
                    fault.error = 0;
                    fault.after = at % 2;
                    _exit(keep(spool, ID, SPOOL_OUTPUT, 'b', 3) == OK ? 0 : 1);
                }
                int status;
                assert_int_equal(waitpid(child, &status, 0), child);
                assert_true(WIFEXITED(status));
                const int ended = WEXITSTATUS(status);
                assert_true(ended == 9 || ended == 0);
                spool = opened(MOST);
                const char found = whole(spool, ID, SPOOL_OUTPUT, 3);
                assert_true(found == 'b' || (found == 'a' && ended == 9));
                assert_int_equal(spool_used(spool), 3 * PIECE);
                assert_int_equal(entries(), 2);
                spool_close(&spool);
                if (ended == 0)
                    break;
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_files, begin, end),
        cmocka_unit_test_setup_teardown(test_ids, begin, end),
        cmocka_unit_test_setup_teardown(test_each, begin, end),
        cmocka_unit_test_setup_teardown(test_nameless, begin, end),
        cmocka_unit_test_setup_teardown(test_second_opener, begin, end),
        cmocka_unit_test_setup_teardown(test_no_folder, begin, end),
        cmocka_unit_test_setup_teardown(test_bound, begin, end),
        cmocka_unit_test_setup_teardown(test_file_size_limit, begin, end),
        cmocka_unit_test_setup_teardown(test_each_fault, begin, end),
        cmocka_unit_test_setup_teardown(test_each_end, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
