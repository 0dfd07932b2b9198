#include "server/store/store_copy.h"

#include <stdlib.h>
#include <string.h>

#include "server/store/hook_rows.h"
#include "server/store/query.h"

/* Behind STORE_SQL_COLUMNS. */
enum { COPY_REPORT = 22, COPY_PARTS, COPY_NEEDS, COPY_KEY, COPY_HASH, COPY_TURN, COPY_NUMBER, COPY_HOOK };

void store_copy_clear(struct store_row *row)
{
    store_job_clear(&row->job);
    free(row->key);
    free(row->hook);
    *row = (struct store_row){0};
}

static bool store_copy_hash(const char *text, uint8_t hash[32])
{
    for (int i = 0; i < 32; i++) {
        const char two[3] = {text[2 * i], text[2 * i] ? text[2 * i + 1] : '\0', 0};
        char *end;
        hash[i] = (uint8_t)strtoul(two, &end, 16);
        if (end != two + 2)
            return false;
    }
    return !text[64];
}

enum error_code store_copy_read(struct store *store, int64_t after, struct store_row *out, bool *found,
                                struct error *err)
{
    *out = (struct store_row){0};
    struct query query = query_start(&store->write, STORE_COPY_READ, err, "i", after);
    *found = query_row(&query);
    if (*found) {
        out->number = query_integer(&query, COPY_NUMBER);
        out->turn = query_integer(&query, COPY_TURN);
        if (query_job(&query, &out->job)) {
            out->job.report = query_copy(&query, COPY_REPORT);
            out->job.parts = query_copy(&query, COPY_PARTS);
            out->job.needs = query_copy(&query, COPY_NEEDS);
            out->key = query_copy(&query, COPY_KEY);
            out->hook = query_copy(&query, COPY_HOOK);
            out->hashed = store_copy_hash(query_text(&query, COPY_HASH), out->hash);
        } else {
            store_job_clear(&out->job);
        }
    }
    const enum error_code code = query_end(&query);
    if (code)
        store_copy_clear(out);
    *found = *found && !code;
    return code;
}

/* *number 0: a row that is there has its id or its key. */
static enum error_code store_copy_insert(struct store *store, const struct store_row *row, bool keyed, int64_t *number,
                                         struct error *err)
{
    const struct store_job *job = &row->job;
    struct query query =
        query_start(&store->write, STORE_COPY_INSERT, err, "tttttiididttbiti", job->id, job->client, job->token,
                    job->batch, job->name, (int64_t)job->low, job->created, job->seconds, (int64_t)job->input_bytes,
                    job->megapixels, job->options, keyed ? row->key : NULL, keyed && row->hashed ? row->hash : NULL,
                    (int64_t)job->output_bytes, job->needs, row->turn);
    *number = query_row(&query) ? query_integer(&query, 0) : 0;
    return query_end(&query);
}

enum error_code store_copy_write(struct store *store, const struct store_row *row, enum store_copied *what,
                                 struct error *err)
{
    const struct store_job *job = &row->job;
    int64_t number = 0;
    *what = STORE_COPIED;
    struct query query = query_start(&store->write, STORE_STATE, err, "t", job->id);
    const bool there = query_row(&query);
    enum error_code code = query_end(&query);
    if (code || there) {
        *what = STORE_COPIED_BEFORE;
        return code;
    }
    code = store_copy_insert(store, row, true, &number, err);
    if (!code && !number) {
        *what = STORE_COPIED_KEYLESS;
        code = store_copy_insert(store, row, false, &number, err);
    }
    if (!code && !number)
        code = store_damaged(store, err);
    if (code)
        return code;
    query = query_start(&store->write, STORE_COPY_STATE, err, "iiiiiiiittt", number, (int64_t)job->state,
                        (int64_t)job->cancel, (int64_t)job->attempts, job->started, job->finished, job->expires,
                        job->lease, job->owner, job->error, *job->progress ? job->progress : NULL);
    code = query_end(&query);
    if (!code && (job->report || job->parts)) {
        query = query_start(&store->write, STORE_RESULT, err, "itt", number, job->report, job->parts);
        code = query_end(&query);
    }
    if (!code && row->hook) /* the next server that looks for such sends it */
        code = hook_rows_add(store, job->id, row->hook, "", 0, err);
    return code;
}

enum error_code store_copy_drop(struct store *store, int64_t number, struct error *err)
{
    static const enum store_statement drops[] = {STORE_COPY_DROP_HOOK, STORE_COPY_DROP_RESULT, STORE_COPY_DROP};
    enum error_code code = OK;
    for (size_t i = 0; !code && i < sizeof drops / sizeof *drops; i++) {
        struct query query = query_start(&store->write, drops[i], err, "i", number);
        code = query_end(&query);
    }
    return code;
}
