/* What a store that servers share adds: commits without an answer, the clock, and other servers. */
#include "server/job/keeper_state.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "server/job/keeper_check.h"
#include "server/job/offers.h"

#define COUNT_MS 1000
#define REST_MS 1000
#define SWEEP_MS 600000    /* between two sweeps of payloads */
#define SWEEP_ON_MS 30000  /* before a long one goes on */
#define SWEEP_MOST 50000   /* names at a time */
#define SWEEP_SECONDS 3600 /* older ones are swept: none is on its way for so long */
#define REMOVALS_MOST 300  /* that wait: whatever comes to or from the workers waits for them */
#define AGAIN_MOST 3       /* tries, before a request is told that the database does not answer */

/* In the transaction: jobs that nobody would begin until their leases are over, if their claims have happened. */
enum error_code keeper_give_back_unsure(struct keeper *keeper, struct error *err)
{
    enum error_code code = OK;
    for (const struct running *at = keeper->unsure; at && !code; at = at->next)
        code = store_give_back(keeper->store, at->row.id, keeper->owner, at->row.attempts, err);
    return code;
}

/* A commit of a shared store has had no answer, so it may have happened, or the database has ended the transaction, as
 * where two servers waited for each other's keys: a new job is tried again under its id, which is then in the store
 * once, whatever has become of the first try. */
bool keeper_again(struct keeper *keeper, struct keeper_ticket *ticket, const struct error *err)
{
    if (!keeper->shared || err->code != ERROR_IO || (ticket->err.code && ticket->err.code != ERROR_IO) ||
        ticket->wish != KEEPER_ACCEPT || ticket->inserted != STORE_NEW || !ticket->placed || keeper->stop ||
        ++ticket->tries > AGAIN_MOST)
        return false;
    error_clear(&ticket->err);
    ticket->next = keeper->again;
    keeper->again = ticket;
    keeper->again_at = store_clock(keeper->store) + KEEPER_RETRY_MS;
    return true;
}

/* Those whose time has come, and new ones. */
struct keeper_ticket *keeper_due(struct keeper *keeper, struct keeper_ticket *tickets, bool stop)
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

/* The store has answered. All whose database was away see that by themselves, so that whoever claims first waits, too.
 */
static void keeper_heard(struct keeper *keeper)
{
    const int64_t now = job_now() / 1000000;
    if (!keeper->heard_ms || now - keeper->heard_ms > KEEPER_SILENT_MS) {
        keeper->take_over_ms = now + KEEPER_GRACE_MS;
        cluster_renew(keeper->cluster);
    }
    keeper->heard_ms = now;
    store_leave_leases(keeper->store, now < keeper->take_over_ms);
}

/* Others add to a shared store and take from it, too: counts what waits, once a second. */
void keeper_count(struct keeper *keeper, int64_t now)
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
    keeper_heard(keeper);
    char *offers = keeper->front ? NULL : offers_own(keeper->models);
    (void)!store_offer(keeper->store, offers, &ignored);
    free(offers);
}

/* After a commit that failed: what it claimed does not begin. */
void keeper_drop_claims(struct keeper *keeper, struct keeper_group *group)
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

/* --- files that several servers share ------------------------------------------------------------------------------
 */

struct keeper_removal {
    struct porter_work work;
    struct keeper *keeper;
    char id[33];
    bool output;
};

/* Carries: files of a job go. */
static void keeper_remove_now(void *context, const struct depot *depot, bool stopping)
{
    struct keeper_removal *removal = context;
    (void)stopping;
    depot_remove_input(depot, removal->id);
    if (removal->output)
        depot_remove_output(depot, removal->id, 0);
    atomic_fetch_sub(&removal->keeper->removals, 1);
    free(removal);
}

void keeper_remove(struct keeper *keeper, const char *id, bool output)
{
    struct keeper_removal *removal = mem_calloc(1, sizeof *removal);
    if (!removal) /* they are swept, or found at the next start */
        return;
    memcpy(removal->id, id, sizeof removal->id);
    removal->output = output;
    removal->keeper = keeper;
    atomic_fetch_add(&keeper->removals, 1);
    removal->work = (struct porter_work){.carry = keeper_remove_now, .context = removal};
    if (keeper->depot.payload)
        porter_ask(keeper->porter, &removal->work);
    else
        keeper_remove_now(removal, &keeper->depot, false);
}

bool keeper_removes(struct keeper *keeper)
{
    return atomic_load(&keeper->removals) >= REMOVALS_MOST;
}

struct keeper_asked {
    struct payload_asked *list;
    size_t count;
};

/* A store_known_fn. */
static void keeper_knows(void *context, const char *id, bool open, int attempts)
{
    const struct keeper_asked *asked = context;
    for (size_t i = 0; i < asked->count; i++)
        if (!strcmp(asked->list[i].id, id))
            asked->list[i].wanted = asked->list[i].attempts ? asked->list[i].attempts == attempts : open;
}

/* A payload_wanted_fn. While the server stops, which would wait for the sweep's end, all stay. */
static void keeper_wants(void *context, struct payload_asked *list, size_t count)
{
    struct keeper *keeper = context;
    struct keeper_asked asked = {list, count};
    struct error ignored = ERROR_INIT;
    json_t *ids = json_array();
    for (size_t i = 0; i < count; i++) {
        list[i].wanted = false;
        json_array_append_new(ids, json_string(list[i].id));
    }
    char *text = keeper->stop || json_array_size(ids) != count ? NULL : json_dumps(ids, JSON_COMPACT);
    const bool known = text && !store_known(keeper->store, text, keeper_knows, &asked, &ignored);
    for (size_t i = 0; i < count; i++)
        list[i].wanted |= !known;
    free(text);
    json_decref(ids);
}

/* Carries. */
static void keeper_sweep_now(void *context, const struct depot *depot, bool stopping)
{
    struct keeper *keeper = context;
    struct error err = ERROR_INIT;
    bool more = false;
    if (!stopping &&
        depot->payload->engine->sweep(depot->payload, SWEEP_SECONDS, SWEEP_MOST, keeper_wants, keeper, &more, &err))
        log_event(LOG_WARN, "payload", "text=\"%s\" result=\"it is swept later\"", err.text);
    if (more)
        atomic_store(&keeper->sweep_at, store_clock(keeper->store) + SWEEP_ON_MS);
    atomic_store(&keeper->sweeping, false);
}

void keeper_sweep(struct keeper *keeper, int64_t now)
{
    if (keeper->depot.payload && keeper->depot.payload->engine->rest && now >= keeper->rest_at) {
        keeper->depot.payload->engine->rest(keeper->depot.payload);
        keeper->rest_at = now + REST_MS;
    }
    if (!keeper->depot.payload || !keeper->depot.payload->engine->sweep || now < keeper->sweep_at)
        return;
    const bool first = !keeper->sweep_at; /* when much else is to be done */
    keeper->sweep_at = now + SWEEP_MS;
    if (!first && !atomic_exchange(&keeper->sweeping, true)) {
        keeper->sweep = (struct porter_work){.carry = keeper_sweep_now, .context = keeper};
        porter_ask(keeper->porter, &keeper->sweep);
    }
}

/* --- the start -----------------------------------------------------------------------------------------------------
 */

static void keeper_drop_file(void *context, const char *id, enum spool_kind kind)
{
    if (!keeper_check_noted(context, id, kind))
        spool_remove(context, id, kind);
}

/* Removes what an earlier start has left, but results that it could not deliver, with their records. Where a store of
 * SQLite is, as before the setting was changed, what it tells of stays: `restored store move` takes that to the shared
 * one. */
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
enum error_code keeper_join(struct keeper *keeper, const struct keeper_settings *settings, struct error *err)
{
    const struct cluster_settings cluster = {.store = settings->store,
                                             .password_file = settings->password_file,
                                             .works = !keeper->front,
                                             .role = settings->role ? settings->role : "both"};
    enum error_code code = store_open_shared(&keeper->store, settings->store, settings->password_file, err);
    if (!code && settings->payload)
        code = porter_create(&keeper->porter, &keeper->depot, err);
    if (!code)
        keeper_gather_undelivered(keeper);
    if (!code)
        keeper_clear_spool(keeper, settings->path);
    if (!code)
        code = cluster_create(&keeper->cluster, &cluster, keeper, keeper->pool, keeper->models, err);
    if (!code)
        worker_pool_elsewhere(keeper->pool, keeper_elsewhere, keeper->cluster);
    return code;
}
