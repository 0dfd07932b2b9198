/* SQLite's engine: statements, and what its failures are called. */
#include "server/store/store_sqlite.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/store/query.h"
#include "server/store/store_sqlite_sql.h"

/* --- errors --------------------------------------------------------------------------------------------------------
 */

static bool store_no_room(int rc, int number)
{
    return rc == SQLITE_FULL || (rc == SQLITE_IOERR && (number == ENOSPC || number == EDQUOT || number == EFBIG));
}

enum error_code store_sqlite_failed(const struct side *side, int rc, struct error *err)
{
    const struct sqlite_link *link = side->link;
    const char *path = side->store->path;
    const int number = link && link->db && sqlite3_system_errno(link->db) ? sqlite3_system_errno(link->db) : errno;
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
        code =
            error_set(err, ERROR_NO_MEMORY, "no memory for the store of jobs, or it is damaged and asks for too much");
        error_local(err, ": %s", path);
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
    error_detail(err, "sqlite=%d errno=%d text=\"%s\"", rc, number, link && link->db ? sqlite3_errmsg(link->db) : "");
    if (side == &side->store->write && side->store->begun && link && sqlite3_get_autocommit(link->db))
        side->store->undone = code;
    return code;
}

/* --- statements ----------------------------------------------------------------------------------------------------
 */

static void sqlite_bind(struct query *query, const char *types, va_list values)
{
    sqlite3_stmt *s = query->work;
    for (int i = 0; types[i]; i++) {
        char name[16];
        snprintf(name, sizeof name, "$%d", i + 1);
        const int at = sqlite3_bind_parameter_index(s, name);
        const int64_t number = types[i] == 'i' ? va_arg(values, int64_t) : 0;
        const double amount = types[i] == 'd' ? va_arg(values, double) : 0;
        const void *data = types[i] == 't' || types[i] == 'b' ? va_arg(values, const void *) : NULL;
        const int rc = !at               ? SQLITE_OK /* a statement for any token has no $1 */
                       : types[i] == 'i' ? sqlite3_bind_int64(s, at, number)
                       : types[i] == 'd' ? sqlite3_bind_double(s, at, amount)
                       : types[i] == 't' ? sqlite3_bind_text(s, at, data, -1, SQLITE_STATIC)
                                         : sqlite3_bind_blob(s, at, data, 32, SQLITE_STATIC);
        if (rc && !query->code)
            query->code = store_sqlite_failed(query->side, rc, query->err);
    }
}

static void sqlite_start(struct query *query, enum store_statement which, const char *types, va_list values)
{
    struct sqlite_link *link = query->side->link;
    if (!link->statements[which]) {
        const int rc = sqlite3_prepare_v3(link->db, store_sql[which], -1, SQLITE_PREPARE_PERSISTENT,
                                          &link->statements[which], NULL);
        if (rc)
            query->code = store_sqlite_failed(query->side, rc, query->err);
    }
    query->work = link->statements[which];
    if (!query->code)
        sqlite_bind(query, types, values);
}

static bool sqlite_row(struct query *query)
{
    errno = 0;
    const int rc = sqlite3_step(query->work);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        query->code = store_sqlite_failed(query->side, rc, query->err);
    return rc == SQLITE_ROW;
}

static void sqlite_end(struct query *query)
{
    if (!query->work)
        return;
    sqlite3_reset(query->work);
    sqlite3_clear_bindings(query->work);
}

static const char *sqlite_text(const struct query *query, int column)
{
    return (const char *)sqlite3_column_text(query->work, column);
}

static bool sqlite_null(const struct query *query, int column)
{
    return sqlite3_column_type(query->work, column) == SQLITE_NULL;
}

static int64_t sqlite_integer(const struct query *query, int column)
{
    return sqlite3_column_int64(query->work, column);
}

static double sqlite_real(const struct query *query, int column)
{
    return sqlite3_column_double(query->work, column);
}

static bool sqlite_is_hash(const struct query *query, int column, const uint8_t hash[32])
{
    const void *old = sqlite3_column_blob(query->work, column);
    return sqlite3_column_bytes(query->work, column) == 32 && memcmp(old, hash, 32) == 0;
}

static int sqlite_changes(struct side *side)
{
    return sqlite3_changes(((struct sqlite_link *)side->link)->db);
}

static bool sqlite_within(struct side *side)
{
    return !sqlite3_get_autocommit(((struct sqlite_link *)side->link)->db);
}

static void sqlite_abandon(struct side *side)
{
    sqlite3_exec(((struct sqlite_link *)side->link)->db, "ROLLBACK", NULL, NULL, NULL);
}

void store_sqlite_disconnect(struct side *side)
{
    struct sqlite_link *link = side->link;
    side->link = NULL;
    if (!link)
        return;
    for (int i = 0; i < STORE_STATEMENTS; i++)
        sqlite3_finalize(link->statements[i]);
    sqlite3_close(link->db);
    free(link);
}

const struct store_engine store_sqlite = {.start = sqlite_start,
                                          .row = sqlite_row,
                                          .end = sqlite_end,
                                          .text = sqlite_text,
                                          .null = sqlite_null,
                                          .integer = sqlite_integer,
                                          .real = sqlite_real,
                                          .is_hash = sqlite_is_hash,
                                          .changes = sqlite_changes,
                                          .within = sqlite_within,
                                          .abandon = sqlite_abandon,
                                          .disconnect = store_sqlite_disconnect};
