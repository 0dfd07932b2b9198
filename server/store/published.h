/* Models that are published in a store which servers share: a row here tells of each, and a payload has its file, which
 * workers with models_from = store fetch. The payload is put before the row, and removed after it.
 * Thread-safety: as store.h: published_put and published_remove write, published_each reads. */
#ifndef SERVER_STORE_PUBLISHED_H
#define SERVER_STORE_PUBLISHED_H

#include "server/store/payload.h"
#include "server/store/store.h"

/* One model, in its row. */
struct published {
    const char *name;   /* what options call it */
    const char *sha256; /* of its file: 64 hexadecimal digits */
    uint64_t bytes;
    const char *about; /* a JSON object: job/supply.h */
};

typedef void published_fn(void *context, const struct published *model);

/* All that are published, by name; each is the function's only during the call. */
enum error_code published_each(struct store *store, published_fn *each, void *context, struct error *err) MUST_CHECK;

/* Publishes it, in place of one of the same name. */
enum error_code published_put(struct store *store, const struct published *model, struct error *err) MUST_CHECK;

/* *found false: there is none of this name. */
enum error_code published_remove(struct store *store, const char *name, bool *found, struct error *err) MUST_CHECK;

/* The name of a model's payload: "models/SHA256". */
void published_payload(char out[PAYLOAD_NAME_MAX], const char *sha256);

#endif
