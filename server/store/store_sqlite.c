/* Long because it is the whole of the store on SQLite. */
#include "server/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/mem.h"
#include "server/store/store_sql.h"

#define STORE_APPLICATION 0x72737464 /* "rstd", in the file's header */
#define STORE_BUSY_MS 1000           /* for a program that looks at the file; there is no other writer */
#define STORE_TEXT_MAX (256 << 20)   /* a longer text in a file is damage */

/* A connection and its statements, each prepared once. */
struct side {
    struct store *store;
    sqlite3 *db;
    sqlite3_stmt *statements[STORE_STATEMENTS];
};

struct store {
    struct side write, read;
    pthread_mutex_t lock;   /* of the reading side */
    bool begun;             /* between begin and commit */
    enum error_code undone; /* SQLite has rolled that back by itself, for this reason */
    char path[];
};

/* --- errors --------------------------------------------------------------------------------------------------------
 */

static bool store_no_room(int rc, int number)
{
    return rc == SQLITE_FULL || (rc == SQLITE_IOERR && (number == ENOSPC || number == EDQUOT || number == EFBIG));
}

/* What SQLite said last, in our terms. It keeps no number for what fails in a commit; errno has it, if it was 0 before.
 */
static enum error_code store_failed(const struct side *side, int rc, struct error *err)
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
        code = error_set(err, ERROR_NO_MEMORY, "no memory for the store of jobs");
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

static enum error_code store_damaged(const struct store *store, struct error *err)
{
    error_set(err, ERROR_CORRUPT, "the store of jobs is damaged");
    error_local(err, ": %s", store->path);
    return ERROR_CORRUPT;
}

/* --- statements ----------------------------------------------------------------------------------------------------
 */

/* A statement at work: query_start, query_row until it is false, query_end. */
struct query {
    struct side *side;
    sqlite3_stmt *s;
    bool done; /* it has had its last row; another step would carry it out once more */
    enum error_code code;
    struct error *err;
};

/* types: a letter for each of $1, $2 …: t text or NULL, b 32 bytes or NULL, i int64_t, d double. The values must stay
 * until the end. */
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

static struct query query_start(struct side *side, enum store_statement which, struct error *err, const char *types,
                                ...)
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

/* The next row; false: there is none, or it failed. */
static bool query_row(struct query *query)
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

/* A statement that writes has been carried out only when it was asked for all its rows, so this does. */
static enum error_code query_end(struct query *query)
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

/* --- a row ---------------------------------------------------------------------------------------------------------
 */

static const char *query_text(const struct query *query, int column)
{
    const char *text = (const char *)sqlite3_column_text(query->s, column);
    return text ? text : "";
}

/* A copy; NULL for NULL. */
static char *query_copy(struct query *query, int column)
{
    const char *text = (const char *)sqlite3_column_text(query->s, column);
    char *copy = text ? strdup(text) : NULL;
    if (!copy && sqlite3_column_type(query->s, column) != SQLITE_NULL && !query->code)
        query->code = error_set(query->err, ERROR_NO_MEMORY, "no memory for a job's texts");
    return copy;
}

/* Ids name files, so one from a damaged store must not be anything else. */
static bool store_id_sane(const char *id)
{
    const size_t length = strspn(id, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
    return length > 0 && length < 33 && !id[length];
}

static bool query_id(struct query *query, int column, char id[33])
{
    const char *text = query_text(query, column);
    if (!store_id_sane(text)) {
        *id = 0;
        if (!query->code)
            query->code = store_damaged(query->side->store, query->err);
        return false;
    }
    strcpy(id, text);
    return true;
}

static double query_double(const struct query *query, int column)
{
    const double value = sqlite3_column_double(query->s, column);
    return isfinite(value) && value > 0 ? value : 0;
}

static uint64_t query_size(const struct query *query, int column)
{
    const int64_t value = sqlite3_column_int64(query->s, column);
    return value > 0 ? (uint64_t)value : 0;
}

static void query_field(const struct query *query, int column, char *out, size_t size)
{
    snprintf(out, size, "%s", query_text(query, column));
}

/* A row of STORE_SQL_COLUMNS, to be cleared also after a failure. */
static void query_job(struct query *query, struct store_job *job)
{
    sqlite3_stmt *s = query->s;
    *job = (struct store_job){0};
    const int64_t state = sqlite3_column_int64(s, 6), attempts = sqlite3_column_int64(s, 8);
    if (!query_id(query, 0, job->id))
        return;
    if (state < 0 || state >= STORE_STATES || attempts < 0 || attempts > INT32_MAX) {
        query->code = store_damaged(query->side->store, query->err);
        return;
    }
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
}

void store_job_clear(struct store_job *job)
{
    free(job->options);
    free(job->report);
    free(job->parts);
    free(job->error);
    *job = (struct store_job){0};
}

/* --- opening -------------------------------------------------------------------------------------------------------
 */

static void side_close(struct side *side)
{
    for (int i = 0; i < STORE_STATEMENTS; i++)
        sqlite3_finalize(side->statements[i]);
    sqlite3_close(side->db);
    *side = (struct side){.store = side->store};
}

static enum error_code side_exec(struct side *side, const char *sql, struct error *err)
{
    errno = 0;
    const int rc = sqlite3_exec(side->db, sql, NULL, NULL, NULL);
    return rc ? store_failed(side, rc, err) : OK;
}

/* The first value of a statement's first row, as text and as number. */
static enum error_code side_ask(struct side *side, const char *sql, char text[64], int64_t *number, struct error *err)
{
    sqlite3_stmt *s = NULL;
    errno = 0;
    int rc = sqlite3_prepare_v2(side->db, sql, -1, &s, NULL);
    *text = 0;
    *number = 0;
    if (!rc && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        const char *value = (const char *)sqlite3_column_text(s, 0);
        snprintf(text, 64, "%s", value ? value : "");
        *number = sqlite3_column_int64(s, 0);
        rc = SQLITE_OK;
    }
    const enum error_code code = rc && rc != SQLITE_DONE ? store_failed(side, rc, err) : OK;
    sqlite3_finalize(s);
    return code;
}

/* A connection to the file, which is there. Nothing of it is changed yet, not even when it is closed. */
static enum error_code side_open(struct side *side, const char *path, struct error *err)
{
    errno = 0;
    int rc = sqlite3_open_v2(path, &side->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc)
        return store_failed(side, rc, err);
    sqlite3_extended_result_codes(side->db, 1);
    sqlite3_busy_timeout(side->db, STORE_BUSY_MS);
    sqlite3_limit(side->db, SQLITE_LIMIT_LENGTH, STORE_TEXT_MAX);
    sqlite3_db_config(side->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(side->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_db_config(side->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    return side_exec(side, "PRAGMA cell_size_check = ON; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -8192", err);
}

/* A new store beside its place, put there when it is whole. */
static enum error_code store_make(struct store *store, struct error *err)
{
    const size_t room = strlen(store->path) + 16;
    char *path = mem_alloc(room, 1), sql[128];
    if (!path)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the store of jobs");
    snprintf(path, room, "%s.new-journal", store->path); /* of a start that was cut off */
    unlink(path);
    snprintf(path, room, "%s.new", store->path);
    unlink(path);
    const int fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) {
        const enum error_code code = errno == ENOSPC || errno == EDQUOT ? ERROR_FULL : ERROR_IO;
        error_set(err, code, "the store of jobs cannot be made");
        error_local(err, ": %s: %m", store->path);
        free(path);
        return code;
    }
    close(fd);
    enum error_code code = side_open(&store->write, path, err);
    if (!code)
        code = side_exec(&store->write, "PRAGMA synchronous = FULL; BEGIN", err);
    for (size_t i = 0; !code && i < sizeof store_sql_schema / sizeof *store_sql_schema; i++)
        code = side_exec(&store->write, store_sql_schema[i], err);
    snprintf(sql, sizeof sql, "PRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT", STORE_APPLICATION,
             STORE_SQL_VERSION);
    if (!code)
        code = side_exec(&store->write, sql, err);
    side_close(&store->write);
    if (!code && rename(path, store->path)) {
        code = error_set(err, ERROR_IO, "the store of jobs cannot be made");
        error_local(err, ": %s: %m", store->path);
    }
    if (code)
        unlink(path);
    free(path);
    return code;
}

/* The folder, so that the new name lasts. */
static enum error_code store_sync_folder(struct store *store, struct error *err)
{
    char *folder = strdup(store->path), *slash = folder ? strrchr(folder, '/') : NULL;
    if (slash)
        slash[slash == folder] = 0;
    const int fd = folder ? open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    enum error_code code = OK;
    if (fd < 0 || fsync(fd)) {
        code = error_set(err, ERROR_IO, "the folder of the store of jobs cannot be synchronised");
        error_local(err, ": %s: %m", store->path);
    }
    if (fd >= 0)
        close(fd);
    free(folder);
    return code;
}

/* Makes the store if nothing is there. What is there stays as it is, an empty file too. */
static enum error_code store_make_missing(struct store *store, struct error *err)
{
    const size_t room = strlen(store->path) + 8;
    char *journal = mem_alloc(room, 1);
    struct stat stat;
    if (!journal)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the store of jobs");
    snprintf(journal, room, "%s-wal", store->path);
    const bool orphan = lstat(journal, &stat) == 0 && stat.st_size > 0;
    free(journal);
    if (lstat(store->path, &stat) == 0)
        return OK;
    if (errno != ENOENT) {
        error_set(err, ERROR_IO, "the store of jobs cannot be opened");
        error_local(err, ": %s: %m", store->path);
        return ERROR_IO;
    }
    if (orphan) { /* SQLite would take it for the new file's */
        error_set(err, ERROR_CORRUPT, "the store of jobs is gone, but its journal is there");
        error_local(err, ": put %s back, or move %s-wal away", store->path, store->path);
        return ERROR_CORRUPT;
    }
    enum error_code code = store_make(store, err);
    return code ? code : store_sync_folder(store, err);
}

/* Is it a store of ours, of this version, with these tables and no others? */
static enum error_code store_check_tables(struct store *store, struct error *err)
{
    struct side *side = &store->write;
    char text[64];
    int64_t application, version, tables;
    enum error_code code = side_ask(side, "PRAGMA application_id", text, &application, err);
    if (!code)
        code = side_ask(side, "PRAGMA user_version", text, &version, err);
    if (code)
        return code;
    if (application != STORE_APPLICATION || version < 1) {
        error_set(err, ERROR_CORRUPT, "the store of jobs is another program's file, or damaged");
        error_local(err, ": %s. It is left as it is; move it away to start with an empty one", store->path);
        return ERROR_CORRUPT;
    }
    if (version > STORE_SQL_VERSION) {
        error_set(err, ERROR_UNSUPPORTED,
                  "the store of jobs was written by a newer version of this program (format %lld; this one knows %d)",
                  (long long)version, STORE_SQL_VERSION);
        error_local(err, ": %s. Use that version, or move the file away to start with an empty one", store->path);
        return ERROR_UNSUPPORTED;
    }
    const int expected = sizeof store_sql_schema / sizeof *store_sql_schema;
    code = side_ask(side, "SELECT count(*) FROM sqlite_schema WHERE sql IS NOT NULL", text, &tables, err);
    sqlite3_stmt *s = NULL;
    int rc = code ? SQLITE_OK
                  : sqlite3_prepare_v2(side->db, "SELECT count(*) FROM sqlite_schema WHERE sql = ?1", -1, &s, NULL);
    for (int i = 0; !code && !rc && i < expected; i++) {
        rc = sqlite3_bind_text(s, 1, store_sql_schema[i], -1, SQLITE_STATIC);
        if (!rc && (rc = sqlite3_step(s)) == SQLITE_ROW) {
            tables -= sqlite3_column_int64(s, 0) == 1 ? 0 : expected + 1;
            rc = sqlite3_reset(s);
        }
    }
    if (!code && rc)
        code = store_failed(side, rc, err);
    sqlite3_finalize(s);
    return code || tables == expected ? code : store_damaged(store, err);
}

/* The table of jobs and its indexes. Reports are too many to read at every start: a damaged one shows when it is asked
 * for. */
static enum error_code store_check_rows(struct store *store, struct error *err)
{
    char text[64];
    int64_t number;
    enum error_code code = side_ask(&store->write, "PRAGMA quick_check(jobs)", text, &number, err);
    if (!code && strcmp(text, "ok") != 0) {
        code = store_damaged(store, err);
        error_detail(err, "sqlite=\"%s\"", text);
    }
    return code;
}

enum error_code store_open(struct store **out, const char *path, struct error *err)
{
    char mode[64];
    int64_t number;
    struct store *store = *out = mem_calloc(1, sizeof *store + strlen(path) + 1);
    if (!store)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the store of jobs");
    strcpy(store->path, path);
    pthread_mutex_init(&store->lock, NULL);
    store->write.store = store->read.store = store;
    enum error_code code = store_make_missing(store, err);
    if (!code)
        code = side_open(&store->write, path, err);
    if (!code)
        code = store_check_tables(store, err);
    if (!code)
        code = store_check_rows(store, err);
    if (!code)
        code = side_ask(&store->write, "PRAGMA journal_mode = WAL", mode, &number, err);
    if (!code && strcmp(mode, "wal") != 0) {
        code = error_set(err, ERROR_IO, "the store of jobs cannot have a journal (WAL) on this file system");
        error_local(err, ": %s", path);
    }
    /* What is removed is overwritten where that costs no more writing. The journal stays, as short as this. */
    if (!code)
        code = side_exec(&store->write,
                         "PRAGMA synchronous = FULL; PRAGMA secure_delete = FAST; PRAGMA journal_size_limit = 16777216",
                         err);
    if (!code)
        code = side_open(&store->read, path, err);
    if (!code)
        code = side_exec(&store->read, "PRAGMA query_only = ON", err);
    if (!code)
        sqlite3_db_config(store->write.db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
    if (code)
        store_close(out);
    return code;
}

void store_close(struct store **store)
{
    struct store *old = *store;
    *store = NULL;
    if (!old)
        return;
    side_close(&old->read);
    side_close(&old->write); /* the last one: what is in the journal goes into the file */
    pthread_mutex_destroy(&old->lock);
    free(old);
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
    if (!store_id_sane(job->id))
        return error_set(err, ERROR_INTERNAL, "a job's id must be letters and digits");
    const int64_t low = job->low, bytes = job->input_bytes < INT64_MAX ? (int64_t)job->input_bytes : INT64_MAX;
    struct query query = query_start(&store->write, STORE_INSERT, err, "tttttiididttb", job->id, job->client,
                                     job->token, job->batch, job->name, low, job->created, store_amount(job->seconds),
                                     bytes, store_amount(job->megapixels), job->options, key, key ? hash : NULL);
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
    query_id(&query, 0, existing);
    return query_end(&query);
}

/* Ends the jobs at work whose lease is over by then and that are not to be tried again. */
static enum error_code store_end_over(struct store *store, int64_t over, int64_t now, int64_t expires, int max_attempts,
                                      struct error *err)
{
    char reason[256];
    snprintf(reason, sizeof reason,
             "{\"code\": \"%s\", \"text\": \"the server ended %d times while it worked on this picture, and does not "
             "try again\", \"decoded\": false}",
             error_code_name(ERROR_INTERNAL), max_attempts);
    struct query query =
        query_start(&store->write, STORE_END_OVER, err, "iiiti", now, expires, over, reason, (int64_t)max_attempts);
    return query_end(&query);
}

enum error_code store_claim(struct store *store, const char *owner, int64_t now, int64_t lease, int64_t expires,
                            int max_attempts, struct store_job *out, bool *found, struct error *err)
{
    *out = (struct store_job){0};
    *found = false;
    enum error_code code = store_do(store, STORE_SAVE, err);
    if (code)
        return code;
    code = store_end_over(store, now, now, expires, max_attempts, err);
    if (!code) {
        struct query query = query_start(&store->write, STORE_CLAIM, err, "tii", owner, now, lease);
        *found = query_row(&query);
        if (*found)
            query_job(&query, out);
        code = query_end(&query);
    }
    code = store_end_part(store, code, err);
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
        query_start(&store->write, STORE_FINISH, err, "ttiiiiit", job->id, owner, (int64_t)job->attempts,
                    (int64_t)job->state, job->finished, job->expires, bytes, job->error);
    const bool row = query_row(&query);
    const int64_t number = row ? sqlite3_column_int64(query.s, 0) : 0;
    code = query_end(&query);
    if (!code && row && (job->report || job->parts)) {
        query = query_start(&store->write, STORE_RESULT, err, "itt", number, job->report, job->parts);
        code = query_end(&query);
    }
    code = store_end_part(store, code, err);
    *held = row && !code;
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
    code = store_end_over(store, INT64_MAX, now, expires, max_attempts, err);
    if (!code)
        code = store_do(store, STORE_WAIT_AGAIN, err);
    return store_end_part(store, code, err);
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
    return query_end(&query);
}

enum error_code store_forget(struct store *store, const char *id, bool *found, struct error *err)
{
    *found = false;
    enum error_code code = store_do(store, STORE_SAVE, err);
    if (code)
        return code;
    struct query query = query_start(&store->write, STORE_FORGET_RESULT, err, "t", id);
    bool row = false;
    code = query_end(&query);
    if (!code) {
        query = query_start(&store->write, STORE_FORGET, err, "t", id);
        row = query_row(&query);
        code = query_end(&query);
    }
    code = store_end_part(store, code, err);
    *found = row && !code;
    return code;
}

enum error_code store_expire(struct store *store, int64_t now, int most, store_id_fn *each, void *context,
                             struct error *err)
{
    char id[33];
    enum error_code code = store_do(store, STORE_SAVE, err);
    if (code)
        return code;
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
        while (query_row(&query))
            if (query_id(&query, 0, id))
                each(context, id);
        code = query_end(&query);
    }
    return store_end_part(store, code, err);
}

/* --- reading -------------------------------------------------------------------------------------------------------
 */

enum error_code store_get(struct store *store, const char *id, struct store_job *out, bool *found, struct error *err)
{
    *out = (struct store_job){0};
    pthread_mutex_lock(&store->lock);
    struct query query = query_start(&store->read, STORE_GET, err, "t", id);
    *found = query_row(&query);
    if (*found) {
        query_job(&query, out);
        out->report = query_copy(&query, 20);
        out->parts = query_copy(&query, 21);
    }
    const enum error_code code = query_end(&query);
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

/* A job's place in lists. */
static enum error_code store_after(struct store *store, const char *id, int64_t *created, int64_t *number,
                                   struct error *err)
{
    struct query query = query_start(&store->read, STORE_AFTER, err, "t", id);
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
    enum error_code code = *filter->after ? store_after(store, filter->after, &created, &number, err) : OK;
    if (!code) {
        struct query query =
            query_start(&store->read, store_of(STORE_LIST, filter->token, filter->batch), err, "ttiiiii", filter->token,
                        filter->batch, states, filter->since, created, number, (int64_t)filter->limit + 1);
        for (int i = 0; query_row(&query); i++) {
            struct store_job job;
            if (i >= filter->limit) {
                *more = true;
                break;
            }
            query_job(&query, &job);
            if (!query.code)
                each(context, &job);
            store_job_clear(&job);
        }
        code = query_end(&query);
    }
    pthread_mutex_unlock(&store->lock);
    return code;
}

enum error_code store_count(struct store *store, const char *batch, const char *token, struct store_counts *out,
                            struct error *err)
{
    *out = (struct store_counts){0};
    pthread_mutex_lock(&store->lock);
    struct query query = query_start(&store->read, store_of(STORE_COUNT, token, batch), err, "tt", token, batch);
    while (query_row(&query)) {
        const int64_t state = sqlite3_column_int64(query.s, 0);
        if (state >= 0 && state < STORE_STATES)
            out->jobs[state] = query_size(&query, 1);
    }
    enum error_code code = query_end(&query);
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

enum error_code store_waiting(struct store *store, const char *client, uint64_t *out, struct error *err)
{
    *out = 0;
    pthread_mutex_lock(&store->lock);
    struct query query = query_start(&store->read, STORE_WAITING, err, "t", client);
    if (query_row(&query))
        *out = query_size(&query, 0);
    const enum error_code code = query_end(&query);
    pthread_mutex_unlock(&store->lock);
    return code;
}

enum error_code store_position(struct store *store, const char *id, uint64_t *ahead, double *seconds, bool *found,
                               struct error *err)
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
        if (query_id(&query, 0, id))
            each(context, id, state <= STORE_RUNNING, state == STORE_DONE);
    }
    const enum error_code code = query_end(&query);
    pthread_mutex_unlock(&store->lock);
    return code;
}
