/* The picture of a new job on its way into the spool.
 * Thread-safety: a ticket belongs to one thread at a time. */
#ifndef SERVER_JOB_KEEPER_INPUT_H
#define SERVER_JOB_KEEPER_INPUT_H

#include "server/job/keeper.h"

/* Makes the ticket's hash, if it has a key, and puts its picture on the disk under the job's id, unless as many jobs
 * wait as may. What fails is the ticket's error, too. */
enum error_code keeper_input_keep(struct keeper_ticket *ticket, struct store *store, struct spool *spool,
                                  uint64_t waiting, uint64_t most) MUST_CHECK;

#endif
