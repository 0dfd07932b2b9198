/* PostgreSQL's engine: statements by libpq, and the tables of a database. */
#include "server/store/pg.h"
#include "server/store/store_private.h"

#ifndef RESTORED_LIBPQ

enum error_code store_pg_open(struct store **out, const char *where, const char *password_file, struct error *err)
{
    (void)where, (void)password_file;
    *out = NULL;
    return pg_available(err);
}

enum error_code store_pg_look(const char *where, const char *password_file, bool *there, struct error *err)
{
    (void)where, (void)password_file, (void)there;
    return pg_available(err);
}

#else

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/utf8.h"
#include "server/store/query.h"

#define STORE_SQL_NUMBER "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
#define STORE_SQL_OF_JOB "BIGINT PRIMARY KEY"
#define STORE_SQL_BYTES "BYTEA"
#define STORE_SQL_SKIP_LOCKED " FOR UPDATE SKIP LOCKED"
#define STORE_SQL_TEXTS(json) "value FROM json_array_elements_text((" json ")::json)"
#define STORE_SQL_BEGIN "BEGIN"
#define STORE_SQL_NOTIFY "SELECT pg_notify('restored', $1)"
/* In one statement, because several would find other jobs where another server removes some meanwhile. */
#define STORE_SQL_EXPIRE                                                                                               \
    "WITH old AS (DELETE FROM jobs WHERE number IN " STORE_SQL_EXPIRED " RETURNING id, number, state),"                \
    " reports AS (DELETE FROM results WHERE job IN (SELECT number FROM old)),"                                         \
    " ids AS (INSERT INTO gone SELECT id, $3 FROM old ON CONFLICT (id) DO NOTHING) SELECT id, state FROM old"
#define STORE_SQL_VERSION_NOW "SELECT version FROM schema_version"
#define STORE_SQL_CLOCK "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, (" STORE_SQL_VERSION_NOW ")"
#define STORE_SQL_HEX(bytes) "encode(" bytes ", 'hex')"
#define STORE_SQL_LOCK_JOBS " FOR UPDATE OF jobs"
/* Payloads in rows of 1 MiB (payload_rows.c): out of line and not compressed, because pictures already are. */
#define STORE_SQL_MORE                                                                                                 \
    {2, "CREATE TABLE payloads (name TEXT PRIMARY KEY, created BIGINT NOT NULL, size BIGINT NOT NULL)"},               \
        {2, "CREATE TABLE chunks (name TEXT, n INTEGER, data BYTEA NOT NULL, PRIMARY KEY (name, n))"},                 \
        {2, "ALTER TABLE chunks ALTER data SET STORAGE EXTERNAL"},                                                     \
        {2, "CREATE TABLE schema_version (version INTEGER NOT NULL)"},                                                 \
        {3, "CREATE TABLE models (name TEXT PRIMARY KEY, sha256 TEXT NOT NULL, bytes BIGINT NOT NULL,"                 \
            " about TEXT NOT NULL)"},
#include "server/store/store_sql.h"

#define PG_VERSION STORE_SQL_VERSION
#define PG_RETRY_MS 1000 /* between two tries to connect */
#define PG_PARAMETERS 16
#define PG_LOCK "SELECT pg_advisory_xact_lock(1919972452)" /* "rstd": who makes or changes the tables */

enum { PG_TEXT = 25, PG_BYTEA = 17, PG_INT8 = 20, PG_FLOAT8 = 701 };

struct pg_settings {
    char where[1024], password_file[1024];
    bool open;               /* the tables are there */
    _Atomic int64_t too_new; /* the version of tables that another server has changed since; 0: they are of use */
};

struct pg_link {
    PGconn *db;
    bool prepared[STORE_STATEMENTS];
    bool single;  /* a part without a transaction around it has begun one */
    bool part;    /* within a part */
    int changes;  /* of the last statement */
    int64_t next; /* when it may try to connect again */
};

/* --- connections ---------------------------------------------------------------------------------------------------
 */

static void store_pg_hang_up(struct pg_link *link)
{
    PQfinish(link->db);
    const int64_t next = link->next;
    *link = (struct pg_link){.next = next};
}

static bool store_pg_works(const struct pg_link *link)
{
    return link->db && PQstatus(link->db) == CONNECTION_OK && PQtransactionStatus(link->db) != PQTRANS_ACTIVE;
}

/* Whether the database has closed the connection since it was used; not asked in a transaction, which would be gone. */
static bool store_pg_closed(const struct pg_link *link)
{
    return PQtransactionStatus(link->db) == PQTRANS_IDLE && !pg_alive(link->db);
}

/* The first value of a statement; 0: there is none. */
static enum error_code store_pg_ask(PGconn *db, const char *sql, int64_t *out, struct error *err)
{
    PGresult *result = NULL;
    const enum error_code code = pg_do(db, sql, 0, NULL, &result, err);
    *out = !code && PQntuples(result) ? strtoll(PQgetvalue(result, 0, 0), NULL, 10) : 0;
    if (!code)
        PQclear(result);
    return code;
}

/* Another server may have changed the tables while this one runs. Once they are two steps ahead, nothing is read or
 * written any more: this server does not know what they mean. */
static enum error_code store_pg_is_known(struct store *store, int64_t version, struct error *err)
{
    struct pg_settings *settings = store->settings;
    if (version <= PG_VERSION + 1)
        return OK;
    error_set(err, ERROR_IO,
              "the store of jobs was changed by a newer version of this program (format %lld; this one knows %d, and "
              "works with %d): upgrade this server",
              (long long)version, PG_VERSION, PG_VERSION + 1);
    if (atomic_exchange(&settings->too_new, version) != version)
        log_event(LOG_ERROR, "store", "text=\"%s\"", err->text);
    atomic_store(&store->reachable, false);
    return ERROR_IO;
}

/* Connects where there is no connection. The reading side, which others wait for, only follows the writing one. */
static enum error_code store_pg_connected(struct side *side, struct error *err)
{
    struct store *store = side->store;
    struct pg_link *link = side->link;
    const struct pg_settings *settings = store->settings;
    const int64_t now = store_steady_clock();
    const bool known = !atomic_load(&settings->too_new);
    int64_t version = 0;
    if (known && store_pg_works(link) && !store_pg_closed(link))
        return OK;
    store_pg_hang_up(link);
    if (!known)
        return store_pg_is_known(store, atomic_load(&settings->too_new), err);
    const bool may = now >= link->next && (side == &store->write || atomic_load(&store->reachable));
    if (!may)
        return error_set(err, ERROR_IO, "the database of jobs cannot be reached; try again later");
    enum error_code code = pg_connect(&link->db, settings->where, settings->password_file, err);
    if (!code && settings->open)
        code = store_pg_ask(link->db, STORE_SQL_VERSION_NOW, &version, err);
    if (!code)
        code = store_pg_is_known(store, version, err);
    if (code)
        store_pg_hang_up(link);
    link->next = store_steady_clock() + PG_RETRY_MS;
    if (side == &store->write && atomic_exchange(&store->reachable, !code) == (code != OK))
        log_event(code ? LOG_ERROR : LOG_INFO, "store", "text=\"%s\"", code ? err->text : "the database is connected");
    return code;
}

static void store_pg_disconnect(struct side *side)
{
    struct pg_link *link = side->link;
    side->link = NULL;
    if (link)
        store_pg_hang_up(link);
    free(link);
}

/* --- statements ----------------------------------------------------------------------------------------------------
 */

struct pg_values {
    int count;
    const char *value[PG_PARAMETERS];
    int length[PG_PARAMETERS], binary[PG_PARAMETERS];
    Oid type[PG_PARAMETERS];
    char number[PG_PARAMETERS][32];
    char *clean[PG_PARAMETERS]; /* a text that was not UTF-8 */
};

static void store_pg_bind(struct pg_values *values, const char *types, va_list list)
{
    for (int i = 0; types[i] && i < PG_PARAMETERS; i++) {
        values->count = i + 1;
        if (types[i] == 'i') {
            snprintf(values->number[i], sizeof values->number[i], "%lld", (long long)va_arg(list, int64_t));
            values->value[i] = values->number[i];
            values->type[i] = PG_INT8;
        } else if (types[i] == 'd') {
            snprintf(values->number[i], sizeof values->number[i], "%.17g", va_arg(list, double));
            values->value[i] = values->number[i];
            values->type[i] = PG_FLOAT8;
        } else {
            values->value[i] = va_arg(list, const char *);
            values->binary[i] = types[i] == 'b';
            values->length[i] = 32;
            values->type[i] = types[i] == 'b' ? PG_BYTEA : PG_TEXT;
        }
        if (types[i] == 't' && values->value[i] && !utf8_valid(values->value[i]) &&
            (values->clean[i] = strdup(values->value[i]))) {
            utf8_clean(values->clean[i]);
            values->value[i] = values->clean[i];
        }
    }
}

/* A failed statement has ended the transaction around it, unless it was within a part, which is undone alone. */
static void store_pg_spoil(struct query *query, const PGresult *result)
{
    struct store *store = query->side->store;
    struct pg_link *link = query->side->link;
    query->code = pg_failed(link->db, result, query->err);
    const bool alive = result && store_pg_works(link);
    if (!alive && query->side == &store->write)
        atomic_store(&store->reachable, false);
    if (query->side == &store->write && store->begun && (!alive || !link->part))
        store->undone = query->code;
    if (!alive)
        store_pg_hang_up(link);
}

static void store_pg_run(struct query *query, enum store_statement which, struct pg_values *values)
{
    struct pg_link *link = query->side->link;
    char name[16];
    PGresult *result = NULL;
    snprintf(name, sizeof name, "s%d", (int)which);
    if (!link->prepared[which]) {
        result =
            PQsendPrepare(link->db, name, store_sql[which], values->count, values->type) ? pg_receive(link->db) : NULL;
        link->prepared[which] = result && PQresultStatus(result) == PGRES_COMMAND_OK;
        if (!link->prepared[which]) {
            store_pg_spoil(query, result);
            PQclear(result);
            return;
        }
        PQclear(result);
    }
    result = PQsendQueryPrepared(link->db, name, values->count, values->value, values->length, values->binary, 0)
                 ? pg_receive(link->db)
                 : NULL;
    const ExecStatusType status = result ? PQresultStatus(result) : PGRES_FATAL_ERROR;
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
        store_pg_spoil(query, result);
        PQclear(result);
        return;
    }
    link->changes = atoi(PQcmdTuples(result));
    query->work = result;
    if (which == STORE_CLOCK) /* asked now and then, so that a change of the tables is seen */
        query->code = store_pg_is_known(query->side->store, strtoll(PQgetvalue(result, 0, 1), NULL, 10), query->err);
}

/* Transactions and parts; a part without a transaction around it is one. */
static void store_pg_control(struct query *query, enum store_statement which)
{
    struct pg_link *link = query->side->link;
    const bool within = PQtransactionStatus(link->db) != PQTRANS_IDLE;
    const char *sql = store_sql[which];
    if (which == STORE_SAVE) {
        link->single = !within;
        link->part = true;
        sql = link->single ? "BEGIN" : sql;
    } else if (which == STORE_RELEASE || which == STORE_UNDO) {
        const bool single = link->single;
        link->part = which == STORE_UNDO;
        if (!within)
            return;
        if (single)
            sql = which == STORE_UNDO ? "ROLLBACK" : "COMMIT";
    }
    if (which == STORE_COMMIT || !strcmp(sql, "COMMIT"))
        query->code = pg_commit(link->db, query->err);
    else
        query->code = pg_do(link->db, sql, 0, NULL, NULL, query->err);
    if (query->code && !store_pg_works(link)) {
        atomic_store(&query->side->store->reachable, false);
        store_pg_hang_up(link);
    }
}

static void store_pg_start(struct query *query, enum store_statement which, const char *types, va_list list)
{
    struct pg_link *link = query->side->link;
    struct pg_values values = {0};
    const bool begun = query->side == &query->side->store->write && query->side->store->begun;
    if (begun && !store_pg_works(link)) { /* the transaction is gone with its connection */
        query->code = query->side->store->undone =
            error_set(query->err, ERROR_IO, "the database of jobs cannot be reached; try again later");
        return;
    }
    if ((query->code = store_pg_connected(query->side, query->err)))
        return;
    if (which <= STORE_UNDO) {
        store_pg_control(query, which);
        return;
    }
    store_pg_bind(&values, types, list);
    store_pg_run(query, which, &values);
    for (int i = 0; i < values.count; i++)
        free(values.clean[i]);
    query->at = -1;
}

static bool store_pg_row(struct query *query)
{
    return query->work && ++query->at < PQntuples(query->work);
}

static void store_pg_end(struct query *query)
{
    PQclear(query->work);
    query->work = NULL;
}

static const char *store_pg_text(const struct query *query, int column)
{
    return PQgetisnull(query->work, query->at, column) ? NULL : PQgetvalue(query->work, query->at, column);
}

static bool store_pg_null(const struct query *query, int column)
{
    return PQgetisnull(query->work, query->at, column);
}

static int64_t store_pg_integer(const struct query *query, int column)
{
    const char *text = PQgetvalue(query->work, query->at, column);
    return *text == 't' ? 1 : strtoll(text, NULL, 10);
}

static double store_pg_real(const struct query *query, int column)
{
    return strtod(PQgetvalue(query->work, query->at, column), NULL);
}

/* bytea as text: \x and digits. */
static bool store_pg_is_hash(const struct query *query, int column, const uint8_t hash[32])
{
    char text[2 + 64 + 1] = "\\x";
    for (int i = 0; i < 32; i++)
        snprintf(text + 2 + 2 * i, 3, "%02x", hash[i]);
    return !strcmp(PQgetvalue(query->work, query->at, column), text);
}

static int store_pg_changes(struct side *side)
{
    return ((struct pg_link *)side->link)->changes;
}

static bool store_pg_within(struct side *side)
{
    const struct pg_link *link = side->link;
    return store_pg_works(link) && PQtransactionStatus(link->db) != PQTRANS_IDLE;
}

static void store_pg_abandon(struct side *side)
{
    struct error ignored = ERROR_INIT;
    struct pg_link *link = side->link;
    if (pg_do(link->db, "ROLLBACK", 0, NULL, NULL, &ignored))
        store_pg_hang_up(link);
}

static const struct store_engine store_pg = {.start = store_pg_start,
                                             .row = store_pg_row,
                                             .end = store_pg_end,
                                             .text = store_pg_text,
                                             .null = store_pg_null,
                                             .integer = store_pg_integer,
                                             .real = store_pg_real,
                                             .is_hash = store_pg_is_hash,
                                             .changes = store_pg_changes,
                                             .within = store_pg_within,
                                             .abandon = store_pg_abandon,
                                             .disconnect = store_pg_disconnect};

/* --- opening -------------------------------------------------------------------------------------------------------
 */

/* The version of the tables; 0: there are none. */
static enum error_code store_pg_version(PGconn *db, int64_t *version, struct error *err)
{
    int64_t there = 0;
    *version = 0;
    enum error_code code = store_pg_ask(db,
                                        "SELECT count(*) FROM pg_tables WHERE tablename = 'schema_version'"
                                        " AND schemaname = current_schema()",
                                        &there, err);
    if (!code && there)
        code = store_pg_ask(db, STORE_SQL_VERSION_NOW, version, err);
    if (!code && *version > PG_VERSION + 1)
        return error_set(err, ERROR_UNSUPPORTED,
                         "the store of jobs was written by a newer version of this program (format %lld; this one "
                         "knows %d, and works with %d)",
                         (long long)*version, PG_VERSION, PG_VERSION + 1);
    return code;
}

/* In a transaction, with the lock: makes the tables, or brings them up to date. */
static enum error_code store_pg_tables(PGconn *db, struct error *err)
{
    int64_t version;
    char sql[96];
    enum error_code code = store_pg_version(db, &version, err);
    if (code || version >= PG_VERSION)
        return code;
    for (size_t i = 0; !code && i < sizeof store_sql_schema / sizeof *store_sql_schema; i++)
        if (store_sql_schema[i].version > version)
            code = pg_do(db, store_sql_schema[i].sql, 0, NULL, NULL, err);
    snprintf(sql, sizeof sql,
             version ? "UPDATE schema_version SET version = %d" : "INSERT INTO schema_version VALUES (%d)", PG_VERSION);
    return code ? code : pg_do(db, sql, 0, NULL, NULL, err);
}

enum error_code store_pg_look(const char *where, const char *password_file, bool *there, struct error *err)
{
    PGconn *db = NULL;
    int64_t version = 0;
    enum error_code code = pg_connect(&db, where, password_file ? password_file : "", err);
    if (!code)
        code = store_pg_version(db, &version, err);
    PQfinish(db);
    *there = version >= PG_VERSION;
    if (!code && version && !*there)
        return error_set(err, ERROR_UNSUPPORTED,
                         "the tables of this store are older ones (format %lld; this program's is %d): restored store "
                         "migrate brings them up to date, and so does the first server of this version that starts",
                         (long long)version, PG_VERSION);
    return code;
}

static enum error_code store_pg_prepare(struct store *store, struct error *err)
{
    struct pg_link *link = store->write.link;
    int64_t now = 0;
    enum error_code code = store_pg_connected(&store->write, err);
    if (!code)
        code = pg_do(link->db, "BEGIN", 0, NULL, NULL, err);
    if (!code)
        code = pg_do(link->db, PG_LOCK, 0, NULL, NULL, err);
    if (!code)
        code = store_pg_tables(link->db, err);
    if (!code)
        code = pg_commit(link->db, err);
    if (!code)
        code = store_pg_ask(link->db, STORE_SQL_CLOCK, &now, err);
    if (!code)
        atomic_store(&store->clock, now - store_steady_clock());
    ((struct pg_settings *)store->settings)->open = !code;
    return code;
}

enum error_code store_pg_open(struct store **out, const char *where, const char *password_file, struct error *err)
{
    struct store *store = *out = store_new(&store_pg, "the database of jobs", err);
    if (!store)
        return err->code;
    struct pg_settings *settings = store->settings = mem_calloc(1, sizeof *settings);
    store->write.link = mem_calloc(1, sizeof(struct pg_link));
    store->read.link = mem_calloc(1, sizeof(struct pg_link));
    store->shared = true;
    enum error_code code = OK;
    if (!settings || !store->write.link || !store->read.link)
        code = error_set(err, ERROR_NO_MEMORY, "no memory for the store of jobs");
    else if ((size_t)snprintf(settings->where, sizeof settings->where, "%s", where) >= sizeof settings->where)
        code = error_set(err, ERROR_INVALID, "store: the URI is too long");
    if (!code) {
        snprintf(settings->password_file, sizeof settings->password_file, "%s", password_file ? password_file : "");
        code = store_pg_prepare(store, err);
    }
    if (code)
        store_close(out);
    return code;
}

#endif
