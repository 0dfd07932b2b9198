/* Keeps the jobs that last (asynchronous ones). One thread writes: it takes what requests ask for in groups, puts their
 * pictures into the spool (to payloads that servers share the porter has brought them before), commits the group to the
 * store, and only then tells them. It claims waiting jobs for the workers, a few at a time, so that a long queue costs
 * no memory; stores what comes out; and removes what has expired.
 * Thread-safety: every function may be called from any thread, except keeper_create and keeper_destroy. */
#ifndef SERVER_JOB_KEEPER_H
#define SERVER_JOB_KEEPER_H

#include "server/job/cluster.h"
#include "server/job/depot.h"
#include "server/job/porter.h"
#include "server/job/worker_pool.h"
#include "server/store/hook_rows.h"
#include "server/store/spool.h"
#include "server/store/store.h"

#define KEEPER_ATTEMPTS 3
#define KEEPER_KEY_MAX 256 /* bytes of an Idempotency-Key with its final 0 */

struct keeper;

struct keeper_settings {
    const char *path; /* the store's file; where servers share one, what a store of SQLite left there keeps its files */
    const char *store; /* of a shared one: its URI; else NULL */
    const char *password_file;
    const char *role;        /* both, front or worker; NULL: both. A front claims no jobs. Static */
    struct payload *payload; /* where servers share pictures; borrowed; NULL: in the spool */
    struct limits limits;    /* of every restoration */
    uint64_t queue;          /* jobs that may wait */
    int64_t result_seconds;  /* how long results are kept */
};

/* Opens the store, goes on with the jobs that it holds, checks the spool against it both ways, and starts the thread.
 * The others are borrowed. Errors: those of store_open. */
enum error_code keeper_create(struct keeper **out, const struct keeper_settings *settings, struct worker_pool *pool,
                              const struct model_store *models, struct spool *spool, struct error *err) MUST_CHECK;

/* Replaces the limits, for jobs that begin from now on. */
void keeper_set_limits(struct keeper *keeper, struct limits limits);

/* No job begins from now on; those at work go on. */
void keeper_drain(struct keeper *keeper);
/* The pool must have ended its jobs. Those that it cancelled wait in the store for the next start. */
void keeper_destroy(struct keeper **keeper);

/* --- what requests ask for -----------------------------------------------------------------------------------------
 */

enum keeper_wish { KEEPER_ACCEPT, KEEPER_CANCEL, KEEPER_CANCEL_BATCH, KEEPER_FETCH, KEEPER_HOOKS };

#define KEEPER_HOOK_MS 30000 /* a webhook's lease: store/hook_rows.h */

/* A request's wish. It belongs to the keeper from keeper_ask until done is called, on the keeper's thread, when it is
 * on the disk or has failed. */
struct keeper_ticket {
    enum keeper_wish wish;
    void (*done)(void *context);
    void *context;

    /* KEEPER_ACCEPT: the row (its options' text is the ticket's; output_bytes: about what its result will take), and
     * its picture, both taken over */
    struct store_job job;
    char key[KEEPER_KEY_MAX]; /* "": none */
    struct body body;
    uint32_t most; /* jobs of its client that may wait, with this one; 0: any number */
    char *hook;    /* of its webhook, for store/hook_rows.h; NULL: none; free() */
    char *told;    /* KEEPER_HOOKS; NULL: none; free() */

    /* KEEPER_CANCEL: the job whose id is in `job`: a waiting one is cancelled, a running one is asked to stop
     * (cancelled, if its result waits for room), one that has ended is forgotten. KEEPER_CANCEL_BATCH: all of the batch
     * and token in `job` that have not ended (token "": of any). */

    /* KEEPER_FETCH: the result of the job whose id and attempts are in `job`; fd: of it, the caller's */
    int fd;
    uint64_t size;

    /* KEEPER_HOOKS: the leases of this server's webhooks go on; those that are sent or given up are removed (hook: a
     * JSON array of their jobs; NULL: none), the first of others is noted as sent (told: the same), and up to `most` of
     * other servers that are gone become this one's: each is told to `taken`, which does not hold if it fails. */
    hook_rows_fn *taken;

    /* what became of it; accepted: the id is in `job` */
    struct error err;             /* ERROR_BUSY: too many wait; ERROR_FULL; ERROR_NOT_FOUND */
    bool over;                    /* too many of its client wait */
    enum store_inserted inserted; /* STORE_SAME: the key's job, whose id is in `job` now; STORE_OTHER: refused */
    enum store_state before;      /* KEEPER_CANCEL: its state until now */
    int count;                    /* KEEPER_CANCEL_BATCH: how many */

    uint8_t hash[32]; /* this and the following are the keeper's */
    bool promised;    /* the spool has promised room to its result */
    bool placed;      /* its picture is where it belongs */
    bool entered;     /* it counts among those that are on their way into a shared store */
    struct keeper *keeper;
    char unused[33]; /* its own id, where `job` has that of its key's job: its picture goes */
    int tries;       /* it was tried in vain so often */
    bool unsure;     /* a commit had no answer: its job may be in the store */
    struct porter_work work;
    struct keeper_ticket *next;
};
void keeper_ask(struct keeper *keeper, struct keeper_ticket *ticket);

/* Frees what the ticket owns. */
void keeper_ticket_clear(struct keeper_ticket *ticket);

/* --- what there is -------------------------------------------------------------------------------------------------
 */

/* For keeper_look.h, which says how the jobs are: in the store a claimed job runs, and which of these have begun on a
 * device, and when, is known here alone. free(). */
struct keeper_begun {
    char id[33];
    int64_t started;
};
/* *claimed: how many jobs this server has claimed, begun or not. */
enum error_code keeper_begun(struct keeper *keeper, struct keeper_begun **out, size_t *count, int *claimed,
                             struct error *err) MUST_CHECK;
/* When a claimed job began; 0: it waits. */
int64_t keeper_started(const struct job *job);
/* A claimed job, with a reference of the caller's own; NULL: there is none of this id. */
struct job *keeper_hold(struct keeper *keeper, const char *id);

/* Every job that this server has claimed and that has not ended; job NULL: it could not begin. The job is the
 * function's only during the call. */
typedef void keeper_claim_fn(void *context, const char *id, int attempts, struct job *job);
void keeper_claims(struct keeper *keeper, keeper_claim_fn *each, void *context);
/* Something may wait in the store. */
void keeper_look_again(struct keeper *keeper);
/* NULL: the store is this server's alone. */
struct cluster *keeper_cluster(struct keeper *keeper);
const struct depot *keeper_depot(const struct keeper *keeper);

/* Under which name it claims jobs. */
const char *keeper_owner(const struct keeper *keeper);

/* How many jobs are done whose results wait for room in the spool or on its disk. why: set if the job of this id (NULL:
 * none) is among them. */
int keeper_roomless(struct keeper *keeper, const char *id, struct error *why);

struct worker_pool *keeper_pool(struct keeper *keeper);
/* The store and the spool, to read from. The store's rows of jobs that have not ended are to be seen through
 * keeper_look.h. */
struct store *keeper_store(struct keeper *keeper);
struct spool *keeper_spool(struct keeper *keeper);

#endif
