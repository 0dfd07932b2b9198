#include "runtime/base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static atomic_int log_minimum = LOG_INFO;

void log_set_level(enum log_level level)
{
    atomic_store(&log_minimum, (int)level);
}

void log_event(enum log_level level, const char *event, const char *format, ...)
{
    static const char *const names[] = {"debug", "info", "warn", "error", "info"};
    if ((int)level < atomic_load(&log_minimum))
        return;
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    char line[2048];
    size_t used = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%S", &utc);
    int n = snprintf(line + used, sizeof line - used, ".%03ldZ %s %s ", now.tv_nsec / 1000000, names[level], event);
    used += n > 0 ? (size_t)n : 0;
    char marked[1024];
    snprintf(marked, sizeof marked, "%s", format);
    for (char *at = marked; (at = strchr(at, '"'));)
        *at = *LOG_QUOTE;
    va_list args;
    va_start(args, format);
    n = vsnprintf(line + used, sizeof line - used - 1, marked, args);
    va_end(args);
    if (n > 0)
        used += (size_t)n < sizeof line - used - 1 ? (size_t)n : sizeof line - used - 2;
    for (size_t i = 0; i < used; i++)
        if (line[i] == '"')
            line[i] = '\'';
        else if (line[i] == *LOG_QUOTE)
            line[i] = '"';
        else if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = '?';
    line[used++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, used);
    (void)written; /* there is nowhere to report that the log failed */
}

double log_clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}
