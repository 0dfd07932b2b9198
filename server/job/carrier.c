#include "runtime/base/thread.h"
#include "server/job/worker.h"

static void set_current(struct carrier *carrier, struct job *job)
{
    pthread_mutex_lock(&carrier->pool->lock);
    carrier->current = job;
    if (job && carrier->pool->cancelled) /* it was between the queue and us when all were cancelled */
        job_stop(job, ERROR_BUSY);
    pthread_mutex_unlock(&carrier->pool->lock);
}

/* Reads the picture, waits for what a worker makes of it, and writes the result. */
static enum error_code carry(struct worker_pool *pool, struct job *job, struct error *err)
{
    struct restoration *r = job->restoration;
    enum error_code code = ERROR_CANCELLED;
    if (!atomic_load(&job->stop))
        code = pipeline_begin(r, pool->store, err);
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
        set_current(carrier, job);
        job->started_ns = job_now();
        const enum error_code code = carry(pool, job, &err);
        set_current(carrier, NULL);
        restoration_drop_pictures(job->restoration); /* the answer may take its time on its way */
        if (code == ERROR_TIMEOUT)                   /* the pipeline may see it before worker_pool_expire does */
            job_stop(job, ERROR_TIMEOUT);
        const bool stopped = atomic_load(&job->stop);
        if (stopped && (code == ERROR_CANCELLED || code == ERROR_TIMEOUT || code == ERROR_DEVICE_LOST))
            worker_pool_end_stopped(pool, job);
        else
            worker_pool_end(pool, job, code, &err);
    }
    return NULL;
}
