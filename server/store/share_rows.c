#include "server/store/share_rows.h"

#include "server/store/pg.h"

#ifndef RESTORED_LIBPQ

enum error_code share_rows_open(struct share_rows **out, const char *where, const char *password_file,
                                struct error *err)
{
    (void)where, (void)password_file;
    *out = NULL;
    return pg_available(err);
}

void share_rows_close(struct share_rows **rows)
{
    (void)rows;
}

enum error_code share_rows_begin(struct share_rows *rows, const char *owner, const char *job, const char *class,
                                 const char *model, int64_t *task, struct error *err)
{
    (void)rows, (void)owner, (void)job, (void)class, (void)model, (void)task;
    return pg_available(err);
}

enum error_code share_rows_end(struct share_rows *rows, const char *owner, const char *job, struct error *err)
{
    (void)rows, (void)owner, (void)job;
    return pg_available(err);
}

enum error_code share_rows_look(struct share_rows *rows, int64_t task, struct share_look *out, struct error *err)
{
    (void)rows, (void)task, (void)out;
    return pg_available(err);
}

enum error_code share_rows_offer(struct share_rows *rows, int64_t task, int n, const char *spec, const void *input,
                                 size_t size, struct error *err)
{
    (void)rows, (void)task, (void)n, (void)spec, (void)input, (void)size;
    return pg_available(err);
}

enum error_code share_rows_withdraw(struct share_rows *rows, int64_t task, int *n, struct error *err)
{
    (void)rows, (void)task, (void)n;
    return pg_available(err);
}

enum error_code share_rows_fetch(struct share_rows *rows, int64_t task, int n, void **out, size_t *size,
                                 struct error *err)
{
    (void)rows, (void)task, (void)n, (void)out, (void)size;
    return pg_available(err);
}

enum error_code share_rows_drop(struct share_rows *rows, int64_t task, int n, struct error *err)
{
    (void)rows, (void)task, (void)n;
    return pg_available(err);
}

enum error_code share_rows_find(struct share_rows *rows, const char *owner, const char *class, share_rows_has_fn *has,
                                void *context, int64_t *task, char model[256], struct error *err)
{
    (void)rows, (void)owner, (void)class, (void)has, (void)context, (void)task, (void)model;
    return pg_available(err);
}

enum error_code share_rows_claim(struct share_rows *rows, int64_t task, const char *helper, bool ahead,
                                 struct share_tile *out, bool *found, struct error *err)
{
    (void)rows, (void)task, (void)helper, (void)ahead, (void)out, (void)found;
    return pg_available(err);
}

enum error_code share_rows_deliver(struct share_rows *rows, const struct share_tile *tile, const char *helper,
                                   const void *output, size_t size, bool *held, struct error *err)
{
    (void)rows, (void)tile, (void)helper, (void)output, (void)size, (void)held;
    return pg_available(err);
}

enum error_code share_rows_return(struct share_rows *rows, const struct share_tile *tile, const char *helper,
                                  bool failed, struct error *err)
{
    (void)rows, (void)tile, (void)helper, (void)failed;
    return pg_available(err);
}

#else

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"

#define SHARE_ALIVE_MS "20000" /* as long as a server may be unseen: four of its beats */
#define SHARE_WANTED_MS "3000"
#define SHARE_NOW "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
#define SHARE_LOCK "SELECT pg_advisory_xact_lock(1919972453)" /* who makes the tables */
/* A server that is alive, whose name is to follow. */
#define SHARE_ALIVE "SELECT 1 FROM workers WHERE seen > " SHARE_NOW " - " SHARE_ALIVE_MS " AND workers.owner = "

/* The number is that of their form: a later one has tables of its own, and finds no tasks of this one. */
static const char *const share_tables[] = {
    "BEGIN",
    SHARE_LOCK,
    "CREATE UNLOGGED TABLE IF NOT EXISTS shared_tasks_1 (task BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
    " owner TEXT NOT NULL, job TEXT NOT NULL, class TEXT NOT NULL, model TEXT NOT NULL, wanted BIGINT NOT NULL)",
    "CREATE UNLOGGED TABLE IF NOT EXISTS shared_tiles_1 (task BIGINT REFERENCES shared_tasks_1 ON DELETE CASCADE,"
    " n INTEGER, state SMALLINT NOT NULL, helper TEXT NOT NULL, spec TEXT NOT NULL, input BYTEA, output BYTEA,"
    " PRIMARY KEY (task, n))",
    "ALTER TABLE shared_tiles_1 ALTER input SET STORAGE EXTERNAL, ALTER output SET STORAGE EXTERNAL",
    "COMMIT"};

struct share_rows {
    char *where, *password_file;
    PGconn *db;
};

enum error_code share_rows_open(struct share_rows **out, const char *where, const char *password_file,
                                struct error *err)
{
    struct share_rows *rows = *out = mem_calloc(1, sizeof *rows);
    if (rows) {
        rows->where = strdup(where);
        rows->password_file = strdup(password_file ? password_file : "");
    }
    if (rows && rows->where && rows->password_file)
        return OK;
    share_rows_close(out);
    return error_set(err, ERROR_NO_MEMORY, "no memory for shared tiles");
}

static void share_rows_hang_up(struct share_rows *rows)
{
    PQfinish(rows->db);
    rows->db = NULL;
}

void share_rows_close(struct share_rows **rows)
{
    struct share_rows *old = *rows;
    *rows = NULL;
    if (!old)
        return;
    share_rows_hang_up(old);
    free(old->where);
    free(old->password_file);
    free(old);
}

static enum error_code share_rows_connect(struct share_rows *rows, struct error *err)
{
    if (rows->db && pg_alive(rows->db) && PQtransactionStatus(rows->db) == PQTRANS_IDLE)
        return OK;
    share_rows_hang_up(rows);
    enum error_code code = pg_connect(&rows->db, rows->where, rows->password_file, err);
    PGresult *there = NULL;
    if (!code)
        code = pg_do(rows->db, "SELECT 1 WHERE to_regclass('shared_tiles_1') IS NOT NULL", 0, NULL, &there, err);
    const bool make = !code && PQntuples(there) == 0;
    PQclear(there);
    for (size_t i = 0; make && !code && i < sizeof share_tables / sizeof *share_tables; i++)
        code = pg_do(rows->db, share_tables[i], 0, NULL, NULL, err);
    if (code)
        share_rows_hang_up(rows);
    return code;
}

/* A statement's values: numbers and texts, and at most one of bytes, the last. */
struct share_values {
    int count;
    const char *value[6];
    int length[6], binary[6];
    char number[6][24];
};

static void share_add(struct share_values *values, const char *text)
{
    values->value[values->count++] = text;
}

static void share_add_number(struct share_values *values, int64_t number)
{
    char *text = values->number[values->count];
    snprintf(text, sizeof values->number[0], "%lld", (long long)number);
    share_add(values, text);
}

static void share_add_bytes(struct share_values *values, const void *bytes, size_t size)
{
    values->length[values->count] = (int)size;
    values->binary[values->count] = 1;
    share_add(values, bytes);
}

/* The values that name a tile: $1 and $2. */
static void share_add_tile(struct share_values *values, int64_t task, int n)
{
    share_add_number(values, task);
    share_add_number(values, n);
}

/* Its rows are binary: texts as they are. Without a lasting connection after a failure. PQclear(*out). */
static enum error_code share_do(struct share_rows *rows, const char *sql, const struct share_values *values,
                                PGresult **out, struct error *err)
{
    enum error_code code = share_rows_connect(rows, err);
    if (code)
        return code;
    PGresult *result =
        PQsendQueryParams(rows->db, sql, values->count, NULL, values->value, values->length, values->binary, 1)
            ? pg_receive(rows->db)
            : NULL;
    const ExecStatusType status = result ? PQresultStatus(result) : PGRES_FATAL_ERROR;
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
        code = pg_failed(rows->db, result, err);
        PQclear(result);
        share_rows_hang_up(rows);
        return code;
    }
    if (out)
        *out = result;
    else
        PQclear(result);
    return OK;
}

static int64_t share_number(const PGresult *result, int row, int column)
{
    return strtoll(PQgetvalue(result, row, column), NULL, 10);
}

/* How many rows a statement has changed that returns none. */
static enum error_code share_change(struct share_rows *rows, const char *sql, const struct share_values *values,
                                    bool *changed, struct error *err)
{
    PGresult *result = NULL;
    const enum error_code code = share_do(rows, sql, values, &result, err);
    *changed = !code && atoi(PQcmdTuples(result)) > 0;
    if (!code)
        PQclear(result);
    return code;
}

/* --- whose picture it is -------------------------------------------------------------------------------------------
 */

static enum error_code share_rows_sweep(struct share_rows *rows, struct error *err)
{
    const struct share_values none = {0};
    return share_do(rows, "DELETE FROM shared_tasks_1 t WHERE NOT EXISTS (" SHARE_ALIVE "t.owner)", &none, NULL, err);
}

enum error_code share_rows_begin(struct share_rows *rows, const char *owner, const char *job, const char *class,
                                 const char *model, int64_t *task, struct error *err)
{
    struct share_values values = {0}, old = {0};
    PGresult *result = NULL;
    share_add(&old, job);
    share_add(&values, owner);
    share_add(&values, job);
    share_add(&values, class);
    share_add(&values, model);
    enum error_code code = share_rows_sweep(rows, err);
    if (!code)
        code = share_do(rows, "DELETE FROM shared_tasks_1 WHERE job = $1", &old, NULL, err);
    if (!code)
        code = share_do(rows,
                        "WITH begun AS (INSERT INTO shared_tasks_1 (owner, job, class, model, wanted)"
                        " VALUES ($1, $2, $3, $4, 0) RETURNING task)"
                        " SELECT task::text, pg_notify('restored', '" SHARE_CALL "') FROM begun",
                        &values, &result, err);
    if (!code)
        *task = share_number(result, 0, 0);
    PQclear(result);
    return code;
}

enum error_code share_rows_end(struct share_rows *rows, const char *owner, const char *job, struct error *err)
{
    struct share_values values = {0};
    share_add(&values, owner);
    share_add(&values, job);
    return share_do(rows, "DELETE FROM shared_tasks_1 WHERE owner = $1 AND job = $2", &values, NULL, err);
}

enum error_code share_rows_look(struct share_rows *rows, int64_t task, struct share_look *out, struct error *err)
{
    struct share_values values = {0};
    PGresult *result = NULL;
    share_add_number(&values, task);
    *out = (struct share_look){0};
    const enum error_code code =
        share_do(rows,
                 "WITH freed AS (UPDATE shared_tiles_1 SET state = 0, helper = '' WHERE task = $1::bigint AND state = 1"
                 " AND NOT EXISTS (" SHARE_ALIVE "helper) RETURNING n)"
                 " SELECT '-1', (wanted > " SHARE_NOW " - " SHARE_WANTED_MS ")::int::text FROM shared_tasks_1"
                 " WHERE task = $1::bigint UNION ALL"
                 " SELECT n::text, CASE WHEN n IN (SELECT n FROM freed) THEN '0' ELSE state::text END"
                 " FROM shared_tiles_1 WHERE task = $1::bigint",
                 &values, &result, err);
    bool there = false;
    for (int row = 0; !code && row < PQntuples(result); row++) {
        const int n = (int)share_number(result, row, 0), value = (int)share_number(result, row, 1);
        if (n < 0) {
            there = true;
            out->wanted = value;
        } else if (out->count < SHARE_ROWS_MOST) {
            out->tiles[out->count++] = (struct share_look_tile){n, (enum share_state)value};
        }
    }
    PQclear(result);
    return code || there ? code : error_set(err, ERROR_NOT_FOUND, "the database has lost the shared tiles");
}

enum error_code share_rows_offer(struct share_rows *rows, int64_t task, int n, const char *spec, const void *input,
                                 size_t size, struct error *err)
{
    struct share_values values = {0};
    share_add_tile(&values, task, n);
    share_add(&values, spec);
    share_add_bytes(&values, input, size);
    return share_do(rows,
                    "INSERT INTO shared_tiles_1 (task, n, state, helper, spec, input)"
                    " VALUES ($1::bigint, $2::integer, 0, '', $3, $4::bytea)",
                    &values, NULL, err);
}

enum error_code share_rows_withdraw(struct share_rows *rows, int64_t task, int *n, struct error *err)
{
    struct share_values values = {0};
    PGresult *result = NULL;
    share_add_tile(&values, task, *n);
    const enum error_code code =
        share_do(rows,
                 "DELETE FROM shared_tiles_1 WHERE task = $1::bigint AND n = (SELECT n FROM shared_tiles_1 WHERE"
                 " task = $1::bigint AND (n = $2::integer AND state IN (0, 3) OR $2::integer < 0 AND state = 0)"
                 " ORDER BY n LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING n::text",
                 &values, &result, err);
    *n = !code && PQntuples(result) ? (int)share_number(result, 0, 0) : -1;
    PQclear(result);
    return code;
}

enum error_code share_rows_fetch(struct share_rows *rows, int64_t task, int n, void **out, size_t *size,
                                 struct error *err)
{
    struct share_values values = {0};
    PGresult *result = NULL;
    share_add_tile(&values, task, n);
    enum error_code code = share_do(rows,
                                    "DELETE FROM shared_tiles_1 WHERE task = $1::bigint AND n = $2::integer"
                                    " AND state = 2 RETURNING output",
                                    &values, &result, err);
    if (!code && PQntuples(result) != 1)
        code = error_set(err, ERROR_CORRUPT, "a shared tile that was there is gone");
    *size = code ? 0 : (size_t)PQgetlength(result, 0, 0);
    *out = code ? NULL : mem_alloc(*size + 1, 1);
    if (*out)
        memcpy(*out, PQgetvalue(result, 0, 0), *size);
    else if (!code)
        code = error_set(err, ERROR_NO_MEMORY, "no memory for a shared tile");
    PQclear(result);
    return code;
}

enum error_code share_rows_drop(struct share_rows *rows, int64_t task, int n, struct error *err)
{
    struct share_values values = {0};
    share_add_tile(&values, task, n);
    return share_do(rows, "DELETE FROM shared_tiles_1 WHERE task = $1::bigint AND n = $2::integer", &values, NULL, err);
}

/* --- who helps -----------------------------------------------------------------------------------------------------
 */

enum error_code share_rows_find(struct share_rows *rows, const char *owner, const char *class, share_rows_has_fn *has,
                                void *context, int64_t *task, char model[256], struct error *err)
{
    struct share_values values = {0}, wish = {0};
    PGresult *result = NULL;
    share_add(&values, owner);
    share_add(&values, class);
    *task = 0;
    enum error_code code =
        share_do(rows,
                 "SELECT task::text, model FROM shared_tasks_1 t WHERE owner <> $1 AND class = $2"
                 " AND EXISTS (" SHARE_ALIVE "t.owner)"
                 " ORDER BY EXISTS (SELECT 1 FROM shared_tiles_1 n WHERE n.task = t.task AND state = 0) DESC,"
                 " wanted, task",
                 &values, &result, err);
    for (int row = 0; !code && !*task && row < PQntuples(result); row++)
        if (has(context, PQgetvalue(result, row, 1))) {
            *task = share_number(result, row, 0);
            snprintf(model, 256, "%s", PQgetvalue(result, row, 1));
        }
    PQclear(result);
    if (code || !*task)
        return code;
    share_add_number(&wish, *task);
    return share_do(rows, "UPDATE shared_tasks_1 SET wanted = " SHARE_NOW " WHERE task = $1::bigint", &wish, NULL, err);
}

enum error_code share_rows_claim(struct share_rows *rows, int64_t task, const char *helper, bool ahead,
                                 struct share_tile *out, bool *found, struct error *err)
{
    struct share_values values = {0};
    PGresult *result = NULL;
    share_add_number(&values, task);
    share_add(&values, helper);
    share_add_number(&values, ahead);
    *out = (struct share_tile){.task = task};
    *found = false;
    enum error_code code =
        share_do(rows,
                 "WITH wish AS (UPDATE shared_tasks_1 SET wanted = " SHARE_NOW " WHERE task = $1::bigint)"
                 " UPDATE shared_tiles_1 SET state = 1, helper = $2 WHERE task = $1::bigint AND n ="
                 " (SELECT n FROM shared_tiles_1 WHERE task = $1::bigint AND state = 0 AND"
                 " ($3::integer = 0 OR (SELECT count(*) FILTER (WHERE state = 0) >"
                 " count(DISTINCT helper) FILTER (WHERE state = 1) FROM shared_tiles_1"
                 " WHERE task = $1::bigint)) ORDER BY n LIMIT 1 FOR UPDATE SKIP LOCKED)"
                 " RETURNING n::text, spec, input",
                 &values, &result, err);
    *found = !code && PQntuples(result) == 1;
    if (*found) {
        out->n = (int)share_number(result, 0, 0);
        snprintf(out->spec, sizeof out->spec, "%s", PQgetvalue(result, 0, 1));
        out->size = (size_t)PQgetlength(result, 0, 2);
        out->input = mem_alloc(out->size + 1, 1);
        if (out->input)
            memcpy(out->input, PQgetvalue(result, 0, 2), out->size);
        else
            code = error_set(err, ERROR_NO_MEMORY, "no memory for a shared tile");
    }
    PQclear(result);
    return code;
}

enum error_code share_rows_deliver(struct share_rows *rows, const struct share_tile *tile, const char *helper,
                                   const void *output, size_t size, bool *held, struct error *err)
{
    struct share_values values = {0};
    share_add_tile(&values, tile->task, tile->n);
    share_add(&values, helper);
    share_add_bytes(&values, output, size);
    return share_change(rows,
                        "UPDATE shared_tiles_1 SET state = 2, input = NULL, output = $4::bytea WHERE"
                        " task = $1::bigint AND n = $2::integer AND state = 1 AND helper = $3",
                        &values, held, err);
}

enum error_code share_rows_return(struct share_rows *rows, const struct share_tile *tile, const char *helper,
                                  bool failed, struct error *err)
{
    struct share_values values = {0};
    share_add_tile(&values, tile->task, tile->n);
    share_add(&values, helper);
    share_add_number(&values, failed ? SHARE_FAILED : SHARE_OFFERED);
    return share_do(rows,
                    "UPDATE shared_tiles_1 SET state = $4::smallint, helper = '' WHERE task = $1::bigint"
                    " AND n = $2::integer AND state = 1 AND helper = $3",
                    &values, NULL, err);
}

#endif
