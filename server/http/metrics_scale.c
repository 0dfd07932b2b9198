#include "server/http/metrics_scale.h"

#include <stdlib.h>
#include <string.h>

#include "server/http/metrics.h"
#include "server/job/cluster.h"

#define SCALE_MODELS 64       /* more are not told apart */
#define SCALE_GUESS 1.0       /* seconds a megapixel, until a worker has told its speed: the first one has to start */
#define SCALE_SEEN_SECONDS 20 /* a worker that was not seen for so long counts no more */

struct scale {
    double megapixels; /* that wait in the store */
    struct {
        char name[128];
        uint64_t jobs;
        double megapixels;
    } models[SCALE_MODELS];
    int model_count;
    int workers, measured;
    double busy, seconds; /* sums over workers, and over those that were measured */
    json_t *servers;      /* of a shared store */
};

static double scale_busy(struct worker_pool *pool, int *open)
{
    struct device_status *list;
    size_t count;
    double busy = 0;
    *open = 0;
    if (devices_read(worker_pool_devices(pool), &list, &count, NULL))
        return 0;
    for (size_t i = 0; i < count; i++)
        if (list[i].open) {
            busy += list[i].utilisation;
            ++*open;
        }
    free(list);
    return *open ? busy / *open : 0;
}

void metrics_scale_about(json_t *about, struct worker_pool *pool)
{
    struct stats_totals totals;
    int open;
    stats_read(worker_pool_stats(pool), &totals);
    json_object_set_new(about, "busy", json_real(scale_busy(pool, &open)));
    if (totals.done && totals.pixels_in)
        json_object_set_new(about, "megapixel_seconds",
                            json_real(totals.run_seconds / ((double)totals.pixels_in / 1e6)));
}

static void scale_add_model(struct scale *scale, const char *name, uint64_t jobs, double megapixels)
{
    int i = 0;
    while (i < scale->model_count && strcmp(scale->models[i].name, name) != 0)
        i++;
    if (i == SCALE_MODELS)
        return;
    if (i == scale->model_count) {
        snprintf(scale->models[i].name, sizeof scale->models[i].name, "%s", name);
        scale->model_count++;
    }
    scale->models[i].jobs += jobs;
    scale->models[i].megapixels += megapixels;
}

/* A store_needs_fn. */
static void scale_add_needs(void *context, const char *needs, uint64_t jobs, double megapixels)
{
    struct scale *scale = context;
    json_t *list = json_loads(needs, 0, NULL), *name;
    size_t i;
    scale->megapixels += megapixels;
    json_array_foreach(list, i, name) if (json_is_string(name))
        scale_add_model(scale, json_string_value(name), jobs, megapixels);
    json_decref(list);
}

static bool scale_works(const json_t *server)
{
    return json_is_true(json_object_get(server, "works")) &&
           json_number_value(json_object_get(server, "seen_seconds")) <= SCALE_SEEN_SECONDS;
}

static void scale_add_servers(struct scale *scale, struct cluster *cluster)
{
    struct error ignored = ERROR_INIT; /* it has just answered */
    json_t *server;
    size_t i;
    scale->servers = cluster_servers(cluster, &ignored);
    json_array_foreach(scale->servers, i, server)
    {
        const json_t *seconds = json_object_get(server, "megapixel_seconds");
        if (!scale_works(server))
            continue;
        scale->workers++;
        scale->busy += json_number_value(json_object_get(server, "busy"));
        scale->measured += seconds != NULL;
        scale->seconds += json_number_value(seconds);
    }
}

static void scale_print(FILE *out, const char *name, const char *help, double value)
{
    fprintf(out, "# HELP restored_%s %s\n# TYPE restored_%s gauge\nrestored_%s %.6g\n", name, help, name, name, value);
}

/* What each worker has: its `list` (devices, models), each by the member `key`. */
static void scale_print_workers(FILE *out, const json_t *servers, const char *list, const char *label, const char *key)
{
    const json_t *server, *row;
    size_t i, k;
    fprintf(out,
            "# HELP restored_worker_%s The %s of the workers of a shared store, each 1.\n"
            "# TYPE restored_worker_%s gauge\n",
            label, list, label);
    json_array_foreach(servers, i, server) if (scale_works(server))
        json_array_foreach(json_object_get(json_object_get(server, list), list), k, row)
    {
        const char *host = json_string_value(json_object_get(server, "host"));
        const char *name = json_string_value(json_object_get(row, key));
        if (!host || !name)
            continue;
        fprintf(out, "restored_worker_%s{worker=\"", label);
        metrics_print_value(out, host);
        fprintf(out, ":%d\",%s=\"", (int)json_integer_value(json_object_get(server, "pid")), label);
        metrics_print_value(out, name);
        fprintf(out, "\"} 1\n");
    }
}

/* Seconds that one worker takes for a megapixel, on average. */
static double scale_pace(const struct scale *scale)
{
    return scale->measured ? scale->seconds / scale->measured : SCALE_GUESS;
}

static void scale_print_model(FILE *out, const char *metric, const char *model, double value)
{
    fprintf(out, "restored_%s{model=\"", metric);
    metrics_print_value(out, model);
    fprintf(out, "\"} %.6g\n", value);
}

static void scale_print_models(FILE *out, const struct scale *scale)
{
    fprintf(out, "# HELP restored_waiting_jobs Asynchronous jobs that wait, by the models that they need.\n"
                 "# TYPE restored_waiting_jobs gauge\n");
    for (int i = 0; i < scale->model_count; i++)
        scale_print_model(out, "waiting_jobs", scale->models[i].name, (double)scale->models[i].jobs);
    fprintf(out, "# HELP restored_waiting_seconds What they would take one worker, by the models that they need.\n"
                 "# TYPE restored_waiting_seconds gauge\n");
    for (int i = 0; i < scale->model_count; i++)
        scale_print_model(out, "waiting_seconds", scale->models[i].name,
                          scale->models[i].megapixels * scale_pace(scale));
}

void metrics_scale_print(FILE *out, struct worker_pool *pool, struct keeper *keeper, const struct store_counts *counts)
{
    struct cluster *cluster = keeper ? keeper_cluster(keeper) : NULL;
    struct scale *scale = calloc(1, sizeof *scale);
    struct queue_ahead waiting;
    struct error ignored = ERROR_INIT;
    int open;
    if (!scale)
        return;
    queue_ahead_of_new(worker_pool_queue(pool), UINT32_MAX, NULL, true, &waiting);
    double seconds = waiting.seconds + counts->seconds_queued, busy = scale_busy(pool, &open);
    scale->workers = open > 0;
    if (keeper && store_needs(keeper_store(keeper), scale_add_needs, scale, &ignored))
        scale->megapixels = 0;
    if (cluster) {
        scale->workers = 0;
        scale_add_servers(scale, cluster);
        seconds = scale->megapixels * scale_pace(scale);
        busy = scale->workers ? scale->busy / scale->workers : 0;
    }
    scale_print(out, "queue_seconds", "What all jobs that wait would take one worker, by measured speed.", seconds);
    scale_print(out, "busy_ratio", "Share of the last minute in which the workers' devices worked, 0 to 1.", busy);
    scale_print(out, "workers", "Servers that take jobs.", scale->workers);
    scale_print_models(out, scale);
    scale_print_workers(out, scale->servers, "devices", "device", "id");
    scale_print_workers(out, scale->servers, "models", "model", "name");
    json_decref(scale->servers);
    free(scale);
}
