/* Wishes for the keeper of jobs; what goes wrong fails the test. Thread-safety: no shared state. */
#ifndef TESTS_COMMON_TICKET_H
#define TESTS_COMMON_TICKET_H

#include "server/job/keeper.h"

/* A wish for a job without networks, of the fixture none.png; without a client, token or key. most: how many of its
 * client's jobs may wait (0: any number). done: called with NULL when it has been answered. */
struct keeper_ticket *ticket_make(uint32_t most, void (*done)(void *context));

void ticket_free(struct keeper_ticket *ticket);

#endif
