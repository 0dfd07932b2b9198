/* Changes to a running server (SIGHUP) and its report about itself (SIGUSR1). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "server/http/request.h"
#include "server/http/server.h"
#include "server/http/stream.h"
#include "server/process.h"

/* Logs what changes now, which goes into *now, and what would change only after a restart. */
static int server_compare(struct config *now, const struct config *wanted)
{
    int changed = 0;
    for (size_t i = 0; config_key(i); i++) {
        char before[1100], after[1100];
        if (config_equal(now, wanted, i))
            continue;
        config_text(now, i, before, sizeof before);
        config_text(wanted, i, after, sizeof after);
        if (!config_is_live(i)) {
            log_event(LOG_WARN, "reload", "key=%s old=\"%s\" new=\"%s\" text=\"needs a restart; the old value stays\"",
                      config_key(i), before, after);
            continue;
        }
        log_event(LOG_ALWAYS, "reload", "key=%s old=\"%s\" new=\"%s\" source=\"%s\"", config_key(i), before, after,
                  wanted->source[i]);
        config_copy(now, wanted, i);
        changed++;
    }
    return changed;
}

static size_t server_count_models(const struct model_store *store)
{
    size_t count = 0;
    model_store_lock(store);
    for (size_t i = 0; i < model_store_count(store); i++)
        count += model_store_at(store, i)->recognised;
    model_store_unlock(store);
    return count;
}

/* Files that the configuration names: what cannot be read stays as it was. Returns what has stayed, "" for nothing. */
static const char *server_reload_secrets(struct server *server)
{
    static const char *const kept[] = {"", "the old certificate", "the old tokens",
                                       "the old certificate and the old tokens"};
    struct error err = ERROR_INIT;
    int bad = 0;
    if (tls_reload(server->tls, &err)) {
        log_event(LOG_ERROR, "reload", "text=\"%s\" result=\"the old certificate stays\"", err.text);
        bad |= 1;
    }
    error_clear(&err);
    if (auth_reload(server->auth, &err)) {
        log_event(LOG_ERROR, "reload", "text=\"%s\" result=\"the old tokens stay\"", err.text);
        bad |= 2;
    }
    streams_recheck(server->streams);
    return kept[bad];
}

enum error_code server_reload(struct server *server, const struct config *wanted, struct error *err)
{
    enum error_code code = server_check_lists(wanted, err);
    if (code)
        return code;
    struct server_config *next = mem_calloc(1, sizeof *next);
    if (!next)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the configuration");
    next->config = *server->config;
    const int changed = server_compare(&next->config, wanted);
    if (changed) {
        connections_set_limits(server->connections, (int)next->config.request_seconds,
                               (int)next->config.connections_per_address);
        worker_pool_set_limits(server->pool, (int)next->config.job_seconds, (int)next->config.stall_seconds);
        if (server->keeper)
            keeper_set_limits(server->keeper, server_limits(&next->config));
        next->older = server->configs;
        server->configs = next;
        server->config = &next->config;
        config_apply_log(&next->config, LOG_DEBUG);
    } else {
        free(next);
    }
    const char *kept = server_reload_secrets(server);
    model_store_refresh(server->store);
    const size_t models = server_count_models(server->store), tokens = auth_count(server->auth);
    if (*kept)
        log_event(LOG_ERROR, "reloaded-partly",
                  "changed=%d models=%zu tokens=%zu kept=\"%s\" text=\"the lines before this one say why\"", changed,
                  models, tokens, kept);
    else
        log_event(LOG_ALWAYS, "reloaded", "changed=%d models=%zu tokens=%zu", changed, models, tokens);
    return OK;
}

const struct config *server_config(const struct server *server)
{
    return server->config;
}

int server_reasons(struct server *server, struct error reasons[SERVER_REASONS_MAX])
{
    int count = 0;
    struct queue *queue = worker_pool_queue(server->pool);
    memset(reasons, 0, SERVER_REASONS_MAX * sizeof *reasons);
    if (worker_pool_draining(server->pool)) {
        error_set(&reasons[0], ERROR_BUSY, "the server is shutting down");
        return 1;
    }
    if (queue_bounded(queue) >= queue_capacity(queue))
        error_set(&reasons[count++], ERROR_BUSY, "the queue is full");
    const int roomless = server->keeper ? keeper_roomless(server->keeper, NULL, NULL) : 0;
    if (roomless)
        error_set(&reasons[count++], ERROR_FULL, "%d %s for room: the spool or its disk is full", roomless,
                  roomless == 1 ? "result waits" : "results wait");
    if (server->keeper && !store_reachable(keeper_store(server->keeper)))
        error_set(&reasons[count++], ERROR_BUSY, "the database of jobs does not answer");
    /* the workers know the models they have loaded, the store whether a request would still find them */
    if (worker_pool_ready(server->pool, &reasons[count]) ||
        (server->checks && model_store_ready(server->checks, &reasons[count])))
        count++;
    return count;
}

void server_log_status(struct server *server)
{
    static const char *const states[] = {"idle", "busy", "lost", "disabled"};
    struct device_status *list = NULL;
    size_t count = 0;
    char devices[512] = "", why[2 * sizeof(struct error)] = "";
    struct error reasons[SERVER_REASONS_MAX];
    const size_t waiting = queue_depth(worker_pool_queue(server->pool));
    if (!devices_read(worker_pool_devices(server->pool), &list, &count, NULL))
        for (size_t i = 0; i < count; i++) {
            const size_t used = strlen(devices);
            snprintf(devices + used, sizeof devices - used, "%s%s:%s:%lluMiB", used ? " " : "", list[i].info.id,
                     list[i].open || list[i].state > DEVICE_BUSY ? states[list[i].state] : "unused",
                     (unsigned long long)list[i].info.memory_driver >> 20);
        }
    free(list);
    struct stats_totals totals;
    stats_read(worker_pool_stats(server->pool), &totals);
    const int reason_count = server_reasons(server, reasons);
    for (int i = 0; i < reason_count; i++)
        snprintf(why + strlen(why), sizeof why - strlen(why), "%s%s", i ? "; " : "", reasons[i].text);
    struct log_line line;
    log_begin(&line, LOG_ALWAYS, "status");
    if (reason_count)
        log_add(&line, "ready=false");
    else
        log_add(&line, "ready=true");
    log_add(&line,
            "jobs=%d waiting=%zu queue=%zu done=%llu failed=%llu cancelled=%llu connections=%d memory_mib=%llu "
            "devices=\"%s\" reason=\"%s\"",
            worker_pool_jobs(server->pool), waiting, queue_capacity(worker_pool_queue(server->pool)),
            (unsigned long long)totals.done, (unsigned long long)totals.failed, (unsigned long long)totals.cancelled,
            connections_count(server->connections), (unsigned long long)process_read().resident >> 20, devices, why);
    log_end(&line);
}
