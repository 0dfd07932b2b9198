/* When jobs begin and how long they take: of one that is here, of one that would come, and what follows for those that
 * come too late. */
#include <math.h>
#include <string.h>

#include "server/job/worker.h"

#define RETRY_AFTER_MAX 3600
#define RETRY_AFTER_DRAINING 5 /* seconds: jobs of this server say nothing about the one that follows it */

enum error_code worker_pool_devices_for(struct worker_pool *pool, const struct restoration *r, uint32_t *devices,
                                        bool *named, struct error *err)
{
    const char *wanted = r->options.device;
    int device;
    *named = *wanted && strcmp(wanted, "auto") != 0;
    if (*named) {
        enum error_code code = devices_find(pool->devices, wanted, &device, err);
        *devices = code ? 0 : UINT32_C(1) << device;
        return code;
    }
    *devices = devices_route(pool->devices, 0);
    if (!*devices)
        return error_set(err, ERROR_DEVICE_DISABLED, "there is no usable device; /v1/devices says why");
    return OK;
}

/* Whether a carrier's job keeps a worker of these devices busy, and for how many seconds more. */
static bool worker_pool_occupies(const struct job *job, uint32_t devices, int64_t now, double *seconds)
{
    double left;
    if (!job || atomic_load(&job->state) != JOB_RUNNING || !(job->devices & devices) ||
        atomic_load(&job->restoration->entered) >> STAGE_PASTE & 1) /* that one is being encoded */
        return false;
    estimate_progress(&job->estimate, job->restoration, (double)(now - atomic_load(&job->running_ns)) / 1e9, &left);
    *seconds = fmax(left - job->estimate.groups[GROUP_ENCODE], 0);
    return true;
}

/* Seconds until a job may begin on one of these devices, behind queued ones that take so many: with the rest of the
 * running ones, divided by the number of workers. */
static double worker_pool_wait(struct worker_pool *pool, uint32_t devices, double queued)
{
    const int64_t now = job_now();
    const struct worker *worker;
    double seconds = queued;
    int ready = 0, idle = 0;
    pthread_mutex_lock(&pool->lock);
    for (int i = 0; (worker = worker_pool_worker(pool, i)); i++) {
        const bool here = devices >> worker->device & 1 && worker->phase == PHASE_READY;
        ready += here;
        idle += here;
        for (int k = 0; k < worker->carrier_count; k++) {
            double left = 0;
            idle -= worker_pool_occupies(worker->carriers[k].current, devices, now, &left);
            seconds += left;
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return idle > 0 && queued <= 0 ? 0 : seconds / (ready ? ready : 1);
}

/* Workers of these devices that may begin a job. */
static int worker_pool_count_ready(struct worker_pool *pool, uint32_t devices)
{
    const struct worker *worker;
    int ready = 0;
    pthread_mutex_lock(&pool->lock);
    for (int i = 0; (worker = worker_pool_worker(pool, i)); i++)
        ready += devices >> worker->device & 1 && worker->phase == PHASE_READY;
    pthread_mutex_unlock(&pool->lock);
    return ready;
}

enum error_code worker_pool_estimate(struct worker_pool *pool, const struct restoration *r,
                                     const struct model_entry *const models[ROLE_COUNT], int faces, const char *client,
                                     bool low, struct estimate *out, struct error *err)
{
    struct device_info info;
    struct queue_ahead ahead;
    uint32_t devices;
    bool named;
    enum error_code code = worker_pool_devices_for(pool, r, &devices, &named, err);
    if (code)
        return code;
    const int device = __builtin_ctz(devices);
    devices_info(pool->devices, device, &info);
    estimate_predict(pool->speeds,
                     &(struct estimate_request){
                         .r = r,
                         .models = models,
                         .device = &info,
                         .precision = pipeline_precision_on(&info, pool->settings.precision, r->options.precision),
                         .faces = faces},
                     out);
    out->device = device;
    queue_ahead_of_new(pool->queue, devices, client, low, &ahead);
    out->queue_seconds = worker_pool_wait(pool, devices, ahead.seconds);
    return OK;
}

bool worker_pool_position(struct worker_pool *pool, const struct job *job, size_t *position, double *seconds)
{
    struct queue_ahead ahead;
    const bool waits = queue_ahead_of(pool->queue, job, &ahead);
    *position = ahead.jobs;
    *seconds = waits ? worker_pool_wait(pool, job->devices, ahead.seconds) : 0;
    return waits;
}

void worker_pool_predict(struct worker_pool *pool, struct job *job)
{
    const struct model_entry *models[ROLE_COUNT];
    struct restoration *r = job->restoration;
    struct error ignored = ERROR_INIT; /* its carrier will meet the same error and report it */
    if (!r->in_info.width || pipeline_check_size(r, pool->store, models, &ignored) ||
        worker_pool_estimate(pool, r, models, -1, job->client, job->low, &job->estimate, &ignored))
        job->estimate = (struct estimate){0};
}

enum error_code worker_pool_in_time(struct worker_pool *pool, const struct estimate *estimate, double stored,
                                    struct error *err)
{
    const double limit = atomic_load(&pool->job_seconds);
    const int ready = worker_pool_count_ready(pool, devices_route(pool->devices, 0));
    const double before = estimate->queue_seconds + stored / (ready ? ready : 1);
    if (limit && estimate->low > limit)
        return error_set(err, ERROR_TOO_SLOW,
                         "on %s this picture would take about %.0f seconds, and a job may take %.0f: choose a smaller "
                         "upscale, bg_upsampler=none or another device, or reduce the picture",
                         devices_id(pool->devices, estimate->device), estimate->seconds, limit);
    if (limit && estimate->measured && estimate->low + before / 2 > limit)
        return error_set(err, ERROR_BUSY,
                         "the jobs before this one take about %.0f seconds, and it would not be done within its %.0f",
                         before, limit);
    return OK;
}

int worker_pool_hands(struct worker_pool *pool)
{
    return worker_pool_count_ready(pool, devices_route(pool->devices, 0));
}

double worker_pool_begins(struct worker_pool *pool, double device_seconds)
{
    return worker_pool_wait(pool, devices_route(pool->devices, 0), device_seconds);
}

double worker_pool_seconds(struct worker_pool *pool, double device_seconds)
{
    const uint32_t routes = devices_route(pool->devices, 0);
    const int ready = worker_pool_count_ready(pool, routes);
    struct queue_ahead all;
    queue_ahead_of_new(pool->queue, routes, NULL, true, &all);
    return worker_pool_wait(pool, routes, all.seconds) + device_seconds / (ready ? ready : 1);
}

int worker_pool_retry_after(struct worker_pool *pool)
{
    if (worker_pool_draining(pool))
        return RETRY_AFTER_DRAINING;
    const uint32_t devices = devices_route(pool->devices, 0);
    struct queue_ahead all;
    queue_ahead_of_new(pool->queue, devices, NULL, true, &all);
    const double seconds = ceil(worker_pool_wait(pool, devices, all.seconds));
    return seconds < 1 ? 1 : seconds > RETRY_AFTER_MAX ? RETRY_AFTER_MAX : (int)seconds;
}
