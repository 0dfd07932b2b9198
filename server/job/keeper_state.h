/* What the keeper is made of, for its own files alone: keeper.c (the thread, and what others call), keeper_cancel.c,
 * keeper_run.c (claimed jobs), keeper_undelivered.c (results that wait for an outage's end) and keeper_shared.c (what a
 * store that servers share adds).
 * Thread-safety: the keeper's thread alone, unless it says otherwise. */
#ifndef SERVER_JOB_KEEPER_STATE_H
#define SERVER_JOB_KEEPER_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "server/job/events.h"
#include "server/job/ids.h"
#include "server/job/keeper.h"

#define KEEPER_LEASE_MS 30000
#define KEEPER_AHEAD_MS                                                                                                \
    1000                   /* of work at hand; while a server has more, it claims no further jobs of a shared store    \
                            */
#define KEEPER_LOOK_MS 100 /* at least so long until it looks again whether it has less */
/* Where a shared store was not heard of for so long, by a server that starts, too, leases may be over because their
 * owners could not renew them: they get so long to do it before that server takes their jobs over. */
#define KEEPER_SILENT_MS CLUSTER_BEAT_MS
#define KEEPER_GRACE_MS (3 * CLUSTER_BEAT_MS)
#define KEEPER_SAID_MS 60000 /* a job that goes back because its picture cannot be had is told of so often at most */
#define KEEPER_RETRY_MS 1000 /* after a full disk, a full queue, or while the models are being loaded */

/* A claimed job, from its claim until its end is in the store. */
struct running {
    struct store_job row;
    struct job *job;  /* NULL: it could not begin */
    struct error err; /* why; or why its output is not in the spool yet: others read that one under the lock */
    bool decoded;     /* of a job that has failed: its picture could be read */
    bool ended;       /* set by the job's end, under the lock */
    /* Its picture on the way here, and its output on the way to the payloads: under the lock, but body and work are
     * whose turn it is. moved: why the last way failed */
    struct porter_work work;
    bool fetching, fetched, sending, sent;
    struct error moved;
    struct body body;
    bool spooled;      /* its output is in the spool, perhaps not in the payloads */
    atomic_bool kept;  /* its output is where it belongs */
    bool stored;       /* its end is in the transaction */
    bool lost;         /* the end came too late: the job is another server's */
    bool give_back;    /* the server stops, or the queue was full: it goes on later */
    uint64_t promised; /* bytes of the spool, to its output */
    bool dropped;      /* it was cancelled while its output waited for room */
    bool noted;        /* its record is in the spool, as that of a result that could not be delivered; or was tried */
    bool adopted;      /* it was computed before this server's start */
    int adopts;        /* the attempt that it becomes then */
    struct keeper *keeper;
    struct running *next;
};

struct keeper {
    struct keeper_settings settings;
    char owner[33];
    struct worker_pool *pool;
    const struct model_store *models;
    struct spool *spool;
    struct depot depot;
    struct store *store;
    bool shared, front;
    struct cluster *cluster; /* of a shared store */
    struct porter *porter;   /* of shared pictures */
    pthread_t thread;
    bool started;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct keeper_ticket *first, **last; /* wishes that came in */
    struct running *running;
    int running_count;
    bool woken;
    atomic_bool draining, stop;

    _Atomic uint64_t entering; /* new jobs whose pictures are on their way to the payloads, or that are not told yet */
    _Atomic uint64_t waiting;  /* jobs in the store that wait; the thread writes it */

    /* the thread's own */
    int64_t renew_at, expire_at, claim_at, output_at, count_at, again_at, ahead_at, rest_at, said_at;
    int64_t heard_ms, take_over_ms; /* of a shared store: when it answered, when leases may be taken over; job_now */
    _Atomic int64_t sweep_at;
    struct porter_work sweep;
    atomic_bool sweeping;
    atomic_int removals;         /* of shared files, that wait */
    struct keeper_ticket *again; /* wishes whose commit had no answer */
    struct running *undelivered; /* of before the start, whose jobs are to become this server's again */
    struct running *unsure; /* claims whose commit had none: perhaps they are this server's, and nobody begins them */
};

/* One group: everything that there is to write now, in one transaction, and what is to be done after it. Where memory
 * is out for an id, its files stay until the next start, and what runs goes on; asking again cancels it. */
struct keeper_group {
    struct keeper_ticket *tickets;
    struct running *claimed;
    struct ids stop, drop; /* jobs at work to be stopped; jobs whose files go */
    struct ids over;       /* jobs that ended without having been at work here */
    int damaged;           /* jobs that failed because their rows are damaged */
    bool moving;           /* jobs are on their way: waiting.h */
    bool unsure;           /* the commit had no answer */
    size_t expired;
    uint64_t cancelled; /* of those that waited */
};

/* Under the lock: the thread looks at once. */
void keeper_wake(struct keeper *keeper);
/* For those who listen, once it is committed. */
void keeper_publish(struct keeper *keeper, const struct store_job *row, const struct job *job, enum event_kind kind);

/* --- keeper_cancel.c -----------------------------------------------------------------------------------------------
 */

/* In the transaction: the wish KEEPER_CANCEL for this job. */
void keeper_cancel(struct keeper *keeper, struct keeper_group *group, struct keeper_ticket *ticket, const char *id);
void keeper_cancel_batch(struct keeper *keeper, struct keeper_group *group, struct keeper_ticket *ticket);
/* After the commit: tells a job at work to stop. */
void keeper_stop_running(struct keeper *keeper, const char *id);
/* After the commit: counts and tells of jobs that will not begin. */
void keeper_publish_over(struct keeper *keeper, const struct ids *over);

/* --- keeper_run.c --------------------------------------------------------------------------------------------------
 */

/* Under the lock: whether it is done, and its output waits for room. */
bool running_waits(const struct running *running);
/* Takes the first one off the list, and frees it. */
void running_free(struct running **running);
/* How many more jobs the workers can take now. */
int keeper_room(struct keeper *keeper);
/* In the transaction: claims what fits; group->claimed gets them in their order. */
enum error_code keeper_claim(struct keeper *keeper, struct keeper_group *group, int64_t now, int most,
                             struct error *err) MUST_CHECK;
/* Starts what was claimed; where servers share pictures, those of these jobs come first. */
void keeper_start(struct keeper *keeper, struct keeper_group *group, int64_t now);
/* Starts claimed jobs whose pictures have come. */
void keeper_start_fetched(struct keeper *keeper, int64_t now);
/* Puts the outputs of ended jobs where they belong, if they are not there or on their way yet. */
void keeper_keep_outputs(struct keeper *keeper, int64_t now);
/* In the transaction: the ends of jobs. */
enum error_code keeper_finish(struct keeper *keeper, struct error *err) MUST_CHECK;
/* After the commit: the ended ones are forgotten here. ended: whose pictures go; late: whose ends came too late. */
void keeper_drop_finished(struct keeper *keeper, struct ids *ended, struct ids *late);

/* --- keeper_undelivered.c ------------------------------------------------------------------------------------------
 */

/* This result could not be delivered: notes whose attempt it is, for the next start. */
void keeper_note_undelivered(struct keeper *keeper, struct running *running);
/* The same for every result that is on its way while the server stops, before that is waited for: whoever does not wait
 * so long for the server kills it. */
void keeper_note_all(struct keeper *keeper);
/* Finds what earlier starts have noted. */
void keeper_gather_undelivered(struct keeper *keeper);
/* In the transaction: those whose jobs wait, or are still that attempt's, become this server's. */
enum error_code keeper_adopt(struct keeper *keeper, int64_t now, struct error *err) MUST_CHECK;
/* After the commit: they are delivered as others; the rest is removed. */
void keeper_adopted(struct keeper *keeper);

/* --- keeper_shared.c -----------------------------------------------------------------------------------------------
 */

/* Opens the shared store, and joins the other servers. */
enum error_code keeper_join(struct keeper *keeper, const struct keeper_settings *settings,
                            struct error *err) MUST_CHECK;
/* Others add to a shared store and take from it, too: counts what waits, once a second, and compares the clocks. */
void keeper_count(struct keeper *keeper, int64_t now);
/* In the transaction: jobs that nobody would begin until their leases are over, if their claims have happened. */
enum error_code keeper_give_back_unsure(struct keeper *keeper, struct error *err) MUST_CHECK;
/* After a commit that failed: what it claimed does not begin. */
void keeper_drop_claims(struct keeper *keeper, struct keeper_group *group);
/* From time to time: removes payloads that no job has any more, and leaves connections to others. */
void keeper_sweep(struct keeper *keeper, int64_t now);
/* Removes the files of a job, later where servers share them: they may be slow. output: its results of all attempts,
 * too. keeper_removes: whether so many wait for that that no more should come. */
void keeper_remove(struct keeper *keeper, const char *id, bool output);
bool keeper_removes(struct keeper *keeper);
/* After a transaction that failed: whether the ticket is kept, to be tried again. */
bool keeper_again(struct keeper *keeper, struct keeper_ticket *ticket, const struct error *err);
/* Those whose time has come, and new ones. */
struct keeper_ticket *keeper_due(struct keeper *keeper, struct keeper_ticket *tickets, bool stop);

#endif
