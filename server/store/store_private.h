/* What the store's files share: its connections, and what SQLite's failures are called.
 * Thread-safety: as in store.h. */
#ifndef SERVER_STORE_STORE_PRIVATE_H
#define SERVER_STORE_STORE_PRIVATE_H

#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>

#include "server/store/store.h"
#include "server/store/store_sql.h"

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
    /* Jobs in the states in which they have ended, because there may be very many to count; and what the transaction
     * changes of that. */
    _Atomic int64_t ended[STORE_STATES];
    int64_t moved[STORE_STATES];
    char path[];
};

/* The error for what SQLite said last. It keeps no number for what fails in a commit; errno has it, if it was 0
 * before. */
enum error_code store_failed(const struct side *side, int rc, struct error *err);

/* Counts the jobs that have ended, once. */
enum error_code store_count_ended(struct store *store, struct error *err);

/* The error for what cannot be in a store of ours. */
enum error_code store_damaged(const struct store *store, struct error *err);

#endif
