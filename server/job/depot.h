/* Where the pictures of kept jobs lie: in this server's spool, or in the payloads that servers share; then the spool
 * has only what is on its way. Thread-safety: every function may be called from any thread. */
#ifndef SERVER_JOB_DEPOT_H
#define SERVER_JOB_DEPOT_H

#include "server/job/body.h"
#include "server/store/payload.h"
#include "server/store/spool.h"

#define DEPOT_ATTEMPTS 3 /* a job has no more, so a result is one of so many */

struct depot {
    struct spool *spool;
    struct payload *payload; /* NULL: all is in the spool */
};

/* Puts a job's picture there; the body becomes empty. In the spool it lasts from spool_sync on. Errors: those of
 * body_keep, or the payload's; the body stays then. */
enum error_code depot_put_input(const struct depot *depot, struct body *body, const char *id,
                                struct error *err) MUST_CHECK;
/* ERROR_NOT_FOUND: it is not there. ERROR_BUSY: the payloads cannot be reached now, so the job should wait again. */
enum error_code depot_get_input(const struct depot *depot, const char *id, struct body *out,
                                struct error *err) MUST_CHECK;

/* The result of an attempt, which lies in the spool under the job's id, goes to the payloads, if there are any; it
 * stays in the spool until depot_settle. */
enum error_code depot_put_output(const struct depot *depot, const char *id, int attempts, struct error *err) MUST_CHECK;
void depot_settle(const struct depot *depot, const char *id);

/* A descriptor of the result, to be closed, and its size. A payload is copied into a file without a name first, so this
 * may take as long as the database or the bucket does. ERROR_NOT_FOUND. */
enum error_code depot_get_output(const struct depot *depot, const char *id, int attempts, int *fd, uint64_t *size,
                                 struct error *err) MUST_CHECK;

/* Removes them. What cannot be removed from the payloads now is swept later. */
void depot_remove_input(const struct depot *depot, const char *id);
void depot_remove_output(const struct depot *depot, const char *id, int attempts); /* 0: of all */

#endif
