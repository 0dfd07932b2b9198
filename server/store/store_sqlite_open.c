/* Opens SQLite's file, or makes it. */
#include "server/store/store_sqlite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/mem.h"
#include "server/store/store_sqlite_sql.h"

#define STORE_APPLICATION 0x72737464 /* "rstd", in the file's header */
#define STORE_BUSY_MS 1000           /* for a program that looks at the file; there is no other writer */
#define STORE_TEXT_MAX (256 << 20)   /* a longer text in a file is damage */

static sqlite3 *store_db(const struct side *side)
{
    return ((const struct sqlite_link *)side->link)->db;
}

static enum error_code store_exec(struct side *side, const char *sql, struct error *err)
{
    errno = 0;
    const int rc = sqlite3_exec(store_db(side), sql, NULL, NULL, NULL);
    return rc ? store_sqlite_failed(side, rc, err) : OK;
}

/* The first value of a statement's first row, as text and as number. */
static enum error_code store_ask(struct side *side, const char *sql, char text[64], int64_t *number, struct error *err)
{
    sqlite3_stmt *s = NULL;
    errno = 0;
    int rc = sqlite3_prepare_v2(store_db(side), sql, -1, &s, NULL);
    *text = 0;
    *number = 0;
    if (!rc && (rc = sqlite3_step(s)) == SQLITE_ROW) {
        const char *value = (const char *)sqlite3_column_text(s, 0);
        snprintf(text, 64, "%s", value ? value : "");
        *number = sqlite3_column_int64(s, 0);
        rc = SQLITE_OK;
    }
    const enum error_code code = rc && rc != SQLITE_DONE ? store_sqlite_failed(side, rc, err) : OK;
    sqlite3_finalize(s);
    return code;
}

/* A connection to the file, which is there. Nothing of it is changed yet, not even when it is closed. */
static enum error_code store_connect(struct side *side, const char *path, struct error *err)
{
    struct sqlite_link *link = side->link = mem_calloc(1, sizeof *link);
    if (!link)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the store of jobs");
    errno = 0;
    int rc = sqlite3_open_v2(path, &link->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc)
        return store_sqlite_failed(side, rc, err);
    sqlite3_extended_result_codes(store_db(side), 1);
    sqlite3_busy_timeout(store_db(side), STORE_BUSY_MS);
    sqlite3_limit(store_db(side), SQLITE_LIMIT_LENGTH, STORE_TEXT_MAX);
    sqlite3_db_config(store_db(side), SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(store_db(side), SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_db_config(store_db(side), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    return store_exec(side, "PRAGMA cell_size_check = ON; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -8192", err);
}

/* In a transaction: the steps of the schema that came after one version, up to another. */
static enum error_code store_take_steps(struct side *side, int from, int to, struct error *err)
{
    char sql[64];
    enum error_code code = OK;
    for (size_t i = 0; !code && i < sizeof store_sql_schema / sizeof *store_sql_schema; i++)
        if (store_sql_schema[i].version > from && store_sql_schema[i].version <= to)
            code = store_exec(side, store_sql_schema[i].sql, err);
    snprintf(sql, sizeof sql, "PRAGMA user_version = %d", to);
    return code ? code : store_exec(side, sql, err);
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
    enum error_code code = store_connect(&store->write, path, err);
    if (!code)
        code = store_exec(&store->write, "PRAGMA synchronous = FULL; BEGIN", err);
    if (!code)
        code = store_take_steps(&store->write, 0, STORE_SQL_VERSION, err);
    snprintf(sql, sizeof sql, "PRAGMA application_id = %d; COMMIT", STORE_APPLICATION);
    if (!code)
        code = store_exec(&store->write, sql, err);
    store_sqlite_disconnect(&store->write);
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
        error_local(err, ": %s-wal. Put the store back", store->path);
        return ERROR_CORRUPT;
    }
    enum error_code code = store_make(store, err);
    return code ? code : store_sync_folder(store, err);
}

/* Whether its tables and indexes are those of this version, made anew in memory, and no others. */
static enum error_code store_compare_tables(struct store *store, int version, struct error *err)
{
    static const char same[] = "SELECT count(*) FROM sqlite_schema WHERE sql = ?1";
    struct side model = {.store = store}, *side = &store->write;
    sqlite3_stmt *expected = NULL, *found = NULL;
    char text[64];
    int64_t tables = 0;
    int rc = SQLITE_OK;
    enum error_code code = store_connect(&model, ":memory:", err);
    if (!code)
        code = store_take_steps(&model, 0, version, err);
    if (!code)
        code = store_ask(side, "SELECT count(*) FROM sqlite_schema WHERE sql IS NOT NULL", text, &tables, err);
    if (!code)
        rc = sqlite3_prepare_v2(store_db(&model), "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL", -1, &expected,
                                NULL);
    if (!code && !rc)
        rc = sqlite3_prepare_v2(store_db(side), same, -1, &found, NULL);
    while (!code && !rc && sqlite3_step(expected) == SQLITE_ROW) {
        rc = sqlite3_bind_text(found, 1, (const char *)sqlite3_column_text(expected, 0), -1, SQLITE_TRANSIENT);
        if (!rc && (rc = sqlite3_step(found)) == SQLITE_ROW) {
            tables -= sqlite3_column_int64(found, 0) == 1 ? 1 : INT32_MAX;
            rc = sqlite3_reset(found);
        }
    }
    if (!code && rc)
        code = store_sqlite_failed(side, rc, err);
    sqlite3_finalize(expected);
    sqlite3_finalize(found);
    store_sqlite_disconnect(&model);
    return code || !tables ? code : store_damaged(store, err);
}

/* The steps that came after its version, all or none. */
static enum error_code store_bring_up(struct store *store, int version, struct error *err)
{
    struct error ignored = ERROR_INIT;
    enum error_code code = store_exec(&store->write, "BEGIN IMMEDIATE", err);
    if (code)
        return code;
    code = store_take_steps(&store->write, version, STORE_SQL_VERSION, err);
    if (!code)
        code = store_exec(&store->write, "COMMIT", err);
    if (code)
        (void)!store_exec(&store->write, "ROLLBACK", &ignored);
    return code;
}

/* Is it a store of ours, of this version, with these tables and no others? */
static enum error_code store_check_tables(struct store *store, struct error *err)
{
    struct side *side = &store->write;
    char text[64];
    int64_t application, version;
    enum error_code code = store_ask(side, "PRAGMA application_id", text, &application, err);
    if (!code)
        code = store_ask(side, "PRAGMA user_version", text, &version, err);
    if (code)
        return code;
    if (application != STORE_APPLICATION || version < 1) {
        error_set(err, ERROR_CORRUPT, "the store of jobs is another program's file, or damaged");
        error_local(err, ": %s. It is left as it is", store->path);
        return ERROR_CORRUPT;
    }
    if (version > STORE_SQL_VERSION) {
        error_set(err, ERROR_UNSUPPORTED,
                  "the store of jobs was written by a newer version of this program (format %lld; this one knows %d)",
                  (long long)version, STORE_SQL_VERSION);
        error_local(err, ": %s. Use that version", store->path);
        return ERROR_UNSUPPORTED;
    }
    code = store_compare_tables(store, (int)version, err);
    return !code && version < STORE_SQL_VERSION ? store_bring_up(store, (int)version, err) : code;
}

/* The table of jobs and its indexes. Reports are too many to read at every start: a damaged one shows when it is asked
 * for. */
static enum error_code store_check_rows(struct store *store, struct error *err)
{
    char text[64];
    int64_t number;
    enum error_code code = store_ask(&store->write, "PRAGMA quick_check(jobs)", text, &number, err);
    if (!code && strcmp(text, "ok") != 0) {
        code = store_damaged(store, err);
        error_detail(err, "sqlite=\"%s\"", text);
    }
    return code;
}

enum error_code store_sqlite_open(struct store **out, const char *path, struct error *err)
{
    char mode[64];
    int64_t number;
    struct store *store = *out = store_new(&store_sqlite, path, err);
    if (!store)
        return err->code;
    enum error_code code = store_make_missing(store, err);
    if (!code)
        code = store_connect(&store->write, path, err);
    if (!code)
        code = store_check_tables(store, err);
    if (!code)
        code = store_check_rows(store, err);
    if (!code)
        code = store_ask(&store->write, "PRAGMA journal_mode = WAL", mode, &number, err);
    if (!code && strcmp(mode, "wal") != 0) {
        code = error_set(err, ERROR_IO, "the store of jobs cannot have a journal (WAL) on this file system");
        error_local(err, ": %s", path);
    }
    /* What is removed is overwritten where that costs no more writing. The journal stays, as short as this. */
    if (!code)
        code = store_exec(
            &store->write,
            "PRAGMA synchronous = FULL; PRAGMA secure_delete = FAST; PRAGMA journal_size_limit = 16777216", err);
    if (!code)
        code = store_connect(&store->read, path, err);
    if (!code)
        code = store_exec(&store->read, "PRAGMA query_only = ON", err);
    if (!code)
        sqlite3_db_config(store_db(&store->write), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
    if (!code)
        code = store_count_ended(store, err);
    if (code == ERROR_CORRUPT || code == ERROR_UNSUPPORTED)
        error_local(err, ". To start with an empty one, move %s* and the folder spool beside it away, all together",
                    path);
    if (code)
        store_close(out);
    return code;
}
