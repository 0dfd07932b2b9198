/* What the database does for a helper while it computes: its last result goes there, and its next tile comes. Both go
 * over a connection of their own, on a thread of their own.
 * Thread-safety: every function belongs to the one thread that helps. */
#ifndef SERVER_JOB_SHARE_AHEAD_H
#define SERVER_JOB_SHARE_AHEAD_H

#include <stdatomic.h>

#include "server/store/share_rows.h"

struct share_ahead;

/* owner: who helps; given counts what was delivered. Both are borrowed. */
enum error_code share_ahead_create(struct share_ahead **out, const char *where, const char *password_file,
                                   const char *owner, _Atomic uint64_t *given, struct error *err) MUST_CHECK;
/* NULL-safe. The last result is delivered, and a tile that nobody has taken is given back. */
void share_ahead_destroy(struct share_ahead **ahead);

/* Begins to fetch one more tile of this task; only where there are so many that no other helper lacks it. */
void share_ahead_fetch(struct share_ahead *ahead, int64_t task);
/* That tile, waiting for it. *broken: the database does not answer. False: there is none. */
bool share_ahead_take(struct share_ahead *ahead, struct share_tile *out, bool *broken);
/* This helper has something else to do: that tile is given back. It is as well if it is not taken soon after the
 * delivery of the one before. */
void share_ahead_leave(struct share_ahead *ahead);

/* Sends a result. It takes over the output (of free()); it waits until the one before is there. */
void share_ahead_deliver(struct share_ahead *ahead, const struct share_tile *tile, void *output, size_t size);

#endif
