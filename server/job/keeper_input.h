/* The pictures of new jobs on their way into the spool.
 * Thread-safety: the tickets belong to the caller. */
#ifndef SERVER_JOB_KEEPER_INPUT_H
#define SERVER_JOB_KEEPER_INPUT_H

#include "server/job/keeper.h"

/* For each ticket of the list that wants a job: makes its hash, if it has a key, and puts its picture on the disk under
 * the job's id, unless as many jobs wait as may. What fails is the ticket's error. Several threads do it together,
 * because a disk is told to keep several things in hardly more time than one. */
void keeper_input_keep(struct keeper_ticket *tickets, struct store *store, const struct depot *depot, uint64_t waiting,
                       uint64_t most);

/* In the store's transaction: the ticket's row and its webhook's, which is this owner's, if its client may have one
 * more job wait. Until the transaction is over and waiting_arrived is called the job is on its way. What fails is the
 * ticket's error. */
void keeper_input_insert(struct keeper_ticket *ticket, struct store *store, struct worker_pool *pool,
                         const char *owner);

#endif
