/* Tiles of large pictures, shared by servers with one PostgreSQL: the policy between the pipeline (helpers.h) and the
 * rows (store/share_rows.h). Workers put tiles of their pictures on offer while somebody wants them, and compute
 * others' tiles while they have no job. Only devices that give the same bytes help each other: the same program's
 * version, the same kind of processor kernels, the same precision and the same model with the same settings.
 * Thread-safety: every function may be called from any thread, except share_create, share_destroy, and those of one
 * struct share_worker, which belongs to one worker's thread. */
#ifndef SERVER_JOB_SHARE_H
#define SERVER_JOB_SHARE_H

#include "server/job/engine.h"
#include "server/pipeline/helpers.h"

struct share;

struct share_settings {
    const char *store, *password_file; /* copied, as the next */
    const char *owner;                 /* as this server is called in the table of servers */
    uint64_t pixels;                   /* of a network's result from which a picture is shared */
};

enum error_code share_create(struct share **out, const struct share_settings *settings,
                             const struct model_store *models, struct error *err) MUST_CHECK;
void share_destroy(struct share **share); /* NULL-safe; no worker uses it any more */

/* Tiles that others have computed for this server, and this one for others; either may be NULL. */
void share_counts(struct share *share, uint64_t *received, uint64_t *given);

/* What one worker needs of it. */
struct share_worker;
enum error_code share_worker_create(struct share_worker **out, struct share *share, struct error *err) MUST_CHECK;
void share_worker_destroy(struct share_worker **worker); /* NULL-safe */

/* Who helps with the job that the worker has next, on this engine; valid as long as the worker. */
const struct helpers *share_worker_helpers(struct share_worker *worker, struct engine *engine, const char *job);

/* Computes a tile for another server, if one is offered. cancel: not 0: the worker has something else to do. Returns in
 * how many ms it is worth asking again: 0: at once. */
int share_worker_help(struct share_worker *worker, struct engine *engine, const atomic_int *cancel);

#endif
