/* Webhooks that are still to be sent, a row for each job that has one, in the store of its job: put there in the
 * transaction that accepts the job, and removed when the webhook was sent, or given up. A row belongs to one server
 * until its lease is over; then another one that asks takes it, as where the first was killed. So a webhook is sent at
 * least once, and twice only if a server lives on that could not renew for so long.
 * Thread-safety: as the writing functions of store.h. */
#ifndef SERVER_STORE_HOOK_ROWS_H
#define SERVER_STORE_HOOK_ROWS_H

#include "server/store/store.h"

/* about: what the sender needs (JSON). A job that has one already keeps that. */
enum error_code hook_rows_add(struct store *store, const char *job, const char *about, const char *owner, int64_t lease,
                              struct error *err) MUST_CHECK;

/* Of this owner, those of the jobs in this JSON array of ids: they go. */
enum error_code hook_rows_done(struct store *store, const char *owner, const char *jobs, struct error *err) MUST_CHECK;

/* Of those, the first webhook is sent: "start":true becomes false in what they are about. */
enum error_code hook_rows_told(struct store *store, const char *owner, const char *jobs, struct error *err) MUST_CHECK;

/* All leases of this owner last until then; 0: others may take its rows. */
enum error_code hook_rows_renew(struct store *store, const char *owner, int64_t lease, struct error *err) MUST_CHECK;

/* Up to `most` rows of others whose lease is over become this owner's, and are told; none while store_leave_leases says
 * so. In a store that is this server's alone others were its earlier starts, whose leases are over. What
 * was told does not hold where an error is returned, by the commit either. */
typedef void hook_rows_fn(void *context, const char *job, const char *about);
enum error_code hook_rows_take(struct store *store, const char *owner, int64_t now, int64_t lease, int most,
                               hook_rows_fn *each, void *context, struct error *err) MUST_CHECK;

#endif
