#include "server/store/query.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- statements ----------------------------------------------------------------------------------------------------
 */

struct query query_start(struct side *side, enum store_statement which, struct error *err, const char *types, ...)
{
    struct query query = {.side = side, .err = err};
    struct store *store = side->store;
    va_list values;
    if (side == &store->write && store->undone) {
        query.code = error_set(err, store->undone, "the store of jobs could not be written to; nothing was stored");
        return query;
    }
    va_start(values, types);
    store->engine->start(&query, which, types, values);
    va_end(values);
    return query;
}

bool query_row(struct query *query)
{
    if (query->code || query->done)
        return false;
    const bool row = query->side->store->engine->row(query);
    query->done = !row;
    return row;
}

enum error_code query_end(struct query *query)
{
    while (query_row(query))
        ;
    query->side->store->engine->end(query);
    query->done = true;
    return query->code;
}

/* --- a row ---------------------------------------------------------------------------------------------------------
 */

int64_t query_integer(const struct query *query, int column)
{
    return query->side->store->engine->integer(query, column);
}

const char *query_text(const struct query *query, int column)
{
    const char *text = query->side->store->engine->text(query, column);
    return text ? text : "";
}

char *query_copy(struct query *query, int column)
{
    const char *text = query->side->store->engine->text(query, column);
    char *copy = text ? strdup(text) : NULL;
    if (!copy && (text || !query->side->store->engine->null(query, column)) && !query->code)
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
    const double value = query->side->store->engine->real(query, column);
    return isfinite(value) && value > 0 ? value : 0;
}

uint64_t query_size(const struct query *query, int column)
{
    const int64_t value = query_integer(query, column);
    return value > 0 ? (uint64_t)value : 0;
}

/* Cut where it is too long. */
static void query_field(const struct query *query, int column, char *out, size_t size)
{
    snprintf(out, size, "%s", query_text(query, column));
}

bool query_job(struct query *query, struct store_job *job)
{
    *job = (struct store_job){0};
    const int64_t state = query_integer(query, 6), attempts = query_integer(query, 8);
    if (!query_id(query, 0, job->id) || state < 0 || state >= STORE_STATES || attempts < 0 || attempts > INT32_MAX)
        return false;
    query_field(query, 1, job->client, sizeof job->client);
    query_field(query, 2, job->token, sizeof job->token);
    query_field(query, 3, job->batch, sizeof job->batch);
    query_field(query, 4, job->name, sizeof job->name);
    job->low = query_integer(query, 5) != 0;
    job->state = (enum store_state)state;
    job->cancel = query_integer(query, 7) != 0;
    job->attempts = (int)attempts;
    job->created = query_integer(query, 9);
    job->started = query_integer(query, 10);
    job->finished = query_integer(query, 11);
    job->expires = query_integer(query, 12);
    job->lease = query_integer(query, 13);
    job->seconds = query_double(query, 14);
    job->input_bytes = query_size(query, 15);
    job->output_bytes = query_size(query, 16);
    job->megapixels = query_double(query, 17);
    job->options = query_copy(query, 18);
    job->error = query_copy(query, 19);
    query_field(query, 20, job->owner, sizeof job->owner);
    query_field(query, 21, job->progress, sizeof job->progress);
    return true;
}
