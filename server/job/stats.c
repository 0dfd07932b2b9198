#include "server/job/stats.h"

#include <string.h>

const double histogram_bounds[HISTOGRAM_BOUNDS] = {0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                                   0.5,   1,     2.5,  5,     10,   30,  120};

void histogram_add(struct histogram *histogram, double seconds)
{
    int bucket = 0;
    while (bucket < HISTOGRAM_BOUNDS && seconds > histogram_bounds[bucket])
        bucket++;
    histogram->buckets[bucket]++;
    histogram->sum += seconds;
}

void stats_init(struct stats *stats)
{
    memset(stats, 0, sizeof *stats);
    pthread_mutex_init(&stats->lock, NULL);
}

void stats_destroy(struct stats *stats)
{
    pthread_mutex_destroy(&stats->lock);
}

void stats_record(struct stats *stats, const struct job *job)
{
    const struct restoration *r = job->restoration;
    enum job_state state = atomic_load(&job->state);
    pthread_mutex_lock(&stats->lock);
    struct stats_totals *totals = &stats->totals;
    if (state == JOB_DONE)
        totals->done++;
    else if (state == JOB_CANCELLED)
        totals->cancelled++;
    else
        totals->failed++;
    totals->timeouts += state == JOB_FAILED && job->error.code == ERROR_TIMEOUT;
    totals->stalled += state == JOB_FAILED && job->error.code == ERROR_STALLED;
    histogram_add(&totals->wait, r->stage_ms[STAGE_QUEUE] / 1e3);
    if (job->started_ns) {
        totals->run_seconds += r->total_ms / 1e3;
        for (int stage = 0; stage < STAGE_COUNT; stage++)
            if (r->stage_ms[stage] > 0)
                histogram_add(&totals->stage[stage], r->stage_ms[stage] / 1e3);
        totals->tiles += (uint64_t)r->tiles;
        totals->fallbacks += (uint64_t)r->fallbacks;
        totals->shrinks += (uint64_t)r->shrinks;
        totals->pixels_in += (uint64_t)r->in_info.width * (uint64_t)r->in_info.height;
    }
    if (state == JOB_DONE) {
        totals->pixels_out += (uint64_t)r->out_info.width * (uint64_t)r->out_info.height;
        for (int i = 0; !r->detect_only && i < r->face_count; i++)
            if (r->faces[i].restored)
                totals->faces_restored++;
            else
                totals->faces_skipped++;
    }
    pthread_mutex_unlock(&stats->lock);
}

void stats_add_ended(struct stats *stats, uint64_t failed, uint64_t cancelled)
{
    pthread_mutex_lock(&stats->lock);
    stats->totals.failed += failed;
    stats->totals.cancelled += cancelled;
    pthread_mutex_unlock(&stats->lock);
}

void stats_hand_over(struct stats *stats)
{
    pthread_mutex_lock(&stats->lock);
    stats->totals.handed_over++;
    pthread_mutex_unlock(&stats->lock);
}

void stats_read(struct stats *stats, struct stats_totals *out)
{
    pthread_mutex_lock(&stats->lock);
    *out = stats->totals;
    pthread_mutex_unlock(&stats->lock);
}
