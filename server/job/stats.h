/* Totals over all jobs, for /metrics: histograms and counters.
 * Thread-safety: every function may be called from any thread, except histogram_add, which needs its owner's lock. */
#ifndef SERVER_JOB_STATS_H
#define SERVER_JOB_STATS_H

#include <pthread.h>

#include "server/job/job.h"

#define HISTOGRAM_BOUNDS 14

extern const double histogram_bounds[HISTOGRAM_BOUNDS]; /* upper bounds of the buckets, seconds; +Inf follows */

struct histogram {
    uint64_t buckets[HISTOGRAM_BOUNDS + 1]; /* not cumulative */
    double sum;
};

void histogram_add(struct histogram *histogram, double seconds);

struct stats_totals {
    struct histogram stage[STAGE_COUNT], wait;
    uint64_t done, failed, cancelled;
    uint64_t timeouts, stalled; /* of the failed ones */
    uint64_t faces_restored, faces_skipped, tiles;
    uint64_t pixels_in, pixels_out;
    uint64_t fallbacks;   /* results redone in fp32 */
    uint64_t shrinks;     /* tiles and pictures made smaller to fit the device's memory */
    uint64_t handed_over; /* jobs given to another device because theirs was lost */
    double run_seconds;   /* at work on jobs, for the mean */
};

struct stats {
    pthread_mutex_t lock;
    struct stats_totals totals;
};

void stats_init(struct stats *stats);
void stats_destroy(struct stats *stats);

/* Counts a job that has ended. */
void stats_record(struct stats *stats, const struct job *job);

/* Counts jobs that ended without having come to a worker. */
void stats_add_ended(struct stats *stats, uint64_t failed, uint64_t cancelled);

/* Counts a job that goes to another device. */
void stats_hand_over(struct stats *stats);

/* A copy of the totals. */
void stats_read(struct stats *stats, struct stats_totals *out);

#endif
