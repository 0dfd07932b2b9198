/* How the kept jobs are now, for those who look. A job that is claimed but has not begun on a device is queued for
 * them, with started 0 and this attempt not counted; the store's rows alone do not tell these apart. So is one whose
 * lease is over: it will be claimed again. One that another server has claimed runs, as its row says, and no more is
 * known of it. Thread-safety:
 * every function may be called from any thread. */
#ifndef SERVER_JOB_KEEPER_LOOK_H
#define SERVER_JOB_KEEPER_LOOK_H

#include "server/job/keeper.h"

/* What is known of a job now. */
struct keeper_view {
    struct store_job job; /* as it was committed, but queued while it waits for a device */
    bool running;         /* the following are of a job at work here */
    int stage, tiles_done, tiles_total, faces_done, faces_total;
    double progress;    /* 0 to 1 */
    double left;        /* seconds, of a waiting or running job; negative: unknown */
    uint64_t position;  /* jobs before it, of a waiting one */
    struct error waits; /* why the result of a job that is done is not kept yet; or no error */
};
/* ERROR_NOT_FOUND: there is no such job. The caller clears it. */
enum error_code keeper_look(struct keeper *keeper, const char *id, struct keeper_view *out,
                            struct error *err) MUST_CHECK;
void keeper_view_clear(struct keeper_view *view);

/* store_list and store_count. seconds_queued are those of jobs that are not claimed: worker_pool_seconds adds the
 * others. */
enum error_code keeper_look_list(struct keeper *keeper, const struct store_filter *filter, store_job_fn *each,
                                 void *context, bool *more, struct error *err) MUST_CHECK;
enum error_code keeper_look_count(struct keeper *keeper, const char *batch, const char *token, struct store_counts *out,
                                  struct error *err) MUST_CHECK;

#endif
