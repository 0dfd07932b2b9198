/* How many jobs of a client wait, for those who may have only so many: in the store, in the queue, and on the way from
 * a request to the store and from there to the queue, where they are in neither. Thread-safety: every function but
 * create, destroy and waiting_arrived needs the lock; who counts and then adds a job, here or to the queue, holds it
 * all the while. */
#ifndef SERVER_JOB_WAITING_H
#define SERVER_JOB_WAITING_H

#include "server/job/queue.h"
#include "server/store/store.h"

struct waiting;

enum error_code waiting_create(struct waiting **out, struct error *err) MUST_CHECK;
void waiting_destroy(struct waiting **waiting);

void waiting_lock(struct waiting *waiting);
void waiting_unlock(struct waiting *waiting);

/* This job is on its way; adding it twice is adding it once. When memory is out it is left out. */
void waiting_add(struct waiting *waiting, const char *id, const char *client);
/* It has arrived, or will not; id NULL: all have. */
void waiting_remove(struct waiting *waiting, const char *id);

/* The same under the lock, which it takes itself. */
void waiting_arrived(struct waiting *waiting, const char *id);

/* store NULL: there is none. token: the client's. Errors: those of store_waiting. */
enum error_code waiting_count(struct waiting *waiting, struct store *store, struct queue *queue, const char *client,
                              const char *token, uint64_t *out, struct error *err) MUST_CHECK;

#endif
