#include "server/job/worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "server/job/engine.h"

#define MAX_ENGINES 8  /* devices one worker keeps open */
#define NICE 5         /* so that HTTP answers at once while software Vulkan takes every core */
#define REOPEN_MS 5000 /* a worker without a device tries again after this */
#define RETRY_AFTER_MAX 300

enum phase { PHASE_STARTING, PHASE_READY, PHASE_NO_DEVICE, PHASE_NO_MODELS };

struct worker {
    struct worker_pool *pool;
    pthread_t thread;
    struct engine *engines[MAX_ENGINES]; /* [0]: the configured device, NULL while it cannot be opened */
    struct job *current;                 /* under the pool's lock */
    enum phase phase;                    /* under the pool's lock */
    struct error reason;                 /* why it is not ready; under the pool's lock */
};

struct worker_pool {
    struct worker_settings settings;
    char cache_dir[1024];
    struct model_store *store;
    struct queue *queue;
    struct devices *devices;
    struct stats stats;
    atomic_int pending; /* jobs submitted that have not ended */
    pthread_mutex_t lock;
    char loaded[ROLE_COUNT][128];
    bool cancelled;   /* every job is to end at once */
    int worker_count; /* threads started */
    struct worker workers[];
};

/* How a job ends with this code: asked to stop by its client or by the end of the server, it has not failed. */
static enum job_state outcome(const struct job *job, enum error_code code)
{
    if (code == ERROR_CANCELLED && atomic_load(&job->stop))
        code = (enum error_code)atomic_load(&job->stop);
    return !code ? JOB_DONE : code == ERROR_CANCELLED || code == ERROR_BUSY ? JOB_CANCELLED : JOB_FAILED;
}

/* Ends a job: its state, the counters, its owner, the reference. */
static void end_job(struct worker_pool *pool, struct job *job, enum error_code code, const struct error *err)
{
    job->finished_ns = job_now();
    job->restoration->stage_ms[STAGE_QUEUE] =
        (double)((job->started_ns ? job->started_ns : job->finished_ns) - job->created_ns) / 1e6;
    if (code) {
        error_set(&job->error, code, "%s", err->text);
        error_detail(&job->error, "%s", err->detail);
    }
    static const char *const names[] = {"queued", "running", "done", "failed", "cancelled"};
    enum job_state state = outcome(job, code);
    atomic_store(&job->state, state);
    stats_record(&pool->stats, job);
    log_event(state == JOB_FAILED ? LOG_WARN : LOG_INFO, "job",
              "id=%s state=%s wait_ms=%.0f ms=%.0f faces=%d tiles=%d device=%s code=%s%s%s%s", job->id, names[state],
              job->restoration->stage_ms[STAGE_QUEUE],
              job->started_ns ? (double)(job->finished_ns - job->started_ns) / 1e6 : 0.0, job->restoration->face_count,
              job->restoration->tiles, job->restoration->device, error_code_name(code), code ? " text=\"" : "",
              code ? job->error.text : "", code ? "\"" : "");
    if (code && *job->error.detail)
        log_event(LOG_WARN, "job-detail", "id=%s detail=\"%s\"", job->id, job->error.detail);
    job->end(job, job->context);
    job_release(&job);
    atomic_fetch_sub(&pool->pending, 1);
}

/* Ends a job that was asked to stop. */
static void end_stopped(struct worker_pool *pool, struct job *job)
{
    struct error err = ERROR_INIT;
    enum error_code code = (enum error_code)atomic_load(&job->stop);
    switch (code) {
    case ERROR_TIMEOUT:
        error_set(&err, code, "the job was not done within its deadline of %d seconds", pool->settings.job_seconds);
        break;
    case ERROR_BUSY:
        error_set(&err, code, "the server is shutting down; the job was cancelled");
        break;
    default:
        code = ERROR_CANCELLED;
        error_set(&err, code, "the job was cancelled");
    }
    end_job(pool, job, code, &err);
}

/* The output's bytes as a strong entity tag: 64-bit FNV-1a over eight bytes at a time, and the length. */
static void make_etag(struct job *job)
{
    const struct restoration *r = job->restoration;
    if (!r->output)
        return;
    uint64_t hash = UINT64_C(0xcbf29ce484222325), word;
    size_t at = 0;
    for (; at + sizeof word <= r->output_bytes; at += sizeof word) {
        memcpy(&word, r->output + at, sizeof word);
        hash = (hash ^ word) * UINT64_C(0x100000001b3);
        hash ^= hash >> 29; /* a product carries upwards only; this brings high bits back down */
    }
    for (; at < r->output_bytes; at++)
        hash = (hash ^ r->output[at]) * UINT64_C(0x100000001b3);
    snprintf(job->etag, sizeof job->etag, "\"%016llx-%zx\"", (unsigned long long)hash, r->output_bytes);
}

static void set_phase(struct worker *worker, enum phase phase, const struct error *reason)
{
    pthread_mutex_lock(&worker->pool->lock);
    worker->phase = phase;
    error_clear(&worker->reason);
    if (reason)
        worker->reason = *reason;
    pthread_mutex_unlock(&worker->pool->lock);
}

/* Opens the configured device and loads the default models. */
static void open_default(struct worker *worker)
{
    struct worker_pool *pool = worker->pool;
    struct error err = ERROR_INIT;
    struct device_info info;
    char loaded[ROLE_COUNT][128] = {{0}};
    if (engine_create(&worker->engines[0], pool->settings.device, pool->cache_dir, pool->store, &err)) {
        log_event(LOG_ERROR, "device", "device=%s reason=\"%s\" detail=\"%s\"", pool->settings.device, err.text,
                  err.detail);
        set_phase(worker, PHASE_NO_DEVICE, &err);
        return;
    }
    engine_info(worker->engines[0], &info);
    devices_update(pool->devices, &info);
    devices_set_default(pool->devices, info.id);
    log_event(info.type == DEVICE_SOFTWARE ? LOG_WARN : LOG_INFO, "device",
              "id=%s name=\"%s\" driver=\"%s\" remark=\"%s\"", info.id, info.name, info.driver, info.reason);
    if (model_store_ready(pool->store, &err)) { /* whoever opened the store has said so */
        set_phase(worker, PHASE_NO_MODELS, &err);
    } else if (engine_preload(worker->engines[0], pool->settings.precision, loaded, &err)) {
        log_event(LOG_WARN, "models", "reason=\"%s\" detail=\"%s\"", err.text, err.detail);
        set_phase(worker, PHASE_NO_MODELS, &err);
    } else {
        log_event(LOG_INFO, "models", "detector=%s face=%s parser=%s upscaler=%s", loaded[ROLE_DETECTOR],
                  loaded[ROLE_FACE], *loaded[ROLE_PARSER] ? loaded[ROLE_PARSER] : "none",
                  *loaded[ROLE_UPSCALER] ? loaded[ROLE_UPSCALER] : "none");
        set_phase(worker, PHASE_READY, NULL);
    }
    pthread_mutex_lock(&pool->lock);
    memcpy(pool->loaded, loaded, sizeof loaded);
    pthread_mutex_unlock(&pool->lock);
    engine_info(worker->engines[0], &info);
    devices_update(pool->devices, &info);
}

/* The engine for the device a job names; the configured one for "" and "auto". */
static struct engine *engine_for(struct worker *worker, const char *wanted, struct error *err)
{
    struct worker_pool *pool = worker->pool;
    struct device_info info;
    if (!worker->engines[0])
        open_default(worker);
    if (!*wanted || !strcmp(wanted, "auto")) {
        if (!worker->engines[0]) {
            pthread_mutex_lock(&pool->lock);
            error_set(err, ERROR_DEVICE_LOST, "there is no usable device: %s", worker->reason.text);
            pthread_mutex_unlock(&pool->lock);
        }
        return worker->engines[0];
    }
    char id[32];
    if (devices_find(pool->devices, wanted, id, err))
        return NULL;
    for (int i = 0; i < MAX_ENGINES; i++) {
        if (worker->engines[i]) {
            engine_info(worker->engines[i], &info);
            if (!strcmp(info.id, id))
                return worker->engines[i];
        } else if (i > 0) {
            struct error local = ERROR_INIT;
            if (engine_create(&worker->engines[i], id, pool->cache_dir, pool->store, &local))
                error_set(err, ERROR_INVALID, "device: \"%s\" cannot be used: %s", wanted, local.text);
            return worker->engines[i];
        }
    }
    error_set(err, ERROR_DEVICE, "too many devices are open");
    return NULL;
}

static void set_current(struct worker *worker, struct job *job)
{
    pthread_mutex_lock(&worker->pool->lock);
    worker->current = job;
    if (job && worker->pool->cancelled) /* it was between the queue and us when all were cancelled */
        job_stop(job, ERROR_BUSY);
    pthread_mutex_unlock(&worker->pool->lock);
}

static enum error_code run_on(struct worker *worker, struct engine *engine, struct job *job, struct error *err)
{
    struct devices *devices = worker->pool->devices;
    struct device_info info;
    engine_info(engine, &info);
    devices_begin(devices, info.id, job->id);
    job->started_ns = job_now();
    atomic_store(&job->state, JOB_RUNNING);

    unsigned losses = engine_losses(engine);
    enum error_code code = engine_run(engine, job->restoration, err);
    if (!code)
        make_etag(job);

    devices_end(devices, info.id, job->id, job->started_ns, outcome(job, code));
    for (; losses < engine_losses(engine); losses++)
        devices_count_loss(devices, info.id);
    engine_info(engine, &info);
    devices_update(devices, &info);
    if (!engine_usable(engine))
        devices_mark_lost(devices, info.id);
    return code;
}

static void run_job(struct worker *worker, struct job *job)
{
    struct error err = ERROR_INIT;
    enum error_code code = ERROR_CANCELLED;
    set_current(worker, job);
    if (!atomic_load(&job->stop)) {
        struct engine *engine = engine_for(worker, job->restoration->options.device, &err);
        code = engine ? run_on(worker, engine, job, &err) : err.code;
    }
    set_current(worker, NULL);
    if (code == ERROR_TIMEOUT) /* the pipeline may see it before worker_pool_expire does */
        job_stop(job, ERROR_TIMEOUT);
    if ((code == ERROR_CANCELLED || code == ERROR_TIMEOUT) && atomic_load(&job->stop))
        end_stopped(worker->pool, job);
    else
        end_job(worker->pool, job, code, &err);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct queue *queue = worker->pool->queue;
    /* On Linux a thread has a nice value of its own, and the driver's threads inherit it. */
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
    open_default(worker);
    for (;;) {
        struct job *job = queue_pop(queue, worker->engines[0] ? -1 : REOPEN_MS);
        if (job)
            run_job(worker, job);
        else if (queue_closed(queue))
            break;
        else
            open_default(worker);
    }
    for (int i = 0; i < MAX_ENGINES; i++)
        engine_destroy(&worker->engines[i]);
    return NULL;
}

/* A device that was named must be there; whether it works shows when it is opened, and that may change. */
static enum error_code check_device(struct worker_pool *pool, struct error *err)
{
    char id[32];
    const char *wanted = pool->settings.device;
    /* "reference" can be opened, but is not in the list */
    if (!*wanted || !strcasecmp(wanted, "auto") || !strcmp(wanted, "reference"))
        return OK;
    return devices_find(pool->devices, wanted, id, err);
}

enum error_code worker_pool_create(struct worker_pool **out, const struct worker_settings *settings,
                                   struct model_store *store, struct error *err)
{
    *out = NULL;
    struct worker_pool *pool = mem_calloc(1, sizeof *pool + (size_t)settings->workers * sizeof(struct worker));
    if (!pool)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the workers");
    pool->settings = *settings;
    snprintf(pool->cache_dir, sizeof pool->cache_dir, "%s", settings->cache_dir ? settings->cache_dir : "");
    pool->settings.cache_dir = pool->cache_dir;
    pool->store = store;
    pthread_mutex_init(&pool->lock, NULL);
    stats_init(&pool->stats);
    enum error_code code = queue_create(&pool->queue, settings->queue, err);
    if (!code)
        code = devices_create(&pool->devices, err);
    if (!code)
        code = check_device(pool, err);
    for (int i = 0; !code && i < settings->workers; i++) {
        struct worker *worker = &pool->workers[i];
        worker->pool = pool;
        if (pthread_create(&worker->thread, NULL, work, worker))
            code = error_set(err, ERROR_IO, "a worker thread could not be started");
        else
            pool->worker_count++;
    }
    if (code)
        worker_pool_destroy(&pool);
    *out = pool;
    return code;
}

enum error_code worker_pool_submit(struct worker_pool *pool, struct job *job, struct error *err)
{
    job->restoration->deadline_ns = job->created_ns + (int64_t)pool->settings.job_seconds * 1000000000;
    atomic_fetch_add(&pool->pending, 1);
    enum error_code code = queue_push(pool->queue, job, err);
    if (code)
        atomic_fetch_sub(&pool->pending, 1);
    return code;
}

void worker_pool_cancel(struct worker_pool *pool, struct job *job, enum error_code reason)
{
    job_stop(job, reason);
    if (queue_remove(pool->queue, job))
        end_stopped(pool, job);
}

void worker_pool_expire(struct worker_pool *pool)
{
    int64_t now = job_now();
    struct job *job;
    while ((job = queue_take_older(pool->queue, now - (int64_t)pool->settings.job_seconds * 1000000000))) {
        job_stop(job, ERROR_TIMEOUT);
        end_stopped(pool, job);
    }
    pthread_mutex_lock(&pool->lock);
    for (int i = 0; i < pool->worker_count; i++)
        if (pool->workers[i].current && now > pool->workers[i].current->restoration->deadline_ns)
            job_stop(pool->workers[i].current, ERROR_TIMEOUT);
    pthread_mutex_unlock(&pool->lock);
}

void worker_pool_drain(struct worker_pool *pool)
{
    queue_close(pool->queue);
}

bool worker_pool_draining(struct worker_pool *pool)
{
    return queue_closed(pool->queue);
}

bool worker_pool_idle(struct worker_pool *pool)
{
    return !atomic_load(&pool->pending);
}

void worker_pool_cancel_all(struct worker_pool *pool)
{
    struct job *job;
    while ((job = queue_take_older(pool->queue, INT64_MAX))) {
        job_stop(job, ERROR_BUSY);
        end_stopped(pool, job);
    }
    pthread_mutex_lock(&pool->lock);
    pool->cancelled = true;
    for (int i = 0; i < pool->worker_count; i++)
        if (pool->workers[i].current)
            job_stop(pool->workers[i].current, ERROR_BUSY);
    pthread_mutex_unlock(&pool->lock);
}

void worker_pool_destroy(struct worker_pool **pool)
{
    struct worker_pool *old = *pool;
    *pool = NULL;
    if (!old)
        return;
    if (old->queue) {
        worker_pool_drain(old);
        worker_pool_cancel_all(old);
    }
    for (int i = 0; i < old->worker_count; i++)
        pthread_join(old->workers[i].thread, NULL);
    devices_destroy(&old->devices);
    queue_destroy(&old->queue);
    stats_destroy(&old->stats);
    pthread_mutex_destroy(&old->lock);
    free(old);
}

enum error_code worker_pool_ready(struct worker_pool *pool, struct error *err)
{
    bool ready = false, loading = false;
    struct error reason = ERROR_INIT;
    pthread_mutex_lock(&pool->lock);
    for (int i = 0; i < pool->worker_count; i++) {
        const struct worker *worker = &pool->workers[i];
        ready = ready || worker->phase == PHASE_READY;
        loading = loading || worker->phase == PHASE_STARTING;
        if (worker->reason.code && !reason.code)
            reason = worker->reason;
    }
    pthread_mutex_unlock(&pool->lock);
    if (ready)
        return OK;
    if (model_store_ready(pool->store, err)) /* known at once; the sentence says what to do */
        return ERROR_NOT_FOUND;
    if (loading)
        return error_set(err, ERROR_BUSY, "the models are being loaded");
    return error_set(err, ERROR_DEVICE, "%s", reason.text);
}

int worker_pool_retry_after(struct worker_pool *pool)
{
    struct stats_totals totals;
    stats_read(&pool->stats, &totals);
    double ran = (double)(totals.done + totals.failed + totals.cancelled);
    double mean = ran > 0 ? totals.run_seconds / ran : 1;
    double seconds = mean * (double)(queue_depth(pool->queue) + 1) / (double)pool->settings.workers;
    return seconds < 1 ? 1 : seconds > RETRY_AFTER_MAX ? RETRY_AFTER_MAX : (int)seconds;
}

void worker_pool_loaded(struct worker_pool *pool, char loaded[ROLE_COUNT][128])
{
    pthread_mutex_lock(&pool->lock);
    memcpy(loaded, pool->loaded, sizeof pool->loaded);
    pthread_mutex_unlock(&pool->lock);
}

struct queue *worker_pool_queue(struct worker_pool *pool)
{
    return pool->queue;
}

struct devices *worker_pool_devices(struct worker_pool *pool)
{
    return pool->devices;
}

struct stats *worker_pool_stats(struct worker_pool *pool)
{
    return &pool->stats;
}
