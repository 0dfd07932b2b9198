/* Measures the pictures per second of a server whose queue is never empty: the server and its clients run in this
 * process. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/file.h"
#include "runtime/base/mem.h"
#include "server/cli/bench.h"
#include "server/cli/bench_client.h"
#include "server/http/server.h"

#define POLL_MS 5
#define WARM_SECONDS 300 /* for the devices to open and to make what they need for the picture */
#define MEASURE_MS 15000
#define CLIENTS_EACH 8  /* for each device: enough for its threads and some in the queue */
#define CLIENTS_MAX 192 /* of the connections that the server takes */

enum phase { WARM, MEASURE, STOP };

struct load {
    struct config config; /* of the server */
    struct file file;
    char head[4096]; /* of the request */
    int port, clients, wanted;
    struct model_store *store;
    struct worker_pool *pool;
    struct server *server;

    pthread_mutex_t lock; /* of what follows */
    enum phase phase;
    struct error err;
    int faces, done; /* done: in all */
    double *ms, begun, ended;
    int count, room;
};

/* ---- the clients ---- */

/* Under the lock. */
static void load_record(struct load *load, double begun, double ended)
{
    load->done++;
    if (load->phase != MEASURE)
        return;
    if (load->count == load->room) {
        const int room = load->room ? 2 * load->room : 1024;
        double *ms = realloc(load->ms, (size_t)room * sizeof *ms);
        if (!ms) {
            load->phase = STOP;
            error_set(&load->err, ERROR_NO_MEMORY, "out of memory for the times");
            return;
        }
        load->ms = ms;
        load->room = room;
    }
    load->ms[load->count++] = ended - begun;
    load->ended = ended;
    if (load->wanted ? load->count >= load->wanted : load->count >= load->clients && ended - load->begun >= MEASURE_MS)
        load->phase = STOP;
}

static void *load_client_main(void *argument)
{
    struct load *load = argument;
    struct bench_client *client = NULL;
    struct error err = ERROR_INIT;
    int faces = 0;
    enum error_code code = bench_client_create(&client, load->port, &err);
    for (bool more = true; more;) {
        const double begun = bench_now();
        if (!code)
            code = bench_client_post(client, load->head, load->file.data, load->file.size, &faces, &err);
        pthread_mutex_lock(&load->lock);
        if (code && load->phase != STOP) {
            error_set(&load->err, code, "%s", err.text);
            load->phase = STOP;
        } else if (!code) {
            load->faces = faces;
            load_record(load, begun, bench_now());
        }
        more = load->phase != STOP;
        pthread_mutex_unlock(&load->lock);
    }
    bench_client_destroy(&client);
    return NULL;
}

/* The options that differ from their defaults, as a query. The server chooses the device. */
static void load_make_head(struct load *load, const struct options *options)
{
    struct options initial;
    char query[2048] = "";
    size_t used = 0;
    options_init(&initial);
    for (int i = 0; i < option_row_count; i++) {
        char text[OPTION_TEXT_MAX], usual[OPTION_TEXT_MAX];
        options_text(options, option_rows[i].name, text, sizeof text);
        options_text(&initial, option_rows[i].name, usual, sizeof usual);
        if (!strcmp(option_rows[i].name, "device") || !strcmp(text, usual) ||
            used + 3 * strlen(text) + 64 > sizeof query)
            continue;
        used += (size_t)sprintf(query + used, "%c%s=", used ? '&' : '?', option_rows[i].name);
        for (const char *c = text; *c; c++)
            used += (size_t)sprintf(query + used, "%%%02x", (unsigned char)*c);
    }
    snprintf(load->head, sizeof load->head,
             "POST /v1/restore%s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/octet-stream\r\n"
             "Content-Length: %zu\r\n\r\n",
             query, load->file.size);
}

/* ---- the server ---- */

static enum error_code load_start_server(struct load *load, const char *devices, const char *cache_dir,
                                         struct error *err)
{
    const struct config *config = &load->config;
    const struct worker_settings settings = {.device = devices,
                                             .cache_dir = cache_dir,
                                             .precision = config->precision,
                                             .workers = (int)config->workers,
                                             .queue = (size_t)load->clients,
                                             .job_seconds = (int)config->job_seconds,
                                             .memory = config->memory,
                                             .keep_seconds = (int64_t)config->keep_seconds};
    char url[160];
    enum error_code code = worker_pool_create(&load->pool, &settings, load->store, err);
    if (!code)
        code = server_create(&load->server, config, load->store, load->pool, NULL, err);
    if (code)
        return code;
    server_url(load->server, url, sizeof url);
    load->port = atoi(strrchr(url, ':') + 1);
    const struct timespec pause = {0, POLL_MS * 1000000};
    while (error_clear(err), (code = worker_pool_ready(load->pool, err)) == ERROR_BUSY)
        nanosleep(&pause, NULL);
    return code;
}

static void load_stop_server(struct load *load)
{
    const struct timespec pause = {0, POLL_MS * 1000000};
    while (load->pool && !worker_pool_idle(load->pool))
        nanosleep(&pause, NULL);
    server_destroy(&load->server);
    worker_pool_destroy(&load->pool);
}

/* Whether every device that runs jobs has done some. */
static bool load_warm(struct load *load)
{
    struct devices *devices = worker_pool_devices(load->pool);
    struct device_status *list = NULL;
    struct error err = ERROR_INIT;
    size_t count = 0;
    int left = __builtin_popcount(devices_chosen(devices, 0));
    if (devices_read(devices, &list, &count, &err))
        return true;
    for (size_t i = 0; i < count; i++)
        left -= list[i].jobs_done >= 3;
    free(list);
    return left <= 0;
}

/* ---- what came of it ---- */

/* Counts at the beginning of the measurement and now. */
struct counts {
    struct stats_totals totals;
    struct device_status *devices;
    size_t device_count;
};

static enum error_code load_read_counts(struct load *load, struct counts *counts, struct error *err)
{
    stats_read(worker_pool_stats(load->pool), &counts->totals);
    return devices_read(worker_pool_devices(load->pool), &counts->devices, &counts->device_count, err);
}

/* What a stage took on average, ms. */
static json_t *load_mean_stages(const struct stats_totals *before, const struct stats_totals *after)
{
    json_t *stages = json_object();
    for (int s = 0; s < STAGE_COUNT; s++) {
        double n = 0;
        for (int b = 0; b <= HISTOGRAM_BOUNDS; b++)
            n += (double)(after->stage[s].buckets[b] - before->stage[s].buckets[b]);
        if (n > 0)
            json_object_set_new(stages, stage_name((enum stage)s),
                                json_real((after->stage[s].sum - before->stage[s].sum) / n * 1e3));
    }
    return stages;
}

static json_t *load_result_json(const struct load *load, const struct counts *before, const struct counts *after)
{
    const double seconds = (load->ended - load->begun) / 1e3;
    json_t *times = bench_times(load->ms, load->count), *devices = json_array();
    json_object_set_new(times, "p95", json_real(load->ms[(95 * load->count + 99) / 100 - 1])); /* they are sorted now */
    for (size_t i = 0; i < after->device_count; i++) {
        const struct device_status *was = &before->devices[i], *is = &after->devices[i];
        if (!is->jobs_done)
            continue;
        json_t *device = bench_device(&is->info);
        json_object_set_new(device, "pictures", json_integer((json_int_t)(is->jobs_done - was->jobs_done)));
        json_object_set_new(device, "busy", json_real((is->busy_seconds - was->busy_seconds) / seconds));
        json_object_set_new(device, "memory_peak", json_integer((json_int_t)is->info.memory_peak));
        json_array_append_new(devices, device);
    }
    return json_pack("{s:o, s:i, s:i, s:f, s:f, s:o, s:i, s:o, s:I}", "devices", devices, "connections", load->clients,
                     "pictures", load->count, "seconds", seconds, "pictures_per_second", load->count / seconds, "ms",
                     times, "faces", load->faces, "stages", load_mean_stages(&before->totals, &after->totals),
                     "process_peak", (json_int_t)bench_memory_peak());
}

/* Waits until the clients have done enough, or one has failed. */
static void load_measure(struct load *load, struct counts *before)
{
    const struct timespec pause = {0, POLL_MS * 1000000};
    const double started = bench_now();
    for (bool more = true; more; nanosleep(&pause, NULL)) {
        const bool ready = load_warm(load);
        pthread_mutex_lock(&load->lock);
        if (load->phase == WARM && ready && load->done >= 2 * load->clients) {
            if (load_read_counts(load, before, &load->err))
                load->phase = STOP;
            else
                load->phase = MEASURE;
            load->begun = bench_now();
        } else if (load->phase == WARM && bench_now() - started > WARM_SECONDS * 1e3) {
            error_set(&load->err, ERROR_DEVICE, "not every device has done a picture after %d s", WARM_SECONDS);
            load->phase = STOP;
        }
        more = load->phase != STOP;
        pthread_mutex_unlock(&load->lock);
    }
}

/* One set of devices. */
static enum error_code load_run_clients(struct load *load, const struct bench_settings *settings, const char *devices,
                                        json_t **out, struct error *err)
{
    pthread_t *threads = mem_calloc((size_t)load->clients, sizeof *threads);
    struct counts before = {.device_count = 0}, after = {.device_count = 0};
    int started = 0;
    *out = NULL;
    load->phase = WARM;
    load->done = load->count = 0;
    bench_memory_reset();
    enum error_code code = threads ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory for the clients");
    if (!code)
        code = load_start_server(load, devices, settings->cache_dir, err);
    for (; !code && started < load->clients; started++)
        if (pthread_create(&threads[started], NULL, load_client_main, load)) {
            code = error_set(err, ERROR_IO, "a client could not be started");
            load->phase = STOP;
            break;
        }
    if (!code)
        load_measure(load, &before);
    if (!code && !load->err.code)
        code = load_read_counts(load, &after, err);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    if (load->err.code)
        code = error_set(err, load->err.code, "%s", load->err.text);
    if (!code)
        *out = load_result_json(load, &before, &after);
    free(before.devices);
    free(after.devices);
    free(threads);
    load_stop_server(load);
    return code;
}

/* The devices that run jobs which name none, in their order. */
static enum error_code load_choose_devices(const char *wanted, struct devices **devices, int *count, struct error *err)
{
    struct device_info *list = NULL;
    size_t all = 0;
    enum error_code code = device_list(&list, &all, err);
    if (!code)
        code = devices_create(devices, list, all, err);
    if (!code)
        code = devices_choose(*devices, wanted, err);
    if (!code && !(*count = __builtin_popcount(devices_chosen(*devices, 0))))
        code = error_set(err, ERROR_DEVICE, "there is no usable device; restored devices lists them");
    free(list);
    return code;
}

/* The first n of them as a comma-separated list. */
static void load_first_devices(struct devices *devices, int n, char *out, size_t size)
{
    size_t used = 0;
    out[0] = 0;
    for (uint32_t left = devices_chosen(devices, 0); left && n > 0 && used < size; left &= left - 1, n--)
        used += (size_t)snprintf(out + used, size - used, "%s%s", used ? "," : "",
                                 devices_id(devices, __builtin_ctz(left)));
}

enum error_code bench_load(const struct bench_settings *settings, const struct config *config, const char *path,
                           int clients, bench_load_fn *each, void *context, struct error *err)
{
    struct load load = {.config = *config, .store = settings->store, .wanted = settings->runs};
    struct devices *devices = NULL;
    int count = 0;
    snprintf(load.config.listen, sizeof load.config.listen, "127.0.0.1:0");
    *load.config.metrics_listen = *load.config.auth_token_file = *load.config.tls_cert = *load.config.tls_key =
        0; /* its clients are in this process */
    pthread_mutex_init(&load.lock, NULL);
    enum error_code code = load_choose_devices(settings->device, &devices, &count, err);
    if (!code)
        code = file_map(&load.file, path, err);
    load_make_head(&load, &settings->options);
    for (int n = 1; !code && n <= count; n = n < count && 2 * n > count ? count : 2 * n) {
        char list[1024];
        json_t *row;
        load_first_devices(devices, n, list, sizeof list);
        load.clients = clients ? clients : n * CLIENTS_EACH < CLIENTS_MAX ? n * CLIENTS_EACH : CLIENTS_MAX;
        code = load_run_clients(&load, settings, list, &row, err);
        if (!code)
            each(row, context);
    }
    devices_destroy(&devices);
    pthread_mutex_destroy(&load.lock);
    free(load.ms);
    file_unmap(&load.file);
    return code;
}
