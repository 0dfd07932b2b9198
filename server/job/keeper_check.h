/* The spool against the store, both ways, at the start of a server.
 * Thread-safety: while nobody else uses the two. */
#ifndef SERVER_JOB_KEEPER_CHECK_H
#define SERVER_JOB_KEEPER_CHECK_H

#include "server/store/spool.h"
#include "server/store/store.h"

/* A result of a shared store's job that could not be delivered, or its record: no store of this machine knows of it,
 * and the next start with that shared store delivers it. */
bool keeper_check_noted(struct spool *spool, const char *id, enum spool_kind kind);

/* Before the store in this file is opened: ERROR_CORRUPT where it is gone and files of its jobs are there. A new, empty
 * one would have them removed, and its own could not be put back any more. */
enum error_code keeper_check_gone(const char *path, struct spool *spool, struct error *err) MUST_CHECK;

/* Removes files that no job has. Jobs that lack theirs have failed: those that are done at once, those that wait when
 * it is their turn. ERROR_NO_MEMORY, and the errors of the store. */
enum error_code keeper_check(struct store *store, struct spool *spool, struct error *err) MUST_CHECK;

#endif
