/* Long because all of it is what one thread does with one list of jobs. */
#include "server/job/keeper.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "server/job/events.h"
#include "server/job/fetcher.h"
#include "server/job/ids.h"
#include "server/job/keeper_check.h"
#include "server/job/keeper_input.h"
#include "server/job/keeper_output.h"
#include "server/job/record.h"
#include "server/job/waiting.h"

#define LEASE_MS 30000
#define RENEW_MS 10000
#define RETRY_MS 1000 /* after a full disk, a full queue, or while the models are being loaded */
#define EXPIRE_MS 5000
#define COUNT_MS 1000
#define AGAIN_MOST 3    /* tries, before a request is told that the database does not answer */
#define EXPIRE_MOST 100 /* rows at a time: what comes meanwhile waits for them and their commit */

/* A claimed job, from its claim until its end is in the store. */
struct running {
    struct store_job row;
    struct job *job;   /* NULL: it could not begin */
    struct error err;  /* why; or why its output is not in the spool yet: others read that one under the lock */
    bool decoded;      /* of a job that has failed: its picture could be read */
    bool ended;        /* set by the job's end, under the lock */
    bool spooled;      /* its output is in the spool, perhaps not in the payloads */
    bool kept, stored; /* its output is where it belongs; its end is in the transaction */
    bool lost;         /* the end came too late: the job is another server's */
    bool give_back;    /* the server stops, or the queue was full: it goes on later */
    uint64_t promised; /* bytes of the spool, to its output */
    bool dropped;      /* it was cancelled while its output waited for room */
    struct keeper *keeper;
    struct running *next;
};

struct keeper {
    struct keeper_settings settings;
    char owner[33];
    struct worker_pool *pool;
    const struct model_store *models;
    struct spool *spool;
    struct depot depot;
    struct store *store;
    bool shared, front;
    struct cluster *cluster; /* of a shared store, as the next one of shared pictures */
    struct fetcher *fetcher;
    pthread_t thread;
    bool started;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct keeper_ticket *first, **last; /* wishes that came in */
    struct running *running;
    int running_count;
    bool woken;
    atomic_bool draining, stop;

    /* the thread's own */
    uint64_t waiting; /* jobs in the store that wait */
    int64_t renew_at, expire_at, claim_at, output_at, count_at, again_at;
    struct keeper_ticket *again; /* wishes whose commit had no answer */
    struct running *unsure; /* claims whose commit had none: perhaps they are this server's, and nobody begins them */
};

static void keeper_wake(struct keeper *keeper)
{
    keeper->woken = true;
    pthread_cond_signal(&keeper->changed);
}

/* For those who listen, once it is committed. */
static void keeper_publish(struct keeper *keeper, const struct store_job *row, const struct job *job,
                           enum event_kind kind)
{
    static const enum job_state states[STORE_STATES] = {JOB_QUEUED, JOB_RUNNING, JOB_DONE, JOB_FAILED, JOB_CANCELLED};
    struct event event = {.kind = kind, .position = -1};
    if (job)
        events_describe(&event, job, kind);
    memcpy(event.job, row->id, sizeof event.job);
    memcpy(event.token, row->token, sizeof event.token);
    event.state = states[row->state];
    event.stage = row->state > STORE_RUNNING ? STAGE_COUNT : STAGE_QUEUE;
    event.seconds_left = row->state > STORE_RUNNING ? 0 : -1;
    events_publish(worker_pool_events(keeper->pool), &event);
    if (keeper->cluster)
        cluster_poke(keeper->cluster);
}

/* One group: everything that there is to write now, in one transaction, and what is to be done after it. Where memory
 * is out for an id, its files stay until the next start, and what runs goes on; asking again cancels it. */
struct keeper_group {
    struct keeper_ticket *tickets;
    struct running *claimed;
    struct ids stop, drop; /* jobs at work to be stopped; jobs whose files go */
    struct ids over;       /* jobs that ended without having been at work here */
    int damaged;           /* jobs that failed because their rows are damaged */
    bool moving;           /* jobs are on their way: waiting.h */
    bool unsure;           /* the commit had no answer */
    size_t expired;
    uint64_t cancelled; /* of those that waited */
};

/* --- cancelling ----------------------------------------------------------------------------------------------------
 */

/* Whether it is done, and its output waits for room. */
static bool running_waits(const struct running *running)
{
    return running->job && running->ended && !running->kept && running->err.code;
}

/* In the transaction: a job whose output waits for room ends as cancelled, without it. False: there is none such. */
static bool keeper_drop_output(struct keeper *keeper, const char *id, int64_t now)
{
    pthread_mutex_lock(&keeper->lock);
    struct running *at = keeper->running;
    while (at && (strcmp(at->row.id, id) != 0 || !running_waits(at)))
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
    row->started = atomic_load(&at->job->begun_ms);
    row->finished = now;
    row->expires = now + keeper->settings.result_seconds * 1000;
    at->dropped = true;
    return true;
}

static void keeper_cancel(struct keeper *keeper, struct keeper_group *group, struct keeper_ticket *ticket,
                          const char *id)
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

static void keeper_cancel_batch(struct keeper *keeper, struct keeper_group *group, struct keeper_ticket *ticket)
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
static void keeper_stop_running(struct keeper *keeper, const char *id)
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
static void keeper_publish_over(struct keeper *keeper, const struct ids *over)
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

/* --- running -------------------------------------------------------------------------------------------------------
 */

static void keeper_job_ended(struct job *job, void *context)
{
    struct running *running = context;
    struct keeper *keeper = running->keeper;
    (void)job;
    pthread_mutex_lock(&keeper->lock);
    running->ended = true;
    keeper_wake(keeper);
    pthread_mutex_unlock(&keeper->lock);
}

/* Gives a claimed job to the workers. */
static enum error_code keeper_begin(struct keeper *keeper, struct running *running, struct error *err)
{
    struct restoration *r = NULL;
    struct body body = {0};
    struct job *job = NULL;
    const struct store_job *row = &running->row;
    struct waiting *waiting = worker_pool_waiting(keeper->pool);
    pthread_mutex_lock(&keeper->lock);
    const struct limits limits = keeper->settings.limits;
    pthread_mutex_unlock(&keeper->lock);
    enum error_code code = record_restoration(row->options, &limits, &r, err);
    if (!code)
        code = depot_get_input(&keeper->depot, row->id, &body, err);
    if (code == ERROR_NOT_FOUND) {
        error_clear(err);
        code = error_set(err, ERROR_INTERNAL, "the picture of this job is lost: its file is not in the spool any more");
    }
    if (!code)
        code = job_create(&job, row->id, &r, &body, keeper_job_ended, running, err);
    if (!code) {
        memcpy(job->token, row->token, sizeof job->token);
        memcpy(job->client, row->client, sizeof job->client);
        job->low = row->low;
        job->accepted = true;
        events_follow(worker_pool_events(keeper->pool), job);
        job->created_ns -= (job_clock() - row->created) * 1000000; /* the deadline counts from there, too */
        code = body_read(&job->body, job->restoration, pipeline_check, keeper->models, err);
    }
    if (!code) {
        pthread_mutex_lock(&keeper->lock);
        running->job = job_hold(job);
        pthread_mutex_unlock(&keeper->lock);
        waiting_lock(waiting); /* whoever counts finds it on its way or in the queue */
        code = worker_pool_submit(keeper->pool, job, err);
        waiting_remove(waiting, row->id);
        waiting_unlock(waiting);
        if (code) {
            struct job *unused = job;
            pthread_mutex_lock(&keeper->lock);
            running->job = NULL;
            pthread_mutex_unlock(&keeper->lock);
            job_release(&unused);
        }
    }
    job_release(&job);
    restoration_destroy(&r);
    body_clear(&body);
    return code;
}

/* A job has ended in the claim. */
static void keeper_add_over(void *context, const char *id)
{
    struct keeper_group *group = context;
    if (!*id) {
        group->damaged++;
        return;
    }
    ids_add(&group->over, id);
    ids_add(&group->drop, id);
}

/* In the transaction: claims what fits; group->claimed gets them in their order. */
static enum error_code keeper_claim(struct keeper *keeper, struct keeper_group *group, int64_t now, int most,
                                    struct error *err)
{
    struct running **claimed = &group->claimed;
    struct waiting *waiting = worker_pool_waiting(keeper->pool);
    bool found = true, alone = keeper->running_count == 0;
    for (; most-- > 0 && found; alone = false) {
        struct running *running = mem_calloc(1, sizeof *running);
        if (!running)
            return error_set(err, ERROR_NO_MEMORY, "no memory for a job");
        running->keeper = keeper;
        const struct keeper_group before = *group;
        enum error_code code =
            store_claim(keeper->store, keeper->owner, now, now + LEASE_MS, now + keeper->settings.result_seconds * 1000,
                        KEEPER_ATTEMPTS, &running->row, &found, keeper_add_over, group, err);
        if (code || !found) {
            free(running);
            if (!code)
                break;
            group->over.count = before.over.count; /* what it has told is undone */
            group->drop.count = before.drop.count;
            group->damaged = before.damaged;
            return code;
        }
        /* One that was at work when the server ended may be what ended it: it works alone, so that jobs beside it do
         * not lose attempts, too. */
        const bool suspect = running->row.attempts > 1;
        if (suspect && !alone) {
            code = store_give_back(keeper->store, running->row.id, keeper->owner, running->row.attempts, err);
            store_job_clear(&running->row);
            free(running);
            return code;
        }
        running->promised = running->row.output_bytes;
        *claimed = running;
        claimed = &running->next;
        waiting_lock(waiting);
        waiting_add(waiting, running->row.id, running->row.client);
        waiting_unlock(waiting);
        group->moving = true;
        if (suspect)
            break;
    }
    return OK;
}

static void running_free(struct running **running)
{
    struct running *old = *running;
    *running = old->next;
    job_release(&old->job);
    store_job_clear(&old->row);
    free(old);
}

/* How many more jobs the workers can take now. A queue full of others does not matter: were it so, clients that wait
 * for their answers could keep asynchronous jobs from ever beginning. */
static int keeper_room(struct keeper *keeper)
{
    struct error ignored = ERROR_INIT;
    if (keeper->draining || keeper->front || worker_pool_ready(keeper->pool, &ignored) ||
        (keeper->running && keeper->running->row.attempts > 1)) /* that one works alone */
        return 0;
    return worker_pool_carriers(keeper->pool) - keeper->running_count;
}

/* --- what comes out ------------------------------------------------------------------------------------------------
 */

/* Puts what an ended job made into the spool, and describes it in its row. */
static enum error_code keeper_keep_output(struct keeper *keeper, struct running *running, struct error *err)
{
    struct store_job *row = &running->row;
    const struct job *job = running->job;
    const enum job_state state = job ? atomic_load(&job->state) : JOB_FAILED;
    if (state == JOB_CANCELLED && atomic_load(&job->stop) == ERROR_BUSY)
        running->give_back = true;
    if (running->give_back)
        return OK;
    row->started = job ? atomic_load(&job->begun_ms) : 0;
    row->finished = store_clock(keeper->store);
    row->expires = row->finished + keeper->settings.result_seconds * 1000;
    row->state = state == JOB_DONE ? STORE_DONE : state == JOB_CANCELLED ? STORE_CANCELLED : STORE_FAILED;
    if (state != JOB_DONE) {
        const struct error *reason = job ? &job->error : &running->err;
        free(row->error);
        row->output_bytes = 0;
        row->error = record_error(reason, job ? job->restoration->decoded : running->decoded);
        return OK;
    }
    if (!running->spooled) {
        const enum error_code code = keeper_output_keep(keeper->spool, job, row, err);
        if (code)
            return code;
        running->spooled = true;
    }
    return row->output_bytes ? depot_put_output(&keeper->depot, row->id, row->attempts, err) : OK;
}

/* Ended jobs whose output is not in the spool yet. */
static void keeper_keep_outputs(struct keeper *keeper, int64_t now)
{
    if (now < keeper->output_at)
        return;
    for (struct running *at = keeper->running; at; at = at->next) {
        struct error err = ERROR_INIT;
        pthread_mutex_lock(&keeper->lock);
        const bool ended = at->ended;
        pthread_mutex_unlock(&keeper->lock);
        if (!ended || at->kept)
            continue;
        if (!keeper_keep_output(keeper, at, &err)) {
            at->kept = true;
            if (at->job && at->err.code)
                log_event(LOG_INFO, "spool", "id=%s text=\"the result is kept now\"", at->row.id);
            continue;
        }
        if (strcmp(at->err.text, err.text) != 0) /* once, however often it is tried again */
            log_event(LOG_ERROR, "spool", "id=%s text=\"%s\"", at->row.id, err.text);
        pthread_mutex_lock(&keeper->lock);
        at->err = err;
        pthread_mutex_unlock(&keeper->lock);
        if (keeper->stop) /* it will be computed again */
            at->kept = at->give_back = true;
        else /* perhaps the next one is smaller */
            keeper->output_at = now + RETRY_MS;
    }
}

/* Whether this end is in the store: a commit that had no answer has stored it. */
static bool keeper_has_finished(struct keeper *keeper, const struct store_job *row)
{
    struct store_job there;
    struct error ignored = ERROR_INIT;
    bool found;
    const enum error_code code = store_get(keeper->store, row->id, &there, &found, &ignored);
    const bool same = !code && found && there.state == row->state && there.finished == row->finished;
    store_job_clear(&there);
    return same;
}

/* In the transaction: jobs that nobody would begin until their leases are over, if their claims have happened. */
static enum error_code keeper_give_back_unsure(struct keeper *keeper, struct error *err)
{
    enum error_code code = OK;
    for (const struct running *at = keeper->unsure; at && !code; at = at->next)
        code = store_give_back(keeper->store, at->row.id, keeper->owner, at->row.attempts, err);
    return code;
}

/* In the transaction: the ends of jobs. */
static enum error_code keeper_finish(struct keeper *keeper, struct error *err)
{
    for (struct running *at = keeper->running; at; at = at->next) {
        bool held = true;
        if (!at->kept && !at->dropped)
            continue;
        enum error_code code = at->give_back
                                   ? store_give_back(keeper->store, at->row.id, keeper->owner, at->row.attempts, err)
                                   : store_finish(keeper->store, &at->row, keeper->owner, &held, err);
        if (code)
            return code;
        at->stored = true;
        at->lost = !held && !keeper_has_finished(keeper, &at->row);
    }
    return OK;
}

/* After the commit: the ended ones are forgotten here. ended: whose pictures go; late: whose ends came too late. */
static void keeper_drop_finished(struct keeper *keeper, struct ids *ended, struct ids *late)
{
    pthread_mutex_lock(&keeper->lock);
    struct running **at = &keeper->running;
    while (*at) {
        struct running *running = *at;
        if (!running->stored) {
            at = &running->next;
            continue;
        }
        if (running->give_back) {
            keeper->waiting++;
        } else if (running->lost) {
            ids_add(late, running->row.id);
        } else {
            ids_add(ended, running->row.id);
            spool_release(keeper->spool, running->promised);
            keeper_publish(keeper, &running->row, running->job, EVENT_ENDED);
            stats_add_ended(worker_pool_stats(keeper->pool), !running->job, 0); /* the workers count the others */
        }
        running_free(at);
        keeper->running_count--;
    }
    pthread_mutex_unlock(&keeper->lock);
}

/* --- the thread ----------------------------------------------------------------------------------------------------
 */

static enum error_code keeper_renew(struct keeper *keeper, int64_t now, struct error *err)
{
    bool held, cancel;
    enum error_code code = OK;
    for (struct running *at = keeper->running; at && !code; at = at->next)
        if (!at->kept)
            code = store_renew(keeper->store, at->row.id, keeper->owner, at->row.attempts, now + LEASE_MS, &held,
                               &cancel, err);
    return code;
}

/* After a part of the transaction: a store that is damaged there does not keep the other parts from the disk. */
static enum error_code keeper_apart(enum error_code code, const struct error *local, const char *result,
                                    struct error *err)
{
    if (code == ERROR_CORRUPT)
        log_event(LOG_ERROR, "store", "text=\"%s\" result=\"%s\"", local->text, result);
    return !code || code == ERROR_CORRUPT ? OK : error_copy(err, code, local);
}

/* In the transaction: removes what has expired. */
static enum error_code keeper_expire(struct keeper *keeper, struct keeper_group *group, int64_t now, struct error *err)
{
    struct error local = ERROR_INIT;
    const size_t before = group->drop.count;
    const enum error_code code = store_expire(keeper->store, now, EXPIRE_MOST, ids_add, &group->drop, &local);
    if (code)
        group->drop.count = before;
    group->expired = group->drop.count - before;
    return keeper_apart(code, &local, "what has expired stays", err);
}

/* Puts everything into the transaction. An error that concerns one ticket alone is that ticket's. */
static enum error_code keeper_write(struct keeper *keeper, struct keeper_group *group, int64_t now, struct error *err)
{
    enum error_code code = OK;
    for (struct keeper_ticket *ticket = group->tickets; ticket; ticket = ticket->next) {
        if (ticket->wish == KEEPER_ACCEPT)
            keeper_input_insert(ticket, keeper->store, &keeper->depot, keeper->pool);
        else if (ticket->wish == KEEPER_CANCEL)
            keeper_cancel(keeper, group, ticket, ticket->job.id);
        else
            keeper_cancel_batch(keeper, group, ticket);
    }
    code = keeper_give_back_unsure(keeper, err);
    if (!code)
        code = keeper_finish(keeper, err);
    if (!code && !keeper->shared && now >= keeper->renew_at) /* the cluster's thread does it */
        code = keeper_renew(keeper, now, err);
    if (!code && now >= keeper->expire_at)
        code = keeper_expire(keeper, group, now, err);
    const int room = keeper_room(keeper);
    if (code || now < keeper->claim_at || room <= 0)
        return code;
    struct error local = ERROR_INIT;
    code = keeper_claim(keeper, group, now, room, &local);
    if (code == ERROR_CORRUPT)
        keeper->claim_at = now + RENEW_MS;
    return keeper_apart(code, &local, "no job begins", err);
}

/* A commit of a shared store has had no answer, so it may have happened: a new job is tried again under its id, which
 * is then in the store once, whatever has become of the first try. */
static bool keeper_again(struct keeper *keeper, struct keeper_ticket *ticket, const struct error *err)
{
    if (!keeper->shared || err->code != ERROR_IO || ticket->err.code || ticket->wish != KEEPER_ACCEPT ||
        ticket->inserted != STORE_NEW || !ticket->placed || keeper->stop || ++ticket->tries > AGAIN_MOST)
        return false;
    ticket->next = keeper->again;
    keeper->again = ticket;
    keeper->again_at = store_clock(keeper->store) + RETRY_MS;
    return true;
}

/* Those whose time has come, and new ones. */
static struct keeper_ticket *keeper_due(struct keeper *keeper, struct keeper_ticket *tickets, bool stop)
{
    struct keeper_ticket *again = keeper->again;
    if (!again || (!stop && store_clock(keeper->store) < keeper->again_at))
        return tickets;
    struct keeper_ticket *last = again;
    while (last->next)
        last = last->next;
    last->next = tickets;
    keeper->again = NULL;
    return again;
}

/* Of a job that was not accepted. If its row may be there all the same, whoever repeats the request with its key gets
 * that job, which needs its picture; else that is swept. What was never put there is not looked for: while the payloads
 * cannot be reached, each try would take seconds. */
static void keeper_remove_input(struct keeper *keeper, const struct keeper_ticket *ticket)
{
    if (!ticket->unsure && (ticket->placed || !keeper->depot.payload))
        depot_remove_input(&keeper->depot, ticket->job.id);
}

/* After the commit, or after it failed. */
static void keeper_tell(struct keeper *keeper, struct keeper_group *group, const struct error *err)
{
    struct keeper_ticket *next;
    for (struct keeper_ticket *ticket = group->tickets; ticket; ticket = next) {
        next = ticket->next;
        ticket->unsure |= group->unsure && !ticket->err.code && ticket->inserted == STORE_NEW;
        if (keeper_again(keeper, ticket, err))
            continue;
        if (ticket->promised && (err->code || ticket->err.code || ticket->inserted != STORE_NEW))
            spool_release(keeper->spool, ticket->job.output_bytes);
        if (err->code && !ticket->err.code) {
            ticket->err = *err;
            if (ticket->wish == KEEPER_ACCEPT && ticket->inserted == STORE_NEW)
                keeper_remove_input(keeper, ticket);
        } else if (ticket->err.code && ticket->wish == KEEPER_ACCEPT) {
            keeper_remove_input(keeper, ticket);
        } else if (!ticket->err.code && ticket->wish == KEEPER_ACCEPT) {
            keeper->waiting += ticket->inserted == STORE_NEW;
            if (ticket->inserted == STORE_NEW)
                keeper_publish(keeper, &ticket->job, NULL, EVENT_QUEUED);
        }
        ticket->done(ticket->context); /* it may be gone now */
    }
}

/* Starts what was claimed. */
static void keeper_start(struct keeper *keeper, struct keeper_group *group, int64_t now)
{
    struct running *running;
    while ((running = group->claimed)) {
        group->claimed = running->next;
        keeper->waiting -= keeper->waiting > 0;
        pthread_mutex_lock(&keeper->lock);
        running->next = keeper->running;
        keeper->running = running;
        keeper->running_count++;
        pthread_mutex_unlock(&keeper->lock);
        enum error_code code = keeper_begin(keeper, running, &running->err);
        if (!code)
            continue;
        running->give_back = code == ERROR_BUSY;
        if (running->give_back)
            keeper->claim_at = now + RETRY_MS;
        pthread_mutex_lock(&keeper->lock);
        running->ended = keeper->woken = true;
        pthread_mutex_unlock(&keeper->lock);
    }
}

/* None of the group is on its way any more. */
static void keeper_arrived(struct keeper *keeper, struct keeper_group *group)
{
    if (group->moving)
        waiting_arrived(worker_pool_waiting(keeper->pool), NULL);
    group->moving = false;
}

/* Others add to a shared store and take from it, too: counts what waits, once a second. */
static void keeper_count(struct keeper *keeper, int64_t now)
{
    struct error ignored = ERROR_INIT; /* what comes next meets it */
    uint64_t waiting;
    if (!keeper->shared || (now < keeper->count_at && store_reachable(keeper->store)))
        return;
    if (store_sync_clock(keeper->store, &ignored) /* which connects, if need be */ ||
        store_queued(keeper->store, &waiting, &ignored))
        return;
    keeper->waiting = waiting;
    keeper->count_at = now + COUNT_MS;
    char *offers = keeper->front ? NULL : cluster_offers(keeper->models);
    (void)!store_offer(keeper->store, offers, &ignored);
    free(offers);
}

/* After a commit that failed: what it claimed does not begin. */
static void keeper_drop_claims(struct keeper *keeper, struct keeper_group *group)
{
    while (group->claimed) {
        struct running *running = group->claimed;
        if (!group->unsure) {
            running_free(&group->claimed);
            continue;
        }
        group->claimed = running->next;
        running->next = keeper->unsure;
        keeper->unsure = running;
    }
}

static void keeper_turn(struct keeper *keeper, struct keeper_ticket *tickets)
{
    struct keeper_group group = {.tickets = tickets, .moving = tickets};
    struct error err = ERROR_INIT;
    const int64_t now = store_clock(keeper->store);
    keeper_count(keeper, now);
    keeper_input_keep(tickets, keeper->store, &keeper->depot, keeper->waiting, keeper->settings.queue);
    keeper_keep_outputs(keeper, now);
    enum error_code code = store_begin(keeper->store, &err);
    if (!code) {
        code = keeper_write(keeper, &group, now, &err);
        if (!code) {
            code = store_commit(keeper->store, &err);
            group.unsure = keeper->shared && code == ERROR_IO;
        }
        if (code)
            store_rollback(keeper->store);
    }
    if (code) {
        log_event(LOG_ERROR, "store", "code=%s text=\"%s\"", error_code_name(code), err.text);
        keeper_drop_claims(keeper, &group);
        keeper_arrived(keeper, &group);
        for (struct running *at = keeper->running; at; at = at->next)
            at->stored = at->dropped = false;
        keeper->claim_at = keeper->output_at = now + RETRY_MS;
        if (keeper->renew_at < now + RETRY_MS) /* nothing is left due: it would be tried again without a pause */
            keeper->renew_at = now + RETRY_MS;
        if (keeper->expire_at < now + RETRY_MS)
            keeper->expire_at = now + RETRY_MS;
    } else {
        struct ids ended = {0}, late = {0};
        while (keeper->unsure)
            running_free(&keeper->unsure);
        keeper_drop_finished(keeper, &ended, &late);
        for (size_t i = 0; i < ended.count; i++) {
            depot_remove_input(&keeper->depot, ended.ids[i]);
            depot_settle(&keeper->depot, ended.ids[i]);
        }
        for (size_t i = 0; i < late.count; i++) { /* what it has put into the payloads is swept */
            log_event(LOG_WARN, "late", "id=%s text=\"the job is another server's; this result is dropped\"",
                      late.ids[i]);
            depot_settle(&keeper->depot, late.ids[i]);
        }
        free(ended.ids);
        free(late.ids);
        /* another server's job may not be among those that were counted last */
        keeper->waiting -= group.cancelled < keeper->waiting ? group.cancelled : keeper->waiting;
        for (size_t i = 0; i < group.drop.count; i++) {
            depot_remove_input(&keeper->depot, group.drop.ids[i]);
            depot_remove_output(&keeper->depot, group.drop.ids[i], 0);
        }
        for (size_t i = 0; i < group.stop.count; i++)
            keeper_stop_running(keeper, group.stop.ids[i]);
        if (group.stop.count && keeper->cluster)
            cluster_tell_cancel(keeper->cluster);
        keeper_publish_over(keeper, &group.over);
        stats_add_ended(worker_pool_stats(keeper->pool), (uint64_t)group.damaged, 0);
        keeper->renew_at = now >= keeper->renew_at ? now + RENEW_MS : keeper->renew_at;
        if (now >= keeper->expire_at)
            keeper->expire_at = group.expired < EXPIRE_MOST ? now + EXPIRE_MS : now;
    }
    keeper_tell(keeper, &group, &err);
    keeper_start(keeper, &group, now);
    keeper_arrived(keeper, &group);
    free(group.stop.ids);
    free(group.over.ids);
    free(group.drop.ids);
}

/* Under the lock: waits until there is something to do. */
static void keeper_wait(struct keeper *keeper)
{
    const int64_t now = store_clock(keeper->store);
    int64_t until = keeper->expire_at < keeper->renew_at ? keeper->expire_at : keeper->renew_at;
    if ((keeper->waiting || keeper->shared) && !keeper->draining && until > now + RETRY_MS)
        until = now + RETRY_MS;
    if (keeper->output_at > now && keeper->output_at < until)
        until = keeper->output_at;
    if (keeper->again && keeper->again_at < until)
        until = keeper->again_at;
    until = until > now ? until - now + job_clock() : 0; /* by this machine's clock */
    const struct timespec time = {until / 1000, until % 1000 * 1000000};
    while (!keeper->first && !keeper->woken && !keeper->stop)
        if (pthread_cond_timedwait(&keeper->changed, &keeper->lock, &time) == ETIMEDOUT)
            break;
    keeper->woken = false;
}

static void *keeper_main(void *argument)
{
    struct keeper *keeper = argument;
    bool stop = false;
    while (!stop) {
        pthread_mutex_lock(&keeper->lock);
        keeper_wait(keeper);
        struct keeper_ticket *tickets = keeper->first;
        keeper->first = NULL;
        keeper->last = &keeper->first;
        stop = keeper->stop;
        pthread_mutex_unlock(&keeper->lock);
        if (stop)
            keeper->output_at = 0;
        keeper_turn(keeper, keeper_due(keeper, tickets, stop));
    }
    return NULL;
}

/* --- from outside --------------------------------------------------------------------------------------------------
 */

static enum error_code keeper_recover(struct keeper *keeper, struct error *err)
{
    const int64_t now = store_clock(keeper->store);
    struct store_counts counts, before;
    uint64_t promised = 0;
    enum error_code code = store_count(keeper->store, NULL, NULL, &before, err);
    if (!code)
        code = store_begin(keeper->store, err);
    if (code)
        return code;
    code = store_recover(keeper->store, now, now + keeper->settings.result_seconds * 1000, KEEPER_ATTEMPTS, err);
    if (!code)
        code = store_commit(keeper->store, err);
    if (code)
        store_rollback(keeper->store);
    if (!code)
        code = keeper_check(keeper->store, keeper->spool, err);
    if (!code)
        code = store_count(keeper->store, NULL, NULL, &counts, err);
    if (!code)
        code = store_promised(keeper->store, &promised, err);
    if (code)
        return code;
    spool_promise_anyway(keeper->spool, promised);
    keeper->waiting = counts.jobs[STORE_QUEUED];
    stats_add_ended(worker_pool_stats(keeper->pool), counts.jobs[STORE_FAILED] - before.jobs[STORE_FAILED],
                    counts.jobs[STORE_CANCELLED] - before.jobs[STORE_CANCELLED]);
    if (keeper->waiting)
        log_event(LOG_INFO, "jobs", "waiting=%llu", (unsigned long long)keeper->waiting);
    return OK;
}

static void keeper_drop_file(void *context, const char *id, enum spool_kind kind)
{
    spool_remove(context, id, kind);
}

/* Removes results that an earlier start could not deliver: their jobs are computed again. Where a store of SQLite is,
 * as before the setting was changed, what it tells of stays: `restored store move` takes that to the shared one. */
static void keeper_clear_spool(struct keeper *keeper, const char *path)
{
    struct store *old = NULL;
    struct error err = ERROR_INIT;
    if (access(path, F_OK) && errno == ENOENT) {
        spool_each(keeper->spool, keeper_drop_file, keeper->spool);
        return;
    }
    enum error_code code = store_open(&old, path, &err);
    if (!code)
        code = keeper_check(old, keeper->spool, &err);
    if (code)
        log_event(LOG_WARN, "spool", "text=\"%s\" result=\"files in the spool stay\"", err.text);
    store_close(&old);
}

/* A worker_pool_elsewhere_fn. */
static enum error_code keeper_elsewhere(void *context, struct error *err)
{
    return cluster_ready(context, err);
}

/* The server's part of a shared store: others may be at work, so what runs stays theirs until its lease is over. */
static enum error_code keeper_join(struct keeper *keeper, const struct keeper_settings *settings, struct error *err)
{
    const struct cluster_settings cluster = {.store = settings->store,
                                             .password_file = settings->password_file,
                                             .works = !keeper->front,
                                             .role = settings->role ? settings->role : "both",
                                             .payload = settings->payload};
    enum error_code code = store_open_shared(&keeper->store, settings->store, settings->password_file, err);
    if (!code && settings->payload)
        code = fetcher_create(&keeper->fetcher, &keeper->depot, err);
    if (!code)
        keeper_clear_spool(keeper, settings->path);
    if (!code)
        code = cluster_create(&keeper->cluster, &cluster, keeper, keeper->pool, keeper->models, err);
    if (!code)
        worker_pool_elsewhere(keeper->pool, keeper_elsewhere, keeper->cluster);
    return code;
}

enum error_code keeper_create(struct keeper **out, const struct keeper_settings *settings, struct worker_pool *pool,
                              const struct model_store *models, struct spool *spool, struct error *err)
{
    *out = NULL;
    struct keeper *keeper = mem_calloc(1, sizeof *keeper);
    if (!keeper)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the jobs");
    keeper->settings = *settings;
    keeper->settings.path = keeper->settings.store = keeper->settings.password_file = NULL;
    keeper->pool = pool;
    keeper->models = models;
    keeper->spool = spool;
    keeper->last = &keeper->first;
    keeper->renew_at = job_clock() + RENEW_MS;
    job_make_id(keeper->owner);
    pthread_mutex_init(&keeper->lock, NULL);
    pthread_cond_init(&keeper->changed, NULL);
    keeper->depot = (struct depot){.spool = spool, .payload = settings->payload};
    keeper->shared = settings->store != NULL;
    keeper->front = settings->role && !strcmp(settings->role, "front");
    enum error_code code =
        keeper->shared ? keeper_join(keeper, settings, err) : keeper_check_gone(settings->path, spool, err);
    if (!code && !keeper->shared)
        code = store_open(&keeper->store, settings->path, err);
    if (!code && !keeper->shared)
        code = keeper_recover(keeper, err);
    if (!code && pthread_create(&keeper->thread, NULL, keeper_main, keeper))
        code = error_set(err, ERROR_IO, "the thread that keeps the jobs could not be started");
    keeper->started = !code;
    if (code)
        keeper_destroy(&keeper);
    *out = keeper;
    return code;
}

void keeper_set_limits(struct keeper *keeper, struct limits limits)
{
    pthread_mutex_lock(&keeper->lock);
    keeper->settings.limits = limits;
    pthread_mutex_unlock(&keeper->lock);
}

/* A keeper_claim_fn. */
static void keeper_let_go(void *context, const char *id, int attempts, struct job *job)
{
    const struct keeper *keeper = context;
    (void)id, (void)attempts;
    if (job && !keeper_started(job))
        worker_pool_cancel(keeper->pool, job, ERROR_BUSY);
}

void keeper_drain(struct keeper *keeper)
{
    pthread_mutex_lock(&keeper->lock);
    keeper->draining = true;
    pthread_mutex_unlock(&keeper->lock);
    if (keeper->shared) /* other servers can begin at once what has not begun here */
        keeper_claims(keeper, keeper_let_go, keeper);
}

void keeper_destroy(struct keeper **keeper)
{
    struct keeper *old = *keeper;
    *keeper = NULL;
    if (!old)
        return;
    if (old->started) {
        pthread_mutex_lock(&old->lock);
        old->draining = old->stop = true;
        keeper_wake(old);
        pthread_mutex_unlock(&old->lock);
        pthread_join(old->thread, NULL);
    }
    worker_pool_elsewhere(old->pool, NULL, NULL);
    cluster_destroy(&old->cluster);
    fetcher_destroy(&old->fetcher);
    while (old->running)
        running_free(&old->running);
    while (old->unsure)
        running_free(&old->unsure);
    store_close(&old->store);
    pthread_cond_destroy(&old->changed);
    pthread_mutex_destroy(&old->lock);
    free(old);
}

void keeper_ask(struct keeper *keeper, struct keeper_ticket *ticket)
{
    if (ticket->wish == KEEPER_FETCH) {
        fetcher_ask(keeper->fetcher, ticket);
        return;
    }
    ticket->next = NULL;
    pthread_mutex_lock(&keeper->lock);
    *keeper->last = ticket;
    keeper->last = &ticket->next;
    keeper_wake(keeper);
    pthread_mutex_unlock(&keeper->lock);
}

void keeper_ticket_clear(struct keeper_ticket *ticket)
{
    store_job_clear(&ticket->job);
    body_clear(&ticket->body);
}

enum error_code keeper_begun(struct keeper *keeper, struct keeper_begun **out, size_t *count, int *claimed,
                             struct error *err)
{
    *count = 0;
    pthread_mutex_lock(&keeper->lock);
    *claimed = keeper->running_count;
    *out = mem_calloc((size_t)keeper->running_count + 1, sizeof **out);
    for (const struct running *at = keeper->running; at && *out; at = at->next)
        if (at->job && ((*out)[*count].started = keeper_started(at->job)))
            memcpy((*out)[(*count)++].id, at->row.id, sizeof at->row.id);
    pthread_mutex_unlock(&keeper->lock);
    return *out ? OK : error_set(err, ERROR_NO_MEMORY, "no memory for a list of jobs");
}

int64_t keeper_started(const struct job *job)
{
    return atomic_load(&job->state) == JOB_QUEUED ? 0 : atomic_load(&job->begun_ms);
}

struct job *keeper_hold(struct keeper *keeper, const char *id)
{
    struct job *job = NULL;
    pthread_mutex_lock(&keeper->lock);
    for (const struct running *at = keeper->running; at; at = at->next)
        if (at->job && !strcmp(at->row.id, id))
            job = job_hold(at->job);
    pthread_mutex_unlock(&keeper->lock);
    return job;
}

void keeper_claims(struct keeper *keeper, keeper_claim_fn *each, void *context)
{
    struct claim {
        char id[33];
        int attempts;
        struct job *job;
    } * claims;
    size_t count = 0;
    pthread_mutex_lock(&keeper->lock);
    claims = mem_calloc((size_t)keeper->running_count + 1, sizeof *claims);
    for (const struct running *at = keeper->running; at && claims; at = at->next) {
        memcpy(claims[count].id, at->row.id, sizeof claims[count].id);
        claims[count].attempts = at->row.attempts;
        claims[count++].job = at->job ? job_hold(at->job) : NULL;
    }
    pthread_mutex_unlock(&keeper->lock);
    for (size_t i = 0; i < count; i++) {
        each(context, claims[i].id, claims[i].attempts, claims[i].job);
        job_release(&claims[i].job);
    }
    free(claims);
}

void keeper_look_again(struct keeper *keeper)
{
    pthread_mutex_lock(&keeper->lock);
    keeper_wake(keeper);
    pthread_mutex_unlock(&keeper->lock);
}

struct cluster *keeper_cluster(struct keeper *keeper)
{
    return keeper->cluster;
}

const struct depot *keeper_depot(const struct keeper *keeper)
{
    return &keeper->depot;
}

const char *keeper_owner(const struct keeper *keeper)
{
    return keeper->owner;
}

int keeper_roomless(struct keeper *keeper, const char *id, struct error *why)
{
    int count = 0;
    pthread_mutex_lock(&keeper->lock);
    for (const struct running *at = keeper->running; at; at = at->next) {
        if (!running_waits(at))
            continue;
        count++;
        if (id && !strcmp(at->row.id, id))
            error_set(why, at->err.code, "the result waits for room: %s", at->err.text);
    }
    pthread_mutex_unlock(&keeper->lock);
    return count;
}

struct worker_pool *keeper_pool(struct keeper *keeper)
{
    return keeper->pool;
}

struct store *keeper_store(struct keeper *keeper)
{
    return keeper->store;
}

struct spool *keeper_spool(struct keeper *keeper)
{
    return keeper->spool;
}
