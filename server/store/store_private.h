/* What the store's files share: its engines, its connections and statements at work.
 * Thread-safety: as in store.h. */
#ifndef SERVER_STORE_STORE_PRIVATE_H
#define SERVER_STORE_STORE_PRIVATE_H

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>

#include "server/store/store.h"
#include "server/store/store_statement.h"

struct query;

/* One of the store's two connections. */
struct side {
    struct store *store;
    void *link; /* the engine's; NULL: none */
};

/* What an engine does. A statement's failure goes into query->code. */
struct store_engine {
    /* Binds the values (see query_start) and begins. */
    void (*start)(struct query *query, enum store_statement which, const char *types, va_list values);
    bool (*row)(struct query *query);                           /* the next row; false: there is none, or it failed */
    void (*end)(struct query *query);                           /* after its last row */
    const char *(*text)(const struct query *query, int column); /* NULL for NULL; until the next row */
    bool (*null)(const struct query *query, int column);
    int64_t (*integer)(const struct query *query, int column);
    double (*real)(const struct query *query, int column);
    /* 32 bytes of that column are these */
    bool (*is_hash)(const struct query *query, int column, const uint8_t hash[32]);
    int (*changes)(struct side *side);  /* rows that the last statement changed */
    bool (*within)(struct side *side);  /* a transaction */
    void (*abandon)(struct side *side); /* rolls it back */
    void (*disconnect)(struct side *side);
};

struct store {
    const struct store_engine *engine;
    struct side write, read;
    pthread_mutex_t lock;   /* of the reading side */
    bool begun;             /* between begin and commit */
    enum error_code undone; /* the transaction has been rolled back, for this reason */
    bool shared;            /* with other servers */
    /* Jobs in the states in which they have ended, because there may be very many to count; and what the transaction
     * changes of that. Not of a shared store. */
    _Atomic int64_t ended[STORE_STATES];
    int64_t moved[STORE_STATES];
    atomic_bool reachable; /* of a shared one: the writing side is connected */
    _Atomic int64_t clock; /* what is added to this machine's, ms; of a shared one, to the steady one */
    void *settings;        /* the engine's; free() */
    char *offers;          /* see store_offer */
    bool leave_leases;     /* see store_leave_leases */
    char path[];
};

enum error_code store_sqlite_open(struct store **out, const char *path, struct error *err) MUST_CHECK;
enum error_code store_pg_open(struct store **out, const char *where, const char *password_file,
                              struct error *err) MUST_CHECK;

enum error_code store_pg_look(const char *where, const char *password_file, bool *there, struct error *err) MUST_CHECK;

/* A store of this engine with room for the path; NULL: memory is out, and err says so. */
struct store *store_new(const struct store_engine *engine, const char *path, struct error *err);

/* Counts the jobs that have ended, once. */
enum error_code store_count_ended(struct store *store, struct error *err);

/* Begins to read: takes store->lock. Of a shared store nobody waits long for that: a slow database would hold one of
 * HTTP's threads after the other. ERROR_IO: somebody else has been reading for seconds. */
enum error_code store_look(struct store *store, struct error *err) MUST_CHECK;

/* The error for what cannot be in a store of ours. */
enum error_code store_damaged(const struct store *store, struct error *err);

/* milliseconds since this machine was started: nobody sets this one. */
int64_t store_steady_clock(void);

#endif
