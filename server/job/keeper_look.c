#include "server/job/keeper_look.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "server/job/events.h"

/* Makes a claimed job's row that of a waiting one, unless it has begun. */
static void keeper_look_over(struct store_job *row, int64_t started)
{
    if (row->state != STORE_RUNNING)
        return;
    row->started = started;
    if (started)
        return;
    row->state = STORE_QUEUED;
    row->attempts -= row->attempts > 0;
}

/* --- one job -------------------------------------------------------------------------------------------------------
 */

/* Of a job at work. */
static void keeper_look_running(const struct job *job, struct keeper_view *out)
{
    struct event now;
    events_describe(&now, job, EVENT_STAGE);
    out->running = true;
    out->stage = (int)now.stage;
    out->tiles_done = now.tiles_done;
    out->tiles_total = now.tiles_total;
    out->faces_done = now.faces_done;
    out->faces_total = now.faces_total;
    out->progress = now.progress;
    out->left = now.seconds_left;
}

/* Of a waiting job; NULL: it is not claimed. */
static enum error_code keeper_look_waiting(struct keeper *keeper, const struct job *job, struct keeper_view *out,
                                           struct error *err)
{
    struct worker_pool *pool = keeper_pool(keeper);
    bool found = false;
    double seconds = 0;
    size_t before = 0;
    if (job) { /* taken out of the queue, it is about to begin */
        worker_pool_position(pool, job, &before, &seconds);
        out->position = before;
        out->left = seconds + job->estimate.seconds;
        return OK;
    }
    enum error_code code = store_position(keeper_store(keeper), out->job.id, &out->position, &seconds, &found, err);
    out->position += queue_depth(worker_pool_queue(pool));
    if (found)
        out->left = worker_pool_seconds(pool, seconds) + out->job.seconds;
    return code;
}

enum error_code keeper_look(struct keeper *keeper, const char *id, struct keeper_view *out, struct error *err)
{
    bool found = false;
    memset(out, 0, sizeof *out);
    out->left = -1;
    struct job *job = keeper_hold(keeper, id); /* before the row: one that ends in between has its end there */
    const int64_t started = job ? keeper_started(job) : 0;
    enum error_code code = store_get(keeper_store(keeper), id, &out->job, &found, err);
    if (!code && !found)
        code = error_set(err, ERROR_NOT_FOUND, "there is no job %s", id);
    keeper_look_over(&out->job, started);
    if (!code && out->job.state == STORE_QUEUED)
        code = keeper_look_waiting(keeper, job, out, err);
    else if (!code && out->job.state == STORE_RUNNING)
        keeper_look_running(job, out);
    job_release(&job);
    if (code)
        keeper_view_clear(out);
    return code;
}

void keeper_view_clear(struct keeper_view *view)
{
    store_job_clear(&view->job);
}

/* --- many ----------------------------------------------------------------------------------------------------------
 */

#define LOOK_MORE 64 /* jobs that may be claimed between two looks */

/* Read before the rows, for the same reason. */
struct look {
    struct keeper_begun *begun;
    size_t count;
    int claimed;      /* jobs of this server, these among them */
    unsigned states;  /* those wanted */
    uint64_t running; /* claimed jobs that have begun; this and the next are keeper_look_count's */
    int64_t oldest;   /* created, of those that have not; 0: there is none */
};

/* A store_filter's keep. */
static bool look_keep(void *context, struct store_job *row)
{
    const struct look *look = context;
    int64_t started = 0;
    for (size_t i = 0; i < look->count; i++)
        if (!strcmp(look->begun[i].id, row->id))
            started = look->begun[i].started;
    keeper_look_over(row, started);
    return look->states >> row->state & 1;
}

enum error_code keeper_look_list(struct keeper *keeper, const struct store_filter *filter, store_job_fn *each,
                                 void *context, bool *more, struct error *err)
{
    struct look look = {.states = filter->states ? filter->states : (1u << STORE_STATES) - 1};
    struct store_filter rows = *filter;
    rows.keep = look_keep;
    rows.keep_context = &look;
    rows.states = look.states | (look.states >> STORE_QUEUED & 1) << STORE_RUNNING;
    enum error_code code = keeper_begun(keeper, &look.begun, &look.count, &look.claimed, err);
    rows.skips = look.claimed + LOOK_MORE;
    if (!code)
        code = store_list(keeper_store(keeper), &rows, each, context, more, err);
    free(look.begun);
    return code;
}

static void look_count(void *context, const struct store_job *row)
{
    struct look *look = context;
    look->running += row->state == STORE_RUNNING;
    if (row->state == STORE_QUEUED && (!look->oldest || row->created < look->oldest))
        look->oldest = row->created;
}

enum error_code keeper_look_count(struct keeper *keeper, const char *batch, const char *token, struct store_counts *out,
                                  struct error *err)
{
    struct look look = {.states = 1u << STORE_QUEUED | 1u << STORE_RUNNING};
    const struct store_filter claimed = {.token = token, /* few: as many as the workers may take */
                                         .batch = batch,
                                         .states = 1u << STORE_RUNNING,
                                         .limit = INT_MAX,
                                         .keep = look_keep,
                                         .keep_context = &look};
    bool more;
    enum error_code code = keeper_begun(keeper, &look.begun, &look.count, &look.claimed, err);
    if (!code)
        code = store_list(keeper_store(keeper), &claimed, look_count, &look, &more, err);
    free(look.begun);
    if (!code)
        code = store_count(keeper_store(keeper), batch, token, out, err);
    if (code)
        return code;
    if (look.running > out->jobs[STORE_RUNNING]) /* they have ended since */
        look.running = out->jobs[STORE_RUNNING];
    out->jobs[STORE_QUEUED] += out->jobs[STORE_RUNNING] - look.running;
    out->jobs[STORE_RUNNING] = look.running;
    if (out->jobs[STORE_QUEUED] && look.oldest && (!out->oldest_queued || look.oldest < out->oldest_queued))
        out->oldest_queued = look.oldest;
    return OK;
}
