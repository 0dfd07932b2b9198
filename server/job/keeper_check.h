/* The spool against the store, both ways, at the start of a server.
 * Thread-safety: while nobody else uses the two. */
#ifndef SERVER_JOB_KEEPER_CHECK_H
#define SERVER_JOB_KEEPER_CHECK_H

#include "server/store/spool.h"
#include "server/store/store.h"

/* Removes files that no job has, and tells of jobs that lack theirs: a waiting one will fail, and the result of one
 * that is done is gone. ERROR_NO_MEMORY, and the errors of store_files. */
enum error_code keeper_check(struct store *store, struct spool *spool, struct error *err) MUST_CHECK;

#endif
