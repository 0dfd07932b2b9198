/* Brings results from the payloads that servers share, on a few threads of its own, so that whoever asks waits without
 * holding one. Thread-safety: fetcher_ask from any thread. */
#ifndef SERVER_JOB_FETCHER_H
#define SERVER_JOB_FETCHER_H

#include "server/job/depot.h"

struct fetcher;
struct keeper_ticket;

/* The depot is borrowed. */
enum error_code fetcher_create(struct fetcher **out, const struct depot *depot, struct error *err) MUST_CHECK;
/* What was asked for and has not begun fails with ERROR_BUSY. */
void fetcher_destroy(struct fetcher **fetcher);
/* As keeper_ask. */
void fetcher_ask(struct fetcher *fetcher, struct keeper_ticket *ticket);

#endif
