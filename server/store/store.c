#include "server/store/query.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#define STORE_WORKER_MS 60000 /* a server that was not seen for so long is gone */
#define STORE_CLOCK_MS 1000   /* an answer that took longer tells the time too badly */

/* --- what all share ------------------------------------------------------------------------------------------------
 */

struct store *store_new(const struct store_engine *engine, const char *path, struct error *err)
{
    struct store *store = mem_calloc(1, sizeof *store + strlen(path) + 1);
    if (!store) {
        error_set(err, ERROR_NO_MEMORY, "no memory for the store of jobs");
        return NULL;
    }
    store->engine = engine;
    strcpy(store->path, path);
    pthread_mutex_init(&store->lock, NULL);
    store->write.store = store->read.store = store;
    return store;
}

bool store_is_shared(const char *setting)
{
    return !strncmp(setting, "postgresql://", 13) || !strncmp(setting, "postgres://", 11);
}

enum error_code store_open(struct store **out, const char *path, struct error *err)
{
    return store_sqlite_open(out, path, err);
}

enum error_code store_open_shared(struct store **out, const char *where, const char *password_file, struct error *err)
{
    *out = NULL;
    return store_pg_open(out, where, password_file, err);
}

enum error_code store_look_shared(const char *where, const char *password_file, bool *there, struct error *err)
{
    *there = false;
    return store_pg_look(where, password_file, there, err);
}

void store_close(struct store **store)
{
    struct store *old = *store;
    *store = NULL;
    if (!old)
        return;
    old->engine->disconnect(&old->read);
    old->engine->disconnect(&old->write); /* the last one: what is in SQLite's journal goes into the file */
    pthread_mutex_destroy(&old->lock);
    free(old->settings);
    free(old->offers);
    free(old);
}

bool store_shared(const struct store *store)
{
    return store->shared;
}

/* Milliseconds since 1970, by this machine's clock. */
static int64_t store_machine_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t store_steady_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t store_clock(const struct store *store)
{
    return (store->shared ? store_steady_clock() : store_machine_clock()) + atomic_load(&store->clock);
}

enum error_code store_sync_clock(struct store *store, struct error *err)
{
    if (!store->shared)
        return OK;
    const int64_t before = store_steady_clock();
    struct query query = query_start(&store->write, STORE_CLOCK, err, "");
    const int64_t now = query_row(&query) ? query_integer(&query, 0) : 0;
    const enum error_code code = query_end(&query);
    const int64_t took = store_steady_clock() - before;
    if (!code && now && took < STORE_CLOCK_MS)
        atomic_store(&store->clock, now - before - took / 2);
    return code;
}

bool store_reachable(const struct store *store)
{
    return !store->shared || atomic_load(&store->reachable);
}

static int store_changes(struct store *store)
{
    return store->engine->changes(&store->write);
}

enum error_code store_damaged(const struct store *store, struct error *err)
{
    error_set(err, ERROR_CORRUPT, "the store of jobs is damaged");
    error_local(err, ": %s", store->path);
    return ERROR_CORRUPT;
}

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
    if (code && store->engine->within(&store->write) &&
        (store_do(store, STORE_UNDO, &ignored) || store_do(store, STORE_RELEASE, &ignored))) {
        store->engine->abandon(&store->write);
        if (store->begun)
            store->undone = code;
    }
    return code;
}

void store_job_clear(struct store_job *job)
{
    free(job->options);
    free(job->needs);
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
    if (store->engine->within(&store->write))
        (void)!store_do(store, STORE_ROLLBACK, &ignored);
}

/* What the estimate could not say is stored as 0. */
static double store_amount(double value)
{
    return isfinite(value) && value > 0 ? value : 0;
}

/* Writes a row as it is: a transaction that writes nothing would not wait for the standby, which may lack the row. */
static enum error_code store_touch(struct store *store, const char *id, struct error *err)
{
    struct query query = query_start(&store->write, STORE_TOUCH, err, "t", id);
    return query_end(&query);
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
        query_start(&store->write, STORE_INSERT, err, "tttttiididttbit", job->id, job->client, job->token, job->batch,
                    job->name, low, job->created, store_amount(job->seconds), bytes, store_amount(job->megapixels),
                    job->options, key, key ? hash : NULL, promised, job->needs);
    enum error_code code = query_end(&query);
    if (code || store_changes(store))
        return code;
    if (!key) /* a commit whose answer was lost has stored it: ids are random, so it is this one */
        return store_touch(store, job->id, err);
    query = query_start(&store->write, STORE_SAME_KEY, err, "tt", job->client, key);
    if (!query_row(&query)) {
        if (query_end(&query))
            return query.code;
        return store->shared ? error_set(err, ERROR_BUSY, "the job of this key has just gone; try again")
                             : store_damaged(store, err); /* the index has it and the table has not */
    }
    const bool same = store->engine->is_hash(&query, 1, hash);
    *what = same ? STORE_SAME : STORE_OTHER;
    const bool sane = query_id(&query, 0, existing);
    code = query_end(&query);
    if (code || !sane)
        return code ? code : store_damaged(store, err);
    if (!same || strcmp(existing, job->id) != 0)
        return OK;
    *what = STORE_NEW; /* the same, by its key */
    return store_touch(store, job->id, err);
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
        store_note(change, query_integer(&query, 1), 1);
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

void store_leave_leases(struct store *store, bool leave)
{
    store->leave_leases = leave;
}

/* The first waiting job; damaged ones before it are set aside, so many at most: where an index is damaged, too, the
 * same one would come again and again. */
static enum error_code store_claim_first(struct store *store, const char *owner, int64_t now, int64_t lease,
                                         struct store_job *out, bool *found, struct store_change *change,
                                         store_id_fn *each, void *context, struct error *err)
{
    for (int i = 0; i < 100; i++) {
        struct query query = query_start(&store->write, STORE_CLAIM, err, "tiiti", owner, now, lease,
                                         store->offers ? store->offers : "[]", store->leave_leases ? 0 : now);
        *found = query_row(&query);
        const bool sane = !*found || query_job(&query, out);
        const int64_t number = *found ? query_integer(&query, 22) : 0;
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
    code =
        store_end_over(store, store->leave_leases ? 0 : now, now, expires, max_attempts, &change, ended, context, err);
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
    *cancel = *held && query_integer(&query, 0) != 0;
    return query_end(&query);
}

enum error_code store_beat(struct store *store, const char *id, const char *owner, int attempts, int64_t lease,
                           const char *progress, bool *held, bool *cancel, struct error *err)
{
    struct query query =
        query_start(&store->write, STORE_BEAT, err, "ttiit", id, owner, (int64_t)attempts, lease, progress);
    *held = query_row(&query);
    *cancel = *held && query_integer(&query, 0) != 0;
    return query_end(&query);
}

enum error_code store_offer(struct store *store, const char *offers, struct error *err)
{
    char *copy = offers ? strdup(offers) : NULL;
    if (offers && !copy)
        return error_set(err, ERROR_NO_MEMORY, "no memory for a list of models");
    free(store->offers);
    store->offers = copy;
    return OK;
}

enum error_code store_notify(struct store *store, const char *text, struct error *err)
{
    if (!store->shared)
        return OK;
    struct query query = query_start(&store->write, STORE_NOTIFY, err, "t", text);
    return query_end(&query);
}

enum error_code store_worker(struct store *store, const char *owner, int64_t now, const char *about, struct error *err)
{
    struct query query = query_start(&store->write, STORE_WORKER, err, "tit", owner, now, about);
    return query_end(&query);
}

enum error_code store_worker_gone(struct store *store, const char *owner, int64_t now, struct error *err)
{
    struct query query = query_start(&store->write, STORE_WORKER_GONE, err, "ti", owner, now - STORE_WORKER_MS);
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
    const int64_t number = row ? query_integer(&query, 0) : 0;
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

enum error_code store_adopt(struct store *store, const char *id, const char *owner, int attempt, const char *new_owner,
                            int64_t lease, int *attempts, bool *held, struct error *err)
{
    struct query query =
        query_start(&store->write, STORE_ADOPT, err, "ttiti", id, owner, (int64_t)attempt, new_owner, lease);
    *held = query_row(&query);
    *attempts = *held ? (int)query_integer(&query, 0) : 0;
    const enum error_code code = query_end(&query);
    *held &= !code;
    return code;
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

enum error_code store_state(struct store *store, const char *id, enum store_state *out, bool *found, struct error *err)
{
    struct query query = query_start(&store->write, STORE_STATE, err, "t", id);
    *found = query_row(&query);
    const int64_t state = *found ? query_integer(&query, 0) : STORE_QUEUED;
    const enum error_code code = query_end(&query);
    const bool sane = state >= 0 && state < STORE_STATES;
    *out = sane ? (enum store_state)state : STORE_QUEUED;
    return code || sane ? code : store_damaged(store, err);
}

enum error_code store_cancel(struct store *store, const char *id, int64_t now, int64_t expires,
                             enum store_state *before, bool *found, struct error *err)
{
    for (int i = 0; i < 3; i++) { /* another server may claim it in between */
        enum error_code code = store_state(store, id, before, found, err);
        if (code || !*found || *before > STORE_RUNNING)
            return code;
        const bool waits = *before == STORE_QUEUED;
        struct query query = query_start(&store->write, waits ? STORE_CANCEL_WAITING : STORE_CANCEL_RUNNING, err,
                                         waits ? "tii" : "t", id, now, expires);
        code = query_end(&query);
        const int changed = code ? 0 : store_changes(store);
        if (waits)
            store_moved(store, STORE_CANCELLED, changed);
        if (code || changed)
            return code;
    }
    return error_set(err, ERROR_BUSY, "the job is on its way between servers; try again");
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
    const int changed = code ? 0 : store_changes(store);
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
        was = row ? query_integer(&query, 0) : STORE_QUEUED;
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
    struct query query;
    if (!store->shared) { /* there the last statement does it all */
        query = query_start(&store->write, STORE_EXPIRE_RESULTS, err, "ii", now, (int64_t)most);
        code = query_end(&query);
    }
    if (!code && !store->shared) {
        query = query_start(&store->write, STORE_EXPIRE_IDS, err, "iii", now, (int64_t)most, now + STORE_GONE_MS);
        code = query_end(&query);
    }
    if (!code) {
        query = query_start(&store->write, STORE_FORGET_GONE, err, "ii", now, (int64_t)most);
        code = query_end(&query);
    }
    if (!code) { /* its first row comes when all are gone, so whoever is told is told the truth */
        query = query_start(&store->write, STORE_EXPIRE, err, "iii", now, (int64_t)most, now + STORE_GONE_MS);
        while (query_row(&query)) {
            const char *text = query_text(&query, 0);
            store_note(&change, query_integer(&query, 1), -1);
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
