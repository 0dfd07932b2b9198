/* The counters of the HTTP side, and all metrics in Prometheus' text format.
 * Thread-safety: every function may be called from any thread. */
#ifndef SERVER_HTTP_METRICS_H
#define SERVER_HTTP_METRICS_H

#include "server/job/keeper.h"

enum rejected {
    REJECTED_QUEUE_FULL,
    REJECTED_DRAINING,
    REJECTED_NOT_READY,
    REJECTED_BODY_TOO_LARGE,
    REJECTED_PIXELS,
    REJECTED_CONNECTIONS,
    REJECTED_MEMORY,
    REJECTED_TOO_SLOW,
    REJECTED_UNAUTHORIZED,
    REJECTED_RATE,
    REJECTED_JOBS,
    REJECTED_FULL,
    REJECTED_COUNT
};

struct metrics;

enum error_code metrics_create(struct metrics **out, struct error *err) MUST_CHECK;
void metrics_destroy(struct metrics **metrics);

/* Counts a finished request. route and method: from a small fixed set. */
void metrics_request(struct metrics *metrics, const char *route, const char *method, int status, double seconds);
void metrics_rejected(struct metrics *metrics, enum rejected reason);

/* Writes a label's value, escaped as Prometheus's text format requires. */
void metrics_print_value(FILE *out, const char *value);

/* The whole text, to be freed with free(); NULL when memory runs out. as: the server's role, in the setting's word. */
char *metrics_render(struct metrics *metrics, struct worker_pool *pool, struct keeper *keeper, const char *as,
                     size_t *size);

#endif
