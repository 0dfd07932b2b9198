/* The workers: a set of threads for each device that runs jobs; all of them take jobs from one queue. Other devices get
 * their set when a job names them. A job whose device is lost for good goes to the next one.
 * Thread-safety: every function may be called from any thread, except create and destroy. */
#ifndef SERVER_JOB_WORKER_POOL_H
#define SERVER_JOB_WORKER_POOL_H

#include "server/job/devices.h"
#include "server/job/estimate.h"
#include "server/job/queue.h"
#include "server/job/share.h"
#include "server/job/stats.h"

struct worker_settings {
    const char *device;    /* as devices_choose takes it; this and the next are copied */
    const char *cache_dir; /* NULL: none */
    enum precision precision;
    bool shares; /* worker_pool_set_share will be called */
    bool front;  /* no device at all: other servers work, and worker_pool_elsewhere says whether they can */
    int workers; /* of each device */
    size_t queue;
    uint64_t inflight_memory; /* bytes, 0: half of the machine's or cgroup's, at most 4 GiB; see inflight.h */
    int job_seconds;          /* deadline of a job; 0: none */
    int stall_seconds;        /* a running job without progress for this long is stopped; 0: never */
    uint64_t memory;          /* bytes that each device may hold between jobs; 0: plan_cache_usual */
    int64_t keep_seconds;     /* what was not used for this long is given back; 0: what no job uses */
    int reopen_seconds;       /* a device that was lost is opened again after this, and for the next job; 0: usual */
    /* Called when the devices are chosen and no thread is started yet; may end the creation. NULL: nothing is. */
    enum error_code (*chosen)(void *context, struct devices *devices, struct error *err);
    void *context;
};

struct worker_pool;

/* Starts the threads of the chosen devices, which then test and open them and load the default models. The store is
 * borrowed. ERROR_INVALID when the settings name a device that does not exist. */
enum error_code worker_pool_create(struct worker_pool **out, const struct worker_settings *settings,
                                   struct model_store *store, struct error *err) MUST_CHECK;

/* Queues a job for the device that its options name, or any, and sets its deadline, which counts from created_ns.
 * ERROR_BUSY, and ERROR_TOO_SLOW: those of worker_pool_in_time, unless it was accepted before; ERROR_TIMEOUT: it was,
 * and its deadline has passed. ERROR_BUSY: the queue is full, or the pool is draining (see worker_pool_draining);
 * ERROR_INVALID: the device that it names does not exist; ERROR_DEVICE_DISABLED: that device, or every device, cannot
 * be used. After OK, the job's end function will be called, perhaps before this returns. */
enum error_code worker_pool_submit(struct worker_pool *pool, struct job *job, struct error *err) MUST_CHECK;

/* Refuses now what can hardly be done before its deadline: ERROR_TOO_SLOW by itself, ERROR_BUSY behind those before it.
 * stored: seconds of device time of those that are in no queue yet. */
enum error_code worker_pool_in_time(struct worker_pool *pool, const struct estimate *estimate, double stored,
                                    struct error *err) MUST_CHECK;

/* What the restoration would take on the device that its options name, or on the first one that runs jobs, after the
 * jobs that go before it; nothing is queued. models: as pipeline_check_size gives them. faces: negative: unknown.
 * client, low: as those of struct job. Errors: those of worker_pool_submit about devices. */
enum error_code worker_pool_estimate(struct worker_pool *pool, const struct restoration *r,
                                     const struct model_entry *const models[ROLE_COUNT], int faces, const char *client,
                                     bool low, struct estimate *out, struct error *err) MUST_CHECK;

/* How many jobs go before this waiting one, and the seconds until it begins on a device; false: it does not wait. */
bool worker_pool_position(struct worker_pool *pool, const struct job *job, size_t *position, double *seconds);

/* Ends a waiting job, or stops a running one, which ends soon. reason: see job_stop. */
void worker_pool_cancel(struct worker_pool *pool, struct job *job, enum error_code reason);

/* Replaces both of the settings. Jobs at work keep the deadline that they have. */
void worker_pool_set_limits(struct worker_pool *pool, int job_seconds, int stall_seconds);

/* Ends jobs that have passed their deadline, waiting or running, and jobs that make no progress. Call it now and
 * then. */
void worker_pool_expire(struct worker_pool *pool);

/* Refuses new jobs from now on; the present ones are finished. */
void worker_pool_drain(struct worker_pool *pool);
bool worker_pool_draining(struct worker_pool *pool);
/* How many jobs the devices that run jobs which name none can have in work, pictures being read and written included.
 */
int worker_pool_carriers(struct worker_pool *pool);
/* How many jobs those devices can compute at once: their workers that are ready. */
int worker_pool_hands(struct worker_pool *pool);
/* Seconds until those devices have done what they have begun, and then jobs of that many seconds of device time. */
double worker_pool_begins(struct worker_pool *pool, double device_seconds);
/* Seconds until those devices have done what they have, and then jobs of that many seconds of device time. */
double worker_pool_seconds(struct worker_pool *pool, double device_seconds);
/* Whether no job waits or runs. */
bool worker_pool_idle(struct worker_pool *pool);
/* How many jobs wait or run. */
int worker_pool_jobs(struct worker_pool *pool);
/* Cancels every job, with ERROR_BUSY. */
void worker_pool_cancel_all(struct worker_pool *pool);

/* Drains, cancels the remaining jobs, and ends the threads. */
void worker_pool_destroy(struct worker_pool **pool);

/* OK when a worker that takes jobs which name no device has its device and the default models; ERROR_NOT_FOUND: no
 * models, ERROR_DEVICE_DISABLED: no usable device, ERROR_DEVICE: the models do not load there, ERROR_DEVICE_LOST: it
 * was lost, and the next job tries it again; ERROR_BUSY: still loading. The text says so. */
enum error_code worker_pool_ready(struct worker_pool *pool, struct error *err) MUST_CHECK;

/* Of a front: what worker_pool_ready returns. NULL: nobody works. */
typedef enum error_code worker_pool_elsewhere_fn(void *context, struct error *err);
void worker_pool_elsewhere(struct worker_pool *pool, worker_pool_elsewhere_fn *ready, void *context);

/* From now on workers share tiles with other servers; borrowed until the pool is destroyed. worker_pool_share: NULL:
 * they do not. */
void worker_pool_set_share(struct worker_pool *pool, struct share *share);
struct share *worker_pool_share(struct worker_pool *pool);

/* Seconds after which a refused client may try again; a fixed number while the server shuts down. */
int worker_pool_retry_after(struct worker_pool *pool);

/* The names of the default models on the devices, "" where there is none or it is not loaded yet. */
void worker_pool_loaded(struct worker_pool *pool, char loaded[ROLE_COUNT][128]);

struct inflight *worker_pool_inflight(struct worker_pool *pool);
struct queue *worker_pool_queue(struct worker_pool *pool);
struct devices *worker_pool_devices(struct worker_pool *pool);
struct waiting *worker_pool_waiting(struct worker_pool *pool);
struct stats *worker_pool_stats(struct worker_pool *pool);
struct events *worker_pool_events(struct worker_pool *pool);

/* The default of inflight_memory. list: of the devices; the one called cpu has the machine's or cgroup's memory. */
uint64_t worker_pool_inflight_usual(const struct device_info *list, size_t count);

#endif
