/* Cancelling jobs, one or a batch: in the transaction, and after it. */
#include "server/job/keeper_state.h"

#include <stdlib.h>
#include <string.h>

/* In the transaction: a job whose output waits for room ends as cancelled, without it. False: there is none such. */
static bool keeper_drop_output(struct keeper *keeper, const char *id, int64_t now)
{
    pthread_mutex_lock(&keeper->lock);
    struct running *at = keeper->running;
    while (at && (strcmp(at->row.id, id) != 0 || !running_waits(at) || at->sending))
        at = at->next;
    pthread_mutex_unlock(&keeper->lock);
    if (!at)
        return false;
    if (at->spooled) /* it is kept anew, with its report, if this transaction fails */
        depot_settle(&keeper->depot, id);
    at->spooled = false;
    struct store_job *row = &at->row;
    free(row->report);
    free(row->parts);
    row->report = row->parts = NULL;
    row->output_bytes = 0;
    row->state = STORE_CANCELLED;
    row->started = at->job ? atomic_load(&at->job->begun_ms) : row->started;
    row->finished = now;
    row->expires = now + keeper->settings.result_seconds * 1000;
    at->dropped = true;
    return true;
}

void keeper_cancel(struct keeper *keeper, struct keeper_group *group, struct keeper_ticket *ticket, const char *id)
{
    bool found = false;
    const int64_t now = store_clock(keeper->store);
    struct error *err = &ticket->err;
    if (store_cancel(keeper->store, id, now, now + keeper->settings.result_seconds * 1000, &ticket->before, &found,
                     err))
        return;
    const bool ended = found && ticket->before > STORE_RUNNING;
    if (ended && ticket->wish == KEEPER_CANCEL && store_forget(keeper->store, id, &found, err))
        return;
    if (!found) {
        error_set(err, ERROR_NOT_FOUND, "there is no job %s", id);
        return;
    }
    ticket->count += !ended;
    group->cancelled += ticket->before == STORE_QUEUED;
    if (ticket->before == STORE_QUEUED)
        ids_add(&group->over, id);
    if (ticket->before == STORE_RUNNING && !keeper_drop_output(keeper, id, now))
        ids_add(&group->stop, id);
    else if (ticket->before == STORE_RUNNING)
        return; /* its files go when it is forgotten here */
    else if (!ended || ticket->wish == KEEPER_CANCEL)
        ids_add(&group->drop, id);
}

static void keeper_add_job(void *context, const struct store_job *job)
{
    ids_add(context, job->id);
}

void keeper_cancel_batch(struct keeper *keeper, struct keeper_group *group, struct keeper_ticket *ticket)
{
    struct ids ids = {0};
    struct store_filter filter = {.token = *ticket->job.token ? ticket->job.token : NULL,
                                  .batch = ticket->job.batch,
                                  .states = 1u << STORE_QUEUED | 1u << STORE_RUNNING,
                                  .limit = 1000};
    bool more = true;
    while (more && !store_list(keeper->store, &filter, keeper_add_job, &ids, &more, &ticket->err) && more && ids.count)
        memcpy(filter.after, ids.ids[ids.count - 1], sizeof filter.after);
    for (size_t i = 0; i < ids.count && !ticket->err.code; i++)
        keeper_cancel(keeper, group, ticket, ids.ids[i]);
    free(ids.ids);
}

/* After the commit: tells a job at work to stop. */
void keeper_stop_running(struct keeper *keeper, const char *id)
{
    struct job *job = NULL;
    pthread_mutex_lock(&keeper->lock);
    for (struct running *at = keeper->running; at; at = at->next)
        if (at->job && !at->ended && !strcmp(at->row.id, id))
            job = job_hold(at->job);
    pthread_mutex_unlock(&keeper->lock);
    if (job)
        worker_pool_cancel(keeper->pool, job, ERROR_CANCELLED);
    job_release(&job);
}

/* After the commit: counts and tells of jobs that will not begin. */
void keeper_publish_over(struct keeper *keeper, const struct ids *over)
{
    for (size_t i = 0; i < over->count; i++) {
        struct store_job row = {0};
        struct error ignored = ERROR_INIT; /* who listens to it looks at it later */
        bool found = false;
        if (!store_get(keeper->store, over->ids[i], &row, &found, &ignored) && found && row.state > STORE_RUNNING) {
            stats_add_ended(worker_pool_stats(keeper->pool), row.state == STORE_FAILED, row.state == STORE_CANCELLED);
            keeper_publish(keeper, &row, NULL, EVENT_ENDED);
            spool_release(keeper->spool, row.output_bytes); /* what it was promised */
        }
        store_job_clear(&row);
    }
}
