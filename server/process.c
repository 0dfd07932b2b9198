#include "server/process.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static double process_seconds(clockid_t clock)
{
    struct timespec now = {0};
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Field 22 of /proc/self/stat: ticks from boot to the start. The name in field 2 may hold anything, parentheses too. */
static double process_started(void)
{
    char line[1024];
    unsigned long long ticks = 0;
    FILE *file = fopen("/proc/self/stat", "re");
    const size_t size = file ? fread(line, 1, sizeof line - 1, file) : 0;
    if (file)
        fclose(file);
    line[size] = 0;
    const char *rest = strrchr(line, ')');
    if (!rest || sscanf(rest, ") %*c%*d%*d%*d%*d%*d%*u%*u%*u%*u%*u%*u%*u%*d%*d%*d%*d%*d%*d%llu", &ticks) != 1)
        return 0;
    return process_seconds(CLOCK_REALTIME) - process_seconds(CLOCK_BOOTTIME) +
           (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

static void process_read_memory(struct process_usage *usage)
{
    unsigned long long all = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file && fscanf(file, "%llu %llu", &all, &resident) == 2) {
        const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
        usage->virtual = all * page;
        usage->resident = resident * page;
    }
    if (file)
        fclose(file);
}

static uint64_t process_count_files(void)
{
    uint64_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    if (!folder)
        return 0;
    for (const struct dirent *entry; (entry = readdir(folder));)
        count += *entry->d_name != '.';
    closedir(folder);
    return count ? count - 1 : 0; /* without the one that this took */
}

struct process_usage process_read(void)
{
    struct process_usage usage = {.started_seconds = process_started(), .open_files = process_count_files()};
    struct rusage used;
    struct rlimit limit;
    if (!getrusage(RUSAGE_SELF, &used))
        usage.cpu_seconds = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                            (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
    if (!getrlimit(RLIMIT_NOFILE, &limit))
        usage.max_files = limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
    process_read_memory(&usage);
    return usage;
}
