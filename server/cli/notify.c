#include "server/cli/notify.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"

void notify_send(const char *format, ...)
{
    char text[256];
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const char *path = getenv("NOTIFY_SOCKET");
    const size_t size = path ? strlen(path) : 0;
    if (!size || (*path != '/' && *path != '@') || size >= sizeof to.sun_path)
        return;
    memcpy(to.sun_path, path, size);
    if (*path == '@')
        *to.sun_path = 0; /* an abstract socket: the name is what follows, without an end */
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const socklen_t to_size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size);
    if (fd < 0 || length < 0 || (size_t)length >= sizeof text ||
        sendto(fd, text, (size_t)length, MSG_NOSIGNAL, (const struct sockaddr *)&to, to_size) < 0)
        log_event(LOG_WARN, "notify", "socket=\"%s\" reason=\"%s\"", path, strerror(errno));
    if (fd >= 0)
        close(fd);
}

struct notify_watch {
    notify_check *check;
    const void *subject;
    int period_ms;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;
};

/* A check may take half of the period, and there is a quarter between one and the next: a process that answers is never
 * late. */
static void *notify_run(void *argument)
{
    struct notify_watch *watch = argument;
    bool well = true;
    pthread_mutex_lock(&watch->lock);
    while (!watch->stop) {
        pthread_mutex_unlock(&watch->lock);
        const bool answers = watch->check(watch->subject, watch->period_ms / 2);
        if (answers)
            notify_send("WATCHDOG=1");
        if (answers != well)
            log_event(answers ? LOG_WARN : LOG_ERROR, "watchdog", "text=\"%s\"",
                      answers ? "requests are answered again" : "a thread that serves HTTP does not answer");
        well = answers;
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        const int64_t ns = until.tv_nsec + watch->period_ms % 4000 * INT64_C(250000);
        until.tv_sec += watch->period_ms / 4000 + ns / 1000000000;
        until.tv_nsec = ns % 1000000000;
        pthread_mutex_lock(&watch->lock);
        while (!watch->stop && pthread_cond_timedwait(&watch->wake, &watch->lock, &until) != ETIMEDOUT)
            ;
    }
    pthread_mutex_unlock(&watch->lock);
    return NULL;
}

/* Of $WATCHDOG_USEC, if it is meant for this process; 0: there is no watchdog. */
static int notify_period_ms(void)
{
    const char *period = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    if (!period || !getenv("NOTIFY_SOCKET") || (pid && strtol(pid, NULL, 10) != getpid()))
        return 0;
    const long long us = strtoll(period, NULL, 10);
    return us < 8000 ? 0 : us / 1000 < 3600000 ? (int)(us / 1000) : 3600000;
}

struct notify_watch *notify_watch(notify_check *check, const void *subject)
{
    const int period_ms = notify_period_ms();
    struct notify_watch *watch = period_ms ? mem_calloc(1, sizeof *watch) : NULL;
    if (!watch)
        return NULL;
    watch->check = check;
    watch->subject = subject;
    watch->period_ms = period_ms;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&watch->lock, NULL);
    pthread_cond_init(&watch->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (!pthread_create(&watch->thread, NULL, notify_run, watch))
        return watch;
    log_event(LOG_ERROR, "watchdog", "text=\"its thread could not be started\"");
    free(watch);
    return NULL;
}

void notify_unwatch(struct notify_watch **watch)
{
    struct notify_watch *old = *watch;
    *watch = NULL;
    if (!old)
        return;
    pthread_mutex_lock(&old->lock);
    old->stop = true;
    pthread_cond_signal(&old->wake);
    pthread_mutex_unlock(&old->lock);
    pthread_join(old->thread, NULL);
    pthread_cond_destroy(&old->wake);
    pthread_mutex_destroy(&old->lock);
    free(old);
}
