#include "server/job/devices.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/mem.h"

#define MAX_WORKERS 32 /* of one device */
#define MINUTE 60

struct row {
    char id[sizeof((struct device_info *)0)->id]; /* status.info's, which is read without the lock */
    struct device_status status;                  /* except for what follows from the rest */
    bool disabled;
    char trouble[640];                   /* why it is disabled or lost */
    struct engine *engines[MAX_WORKERS]; /* of the workers that have it open */
    int engine_count;
    char running[MAX_WORKERS][33]; /* its jobs at work */
    int running_count;
    int64_t busy_since;  /* ns; while there are any */
    double busy[MINUTE]; /* seconds of work in each second of the last minute, indexed by second modulo 60 */
    int64_t second[MINUTE];
};

struct devices {
    pthread_mutex_t lock;
    uint32_t chosen;
    int count;
    struct row rows[DEVICES_MAX];
};

enum error_code devices_create(struct devices **out, const struct device_info *list, size_t count, struct error *err)
{
    struct devices *devices = *out = mem_calloc(1, sizeof *devices);
    if (!devices)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the list of devices");
    pthread_mutex_init(&devices->lock, NULL);
    for (size_t i = 0; i < count && devices->count < DEVICES_MAX; i++) {
        struct row *row = &devices->rows[devices->count++];
        row->status.info = list[i];
        memcpy(row->id, list[i].id, sizeof row->id);
    }
    return OK;
}

void devices_destroy(struct devices **devices)
{
    struct devices *old = *devices;
    *devices = NULL;
    if (!old)
        return;
    pthread_mutex_destroy(&old->lock);
    free(old);
}

/* --- which device --------------------------------------------------------------------------------------------------
 */

/* As device_find. */
static int devices_lookup(const struct devices *devices, const char *wanted, size_t *fits, const char **hint)
{
    struct device_info list[DEVICES_MAX];
    for (int i = 0; i < devices->count; i++)
        list[i] = devices->rows[i].status.info;
    *hint = device_hint(list, (size_t)devices->count);
    return device_find(list, (size_t)devices->count, wanted, fits);
}

static enum error_code devices_find_locked(const struct devices *devices, const char *wanted, int *device,
                                           struct error *err)
{
    char known[512] = "";
    const char *hint;
    size_t fits;
    *device = devices_lookup(devices, wanted, &fits, &hint);
    if (*device >= 0)
        return OK;
    for (int i = 0; i < devices->count; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", devices->rows[i].status.info.id);
    }
    const bool several = strchr(wanted, ',') != NULL;
    if (err && err->code)
        return ERROR_INVALID;
    error_set(err, ERROR_INVALID, "device: \"%.64s\" %s; there are: %.400s", wanted,
              fits      ? "fits several devices"
              : several ? "is a list, and a request takes one device"
                        : "is none of the devices",
              *known ? known : "none");
    if (!fits && !several && *hint)
        error_local(err, "%s", hint);
    return ERROR_INVALID;
}

static uint32_t devices_bit(int device)
{
    return UINT32_C(1) << device;
}

static bool devices_row_usable(const struct row *row)
{
    return row->status.info.usable && !row->disabled;
}

/* Every usable device of the first kind that has any. */
static uint32_t devices_best_kind(const struct devices *devices)
{
    uint32_t best = 0;
    const struct row *first = NULL;
    for (int i = 0; i < devices->count; i++) {
        const struct row *row = &devices->rows[i];
        if (!devices_row_usable(row) || row->status.info.type == DEVICE_SOFTWARE)
            continue;
        first = first ? first : row;
        if (row->status.info.type == first->status.info.type)
            best |= devices_bit(i);
    }
    return best;
}

/* Moves the row up to that place; the rows between move down. */
static void devices_move_up(struct devices *devices, int from, int to)
{
    const struct row row = devices->rows[from];
    memmove(&devices->rows[to + 1], &devices->rows[to], sizeof row * (size_t)(from - to));
    devices->rows[to] = row;
}

/* Moves the wanted ones to the front, in their order; *number: how many. */
static enum error_code devices_choose_locked(struct devices *devices, const char *wanted, int *number,
                                             struct error *err)
{
    char list[1024], *rest = NULL;
    const char *hint;
    int device;
    size_t fits;
    *number = 0;
    if (devices_lookup(devices, wanted, &fits, &hint) >= 0 || !strchr(wanted, ',')) { /* a name may have a comma, too */
        enum error_code code = devices_find_locked(devices, wanted, &device, err);
        if (!code)
            devices_move_up(devices, device, (*number)++);
        return code;
    }
    snprintf(list, sizeof list, "%s", wanted);
    for (char *item = strtok_r(list, ",", &rest); item; item = strtok_r(NULL, ",", &rest)) {
        item += strspn(item, " ");
        for (size_t size = strlen(item); size && item[size - 1] == ' '; size--)
            item[size - 1] = 0;
        if (!strcasecmp(item, "auto"))
            return error_set(err, ERROR_INVALID,
                             "device: \"auto\" cannot be part of a list; name the devices in order of preference");
        if (devices_find_locked(devices, item, &device, err))
            return err ? err->code : ERROR_INVALID;
        if (device >= *number) /* not named twice */
            devices_move_up(devices, device, (*number)++);
    }
    return *number ? OK : error_set(err, ERROR_INVALID, "device: \"%.64s\" names no device", wanted);
}

enum error_code devices_choose(struct devices *devices, const char *wanted, struct error *err)
{
    enum error_code code = OK;
    pthread_mutex_lock(&devices->lock);
    if (!*wanted || !strcasecmp(wanted, "auto")) {
        devices->chosen = devices_best_kind(devices);
    } else {
        int number;
        if (!strcmp(wanted, "reference") && devices->count < DEVICES_MAX)
            devices->rows[devices->count++].status.info =
                (struct device_info){.id = "reference", .name = "reference", .type = DEVICE_CPU, .usable = true};
        code = devices_choose_locked(devices, wanted, &number, err);
        devices->chosen = code ? 0 : (uint32_t)((UINT64_C(1) << number) - 1);
    }
    pthread_mutex_unlock(&devices->lock);
    return code;
}

enum error_code devices_find(struct devices *devices, const char *wanted, int *device, struct error *err)
{
    pthread_mutex_lock(&devices->lock);
    enum error_code code = devices_find_locked(devices, wanted, device, err);
    if (!code && !devices_row_usable(&devices->rows[*device])) {
        const struct row *row = &devices->rows[*device];
        code = error_set(err, ERROR_DEVICE_DISABLED, "device: \"%.64s\" cannot be used: %s", wanted,
                         row->disabled ? row->trouble : row->status.info.reason);
    }
    pthread_mutex_unlock(&devices->lock);
    return code;
}

static bool devices_row_lost(const struct row *row)
{
    return !row->engine_count && *row->trouble;
}

/* Under the lock. */
static uint32_t devices_route_locked(const struct devices *devices, uint32_t tried)
{
    uint32_t routes = 0;
    bool working = false; /* one of them is at work, or about to be */
    for (int i = 0; i < devices->count; i++)
        if ((devices->chosen & ~tried & devices_bit(i)) && devices_row_usable(&devices->rows[i])) {
            routes |= devices_bit(i);
            working = working || !devices_row_lost(&devices->rows[i]);
        }
    for (int i = 0; i < devices->count && !working; i++) {
        const struct row *row = &devices->rows[i];
        if (!(tried & devices_bit(i)) && devices_row_usable(row) && !devices_row_lost(row) &&
            row->status.info.type != DEVICE_SOFTWARE) {
            routes |= devices_bit(i);
            working = true;
        }
    }
    return routes;
}

uint32_t devices_route(struct devices *devices, uint32_t tried)
{
    pthread_mutex_lock(&devices->lock);
    uint32_t routes = devices_route_locked(devices, tried);
    pthread_mutex_unlock(&devices->lock);
    return routes;
}

uint32_t devices_chosen(struct devices *devices, uint32_t tried)
{
    pthread_mutex_lock(&devices->lock);
    uint32_t chosen = devices->chosen & ~tried;
    pthread_mutex_unlock(&devices->lock);
    return chosen;
}

const char *devices_id(const struct devices *devices, int device)
{
    return devices->rows[device].id;
}

/* --- what it does --------------------------------------------------------------------------------------------------
 */

void devices_tested(struct devices *devices, int device, const struct selftest *test)
{
    pthread_mutex_lock(&devices->lock);
    struct row *row = &devices->rows[device];
    row->status.test = *test;
    row->disabled = test->fp32.state == SELFTEST_FAILED;
    if (row->disabled)
        snprintf(row->trouble, sizeof row->trouble, "%s", test->fp32.reason);
    pthread_mutex_unlock(&devices->lock);
}

void devices_up(struct devices *devices, int device, struct engine *engine)
{
    pthread_mutex_lock(&devices->lock);
    struct row *row = &devices->rows[device];
    if (row->engine_count < MAX_WORKERS)
        row->engines[row->engine_count++] = engine;
    row->trouble[0] = 0;
    pthread_mutex_unlock(&devices->lock);
}

/* Under the lock: keeps what must be remembered while nobody has it open. */
static void devices_remember(struct row *row)
{
    struct device_info *info = &row->status.info;
    uint64_t peak = info->memory_peak;
    if (row->engine_count)
        engine_info(row->engines[0], info);
    peak = peak > info->memory_peak ? peak : info->memory_peak;
    info->memory_peak = peak > info->memory_driver ? peak : info->memory_driver;
}

void devices_down(struct devices *devices, int device, struct engine *engine, const char *reason)
{
    pthread_mutex_lock(&devices->lock);
    struct row *row = &devices->rows[device];
    devices_remember(row);
    for (int i = 0; i < row->engine_count; i++)
        if (row->engines[i] == engine) {
            row->engines[i] = row->engines[--row->engine_count];
            break;
        }
    if (!row->engine_count)
        row->status.info.memory_used = row->status.info.memory_driver = 0;
    if (reason)
        snprintf(row->trouble, sizeof row->trouble, "%s", reason);
    pthread_mutex_unlock(&devices->lock);
}

void devices_info(struct devices *devices, int device, struct device_info *out)
{
    pthread_mutex_lock(&devices->lock);
    devices_remember(&devices->rows[device]);
    *out = devices->rows[device].status.info;
    pthread_mutex_unlock(&devices->lock);
}

/* Distributes a span of work over the seconds that it covers. */
static void devices_spread(struct row *row, int64_t from_ns, int64_t to_ns)
{
    const int64_t ns = 1000000000;
    row->status.busy_seconds += (double)(to_ns - from_ns) / 1e9;
    if (from_ns < to_ns - MINUTE * ns)
        from_ns = to_ns - MINUTE * ns;
    while (from_ns < to_ns) {
        int64_t second = from_ns / ns, end = (second + 1) * ns < to_ns ? (second + 1) * ns : to_ns;
        int slot = (int)(second % MINUTE);
        if (row->second[slot] != second) {
            row->second[slot] = second;
            row->busy[slot] = 0;
        }
        row->busy[slot] += (double)(end - from_ns) / 1e9;
        from_ns = end;
    }
}

void devices_begin(struct devices *devices, int device, const char *job_id)
{
    pthread_mutex_lock(&devices->lock);
    struct row *row = &devices->rows[device];
    if (!row->running_count)
        row->busy_since = job_now();
    if (row->running_count < MAX_WORKERS)
        snprintf(row->running[row->running_count++], sizeof row->running[0], "%s", job_id);
    pthread_mutex_unlock(&devices->lock);
}

void devices_end(struct devices *devices, int device, const char *job_id, enum job_state end)
{
    pthread_mutex_lock(&devices->lock);
    struct row *row = &devices->rows[device];
    for (int i = 0; i < row->running_count; i++)
        if (!strcmp(row->running[i], job_id)) {
            memmove(row->running[i], row->running[i + 1], sizeof row->running[0] * (size_t)(--row->running_count - i));
            break;
        }
    if (!row->running_count)
        devices_spread(row, row->busy_since, job_now());
    row->status.jobs_done += end == JOB_DONE;
    row->status.jobs_failed += end == JOB_FAILED;
    pthread_mutex_unlock(&devices->lock);
}

void devices_count_lost(struct devices *devices, int device, unsigned times)
{
    pthread_mutex_lock(&devices->lock);
    devices->rows[device].status.lost += times;
    pthread_mutex_unlock(&devices->lock);
}

/* Why this device does not run jobs that name none. first: one that does; NULL: none. */
static void devices_explain(const struct row *row, const struct row *first, char *out, size_t size)
{
    if (!row->status.info.usable)
        snprintf(out, size, "%s", row->status.info.reason);
    else if (row->disabled || devices_row_lost(row))
        snprintf(out, size, "%s", row->trouble);
    else if (row->status.info.type == DEVICE_SOFTWARE)
        snprintf(out, size, "software Vulkan is used only if a request or the key device names it");
    else if (first)
        snprintf(out, size, "jobs that name no device run on %s", first->status.info.id);
}

/* What GET /v1/devices says about the row. Works on a copy, so that an open span is not counted twice. */
static void devices_complete(struct row *row, int64_t now, struct device_status *out)
{
    devices_remember(row);
    struct row copy = *row;
    if (copy.running_count)
        devices_spread(&copy, copy.busy_since, now);
    double busy = 0;
    for (int i = 0; i < MINUTE; i++)
        if (copy.second[i] > now / 1000000000 - MINUTE)
            busy += copy.busy[i];
    *out = copy.status;
    out->open = row->engine_count > 0;
    out->utilisation = busy < MINUTE ? busy / MINUTE : 1;
    out->state = !devices_row_usable(row) ? DEVICE_DISABLED
                 : devices_row_lost(row)  ? DEVICE_LOST
                 : row->running_count     ? DEVICE_BUSY
                                          : DEVICE_IDLE;
    snprintf(out->current_job, sizeof out->current_job, "%s", copy.running_count ? copy.running[0] : "");
}

enum error_code devices_read(struct devices *devices, struct device_status **list, size_t *count, struct error *err)
{
    int64_t now = job_now();
    pthread_mutex_lock(&devices->lock);
    *count = (size_t)devices->count;
    *list = mem_calloc(*count + 1, sizeof **list);
    const uint32_t routes = devices_route_locked(devices, 0);
    const struct row *first = NULL; /* the first that works, else the first */
    for (int i = 0; i < devices->count; i++)
        if ((routes & devices_bit(i)) && (!first || (devices_row_lost(first) && !devices_row_lost(&devices->rows[i]))))
            first = &devices->rows[i];
    for (int i = 0; *list && i < devices->count; i++) {
        struct row *row = &devices->rows[i];
        struct device_status *status = &(*list)[i];
        devices_complete(row, now, status);
        status->is_default = row == first;
        if (!(routes & devices_bit(i)) || devices_row_lost(row))
            devices_explain(row, first, status->reason, sizeof status->reason);
    }
    pthread_mutex_unlock(&devices->lock);
    return *list ? OK : error_set(err, ERROR_NO_MEMORY, "no memory for the list of devices");
}
