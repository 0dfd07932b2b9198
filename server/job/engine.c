#include "server/job/engine.h"

#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"

struct engine {
    char which[OPTION_NAME_MAX];
    char cache_dir[1024];
    struct worker_context context;
    uint64_t memory; /* this and the next are from engine_set_memory */
    int engines;
    double used_ms;    /* when a job last ended; INFINITY: its leftovers were given back */
    bool eased;        /* the larger part of its buffers was */
    bool rested;       /* all of them were */
    double trimmed_ms; /* when malloc's free pages were given back */
    unsigned losses;
    uint32_t unmeasured[ROLE_COUNT]; /* bit i: the default model's usual shape i still needs measurements */
    pthread_mutex_t lock;            /* for engine_info: */
    struct device *shown;            /* context.device while it is open to all */
    struct device_info info;
};

static void engine_show(struct engine *engine, struct device *device)
{
    pthread_mutex_lock(&engine->lock);
    engine->shown = device;
    if (device)
        device_info(device, &engine->info);
    pthread_mutex_unlock(&engine->lock);
}

static void engine_shut(struct engine *engine)
{
    engine_show(engine, NULL); /* closing takes its time */
    pipeline_forget(&engine->context);
    model_set_destroy(&engine->context.models);
    device_close(&engine->context.device);
}

/* A GPU's jobs are short, and fresh pages for each of their pictures would cost a part of them. Where processors
 * compute, that is little beside the networks, and the pictures' memory is the networks' memory. */
static bool engine_computes_here(const struct engine *engine)
{
    struct device_info info;
    device_info(engine->context.device, &info);
    return info.type == DEVICE_CPU || info.type == DEVICE_SOFTWARE;
}

/* Does nothing if it is open already. */
static enum error_code engine_open(struct engine *engine, struct error *err)
{
    enum error_code code = OK;
    if (!engine->context.device)
        code = device_open(&engine->context.device, engine->which, *engine->cache_dir ? engine->cache_dir : NULL, err);
    if (!code)
        code = model_set_create(&engine->context.models, engine->context.store, engine->context.device, err);
    if (code) {
        engine_shut(engine);
        return code;
    }
    if (engine_computes_here(engine))
        mem_keep_little();
    model_set_budget(engine->context.models, engine->memory, engine->engines);
    engine_show(engine, engine->context.device);
    return OK;
}

enum error_code engine_create(struct engine **out, const char *which, const char *cache_dir, struct model_store *store,
                              struct device **device, struct error *err)
{
    struct engine *engine = mem_calloc(1, sizeof *engine);
    *out = NULL;
    if (!engine) {
        if (device)
            device_close(device);
        return error_set(err, ERROR_NO_MEMORY, "no memory for a worker");
    }
    if (device) {
        engine->context.device = *device;
        *device = NULL;
    }
    pthread_mutex_init(&engine->lock, NULL);
    engine->engines = 1;
    engine->used_ms = INFINITY;
    engine->trimmed_ms = -INFINITY;
    snprintf(engine->which, sizeof engine->which, "%s", which);
    snprintf(engine->cache_dir, sizeof engine->cache_dir, "%s", cache_dir ? cache_dir : "");
    engine->context.store = store;
    enum error_code code = engine_open(engine, err);
    if (code)
        engine_destroy(&engine);
    *out = engine;
    return code;
}

void engine_set_precision(struct engine *engine, enum precision precision)
{
    engine->context.precision = precision;
}

void engine_set_memory(struct engine *engine, uint64_t bytes, int engines)
{
    engine->memory = bytes;
    engine->engines = engines;
    if (engine->context.models)
        model_set_budget(engine->context.models, bytes, engines);
}

void engine_destroy(struct engine **engine)
{
    struct engine *old = *engine;
    *engine = NULL;
    if (!old)
        return;
    engine_shut(old);
    pthread_mutex_destroy(&old->lock);
    free(old);
}

/* Prepares the default model's usual shape, with measurements or as far as possible without. If there is no room it is
 * left to the jobs that need it. */
static enum error_code engine_prepare_shape(struct engine *engine, int role, int index, bool measure, bool *end,
                                            struct error *err)
{
    const enum precision precision = pipeline_precision(&engine->context, PRECISION_AUTO);
    const struct model_entry *entry = NULL;
    struct session *session;
    const struct model_info *info;
    struct session_shape shape = {0};
    struct error local = ERROR_INIT;
    const double start = log_clock_ms();
    bool whole = true;
    enum error_code code = model_store_resolve(engine->context.store, (enum model_role)role, NULL, &entry, &local);
    if (!code && entry)
        code = model_set_session(engine->context.models, entry, precision, &session, &info, &local);
    *end = code || !entry || !model_usual_shape(info, index, &shape);
    if (!*end)
        code = session_warm(session, &shape, measure, &whole, &local);
    if (code && code != ERROR_NO_MEMORY && code != ERROR_TOO_LARGE)
        return error_set(err, code, "%s", local.text);
    if (shape.w)
        log_event(LOG_DEBUG, "prepared", "model=%s size=%dx%dx%d whole=%d ms=%.1f reason=\"%s\"", entry->name, shape.n,
                  shape.w, shape.h, whole && !code, log_clock_ms() - start, local.text);
    if (whole)
        engine->unmeasured[role] &= ~(UINT32_C(1) << index);
    else
        engine->unmeasured[role] |= UINT32_C(1) << index;
    return OK;
}

enum error_code engine_preload(struct engine *engine, char loaded[ROLE_COUNT][128], struct error *err)
{
    enum error_code code = OK;
    const enum precision precision = pipeline_precision(&engine->context, PRECISION_AUTO);
    for (int role = 0; !code && role < ROLE_COUNT; role++) {
        const struct model_entry *entry = NULL;
        struct session *session;
        const struct model_info *info;
        bool end = false;
        loaded[role][0] = 0;
        code = model_store_resolve(engine->context.store, (enum model_role)role, NULL, &entry, err);
        if (!code && entry)
            code = model_set_session(engine->context.models, entry, precision, &session, &info, err);
        if (code || !entry)
            continue;
        snprintf(loaded[role], sizeof loaded[role], "%s", entry->name);
        for (int index = 0; !code && !end; index++)
            code = engine_prepare_shape(engine, role, index, index == 0, &end, err);
    }
    return code;
}

bool engine_unprepared(const struct engine *engine)
{
    for (int role = 0; role < ROLE_COUNT; role++)
        if (engine->unmeasured[role])
            return true;
    return false;
}

enum error_code engine_prepare(struct engine *engine, struct error *err)
{
    for (int role = 0; role < ROLE_COUNT; role++)
        if (engine->unmeasured[role] && engine->context.device) {
            const int index = __builtin_ctz(engine->unmeasured[role]);
            bool end;
            engine->unmeasured[role] &= ~(UINT32_C(1) << index); /* prepare says whether there is more to do */
            return engine_prepare_shape(engine, role, index, true, &end, err);
        }
    return OK;
}

static void engine_trim(struct engine *engine)
{
    mem_give_back();
    engine->trimmed_ms = log_clock_ms();
}

int engine_give_back(struct engine *engine, int64_t keep_ms)
{
    const double now = log_clock_ms(), since = now - (double)keep_ms;
    const double rest_ms = fmin((double)keep_ms, ENGINE_REST_MS);
    if (engine->context.ahead || !engine->context.models)
        return -1;
    const double ease_ms = fmin(rest_ms, ENGINE_EASE_MS);
    double due = model_set_give_back(engine->context.models, since) + (double)keep_ms;
    if (!engine->eased && engine->used_ms <= now - ease_ms) {
        device_give_back(engine->context.device, ENGINE_EASE_BYTES);
        engine->eased = true;
    }
    if (engine->used_ms <= now - (engine->rested ? (double)keep_ms : rest_ms)) {
        device_give_back(engine->context.device, 0);
        engine_trim(engine);
        if (engine->rested || engine->used_ms <= since)
            engine->used_ms = INFINITY;
        engine->rested = true; /* again later: the last results' memory was not free yet */
    }
    due = fmin(due, engine->used_ms + (engine->rested ? (double)keep_ms : engine->eased ? rest_ms : ease_ms));
    return isinf(due) ? -1 : (int)fmin(fmax(ceil(due - now), 1), INT_MAX);
}

static enum error_code engine_attempt(struct engine *engine, struct restoration *r, struct error *err)
{
    for (int attempt = 0;; attempt++) {
        struct error local = ERROR_INIT;
        enum error_code code = OK;
        if (!engine->context.device && engine_open(engine, &local))
            return error_set(err, ERROR_DEVICE_LOST, "the device %s is not usable: %s", engine->which, local.text);
        code = pipeline_compute(r, &engine->context, &local);
        if (code != ERROR_DEVICE_LOST) {
            return code ? error_copy(err, code, &local) : OK;
        }
        engine->losses++;
        log_event(LOG_ERROR, "device-lost", "device=%s attempt=%d reason=\"%s\" detail=\"%s\"", engine->info.id,
                  attempt, local.text, local.detail);
        engine_shut(engine);
        if (attempt > 0) {
            error_set(err, code,
                      "%s was lost twice while it worked on this picture (%s): choose another device, or see "
                      "what the driver logged",
                      engine->info.id, local.text);
            error_detail(err, "%.255s", local.text);
            return code;
        }
        restoration_note(r, "device-reopened", "%s was lost while it worked on this picture, and was opened again",
                         engine->info.id);
    }
}

/* Something was computed just now. */
static void engine_computed(struct engine *engine)
{
    engine->used_ms = log_clock_ms();
    engine->eased = engine->rested = false;
    if (engine->context.models)
        model_set_settle(engine->context.models);
    if (engine->used_ms - engine->trimmed_ms > ENGINE_BUSY_MS)
        engine_trim(engine);
}

enum error_code engine_compute(struct engine *engine, struct restoration *r, struct error *err)
{
    const enum error_code code = engine_attempt(engine, r, err);
    engine_computed(engine);
    return code;
}

void engine_set_helpers(struct engine *engine, const struct helpers *helpers)
{
    engine->context.helpers = helpers;
}

enum error_code engine_help(struct engine *engine, const struct tile_order *order, const struct model_entry *entry,
                            enum precision precision, const void *input, void *output, const atomic_int *cancel,
                            struct error *err)
{
    const struct run_options options = {.cancel = cancel};
    const enum error_code code =
        tile_order_run(order, &engine->context, entry, precision, input, output, &options, err);
    if (code == ERROR_DEVICE_LOST)
        engine_shut(engine);
    engine_computed(engine);
    return code;
}

void engine_set_spare(struct engine *engine, void (*spare)(void *user), void *user)
{
    engine->context.spare = spare;
    engine->context.user = user;
}

void engine_ahead(struct engine *engine, struct restoration *r)
{
    pipeline_ahead(r, &engine->context);
}

void engine_forget(struct engine *engine)
{
    pipeline_forget(&engine->context);
}

enum error_code engine_run(struct engine *engine, struct restoration *r, struct error *err)
{
    enum error_code code = pipeline_begin(r, engine->context.store, err);
    if (!code)
        code = engine_compute(engine, r, err);
    return code ? code : pipeline_end(r, err);
}

unsigned engine_losses(const struct engine *engine)
{
    return engine->losses;
}

bool engine_usable(const struct engine *engine)
{
    return engine->context.device != NULL;
}

void engine_info(struct engine *engine, struct device_info *out)
{
    pthread_mutex_lock(&engine->lock);
    if (engine->shown)
        device_info(engine->shown, &engine->info);
    *out = engine->info;
    pthread_mutex_unlock(&engine->lock);
}
