/* A job's row with all that the store has of it, read from one store and written into another: for store/move.h. Both
 * functions work within the transaction of the store (store_begin).
 * Thread-safety: as the writing functions of store.h. */
#ifndef SERVER_STORE_STORE_COPY_H
#define SERVER_STORE_STORE_COPY_H

#include "server/store/store.h"

struct store_row {
    struct store_job job; /* id "": the row is damaged */
    int64_t number, turn;
    char *key;   /* its Idempotency-Key; NULL: none */
    char *hook;  /* the webhook that is still to be sent (hook_rows.h); NULL: none */
    bool hashed; /* it has a hash */
    uint8_t hash[32];
};

/* Frees the texts and zeroes it. */
void store_copy_clear(struct store_row *row);

/* The first row behind this number, which stays locked until the transaction ends: no worker takes or ends it. *found
 * false: there is none. The caller clears it. */
enum error_code store_copy_read(struct store *store, int64_t after, struct store_row *out, bool *found,
                                struct error *err) MUST_CHECK;

enum store_copied {
    STORE_COPIED,
    STORE_COPIED_KEYLESS, /* another job here has its Idempotency-Key: it came without */
    STORE_COPIED_BEFORE   /* a job of this id is here; nothing was written */
};
/* Its turn, attempts and all the rest stay; its number is the next one here. */
enum error_code store_copy_write(struct store *store, const struct store_row *row, enum store_copied *what,
                                 struct error *err) MUST_CHECK;

/* Removes the row, whatever its state. */
enum error_code store_copy_drop(struct store *store, int64_t number, struct error *err) MUST_CHECK;

#endif
