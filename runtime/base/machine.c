#include "runtime/base/machine.h"

#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* The first line of root/folder/name into out; false when there is no such file. */
static bool machine_read_line(const char *root, const char *folder, const char *name, char *out, size_t size)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s%s/%s", root, folder, name) >= (int)sizeof path)
        return false;
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    const bool got = fgets(out, (int)size, file) != NULL;
    fclose(file);
    return got;
}

/* A limit in a group's folder; false when it sets none. */
typedef bool limit_fn(const char *root, const char *folder, double *value);

static bool machine_limit_cpu_v2(const char *root, const char *folder, double *cores)
{
    char line[128];
    double quota, period;
    if (!machine_read_line(root, folder, "cpu.max", line, sizeof line) || sscanf(line, "%lf %lf", &quota, &period) != 2)
        return false; /* "max 100000" */
    *cores = quota / period;
    return period > 0;
}

static bool machine_limit_cpu_v1(const char *root, const char *folder, double *cores)
{
    char quota[64], period[64];
    if (!machine_read_line(root, folder, "cpu.cfs_quota_us", quota, sizeof quota) ||
        !machine_read_line(root, folder, "cpu.cfs_period_us", period, sizeof period) || atof(quota) <= 0 ||
        atof(period) <= 0)
        return false; /* -1: none */
    *cores = atof(quota) / atof(period);
    return true;
}

static bool machine_cgroup_limit_number(const char *root, const char *folder, const char *name, double *value)
{
    char line[64], *end;
    if (!machine_read_line(root, folder, name, line, sizeof line))
        return false;
    *value = strtod(line, &end);
    return end != line; /* not "max" */
}

/* A named number from a file of "name number" lines; 0 if it is not there. */
static double machine_cgroup_stat_number(const char *root, const char *folder, const char *file_name, const char *name)
{
    char path[PATH_MAX], line[256], word[128];
    double value, found = 0;
    if (snprintf(path, sizeof path, "%s%s/%s", root, folder, file_name) >= (int)sizeof path)
        return 0;
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "%127s %lf", word, &value) == 2 && strcmp(word, name) == 0)
            found = value;
    if (file)
        fclose(file);
    return found;
}

/* What the group may still allocate: cached file pages can be dropped. */
static bool machine_cgroup_left_of(const char *root, const char *folder, const char *limit_name, const char *used_name,
                                   const char *cache_name, double *bytes)
{
    double limit, used;
    if (!machine_cgroup_limit_number(root, folder, limit_name, &limit) ||
        !machine_cgroup_limit_number(root, folder, used_name, &used))
        return false;
    used -= machine_cgroup_stat_number(root, folder, "memory.stat", cache_name);
    *bytes = used < limit ? limit - (used > 0 ? used : 0) : 0;
    return true;
}

static bool machine_left_memory_v2(const char *root, const char *folder, double *bytes)
{
    return machine_cgroup_left_of(root, folder, "memory.max", "memory.current", "inactive_file", bytes);
}

static bool machine_left_memory_v1(const char *root, const char *folder, double *bytes)
{
    return machine_cgroup_left_of(root, folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
                                  bytes);
}

static bool machine_limit_memory_v2(const char *root, const char *folder, double *bytes)
{
    return machine_cgroup_limit_number(root, folder, "memory.max", bytes);
}

static bool machine_limit_memory_v1(const char *root, const char *folder, double *bytes)
{
    return machine_cgroup_limit_number(root, folder, "memory.limit_in_bytes", bytes);
}

/* The lowest limit of the group at mount/group and of those above it. In a container the group's folder may not exist
 * under the host's name for it; then the mount's root is the container's own group. */
static void machine_cgroup_lowest(const char *root, const char *mount, const char *group, limit_fn *limit,
                                  double *value)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s%s", mount, strcmp(group, "/") ? group : "");
    for (;;) {
        double v;
        if (limit(root, folder, &v) && v < *value)
            *value = v;
        char *slash = strrchr(folder, '/');
        if (strlen(folder) <= strlen(mount) || !slash)
            return;
        *slash = 0;
    }
}

/* The lowest limit that this process's groups set; `controller`: the name in version 1. */
static void machine_cgroup_limit(const char *root, const char *controller, limit_fn *v2, limit_fn *v1, double *value)
{
    char path[PATH_MAX], line[PATH_MAX];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) { /* "0::/group", or "4:cpu,cpuacct:/group" */
        line[strcspn(line, "\n")] = 0;
        char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL, mount[PATH_MAX];
        if (!group)
            continue;
        *group++ = 0;
        names++;
        if (!*names) {
            machine_cgroup_lowest(root, "/sys/fs/cgroup", group, v2, value);
            continue;
        }
        char list[256], *rest = list;
        snprintf(list, sizeof list, "%s", names);
        for (char *name; (name = strsep(&rest, ","));) {
            if (strcmp(name, controller))
                continue;
            snprintf(mount, sizeof mount, "/sys/fs/cgroup/%s", names);
            machine_cgroup_lowest(root, mount, group, v1, value);
            snprintf(mount, sizeof mount, "/sys/fs/cgroup/%s", controller);
            machine_cgroup_lowest(root, mount, group, v1, value);
        }
    }
    if (file)
        fclose(file);
}

int machine_threads(const char *root, int affinity)
{
    double cores = 1e9;
    if (affinity <= 0) {
        cpu_set_t set;
        affinity = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    }
    machine_cgroup_limit(root, "cpu", machine_limit_cpu_v2, machine_limit_cpu_v1, &cores);
    if (cores < affinity)
        affinity = (int)cores + (cores > (int)cores);
    return affinity > 1 ? affinity : 1;
}

void machine_memory(const char *root, uint64_t *total, uint64_t *available)
{
    char path[PATH_MAX], line[256];
    double limit = 1e18, left = 1e18;
    unsigned long long kib;
    *total = *available = 0;
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "MemTotal: %llu", &kib) == 1)
            *total = kib << 10;
        if (sscanf(line, "MemAvailable: %llu", &kib) == 1)
            *available = kib << 10;
    }
    if (file)
        fclose(file);
    machine_cgroup_limit(root, "memory", machine_limit_memory_v2, machine_limit_memory_v1, &limit);
    machine_cgroup_limit(root, "memory", machine_left_memory_v2, machine_left_memory_v1, &left);
    if ((double)*total > limit)
        *total = (uint64_t)limit;
    if (*available > *total)
        *available = *total;
    if ((double)*available > left)
        *available = (uint64_t)left;
}

void machine_name(const char *root, char *out, size_t size)
{
    char path[PATH_MAX], line[512];
    struct utsname names;
    snprintf(out, size, "CPU (%s)", uname(&names) == 0 ? names.machine : "unknown");
    snprintf(path, sizeof path, "%s/proc/cpuinfo", root);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) || !colon)
            continue;
        colon += 1 + strspn(colon + 1, " ");
        colon[strcspn(colon, "\n")] = 0;
        if (*colon)
            snprintf(out, size, "%s", colon);
        break;
    }
    if (file)
        fclose(file);
}
