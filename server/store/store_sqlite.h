/* What SQLite's two files share. Thread-safety: as in store.h. */
#ifndef SERVER_STORE_STORE_SQLITE_H
#define SERVER_STORE_STORE_SQLITE_H

#include <sqlite3.h>

#include "server/store/store_private.h"

/* A connection and its statements, each prepared once. */
struct sqlite_link {
    sqlite3 *db;
    sqlite3_stmt *statements[STORE_STATEMENTS];
};

extern const struct store_engine store_sqlite;

void store_sqlite_disconnect(struct side *side);

/* The error for what SQLite said last. It keeps no number for what fails in a commit; errno has it, if it was 0
 * before. */
enum error_code store_sqlite_failed(const struct side *side, int rc, struct error *err);

#endif
