/* One request for a restoration: its picture and options, its state, its stop flag and whom to tell when it ends.
 * Thread-safety: counted references; state, stop and the restoration's progress may be read from any thread, the rest
 * belongs to the thread that works on it until the job has ended, then to whoever holds a reference. */
#ifndef SERVER_JOB_JOB_H
#define SERVER_JOB_JOB_H

#include <pthread.h>
#include <semaphore.h>
#include <time.h>

#include "server/job/body.h"
#include "server/job/estimate.h"
#include "server/job/inflight.h"
#include "server/pipeline/pipeline.h"

/* A server's devices are numbered from 0 in the order of preference, and a set of them is a word of bits. */
#define DEVICES_MAX 32

enum job_state { JOB_QUEUED, JOB_RUNNING, JOB_DONE, JOB_FAILED, JOB_CANCELLED };

struct job;
struct events;

/* Called once, when the job has ended, on the thread that ended it. Must not block. */
typedef void job_end_fn(struct job *job, void *context);

struct job {
    char id[33];
    struct restoration *restoration;
    struct body body; /* the picture's file, until it is read; the restoration's input points into it meanwhile */
    _Atomic enum job_state state;
    struct error error;                          /* why it failed */
    int64_t created_ns, started_ns, finished_ns; /* CLOCK_MONOTONIC; started 0: it never ran; created: its request */
    atomic_int stop;                             /* enum error_code: why it must stop; OK: it need not */
    char etag[40];                               /* of the output, with its quotes; "" where there is none */
    bool accepted;   /* before it came to the queue, which therefore takes it even when full; few are at a time */
    char token[64];  /* the name of the token that sent it, "": none did; set before it is queued */
    char client[72]; /* whose turn it takes: "token NAME", else "address A"; this and the next are set before it is
                        queued */
    bool low;        /* it goes after all that are not */
    job_end_fn *end;
    void *context;

    uint32_t devices;           /* where it may run; this and the next two are set before it is queued */
    uint32_t tried;             /* where it ran until the device was lost */
    bool named;                 /* its client named the device: no other will do */
    struct estimate estimate;   /* set before it is queued */
    int device;                 /* where it ran last; negative: nowhere yet */
    _Atomic int64_t running_ns; /* when it began there */
    _Atomic int64_t begun_ms;   /* when it first began on a device, as job_clock tells it; 0: not yet */

    struct events *events; /* NULL: nobody is told; see events_follow */
    double progress;       /* last told; this and the next are the working thread's */
    int told_stage, told_tiles, told_faces;

    struct job *next;      /* of the queue it waits in; this and the next four are under its lock */
    uint64_t turn, number; /* its place: see queue.h */
    bool carried;          /* a carrier has it and will end it */
    bool ready;            /* its picture is read: it only waits for a device */

    struct inflight *inflight; /* what its picture was admitted to; NULL: not admitted yet */
    uint64_t working, result;  /* bytes that count there while it is at work, and those of its result */

    sem_t computed; /* posted by job_computed, for its carrier */
    enum error_code outcome;
    atomic_int references;
};

/* Takes over the restoration and the body, which become NULL and empty. id: at most 32 characters. On failure both stay
 * the caller's. */
enum error_code job_create(struct job **out, const char *id, struct restoration **restoration, struct body *body,
                           job_end_fn *end, void *context, struct error *err) MUST_CHECK;

/* One more reference. */
struct job *job_hold(struct job *job);

/* Drops a reference; the last one frees everything. NULL-safe; *job becomes NULL. */
void job_release(struct job **job);

/* Asks a running job to stop; the first reason (ERROR_CANCELLED, ERROR_TIMEOUT, ERROR_STALLED, ERROR_BUSY) is kept. */
void job_stop(struct job *job, enum error_code reason);

/* Tells the job's carrier how the work on the device ended, or why there was none; once for each job that is carried
 * and ready. err: the reason when code is not OK. */
void job_computed(struct job *job, enum error_code code, const struct error *err);

/* Makes the entity tag of a job that is done. */
void job_make_etag(struct job *job);

/* CLOCK_MONOTONIC now, ns. */
int64_t job_now(void);

/* CLOCK_REALTIME now: milliseconds since 1970, as jobs that last and events tell times. */
int64_t job_clock(void);

/* CLOCK_MONOTONIC that many milliseconds from now, for pthread_cond_timedwait. */
struct timespec job_deadline(int milliseconds);
/* Makes a condition whose waits end at such a time. */
void job_condition(pthread_cond_t *condition);

/* 32 random hexadecimal digits. */
void job_make_id(char out[33]);

#endif
