/* The sandbox, each time in a child, which stays in it: what is refused there, and what still works. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/sandbox.h"

static char folder[] = "/tmp/restored-sandbox-XXXXXX";

/* In the child: says what is not as it should be, and ends it. */
#define NEED(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, strerror(errno));                               \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

static const char *at(const char *name)
{
    static char paths[8][256];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static bool opens(const char *path, int flags)
{
    const int fd = open(path, flags | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static bool refused(long result, int number)
{
    return result < 0 && errno == number;
}

static sem_t entered;

static void *thread_main(void *argument)
{
    char *const nothing[] = {NULL};
    (void)argument;
    sem_wait(&entered);
    NEED(refused(execve("/bin/false", nothing, nothing), EPERM)); /* seccomp holds for threads that were there before */
    return NULL;
}

static void *thread_after(void *argument)
{
    (void)argument;
    NEED(!opens("/etc/passwd", O_RDONLY));
    return NULL;
}

static struct sandbox *enter(int *landlock)
{
    struct sandbox *sandbox;
    struct error err = ERROR_INIT;
    int outside = -1;
    NEED(!sandbox_create(&sandbox, &err));
    sandbox_add_write(sandbox, at("write"));
    sandbox_add_read(sandbox, at("read"));
    sandbox_add_read(sandbox, at("none"));
    sandbox_add_read(sandbox, "");
    sandbox_add_read(sandbox, NULL);
    sandbox_add_file(sandbox, at("links/link"));
    if (sandbox_enter(sandbox, landlock, &outside, &err)) {
        fprintf(stderr, "%s\n", err.text);
        _exit(1);
    }
    NEED(outside == 0 || outside == 1);
    return sandbox;
}

static void check_calls(void)
{
    char *const nothing[] = {NULL};
    int status;
    NEED(refused(execve("/bin/false", nothing, nothing), EPERM));
    NEED(refused(ptrace(PTRACE_TRACEME, 0, NULL, NULL), EPERM));
    NEED(refused(mount("none", at("write"), "tmpfs", 0, NULL), EPERM));
    NEED(refused(unshare(0), EPERM));
    NEED(refused(syscall(SYS_bpf, 0, NULL, 0), EPERM));
    NEED(refused(syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0), EPERM));
    NEED(refused(syscall(SYS_keyctl, 0, 0, 0, 0, 0), EPERM));
    NEED(refused(syscall(SYS_finit_module, -1, "", 0), EPERM));
    NEED(refused(syscall(SYS_kexec_load, 0, 0, NULL, 0), EPERM));
    NEED(refused(syscall(SYS_io_uring_setup, 1, NULL), EPERM));
    NEED(refused(setuid(getuid()), EPERM));
#ifdef __x86_64__
    NEED(refused(syscall(SYS_getpid | 0x40000000), EPERM)); /* x32's */
#endif
    /* what a server does */
    NEED(opens("/dev/null", O_RDWR) && opens("/dev/urandom", O_RDONLY) && opens("/proc/self/statm", O_RDONLY));
    const pid_t child = fork();
    if (!child)
        _exit(7);
    NEED(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
}

static void check_files(void)
{
    const struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr = {htonl(0x7f000001)}};
    NEED(!opens("/etc/passwd", O_RDONLY) && errno == EACCES);
    NEED(!opens(at("other/file"), O_RDONLY) && errno == EACCES);
    NEED(!opens(at("other/new"), O_WRONLY | O_CREAT) && errno == EACCES);
    NEED(refused(unlink(at("other/file")), EACCES));
    NEED(refused(truncate(at("read/file"), 0), EACCES));
    NEED(opens(at("read/file"), O_RDONLY) && !opens(at("read/file"), O_WRONLY) && errno == EACCES);
    NEED(!opens(at("read/new"), O_WRONLY | O_CREAT) && refused(mkdir(at("read/folder"), 0700), EACCES));
    /* the link's folder and the one that it leads to; what replaces a file there */
    NEED(opens(at("links/link"), O_RDONLY) && opens(at("linked/file"), O_RDONLY));
    /* where it may write: all that a store of files does */
    NEED(opens(at("write/new"), O_WRONLY | O_CREAT) && !mkdir(at("write/a"), 0700) && !mkdir(at("write/b"), 0700));
    NEED(!rename(at("write/new"), at("write/a/new")) && !rename(at("write/a/new"), at("write/b/new")));
    NEED(!link(at("write/b/new"), at("write/a/again")) && !truncate(at("write/a/again"), 0));
    NEED(opens(at("write"), O_TMPFILE | O_RDWR));
    NEED(!unlink(at("write/b/new")) && !unlink(at("write/a/again")) && !rmdir(at("write/a")) && !rmdir(at("write/b")));
    NEED(rename(at("write"), at("read/write")) && (errno == EACCES || errno == EXDEV));
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    NEED(fd >= 0 && refused(connect(fd, (const struct sockaddr *)&address, sizeof address), EACCES));
    close(fd);
}

static void in_child(void)
{
    pthread_t before, after;
    int landlock = 0;
    const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    sem_init(&entered, 0, 0);
    NEED(!pthread_create(&before, NULL, thread_main, NULL));
    struct sandbox *sandbox = enter(&landlock);
    sem_post(&entered);
    pthread_join(before, NULL);
    check_calls();
    if (landlock >= 4) {
        check_files();
        NEED(!pthread_create(&after, NULL, thread_after, NULL));
        pthread_join(after, NULL);
    } else {
        fprintf(stderr, "skipped: files, because this kernel's Landlock has version %d\n", landlock);
    }
    sandbox_destroy(&sandbox);
    _exit(0);
}

static void put(const char *path)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static void test_sandbox(void **state)
{
    int status;
    (void)state;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (!child)
        in_child();
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int make_folders(void **state)
{
    static const char *const folders[] = {"write", "read", "other", "linked", "links"};
    (void)state;
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 5; i++)
        assert_int_equal(mkdir(at(folders[i]), 0700), 0);
    put(at("read/file"));
    put(at("other/file"));
    put(at("linked/file"));
    return symlink("../linked/file", at("links/link"));
}

static int remove_folders(void **state)
{
    static const char *const names[] = {"read/file", "other/file", "linked/file", "links/link"};
    static const char *const folders[] = {"write", "read", "other", "linked", "links"};
    (void)state;
    for (int i = 0; i < 4; i++)
        unlink(at(names[i]));
    for (int i = 0; i < 5; i++)
        rmdir(at(folders[i]));
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sandbox)};
    return cmocka_run_group_tests_name("sandbox", tests, make_folders, remove_folders);
}
