/* The pool's threads. A worker has a handle of one device of its own, and computes one job after the other. Carriers,
 * several for each worker and the same for all devices, take a job each from the queue to its end: they read its
 * picture, wait until a worker has computed it, and write the result, so that no device waits for files. For
 * worker_pool.c alone, which owns what is declared here.
 * Thread-safety: the pool's and a thread's fields as they say; the functions from any of them. */
#ifndef SERVER_JOB_WORKER_H
#define SERVER_JOB_WORKER_H

#include "server/job/worker_pool.h"

enum worker_phase { PHASE_STARTING, PHASE_READY, PHASE_NO_DEVICE, PHASE_NO_MODELS };

/* How far carriers read ahead of a worker, and how many there are for each: those, one whose job it computes, and those
 * that write results. They bound how many pictures are in memory. */
#define CARRIERS_AHEAD 2
#define CARRIERS 6

struct carrier {
    struct worker_pool *pool;
    pthread_t thread;
    struct job *current; /* under the pool's lock */
};

struct worker {
    struct worker_pool *pool;
    int device;
    pthread_t thread;
    struct engine *engine;   /* its thread's; NULL while the device cannot be opened */
    struct device *tested;   /* its thread's: the device as the self-test left it open; NULL once the engine has it */
    struct job *next;        /* its thread's: taken while its device is at work on another; NULL: none */
    bool up, disabled;       /* its thread's: the device is open; it is never to be */
    bool turn;               /* its thread's: it holds its set's turn */
    enum worker_phase phase; /* under the pool's lock, as is the next */
    struct error reason;     /* why it is not ready */
    struct carrier carriers[CARRIERS]; /* those that came with it */
    int carrier_count;
};

/* The workers of one device. The first opens and tests it, and starts the others when it is good. */
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

/* The thread of the carrier in the argument: carries jobs until the queue has ended. */
void *carrier_main(void *carrier);

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

/* Gives a job whose device was lost back to the queue for the next one, with its reference. false: there is none. */
bool worker_pool_hand_over(struct worker_pool *pool, int device, struct job *job, const struct error *err);

#endif
