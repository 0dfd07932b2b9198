#include "server/job/worker.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/thread.h"
#include "runtime/selftest.h"
#include "runtime/trial.h"
#include "server/job/estimate.h"
#include "server/job/events.h"

#define WORKER_HELP_MS 500 /* where it has no time to help now, it looks again after this */

static void worker_set_phase(struct worker *worker, enum worker_phase phase, const struct error *reason)
{
    pthread_mutex_lock(&worker->pool->lock);
    worker->phase = phase;
    error_clear(&worker->reason);
    if (reason)
        worker->reason = *reason;
    pthread_mutex_unlock(&worker->pool->lock);
}

static void worker_set_up(struct worker *worker)
{
    worker->up = true;
    devices_up(worker->pool->devices, worker->device, worker->engine);
    queue_worker(worker->pool->queue, worker->device, true);
}

/* The device cannot be used (any more); others may have to do its work. */
static void worker_set_down(struct worker *worker, const struct error *reason)
{
    struct worker_pool *pool = worker->pool;
    worker_set_phase(worker, PHASE_NO_DEVICE, reason);
    devices_down(pool->devices, worker->device, worker->engine, reason->text);
    if (worker->up)
        queue_worker(pool->queue, worker->device, false);
    worker->up = false;
    worker_pool_ensure(pool);
}

/* Loads the default models onto the device, which is open. */
static enum error_code worker_preload(struct worker *worker, struct error *err)
{
    struct worker_pool *pool = worker->pool;
    char loaded[ROLE_COUNT][128] = {{0}};
    struct error local = ERROR_INIT;
    enum error_code code = OK;
    if (model_store_ready(pool->store, &local)) { /* whoever opened the store has reported it */
        worker_set_phase(worker, PHASE_NO_MODELS, &local);
        return OK;
    }
    code = engine_preload(worker->engine, loaded, &local);
    if (code == ERROR_DEVICE_LOST)
        return error_set(err, code, "%s", local.text);
    if (code) {
        log_event(LOG_WARN, "models", "reason=\"%s\" detail=\"%s\"", local.text, local.detail);
        worker_set_phase(worker, PHASE_NO_MODELS, &local);
    } else {
        log_event(LOG_INFO, "models", "device=%s detector=%s face=%s parser=%s upscaler=%s",
                  devices_id(pool->devices, worker->device), loaded[ROLE_DETECTOR], loaded[ROLE_FACE],
                  *loaded[ROLE_PARSER] ? loaded[ROLE_PARSER] : "none",
                  *loaded[ROLE_UPSCALER] ? loaded[ROLE_UPSCALER] : "none");
        worker_set_phase(worker, PHASE_READY, NULL);
    }
    pthread_mutex_lock(&pool->lock);
    if (!code || !*pool->loaded[ROLE_DETECTOR]) /* trouble with one device must not hide what the others have */
        memcpy(pool->loaded, loaded, sizeof loaded);
    pthread_mutex_unlock(&pool->lock);
    return OK;
}

/* Whether it shares tiles with other servers; false also while the server starts. */
static bool worker_shares(struct worker *worker)
{
    struct share *share = worker_pool_share(worker->pool);
    struct error err = ERROR_INIT;
    if (share && !worker->share && share_worker_create(&worker->share, share, &err))
        log_event(LOG_WARN, "share", "text=\"%s\"", err.text);
    return worker->share;
}

static void worker_take_turn(struct worker *worker, const struct restoration *r)
{
    struct device_info info;
    engine_info(worker->engine, &info);
    if (worker->pool->settings.workers == 1 || !info.asynchronous || r->detect_only || r->options.aligned ||
        strcmp(r->options.bg_upsampler, "none") == 0)
        return;
    pthread_mutex_lock(&worker->pool->sets[worker->device]->turn);
    worker->turn = true;
}

static void worker_leave_turn(struct worker *worker)
{
    if (worker->turn)
        pthread_mutex_unlock(&worker->pool->sets[worker->device]->turn);
    worker->turn = false;
}

/* The device has all of the current job: takes the next one, if there is no other worker for it. */
static void worker_take_ahead(void *user)
{
    struct worker *worker = user;
    if (worker->pool->settings.workers > 1 || worker->next ||
        !(worker->next = queue_pop_ahead(worker->pool->queue, worker->device)))
        return;
    if (!atomic_load(&worker->next->stop))
        engine_ahead(worker->engine, worker->next->restoration);
}

/* Opens the device and loads the default models. */
static void worker_open_device(struct worker *worker)
{
    struct worker_pool *pool = worker->pool;
    struct error err = ERROR_INIT;
    struct device_info info;
    const char *id = devices_id(pool->devices, worker->device);
    const char *cache_dir = *pool->cache_dir ? pool->cache_dir : NULL;
    if (!engine_create(&worker->engine, id, cache_dir, pool->store, &worker->tested, &err)) {
        engine_set_precision(worker->engine, pool->settings.precision);
        engine_set_memory(worker->engine, pool->settings.memory, pool->settings.workers);
        engine_set_spare(worker->engine, worker_take_ahead, worker);
        if (worker_preload(worker, &err))
            engine_destroy(&worker->engine);
    }
    if (!worker->engine) {
        log_event(LOG_ERROR, "device", "device=%s reason=\"%s\" detail=\"%s\"", id, err.text, err.detail);
        worker_set_down(worker, &err);
        return;
    }
    engine_info(worker->engine, &info);
    log_event(info.type == DEVICE_SOFTWARE ? LOG_WARN : LOG_INFO, "device",
              "id=%s name=\"%s\" driver=\"%s\" remark=\"%s\"", info.id, info.name, info.driver, info.reason);
    worker_set_up(worker);
}

/* What the device's first estimates go by, if no job has told yet how fast it is. It may be lost by that: then the
 * worker opens it anew. */
static void worker_try_speed(struct worker *worker)
{
    struct worker_pool *pool = worker->pool;
    struct device_info info;
    struct trial trial;
    struct error err = ERROR_INIT;
    devices_info(pool->devices, worker->device, &info);
    const enum precision precision = pipeline_precision_on(&info, pool->settings.precision, PRECISION_AUTO);
    if (estimate_knows(pool->speeds, &info, precision))
        return;
    const enum error_code code = trial_run(worker->tested, precision, &trial, &err);
    if (!code)
        estimate_seed(pool->speeds, &info, precision, trial.gmacs, trial.seconds);
    log_event(LOG_INFO, "trial", "device=%s gmacs_per_second=%.3g ms=%.1f reason=\"%s\"", info.id,
              code ? 0 : trial.gmacs / trial.seconds, trial.seconds * 1e3, err.text);
    if (code == ERROR_DEVICE_LOST)
        device_close(&worker->tested);
}

/* The self-test, once for all workers of the device; when it has passed, the others start. */
static void worker_test_device(struct worker *worker)
{
    struct worker_pool *pool = worker->pool;
    struct error err = ERROR_INIT;
    struct selftest test;
    const char *id = devices_id(pool->devices, worker->device);
    /* If it passes but cannot be opened again, worker_open_device will say why. */
    if (selftest_open(&worker->tested, id, *pool->cache_dir ? pool->cache_dir : NULL, &test, &err))
        error_clear(&err);
    devices_tested(pool->devices, worker->device, &test);
    log_event(test.fp32.state == SELFTEST_FAILED || test.fp16.state == SELFTEST_FAILED ? LOG_ERROR : LOG_INFO,
              "self-test",
              "device=%s fp32=\"%s\" fp32_error=%.2g fp16=\"%s\" fp16_error=%.2g ms=%.0f reason=\"%s%s%s\"", id,
              selftest_state_name(test.fp32.state), test.fp32.max_error, selftest_state_name(test.fp16.state),
              test.fp16.max_error, test.ms, test.fp32.reason, *test.fp32.reason && *test.fp16.reason ? "; " : "",
              test.fp16.reason);
    worker->untested = false;
    if (test.fp32.state == SELFTEST_FAILED) {
        worker->untested = test.fp32.code == ERROR_NO_MEMORY; /* others may have used it just then */
        worker->disabled = !worker->untested;
        if (worker->untested)
            error_set(&err, ERROR_DEVICE, "%s; it is tested again every %d seconds", test.fp32.reason,
                      pool->settings.reopen_seconds);
        else
            error_set(&err, ERROR_DEVICE, "%s", test.fp32.reason);
        worker_set_down(worker, &err);
        return;
    }
    if (worker->tested)
        worker_try_speed(worker);
    pthread_mutex_lock(&pool->lock);
    if (!pool->cancelled && worker_pool_grow(pool, worker->device, pool->settings.workers, &err))
        log_event(LOG_ERROR, "device", "device=%s reason=\"%s\"", id, err.text);
    pthread_mutex_unlock(&pool->lock);
}

/* Tests the device if that is this worker's task, and opens it unless it failed. */
static void worker_bring_up(struct worker *worker)
{
    if (worker->untested)
        worker_test_device(worker);
    if (!worker->disabled && !worker->untested)
        worker_open_device(worker);
}

/* Runs the job on the worker's device. ERROR_DEVICE_LOST: not here. */
static enum error_code worker_run_here(struct worker *worker, struct job *job, struct error *err)
{
    struct devices *devices = worker->pool->devices;
    const int device = worker->device;
    if (!worker->engine)
        worker_bring_up(worker);
    if (!worker->engine) {
        pthread_mutex_lock(&worker->pool->lock);
        error_set(err, ERROR_DEVICE_LOST, "the device %s cannot be used: %s", devices_id(devices, device),
                  worker->reason.text);
        pthread_mutex_unlock(&worker->pool->lock);
        return ERROR_DEVICE_LOST;
    }
    worker_take_turn(worker, job->restoration);
    devices_begin(devices, device, job->id);
    job->device = device;
    atomic_store(&job->running_ns, job_now());
    if (!atomic_load(&job->begun_ms))
        atomic_store(&job->begun_ms, job_clock());
    atomic_store(&job->state, JOB_RUNNING);
    events_started(job);

    struct error down = ERROR_INIT;
    const unsigned losses = engine_losses(worker->engine);
    engine_set_helpers(worker->engine,
                       worker_shares(worker) ? share_worker_helpers(worker->share, worker->engine, job->id) : NULL);
    const enum error_code code = engine_compute(worker->engine, job->restoration, err);
    worker_leave_turn(worker);
    devices_count_lost(devices, device, engine_losses(worker->engine) - losses);
    devices_end(devices, device, job->id, worker_pool_outcome(job, code));
    if (code == ERROR_DEVICE_LOST) { /* what the error says about this picture does not concern later ones */
        error_set(&down, code, "it was lost (%s), and is opened again every %d seconds and for the next job",
                  *err->detail ? err->detail : err->text, worker->pool->settings.reopen_seconds);
        worker_set_down(worker, &down);
        engine_destroy(&worker->engine);
    }
    return code;
}

/* Announces that it is about to take a job, if it has none. */
static void worker_come_back(struct worker *worker)
{
    if (worker->up && !worker->next)
        queue_idle(worker->pool->queue, worker->device);
}

static void worker_run_job(struct worker *worker, struct job *job)
{
    struct error err = ERROR_INIT;
    enum error_code code = ERROR_CANCELLED;
    if (!atomic_load(&job->stop))
        code = worker_run_here(worker, job, &err);
    else if (worker->engine)
        engine_forget(worker->engine);
    worker_come_back(worker);
    if (code == ERROR_DEVICE_LOST && !atomic_load(&job->stop) &&
        worker_pool_hand_over(worker->pool, worker->device, job, &err))
        return;
    job_computed(job, code, &err);
    job_release(&job);
}

/* There is no job: does a piece of what makes later jobs faster. */
static void worker_prepare(struct worker *worker)
{
    struct error err = ERROR_INIT;
    if (engine_prepare(worker->engine, &err)) /* a job will meet the same error and report it */
        log_event(LOG_WARN, "prepare", "device=%s reason=\"%s\"", devices_id(worker->pool->devices, worker->device),
                  err.text);
}

/* Whether it waits for models, which may be added while the server runs. */
static bool worker_lacks_models(const struct worker *worker)
{
    return worker->up && worker->phase == PHASE_NO_MODELS && worker->reason.code == ERROR_NOT_FOUND;
}

/* How long to wait for a job, ms; negative: until there is one. */
static int worker_patience_alone(struct worker *worker)
{
    const int reopen_ms = worker->pool->settings.reopen_seconds * 1000;
    if (!worker->up)
        return worker->disabled ? -1 : reopen_ms;
    if (engine_unprepared(worker->engine))
        return 0;
    if (worker_lacks_models(worker))
        return reopen_ms;
    return engine_give_back(worker->engine, worker->pool->settings.keep_seconds * 1000);
}

/* Whether it can help another server while it has no job. */
static bool worker_may_help(const struct worker *worker)
{
    return worker->pool->settings.shares && worker->up && !worker_lacks_models(worker);
}

/* How long to wait for a job, where it also asks now and then whether it can help. */
static int worker_patience(struct worker *worker)
{
    const int alone = worker_patience_alone(worker);
    if (!worker_may_help(worker) || worker_pool_draining(worker->pool))
        return alone;
    const double left = worker->help_ms - log_clock_ms();
    const int help = left < 1 ? 0 : (int)left;
    return alone >= 0 && alone < help ? alone : help;
}

/* No job waits: computes a tile for another server, if it is time to ask for one. */
static void worker_help(struct worker *worker)
{
    struct worker_pool *pool = worker->pool;
    if (!worker_may_help(worker) || log_clock_ms() < worker->help_ms)
        return;
    atomic_store(&pool->hurry, worker_pool_draining(pool)); /* or another worker would help on while the server ends */
    int again = WORKER_HELP_MS;
    if (worker_shares(worker) && queue_depth(pool->queue) == 0 && !worker_pool_draining(pool))
        again = share_worker_help(worker->share, worker->engine, &pool->hurry);
    worker->help_ms = log_clock_ms() + again;
}

void *worker_main(void *argument)
{
    struct worker *worker = argument;
    struct worker_pool *pool = worker->pool;
    thread_give_way();
    worker->untested = worker == pool->sets[worker->device]->workers;
    worker_bring_up(worker);
    worker_come_back(worker);
    for (;;) {
        if (worker->next) {
            struct job *next = worker->next;
            worker->next = NULL;
            worker_run_job(worker, next);
            continue;
        }
        const int patience_ms = worker_patience(worker);
        const unsigned calls = worker->calls;
        struct job *job = queue_await(pool->queue, worker->device, worker->up, patience_ms,
                                      worker_may_help(worker) ? &worker->calls : NULL);
        if (worker->calls != calls)
            worker->help_ms = 0;
        if (job)
            worker_run_job(worker, job);
        else if (queue_ended(pool->queue))
            break;
        else if (worker->up && engine_unprepared(worker->engine)) {
            worker_prepare(worker);
        } else if (worker_lacks_models(worker)) {
            struct error err = ERROR_INIT;
            if (worker_preload(worker, &err))
                log_event(LOG_WARN, "models", "reason=\"%s\"", err.text);
        } else if (!worker->up) {
            worker_bring_up(worker);
            worker_come_back(worker);
        } else { /* or something must be given back */
            worker_help(worker);
        }
    }
    if (worker->up)
        devices_down(pool->devices, worker->device, worker->engine, NULL);
    engine_destroy(&worker->engine);
    share_worker_destroy(&worker->share);
    return NULL;
}
