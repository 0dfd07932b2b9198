#include "runtime/base/thread.h"
#include "server/job/worker.h"

static void carrier_set_current(struct carrier *carrier, struct job *job)
{
    pthread_mutex_lock(&carrier->pool->lock);
    carrier->current = job;
    carrier->moved_ns = 0;
    if (job && carrier->pool->cancelled) /* it had left the queue but not reached us when all jobs were cancelled */
        job_stop(job, ERROR_BUSY);
    pthread_mutex_unlock(&carrier->pool->lock);
}

/* Reads the picture, waits until a worker has computed it, and writes the result. */
static enum error_code carrier_carry(struct worker_pool *pool, struct job *job, struct error *err)
{
    struct restoration *r = job->restoration;
    enum error_code code = ERROR_CANCELLED;
    const uint64_t working = inflight_picture(r);
    if (inflight_begin(pool->inflight, working, &job->stop)) {
        if (!job->inflight)
            job->inflight = inflight_hold(pool->inflight);
        job->working = working;
        code = body_read(&job->body, r, pipeline_begin, pool->store, err);
        body_clear(&job->body);
    }
    if (code || atomic_load(&job->stop)) {
        queue_drop(pool->queue, job);
        return code ? code : ERROR_CANCELLED;
    }
    queue_ready(pool->queue, job);
    while (sem_wait(&job->computed)) /* a signal */
        ;
    if (job->outcome) {
        *err = job->error;
        error_clear(&job->error);
        return job->outcome;
    }
    code = pipeline_end(r, err);
    if (!code)
        job_make_etag(job);
    return code;
}

void *carrier_main(void *argument)
{
    struct carrier *carrier = argument;
    struct worker_pool *pool = carrier->pool;
    struct job *job;
    thread_give_way();
    while ((job = queue_carry(pool->queue))) {
        struct error err = ERROR_INIT;
        carrier_set_current(carrier, job);
        job->started_ns = job_now();
        const enum error_code code = carrier_carry(pool, job, &err);
        carrier_set_current(carrier, NULL);
        restoration_drop_pictures(job->restoration); /* sending the answer may take a while */
        job->result = restoration_files(job->restoration);
        if (job->inflight)
            inflight_end(job->inflight, job->working, job->result);
        if (code == ERROR_TIMEOUT) /* the pipeline may see it before worker_pool_expire does */
            job_stop(job, ERROR_TIMEOUT);
        const bool stopped = atomic_load(&job->stop);
        if (stopped && (code == ERROR_CANCELLED || code == ERROR_TIMEOUT || code == ERROR_DEVICE_LOST))
            worker_pool_end_stopped(pool, job);
        else
            worker_pool_end(pool, job, code, &err);
    }
    return NULL;
}
