/* The workers: for each device that jobs run on a set of threads, all of which take jobs from one queue. A device that
 * only a job names gets its set then. A job whose device is lost for good goes to the next one.
 * Thread-safety: every function may be called from any thread, but for create and destroy. */
#ifndef SERVER_JOB_WORKER_POOL_H
#define SERVER_JOB_WORKER_POOL_H

#include "server/job/devices.h"
#include "server/job/queue.h"
#include "server/job/stats.h"

struct worker_settings {
    const char *device;    /* as devices_choose takes it; copied, as is the next */
    const char *cache_dir; /* NULL: none */
    enum precision precision;
    int workers; /* of each device */
    size_t queue;
    int job_seconds;
};

struct worker_pool;

/* Starts the threads of the chosen devices, which test and open them and load the default models by themselves. The
 * store is borrowed. ERROR_INVALID when there is no device of a name in the settings. */
enum error_code worker_pool_create(struct worker_pool **out, const struct worker_settings *settings,
                                   struct model_store *store, struct error *err) MUST_CHECK;

/* Queues a job for the device that its options name, or any, and sets its deadline. ERROR_BUSY: the queue is full, or
 * the pool drains (see worker_pool_draining); ERROR_INVALID: the device that it names is not there;
 * ERROR_DEVICE_DISABLED: it, or every one, cannot be used. Once it is OK, the job's end is called, maybe before this
 * returns. */
enum error_code worker_pool_submit(struct worker_pool *pool, struct job *job, struct error *err) MUST_CHECK;

/* Ends a job that waits, stops one that runs (it ends soon). reason: see job_stop. */
void worker_pool_cancel(struct worker_pool *pool, struct job *job, enum error_code reason);

/* Ends what has passed its deadline, waiting or running. To be called every now and then. */
void worker_pool_expire(struct worker_pool *pool);

/* No new jobs from now on; those at hand are done. */
void worker_pool_drain(struct worker_pool *pool);
bool worker_pool_draining(struct worker_pool *pool);
/* No job waits or runs. */
bool worker_pool_idle(struct worker_pool *pool);
/* Cancels every job there is, with ERROR_BUSY. */
void worker_pool_cancel_all(struct worker_pool *pool);

/* Drains, cancels what is left, and ends the threads. */
void worker_pool_destroy(struct worker_pool **pool);

/* OK when a worker that takes jobs which name no device has its device and the default models; ERROR_NOT_FOUND: no
 * models, ERROR_DEVICE_DISABLED: no usable device, ERROR_DEVICE: the models do not load there, ERROR_DEVICE_LOST: it
 * was lost and the next job tries it again, ERROR_BUSY: still loading. The text says so. */
enum error_code worker_pool_ready(struct worker_pool *pool, struct error *err) MUST_CHECK;

/* Seconds after which a refused client may try again. */
int worker_pool_retry_after(struct worker_pool *pool);

/* Names of the default models on the devices, "" where there is none or it is not loaded yet. */
void worker_pool_loaded(struct worker_pool *pool, char loaded[ROLE_COUNT][128]);

struct queue *worker_pool_queue(struct worker_pool *pool);
struct devices *worker_pool_devices(struct worker_pool *pool);
struct stats *worker_pool_stats(struct worker_pool *pool);

#endif
