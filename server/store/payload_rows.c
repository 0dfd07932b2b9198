/* Payloads as rows of 1 MiB in the database of jobs. Binary parameters, and results row by row, so that neither side
 * holds more than one piece. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/store/payload.h"
#include "server/store/pg.h"

#ifndef RESTORED_LIBPQ

enum error_code payload_rows_open(struct payload **out, const struct payload_settings *settings, struct error *err)
{
    (void)settings;
    *out = NULL;
    return pg_available(err);
}

#else

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "runtime/base/mem.h"

#define ROWS_PIECE ((size_t)1 << 20)
#define ROWS_SWEEP "100" /* payloads that one statement sweeps */
#define ROWS_LINKS 6     /* connections that are kept for the next payload */
#define ROWS_NOW "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"

struct rows {
    struct payload payload;
    char *where, *password_file;
    pthread_mutex_t lock;
    struct {
        PGconn *db;
        int rests;      /* since it was used */
    } idle[ROWS_LINKS]; /* the last one that was used is the last */
    int count;
};

/* A connection of the caller's own; those that the database has closed meanwhile are given up. */
static enum error_code rows_take(struct rows *rows, PGconn **db, struct error *err)
{
    for (;;) {
        pthread_mutex_lock(&rows->lock);
        *db = rows->count ? rows->idle[--rows->count].db : NULL;
        pthread_mutex_unlock(&rows->lock);
        if (!*db)
            return pg_connect(db, rows->where, rows->password_file, err);
        if (pg_alive(*db))
            return OK;
        PQfinish(*db);
    }
}

/* It is kept, if it still works and there are not many. */
static void rows_give(struct rows *rows, PGconn *db)
{
    if (!db)
        return;
    const bool fine = PQstatus(db) == CONNECTION_OK && PQtransactionStatus(db) == PQTRANS_IDLE;
    pthread_mutex_lock(&rows->lock);
    const bool kept = fine && rows->count < ROWS_LINKS;
    if (kept) {
        rows->idle[rows->count].rests = 0;
        rows->idle[rows->count++].db = db;
    }
    pthread_mutex_unlock(&rows->lock);
    if (!kept)
        PQfinish(db);
}

static void rows_rest(struct payload *payload)
{
    struct rows *rows = (struct rows *)payload;
    PGconn *over[ROWS_LINKS];
    int count = 0;
    pthread_mutex_lock(&rows->lock);
    for (int i = 0; i < rows->count; i++)
        rows->idle[i].rests++;
    while (count < rows->count && rows->idle[count].rests >= PAYLOAD_RESTS) {
        over[count] = rows->idle[count].db;
        count++;
    }
    rows->count -= count;
    memmove(rows->idle, rows->idle + count, (size_t)rows->count * sizeof *rows->idle);
    pthread_mutex_unlock(&rows->lock);
    while (count > 0)
        PQfinish(over[--count]);
}

/* --- putting -------------------------------------------------------------------------------------------------------
 */

static enum error_code rows_put_piece(PGconn *db, const char *name, uint64_t n, const uint8_t *data, size_t size,
                                      struct error *err)
{
    char number[24];
    snprintf(number, sizeof number, "%llu", (unsigned long long)n);
    const char *const values[] = {name, number, (const char *)data};
    const int lengths[] = {0, 0, (int)size}, binary[] = {0, 0, 1};
    PGresult *result = PQsendQueryParams(db, "INSERT INTO chunks (name, n, data) VALUES ($1, $2::integer, $3::bytea)",
                                         3, NULL, values, lengths, binary, 0)
                           ? pg_receive(db)
                           : NULL;
    const enum error_code code = result && PQresultStatus(result) == PGRES_COMMAND_OK ? OK : pg_failed(db, result, err);
    PQclear(result);
    return code;
}

static enum error_code rows_put_pieces(PGconn *db, const char *name, int fd, uint64_t size, struct error *err)
{
    uint8_t *data = mem_alloc(ROWS_PIECE, 1);
    enum error_code code = data ? OK : error_set(err, ERROR_NO_MEMORY, "no memory for a payload");
    for (uint64_t at = 0, n = 0; !code && at < size; n++) {
        size_t filled = 0;
        const size_t want = size - at < ROWS_PIECE ? (size_t)(size - at) : ROWS_PIECE;
        while (filled < want) {
            const ssize_t got = pread(fd, data + filled, want - filled, (off_t)(at + filled));
            if (got > 0)
                filled += (size_t)got;
            else if (got == 0 || errno != EINTR)
                break;
        }
        code = filled < want ? error_set(err, ERROR_IO, "a picture could not be read from the spool")
                             : rows_put_piece(db, name, n, data, want, err);
        at += want;
    }
    free(data);
    return code;
}

static enum error_code rows_put(struct payload *payload, const char *name, int fd, uint64_t size, struct error *err)
{
    struct rows *rows = (struct rows *)payload;
    char bytes[24];
    PGconn *db;
    snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)size);
    const char *const values[] = {name, bytes};
    enum error_code code = rows_take(rows, &db, err);
    if (code)
        return code;
    code = pg_do(db, "BEGIN", 0, NULL, NULL, err);
    if (!code)
        code = pg_do(db,
                     "INSERT INTO payloads (name, created, size) VALUES ($1, " ROWS_NOW ", $2::bigint)"
                     " ON CONFLICT (name) DO UPDATE SET created = excluded.created, size = excluded.size",
                     2, values, NULL, err);
    if (!code)
        code = pg_do(db, "DELETE FROM chunks WHERE name = $1", 1, values, NULL, err);
    if (!code)
        code = rows_put_pieces(db, name, fd, size, err);
    if (!code)
        code = pg_commit(db, err);
    if (code) {
        PQfinish(db); /* which undoes it */
        return code;
    }
    rows_give(rows, db);
    return OK;
}

/* --- getting -------------------------------------------------------------------------------------------------------
 */

static enum error_code rows_size(PGconn *db, const char *name, uint64_t *size, struct error *err)
{
    PGresult *result = NULL;
    enum error_code code = pg_do(db, "SELECT size FROM payloads WHERE name = $1", 1, &name, &result, err);
    if (code)
        return code;
    if (PQntuples(result) == 1)
        *size = strtoull(PQgetvalue(result, 0, 0), NULL, 10);
    else
        code = error_set(err, ERROR_NOT_FOUND, "the database has no such picture");
    PQclear(result);
    return code;
}

static enum error_code rows_get_pieces(PGconn *db, const char *name, uint64_t size, payload_take_fn *take,
                                       void *context, struct error *err)
{
    enum error_code code = OK;
    uint64_t at = 0;
    if (!PQsendQueryParams(db, "SELECT data FROM chunks WHERE name = $1 ORDER BY n", 1, NULL, &name, NULL, NULL, 1) ||
        !PQsetSingleRowMode(db))
        return pg_failed(db, NULL, err);
    while (!code) {
        PGresult *result = pg_next(db);
        if (!result)
            break;
        const ExecStatusType status = PQresultStatus(result);
        if (status == PGRES_SINGLE_TUPLE) {
            const size_t got = (size_t)PQgetlength(result, 0, 0);
            at += got;
            code = take(context, PQgetvalue(result, 0, 0), got, err);
        } else if (status != PGRES_TUPLES_OK) {
            code = pg_failed(db, result, err);
        }
        PQclear(result);
    }
    /* where no answer came the statement is still active: nothing is known then */
    if (!code && (PQstatus(db) != CONNECTION_OK || PQtransactionStatus(db) == PQTRANS_ACTIVE))
        code = pg_failed(db, NULL, err);
    else if (!code && at != size)
        code = at ? error_set(err, ERROR_CORRUPT, "some rows of a picture are missing in the database of jobs")
                  : error_set(err, ERROR_NOT_FOUND, "the database has no such picture");
    return code;
}

static enum error_code rows_get(struct payload *payload, const char *name, payload_take_fn *take, void *context,
                                struct error *err)
{
    struct rows *rows = (struct rows *)payload;
    uint64_t size = 0;
    PGconn *db;
    enum error_code code = rows_take(rows, &db, err);
    if (!code)
        code = rows_size(db, name, &size, err);
    if (!code && size)
        code = rows_get_pieces(db, name, size, take, context, err);
    rows_give(rows, db);
    return code;
}

/* --- removing ------------------------------------------------------------------------------------------------------
 */

static enum error_code rows_do(struct payload *payload, const char *sql, const char *value, struct error *err)
{
    struct rows *rows = (struct rows *)payload;
    PGconn *db;
    enum error_code code = rows_take(rows, &db, err);
    if (!code)
        code = pg_do(db, sql, 1, &value, NULL, err);
    rows_give(rows, db);
    return code;
}

static enum error_code rows_remove(struct payload *payload, const char *name, struct error *err)
{
    return rows_do(payload, "WITH pieces AS (DELETE FROM chunks WHERE name = $1) DELETE FROM payloads WHERE name = $1",
                   name, err);
}

/* Those of jobs that do not exist (any more), pictures of jobs that have ended, results of attempts that were not the
 * last: some at a time, so that no statement takes long. */
static enum error_code rows_sweep(struct payload *payload, int64_t seconds, int most, payload_wanted_fn *wanted,
                                  void *context, bool *more, struct error *err)
{
    struct rows *rows = (struct rows *)payload;
    char value[24];
    const char *const values[] = {value};
    PGconn *db;
    (void)wanted, (void)context;
    *more = false;
    snprintf(value, sizeof value, "%lld", (long long)seconds);
    enum error_code code = rows_take(rows, &db, err);
    int swept = 0;
    for (bool again = true; !code && again;) {
        PGresult *result = NULL;
        code =
            pg_do(db,
                  "WITH old AS (DELETE FROM payloads WHERE name IN (SELECT p.name FROM payloads AS p WHERE p.created"
                  " < " ROWS_NOW " - $1::bigint * 1000 AND (p.name LIKE 'in/%' OR p.name LIKE 'out/%') AND NOT"
                  " EXISTS (SELECT 1 FROM jobs WHERE id = split_part(p.name, '/', 2) AND CASE WHEN p.name LIKE 'in/%'"
                  " THEN state <= 1 ELSE attempts::text = split_part(p.name, '/', 3) END) LIMIT " ROWS_SWEEP
                  ") RETURNING payloads.name), pieces AS (DELETE FROM chunks WHERE name IN (SELECT name FROM old))"
                  " SELECT count(*) FROM old",
                  1, values, &result, err);
        const int count = code ? 0 : atoi(PQgetvalue(result, 0, 0));
        swept += count;
        *more = count && swept >= most;
        again = count && !*more;
        if (!code)
            PQclear(result);
    }
    rows_give(rows, db);
    return code;
}

static void rows_close(struct payload *payload)
{
    struct rows *rows = (struct rows *)payload;
    while (rows->count)
        PQfinish(rows->idle[--rows->count].db);
    pthread_mutex_destroy(&rows->lock);
    free(rows->where);
    free(rows->password_file);
    free(rows);
}

static const struct payload_engine rows_engine = {.name = "rows",
                                                  .put = rows_put,
                                                  .get = rows_get,
                                                  .remove = rows_remove,
                                                  .sweep = rows_sweep,
                                                  .rest = rows_rest,
                                                  .close = rows_close};

enum error_code payload_rows_open(struct payload **out, const struct payload_settings *settings, struct error *err)
{
    struct rows *rows = mem_calloc(1, sizeof *rows);
    *out = rows ? &rows->payload : NULL;
    if (rows) {
        rows->payload.engine = &rows_engine;
        pthread_mutex_init(&rows->lock, NULL);
        rows->where = strdup(settings->store);
        rows->password_file = strdup(settings->password_file ? settings->password_file : "");
    }
    if (rows && rows->where && rows->password_file)
        return OK;
    payload_close(out);
    return error_set(err, ERROR_NO_MEMORY, "no memory for payloads");
}

#endif
