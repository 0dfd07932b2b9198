/* What an autoscaler goes by: the work that waits, in the seconds that one worker would take, and how busy the workers
 * are. With a store that servers share, both are those of all of them, as the workers tell them by metrics_scale_about.
 * Thread-safety: every function may be called from any thread. */
#ifndef SERVER_HTTP_METRICS_SCALE_H
#define SERVER_HTTP_METRICS_SCALE_H

#include <jansson.h>
#include <stdio.h>

#include "server/job/keeper.h"
#include "server/job/worker_pool.h"

/* keeper: may be NULL; counts: those of all its jobs. */
void metrics_scale_print(FILE *out, struct worker_pool *pool, struct keeper *keeper, const struct store_counts *counts);

/* Adds to what a server says of itself: busy (0 to 1 over the last minute) and, once it is measured, megapixel_seconds
 * (of its time for a megapixel of pictures). */
void metrics_scale_about(json_t *about, struct worker_pool *pool);

#endif
