#include "server/store/query.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"

/* --- errors --------------------------------------------------------------------------------------------------------
 */

static bool store_no_room(int rc, int number)
{
    return rc == SQLITE_FULL || (rc == SQLITE_IOERR && (number == ENOSPC || number == EDQUOT || number == EFBIG));
}

enum error_code store_failed(const struct side *side, int rc, struct error *err)
{
    const char *path = side->store->path;
    const int number = side->db && sqlite3_system_errno(side->db) ? sqlite3_system_errno(side->db) : errno;
    enum error_code code;
    switch (rc & 0xff) {
    case SQLITE_FULL:
    case SQLITE_IOERR:
        code = store_no_room(rc & 0xff, number)
                   ? error_set(err, ERROR_FULL, "no room on the disk for the store of jobs")
                   : error_set(err, ERROR_IO, "the store of jobs: read or write error");
        error_local(err, " (%s%s%s)", path, number ? ": " : "", number ? strerror(number) : "");
        break;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_FORMAT:
    case SQLITE_MISMATCH:
    case SQLITE_ERROR: /* our statements are right, so the tables are not */
        code = error_set(err, ERROR_CORRUPT, "the store of jobs is damaged");
        error_local(err, ": %s", path);
        break;
    case SQLITE_NOMEM:
        code =
            error_set(err, ERROR_NO_MEMORY, "no memory for the store of jobs, or it is damaged and asks for too much");
        error_local(err, ": %s", path);
        break;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        code = error_set(err, ERROR_IO, "another program has locked the store of jobs");
        error_local(err, ": %s", path);
        break;
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
    case SQLITE_NOLFS:
    case SQLITE_PROTOCOL:
        code = error_set(err, ERROR_IO, "the store of jobs cannot be opened for writing");
        error_local(err, ": %s%s%s", path, number ? ": " : "", number ? strerror(number) : "");
        break;
    default:
        code = error_set(err, ERROR_INTERNAL, "the store of jobs: %s", sqlite3_errstr(rc));
    }
    error_detail(err, "sqlite=%d errno=%d text=\"%s\"", rc, number, side->db ? sqlite3_errmsg(side->db) : "");
    if (side == &side->store->write && side->store->begun && sqlite3_get_autocommit(side->db))
        side->store->undone = code;
    return code;
}

enum error_code store_damaged(const struct store *store, struct error *err)
{
    error_set(err, ERROR_CORRUPT, "the store of jobs is damaged");
    error_local(err, ": %s", store->path);
    return ERROR_CORRUPT;
}

/* --- what all share ------------------------------------------------------------------------------------------------
 */

/* One without parameters and rows. */
static enum error_code store_do(struct store *store, enum store_statement which, struct error *err)
{
    struct query query = query_start(&store->write, which, err, "");
    return query_end(&query);
}

/* The end of a part that began with STORE_SAVE: all of it or nothing. */
static enum error_code store_end_part(struct store *store, enum error_code code, struct error *err)
{
    struct error ignored = ERROR_INIT;
    if (!code)
        code = store_do(store, STORE_RELEASE, err);
    if (code && !sqlite3_get_autocommit(store->write.db) &&
        (store_do(store, STORE_UNDO, &ignored) || store_do(store, STORE_RELEASE, &ignored))) {
        sqlite3_exec(store->write.db, "ROLLBACK", NULL, NULL, NULL);
        if (store->begun)
            store->undone = code;
    }
    return code;
}

void store_job_clear(struct store_job *job)
{
    free(job->options);
    free(job->report);
    free(job->parts);
    free(job->error);
    *job = (struct store_job){0};
}

/* Jobs that have come to this state (or have left it, by negative). */
static void store_moved(struct store *store, int64_t state, int64_t by)
{
    if (state <= STORE_RUNNING || state >= STORE_STATES)
        return;
    if (store->begun)
        store->moved[state] += by;
    else
        atomic_fetch_add(&store->ended[state], by);
}

/* The transaction is over. */
static void store_settle(struct store *store, bool committed)
{
    for (int state = 0; state < STORE_STATES; state++) {
        if (committed)
            atomic_fetch_add(&store->ended[state], store->moved[state]);
        store->moved[state] = 0;
    }
}

/* --- writing -------------------------------------------------------------------------------------------------------
 */

enum error_code store_begin(struct store *store, struct error *err)
{
    enum error_code code = store_do(store, STORE_BEGIN, err);
    store->begun = !code;
    return code;
}

enum error_code store_commit(struct store *store, struct error *err)
{
    enum error_code code = store_do(store, STORE_COMMIT, err);
    store_settle(store, !code);
    if (code)
        store_rollback(store);
    store->begun = false;
    return code;
}

void store_rollback(struct store *store)
{
    struct error ignored = ERROR_INIT;
    store->undone = OK;
    store->begun = false;
    store_settle(store, false);
    if (!sqlite3_get_autocommit(store->write.db))
        (void)!store_do(store, STORE_ROLLBACK, &ignored);
}

/* What the estimate could not say is stored as 0. */
static double store_amount(double value)
{
    return isfinite(value) && value > 0 ? value : 0;
}

enum error_code store_insert(struct store *store, const struct store_job *job, const char *key, const uint8_t hash[32],
                             enum store_inserted *what, char existing[33], struct error *err)
{
    *what = STORE_NEW;
    *existing = 0;
    if (!query_id_sane(job->id))
        return error_set(err, ERROR_INTERNAL, "a job's id must be letters and digits");
    const int64_t low = job->low, bytes = job->input_bytes < INT64_MAX ? (int64_t)job->input_bytes : INT64_MAX;
    const int64_t promised = job->output_bytes < INT64_MAX ? (int64_t)job->output_bytes : INT64_MAX;
    struct query query =
        query_start(&store->write, STORE_INSERT, err, "tttttiididttbi", job->id, job->client, job->token, job->batch,
                    job->name, low, job->created, store_amount(job->seconds), bytes, store_amount(job->megapixels),
                    job->options, key, key ? hash : NULL, promised);
    enum error_code code = query_end(&query);
    if (code || sqlite3_changes(store->write.db))
        return code;
    query = query_start(&store->write, STORE_SAME_KEY, err, "tt", job->client, key);
    if (!query_row(&query)) {
        query_end(&query);
        return query.code ? query.code : store_damaged(store, err); /* the index has it and the table has not */
    }
    const void *old = sqlite3_column_blob(query.s, 1);
    const bool same = sqlite3_column_bytes(query.s, 1) == 32 && memcmp(old, hash, 32) == 0;
    *what = same ? STORE_SAME : STORE_OTHER;
    const bool sane = query_id(&query, 0, existing);
    const enum error_code ended = query_end(&query);
    return ended || sane ? ended : store_damaged(store, err);
}

/* What a part of the transaction changes of store->ended. */
struct store_change {
    int64_t moved[STORE_STATES];
};

static void store_add_change(struct store *store, const struct store_change *change)
{
    for (int state = 0; state < STORE_STATES; state++)
        store_moved(store, state, change->moved[state]);
}

static void store_note(struct store_change *change, int64_t state, int64_t by)
{
    if (state >= 0 && state < STORE_STATES)
        change->moved[state] += by;
}

/* Ends the jobs at work whose lease is over by then and that are not to be tried again, and tells their ids (each NULL:
 * nobody). */
static enum error_code store_end_over(struct store *store, int64_t over, int64_t now, int64_t expires, int max_attempts,
                                      struct store_change *change, store_id_fn *each, void *context, struct error *err)
{
    char reason[256], id[33];
    snprintf(reason, sizeof reason,
             "{\"code\": \"%s\", \"text\": \"the server ended %d times while it worked on this picture, and does not "
             "try again\", \"decoded\": false}",
             error_code_name(ERROR_INTERNAL), max_attempts);
    struct query query =
        query_start(&store->write, STORE_END_OVER, err, "iiiti", now, expires, over, reason, (int64_t)max_attempts);
    while (query_row(&query)) { /* the first row comes when all are changed */
        store_note(change, sqlite3_column_int64(query.s, 1), 1);
        if (query_id(&query, 0, id) && each)
            each(context, id);
    }
    return query_end(&query);
}

/* A row that cannot be what it was fails where it is, so that the others go on. */
static enum error_code store_set_aside(struct store *store, int64_t number, int64_t now, struct error *err)
{
    char reason[128];
    snprintf(reason, sizeof reason,
             "{\"code\": \"%s\", \"text\": \"the row of this job is damaged\", \"decoded\": false}",
             error_code_name(ERROR_CORRUPT));
    struct query query = query_start(&store->write, STORE_SET_ASIDE, err, "iti", number, reason, now);
    const enum error_code code = query_end(&query);
    if (!code)
        log_event(LOG_ERROR, "store", "row=%lld text=\"a job's row is damaged; it has failed, and the others go on\"",
                  (long long)number);
    return code;
}

/* The first waiting job; damaged ones before it are set aside, so many at most: where an index is damaged, too, the
 * same one would come again and again. */
static enum error_code store_claim_first(struct store *store, const char *owner, int64_t now, int64_t lease,
                                         struct store_job *out, bool *found, struct store_change *change,
                                         store_id_fn *each, void *context, struct error *err)
{
    for (int i = 0; i < 100; i++) {
        struct query query = query_start(&store->write, STORE_CLAIM, err, "tii", owner, now, lease);
        *found = query_row(&query);
        const bool sane = !*found || query_job(&query, out);
        const int64_t number = *found ? sqlite3_column_int64(query.s, 21) : 0;
        enum error_code code = query_end(&query);
        if (!code && !sane)
            code = store_set_aside(store, number, now, err);
        if (code || sane)
            return code;
        store_note(change, STORE_FAILED, 1);
        if (each)
            each(context, "");
        store_job_clear(out);
    }
    return store_damaged(store, err);
}

enum error_code store_claim(struct store *store, const char *owner, int64_t now, int64_t lease, int64_t expires,
                            int max_attempts, struct store_job *out, bool *found, store_id_fn *ended, void *context,
                            struct error *err)
{
    *out = (struct store_job){0};
    *found = false;
    enum error_code code = store_do(store, STORE_SAVE, err);
    if (code)
        return code;
    struct store_change change = {0};
    code = store_end_over(store, now, now, expires, max_attempts, &change, ended, context, err);
    if (!code)
        code = store_claim_first(store, owner, now, lease, out, found, &change, ended, context, err);
    code = store_end_part(store, code, err);
    if (!code)
        store_add_change(store, &change);
    if (code) {
        store_job_clear(out);
        *found = false;
    }
    return code;
}

enum error_code store_renew(struct store *store, const char *id, const char *owner, int attempts, int64_t lease,
                            bool *held, bool *cancel, struct error *err)
{
    struct query query = query_start(&store->write, STORE_RENEW, err, "ttii", id, owner, (int64_t)attempts, lease);
    *held = query_row(&query);
    *cancel = *held && sqlite3_column_int(query.s, 0) != 0;
    return query_end(&query);
}

enum error_code store_finish(struct store *store, const struct store_job *job, const char *owner, bool *held,
                             struct error *err)
{
    *held = false;
    if (job->state != STORE_DONE && job->state != STORE_FAILED && job->state != STORE_CANCELLED)
        return error_set(err, ERROR_INTERNAL, "a job that has ended must be done, failed or cancelled");
    const int64_t bytes = job->output_bytes < INT64_MAX ? (int64_t)job->output_bytes : INT64_MAX;
    enum error_code code = store_do(store, STORE_SAVE, err);
    if (code)
        return code;
    struct query query =
        query_start(&store->write, STORE_FINISH, err, "ttiiiiiti", job->id, owner, (int64_t)job->attempts,
                    (int64_t)job->state, job->finished, job->expires, bytes, job->error, job->started);
    const bool row = query_row(&query);
    const int64_t number = row ? sqlite3_column_int64(query.s, 0) : 0;
    code = query_end(&query);
    if (!code && row && (job->report || job->parts)) {
        query = query_start(&store->write, STORE_RESULT, err, "itt", number, job->report, job->parts);
        code = query_end(&query);
    }
    code = store_end_part(store, code, err);
    *held = row && !code;
    store_moved(store, job->state, *held);
    return code;
}

enum error_code store_give_back(struct store *store, const char *id, const char *owner, int attempts, struct error *err)
{
    struct query query = query_start(&store->write, STORE_GIVE_BACK, err, "tti", id, owner, (int64_t)attempts);
    return query_end(&query);
}

enum error_code store_recover(struct store *store, int64_t now, int64_t expires, int max_attempts, struct error *err)
{
    enum error_code code = store_do(store, STORE_SAVE, err);
    if (code)
        return code;
    struct store_change change = {0};
    code = store_end_over(store, INT64_MAX, now, expires, max_attempts, &change, NULL, NULL, err);
    if (!code)
        code = store_do(store, STORE_WAIT_AGAIN, err);
    code = store_end_part(store, code, err);
    if (!code)
        store_add_change(store, &change);
    return code;
}

enum error_code store_cancel(struct store *store, const char *id, int64_t now, int64_t expires,
                             enum store_state *before, bool *found, struct error *err)
{
    struct query query = query_start(&store->write, STORE_STATE, err, "t", id);
    *before = STORE_QUEUED;
    *found = query_row(&query);
    const int64_t state = *found ? sqlite3_column_int64(query.s, 0) : STORE_CANCELLED;
    enum error_code code = query_end(&query);
    if (!code && (state < 0 || state >= STORE_STATES))
        code = store_damaged(store, err);
    if (code)
        return code;
    if (*found)
        *before = (enum store_state)state;
    if (state > STORE_RUNNING)
        return OK;
    query = query_start(&store->write, state == STORE_QUEUED ? STORE_CANCEL_WAITING : STORE_CANCEL_RUNNING, err,
                        state == STORE_QUEUED ? "tii" : "t", id, now, expires);
    code = query_end(&query);
    if (!code && state == STORE_QUEUED)
        store_moved(store, STORE_CANCELLED, sqlite3_changes(store->write.db));
    return code;
}

enum error_code store_lose(struct store *store, const char *id, const char *reason, struct error *err)
{
    enum error_code code = store_do(store, STORE_SAVE, err);
    if (code)
        return code;
    struct query query = query_start(&store->write, STORE_FORGET_RESULT, err, "t", id);
    if (!(code = query_end(&query))) {
        query = query_start(&store->write, STORE_LOSE, err, "tt", id, reason);
        code = query_end(&query);
    }
    const int changed = code ? 0 : sqlite3_changes(store->write.db);
    code = store_end_part(store, code, err);
    store_moved(store, STORE_DONE, code ? 0 : -changed);
    store_moved(store, STORE_FAILED, code ? 0 : changed);
    return code;
}

enum error_code store_forget(struct store *store, const char *id, bool *found, struct error *err)
{
    *found = false;
    enum error_code code = store_do(store, STORE_SAVE, err);
    if (code)
        return code;
    struct query query = query_start(&store->write, STORE_FORGET_RESULT, err, "t", id);
    bool row = false;
    int64_t was = STORE_QUEUED;
    code = query_end(&query);
    if (!code) {
        query = query_start(&store->write, STORE_FORGET, err, "t", id);
        row = query_row(&query);
        was = row ? sqlite3_column_int64(query.s, 0) : STORE_QUEUED;
        code = query_end(&query);
    }
    code = store_end_part(store, code, err);
    *found = row && !code;
    if (*found)
        store_moved(store, was, -1);
    return code;
}

enum error_code store_expire(struct store *store, int64_t now, int most, store_id_fn *each, void *context,
                             struct error *err)
{
    enum error_code code = store_do(store, STORE_SAVE, err);
    if (code)
        return code;
    struct store_change change = {0};
    struct query query = query_start(&store->write, STORE_EXPIRE_RESULTS, err, "ii", now, (int64_t)most);
    code = query_end(&query);
    if (!code) {
        query = query_start(&store->write, STORE_EXPIRE_IDS, err, "iii", now, (int64_t)most, now + STORE_GONE_MS);
        code = query_end(&query);
    }
    if (!code) {
        query = query_start(&store->write, STORE_FORGET_GONE, err, "ii", now, (int64_t)most);
        code = query_end(&query);
    }
    if (!code) { /* its first row comes when all are gone, so whoever is told is told the truth */
        query = query_start(&store->write, STORE_EXPIRE, err, "ii", now, (int64_t)most);
        while (query_row(&query)) {
            const char *text = query_text(&query, 0);
            store_note(&change, sqlite3_column_int64(query.s, 1), -1);
            if (query_id_sane(text)) /* else no file has this name, and the damaged row is gone */
                each(context, text);
        }
        code = query_end(&query);
    }
    code = store_end_part(store, code, err);
    if (!code)
        store_add_change(store, &change);
    return code;
}

/* --- reading -------------------------------------------------------------------------------------------------------
 */

enum error_code store_get(struct store *store, const char *id, struct store_job *out, bool *found, struct error *err)
{
    *out = (struct store_job){0};
    pthread_mutex_lock(&store->lock);
    struct query query = query_start(&store->read, STORE_GET, err, "t", id);
    *found = query_row(&query);
    const bool sane = !*found || query_job(&query, out);
    if (*found && sane) {
        out->report = query_copy(&query, 21);
        out->parts = query_copy(&query, 22);
    }
    enum error_code code = query_end(&query);
    if (!code && !sane)
        code = store_damaged(store, err);
    pthread_mutex_unlock(&store->lock);
    if (code) {
        store_job_clear(out);
        *found = false;
    }
    return code;
}

enum error_code store_gone(struct store *store, const char *id, bool *gone, struct error *err)
{
    pthread_mutex_lock(&store->lock);
    struct query query = query_start(&store->read, STORE_GONE, err, "t", id);
    *gone = query_row(&query);
    const enum error_code code = query_end(&query);
    pthread_mutex_unlock(&store->lock);
    return code;
}

/* Which of four statements serves these. */
static enum store_statement store_of(enum store_statement first, const char *token, const char *batch)
{
    return (enum store_statement)((int)first + (token ? 1 : 0) + (batch ? 2 : 0));
}

/* A job's place in the lists of a token (NULL: of all). */
static enum error_code store_after(struct store *store, const char *id, const char *token, int64_t *created,
                                   int64_t *number, struct error *err)
{
    struct query query = query_start(&store->read, STORE_AFTER, err, "tt", id, token);
    const bool found = query_row(&query);
    if (found) {
        *created = sqlite3_column_int64(query.s, 0);
        *number = sqlite3_column_int64(query.s, 1);
    }
    const enum error_code code = query_end(&query);
    return code || found ? code : error_set(err, ERROR_INVALID, "there is no job %s (any more) to go on behind", id);
}

enum error_code store_list(struct store *store, const struct store_filter *filter, store_job_fn *each, void *context,
                           bool *more, struct error *err)
{
    int64_t created = INT64_MAX, number = INT64_MAX;
    const int64_t states = filter->states ? filter->states : (1 << STORE_STATES) - 1;
    *more = false;
    pthread_mutex_lock(&store->lock);
    enum error_code code =
        *filter->after ? store_after(store, filter->after, filter->token, &created, &number, err) : OK;
    if (!code) {
        struct query query =
            query_start(&store->read, store_of(STORE_LIST, filter->token, filter->batch), err, "ttiiiii", filter->token,
                        filter->batch, states, filter->since, created, number,
                        (int64_t)filter->limit + filter->skips + 1); /* without a limit it would sort all */
        for (int i = 0; !*more && query_row(&query);) {
            struct store_job job;
            const bool sane = query_job(&query, &job) && !query.code; /* a damaged row is nobody's */
            const bool kept = !sane || !filter->keep || filter->keep(filter->keep_context, &job);
            *more = kept && i >= filter->limit;
            if (sane && kept && !*more)
                each(context, &job);
            i += kept;
            store_job_clear(&job);
        }
        code = query_end(&query);
    }
    pthread_mutex_unlock(&store->lock);
    return code;
}

/* Adds what a statement of states and numbers counts. */
static enum error_code store_add_counts(struct query *query, struct store_counts *out)
{
    while (query_row(query)) {
        const int64_t state = sqlite3_column_int64(query->s, 0);
        if (state >= 0 && state < STORE_STATES)
            out->jobs[state] = query_size(query, 1);
    }
    return query_end(query);
}

enum error_code store_count_ended(struct store *store, struct error *err)
{
    struct store_counts counts = {0};
    struct query query = query_start(&store->read, STORE_COUNT, err, "tt", NULL, NULL);
    const enum error_code code = store_add_counts(&query, &counts);
    for (int state = STORE_RUNNING + 1; state < STORE_STATES && !code; state++)
        atomic_store(&store->ended[state], (int64_t)counts.jobs[state]);
    return code;
}

enum error_code store_count(struct store *store, const char *batch, const char *token, struct store_counts *out,
                            struct error *err)
{
    *out = (struct store_counts){0};
    pthread_mutex_lock(&store->lock);
    const bool all = !token && !batch;
    const enum store_statement which = all ? STORE_COUNT_AT_HAND : store_of(STORE_COUNT, token, batch);
    struct query query = query_start(&store->read, which, err, "tt", token, batch);
    enum error_code code = store_add_counts(&query, out);
    for (int state = STORE_RUNNING + 1; state < STORE_STATES && all; state++) {
        const int64_t ended = atomic_load(&store->ended[state]);
        out->jobs[state] = ended > 0 ? (uint64_t)ended : 0;
    }
    if (!code) {
        query = query_start(&store->read, store_of(STORE_COUNT_WAITING, token, batch), err, "tt", token, batch);
        if (query_row(&query)) {
            out->oldest_queued = sqlite3_column_int64(query.s, 0);
            out->seconds_queued = query_double(&query, 1);
        }
        code = query_end(&query);
    }
    pthread_mutex_unlock(&store->lock);
    return code;
}

enum error_code store_waiting(struct store *store, const char *client, const char *without, uint64_t *out,
                              struct error *err)
{
    *out = 0;
    pthread_mutex_lock(&store->lock);
    struct query query = query_start(&store->read, STORE_WAITING, err, "tt", client, without);
    if (query_row(&query))
        *out = query_size(&query, 0);
    const enum error_code code = query_end(&query);
    pthread_mutex_unlock(&store->lock);
    return code;
}

enum error_code store_ahead_of_new(struct store *store, const char *client, bool low, double *seconds,
                                   struct error *err)
{
    *seconds = 0;
    pthread_mutex_lock(&store->lock);
    struct query query = query_start(&store->read, STORE_AHEAD_OF_NEW, err, "ti", client, (int64_t)low);
    if (query_row(&query))
        *seconds = query_double(&query, 0);
    const enum error_code code = query_end(&query);
    pthread_mutex_unlock(&store->lock);
    return code;
}

enum error_code store_promised(struct store *store, uint64_t *out, struct error *err)
{
    *out = 0;
    pthread_mutex_lock(&store->lock);
    struct query query = query_start(&store->read, STORE_PROMISED, err, "");
    if (query_row(&query))
        *out = query_size(&query, 0);
    const enum error_code code = query_end(&query);
    pthread_mutex_unlock(&store->lock);
    return code;
}

enum error_code store_has_key(struct store *store, const char *client, const char *key, bool *found, struct error *err)
{
    pthread_mutex_lock(&store->lock);
    struct query query = query_start(&store->read, STORE_SAME_KEY, err, "tt", client, key);
    *found = query_row(&query);
    const enum error_code code = query_end(&query);
    pthread_mutex_unlock(&store->lock);
    return code;
}

enum error_code store_position(struct store *store, const char *id, uint64_t *ahead, double *seconds, bool *found,
                               int most, store_ahead_fn *each, void *context, struct error *err)
{
    int64_t low = 0, turn = 0, number = 0;
    *ahead = 0;
    *seconds = 0;
    pthread_mutex_lock(&store->lock);
    struct query query = query_start(&store->read, STORE_PLACE, err, "t", id);
    *found = query_row(&query);
    if (*found) {
        low = sqlite3_column_int64(query.s, 0);
        turn = sqlite3_column_int64(query.s, 1);
        number = sqlite3_column_int64(query.s, 2);
    }
    enum error_code code = query_end(&query);
    if (!code && *found) {
        query = query_start(&store->read, STORE_AHEAD, err, "iii", low, turn, number);
        if (query_row(&query)) {
            *ahead = query_size(&query, 0);
            *seconds = query_double(&query, 1);
        }
        code = query_end(&query);
    }
    if (!code && *found && most > 0) {
        query = query_start(&store->read, STORE_NEAREST, err, "iiii", low, turn, number, (int64_t)most);
        while (query_row(&query))
            each(context, query_text(&query, 0), sqlite3_column_int(query.s, 1) != 0, query_double(&query, 2));
        code = query_end(&query);
    }
    pthread_mutex_unlock(&store->lock);
    return code;
}

enum error_code store_files(struct store *store, store_files_fn *each, void *context, struct error *err)
{
    char id[33];
    pthread_mutex_lock(&store->lock);
    struct query query = query_start(&store->read, STORE_FILES, err, "");
    while (query_row(&query)) {
        const int64_t state = sqlite3_column_int64(query.s, 1);
        query_id(&query, 0, id);
        each(context, id, state <= STORE_RUNNING, state == STORE_DONE && sqlite3_column_int(query.s, 2));
    }
    const enum error_code code = query_end(&query);
    pthread_mutex_unlock(&store->lock);
    return code;
}
