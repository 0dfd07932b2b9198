#include "server/http/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/mem.h"
#include "server/http/job_json.h"
#include "server/http/metrics_scale.h"
#include "server/process.h"
#include "server/version.h"

#define MAX_REQUESTS 512 /* more than the combinations of route, method and status */
#define MAX_ROUTES 48

struct metrics {
    pthread_mutex_t lock;
    struct {
        const char *route, *method;
        int status;
        uint64_t count;
    } requests[MAX_REQUESTS];
    int request_count;
    struct {
        const char *route;
        struct histogram seconds;
    } routes[MAX_ROUTES];
    int route_count;
    uint64_t rejected[REJECTED_COUNT];
    double started_seconds; /* read once: clocks are set, and this must not change with them */
};

enum error_code metrics_create(struct metrics **out, struct error *err)
{
    *out = mem_calloc(1, sizeof **out);
    if (!*out)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the metrics");
    pthread_mutex_init(&(*out)->lock, NULL);
    (*out)->started_seconds = process_read().started_seconds;
    return OK;
}

void metrics_destroy(struct metrics **metrics)
{
    struct metrics *old = *metrics;
    *metrics = NULL;
    if (!old)
        return;
    pthread_mutex_destroy(&old->lock);
    free(old);
}

void metrics_request(struct metrics *metrics, const char *route, const char *method, int status, double seconds)
{
    pthread_mutex_lock(&metrics->lock);
    int i = 0;
    while (i < metrics->request_count &&
           (strcmp(metrics->requests[i].route, route) != 0 || strcmp(metrics->requests[i].method, method) != 0 ||
            metrics->requests[i].status != status))
        i++;
    if (i < MAX_REQUESTS) {
        metrics->requests[i].route = route;
        metrics->requests[i].method = method;
        metrics->requests[i].status = status;
        metrics->requests[i].count++;
        metrics->request_count = i < metrics->request_count ? metrics->request_count : i + 1;
    }
    int j = 0;
    while (j < metrics->route_count && strcmp(metrics->routes[j].route, route) != 0)
        j++;
    if (j < MAX_ROUTES) {
        metrics->routes[j].route = route;
        histogram_add(&metrics->routes[j].seconds, seconds);
        metrics->route_count = j < metrics->route_count ? metrics->route_count : j + 1;
    }
    pthread_mutex_unlock(&metrics->lock);
}

void metrics_rejected(struct metrics *metrics, enum rejected reason)
{
    pthread_mutex_lock(&metrics->lock);
    metrics->rejected[reason]++;
    pthread_mutex_unlock(&metrics->lock);
}

static void metrics_print_family(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP restored_%s %s\n# TYPE restored_%s %s\n", name, help, name, type);
}

static void metrics_print_histogram(FILE *out, const char *name, const char *label, const char *value,
                                    const struct histogram *histogram)
{
    char first[96] = "", braces[96] = "";
    if (label) {
        snprintf(first, sizeof first, "%s=\"%s\",", label, value);
        snprintf(braces, sizeof braces, "{%s=\"%s\"}", label, value);
    }
    uint64_t count = 0;
    for (int i = 0; i < HISTOGRAM_BOUNDS; i++) {
        count += histogram->buckets[i];
        fprintf(out, "restored_%s_bucket{%sle=\"%g\"} %llu\n", name, first, histogram_bounds[i],
                (unsigned long long)count);
    }
    count += histogram->buckets[HISTOGRAM_BOUNDS];
    fprintf(out, "restored_%s_bucket{%sle=\"+Inf\"} %llu\nrestored_%s_sum%s %.9g\nrestored_%s_count%s %llu\n", name,
            first, (unsigned long long)count, name, braces, histogram->sum, name, braces, (unsigned long long)count);
}

void metrics_print_value(FILE *out, const char *value)
{
    for (; *value; value++)
        if (*value == '\\' || *value == '"')
            fprintf(out, "\\%c", *value);
        else
            fputc(*value == '\n' ? ' ' : *value, out);
}

static void metrics_print_http(FILE *out, struct metrics *metrics)
{
    static const char *const reasons[] = {"queue_full", "draining",     "not_ready",     "body_too_large",
                                          "pixels",     "connections",  "memory",        "too_slow",
                                          "token",      "rate_limited", "too_many_jobs", "full"};
    pthread_mutex_lock(&metrics->lock);
    metrics_print_family(out, "http_requests_total", "counter", "Requests answered, by route, method and status.");
    for (int i = 0; i < metrics->request_count; i++)
        fprintf(out, "restored_http_requests_total{route=\"%s\",method=\"%s\",code=\"%d\"} %llu\n",
                metrics->requests[i].route, metrics->requests[i].method, metrics->requests[i].status,
                (unsigned long long)metrics->requests[i].count);
    metrics_print_family(out, "http_request_duration_seconds", "histogram",
                         "From a request's header to the end of its answer.");
    for (int i = 0; i < metrics->route_count; i++)
        metrics_print_histogram(out, "http_request_duration_seconds", "route", metrics->routes[i].route,
                                &metrics->routes[i].seconds);
    metrics_print_family(out, "rejected_total", "counter", "Requests refused before any work, by reason.");
    for (int i = 0; i < REJECTED_COUNT; i++)
        fprintf(out, "restored_rejected_total{reason=\"%s\"} %llu\n", reasons[i],
                (unsigned long long)metrics->rejected[i]);
    pthread_mutex_unlock(&metrics->lock);
}

static void metrics_print_pair(FILE *out, const char *name, const char *label, const char *first, uint64_t one,
                               const char *second, uint64_t two)
{
    fprintf(out, "restored_%s{%s=\"%s\"} %llu\nrestored_%s{%s=\"%s\"} %llu\n", name, label, first,
            (unsigned long long)one, name, label, second, (unsigned long long)two);
}

static void metrics_print_jobs(FILE *out, struct worker_pool *pool)
{
    struct stats_totals totals;
    stats_read(worker_pool_stats(pool), &totals);
    metrics_print_family(out, "stage_duration_seconds", "histogram", "Time in each stage of a job.");
    for (int stage = STAGE_DECODE; stage < STAGE_COUNT; stage++)
        metrics_print_histogram(out, "stage_duration_seconds", "stage", stage_name((enum stage)stage),
                                &totals.stage[stage]);
    metrics_print_family(out, "jobs_total", "counter", "Jobs ended, by state.");
    fprintf(out, "restored_jobs_total{state=\"done\"} %llu\n", (unsigned long long)totals.done);
    metrics_print_pair(out, "jobs_total", "state", "failed", totals.failed, "cancelled", totals.cancelled);
    metrics_print_family(out, "jobs_stopped_total", "counter",
                         "Failed jobs that passed their deadline or made no progress.");
    metrics_print_pair(out, "jobs_stopped_total", "reason", "timeout", totals.timeouts, "stalled", totals.stalled);
    metrics_print_family(out, "queue_depth", "gauge", "Jobs that wait.");
    fprintf(out, "restored_queue_depth %zu\n", queue_depth(worker_pool_queue(pool)));
    metrics_print_family(out, "queue_capacity", "gauge", "Jobs that may wait.");
    fprintf(out, "restored_queue_capacity %zu\n", queue_capacity(worker_pool_queue(pool)));
    metrics_print_family(out, "queue_wait_seconds", "histogram", "Time jobs waited.");
    metrics_print_histogram(out, "queue_wait_seconds", NULL, NULL, &totals.wait);
    metrics_print_family(out, "faces_total", "counter", "Faces found in finished jobs, by result.");
    metrics_print_pair(out, "faces_total", "result", "restored", totals.faces_restored, "skipped",
                       totals.faces_skipped);
    metrics_print_family(out, "tiles_total", "counter", "Tiles of backgrounds upsampled.");
    fprintf(out, "restored_tiles_total %llu\n", (unsigned long long)totals.tiles);
    uint64_t received, given;
    share_counts(worker_pool_share(pool), &received, &given);
    metrics_print_family(out, "shared_tiles_total", "counter",
                         "Tiles that other servers have computed for this one, and this one for others.");
    metrics_print_pair(out, "shared_tiles_total", "direction", "received", received, "given", given);
    metrics_print_family(out, "pixels_total", "counter", "Pixels of pictures read and written.");
    metrics_print_pair(out, "pixels_total", "direction", "in", totals.pixels_in, "out", totals.pixels_out);
    metrics_print_family(
        out, "fallbacks_total", "counter",
        "Work done again: unusable results in fp32, jobs of a lost device on another one, and what did not fit "
        "into the device's memory in smaller pieces.");
    metrics_print_pair(out, "fallbacks_total", "reason", "fp32", totals.fallbacks, "device_lost", totals.handed_over);
    fprintf(out, "restored_fallbacks_total{reason=\"memory\"} %llu\n", (unsigned long long)totals.shrinks);
}

static void metrics_print_devices(FILE *out, struct worker_pool *pool)
{
    struct device_status *list;
    size_t count;
    if (devices_read(worker_pool_devices(pool), &list, &count, NULL))
        return;
    metrics_print_family(out, "device_memory_bytes", "gauge",
                         "Memory of a device: all of it, what is free for us, what we use, the most that we used.");
    for (size_t i = 0; i < count; i++) {
        const struct device_info *info = &list[i].info;
        const struct {
            const char *kind;
            uint64_t bytes;
        } rows[] = {{"total", info->memory_total},
                    {"budget", info->memory_budget},
                    {"used", info->memory_driver},
                    {"peak", info->memory_peak}};
        for (int k = 0; k < 4; k++)
            fprintf(out, "restored_device_memory_bytes{device=\"%s\",kind=\"%s\"} %llu\n", info->id, rows[k].kind,
                    (unsigned long long)rows[k].bytes);
    }
    metrics_print_family(out, "device_busy_seconds_total", "counter", "Time a device has worked.");
    for (size_t i = 0; i < count; i++)
        fprintf(out, "restored_device_busy_seconds_total{device=\"%s\"} %.9g\n", list[i].info.id, list[i].busy_seconds);
    metrics_print_family(out, "device_lost_total", "counter", "How often a device was lost.");
    for (size_t i = 0; i < count; i++)
        fprintf(out, "restored_device_lost_total{device=\"%s\"} %llu\n", list[i].info.id,
                (unsigned long long)list[i].lost);
    free(list);
}

/* Under the names that every exporter gives them. What the system does not tell is left out. */
static void metrics_print_process(FILE *out, double started_seconds)
{
    const struct process_usage usage = process_read();
    const struct {
        const char *name, *type, *help;
        double value;
    } rows[] = {
        {"cpu_seconds_total", "counter", "Processor time of all threads, in the program and in the kernel.",
         usage.cpu_seconds},
        {"resident_memory_bytes", "gauge", "Memory that is in RAM.", (double)usage.resident},
        {"virtual_memory_bytes", "gauge", "Address space.", (double)usage.virtual},
        {"open_fds", "gauge", "Open file descriptors.", (double)usage.open_files},
        {"max_fds", "gauge", "File descriptors that may be open.", (double)usage.max_files},
        {"start_time_seconds", "gauge", "When the process started, since 1970, UTC.", started_seconds},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].value > 0)
            fprintf(out, "# HELP process_%s %s\n# TYPE process_%s %s\nprocess_%s %.15g\n", rows[i].name, rows[i].help,
                    rows[i].name, rows[i].type, rows[i].name, rows[i].value);
}

/* Jobs of the store, as far as it says. */
static void metrics_print_stored(FILE *out, const struct store_counts *counts)
{
    metrics_print_family(out, "async_jobs", "gauge", "Asynchronous jobs that are kept.");
    for (int state = 0; state < STORE_STATES; state++)
        fprintf(out, "restored_async_jobs{state=\"%s\"} %llu\n", job_json_state((enum store_state)state),
                (unsigned long long)counts->jobs[state]);
    metrics_print_family(out, "async_oldest_seconds", "gauge",
                         "How long the oldest waiting asynchronous job has waited.");
    fprintf(out, "restored_async_oldest_seconds %.3f\n",
            counts->oldest_queued ? (double)(job_clock() - counts->oldest_queued) / 1e3 : 0.0);
}

/* What asynchronous jobs need of this machine; keeper NULL: none are kept. */
static void metrics_print_kept(FILE *out, struct keeper *keeper)
{
    metrics_print_family(out, "spool_bytes", "gauge", "Bytes of pictures in the state folder.");
    fprintf(out, "restored_spool_bytes %llu\n", keeper ? (unsigned long long)spool_used(keeper_spool(keeper)) : 0ull);
    metrics_print_family(out, "spool_max_bytes", "gauge", "Bytes that may be there: spool_max_bytes.");
    fprintf(out, "restored_spool_max_bytes %llu\n",
            keeper ? (unsigned long long)spool_most(keeper_spool(keeper)) : 0ull);
    metrics_print_family(out, "spool_promised_bytes", "gauge",
                         "Bytes kept free there for the results of asynchronous jobs that have not ended.");
    fprintf(out, "restored_spool_promised_bytes %llu\n",
            keeper ? (unsigned long long)spool_promised(keeper_spool(keeper)) : 0ull);
    metrics_print_family(out, "jobs_waiting_for_room", "gauge",
                         "Asynchronous jobs that are done and whose results wait for room in the state folder.");
    fprintf(out, "restored_jobs_waiting_for_room %d\n", keeper ? keeper_roomless(keeper, NULL, NULL) : 0);
}

char *metrics_render(struct metrics *metrics, struct worker_pool *pool, struct keeper *keeper, const char *as,
                     size_t *size)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, size);
    if (!out)
        return NULL;
    metrics_print_http(out, metrics);
    metrics_print_jobs(out, pool);
    struct store_counts counts = {0};
    struct error ignored = ERROR_INIT;
    const bool up = !keeper || !keeper_look_count(keeper, NULL, NULL, &counts, &ignored);
    metrics_print_family(out, "store_up", "gauge", "Whether the store of jobs answers.");
    fprintf(out, "restored_store_up %d\n", up);
    if (up) { /* else nothing is said: 0 would mean that there are none */
        metrics_scale_print(out, pool, keeper, &counts);
        metrics_print_stored(out, &counts);
    }
    metrics_print_kept(out, keeper);
    metrics_print_devices(out, pool);
    char loaded[ROLE_COUNT][128];
    worker_pool_loaded(pool, loaded);
    metrics_print_family(out, "model_loaded", "gauge", "The default models on the device.");
    for (int role = 0; role < ROLE_COUNT; role++)
        if (*loaded[role]) {
            fprintf(out, "restored_model_loaded{model=\"");
            metrics_print_value(out, loaded[role]);
            fprintf(out, "\"} 1\n");
        }
    metrics_print_family(out, "build_info", "gauge", "The program's version, and the server's role.");
    fprintf(out, "restored_build_info{version=\"%s\",role=\"%s\"} 1\n", RESTORED_VERSION, as);
    metrics_print_process(out, metrics->started_seconds);
    if (fclose(out)) {
        free(text);
        return NULL;
    }
    return text;
}
