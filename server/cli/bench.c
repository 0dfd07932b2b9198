#include "server/cli/bench.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/file.h"
#include "runtime/base/mem.h"
#include "server/http/json.h"
#include "server/job/engine.h"

/* ---- time ---- */

double bench_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

enum error_code bench_clock_start(struct bench_clock *clock, int wanted, int least, int most, double budget_ms,
                                  struct error *err)
{
    *clock = (struct bench_clock){.wanted = wanted, .room = wanted ? wanted : most > least ? most : least};
    clock->budget_ms = budget_ms;
    clock->ms = mem_calloc((size_t)clock->room, sizeof *clock->ms);
    clock->started = bench_now();
    return clock->ms ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory");
}

bool bench_clock_more(const struct bench_clock *clock, int least)
{
    if (clock->count == clock->room)
        return false;
    return clock->wanted || clock->count < least || bench_now() - clock->started < clock->budget_ms;
}

void bench_clock_add(struct bench_clock *clock, double ms)
{
    clock->ms[clock->count++] = ms;
}

static int bench_compare_times(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

json_t *bench_times(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, bench_compare_times);
    double median = count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
    int p90 = (9 * count + 9) / 10 - 1; /* the smallest value that 90% do not exceed */
    return json_pack("{s:f, s:f, s:f}", "median", median, "p90", values[p90], "least", values[0]);
}

/* ---- memory ---- */

void bench_memory_reset(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "we");
    if (file) {
        fputs("5", file); /* proc(5): resets VmHWM */
        fclose(file);
    }
}

uint64_t bench_memory_peak(void)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/self/status", "re");
    while (file && fgets(line, sizeof line, file) && sscanf(line, "VmHWM: %llu kB", &kib) != 1)
        ;
    if (file)
        fclose(file);
    return (uint64_t)kib << 10;
}

json_t *bench_device(const struct device_info *info)
{
    return json_pack("{s:s, s:s, s:s, s:s}", "id", info->id, "name", info->name, "driver", info->driver, "type",
                     json_device_type_name(info->type));
}

/* ---- the pipeline ---- */

struct pipeline_runs {
    struct bench_clock clock;
    double *stage[STAGE_COUNT], *network[STAGE_COUNT], *networks, *outside; /* [clock.room] each, by run */
};

static enum error_code bench_pipeline_once(const struct bench_settings *settings, struct engine *engine,
                                           const struct file *file, struct pipeline_runs *runs, json_t **report,
                                           struct error *err)
{
    struct restoration *r;
    enum error_code code = restoration_create(&r, err);
    if (code)
        return code;
    r->options = settings->options;
    r->limits = settings->limits;
    r->input = file->data;
    r->input_bytes = file->size;
    code = engine_run(engine, r, err);
    if (!code && runs) {
        int run = runs->clock.count;
        double networks = 0;
        for (int s = 0; s < STAGE_COUNT; s++) {
            runs->stage[s][run] = r->stage_ms[s];
            runs->network[s][run] = r->network_ms[s];
            networks += r->network_ms[s];
        }
        runs->networks[run] = networks;
        runs->outside[run] = r->total_ms - networks;
        bench_clock_add(&runs->clock, r->total_ms);
    }
    if (!code && report) {
        json_decref(*report);
        *report = restoration_report(r);
    }
    restoration_destroy(&r);
    return code;
}

static json_t *bench_pipeline_result(struct pipeline_runs *runs, const char *path, json_t *report)
{
    json_t *stages = json_object(), *out = json_object();
    int count = runs->clock.count;
    for (int s = STAGE_DECODE; s < STAGE_COUNT; s++) {
        json_t *stage = bench_times(runs->stage[s], count), *network = bench_times(runs->network[s], count);
        json_object_set(stage, "network", json_object_get(network, "median"));
        json_decref(network);
        json_object_set_new(stages, stage_name((enum stage)s), stage);
    }
    json_object_set_new(out, "picture", json_string(path));
    for (int i = 0; i < 4; i++) {
        static const char *const kept[] = {"input", "output", "models", "tiles"};
        json_object_set(out, kept[i], json_object_get(report, kept[i]));
    }
    json_object_set_new(out, "faces", json_integer((json_int_t)json_array_size(json_object_get(report, "faces"))));
    json_object_set(out, "precision", json_object_get(report, "precision"));
    json_object_set_new(out, "runs", json_integer(count));
    json_object_set_new(out, "stages", stages);
    json_t *total = bench_times(runs->clock.ms, count), *networks = bench_times(runs->networks, count),
           *outside = bench_times(runs->outside, count);
    double ratio = /* what everything else adds to the networks' time */
        json_real_value(json_object_get(outside, "median")) / json_real_value(json_object_get(networks, "median"));
    json_object_set_new(out, "total_ms", total);
    json_object_set_new(out, "networks_ms", networks);
    json_object_set_new(out, "outside_networks_ms", outside);
    json_object_set_new(out, "outside_networks_share", json_real(ratio));
    return out;
}

enum error_code bench_pipeline(const struct bench_settings *settings, const char *path, json_t **out, struct error *err)
{
    enum { LEAST = 3, MOST = 50 };
    struct engine *engine = NULL;
    struct pipeline_runs runs = {{0}, {0}, {0}, NULL, NULL};
    struct device_info info;
    json_t *report = NULL;
    double *values = NULL;
    struct file file = {0};
    *out = NULL;
    bench_memory_reset();
    enum error_code code = file_map(&file, path, err);
    if (!code)
        code = engine_create(&engine, settings->device, settings->cache_dir, settings->store, NULL, err);
    if (!code) /* makes the plans, and wakes the device */
        code = bench_pipeline_once(settings, engine, &file, NULL, &report, err);
    if (!code)
        code = bench_clock_start(&runs.clock, settings->runs, LEAST, MOST, 10000, err);
    if (!code && !(values = mem_calloc((size_t)runs.clock.room, (2 * STAGE_COUNT + 2) * sizeof *values)))
        code = error_set(err, ERROR_NO_MEMORY, "out of memory");
    for (int s = 0; s < STAGE_COUNT && !code; s++) {
        runs.stage[s] = values + s * runs.clock.room;
        runs.network[s] = values + (STAGE_COUNT + s) * runs.clock.room;
        runs.networks = values + 2 * STAGE_COUNT * runs.clock.room;
        runs.outside = runs.networks + runs.clock.room;
    }
    while (!code && bench_clock_more(&runs.clock, LEAST))
        code = bench_pipeline_once(settings, engine, &file, &runs, &report, err);
    if (!code) {
        engine_info(engine, &info);
        *out = bench_pipeline_result(&runs, path, report);
        json_object_set_new(*out, "device", bench_device(&info));
        json_object_set_new(*out, "memory",
                            json_pack("{s:I, s:I}", "device_peak", (json_int_t)info.memory_peak, "process_peak",
                                      (json_int_t)bench_memory_peak()));
    }
    json_decref(report);
    free(values);
    free(runs.clock.ms);
    engine_destroy(&engine);
    file_unmap(&file);
    return code;
}
