/* What a service manager hears of the server: ready, reloading, stopping; and a watchdog that is fed only while every
 * thread that serves HTTP answers: here one of them at a time is stopped by ptrace. */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/cli/notify.h"
#include "tests/common/shared.h"

#define PROGRAM "build/tests/restored"
#define PERIOD_MS 200
#define LONG_MS 60000 /* more than anything takes that has to come */

static char caught[512];

/* A socket that plays the manager's, as $NOTIFY_SOCKET names it. */
static int manager(const char *name)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    memcpy(at.sun_path, name, strlen(name));
    if (*name == '@')
        *at.sun_path = 0;
    assert_int_equal(
        bind(fd, (struct sockaddr *)&at, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))), 0);
    assert_int_equal(setenv("NOTIFY_SOCKET", name, 1), 0);
    return fd;
}

/* The next message; NULL when there is none within that time. */
static const char *next(int fd, int milliseconds)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    if (poll(&wait, 1, milliseconds) <= 0)
        return NULL;
    const ssize_t size = recv(fd, caught, sizeof caught - 1, 0);
    assert_true(size > 0);
    caught[size] = 0;
    return caught;
}

/* The next message that is none of the watchdog's. */
static const char *next_but_watchdog(int fd)
{
    const char *text;
    while ((text = next(fd, LONG_MS)) && !strcmp(text, "WATCHDOG=1"))
        ;
    return text ? text : "nothing";
}

static void messages(void **state)
{
    (void)state;
    char folder[] = "/tmp/restored-notify-XXXXXX", path[64], name[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/s", folder);
    snprintf(name, sizeof name, "@restored-%d", (int)getpid());
    const char *const names[] = {path, name};
    for (int i = 0; i < 2; i++) {
        const int fd = manager(names[i]);
        notify_send("READY=1\nSTATUS=on %s", "a:1");
        assert_string_equal(next(fd, LONG_MS), "READY=1\nSTATUS=on a:1");
        close(fd);
        notify_send("READY=1"); /* nobody listens: a warning, no more */
    }
    unlink(path);
    rmdir(folder);
    char far[300] = "/";
    memset(far + 1, 'a', sizeof far - 2);
    const char *const bad[] = {"", "relative", far};
    for (int i = 0; i < 3; i++) {
        setenv("NOTIFY_SOCKET", bad[i], 1);
        notify_send("READY=1");
    }
    unsetenv("NOTIFY_SOCKET");
    notify_send("READY=1");
}

static bool never(const void *subject, int milliseconds)
{
    (void)subject, (void)milliseconds;
    return false;
}

/* There is no watchdog without a period, or with one that is meant for another process. */
static void no_watchdog(void **state)
{
    (void)state;
    char other[16];
    const int fd = manager("@restored-test-no-watchdog");
    static const char *const periods[] = {NULL, "0", "-5", "x", "100"};
    for (int i = 0; i < 5; i++) {
        if (periods[i])
            setenv("WATCHDOG_USEC", periods[i], 1);
        assert_null(notify_watch(never, NULL));
    }
    setenv("WATCHDOG_USEC", "1000000", 1);
    snprintf(other, sizeof other, "%d", (int)getpid() + 1);
    setenv("WATCHDOG_PID", other, 1);
    assert_null(notify_watch(never, NULL));
    unsetenv("WATCHDOG_PID");
    unsetenv("NOTIFY_SOCKET");
    assert_null(notify_watch(never, NULL));
    unsetenv("WATCHDOG_USEC");
    close(fd);
}

/* state_dir: of its own, since two servers cannot share one and other tests run at the same time. */
static pid_t start(const char *state_dir)
{
    char period[16];
    snprintf(period, sizeof period, "%d", PERIOD_MS * 1000);
    const pid_t pid = fork();
    if (pid)
        return pid;
    setenv("WATCHDOG_USEC", period, 1);
    snprintf(period, sizeof period, "%d", (int)getpid());
    setenv("WATCHDOG_PID", period, 1);
    setenv("RESTORED_STARTER_MODELS", "false", 1);
    setenv("RESTORED_MODELS_DIR", shared_fixtures(), 1);
    setenv("RESTORED_CONFIG", "/dev/null", 1);
    fflush(stdout);
    if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr))
        _exit(126);
    execl(PROGRAM, PROGRAM, "serve", "--listen", "127.0.0.1:0", "--metrics_listen", "127.0.0.1:0", "--device", "cpu",
          "--state_dir", state_dir, (char *)NULL);
    _exit(127);
}

/* The threads of a process that libmicrohttpd named. */
static int http_threads(pid_t pid, pid_t out[8])
{
    char path[300], name[32];
    int count = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (const struct dirent *entry; (entry = readdir(folder));) {
        snprintf(path, sizeof path, "/proc/%d/task/%s/comm", (int)pid, entry->d_name);
        FILE *file = *entry->d_name != '.' ? fopen(path, "re") : NULL;
        if (file && fgets(name, sizeof name, file) && !strncmp(name, "MHD-", 4) && count < 8)
            out[count++] = (pid_t)atol(entry->d_name);
        if (file)
            fclose(file);
    }
    closedir(folder);
    return count;
}

static void service(void **state)
{
    (void)state;
    char name[64], folder[] = "/tmp/restored-notify-XXXXXX", command[64];
    assert_non_null(mkdtemp(folder));
    snprintf(name, sizeof name, "@restored-service-%d", (int)getpid());
    const int fd = manager(name);
    const pid_t pid = start(folder);
    assert_true(pid > 0);
    assert_int_equal(strncmp(next_but_watchdog(fd), "READY=1\nSTATUS=listening on http://127.0.0.1:", 44), 0);
    assert_string_equal(next(fd, LONG_MS), "WATCHDOG=1");
    assert_int_equal(kill(pid, SIGHUP), 0);
    assert_int_equal(strncmp(next_but_watchdog(fd), "RELOADING=1\nMONOTONIC_USEC=", 27), 0);
    assert_string_equal(next_but_watchdog(fd), "READY=1");

    pid_t threads[8];
    const int count = http_threads(pid, threads);
    assert_int_equal(count, 3); /* two that serve, and the operators' one */
    bool allowed = true;
    for (int i = 0; i < count && allowed; i++) {
        if (ptrace(PTRACE_SEIZE, threads[i], NULL, NULL)) {
            printf("skipped: this machine allows no ptrace (%s)\n", strerror(errno));
            allowed = false;
            break;
        }
        assert_int_equal(ptrace(PTRACE_INTERRUPT, threads[i], NULL, NULL), 0);
        assert_int_equal(waitpid(threads[i], NULL, __WALL), threads[i]);
        /* what waits here, what was on its way, then silence: a stopped thread never answers */
        while (next(fd, 0))
            ;
        int late = 0;
        while (next(fd, 3 * PERIOD_MS) && late < 100)
            late++;
        assert_true(late <= 2);
        assert_int_equal(ptrace(PTRACE_DETACH, threads[i], NULL, NULL), 0);
        assert_string_equal(next(fd, LONG_MS), "WATCHDOG=1");
    }

    int status;
    assert_int_equal(kill(pid, SIGTERM), 0);
    assert_int_equal(strncmp(next_but_watchdog(fd), "STOPPING=1\nEXTEND_TIMEOUT_USEC=", 31), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    close(fd);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages),
        cmocka_unit_test(no_watchdog),
        cmocka_unit_test(service),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
