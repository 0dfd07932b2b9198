/* What the store is asked, on its reading side. */
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "server/store/query.h"

#define LOOK_SECONDS 2 /* that others wait, at most, for a shared store that somebody reads */

enum error_code store_look(struct store *store, struct error *err)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LOOK_SECONDS;
    if (!store->shared)
        pthread_mutex_lock(&store->lock);
    else if (pthread_mutex_timedlock(&store->lock, &until))
        return error_set(err, ERROR_IO, "the database of jobs takes long to answer; try again later");
    return OK;
}

enum error_code store_get(struct store *store, const char *id, struct store_job *out, bool *found, struct error *err)
{
    *out = (struct store_job){0};
    *found = false;
    if (store_look(store, err))
        return ERROR_IO;
    struct query query = query_start(&store->read, STORE_GET, err, "t", id);
    *found = query_row(&query);
    const bool sane = !*found || query_job(&query, out);
    if (*found && sane) {
        out->report = query_copy(&query, 22);
        out->parts = query_copy(&query, 23);
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
    *gone = false;
    if (store_look(store, err))
        return ERROR_IO;
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
        *created = query_integer(&query, 0);
        *number = query_integer(&query, 1);
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
    if (store_look(store, err))
        return ERROR_IO;
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
        const int64_t state = query_integer(query, 0);
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
    if (store_look(store, err))
        return ERROR_IO;
    const bool all = !token && !batch && !store->shared;
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
            out->oldest_queued = query_integer(&query, 0);
            out->seconds_queued = query_double(&query, 1);
        }
        code = query_end(&query);
    }
    pthread_mutex_unlock(&store->lock);
    return code;
}

enum error_code store_queued(struct store *store, uint64_t *out, struct error *err)
{
    struct store_counts counts = {0};
    *out = 0;
    if (store_look(store, err))
        return ERROR_IO;
    struct query query = query_start(&store->read, STORE_COUNT_AT_HAND, err, "tt", NULL, NULL);
    const enum error_code code = store_add_counts(&query, &counts);
    pthread_mutex_unlock(&store->lock);
    *out = counts.jobs[STORE_QUEUED];
    return code;
}

enum error_code store_waiting(struct store *store, const char *client, const char *without, uint64_t *out,
                              struct error *err)
{
    *out = 0;
    if (store_look(store, err))
        return ERROR_IO;
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
    if (store_look(store, err))
        return ERROR_IO;
    struct query query = query_start(&store->read, STORE_AHEAD_OF_NEW, err, "ti", client, (int64_t)low);
    if (query_row(&query))
        *seconds = query_double(&query, 0);
    const enum error_code code = query_end(&query);
    pthread_mutex_unlock(&store->lock);
    return code;
}

enum error_code store_workers(struct store *store, int64_t since, store_worker_fn *each, void *context,
                              struct error *err)
{
    if (store_look(store, err))
        return ERROR_IO;
    struct query query = query_start(&store->read, STORE_WORKERS, err, "i", since);
    while (query_row(&query))
        each(context, query_text(&query, 0), query_integer(&query, 1), query_text(&query, 2));
    const enum error_code code = query_end(&query);
    pthread_mutex_unlock(&store->lock);
    return code;
}

enum error_code store_needs(struct store *store, store_needs_fn *each, void *context, struct error *err)
{
    if (store_look(store, err))
        return ERROR_IO;
    struct query query = query_start(&store->read, STORE_NEEDS, err, "");
    while (query_row(&query))
        each(context, query_text(&query, 0), query_size(&query, 1), query_double(&query, 2));
    const enum error_code code = query_end(&query);
    pthread_mutex_unlock(&store->lock);
    return code;
}

enum error_code store_promised(struct store *store, uint64_t *out, struct error *err)
{
    *out = 0;
    if (store_look(store, err))
        return ERROR_IO;
    struct query query = query_start(&store->read, STORE_PROMISED, err, "");
    if (query_row(&query))
        *out = query_size(&query, 0);
    const enum error_code code = query_end(&query);
    pthread_mutex_unlock(&store->lock);
    return code;
}

enum error_code store_has_key(struct store *store, const char *client, const char *key, bool *found, struct error *err)
{
    *found = false;
    if (store_look(store, err))
        return ERROR_IO;
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
    *found = false;
    if (store_look(store, err))
        return ERROR_IO;
    struct query query = query_start(&store->read, STORE_PLACE, err, "t", id);
    *found = query_row(&query);
    if (*found) {
        low = query_integer(&query, 0);
        turn = query_integer(&query, 1);
        number = query_integer(&query, 2);
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
            each(context, query_text(&query, 0), query_integer(&query, 1) != 0, query_double(&query, 2));
        code = query_end(&query);
    }
    pthread_mutex_unlock(&store->lock);
    return code;
}

enum error_code store_files(struct store *store, store_files_fn *each, void *context, struct error *err)
{
    char id[33];
    if (store_look(store, err))
        return ERROR_IO;
    struct query query = query_start(&store->read, STORE_FILES, err, "");
    while (query_row(&query)) {
        const int64_t state = query_integer(&query, 1);
        query_id(&query, 0, id);
        each(context, id, state <= STORE_RUNNING, state == STORE_DONE && query_integer(&query, 2));
    }
    const enum error_code code = query_end(&query);
    pthread_mutex_unlock(&store->lock);
    return code;
}

enum error_code store_known(struct store *store, const char *ids, store_known_fn *each, void *context,
                            struct error *err)
{
    char id[33];
    if (store_look(store, err))
        return ERROR_IO;
    struct query query = query_start(&store->read, STORE_KNOWN, err, "t", ids);
    while (query_row(&query)) {
        const int64_t state = query_integer(&query, 1);
        query_id(&query, 0, id);
        each(context, id, state <= STORE_RUNNING, (int)query_integer(&query, 2));
    }
    const enum error_code code = query_end(&query);
    pthread_mutex_unlock(&store->lock);
    return code;
}
