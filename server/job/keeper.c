#include "server/job/keeper_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "server/job/keeper_check.h"
#include "server/job/keeper_input.h"
#include "server/job/waiting.h"

#define RENEW_MS 10000
#define EXPIRE_MS 5000
#define EXPIRE_MOST 100 /* rows at a time: what comes meanwhile waits for them and their commit */

void keeper_wake(struct keeper *keeper)
{
    keeper->woken = true;
    pthread_cond_signal(&keeper->changed);
}

/* For those who listen, once it is committed. */
void keeper_publish(struct keeper *keeper, const struct store_job *row, const struct job *job, enum event_kind kind)
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

/* --- the thread ----------------------------------------------------------------------------------------------------
 */

static enum error_code keeper_renew(struct keeper *keeper, int64_t now, struct error *err)
{
    bool held, cancel;
    enum error_code code = OK;
    for (struct running *at = keeper->running; at && !code; at = at->next)
        if (!at->kept)
            code = store_renew(keeper->store, at->row.id, keeper->owner, at->row.attempts, now + KEEPER_LEASE_MS, &held,
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

/* In the transaction: the wish KEEPER_HOOKS. */
static void keeper_hooks(struct keeper *keeper, struct keeper_ticket *ticket, int64_t now)
{
    const int64_t lease = now + KEEPER_HOOK_MS;
    struct store *store = keeper->store;
    struct error *err = &ticket->err;
    if ((!ticket->hook || !hook_rows_done(store, keeper->owner, ticket->hook, err)) &&
        (!ticket->told || !hook_rows_told(store, keeper->owner, ticket->told, err)) &&
        !hook_rows_renew(store, keeper->owner, lease, err))
        (void)!hook_rows_take(store, keeper->owner, now, lease, (int)ticket->most, ticket->taken, ticket->context, err);
}

/* Puts everything into the transaction. An error that concerns one ticket alone is that ticket's. */
static enum error_code keeper_write(struct keeper *keeper, struct keeper_group *group, int64_t now, struct error *err)
{
    enum error_code code = OK;
    for (struct keeper_ticket *ticket = group->tickets; ticket; ticket = ticket->next) {
        if (ticket->wish == KEEPER_ACCEPT)
            keeper_input_insert(ticket, keeper->store, keeper->pool, keeper->owner);
        else if (ticket->wish == KEEPER_CANCEL)
            keeper_cancel(keeper, group, ticket, ticket->job.id);
        else if (ticket->wish == KEEPER_HOOKS)
            keeper_hooks(keeper, ticket, now);
        else
            keeper_cancel_batch(keeper, group, ticket);
    }
    code = keeper_give_back_unsure(keeper, err);
    if (!code)
        code = keeper_adopt(keeper, now, err);
    if (!code)
        code = keeper_finish(keeper, err);
    if (!code && !keeper->shared && now >= keeper->renew_at) /* the cluster's thread does it */
        code = keeper_renew(keeper, now, err);
    if (!code && now >= keeper->expire_at && !keeper_removes(keeper))
        code = keeper_expire(keeper, group, now, err);
    if (!code && keeper->stop)
        code = hook_rows_renew(keeper->store, keeper->owner, 0, err);
    const int room = keeper_room(keeper);
    if (code || now < keeper->claim_at || room <= 0)
        return code;
    struct error local = ERROR_INIT;
    code = keeper_claim(keeper, group, now, room, &local);
    if (code == ERROR_CORRUPT)
        keeper->claim_at = now + RENEW_MS;
    return keeper_apart(code, &local, "no job begins", err);
}

/* Of a job that was not accepted. If its row may be there all the same, whoever repeats the request with its key gets
 * that job, which needs its picture; else that is swept. What was never put there is not looked for: while the payloads
 * cannot be reached, each try would take seconds. */
static void keeper_remove_input(struct keeper *keeper, const struct keeper_ticket *ticket)
{
    if (!ticket->unsure && (ticket->placed || !keeper->depot.payload))
        keeper_remove(keeper, ticket->job.id, false);
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
        if (*ticket->unused) /* not in the transaction: that may be slow, and others wait for it */
            keeper_remove(keeper, ticket->unused, false);
        if (ticket->entered)
            atomic_fetch_sub(&keeper->entering, 1);
        ticket->done(ticket->context); /* it may be gone now */
    }
}

/* None of the group is on its way any more. */
static void keeper_arrived(struct keeper *keeper, struct keeper_group *group)
{
    if (group->moving)
        waiting_arrived(worker_pool_waiting(keeper->pool), NULL);
    group->moving = false;
}

static void keeper_turn(struct keeper *keeper, struct keeper_ticket *tickets)
{
    struct keeper_group group = {.tickets = tickets, .moving = tickets};
    struct error err = ERROR_INIT;
    keeper_count(keeper, store_clock(keeper->store));
    if (!keeper->depot.payload)
        keeper_input_keep(tickets, keeper->store, &keeper->depot, keeper->waiting, keeper->settings.queue);
    const int64_t now = store_clock(keeper->store); /* leases begin now, however long the pictures took */
    keeper_start_fetched(keeper, now);
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
        for (struct running *at = keeper->running; at; at = at->next) {
            at->stored = at->dropped = false;
            if (at->kept)
                keeper_note_undelivered(keeper, at);
        }
        keeper->claim_at = keeper->output_at = now + KEEPER_RETRY_MS;
        if (keeper->renew_at < now + KEEPER_RETRY_MS) /* nothing is left due: it would be tried again without a pause */
            keeper->renew_at = now + KEEPER_RETRY_MS;
        if (keeper->expire_at < now + KEEPER_RETRY_MS)
            keeper->expire_at = now + KEEPER_RETRY_MS;
    } else {
        struct ids ended = {0}, late = {0};
        while (keeper->unsure)
            running_free(&keeper->unsure);
        keeper_adopted(keeper);
        keeper_drop_finished(keeper, &ended, &late);
        for (size_t i = 0; i < ended.count; i++) {
            keeper_remove(keeper, ended.ids[i], false);
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
        for (size_t i = 0; i < group.drop.count; i++)
            keeper_remove(keeper, group.drop.ids[i], true);
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
    keeper_sweep(keeper, now);
    free(group.stop.ids);
    free(group.over.ids);
    free(group.drop.ids);
}

/* Under the lock: waits until there is something to do. */
static void keeper_wait(struct keeper *keeper)
{
    const int64_t now = store_clock(keeper->store);
    int64_t until = keeper->expire_at < keeper->renew_at ? keeper->expire_at : keeper->renew_at;
    if ((keeper->waiting || keeper->shared) && !keeper->draining && until > now + KEEPER_RETRY_MS)
        until = now + KEEPER_RETRY_MS;
    if (keeper->output_at > now && keeper->output_at < until)
        until = keeper->output_at;
    if (keeper->again && keeper->again_at < until)
        until = keeper->again_at;
    if (keeper->shared && keeper->waiting && keeper->ahead_at > now && keeper->ahead_at < until)
        until = keeper->ahead_at;
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
        stop = keeper->stop;
        pthread_mutex_unlock(&keeper->lock);
        if (stop)
            keeper->output_at = 0;
        if (stop && keeper->porter) {
            keeper_note_all(keeper);
            if (keeper->depot.payload->engine->hurry)
                keeper->depot.payload->engine->hurry(keeper->depot.payload);
            porter_finish(keeper->porter); /* which may bring tickets */
        }
        pthread_mutex_lock(&keeper->lock);
        struct keeper_ticket *tickets = keeper->first;
        keeper->first = NULL;
        keeper->last = &keeper->first;
        pthread_mutex_unlock(&keeper->lock);
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
    porter_destroy(&old->porter);
    while (old->running)
        running_free(&old->running);
    while (old->unsure)
        running_free(&old->unsure);
    while (old->undelivered)
        running_free(&old->undelivered);
    store_close(&old->store);
    pthread_cond_destroy(&old->changed);
    pthread_mutex_destroy(&old->lock);
    free(old);
}

/* Carries: KEEPER_FETCH. */
static void keeper_fetch(void *context, const struct depot *depot, bool stopping)
{
    struct keeper_ticket *ticket = context;
    if (stopping)
        error_set(&ticket->err, ERROR_BUSY, "the server is shutting down");
    else
        (void)!depot_get_output(depot, ticket->job.id, ticket->job.attempts, &ticket->fd, &ticket->size, &ticket->err);
    ticket->done(ticket->context); /* it may be gone now */
}

/* The keeper's thread has it next. */
static void keeper_add(struct keeper *keeper, struct keeper_ticket *ticket)
{
    ticket->next = NULL;
    pthread_mutex_lock(&keeper->lock);
    *keeper->last = ticket;
    keeper->last = &ticket->next;
    keeper_wake(keeper);
    pthread_mutex_unlock(&keeper->lock);
}

/* Carries: the picture of KEEPER_ACCEPT. */
static void keeper_place(void *context, const struct depot *depot, bool stopping)
{
    struct keeper_ticket *ticket = context;
    struct keeper *keeper = ticket->keeper;
    if (stopping)
        error_set(&ticket->err, ERROR_BUSY, "the server is shutting down");
    else
        keeper_input_keep(ticket, keeper->store, depot, keeper->waiting + atomic_fetch_add(&keeper->entering, 1),
                          keeper->settings.queue);
    ticket->entered = !stopping;
    keeper_add(keeper, ticket);
}

void keeper_ask(struct keeper *keeper, struct keeper_ticket *ticket)
{
    const bool accepts = ticket->wish == KEEPER_ACCEPT;
    ticket->keeper = keeper;
    ticket->next = NULL;
    if (ticket->wish != KEEPER_FETCH && !(accepts && keeper->depot.payload)) {
        keeper_add(keeper, ticket);
        return;
    }
    ticket->work = (struct porter_work){.carry = accepts ? keeper_place : keeper_fetch, .context = ticket};
    porter_ask(keeper->porter, &ticket->work);
}

void keeper_ticket_clear(struct keeper_ticket *ticket)
{
    store_job_clear(&ticket->job);
    body_clear(&ticket->body);
    free(ticket->hook);
    free(ticket->told);
    ticket->hook = ticket->told = NULL;
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
