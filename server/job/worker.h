/* One worker: a thread with a handle of one device of its own. For worker_pool.c alone, which owns what is declared
 * here.
 * Thread-safety: the pool's and a worker's fields as they say; worker_pool_end and _hand_over from any worker. */
#ifndef SERVER_JOB_WORKER_H
#define SERVER_JOB_WORKER_H

#include "server/job/worker_pool.h"

enum worker_phase { PHASE_STARTING, PHASE_READY, PHASE_NO_DEVICE, PHASE_NO_MODELS };

struct worker {
    struct worker_pool *pool;
    int device;
    pthread_t thread;
    struct engine *engine; /* its thread's; NULL while the device cannot be opened */
    struct device *tested; /* its thread's: the device as the self-test left it open; NULL once the engine has it */
    bool up, disabled;     /* its thread's: the device is open; it is never to be */
    struct job *current;   /* under the pool's lock, as are the next two */
    enum worker_phase phase;
    struct error reason; /* why it is not ready */
};

/* The workers of one device. The first opens and tests it, and starts the others when it is good. */
struct worker_set {
    int count; /* threads started; under the pool's lock */
    struct worker workers[];
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
    bool cancelled;                       /* every job is to end at once */
    struct worker_set *sets[DEVICES_MAX]; /* NULL: none */
};

/* The thread of the worker in the argument: tests the device if it is the first of its set, opens it, takes jobs until
 * the queue has ended. */
void *worker_main(void *worker);

/* --- of worker_pool.c ----------------------------------------------------------------------------------------------
 */

/* Starts the next workers of a set until it has that many. Under the pool's lock. */
enum error_code worker_pool_grow(struct worker_pool *pool, int device, int count, struct error *err) MUST_CHECK;

/* Starts the sets of those devices that jobs now run on which name none, where they have none. */
void worker_pool_ensure(struct worker_pool *pool);

/* Ends a job: its state, the counters, its owner, the reference. */
void worker_pool_end(struct worker_pool *pool, struct job *job, enum error_code code, const struct error *err);
/* Ends a job that was asked to stop. */
void worker_pool_end_stopped(struct worker_pool *pool, struct job *job);

/* How a job ends with this code: asked to stop by its client or by the end of the server, it has not failed. */
enum job_state worker_pool_outcome(const struct job *job, enum error_code code);

/* Gives a job whose device was lost to the next one and takes its reference. false: there is none for it. */
bool worker_pool_hand_over(struct worker_pool *pool, int device, struct job *job, const struct error *err);

#endif
