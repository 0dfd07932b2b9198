#include "server/job/devices.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/mem.h"

#define MAX_DEVICES 32
#define MAX_RUNNING 32 /* workers on one device */
#define MINUTE 60

struct row {
    struct device_status status;
    struct {
        char job[33];
        int64_t started_ns;
    } running[MAX_RUNNING];
    int running_count;
    double busy[MINUTE]; /* seconds of work in each second of the last minute, by second modulo 60 */
    int64_t second[MINUTE];
};

struct devices {
    pthread_mutex_t lock;
    struct row rows[MAX_DEVICES];
    int count;
};

void devices_status_of(const struct device_info *info, struct device_status *out)
{
    memset(out, 0, sizeof *out);
    out->info = *info;
    out->state = info->usable ? DEVICE_IDLE : DEVICE_DISABLED;
}

enum error_code devices_create(struct devices **out, struct error *err)
{
    struct device_info *list = NULL;
    size_t count = 0;
    enum error_code code = device_list(&list, &count, err);
    if (code)
        return code;
    struct devices *devices = mem_calloc(1, sizeof *devices);
    if (!devices) {
        free(list);
        return error_set(err, ERROR_NO_MEMORY, "no memory for the list of devices");
    }
    pthread_mutex_init(&devices->lock, NULL);
    for (size_t i = 0; i < count && devices->count < MAX_DEVICES; i++)
        devices_status_of(&list[i], &devices->rows[devices->count++].status);
    free(list);
    *out = devices;
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

/* Under the lock. */
static struct row *find(struct devices *devices, const char *id)
{
    for (int i = 0; i < devices->count; i++)
        if (!strcmp(devices->rows[i].status.info.id, id))
            return &devices->rows[i];
    return NULL;
}

enum error_code devices_find(struct devices *devices, const char *wanted, char id[32], struct error *err)
{
    char known[256] = "";
    const struct row *match = NULL, *part = NULL;
    int parts = 0;
    pthread_mutex_lock(&devices->lock);
    for (int i = 0; i < devices->count; i++) {
        const struct device_info *info = &devices->rows[i].status.info;
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", info->id);
        if (!strcasecmp(wanted, info->id) || !strcasecmp(wanted, info->uuid) || !strcasecmp(wanted, info->name)) {
            match = &devices->rows[i];
        } else if (strcasestr(info->name, wanted)) {
            part = &devices->rows[i];
            parts++;
        }
    }
    if (!match && parts == 1)
        match = part;
    enum error_code code = OK;
    if (match)
        snprintf(id, 32, "%s", match->status.info.id);
    else
        code = error_set(err, ERROR_INVALID, "device: \"%s\" %s; there are: %s", wanted,
                         parts ? "fits several devices" : "is none of the devices", *known ? known : "none");
    pthread_mutex_unlock(&devices->lock);
    return code;
}

void devices_update(struct devices *devices, const struct device_info *info)
{
    pthread_mutex_lock(&devices->lock);
    struct row *row = find(devices, info->id);
    if (!row && devices->count < MAX_DEVICES)
        row = &devices->rows[devices->count++];
    if (row) {
        row->status.info = *info;
        row->status.state = DEVICE_IDLE;
    }
    pthread_mutex_unlock(&devices->lock);
}

void devices_set_default(struct devices *devices, const char *id)
{
    pthread_mutex_lock(&devices->lock);
    for (int i = 0; i < devices->count; i++)
        devices->rows[i].status.is_default = !strcmp(devices->rows[i].status.info.id, id);
    pthread_mutex_unlock(&devices->lock);
}

void devices_begin(struct devices *devices, const char *id, const char *job_id)
{
    pthread_mutex_lock(&devices->lock);
    struct row *row = find(devices, id);
    if (row && row->running_count < MAX_RUNNING) {
        snprintf(row->running[row->running_count].job, sizeof row->running[0].job, "%s", job_id);
        row->running[row->running_count++].started_ns = job_now();
    }
    pthread_mutex_unlock(&devices->lock);
}

/* Spreads a span of work over the seconds it lay in. */
static void spread(struct row *row, int64_t from_ns, int64_t to_ns)
{
    const int64_t ns = 1000000000;
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

void devices_end(struct devices *devices, const char *id, const char *job_id, int64_t started_ns, enum job_state end)
{
    int64_t now = job_now();
    pthread_mutex_lock(&devices->lock);
    struct row *row = find(devices, id);
    for (int i = 0; row && i < row->running_count; i++)
        if (!strcmp(row->running[i].job, job_id)) {
            row->running[i] = row->running[--row->running_count];
            break;
        }
    if (row) {
        row->status.jobs_done += end == JOB_DONE;
        row->status.jobs_failed += end == JOB_FAILED;
        row->status.busy_seconds += (double)(now - started_ns) / 1e9;
        spread(row, started_ns, now);
    }
    pthread_mutex_unlock(&devices->lock);
}

void devices_mark_lost(struct devices *devices, const char *id)
{
    pthread_mutex_lock(&devices->lock);
    struct row *row = find(devices, id);
    if (row)
        row->status.state = DEVICE_LOST;
    pthread_mutex_unlock(&devices->lock);
}

void devices_count_loss(struct devices *devices, const char *id)
{
    pthread_mutex_lock(&devices->lock);
    struct row *row = find(devices, id);
    if (row)
        row->status.lost++;
    pthread_mutex_unlock(&devices->lock);
}

/* Fills in what follows from the jobs in work. Works on a copy, so that spans still open are not counted twice. */
static void complete(const struct row *row, int64_t now, struct device_status *out)
{
    struct row copy = *row;
    for (int i = 0; i < copy.running_count; i++) {
        copy.status.busy_seconds += (double)(now - copy.running[i].started_ns) / 1e9;
        spread(&copy, copy.running[i].started_ns, now);
    }
    double busy = 0;
    for (int i = 0; i < MINUTE; i++)
        if (copy.second[i] > now / 1000000000 - MINUTE)
            busy += copy.busy[i];
    *out = copy.status;
    out->utilisation = busy < MINUTE ? busy / MINUTE : 1;
    if (copy.running_count && out->state == DEVICE_IDLE)
        out->state = DEVICE_BUSY;
    snprintf(out->current_job, sizeof out->current_job, "%s", copy.running_count ? copy.running[0].job : "");
}

enum error_code devices_read(struct devices *devices, struct device_status **list, size_t *count, struct error *err)
{
    int64_t now = job_now();
    pthread_mutex_lock(&devices->lock);
    *count = (size_t)devices->count;
    *list = mem_calloc(*count + 1, sizeof **list);
    for (size_t i = 0; *list && i < *count; i++)
        complete(&devices->rows[i], now, &(*list)[i]);
    pthread_mutex_unlock(&devices->lock);
    return *list ? OK : error_set(err, ERROR_NO_MEMORY, "no memory for the list of devices");
}
