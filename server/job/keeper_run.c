/* Claimed jobs: from the store to the workers, and what comes out of them back into the store. */
#include "server/job/keeper_state.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "server/job/keeper_output.h"
#include "server/job/record.h"
#include "server/job/waiting.h"

/* Whether it is done, and its output waits for room. */
bool running_waits(const struct running *running)
{
    return (running->job || running->adopted) && running->ended && !running->kept && running->err.code;
}

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

/* Brings the picture of a claimed job: carries, or on the keeper's thread where it is in the spool. */
static void keeper_fetch_input(void *context, const struct depot *depot, bool stopping)
{
    struct running *running = context;
    struct keeper *keeper = running->keeper;
    struct error err = ERROR_INIT;
    struct body body = {0};
    const enum error_code code = stopping ? error_set(&err, ERROR_BUSY, "the server is shutting down")
                                          : depot_get_input(depot, running->row.id, &body, &err);
    if (code == ERROR_NOT_FOUND) {
        error_clear(&err);
        error_set(&err, ERROR_INTERNAL, "the picture of this job is lost: its file is not in the spool any more");
    }
    pthread_mutex_lock(&keeper->lock);
    running->body = body;
    running->moved = err;
    running->fetching = false;
    running->fetched = true;
    keeper_wake(keeper);
    pthread_mutex_unlock(&keeper->lock);
}

/* Carries: the output of a job that is done, to the payloads. */
static void keeper_send_output(void *context, const struct depot *depot, bool stopping)
{
    struct running *running = context;
    struct keeper *keeper = running->keeper;
    struct error err = ERROR_INIT;
    (void)stopping; /* without it the job would be computed again */
    const enum error_code code = depot_put_output(depot, running->row.id, running->row.attempts, &err);
    pthread_mutex_lock(&keeper->lock);
    running->moved = err;
    running->sending = false;
    running->sent = !code;
    keeper_wake(keeper);
    pthread_mutex_unlock(&keeper->lock);
}

/* Gives a claimed job whose picture is here to the workers. */
static enum error_code keeper_begin(struct keeper *keeper, struct running *running, struct error *err)
{
    struct restoration *r = NULL;
    struct job *job = NULL;
    const struct store_job *row = &running->row;
    struct waiting *waiting = worker_pool_waiting(keeper->pool);
    pthread_mutex_lock(&keeper->lock);
    const struct limits limits = keeper->settings.limits;
    struct body body = running->body;
    const struct error moved = running->moved;
    running->body = (struct body){0};
    running->moved = (struct error)ERROR_INIT;
    running->fetched = false;
    pthread_mutex_unlock(&keeper->lock);
    enum error_code code = record_restoration(row->options, &limits, &r, err);
    if (!code && moved.code)
        code = error_copy(err, moved.code, &moved);
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
enum error_code keeper_claim(struct keeper *keeper, struct keeper_group *group, int64_t now, int most,
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
        enum error_code code = store_claim(keeper->store, keeper->owner, now, now + KEEPER_LEASE_MS,
                                           now + keeper->settings.result_seconds * 1000, KEEPER_ATTEMPTS, &running->row,
                                           &found, keeper_add_over, group, err);
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

void running_free(struct running **running)
{
    struct running *old = *running;
    *running = old->next;
    job_release(&old->job);
    body_clear(&old->body);
    store_job_clear(&old->row);
    free(old);
}

/* Whether a worker's device has, or will soon have, to do with it: a picture that comes slowly keeps no other job. */
static bool keeper_computes(const struct running *running, int64_t now)
{
    const struct job *job = running->job;
    const bool slow = running->fetching && now - running->row.started > KEEPER_AHEAD_MS;
    return !running->spooled && !running->ended && !running->adopted && !slow &&
           !(job && atomic_load(&job->restoration->entered) >> STAGE_PASTE & 1);
}

/* How many jobs of a shared store may be claimed: one for each worker that has none. More are claimed only while what
 * is here is known to take less than a second, so that the next picture is decoded meanwhile; what would wait here for
 * longer is left to other servers, which may be idle. */
static int keeper_share(struct keeper *keeper)
{
    const int64_t now = store_clock(keeper->store);
    int in_hand = 0;
    bool known = true;
    pthread_mutex_lock(&keeper->lock);
    for (const struct running *at = keeper->running; at; at = at->next)
        if (keeper_computes(at, now)) {
            in_hand++;
            known = known && at->job && at->job->estimate.measured;
        }
    pthread_mutex_unlock(&keeper->lock);
    const int hands = worker_pool_hands(keeper->pool);
    if (in_hand < hands)
        return hands - in_hand;
    const int64_t left = known ? (int64_t)(worker_pool_seconds(keeper->pool, 0) * 1000) : INT64_MAX;
    if (left <= KEEPER_AHEAD_MS)
        return 1;
    const int64_t pause = known ? left - KEEPER_AHEAD_MS : KEEPER_RETRY_MS;
    keeper->ahead_at = now + (pause < KEEPER_LOOK_MS ? KEEPER_LOOK_MS : pause);
    return 0;
}

/* How many more jobs the workers can take now, beside as many whose outputs are on their way or wait for that. A queue
 * full of others does not matter: were it so, clients that wait for their answers could keep asynchronous jobs from
 * ever beginning. */
int keeper_room(struct keeper *keeper)
{
    struct error ignored = ERROR_INIT;
    if (keeper->draining || keeper->front || worker_pool_ready(keeper->pool, &ignored) ||
        (keeper->running && !keeper->running->adopted && keeper->running->row.attempts > 1)) /* it works alone */
        return 0;
    const int carriers = worker_pool_carriers(keeper->pool);
    int busy = 0;
    for (const struct running *at = keeper->running; at; at = at->next)
        busy += !at->spooled;
    const int most = 2 * carriers - keeper->running_count;
    int room = carriers - busy < most ? carriers - busy : most;
    if (keeper->shared && room > 0) {
        const int share = keeper_share(keeper);
        room = room < share ? room : share;
    }
    return room;
}

static void keeper_start_one(struct keeper *keeper, struct running *running, int64_t now)
{
    const enum error_code code = keeper_begin(keeper, running, &running->err);
    if (!code)
        return;
    running->give_back = code == ERROR_BUSY;
    if (running->give_back)
        keeper->claim_at = now + KEEPER_RETRY_MS;
    if (running->give_back && keeper->depot.payload && !keeper->draining && now >= keeper->said_at) {
        log_event(LOG_WARN, "payload", "id=%s text=\"%s\" result=\"the job waits again\"", running->row.id,
                  running->err.text);
        keeper->said_at = now + KEEPER_SAID_MS;
    }
    pthread_mutex_lock(&keeper->lock);
    running->ended = keeper->woken = true;
    pthread_mutex_unlock(&keeper->lock);
}

void keeper_start(struct keeper *keeper, struct keeper_group *group, int64_t now)
{
    struct running *running;
    while ((running = group->claimed)) {
        group->claimed = running->next;
        keeper->waiting -= keeper->waiting > 0;
        pthread_mutex_lock(&keeper->lock);
        running->next = keeper->running;
        keeper->running = running;
        keeper->running_count++;
        running->fetching = true;
        pthread_mutex_unlock(&keeper->lock);
        running->work = (struct porter_work){.carry = keeper_fetch_input, .context = running};
        if (keeper->depot.payload) {
            porter_ask(keeper->porter, &running->work);
            continue;
        }
        keeper_fetch_input(running, &keeper->depot, false);
        keeper_start_one(keeper, running, now);
    }
}

void keeper_start_fetched(struct keeper *keeper, int64_t now)
{
    struct running *oldest;
    do {
        oldest = NULL;
        pthread_mutex_lock(&keeper->lock);
        for (struct running *at = keeper->running; at; at = at->next)
            oldest = at->fetched ? at : oldest;
        pthread_mutex_unlock(&keeper->lock);
        if (oldest)
            keeper_start_one(keeper, oldest, now);
    } while (oldest);
}

/* Puts what an ended job made into the spool, and describes it in its row. */
static enum error_code keeper_keep_output(struct keeper *keeper, struct running *running, struct error *err)
{
    struct store_job *row = &running->row;
    const struct job *job = running->job;
    const enum job_state state = job ? atomic_load(&job->state) : JOB_FAILED;
    if (state == JOB_CANCELLED && atomic_load(&job->stop) == ERROR_BUSY)
        running->give_back = true;
    if (running->give_back || running->adopted)
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
        const enum error_code code = keeper_output_keep(keeper->spool, job, keeper->depot.payload, row, err);
        if (code)
            return code;
        running->spooled = true;
    }
    return OK;
}

/* Whether what keeper_keep_output has kept is where it belongs. If not, it is on its way from now on, or the error says
 * why its last way failed. */
static bool keeper_sent(struct keeper *keeper, struct running *running, struct error *err)
{
    if (!keeper->depot.payload || running->row.state != STORE_DONE || !running->row.output_bytes)
        return true;
    pthread_mutex_lock(&keeper->lock);
    const bool send = !running->sent && !running->moved.code;
    running->sending |= send;
    pthread_mutex_unlock(&keeper->lock);
    running->work = (struct porter_work){.carry = keeper_send_output, .context = running};
    if (send)
        porter_ask(keeper->porter, &running->work);
    pthread_mutex_lock(&keeper->lock);
    const bool sent = running->sent; /* at once, where the server stops */
    if (!running->sending && running->moved.code) {
        *err = running->moved;
        error_clear(&running->moved);
    }
    pthread_mutex_unlock(&keeper->lock);
    return sent;
}

/* Ended jobs whose output is not in the spool yet. */
void keeper_keep_outputs(struct keeper *keeper, int64_t now)
{
    if (now < keeper->output_at)
        return;
    for (struct running *at = keeper->running; at; at = at->next) {
        struct error err = ERROR_INIT;
        pthread_mutex_lock(&keeper->lock);
        const bool ended = at->ended && !at->sending;
        pthread_mutex_unlock(&keeper->lock);
        if (!ended || at->kept)
            continue;
        if (!keeper_keep_output(keeper, at, &err) && (at->give_back || keeper_sent(keeper, at, &err))) {
            at->kept = true;
            if (at->job && at->err.code)
                log_event(LOG_INFO, "spool", "id=%s text=\"the result is kept now\"", at->row.id);
            continue;
        }
        if (!err.code) /* it is on its way */
            continue;
        if (strcmp(at->err.text, err.text) != 0) /* once, however often it is tried again */
            log_event(LOG_ERROR, "spool", "id=%s text=\"%s\"", at->row.id, err.text);
        keeper_note_undelivered(keeper, at);
        pthread_mutex_lock(&keeper->lock);
        at->err = err;
        pthread_mutex_unlock(&keeper->lock);
        if (keeper->stop) /* it will be computed again */
            at->kept = at->give_back = true;
        else /* perhaps the next one is smaller */
            keeper->output_at = now + KEEPER_RETRY_MS;
    }
}

/* Whether this end is in the store: a commit that had no answer has stored it. ERROR_IO: that cannot be known now. */
static enum error_code keeper_has_finished(struct keeper *keeper, const struct store_job *row, bool *same,
                                           struct error *err)
{
    struct store_job there;
    struct error local = ERROR_INIT;
    bool found;
    const enum error_code code = store_get(keeper->store, row->id, &there, &found, &local);
    *same = !code && found && there.state == row->state && there.finished == row->finished;
    store_job_clear(&there);
    return code == ERROR_IO ? error_copy(err, code, &local) : OK;
}

/* In the transaction: the ends of jobs. */
enum error_code keeper_finish(struct keeper *keeper, struct error *err)
{
    for (struct running *at = keeper->running; at; at = at->next) {
        bool held = true, stored = false;
        if (!at->kept && !at->dropped)
            continue;
        enum error_code code = at->give_back
                                   ? store_give_back(keeper->store, at->row.id, keeper->owner, at->row.attempts, err)
                                   : store_finish(keeper->store, &at->row, keeper->owner, &held, err);
        if (!code && !held)
            code = keeper_has_finished(keeper, &at->row, &stored, err);
        if (code)
            return code;
        at->stored = true;
        at->lost = !held && !stored;
    }
    return OK;
}

/* After the commit: the ended ones are forgotten here. ended: whose pictures go; late: whose ends came too late. */
void keeper_drop_finished(struct keeper *keeper, struct ids *ended, struct ids *late)
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
            stats_add_ended(worker_pool_stats(keeper->pool), !running->job && !running->adopted,
                            0); /* the workers count the others */
        }
        running_free(at);
        keeper->running_count--;
    }
    pthread_mutex_unlock(&keeper->lock);
}
