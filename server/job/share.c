#include "server/job/share.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "server/job/share_ahead.h"
#include "server/job/share_desk.h"
#include "server/store/share_rows.h"
#include "server/version.h"

#define SHARE_POLL_MS 5000  /* a worker without a job asks this often whether somebody shares a picture, uncalled */
#define SHARE_NEXT_MS 25    /* and while one does, for the next tile */
#define SHARE_AWAY_MS 10000 /* after the database did not answer */

struct share {
    char *where, *password_file, owner[40];
    uint64_t pixels;
    const struct model_store *models;
    _Atomic uint64_t received, given;
};

struct share_worker {
    struct share *share;
    struct engine *engine; /* of the last call */
    struct share_rows *rows;
    struct helpers helpers;
    char job[40], left[40]; /* left: a job whose task may still be there; "": none */
    /* its own picture's task: */
    struct share_desk *desk; /* NULL: it has shared none yet */
    bool broken;             /* nobody helps any more */
    uint64_t fetched;
    /* another's: */
    struct share_ahead *ahead; /* NULL: it has not helped yet */
    char model[256];
    enum precision precision;
    double help_ms; /* when its last tile was done */
};

enum error_code share_create(struct share **out, const struct share_settings *settings,
                             const struct model_store *models, struct error *err)
{
    struct share *share = *out = mem_calloc(1, sizeof *share);
    if (share) {
        share->where = strdup(settings->store);
        share->password_file = strdup(settings->password_file ? settings->password_file : "");
        snprintf(share->owner, sizeof share->owner, "%s", settings->owner);
        share->pixels = settings->pixels;
        share->models = models;
    }
    if (share && share->where && share->password_file)
        return OK;
    share_destroy(out);
    return error_set(err, ERROR_NO_MEMORY, "no memory for shared tiles");
}

void share_destroy(struct share **share)
{
    struct share *old = *share;
    *share = NULL;
    if (!old)
        return;
    free(old->where);
    free(old->password_file);
    free(old);
}

void share_counts(struct share *share, uint64_t *received, uint64_t *given)
{
    if (received)
        *received = share ? atomic_load(&share->received) : 0;
    if (given)
        *given = share ? atomic_load(&share->given) : 0;
}

/* Devices of one class compute the same. Sums depend on the instruction set, not on how many threads there are. */
static void share_class(const struct device_info *info, enum precision precision, char out[160])
{
    const enum precision used = precision == PRECISION_AUTO ? info->preferred : precision;
    snprintf(out, 160, "%s/%s/%.*s/%s", RESTORED_VERSION, info->backend, (int)strcspn(info->driver, ","), info->driver,
             used == PRECISION_FP16 ? "fp16" : "fp32");
}

/* --- the worker's own picture --------------------------------------------------------------------------------------
 */

/* Goes on without help, whatever has happened. */
static void share_break(struct share_worker *worker, const struct error *err)
{
    if (!worker->broken)
        log_event(LOG_WARN, "share", "id=%s text=\"%s\" result=\"the rest is computed here\"", worker->job, err->text);
    worker->broken = true;
    snprintf(worker->left, sizeof worker->left, "%s", worker->job);
}

/* Removes a task that could not be ended in its time: this server is alive, so nobody sweeps it, and helpers would go
 * on asking for its tiles instead of another's. */
static enum error_code share_clear(struct share_worker *worker, struct error *err)
{
    const enum error_code code =
        *worker->left ? share_rows_end(worker->rows, worker->share->owner, worker->left, err) : OK;
    if (!code)
        *worker->left = 0;
    return code;
}

static void *share_begin(void *user, const struct model_entry *entry, enum precision precision)
{
    struct share_worker *worker = user;
    struct device_info info;
    struct error err = ERROR_INIT;
    char class[160], model[256];
    int64_t task;
    engine_info(worker->engine, &info);
    if (!model_store_identity(worker->share->models, entry, model))
        return NULL;
    share_class(&info, precision, class);
    worker->broken = false;
    worker->fetched = 0;
    if (share_clear(worker, &err)) {
        log_event(LOG_WARN, "share", "id=%s text=\"%s\" result=\"all of it is computed here\"", worker->job, err.text);
        return NULL;
    }
    if ((!worker->desk &&
         share_desk_create(&worker->desk, worker->share->where, worker->share->password_file, worker->rows, &err)) ||
        share_rows_begin(worker->rows, worker->share->owner, worker->job, class, model, &task, &err)) {
        share_break(worker, &err);
        return NULL;
    }
    share_desk_open(worker->desk, task);
    return worker;
}

static int share_room(void *task)
{
    struct share_worker *worker = task;
    struct error err = ERROR_INIT;
    if (share_desk_broken(worker->desk, &err))
        share_break(worker, &err);
    return share_desk_room(worker->desk);
}

static void share_offer(void *task, int n, const struct tile_order *order, void *input)
{
    struct share_worker *worker = task;
    const struct rect *done = &order->done;
    char spec[160];
    snprintf(spec, sizeof spec, "%d %d %d %d %d %d %d %d", order->width, order->height, order->bits, order->scale,
             done->x, done->y, done->width, done->height);
    share_desk_put(worker->desk, n, spec, input, tile_order_input(order), tile_order_output(order));
}

static enum tile_place share_ask(void *task, int n)
{
    static const enum tile_place places[] = {
        [DESK_NOWHERE] = TILE_OURS, [DESK_ELSEWHERE] = TILE_HELD, [DESK_HERE] = TILE_DONE};
    struct share_worker *worker = task;
    return places[share_desk_ask(worker->desk, n)];
}

static int share_take(void *task)
{
    struct share_worker *worker = task;
    return share_desk_take(worker->desk);
}

static bool share_fetch(void *task, int n, void *output, size_t bytes)
{
    struct share_worker *worker = task;
    if (!share_desk_fetch(worker->desk, n, output, bytes))
        return false;
    worker->fetched++;
    atomic_fetch_add(&worker->share->received, 1);
    return true;
}

static void share_drop(void *task, int n)
{
    struct share_worker *worker = task;
    share_desk_drop(worker->desk, n);
}

static void share_end(void *task)
{
    struct share_worker *worker = task;
    struct error err = ERROR_INIT; /* of the end: then it is removed later */
    share_desk_close(worker->desk);
    if (share_desk_broken(worker->desk, &err))
        share_break(worker, &err);
    if (!worker->broken && share_rows_end(worker->rows, worker->share->owner, worker->job, &err))
        snprintf(worker->left, sizeof worker->left, "%s", worker->job);
    log_event(LOG_INFO, "shared", "id=%s tiles=%" PRIu64, worker->job, worker->fetched);
}

enum error_code share_worker_create(struct share_worker **out, struct share *share, struct error *err)
{
    struct share_worker *worker = *out = mem_calloc(1, sizeof *worker);
    if (!worker)
        return error_set(err, ERROR_NO_MEMORY, "no memory for shared tiles");
    worker->share = share;
    worker->helpers = (struct helpers){.user = worker,
                                       .pixels = share->pixels,
                                       .begin = share_begin,
                                       .room = share_room,
                                       .offer = share_offer,
                                       .ask = share_ask,
                                       .take = share_take,
                                       .fetch = share_fetch,
                                       .drop = share_drop,
                                       .end = share_end};
    const enum error_code code = share_rows_open(&worker->rows, share->where, share->password_file, err);
    if (code)
        share_worker_destroy(out);
    return code;
}

void share_worker_destroy(struct share_worker **worker)
{
    struct share_worker *old = *worker;
    *worker = NULL;
    if (!old)
        return;
    share_ahead_destroy(&old->ahead);
    share_desk_destroy(&old->desk);
    share_rows_close(&old->rows);
    free(old);
}

const struct helpers *share_worker_helpers(struct share_worker *worker, struct engine *engine, const char *job)
{
    worker->engine = engine;
    snprintf(worker->job, sizeof worker->job, "%s", job);
    if (worker->ahead)
        share_ahead_leave(worker->ahead);
    return &worker->helpers;
}

/* --- others' pictures ----------------------------------------------------------------------------------------------
 */

/* The model that is called so; NULL: there is none here. */
static const struct model_entry *share_model(const struct model_store *models, const char *wanted)
{
    const struct model_entry *found = NULL;
    char model[256];
    model_store_lock(models);
    for (size_t i = 0; i < model_store_count(models) && !found; i++) {
        const struct model_entry *entry = model_store_at(models, i);
        if (entry->recognised && entry->info.kind == MODEL_UPSCALER && model_store_identity(models, entry, model) &&
            !strcmp(model, wanted))
            found = entry;
    }
    model_store_unlock(models);
    return found;
}

/* A share_rows_has_fn. */
static bool share_has(void *context, const char *model)
{
    return share_model(context, model) != NULL;
}

static bool share_order_read(struct tile_order *order, const struct share_tile *tile)
{
    struct rect *done = &order->done;
    return sscanf(tile->spec, "%d %d %d %d %d %d %d %d", &order->width, &order->height, &order->bits, &order->scale,
                  &done->x, &done->y, &done->width, &done->height) == 8 &&
           tile_order_valid(order) && tile_order_input(order) == tile->size;
}

/* Computes a tile that this worker holds, and sends it, or gives it back. */
static enum error_code share_compute(struct share_worker *worker, const struct share_tile *tile,
                                     const atomic_int *cancel, struct error *err)
{
    struct share *share = worker->share;
    struct tile_order order;
    struct error why = ERROR_INIT;
    const struct model_entry *entry = share_model(share->models, worker->model);
    const bool sound = entry && share_order_read(&order, tile);
    const size_t size = sound ? tile_order_output(&order) : 0;
    void *output = sound ? mem_alloc(size, 1) : NULL;
    enum error_code code =
        output ? engine_help(worker->engine, &order, entry, worker->precision, tile->input, output, cancel, &why)
               : error_set(&why, ERROR_INVALID, "it is not understood, or there is no memory");
    if (!code) {
        share_ahead_deliver(worker->ahead, tile, output, size);
        return OK;
    }
    free(output);
    share_ahead_leave(worker->ahead);
    if (code != ERROR_CANCELLED)
        log_event(LOG_WARN, "share", "tile=%d text=\"%s\" result=\"its owner computes it\"", tile->n, why.text);
    return share_rows_return(worker->rows, tile, share->owner, code != ERROR_CANCELLED, err);
}

/* A tile of whoever shares a picture. *task 0: nobody does. */
static enum error_code share_find(struct share_worker *worker, const struct device_info *info, struct share_tile *tile,
                                  bool *found, int64_t *task, struct error *err)
{
    struct share *share = worker->share;
    char class[160];
    enum error_code code = share_clear(worker, err);
    for (int i = 0; i < 2 && !code && !*task; i++) {
        worker->precision = i ? PRECISION_FP16 : PRECISION_FP32;
        share_class(info, worker->precision, class);
        code = share_rows_find(worker->rows, share->owner, class, share_has, (void *)(uintptr_t)share->models, task,
                               worker->model, err);
    }
    if (!code && *task && !worker->ahead)
        code = share_ahead_create(&worker->ahead, share->where, share->password_file, share->owner, &share->given, err);
    if (!code && *task)
        code = share_rows_claim(worker->rows, *task, share->owner, false, tile, found, err);
    return code;
}

int share_worker_help(struct share_worker *worker, struct engine *engine, const atomic_int *cancel)
{
    struct device_info info;
    struct share_tile tile = {0};
    struct error err = ERROR_INIT;
    int64_t task = 0;
    bool broken = false;
    worker->engine = engine;
    engine_info(engine, &info);
    if (info.asynchronous || !engine_usable(engine))
        return SHARE_AWAY_MS;
    bool found = worker->ahead && share_ahead_take(worker->ahead, &tile, &broken);
    enum error_code code = OK;
    if (broken && !found)
        return SHARE_AWAY_MS;
    if (!found)
        code = share_find(worker, &info, &tile, &found, &task, &err);
    if (!code && found) {
        const double begin = log_clock_ms(), idle = begin - worker->help_ms;
        share_ahead_fetch(worker->ahead, tile.task);
        code = share_compute(worker, &tile, cancel, &err);
        worker->help_ms = log_clock_ms();
        log_event(LOG_DEBUG, "helped", "tile=%d ms=%.0f idle_ms=%.0f", tile.n, worker->help_ms - begin, idle);
    }
    free(tile.input);
    if (code)
        log_event(LOG_DEBUG, "share", "text=\"%s\"", err.text);
    return code ? SHARE_AWAY_MS : found ? 0 : task ? SHARE_NEXT_MS : SHARE_POLL_MS;
}
