/* What restored bench measures: a network by itself, the whole pipeline, and a server under load. Results are JSON;
 * cli_bench makes tables of them. Thread-safety: for the main thread. */
#ifndef SERVER_CLI_BENCH_H
#define SERVER_CLI_BENCH_H

#include <jansson.h>

#include "server/config.h"
#include "server/pipeline/pipeline.h"

struct bench_settings {
    const char *device; /* "auto" or as device_open */
    const char *cache_dir;
    struct model_store *store;
    struct options options; /* precision, and those of the pipeline */
    struct limits limits;
    const char *keep;          /* folder for a network's weights and values; NULL: they are not kept */
    int runs;                  /* 0: as many as a few seconds hold */
    int width, height, batch;  /* 0: the network's own */
    bool layers, layer_shapes; /* time by kind of layer; each shape by itself */
};

/* Runs are timed one by one, right after a warm-up: an idle GPU lowers its clocks. */
struct bench_clock {
    int wanted, room, count;
    double *ms, budget_ms, started;
};

double bench_now(void);
/* least, most: how many runs are done within the budget if `wanted` is 0. */
enum error_code bench_clock_start(struct bench_clock *clock, int wanted, int least, int most, double budget_ms,
                                  struct error *err) MUST_CHECK;
bool bench_clock_more(const struct bench_clock *clock, int least);
void bench_clock_add(struct bench_clock *clock, double ms);
/* {"median", "p90", "least"} of values[count], which it sorts. */
json_t *bench_times(double *values, int count);

/* The most memory that the process had since the last reset, in bytes. */
void bench_memory_reset(void);
uint64_t bench_memory_peak(void);

/* One network: a built-in one (model_random.h), a checkpoint's path or the name of an installed model. *out is a new
 * reference. ERROR_DEVICE when its output is not finite: such data takes other times to compute. */
enum error_code bench_network(const struct bench_settings *settings, const char *model, json_t **out,
                              struct error *err) MUST_CHECK;

/* Write what another implementation needs to compute the same into the folder, which they create: a built-in network's
 * weights as NAME.safetensors, and arrays {n, c, h, w} as NAME.PART.npy (numpy's format). */
enum error_code bench_keep_weights(const char *folder, const char *model, const void *data, size_t size,
                                   struct error *err) MUST_CHECK;
enum error_code bench_keep_array(const char *folder, const char *model, const char *part, const int shape[4],
                                 const float *values, struct error *err) MUST_CHECK;

/* The pipeline on a picture file, stage by stage. */
enum error_code bench_pipeline(const struct bench_settings *settings, const char *path, json_t **out,
                               struct error *err) MUST_CHECK;

/* A server in this process on the first of the devices (settings->device as devices_choose takes it), then on the first
 * two, four and so on to all: `clients` connections (0: several for each device) send the picture file again and again.
 * Each row goes to `each`, which takes the reference. */
typedef void bench_load_fn(json_t *row, void *context);
enum error_code bench_load(const struct bench_settings *settings, const struct config *config, const char *path,
                           int clients, bench_load_fn *each, void *context, struct error *err) MUST_CHECK;

/* {"id", "name", "driver", "type"} of the device. */
json_t *bench_device(const struct device_info *info);

#endif
