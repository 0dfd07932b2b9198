#include "server/job/worker_pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "server/job/events.h"
#include "server/job/waiting.h"
#include "server/job/worker.h"

#define STALL_MAKING                                                                                                   \
    10 /* times stall_seconds: a driver may compile one plan for minutes, and nothing tells how far it is */
#define REOPEN_SECONDS 5
#define INFLIGHT_MOST (UINT64_C(4) << 30) /* unless it is configured */

/* --- how jobs end --------------------------------------------------------------------------------------------------
 */

enum job_state worker_pool_outcome(const struct job *job, enum error_code code)
{
    if (code == ERROR_CANCELLED && atomic_load(&job->stop))
        code = (enum error_code)atomic_load(&job->stop);
    return !code ? JOB_DONE : code == ERROR_CANCELLED || code == ERROR_BUSY ? JOB_CANCELLED : JOB_FAILED;
}

/* The next ones are expected to take what it took. */
static void worker_pool_learn(struct worker_pool *pool, struct job *job)
{
    struct restoration *r = job->restoration;
    const struct model_entry *models[ROLE_COUNT];
    struct error err = ERROR_INIT;
    struct device_info info;
    if (job->device < 0 || job->tried || pipeline_check_size(r, pool->store, models, &err))
        return;
    devices_info(pool->devices, job->device, &info);
    estimate_learn(pool->speeds, &(struct estimate_request){.r = r,
                                                            .models = models,
                                                            .device = &info,
                                                            .precision = r->precision,
                                                            .faces = atomic_load(&r->faces_total)});
}

void worker_pool_end(struct worker_pool *pool, struct job *job, enum error_code code, const struct error *err)
{
    if (!code)
        worker_pool_learn(pool, job);
    job->finished_ns = job_now();
    job->restoration->stage_ms[STAGE_QUEUE] +=
        (double)((job->started_ns ? job->started_ns : job->finished_ns) - job->created_ns) / 1e6;
    if (code)
        error_copy(&job->error, code, err);
    static const char *const names[] = {"queued", "running", "done", "failed", "cancelled"};
    enum job_state state = worker_pool_outcome(job, code);
    atomic_store(&job->state, state);
    stats_record(&pool->stats, job);
    /* what the keeper puts back into the store */
    const bool later = job->accepted && state == JOB_CANCELLED && atomic_load(&job->stop) == ERROR_BUSY;
    struct log_line line;
    log_begin(&line, state == JOB_FAILED ? LOG_WARN : LOG_INFO, "job");
    log_add(&line, "id=%s", job->id);
    if (*job->token)
        log_add(&line, "token=%s", job->token);
    const struct restoration *r = job->restoration;
    log_add(&line, "state=%s wait_ms=%.0f ms=%.0f faces=%d tiles=%d device=%s code=%s text=\"%s\"",
            names[later ? JOB_QUEUED : state], r->stage_ms[STAGE_QUEUE], r->total_ms, r->face_count, r->tiles,
            r->device, error_code_name(code), job->error.text);
    for (int stage = STAGE_DECODE; stage < STAGE_COUNT; stage++)
        if (r->stage_ms[stage] > 0)
            log_add(&line, "%s_ms=%.1f", stage_name((enum stage)stage), r->stage_ms[stage]);
    log_end(&line);
    if (code && *job->error.detail)
        log_event(LOG_WARN, "job-detail", "id=%s detail=\"%s\"", job->id, job->error.detail);
    job->end(job, job->context);
    job_release(&job);
    speed_save(pool->speeds, false); /* the client does not wait for the disk */
    atomic_fetch_sub(&pool->pending, 1);
}

void worker_pool_end_stopped(struct worker_pool *pool, struct job *job)
{
    struct error err = ERROR_INIT;
    enum error_code code = (enum error_code)atomic_load(&job->stop);
    switch (code) {
    case ERROR_TIMEOUT:
        error_set(&err, code, "the job was not done within its deadline of %d seconds",
                  (int)((job->restoration->deadline_ns - job->created_ns) / 1000000000));
        break;
    case ERROR_STALLED:
        error_set(&err, code,
                  "%s made no progress on this picture for %d seconds, so the job was stopped: try again, or choose "
                  "another device",
                  job->device >= 0 ? devices_id(pool->devices, job->device) : "the device",
                  atomic_load(&pool->stall_seconds));
        break;
    case ERROR_BUSY:
        error_set(&err, code, "the server is shutting down; %s",
                  job->accepted ? "the job goes on after the next start" : "the job was cancelled");
        break;
    default:
        code = ERROR_CANCELLED;
        error_set(&err, code, "the job was cancelled");
    }
    worker_pool_end(pool, job, code, &err);
}

/* The same for a job that was taken out of the queue. */
static void worker_pool_end_waiting(struct worker_pool *pool, struct job *job)
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
static enum error_code worker_pool_start_carriers(struct worker *worker, struct error *err)
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
        enum error_code code = worker_pool_start_carriers(worker, err);
        if (code)
            return code;
    }
    return OK;
}

/* Under the lock: a set for each of these devices that has none. */
static enum error_code worker_pool_start_sets(struct worker_pool *pool, uint32_t devices, struct error *err)
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
    if (!pool->cancelled && worker_pool_start_sets(pool, devices_route(pool->devices, 0), &err))
        log_event(LOG_ERROR, "device", "reason=\"%s\"", err.text);
    pthread_mutex_unlock(&pool->lock);
}

/* Where a new job may run, with the sets for it started. */
static enum error_code worker_pool_place(struct worker_pool *pool, struct job *job, struct error *err)
{
    enum error_code code = worker_pool_devices_for(pool, job->restoration, &job->devices, &job->named, err);
    if (code)
        return code;
    pthread_mutex_lock(&pool->lock);
    code = worker_pool_start_sets(pool, job->devices, err);
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
    pthread_mutex_lock(&pool->lock); /* a call that cancels all finds it in the queue, or is noticed here */
    const bool started = next && !pool->cancelled && !worker_pool_start_sets(pool, next, &local);
    if (started) {
        log_event(LOG_WARN, "handed-over", "id=%s from=%s reason=\"%s\"", job->id, id, err->text);
        restoration_note(job->restoration, "device-changed",
                         "%s was lost again, so another device restored this picture", id);
        stats_hand_over(&pool->stats);
        job->devices = next;
        atomic_store(&job->state, JOB_QUEUED);
        queue_return(pool->queue, job);
    }
    pthread_mutex_unlock(&pool->lock);
    /* a call that stopped it meanwhile has not found it in the queue */
    if (started && atomic_load(&held->stop) && queue_remove(pool->queue, held))
        worker_pool_end_waiting(pool, job);
    job_release(&held);
    return started;
}

/* --- the pool ------------------------------------------------------------------------------------------------------
 */

uint64_t worker_pool_inflight_usual(const struct device_info *list, size_t count)
{
    uint64_t bytes = INFLIGHT_MOST;
    for (size_t i = 0; i < count; i++)
        if (list[i].type == DEVICE_CPU && list[i].memory_total / 2 < bytes)
            bytes = list[i].memory_total / 2;
    return bytes;
}

static enum error_code worker_pool_create_inflight(struct worker_pool *pool, const struct device_info *list,
                                                   size_t count, struct error *err)
{
    const uint64_t asked = pool->settings.inflight_memory;
    return inflight_create(&pool->inflight, asked ? asked : worker_pool_inflight_usual(list, count),
                           pool->settings.queue, err);
}

static enum error_code worker_pool_create_devices(struct worker_pool *pool, const char *wanted, struct error *err)
{
    struct device_info *list = NULL;
    size_t count = 0;
    enum error_code code = pool->settings.front ? OK : device_list(&list, &count, err);
    if (!code)
        code = worker_pool_create_inflight(pool, list, count, err);
    if (!code)
        code = devices_create(&pool->devices, list, count, err);
    if (!code)
        code = devices_choose(pool->devices, pool->settings.front ? "auto" : wanted, err);
    if (!code && pool->settings.chosen)
        code = pool->settings.chosen(pool->settings.context, pool->devices, err);
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
    worker_pool_set_limits(pool, settings->job_seconds, settings->stall_seconds);
    snprintf(pool->cache_dir, sizeof pool->cache_dir, "%s", settings->cache_dir ? settings->cache_dir : "");
    pool->settings.cache_dir = pool->cache_dir;
    pool->settings.device = NULL;
    pool->settings.reopen_seconds = settings->reopen_seconds ? settings->reopen_seconds : REOPEN_SECONDS;
    pool->store = store;
    pthread_mutex_init(&pool->lock, NULL);
    stats_init(&pool->stats);
    enum error_code code = queue_create(&pool->queue, settings->queue, CARRIERS_AHEAD * settings->workers, err);
    if (!code)
        code = events_create(&pool->events, err);
    if (!code)
        code = waiting_create(&pool->waiting, err);
    if (!code)
        code = worker_pool_create_devices(pool, settings->device, err);
    if (!code)
        code = speed_open(&pool->speeds, pool->cache_dir, err);
    if (!code) {
        pthread_mutex_lock(&pool->lock);
        code = worker_pool_start_sets(pool, devices_route(pool->devices, 0), err);
        pthread_mutex_unlock(&pool->lock);
    }
    if (code)
        worker_pool_destroy(&pool);
    *out = pool;
    return code;
}

struct worker *worker_pool_worker(struct worker_pool *pool, int i)
{
    for (int device = 0; device < DEVICES_MAX; device++) {
        struct worker_set *set = pool->sets[device];
        if (set && i < set->count)
            return &set->workers[i];
        i -= set ? set->count : 0;
    }
    return NULL;
}

void worker_pool_set_limits(struct worker_pool *pool, int job_seconds, int stall_seconds)
{
    atomic_store(&pool->job_seconds, job_seconds);
    atomic_store(&pool->stall_seconds, stall_seconds);
}

enum error_code worker_pool_submit(struct worker_pool *pool, struct job *job, struct error *err)
{
    const int seconds = atomic_load(&pool->job_seconds);
    if (seconds)
        job->restoration->deadline_ns = job->created_ns + (int64_t)seconds * 1000000000;
    if (job->accepted && seconds && job_now() > job->restoration->deadline_ns)
        return error_set(err, ERROR_TIMEOUT, "the job was not done within its deadline of %d seconds", seconds);
    worker_pool_predict(pool, job);
    enum error_code code = job->accepted ? OK : worker_pool_in_time(pool, &job->estimate, 0, err);
    if (!code)
        code = worker_pool_place(pool, job, err);
    if (code)
        return code;
    atomic_fetch_add(&pool->pending, 1);
    code = queue_push(pool->queue, job, err);
    if (code)
        atomic_fetch_sub(&pool->pending, 1);
    else
        atomic_store(&pool->hurry, 1);
    return code;
}

void worker_pool_set_share(struct worker_pool *pool, struct share *share)
{
    atomic_store(&pool->share, share);
}

struct share *worker_pool_share(struct worker_pool *pool)
{
    return atomic_load(&pool->share);
}

void worker_pool_cancel(struct worker_pool *pool, struct job *job, enum error_code reason)
{
    job_stop(job, reason);
    if (queue_remove(pool->queue, job))
        worker_pool_end_waiting(pool, job);
}

/* Stops jobs that a carrier has and whose deadline has passed at that time. */
static void worker_pool_stop_carried(struct worker_pool *pool, int64_t now, enum error_code reason)
{
    struct worker *worker;
    for (int i = 0; (worker = worker_pool_worker(pool, i)); i++)
        for (int k = 0; k < worker->carrier_count; k++) {
            struct job *job = worker->carriers[k].current;
            if (job && (reason == ERROR_BUSY || (job->restoration->deadline_ns && now > job->restoration->deadline_ns)))
                job_stop(job, reason);
        }
}

/* Stops jobs that run on a device without progress. Jobs that wait, or whose files are being read or written, are not
 * checked. */
static void worker_pool_stop_stalled(struct worker_pool *pool, int64_t now, int seconds)
{
    struct worker *worker;
    for (int i = 0; (worker = worker_pool_worker(pool, i)); i++)
        for (int k = 0; k < worker->carrier_count; k++) {
            struct carrier *carrier = &worker->carriers[k];
            struct job *job = carrier->current;
            const int stage = job ? atomic_load(&job->restoration->stage) : 0;
            const unsigned progress = job ? atomic_load(&job->restoration->progress) : 0;
            const bool at_work =
                job && atomic_load(&job->state) == JOB_RUNNING && stage >= STAGE_REPAIR && stage <= STAGE_BACKGROUND;
            const int64_t most =
                (int64_t)seconds * (at_work && atomic_load(&job->restoration->making) ? STALL_MAKING : 1);
            if (!at_work || !carrier->moved_ns || progress != carrier->progress) {
                carrier->progress = progress;
                carrier->moved_ns = now;
            } else if (now - carrier->moved_ns > most * 1000000000) {
                job_stop(job, ERROR_STALLED);
            }
        }
}

void worker_pool_expire(struct worker_pool *pool)
{
    int64_t now = job_now();
    struct job *job;
    const int64_t allowed = (int64_t)atomic_load(&pool->job_seconds) * 1000000000;
    const int stall_seconds = atomic_load(&pool->stall_seconds);
    while (allowed && (job = queue_take_older(pool->queue, now - allowed))) {
        job->restoration->deadline_ns = job->created_ns + allowed;
        job_stop(job, ERROR_TIMEOUT);
        worker_pool_end_waiting(pool, job);
    }
    pthread_mutex_lock(&pool->lock);
    worker_pool_stop_carried(pool, now, ERROR_TIMEOUT);
    if (stall_seconds)
        worker_pool_stop_stalled(pool, now, stall_seconds);
    pthread_mutex_unlock(&pool->lock);
}

void worker_pool_drain(struct worker_pool *pool)
{
    queue_close(pool->queue);
    atomic_store(&pool->hurry, 1);
    inflight_close(pool->inflight);
}

bool worker_pool_draining(struct worker_pool *pool)
{
    return queue_closed(pool->queue);
}

int worker_pool_carriers(struct worker_pool *pool)
{
    const uint32_t routes = devices_route(pool->devices, 0);
    const struct worker *worker;
    int count = 0;
    pthread_mutex_lock(&pool->lock);
    for (int i = 0; (worker = worker_pool_worker(pool, i)); i++)
        count += routes >> worker->device & 1 ? worker->carrier_count : 0;
    pthread_mutex_unlock(&pool->lock);
    return count;
}

bool worker_pool_idle(struct worker_pool *pool)
{
    return !atomic_load(&pool->pending);
}

int worker_pool_jobs(struct worker_pool *pool)
{
    return atomic_load(&pool->pending);
}

void worker_pool_cancel_all(struct worker_pool *pool)
{
    struct job *job;
    pthread_mutex_lock(&pool->lock);
    pool->cancelled = true;
    worker_pool_stop_carried(pool, INT64_MAX, ERROR_BUSY);
    pthread_mutex_unlock(&pool->lock);
    while ((job = queue_take_older(pool->queue, INT64_MAX))) {
        job_stop(job, ERROR_BUSY);
        worker_pool_end_waiting(pool, job);
    }
}

void worker_pool_destroy(struct worker_pool **pool)
{
    struct worker_pool *old = *pool;
    *pool = NULL;
    if (!old)
        return;
    if (old->queue && old->inflight) {
        worker_pool_drain(old);
        worker_pool_cancel_all(old);
        queue_end(old->queue);
    }
    for (int device = 0; device < DEVICES_MAX; device++) {
        struct worker_set *set = old->sets[device];
        for (int i = 0; set && i < set->count; i++) { /* the first one may start others until it ends */
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
    inflight_destroy(&old->inflight);
    events_destroy(&old->events);
    waiting_destroy(&old->waiting);
    stats_destroy(&old->stats);
    speed_close(&old->speeds);
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
    worker_pool_elsewhere_fn *elsewhere = pool->elsewhere;
    void *context = pool->elsewhere_context;
    pthread_mutex_unlock(&pool->lock);
    if (pool->settings.front)
        return elsewhere ? elsewhere(context, err) : error_set(err, ERROR_BUSY, "no other server is known yet");
    pthread_mutex_lock(&pool->lock);
    for (int i = 0; (worker = worker_pool_worker(pool, i)); i++) {
        const bool here = routes >> worker->device & 1;
        ready = ready || (here && worker->phase == PHASE_READY);
        /* a device that its test has just disabled has no route any more, and its worker is about to say why */
        loading = loading || ((here || !routes) && worker->phase == PHASE_STARTING);
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

void worker_pool_elsewhere(struct worker_pool *pool, worker_pool_elsewhere_fn *ready, void *context)
{
    pthread_mutex_lock(&pool->lock);
    pool->elsewhere = ready;
    pool->elsewhere_context = context;
    pthread_mutex_unlock(&pool->lock);
}

void worker_pool_loaded(struct worker_pool *pool, char loaded[ROLE_COUNT][128])
{
    pthread_mutex_lock(&pool->lock);
    memcpy(loaded, pool->loaded, sizeof pool->loaded);
    pthread_mutex_unlock(&pool->lock);
}

struct inflight *worker_pool_inflight(struct worker_pool *pool)
{
    return pool->inflight;
}

struct queue *worker_pool_queue(struct worker_pool *pool)
{
    return pool->queue;
}

struct devices *worker_pool_devices(struct worker_pool *pool)
{
    return pool->devices;
}

struct waiting *worker_pool_waiting(struct worker_pool *pool)
{
    return pool->waiting;
}

struct stats *worker_pool_stats(struct worker_pool *pool)
{
    return &pool->stats;
}

struct events *worker_pool_events(struct worker_pool *pool)
{
    return pool->events;
}
