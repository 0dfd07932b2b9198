/* The store's texts as SQLite wants them: for store_sqlite.c and store_sqlite_open.c. Thread-safety: constants. */
#ifndef SERVER_STORE_STORE_SQLITE_SQL_H
#define SERVER_STORE_STORE_SQLITE_SQL_H

#define STORE_SQL_NUMBER "INTEGER PRIMARY KEY"
#define STORE_SQL_OF_JOB "INTEGER PRIMARY KEY"
#define STORE_SQL_BYTES "BLOB"
#define STORE_SQL_SKIP_LOCKED ""
#define STORE_SQL_TEXTS(json) "value FROM json_each(" json ")"
#define STORE_SQL_BEGIN "BEGIN IMMEDIATE"
#define STORE_SQL_EXPIRE "DELETE FROM jobs WHERE number IN " STORE_SQL_EXPIRED " AND $3 > 0 RETURNING id, state"
#define STORE_SQL_NOTIFY "SELECT $1" /* nobody else has this store */
#define STORE_SQL_CLOCK "SELECT 0"
#define STORE_SQL_HEX(bytes) "hex(" bytes ")"
#define STORE_SQL_LOCK_JOBS ""
#define STORE_SQL_MORE

#include "server/store/store_sql.h"

#endif
