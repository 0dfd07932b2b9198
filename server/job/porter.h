/* Carries pictures and results between the spool and the payloads that servers share, on a few threads of its own, so
 * that nobody else waits for a slow network: neither requests, nor claims, nor leases.
 * Thread-safety: porter_ask from any thread. */
#ifndef SERVER_JOB_PORTER_H
#define SERVER_JOB_PORTER_H

#include <stdbool.h>

#include "server/job/depot.h"

struct porter;

/* What is to be carried, in the asker's memory; it may be gone once carry has told so. stopping: the server stops, so
 * only what is worth a wait should be done. */
struct porter_work {
    void (*carry)(void *context, const struct depot *depot, bool stopping);
    void *context;
    struct porter_work *next;
};

/* The depot is borrowed. */
enum error_code porter_create(struct porter **out, const struct depot *depot, struct error *err) MUST_CHECK;
/* What has begun ends, what waits is carried with stopping, and what is asked for from now on is, too, before
 * porter_ask returns. */
void porter_finish(struct porter *porter);
void porter_destroy(struct porter **porter);
void porter_ask(struct porter *porter, struct porter_work *work);

#endif
