/* The pool's threads. Each worker has its own handle of one device, and computes one job after the other. Carriers
 * (several for each worker, serving all devices) take one job each from the queue to its end: they read its picture,
 * wait until a worker has computed it, and write the result, so that no device waits for files. Only for worker_pool.c,
 * which owns what is declared here, and worker_forecast.c.
 * Thread-safety: each field of the pool and of a thread says whose it is; any of the threads may call the functions. */
#ifndef SERVER_JOB_WORKER_H
#define SERVER_JOB_WORKER_H

#include "server/job/speed.h"
#include "server/job/worker_pool.h"

enum worker_phase { PHASE_STARTING, PHASE_READY, PHASE_NO_DEVICE, PHASE_NO_MODELS };

/* How far carriers read ahead of a worker, and how many carriers there are for each worker: those that read ahead, one
 * whose job it computes, and those that write results. This bounds the number of pictures in memory. */
#define CARRIERS_AHEAD 2
#define CARRIERS 6

struct carrier {
    struct worker_pool *pool;
    pthread_t thread;
    struct job *current; /* this and the next two are under the pool's lock */
    unsigned progress;   /* the job's, when it last changed */
    int64_t moved_ns;    /* when that was; 0: not checked yet */
};

struct worker {
    struct worker_pool *pool;
    int device;
    pthread_t thread;
    struct engine *engine; /* its thread's; NULL while the device cannot be opened */
    struct device *tested; /* its thread's: the device as the self-test left it open; NULL once the engine has it */
    struct job *next;      /* its thread's: a job taken while its device works on another; NULL: none */
    bool up, disabled;     /* its thread's: the device is open; it will never be opened */
    bool untested;         /* its thread's: the self-test must run (again) before it is opened */
    struct share_worker *share;        /* its thread's; or NULL */
    double help_ms;                    /* its thread's: when it may ask again whether it can help (log_clock_ms) */
    unsigned calls;                    /* its thread's: of queue_await */
    bool turn;                         /* its thread's: it has its set's turn */
    enum worker_phase phase;           /* this and the next are under the pool's lock */
    struct error reason;               /* why it is not ready */
    struct carrier carriers[CARRIERS]; /* those started with it */
    int carrier_count;
};

/* The workers of one device. The first opens and tests it, and starts the others if it passes. */
struct worker_set {
    int count;            /* workers started; under the pool's lock */
    pthread_mutex_t turn; /* of a GPU: two jobs at once would only take its time from each other */
    struct worker workers[];
};

struct worker_pool {
    struct worker_settings settings;
    char cache_dir[1024];
    struct model_store *store;
    struct queue *queue;
    struct inflight *inflight;
    struct devices *devices;
    struct stats stats;
    struct events *events;
    struct waiting *waiting;
    struct speed_table *speeds;
    _Atomic(struct share *) share;         /* NULL: tiles are not shared with other servers */
    atomic_int hurry;                      /* there is a job: workers should not help others now */
    atomic_int pending;                    /* jobs submitted that have not ended */
    atomic_int job_seconds, stall_seconds; /* from the settings, or changed later */
    pthread_mutex_t lock;
    char loaded[ROLE_COUNT][128];
    bool cancelled;                       /* every job must end at once */
    struct worker_set *sets[DEVICES_MAX]; /* NULL: none */
    worker_pool_elsewhere_fn *elsewhere;  /* of a front; under the lock */
    void *elsewhere_context;
};

/* The thread of the worker in the argument: tests the device if it is the first of its set, opens it, and takes jobs
 * until the queue has ended. */
void *worker_main(void *worker);

/* The thread of the carrier in the argument: carries jobs until the queue has ended. */
void *carrier_main(void *carrier);

/* --- of worker_pool.c ----------------------------------------------------------------------------------------------
 */

/* Starts workers of a set until it has that many. Call with the pool's lock held. */
enum error_code worker_pool_grow(struct worker_pool *pool, int device, int count, struct error *err) MUST_CHECK;

/* Starts the missing sets of the devices that now run jobs which name none. */
void worker_pool_ensure(struct worker_pool *pool);

/* Ends a job: its state, the counters, its owner, the reference. */
void worker_pool_end(struct worker_pool *pool, struct job *job, enum error_code code, const struct error *err);
/* Ends a job that was asked to stop. */
void worker_pool_end_stopped(struct worker_pool *pool, struct job *job);

/* The final state of a job that ends with this code: one stopped by its client or by the end of the server has not
 * failed. */
enum job_state worker_pool_outcome(const struct job *job, enum error_code code);

/* Gives a job whose device was lost back to the queue, with its reference, for the next device. false: there is
 * none. */
bool worker_pool_hand_over(struct worker_pool *pool, int device, struct job *job, const struct error *err);
/* The i-th worker of all sets; NULL after the last. Under the lock. */
struct worker *worker_pool_worker(struct worker_pool *pool, int i);

/* --- of worker_forecast.c ------------------------------------------------------------------------------------------
 */

/* Where a restoration may run; named: on one that it names. Errors: those of worker_pool_submit about devices. */
enum error_code worker_pool_devices_for(struct worker_pool *pool, const struct restoration *r, uint32_t *devices,
                                        bool *named, struct error *err) MUST_CHECK;
/* The job's estimate, where one can be made. */
void worker_pool_predict(struct worker_pool *pool, struct job *job);

#endif
