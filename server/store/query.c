#include "server/store/query.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- statements ----------------------------------------------------------------------------------------------------
 */

static void query_bind(struct query *query, const char *types, va_list values)
{
    for (int i = 0; types[i]; i++) {
        char name[16];
        snprintf(name, sizeof name, "$%d", i + 1);
        const int at = sqlite3_bind_parameter_index(query->s, name);
        const int64_t number = types[i] == 'i' ? va_arg(values, int64_t) : 0;
        const double amount = types[i] == 'd' ? va_arg(values, double) : 0;
        const void *data = types[i] == 't' || types[i] == 'b' ? va_arg(values, const void *) : NULL;
        const int rc = !at               ? SQLITE_OK /* a statement for any token has no $1 */
                       : types[i] == 'i' ? sqlite3_bind_int64(query->s, at, number)
                       : types[i] == 'd' ? sqlite3_bind_double(query->s, at, amount)
                       : types[i] == 't' ? sqlite3_bind_text(query->s, at, data, -1, SQLITE_STATIC)
                                         : sqlite3_bind_blob(query->s, at, data, 32, SQLITE_STATIC);
        if (rc && !query->code)
            query->code = store_failed(query->side, rc, query->err);
    }
}

struct query query_start(struct side *side, enum store_statement which, struct error *err, const char *types, ...)
{
    struct query query = {.side = side, .err = err};
    struct store *store = side->store;
    va_list values;
    if (side == &store->write && store->undone) {
        query.code = error_set(err, store->undone, "the store of jobs could not be written to; nothing was stored");
        return query;
    }
    if (!side->statements[which]) {
        const int rc = sqlite3_prepare_v3(side->db, store_sql[which], -1, SQLITE_PREPARE_PERSISTENT,
                                          &side->statements[which], NULL);
        if (rc)
            query.code = store_failed(side, rc, err);
    }
    query.s = side->statements[which];
    va_start(values, types);
    if (!query.code)
        query_bind(&query, types, values);
    va_end(values);
    return query;
}

bool query_row(struct query *query)
{
    if (query->code || query->done)
        return false;
    errno = 0;
    const int rc = sqlite3_step(query->s);
    query->done = rc != SQLITE_ROW;
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        query->code = store_failed(query->side, rc, query->err);
    return rc == SQLITE_ROW;
}

enum error_code query_end(struct query *query)
{
    while (query_row(query))
        ;
    if (query->s) {
        sqlite3_reset(query->s);
        sqlite3_clear_bindings(query->s);
    }
    query->done = true;
    return query->code;
}

/* --- a row ---------------------------------------------------------------------------------------------------------
 */

const char *query_text(const struct query *query, int column)
{
    const char *text = (const char *)sqlite3_column_text(query->s, column);
    return text ? text : "";
}

char *query_copy(struct query *query, int column)
{
    const char *text = (const char *)sqlite3_column_text(query->s, column);
    char *copy = text ? strdup(text) : NULL;
    if (!copy && sqlite3_column_type(query->s, column) != SQLITE_NULL && !query->code)
        query->code = error_set(query->err, ERROR_NO_MEMORY, "no memory for a job's texts");
    return copy;
}

bool query_id_sane(const char *id)
{
    const size_t length = strspn(id, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
    return length > 0 && length < 33 && !id[length];
}

bool query_id(const struct query *query, int column, char id[33])
{
    const char *text = query_text(query, column);
    const bool sane = query_id_sane(text);
    strcpy(id, sane ? text : "");
    return sane;
}

double query_double(const struct query *query, int column)
{
    const double value = sqlite3_column_double(query->s, column);
    return isfinite(value) && value > 0 ? value : 0;
}

uint64_t query_size(const struct query *query, int column)
{
    const int64_t value = sqlite3_column_int64(query->s, column);
    return value > 0 ? (uint64_t)value : 0;
}

void query_field(const struct query *query, int column, char *out, size_t size)
{
    snprintf(out, size, "%s", query_text(query, column));
}

bool query_job(struct query *query, struct store_job *job)
{
    sqlite3_stmt *s = query->s;
    *job = (struct store_job){0};
    const int64_t state = sqlite3_column_int64(s, 6), attempts = sqlite3_column_int64(s, 8);
    if (!query_id(query, 0, job->id) || state < 0 || state >= STORE_STATES || attempts < 0 || attempts > INT32_MAX)
        return false;
    query_field(query, 1, job->client, sizeof job->client);
    query_field(query, 2, job->token, sizeof job->token);
    query_field(query, 3, job->batch, sizeof job->batch);
    query_field(query, 4, job->name, sizeof job->name);
    job->low = sqlite3_column_int(s, 5) != 0;
    job->state = (enum store_state)state;
    job->cancel = sqlite3_column_int(s, 7) != 0;
    job->attempts = (int)attempts;
    job->created = sqlite3_column_int64(s, 9);
    job->started = sqlite3_column_int64(s, 10);
    job->finished = sqlite3_column_int64(s, 11);
    job->expires = sqlite3_column_int64(s, 12);
    job->lease = sqlite3_column_int64(s, 13);
    job->seconds = query_double(query, 14);
    job->input_bytes = query_size(query, 15);
    job->output_bytes = query_size(query, 16);
    job->megapixels = query_double(query, 17);
    job->options = query_copy(query, 18);
    job->error = query_copy(query, 19);
    query_field(query, 20, job->owner, sizeof job->owner);
    return true;
}
