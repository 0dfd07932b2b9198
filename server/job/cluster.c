#include "server/job/cluster.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "server/job/cluster_event.h"
#include "server/job/events.h"
#include "server/job/keeper.h"
#include "server/job/offers.h"
#include "server/store/listen.h"
#include "server/store/share_rows.h"
#include "server/version.h"

#define TELL_MS 500     /* progress is told this often */
#define LOOK_MS 1000    /* how often it looks whether jobs that others wait for have ended */
#define SEEN_MS 20000   /* a server that was not seen for so long takes no jobs now */
#define TELL_MOST 256   /* events at a time */
#define LOOK_NOW "look" /* the text that says that leases should be looked at now */

struct cluster {
    char owner[33], host[64];
    const char *role;
    bool works;
    struct keeper *keeper;
    struct worker_pool *pool;
    const struct model_store *models;
    struct store *store; /* of its own; only the telling thread uses it */
    struct listen *listen;
    pthread_t teller, hearer;
    int threads;

    pthread_mutex_t lock;
    pthread_cond_t poked;
    bool news, stop;
    bool closed;                /* nobody may wait any more */
    bool cancelled, urged;      /* others are to look at their leases; so is this server */
    pthread_mutex_t describing; /* of the next two, and held while it is called, which may take a while */
    cluster_about_fn *about;
    void *about_context;
    json_t *said;              /* texts that are to be told */
    json_t *offered;           /* what the servers have, by offers_of; NULL: not known yet */
    pthread_mutex_t listening; /* of the next two, and held while it is called */
    cluster_listener_fn *listener;
    void *listener_context;
    struct cluster_waiter *waiters;
    pthread_mutex_t calling; /* while a waiter is called, so that cluster_leave waits for that */

    _Atomic int64_t worker_seen; /* when a server that takes jobs was last seen, by the store's clock */
    uint64_t told;               /* the last event of the ring that was told; this and the following are the teller's */
    int64_t tell_at, beat_at, look_at;
};

/* --- jobs that are waited for --------------------------------------------------------------------------------------
 */

void cluster_await(struct cluster *cluster, struct cluster_waiter *waiter)
{
    pthread_mutex_lock(&cluster->lock);
    const bool closed = cluster->closed;
    if (!closed) {
        waiter->next = cluster->waiters;
        cluster->waiters = waiter;
        cluster->look_at = 0; /* it may have ended before */
        cluster->news = true;
        pthread_cond_signal(&cluster->poked);
    }
    pthread_mutex_unlock(&cluster->lock);
    if (closed)
        waiter->done(waiter->context);
}

static bool cluster_take_waiter(struct cluster *cluster, struct cluster_waiter *waiter)
{
    struct cluster_waiter **at = &cluster->waiters;
    pthread_mutex_lock(&cluster->lock);
    while (*at && *at != waiter)
        at = &(*at)->next;
    const bool found = *at;
    if (found)
        *at = waiter->next;
    pthread_mutex_unlock(&cluster->lock);
    return found;
}

bool cluster_leave(struct cluster *cluster, struct cluster_waiter *waiter)
{
    pthread_mutex_lock(&cluster->calling);
    const bool found = cluster_take_waiter(cluster, waiter);
    pthread_mutex_unlock(&cluster->calling);
    return found;
}

bool cluster_awaited(struct cluster *cluster)
{
    pthread_mutex_lock(&cluster->lock);
    const bool awaited = cluster->waiters;
    pthread_mutex_unlock(&cluster->lock);
    return awaited;
}

/* This job (NULL: every one) has ended: whoever waits for it is told. */
static void cluster_ended(struct cluster *cluster, const char *id)
{
    pthread_mutex_lock(&cluster->calling);
    for (;;) {
        pthread_mutex_lock(&cluster->lock);
        struct cluster_waiter *waiter = cluster->waiters;
        while (waiter && id && strcmp(waiter->id, id) != 0)
            waiter = waiter->next;
        pthread_mutex_unlock(&cluster->lock);
        if (!waiter || !cluster_take_waiter(cluster, waiter))
            break;
        waiter->done(waiter->context); /* it may be gone now */
    }
    pthread_mutex_unlock(&cluster->calling);
}

void cluster_end_waits(struct cluster *cluster)
{
    pthread_mutex_lock(&cluster->lock);
    cluster->closed = true;
    pthread_mutex_unlock(&cluster->lock);
    cluster_ended(cluster, NULL);
}

/* What was told may have been lost: looks at each job that is waited for. */
static void cluster_look(struct cluster *cluster)
{
    char(*ids)[33] = NULL;
    size_t count = 0;
    pthread_mutex_lock(&cluster->lock);
    for (const struct cluster_waiter *at = cluster->waiters; at; at = at->next)
        count++;
    ids = count ? mem_alloc(count, sizeof *ids) : NULL;
    count = 0;
    for (const struct cluster_waiter *at = cluster->waiters; at && ids; at = at->next)
        memcpy(ids[count++], at->id, sizeof *ids);
    pthread_mutex_unlock(&cluster->lock);
    for (size_t i = 0; i < count; i++) {
        struct error ignored = ERROR_INIT;
        enum store_state state;
        bool found;
        if (store_state(cluster->store, ids[i], &state, &found, &ignored))
            break;
        if (!found || state > STORE_RUNNING)
            cluster_ended(cluster, ids[i]);
    }
    free(ids);
}

/* --- telling -------------------------------------------------------------------------------------------------------
 */

/* A keeper_claim_fn: the lease of a job at work here goes on. */
static void cluster_beat_job(void *context, const char *id, int attempts, struct job *job)
{
    struct cluster *cluster = context;
    struct error err = ERROR_INIT;
    struct event now = {0};
    char progress[sizeof((struct store_job *)0)->progress] = "";
    bool held = true, cancel = false;
    if (job) {
        events_describe(&now, job, EVENT_STAGE);
        cluster_event_progress(&now, progress, sizeof progress);
    }
    if (store_beat(cluster->store, id, cluster->owner, attempts, store_clock(cluster->store) + CLUSTER_LEASE_MS,
                   progress, &held, &cancel, &err))
        return; /* it may be claimed by another server, whose result counts then */
    if (!held)
        log_event(LOG_WARN, "lease", "id=%s text=\"the job is another server's now, or gone\"", id);
    if (job && (cancel || !held))
        worker_pool_cancel(cluster->pool, job, ERROR_CANCELLED);
}

static void cluster_tell_about(struct cluster *cluster)
{
    struct error ignored = ERROR_INIT;
    pthread_mutex_lock(&cluster->describing);
    json_t *json = cluster->about ? cluster->about(cluster->about_context) : NULL;
    pthread_mutex_unlock(&cluster->describing);
    json = json ? json : json_object();
    json_object_set_new(json, "role", json_string(cluster->role));
    json_object_set_new(json, "host", json_string(cluster->host));
    json_object_set_new(json, "pid", json_integer(getpid()));
    json_object_set_new(json, "version", json_string(RESTORED_VERSION));
    json_object_set_new(json, "works", json_boolean(cluster->works && !worker_pool_draining(cluster->pool)));
    char *offers = cluster->works ? offers_own(cluster->models) : NULL;
    if (offers)
        json_object_set_new(json, "offers", json_loads(offers, 0, NULL));
    free(offers);
    char *text = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(10));
    json_decref(json);
    if (text)
        (void)!store_worker(cluster->store, cluster->owner, store_clock(cluster->store), text, &ignored);
    free(text);
}

/* Passes on what has happened here: of each job's progress the last. */
static void cluster_tell_events(struct cluster *cluster, bool progress)
{
    struct event *events = mem_alloc(TELL_MOST, sizeof *events);
    bool lost = false;
    size_t count = TELL_MOST;
    while (events && count == TELL_MOST) {
        count = events_read(worker_pool_events(cluster->pool), &cluster->told, NULL, NULL, events, TELL_MOST, &lost);
        for (size_t i = 0; i < count; i++) {
            const struct event *event = &events[i];
            struct error ignored = ERROR_INIT;
            char text[512];
            bool last = true;
            for (size_t k = i + 1; k < count && last; k++)
                last = events[k].foreign || strcmp(events[k].job, event->job) != 0;
            const bool moved = event->kind == EVENT_STAGE || event->kind == EVENT_TILE || event->kind == EVENT_FACE;
            if (event->kind == EVENT_ENDED && !event->foreign)
                cluster_ended(cluster, event->job);
            if (event->foreign || (moved && !(last && progress)))
                continue;
            cluster_event_write(event, cluster->owner, text, sizeof text);
            if (store_notify(cluster->store, text, &ignored))
                break;
        }
    }
    free(events);
}

/* Takes over what the servers have. */
static void cluster_keep_offers(struct cluster *cluster, json_t *offered, int64_t clock)
{
    if (json_array_size(offered))
        atomic_store(&cluster->worker_seen, clock);
    pthread_mutex_lock(&cluster->lock);
    json_decref(cluster->offered);
    cluster->offered = offered;
    pthread_mutex_unlock(&cluster->lock);
}

static void cluster_beat(struct cluster *cluster, int64_t now)
{
    struct error ignored = ERROR_INIT;
    (void)!store_sync_clock(cluster->store, &ignored);
    const int64_t clock = store_clock(cluster->store);
    keeper_claims(cluster->keeper, cluster_beat_job, cluster);
    cluster_tell_about(cluster);
    (void)!store_worker_gone(cluster->store, "", clock, &ignored);
    json_t *servers = cluster_servers(cluster, &ignored);
    if (servers)
        cluster_keep_offers(cluster, offers_of(servers, SEEN_MS / 1000.0), clock);
    json_decref(servers);
    cluster->beat_at = now + CLUSTER_BEAT_MS;
}

/* Under no lock; text NULL: time has passed. */
static void cluster_pass_on(struct cluster *cluster, const char *text)
{
    pthread_mutex_lock(&cluster->listening);
    if (cluster->listener)
        cluster->listener(cluster->listener_context, text);
    pthread_mutex_unlock(&cluster->listening);
}

static void *cluster_teller(void *argument)
{
    struct cluster *cluster = argument;
    bool stop = false;
    while (!stop) {
        const struct timespec until = job_deadline(TELL_MS);
        pthread_mutex_lock(&cluster->lock);
        while (!cluster->news && !cluster->stop &&
               pthread_cond_timedwait(&cluster->poked, &cluster->lock, &until) != ETIMEDOUT)
            ;
        cluster->news = false;
        stop = cluster->stop;
        const int64_t now = job_now() / 1000000;
        const bool look = cluster->waiters && now >= cluster->look_at;
        cluster->look_at = look ? now + LOOK_MS : cluster->look_at;
        const bool cancelled = cluster->cancelled, urged = cluster->urged;
        cluster->cancelled = cluster->urged = false;
        json_t *said = cluster->said, *text;
        size_t i;
        cluster->said = NULL;
        pthread_mutex_unlock(&cluster->lock);
        struct error ignored = ERROR_INIT; /* then they see it at their next beat */
        if (cancelled)
            (void)!store_notify(cluster->store, LOOK_NOW, &ignored);
        json_array_foreach(said, i, text)(void) !store_notify(cluster->store, json_string_value(text), &ignored);
        json_decref(said);
        cluster_pass_on(cluster, NULL);
        const bool progress = now >= cluster->tell_at;
        if (progress)
            cluster->tell_at = now + TELL_MS;
        if (urged)
            keeper_claims(cluster->keeper, cluster_beat_job, cluster);
        if (now >= cluster->beat_at)
            cluster_beat(cluster, now);
        cluster_tell_events(cluster, progress);
        if (look)
            cluster_look(cluster);
    }
    return NULL;
}

/* --- hearing -------------------------------------------------------------------------------------------------------
 */

/* A listen_fn. */
static void cluster_hear(void *context, const char *text)
{
    struct cluster *cluster = context;
    struct event event;
    if (!strcmp(text, LOOK_NOW))
        cluster_renew(cluster);
    if (!strcmp(text, SHARE_CALL))
        queue_call(worker_pool_queue(cluster->pool));
    if (*text == '?' || *text == '!') {
        cluster_pass_on(cluster, text);
        return;
    }
    if (!cluster_event_read(text, cluster->owner, &event))
        return;
    event.foreign = true;
    events_publish(worker_pool_events(cluster->pool), &event);
    if (event.kind == EVENT_QUEUED)
        keeper_look_again(cluster->keeper);
    if (event.kind == EVENT_ENDED)
        cluster_ended(cluster, event.job);
}

static void *cluster_hearer(void *argument)
{
    struct cluster *cluster = argument;
    bool stop = false;
    while (!stop) {
        if (listen_wait(cluster->listen, LOOK_MS, cluster_hear, cluster))
            keeper_look_again(cluster->keeper); /* what was told before is lost */
        pthread_mutex_lock(&cluster->lock);
        stop = cluster->stop;
        pthread_mutex_unlock(&cluster->lock);
    }
    return NULL;
}

/* --- from outside --------------------------------------------------------------------------------------------------
 */

enum error_code cluster_create(struct cluster **out, const struct cluster_settings *settings, struct keeper *keeper,
                               struct worker_pool *pool, const struct model_store *models, struct error *err)
{
    struct cluster *cluster = *out = mem_calloc(1, sizeof *cluster);
    if (!cluster)
        return error_set(err, ERROR_NO_MEMORY, "no memory for what other servers are told");
    memcpy(cluster->owner, keeper_owner(keeper), sizeof cluster->owner);
    if (gethostname(cluster->host, sizeof cluster->host - 1))
        *cluster->host = 0;
    cluster->role = settings->role;
    cluster->works = settings->works;
    cluster->keeper = keeper;
    cluster->pool = pool;
    cluster->models = models;
    cluster->told = events_newest(worker_pool_events(pool));
    job_condition(&cluster->poked);
    pthread_mutex_init(&cluster->lock, NULL);
    pthread_mutex_init(&cluster->calling, NULL);
    pthread_mutex_init(&cluster->describing, NULL);
    pthread_mutex_init(&cluster->listening, NULL);
    enum error_code code = store_open_shared(&cluster->store, settings->store, settings->password_file, err);
    if (!code)
        code = listen_open(&cluster->listen, settings->store, settings->password_file, err);
    if (!code && pthread_create(&cluster->teller, NULL, cluster_teller, cluster) == 0)
        cluster->threads++;
    if (cluster->threads && pthread_create(&cluster->hearer, NULL, cluster_hearer, cluster) == 0)
        cluster->threads++;
    if (!code && cluster->threads < 2)
        code = error_set(err, ERROR_IO, "the threads that talk to other servers could not be started");
    if (code)
        cluster_destroy(out);
    return code;
}

void cluster_destroy(struct cluster **cluster)
{
    struct cluster *old = *cluster;
    struct error ignored = ERROR_INIT;
    *cluster = NULL;
    if (!old)
        return;
    pthread_mutex_lock(&old->lock);
    old->stop = true;
    pthread_cond_signal(&old->poked);
    pthread_mutex_unlock(&old->lock);
    if (old->listen)
        listen_wake(old->listen);
    if (old->threads > 0)
        pthread_join(old->teller, NULL);
    if (old->threads > 1)
        pthread_join(old->hearer, NULL);
    if (old->store)
        (void)!store_worker_gone(old->store, old->owner, store_clock(old->store), &ignored);
    listen_close(&old->listen);
    store_close(&old->store);
    pthread_cond_destroy(&old->poked);
    pthread_mutex_destroy(&old->lock);
    pthread_mutex_destroy(&old->calling);
    pthread_mutex_destroy(&old->describing);
    pthread_mutex_destroy(&old->listening);
    json_decref(old->said);
    json_decref(old->offered);
    free(old);
}

void cluster_poke(struct cluster *cluster)
{
    pthread_mutex_lock(&cluster->lock);
    cluster->news = true;
    pthread_cond_signal(&cluster->poked);
    pthread_mutex_unlock(&cluster->lock);
}

void cluster_renew(struct cluster *cluster)
{
    pthread_mutex_lock(&cluster->lock);
    cluster->urged = cluster->news = true;
    pthread_cond_signal(&cluster->poked);
    pthread_mutex_unlock(&cluster->lock);
}

void cluster_tell_cancel(struct cluster *cluster)
{
    pthread_mutex_lock(&cluster->lock);
    cluster->cancelled = cluster->news = true;
    pthread_cond_signal(&cluster->poked);
    pthread_mutex_unlock(&cluster->lock);
}

void cluster_set_about(struct cluster *cluster, cluster_about_fn *about, void *context)
{
    pthread_mutex_lock(&cluster->describing);
    cluster->about = about;
    cluster->about_context = context;
    pthread_mutex_unlock(&cluster->describing);
}

void cluster_say(struct cluster *cluster, char *text)
{
    pthread_mutex_lock(&cluster->lock);
    cluster->said = cluster->said ? cluster->said : json_array();
    json_array_append_new(cluster->said, json_string(text));
    cluster->news = true;
    pthread_cond_signal(&cluster->poked);
    pthread_mutex_unlock(&cluster->lock);
    free(text);
}

void cluster_set_listener(struct cluster *cluster, cluster_listener_fn *listener, void *context)
{
    pthread_mutex_lock(&cluster->listening);
    cluster->listener = listener;
    cluster->listener_context = context;
    pthread_mutex_unlock(&cluster->listening);
}

json_t *cluster_lacking(struct cluster *cluster, const json_t *needs, bool *anybody)
{
    pthread_mutex_lock(&cluster->lock);
    const json_t *offered = cluster->offered;
    *anybody = !offered || json_array_size(offered);
    json_t *lacking = offered ? offers_lacking(offered, needs) : json_array();
    pthread_mutex_unlock(&cluster->lock);
    return lacking;
}

enum error_code cluster_ready(struct cluster *cluster, struct error *err)
{
    if (atomic_load(&cluster->worker_seen) > store_clock(cluster->store) - SEEN_MS)
        return OK;
    return error_set(err, ERROR_BUSY, "no server that takes jobs is connected to the database");
}

struct cluster_list {
    json_t *servers;
    int64_t now;
};

/* A store_worker_fn. */
static void cluster_add(void *context, const char *owner, int64_t seen, const char *about)
{
    struct cluster_list *list = context;
    json_t *json = json_loads(about, 0, NULL);
    if (!json_is_object(json)) {
        json_decref(json);
        return;
    }
    json_object_set_new(json, "owner", json_string(owner));
    json_object_set_new(json, "seen_seconds", json_real((double)(list->now - seen) / 1000));
    json_array_append_new(list->servers, json);
}

json_t *cluster_servers(struct cluster *cluster, struct error *err)
{
    struct store *store = keeper_store(cluster->keeper);
    struct cluster_list list = {json_array(), store_clock(store)};
    if (!store_workers(store, list.now - 3 * SEEN_MS, cluster_add, &list, err))
        return list.servers;
    json_decref(list.servers);
    return NULL;
}
