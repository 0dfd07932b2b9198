#include "server/job/keeper_look.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "server/job/cluster_event.h"
#include "server/job/events.h"
#include "server/job/place.h"

/* Makes a claimed job's row that of a waiting one, unless it has begun. */
static void keeper_look_over(const struct keeper *keeper, struct store_job *row, int64_t started)
{
    if (row->state != STORE_RUNNING || (strcmp(row->owner, keeper_owner(keeper)) != 0 &&
                                        row->lease > store_clock(keeper_store((struct keeper *)keeper))))
        return;
    row->started = started;
    if (started)
        return;
    row->state = STORE_QUEUED;
    row->attempts -= row->attempts > 0;
}

/* --- one job -------------------------------------------------------------------------------------------------------
 */

static void keeper_look_event(const struct event *now, struct keeper_view *out)
{
    out->running = true;
    out->stage = (int)now->stage;
    out->tiles_done = now->tiles_done;
    out->tiles_total = now->tiles_total;
    out->faces_done = now->faces_done;
    out->faces_total = now->faces_total;
    out->progress = now->progress;
    out->left = now->seconds_left;
}

/* Of a job at work. */
static void keeper_look_running(const struct job *job, struct keeper_view *out)
{
    struct event now;
    events_describe(&now, job, EVENT_STAGE);
    keeper_look_event(&now, out);
}

/* Of a job at work on another server, as that one last told. */
static void keeper_look_elsewhere(struct keeper_view *out)
{
    struct event now = {0};
    if (cluster_event_read_progress(out->job.progress, &now))
        keeper_look_event(&now, out);
}

#define LOOK_NEAREST 64 /* jobs before a waiting one that are looked at one by one */

/* The jobs of the store that come into the queue, in their order, up to the one that is asked for. */
struct look_coming {
    struct place_job jobs[LOOK_NEAREST + 1];
    size_t first; /* they are told from the end */
    double seconds;
};

/* A store_ahead_fn. */
static void look_add(void *context, const char *client, bool low, double seconds)
{
    struct look_coming *coming = context;
    struct place_job *job = &coming->jobs[--coming->first];
    *job = (struct place_job){.low = low, .stored = true, .seconds = seconds};
    snprintf(job->client, sizeof job->client, "%s", client);
    coming->seconds += seconds;
}

/* Where a job that is not claimed yet will stand, behind those that came into the queue before it and those that come
 * now: others of its client that are there already let it go before them. */
static enum error_code keeper_look_stored(struct keeper *keeper, struct keeper_view *out, struct error *err)
{
    struct worker_pool *pool = keeper_pool(keeper);
    struct keeper_begun *begun = NULL;
    struct look_coming coming = {.first = LOOK_NEAREST};
    bool found = false;
    double seconds = 0;
    size_t count = 0;
    int claimed = 0;
    const size_t most = 2 * queue_capacity(worker_pool_queue(pool)) + 64; /* and those accepted before */
    struct place_job *queue = mem_calloc(most + LOOK_NEAREST + 1, sizeof *queue);
    enum error_code code = queue ? OK : error_set(err, ERROR_NO_MEMORY, "no memory for a job's position");
    if (!code)
        code = keeper_begun(keeper, &begun, &count, &claimed, err);
    if (!code)
        code = store_position(keeper_store(keeper), out->job.id, &out->position, &seconds, &found, LOOK_NEAREST,
                              look_add, &coming, err);
    if (!code && found) {
        const size_t near = LOOK_NEAREST - coming.first;
        struct place_job *own = &coming.jobs[LOOK_NEAREST];
        own->low = out->job.low;
        memcpy(own->client, out->job.client, sizeof own->client);
        const uint32_t routes = devices_route(worker_pool_devices(pool), 0);
        const size_t waiting = queue_list(worker_pool_queue(pool), routes, queue, most);
        const struct place place =
            place_of(queue, waiting, coming.jobs + coming.first, near + 1, worker_pool_carriers(pool) - claimed, count);
        out->position += place.jobs - near;
        out->left = worker_pool_begins(pool, seconds - coming.seconds + place.seconds) + out->job.seconds;
    } else if (!code) { /* it is being claimed */
        struct queue_ahead ahead;
        queue_ahead_of_new(worker_pool_queue(pool), devices_route(worker_pool_devices(pool), 0), out->job.client,
                           out->job.low, &ahead);
        out->position = ahead.jobs;
        out->left = worker_pool_begins(pool, ahead.seconds) + out->job.seconds;
    }
    free(begun);
    free(queue);
    return code;
}

/* Of a waiting job; NULL: it is not claimed. */
static enum error_code keeper_look_waiting(struct keeper *keeper, const struct job *job, struct keeper_view *out,
                                           struct error *err)
{
    double seconds = 0;
    size_t before = 0;
    if (!job)
        return keeper_look_stored(keeper, out, err);
    /* taken out of the queue, it is about to begin */
    worker_pool_position(keeper_pool(keeper), job, &before, &seconds);
    out->position = before;
    out->left = seconds + job->estimate.seconds;
    return OK;
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
    keeper_look_over(keeper, &out->job, started);
    if (!code && out->job.state == STORE_QUEUED)
        code = keeper_look_waiting(keeper, job, out, err);
    else if (!code && out->job.state == STORE_RUNNING && job)
        keeper_look_running(job, out);
    else if (!code && out->job.state == STORE_RUNNING && *out->job.progress)
        keeper_look_elsewhere(out);
    if (!code && job && out->job.state == STORE_RUNNING)
        keeper_roomless(keeper, id, &out->waits);
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

/* Jobs that may be claimed between two looks, and those of other servers: where these have claimed more, a page of
 * waiting jobs alone could end too early, and store_list would have to be told whose rows to leave out. */
#define LOOK_MORE 64

/* Read before the rows, for the same reason. */
struct look {
    const struct keeper *keeper;
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
    keeper_look_over(look->keeper, row, started);
    return look->states >> row->state & 1;
}

enum error_code keeper_look_list(struct keeper *keeper, const struct store_filter *filter, store_job_fn *each,
                                 void *context, bool *more, struct error *err)
{
    struct look look = {.keeper = keeper, .states = filter->states ? filter->states : (1u << STORE_STATES) - 1};
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
    struct look look = {.keeper = keeper, .states = 1u << STORE_QUEUED | 1u << STORE_RUNNING};
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
