#include "server/job/worker_pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "server/job/worker.h"

#define RETRY_AFTER_MAX 300

/* --- how jobs end --------------------------------------------------------------------------------------------------
 */

enum job_state worker_pool_outcome(const struct job *job, enum error_code code)
{
    if (code == ERROR_CANCELLED && atomic_load(&job->stop))
        code = (enum error_code)atomic_load(&job->stop);
    return !code ? JOB_DONE : code == ERROR_CANCELLED || code == ERROR_BUSY ? JOB_CANCELLED : JOB_FAILED;
}

void worker_pool_end(struct worker_pool *pool, struct job *job, enum error_code code, const struct error *err)
{
    job->finished_ns = job_now();
    job->restoration->stage_ms[STAGE_QUEUE] +=
        (double)((job->started_ns ? job->started_ns : job->finished_ns) - job->created_ns) / 1e6;
    if (code) {
        error_set(&job->error, code, "%s", err->text);
        error_detail(&job->error, "%s", err->detail);
    }
    static const char *const names[] = {"queued", "running", "done", "failed", "cancelled"};
    enum job_state state = worker_pool_outcome(job, code);
    atomic_store(&job->state, state);
    stats_record(&pool->stats, job);
    log_event(state == JOB_FAILED ? LOG_WARN : LOG_INFO, "job",
              "id=%s state=%s wait_ms=%.0f ms=%.0f faces=%d tiles=%d device=%s code=%s%s%s%s", job->id, names[state],
              job->restoration->stage_ms[STAGE_QUEUE], job->restoration->total_ms, job->restoration->face_count,
              job->restoration->tiles, job->restoration->device, error_code_name(code), code ? " text=\"" : "",
              code ? job->error.text : "", code ? "\"" : "");
    if (code && *job->error.detail)
        log_event(LOG_WARN, "job-detail", "id=%s detail=\"%s\"", job->id, job->error.detail);
    job->end(job, job->context);
    job_release(&job);
    atomic_fetch_sub(&pool->pending, 1);
}

void worker_pool_end_stopped(struct worker_pool *pool, struct job *job)
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
    worker_pool_end(pool, job, code, &err);
}

/* The same with one that was taken out of the queue. */
static void end_waiting(struct worker_pool *pool, struct job *job)
{
    if (!job->ready) {
        worker_pool_end_stopped(pool, job);
        return;
    }
    job_computed(job, ERROR_CANCELLED, &(struct error)ERROR_INIT); /* its carrier ends it */
    job_release(&job);
}

/* --- where they run ------------------------------------------------------------------------------------------------
 */

/* The carriers that come with a worker. */
static enum error_code start_carriers(struct worker *worker, struct error *err)
{
    for (; worker->carrier_count < CARRIERS; worker->carrier_count++) {
        struct carrier *carrier = &worker->carriers[worker->carrier_count];
        carrier->pool = worker->pool;
        if (pthread_create(&carrier->thread, NULL, carrier_main, carrier))
            return error_set(err, ERROR_IO, "a thread could not be started");
    }
    return OK;
}

enum error_code worker_pool_grow(struct worker_pool *pool, int device, int count, struct error *err)
{
    struct worker_set *set = pool->sets[device];
    while (set->count < count) {
        struct worker *worker = &set->workers[set->count];
        worker->pool = pool;
        worker->device = device;
        if (pthread_create(&worker->thread, NULL, worker_main, worker))
            return error_set(err, ERROR_IO, "a worker thread could not be started");
        set->count++;
        enum error_code code = start_carriers(worker, err);
        if (code)
            return code;
    }
    return OK;
}

/* Under the lock: a set for each of these devices that has none. */
static enum error_code start_sets(struct worker_pool *pool, uint32_t devices, struct error *err)
{
    for (int i = 0; i < DEVICES_MAX; i++) {
        if (!(devices >> i & 1) || (pool->sets[i] && pool->sets[i]->count))
            continue;
        if (!pool->sets[i]) {
            const size_t workers = (size_t)pool->settings.workers;
            pool->sets[i] = mem_calloc(1, sizeof *pool->sets[i] + workers * sizeof(struct worker));
            if (!pool->sets[i])
                return error_set(err, ERROR_NO_MEMORY, "no memory for the workers");
            pthread_mutex_init(&pool->sets[i]->turn, NULL);
        }
        enum error_code code = worker_pool_grow(pool, i, 1, err);
        if (code)
            return code;
    }
    return OK;
}

void worker_pool_ensure(struct worker_pool *pool)
{
    struct error err = ERROR_INIT;
    pthread_mutex_lock(&pool->lock);
    if (!pool->cancelled && start_sets(pool, devices_route(pool->devices, 0), &err))
        log_event(LOG_ERROR, "device", "reason=\"%s\"", err.text);
    pthread_mutex_unlock(&pool->lock);
}

/* Where a new job may run, with the sets for it started. */
static enum error_code place(struct worker_pool *pool, struct job *job, struct error *err)
{
    const char *wanted = job->restoration->options.device;
    int device;
    enum error_code code = OK;
    job->named = *wanted && strcmp(wanted, "auto") != 0;
    if (job->named) {
        code = devices_find(pool->devices, wanted, &device, err);
        job->devices = code ? 0 : UINT32_C(1) << device;
    } else {
        job->devices = devices_route(pool->devices, 0);
        if (!job->devices)
            code = error_set(err, ERROR_DEVICE_DISABLED, "there is no usable device; /v1/devices says why");
    }
    if (code)
        return code;
    pthread_mutex_lock(&pool->lock);
    code = start_sets(pool, job->devices, err);
    pthread_mutex_unlock(&pool->lock);
    return code;
}

bool worker_pool_hand_over(struct worker_pool *pool, int device, struct job *job, const struct error *err)
{
    struct error local = ERROR_INIT;
    const char *id = devices_id(pool->devices, device);
    job->tried |= UINT32_C(1) << device;
    const uint32_t next = job->named ? 0 : devices_route(pool->devices, job->tried);
    struct job *held = job_hold(job);
    pthread_mutex_lock(&pool->lock); /* whoever cancels all finds it in the queue, or is seen here */
    const bool started = next && !pool->cancelled && !start_sets(pool, next, &local);
    if (started) {
        log_event(LOG_WARN, "handed-over", "id=%s from=%s reason=\"%s\"", job->id, id, err->text);
        restoration_note(job->restoration, "%s was lost again, and another device did this picture", id);
        stats_hand_over(&pool->stats);
        job->devices = next;
        atomic_store(&job->state, JOB_QUEUED);
        queue_return(pool->queue, job);
    }
    pthread_mutex_unlock(&pool->lock);
    /* whoever stopped it in the meantime has not found it in the queue */
    if (started && atomic_load(&held->stop) && queue_remove(pool->queue, held))
        end_waiting(pool, job);
    job_release(&held);
    return started;
}

/* --- the pool ------------------------------------------------------------------------------------------------------
 */

static enum error_code create_devices(struct worker_pool *pool, const char *wanted, struct error *err)
{
    struct device_info *list = NULL;
    size_t count = 0;
    enum error_code code = device_list(&list, &count, err);
    if (!code)
        code = devices_create(&pool->devices, list, count, err);
    if (!code)
        code = devices_choose(pool->devices, wanted, err);
    free(list);
    return code;
}

enum error_code worker_pool_create(struct worker_pool **out, const struct worker_settings *settings,
                                   struct model_store *store, struct error *err)
{
    *out = NULL;
    struct worker_pool *pool = mem_calloc(1, sizeof *pool);
    if (!pool)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the workers");
    pool->settings = *settings;
    snprintf(pool->cache_dir, sizeof pool->cache_dir, "%s", settings->cache_dir ? settings->cache_dir : "");
    pool->settings.cache_dir = pool->cache_dir;
    pool->settings.device = NULL;
    pool->store = store;
    pthread_mutex_init(&pool->lock, NULL);
    stats_init(&pool->stats);
    enum error_code code = queue_create(&pool->queue, settings->queue, CARRIERS_AHEAD * settings->workers, err);
    if (!code)
        code = create_devices(pool, settings->device, err);
    if (!code) {
        pthread_mutex_lock(&pool->lock);
        code = start_sets(pool, devices_route(pool->devices, 0), err);
        pthread_mutex_unlock(&pool->lock);
    }
    if (code)
        worker_pool_destroy(&pool);
    *out = pool;
    return code;
}

enum error_code worker_pool_submit(struct worker_pool *pool, struct job *job, struct error *err)
{
    job->restoration->deadline_ns = job->created_ns + (int64_t)pool->settings.job_seconds * 1000000000;
    enum error_code code = place(pool, job, err);
    if (code)
        return code;
    atomic_fetch_add(&pool->pending, 1);
    code = queue_push(pool->queue, job, err);
    if (code)
        atomic_fetch_sub(&pool->pending, 1);
    return code;
}

void worker_pool_cancel(struct worker_pool *pool, struct job *job, enum error_code reason)
{
    job_stop(job, reason);
    if (queue_remove(pool->queue, job))
        end_waiting(pool, job);
}

/* The i-th worker of all sets; NULL after the last. Under the lock. */
static struct worker *worker_at(struct worker_pool *pool, int i)
{
    for (int device = 0; device < DEVICES_MAX; device++) {
        struct worker_set *set = pool->sets[device];
        if (set && i < set->count)
            return &set->workers[i];
        i -= set ? set->count : 0;
    }
    return NULL;
}

/* Stops those jobs that a carrier has and whose deadline is over at that time. */
static void stop_carried(struct worker_pool *pool, int64_t now, enum error_code reason)
{
    struct worker *worker;
    for (int i = 0; (worker = worker_at(pool, i)); i++)
        for (int k = 0; k < worker->carrier_count; k++) {
            struct job *job = worker->carriers[k].current;
            if (job && now > job->restoration->deadline_ns)
                job_stop(job, reason);
        }
}

void worker_pool_expire(struct worker_pool *pool)
{
    int64_t now = job_now();
    struct job *job;
    while ((job = queue_take_older(pool->queue, now - (int64_t)pool->settings.job_seconds * 1000000000))) {
        job_stop(job, ERROR_TIMEOUT);
        end_waiting(pool, job);
    }
    pthread_mutex_lock(&pool->lock);
    stop_carried(pool, now, ERROR_TIMEOUT);
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
    pthread_mutex_lock(&pool->lock);
    pool->cancelled = true;
    stop_carried(pool, INT64_MAX, ERROR_BUSY);
    pthread_mutex_unlock(&pool->lock);
    while ((job = queue_take_older(pool->queue, INT64_MAX))) {
        job_stop(job, ERROR_BUSY);
        end_waiting(pool, job);
    }
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
        queue_end(old->queue);
    }
    for (int device = 0; device < DEVICES_MAX; device++) {
        struct worker_set *set = old->sets[device];
        for (int i = 0; set && i < set->count; i++) { /* the first may start others until it has ended */
            pthread_join(set->workers[i].thread, NULL);
            for (int k = 0; k < set->workers[i].carrier_count; k++)
                pthread_join(set->workers[i].carriers[k].thread, NULL);
        }
        if (set)
            pthread_mutex_destroy(&set->turn);
        free(set);
    }
    devices_destroy(&old->devices);
    queue_destroy(&old->queue);
    stats_destroy(&old->stats);
    pthread_mutex_destroy(&old->lock);
    free(old);
}

enum error_code worker_pool_ready(struct worker_pool *pool, struct error *err)
{
    bool ready = false, loading = false, lost = false;
    struct error reason = ERROR_INIT;
    const struct worker *worker;
    const uint32_t routes = devices_route(pool->devices, 0);
    pthread_mutex_lock(&pool->lock);
    for (int i = 0; (worker = worker_at(pool, i)); i++) {
        const bool here = routes >> worker->device & 1;
        ready = ready || (here && worker->phase == PHASE_READY);
        loading = loading || (here && worker->phase == PHASE_STARTING);
        lost = lost || (here && worker->phase == PHASE_NO_DEVICE);
        if (worker->reason.code && !reason.code)
            error_set(&reason, worker->reason.code, "%s: %s", devices_id(pool->devices, worker->device),
                      worker->reason.text);
    }
    pthread_mutex_unlock(&pool->lock);
    if (ready)
        return OK;
    if (model_store_ready(pool->store, err)) /* known at once; the sentence says what to do */
        return ERROR_NOT_FOUND;
    if (loading)
        return error_set(err, ERROR_BUSY, "the models are being loaded");
    return error_set(err,
                     lost     ? ERROR_DEVICE_LOST
                     : routes ? ERROR_DEVICE
                              : ERROR_DEVICE_DISABLED,
                     "%s", *reason.text ? reason.text : "there is no usable device");
}

int worker_pool_retry_after(struct worker_pool *pool)
{
    struct stats_totals totals;
    const struct worker *worker;
    int ready = 0;
    stats_read(&pool->stats, &totals);
    pthread_mutex_lock(&pool->lock);
    for (int i = 0; (worker = worker_at(pool, i)); i++)
        ready += worker->phase == PHASE_READY;
    pthread_mutex_unlock(&pool->lock);
    double ran = (double)(totals.done + totals.failed + totals.cancelled);
    double mean = ran > 0 ? totals.run_seconds / ran : 1;
    double seconds = mean * (double)(queue_depth(pool->queue) + 1) / (ready ? ready : 1);
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
