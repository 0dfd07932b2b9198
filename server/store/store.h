/* The jobs that last: one row a job, in a file of SQLite (WAL, synchronous=FULL), or in a PostgreSQL that several
 * servers share. Both have the same tables and statements (store_sql.h). Times are milliseconds since 1970 (UTC); 0:
 * not yet.
 *
 * A running job belongs to whoever claimed it until its lease is over. `owner` and `attempts` together are the fence:
 * a worker that comes late finds that the row is no longer its own, and its result is dropped.
 *
 * Who goes first: normal jobs before low ones, then clients in turns. An inserted job gets a turn: one after its
 * client's last waiting job of the same priority, but never before the smallest turn that waits. Jobs are claimed by
 * (low, turn, number).
 *
 * Thread-safety: the functions that write, and begin and commit, on one thread at a time (the keeper's); those that
 * read, from any thread: they use a connection of their own. */
#ifndef SERVER_STORE_STORE_H
#define SERVER_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

/* These numbers stand in the file. */
enum store_state { STORE_QUEUED, STORE_RUNNING, STORE_DONE, STORE_FAILED, STORE_CANCELLED, STORE_STATES };

struct store_job {
    char id[33];
    char client[72]; /* whose turn it takes: "token NAME", else "address A" */
    char token[64];  /* name of the token that sent it; "" without tokens */
    char batch[64];  /* "": none */
    char name[256];  /* the client's file name: unsafe, never a path */
    bool low;        /* priority=low */
    enum store_state state;
    bool cancel;    /* it runs, and was asked to stop */
    char owner[33]; /* whose it is while it runs */
    int attempts;
    int64_t created, started, finished, expires, lease;
    double seconds; /* of device time, by its estimate */
    uint64_t input_bytes,
        output_bytes;             /* of its files in the spool; until it is done, the room promised to the second */
    double megapixels;            /* of its input */
    char progress[200];           /* JSON text of a job at work in a shared store, as its worker last told; "": none */
    char *options;                /* JSON texts, NULL where there is none */
    char *needs;                  /* a JSON array of models, see store_offer; it is not read back */
    char *report, *parts, *error; /* of an ended job; parts: where each picture lies in the output's file */
};

/* Frees the texts and zeroes it. */
void store_job_clear(struct store_job *job);

struct store;

/* Opens the store in this file, or makes it. ERROR_UNSUPPORTED: a newer version wrote it; ERROR_CORRUPT: it is damaged
 * or no store of ours; ERROR_IO. The text names the file; an existing file is never overwritten. */
enum error_code store_open(struct store **out, const char *path, struct error *err) MUST_CHECK;
void store_close(struct store **store);

/* Whether this setting (sqlite, or a URI) names a store that servers share, and whether this store is one. */
bool store_is_shared(const char *setting);
bool store_shared(const struct store *store);

/* Opens the store in this database (a URI of libpq), makes its tables if there are none, and brings older ones up to
 * date. password_file: "" or NULL: none. ERROR_UNSUPPORTED: a version more than one step newer made it, or this program
 * was built without libpq; ERROR_IO: it cannot be reached; ERROR_INVALID: the settings are wrong. Once it is open, lost
 * connections are made anew; until then every function fails at once with ERROR_IO. */
enum error_code store_open_shared(struct store **out, const char *where, const char *password_file,
                                  struct error *err) MUST_CHECK;

/* Looks at the tables of such a database, and changes nothing. *there: they are those of this program; false: there are
 * none yet. ERROR_UNSUPPORTED: they are older ones, or of a version more than one step newer; else as above. */
enum error_code store_look_shared(const char *where, const char *password_file, bool *there,
                                  struct error *err) MUST_CHECK;

/* What connecting to a shared store takes, for a sandbox: the TCP ports, and the files that its URI
 * names. */
typedef void store_port_fn(void *context, unsigned port);
typedef void store_file_fn(void *context, const char *path);
void store_reaches(const char *where, store_port_fn *port, store_file_fn *file, void *context);

/* Milliseconds since 1970: of a shared store by the database's clock, so that leases do not depend on each machine's.
 */
int64_t store_clock(const struct store *store);
/* Compares the clocks again; between transactions, on the writing thread. */
enum error_code store_sync_clock(struct store *store, struct error *err) MUST_CHECK;
/* Whether the last statement that wrote, or try to connect, reached the database. */
bool store_reachable(const struct store *store);

/* --- writing -------------------------------------------------------------------------------------------------------
 */

/* A transaction around any number of the following; what is committed is on the disk. A function that fails leaves
 * nothing behind, and the transaction goes on without it; but where the disk fails or is full all of it is undone, and
 * what follows fails too, the commit included. A commit that fails has undone everything. ERROR_FULL: the disk is
 * full. */
enum error_code store_begin(struct store *store, struct error *err) MUST_CHECK;
enum error_code store_commit(struct store *store, struct error *err) MUST_CHECK;
void store_rollback(struct store *store);

enum store_inserted { STORE_NEW, STORE_SAME, STORE_OTHER };

/* Queues a job (its turn and number are made here). key NULL: none, else the client's Idempotency-Key, which counts for
 * this client alone, as long as a job of it is kept. If there is one already: STORE_SAME when its hash is the same,
 * STORE_OTHER if not; existing gets its id, and nothing is inserted. */
enum error_code store_insert(struct store *store, const struct store_job *job, const char *key, const uint8_t hash[32],
                             enum store_inserted *what, char existing[33], struct error *err) MUST_CHECK;

typedef void store_id_fn(void *context, const char *id);

/* The models that this server has, as a JSON array of texts (names and SHA-256): a job goes only to a server that has
 * all texts of its `needs`. NULL: none, so that only jobs without needs come. Copied; on the writing thread. */
enum error_code store_offer(struct store *store, const char *offers, struct error *err) MUST_CHECK;

/* The next waiting job becomes this owner's: running, one attempt more, with a lease until then. *found false: there is
 * none. A job whose lease is over and that has had max_attempts fails here, with that reason (as job/record.h has it),
 * to expire then; one that was asked to stop is cancelled; the ids of these are told to `ended` (NULL: nobody). Others
 * of those are claimed again. A job whose row is damaged fails, too, and the log says so; it is in no list, and its id
 * is told as "". What was told does not hold where an error is returned. */
enum error_code store_claim(struct store *store, const char *owner, int64_t now, int64_t lease, int64_t expires,
                            int max_attempts, struct store_job *out, bool *found, store_id_fn *ended, void *context,
                            struct error *err) MUST_CHECK;

/* From now on store_claim takes no job whose lease is over, but those that were given up (lease 0); or does again. On
 * the writing thread. */
void store_leave_leases(struct store *store, bool leave);

/* The lease goes on. *held false: it is not this owner's any more. *cancel: it was asked to stop. */
enum error_code store_renew(struct store *store, const char *id, const char *owner, int attempts, int64_t lease,
                            bool *held, bool *cancel, struct error *err) MUST_CHECK;

/* The same, and what its worker tells of it. */
enum error_code store_beat(struct store *store, const char *id, const char *owner, int attempts, int64_t lease,
                           const char *progress, bool *held, bool *cancel, struct error *err) MUST_CHECK;

/* Tells the servers that share the store, once the transaction is committed: at most 7999 bytes. Others do nothing. */
enum error_code store_notify(struct store *store, const char *text, struct error *err) MUST_CHECK;

/* A job's state, on the writing side. *found false: there is none of this id. */
enum error_code store_state(struct store *store, const char *id, enum store_state *state, bool *found,
                            struct error *err) MUST_CHECK;

/* What a server says of itself (JSON), until it is gone, or was not seen for a minute: for store_workers. */
enum error_code store_worker(struct store *store, const char *owner, int64_t now, const char *about,
                             struct error *err) MUST_CHECK;
enum error_code store_worker_gone(struct store *store, const char *owner, int64_t now, struct error *err) MUST_CHECK;

/* It has ended (started 0: without having begun, so that this attempt does not count): state, started, finished,
 * expires, output_bytes, report, parts and error of `job` are stored. *held false: it was not this owner's any more,
 * and nothing was stored. */
enum error_code store_finish(struct store *store, const struct store_job *job, const char *owner, bool *held,
                             struct error *err) MUST_CHECK;

/* Back to its place in the queue; the attempt does not count. For a server that stops. One that was asked to stop is
 * cancelled by the next claim or start. */
enum error_code store_give_back(struct store *store, const char *id, const char *owner, int attempts,
                                struct error *err) MUST_CHECK;

/* For a server that has a job's result from before its start, as this owner's attempt: if the job waits, or is still
 * that attempt, it becomes the new owner's, without being computed: *attempts, then, names its attempt. *held false: it
 * does not. */
enum error_code store_adopt(struct store *store, const char *id, const char *owner, int attempt, const char *new_owner,
                            int64_t lease, int *attempts, bool *held, struct error *err) MUST_CHECK;

/* After a start, when no other server uses the store: every running job waits again in its old place, or fails with the
 * reason if it has had max_attempts; one that was asked to stop is cancelled. */
enum error_code store_recover(struct store *store, int64_t now, int64_t expires, int max_attempts,
                              struct error *err) MUST_CHECK;

/* A waiting job is cancelled now, a running one is marked. *before: its state until now; *found false: no such job. */
enum error_code store_cancel(struct store *store, const char *id, int64_t now, int64_t expires,
                             enum store_state *before, bool *found, struct error *err) MUST_CHECK;

/* The result of a job that is done is not there any more: the job has failed, with that reason (as job/record.h has
 * it), and expires when it would have. */
enum error_code store_lose(struct store *store, const char *id, const char *reason, struct error *err) MUST_CHECK;

/* Removes the row of a job that has ended. *found false: there is no such job, or it has not ended. */
enum error_code store_forget(struct store *store, const char *id, bool *found, struct error *err) MUST_CHECK;

/* Removes up to `most` rows of jobs that expired before `now`, and tells their ids; see store_gone. */
enum error_code store_expire(struct store *store, int64_t now, int most, store_id_fn *each, void *context,
                             struct error *err) MUST_CHECK;

/* --- reading -------------------------------------------------------------------------------------------------------
 */

/* One job with all its texts. *found false: there is none. The caller clears it. */
enum error_code store_get(struct store *store, const char *id, struct store_job *out, bool *found,
                          struct error *err) MUST_CHECK;

/* Whether there was a job of this id that has expired; known for a day. */
#define STORE_GONE_MS (INT64_C(24) * 3600 * 1000)
enum error_code store_gone(struct store *store, const char *id, bool *gone, struct error *err) MUST_CHECK;

struct store_filter {
    const char *token; /* jobs of this token alone; NULL: of all */
    const char *batch; /* NULL: any */
    unsigned states;   /* a bit (1 << state) each; 0: all */
    int64_t since;     /* created at this time or later */
    char after[33];    /* go on behind this job: the last of the page before; "": from the start */
    int limit;
    bool (*keep)(void *context, struct store_job *job); /* NULL: all; else these alone, as it leaves them */
    void *keep_context;
    int skips; /* at most so many rows are not kept */
};

/* Jobs, newest first, without report and parts. Each is the function's only during the call. ERROR_INVALID: `after` is
 * no job (any more). *more: there is another page. Damaged rows are left out. */
typedef void store_job_fn(void *context, const struct store_job *job);
enum error_code store_list(struct store *store, const struct store_filter *filter, store_job_fn *each, void *context,
                           bool *more, struct error *err) MUST_CHECK;

struct store_counts {
    uint64_t jobs[STORE_STATES];
    int64_t oldest_queued; /* created; 0: none waits */
    double seconds_queued; /* of device time */
};
/* Of all jobs (batch NULL), or of one batch and token (NULL: any). */
enum error_code store_count(struct store *store, const char *batch, const char *token, struct store_counts *out,
                            struct error *err) MUST_CHECK;
/* Jobs of this client that wait, without those whose ids are in this JSON array. */
enum error_code store_waiting(struct store *store, const char *client, const char *without, uint64_t *out,
                              struct error *err) MUST_CHECK;

/* Whether a job of this client has that Idempotency-Key. */
enum error_code store_has_key(struct store *store, const char *client, const char *key, bool *found,
                              struct error *err) MUST_CHECK;

/* How many jobs go before this waiting one, and their seconds of device time; `each` is told the last `most` of them,
 * the nearest one first. *found false: it does not wait. */
typedef void store_ahead_fn(void *context, const char *client, bool low, double seconds);
enum error_code store_position(struct store *store, const char *id, uint64_t *ahead, double *seconds, bool *found,
                               int most, store_ahead_fn *each, void *context, struct error *err) MUST_CHECK;

/* All jobs that wait. */
enum error_code store_queued(struct store *store, uint64_t *out, struct error *err) MUST_CHECK;

/* The servers that were seen since then. */
typedef void store_worker_fn(void *context, const char *owner, int64_t seen, const char *about);
enum error_code store_workers(struct store *store, int64_t since, store_worker_fn *each, void *context,
                              struct error *err) MUST_CHECK;

/* What waits, by the models that it needs (a JSON array; "": none are told): jobs, and megapixels of their pictures. */
typedef void store_needs_fn(void *context, const char *needs, uint64_t jobs, double megapixels);
enum error_code store_needs(struct store *store, store_needs_fn *each, void *context, struct error *err) MUST_CHECK;

/* The room promised to the results of all jobs that have not ended. */
enum error_code store_promised(struct store *store, uint64_t *out, struct error *err) MUST_CHECK;

/* The seconds of device time of the waiting jobs that go before one that this client would send now. */
enum error_code store_ahead_of_new(struct store *store, const char *client, bool low, double *seconds,
                                   struct error *err) MUST_CHECK;

/* The ids of all jobs that have files in the spool: with input (waiting or running) or output (done, with a picture).
 * id "": the row is damaged, and whose files it has is unknown. */
typedef void store_files_fn(void *context, const char *id, bool input, bool output);
enum error_code store_files(struct store *store, store_files_fn *each, void *context, struct error *err) MUST_CHECK;

/* What there is of these jobs, whose ids are a JSON array; open: waiting or running. None is told that is not there. */
typedef void store_known_fn(void *context, const char *id, bool open, int attempts);
enum error_code store_known(struct store *store, const char *ids, store_known_fn *each, void *context,
                            struct error *err) MUST_CHECK;

#endif
