/* restored serve: starts models, workers and HTTP, waits for signals, and shuts everything down in order. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/spill.h"
#include "runtime/plan_cache.h"
#include "server/cli/cli.h"
#include "server/cli/cli_sandbox.h"
#include "server/cli/notify.h"
#include "server/http/server.h"
#include "server/image/decoder.h"
#include "server/job/supply.h"
#include "server/job/worker_pool.h"
#include "server/version.h"

#define POLL_MS 50
#define CANCEL_SECONDS 20 /* for a cancelled job to end: a device finishes what was submitted to it */
#define ANSWER_SECONDS 5  /* for answers still being sent when all jobs have ended */
#define REFUSE_SECONDS 5  /* for those that say only that the server stops */
#define SLACK_SECONDS 10  /* for the end itself, before a service manager may kill us */

static void serve_usage(void)
{
    printf(
        "restored serve [--config FILE] [--KEY VALUE]...\n\n"
        "Serves HTTP until SIGTERM or SIGINT. SIGHUP reads configuration, tokens and certificate again, and looks for\n"
        "models; SIGUSR1 logs what it is doing. A key comes from " RESTORED_SYSCONFDIR
        "/restored/restored.conf, then from\n"
        "$XDG_CONFIG_HOME/restored/restored.conf (else ~/.config/restored/restored.conf), then from the environment\n"
        "as RESTORED_KEY, then from its flag; the later wins.\n\n"
        "  --config FILE              this file of `key = value` lines instead of those two; RESTORED_CONFIG=FILE "
        "does\n"
        "                             the same\n"
        "  --print-config             show which files were read, and each value and where it comes from; exit\n"
        "  --models DIR               the same as --models_dir\n");
    config_help(stdout);
}

/* The signal that came within the time, 0 for none. */
static int serve_wait_signal(const sigset_t *signals, int milliseconds)
{
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    int number = sigtimedwait(signals, NULL, &time);
    return number > 0 ? number : 0;
}

/* Waits until every job has ended, also those of other servers that requests here wait for, or the time is over; with
 * signals also until SIGTERM or SIGINT comes. keeper: NULL: no request waits for other servers. */
static void serve_wait_idle(struct worker_pool *pool, struct keeper *keeper, const sigset_t *signals, uint64_t seconds)
{
    struct cluster *cluster = keeper ? keeper_cluster(keeper) : NULL;
    const struct timespec pause = {0, POLL_MS * 1000000L};
    int64_t until = job_now() + (int64_t)seconds * 1000000000;
    int number;
    while ((!worker_pool_idle(pool) || (cluster && cluster_awaited(cluster))) && job_now() < until)
        if (!signals) {
            nanosleep(&pause, NULL);
        } else if ((number = serve_wait_signal(signals, POLL_MS)) == SIGTERM || number == SIGINT) {
            log_event(LOG_WARN, "stop", "at=once");
            return;
        }
}

/* Waits until every answer has been sent or the time is over. */
static void serve_wait_answers(struct server *server, const sigset_t *signals, int seconds)
{
    const int64_t until = job_now() + seconds * INT64_C(1000000000);
    while (server_close_idle(server) && job_now() < until)
        serve_wait_signal(signals, POLL_MS);
}

static void serve_drain(struct worker_pool *pool, struct keeper *keeper, struct server *server, const sigset_t *signals,
                        uint64_t seconds)
{
    if (keeper)
        keeper_drain(keeper);
    log_event(LOG_INFO, "drain", "seconds=%llu waiting=%zu", (unsigned long long)seconds,
              queue_depth(worker_pool_queue(pool)));
    notify_send("STOPPING=1\nEXTEND_TIMEOUT_USEC=%llu",
                (unsigned long long)(seconds + CANCEL_SECONDS + ANSWER_SECONDS + REFUSE_SECONDS + SLACK_SECONDS) *
                    1000000);
    worker_pool_drain(pool);
    serve_wait_idle(pool, keeper, signals, seconds);
    if (keeper && keeper_cluster(keeper))
        cluster_end_waits(keeper_cluster(keeper));
    worker_pool_cancel_all(pool);
    /* Every job must have ended, and its connection be resumed, before HTTP may stop. */
    serve_wait_idle(pool, NULL, NULL, CANCEL_SECONDS);
    if (!worker_pool_idle(pool)) {
        log_event(LOG_ERROR, "stop", "text=\"a job does not end; exiting without it\"");
        _exit(CLI_FAILED);
    }
    serve_wait_answers(server, signals, ANSWER_SECONDS);
    if (server_end_waits(server))
        serve_wait_answers(server, signals, REFUSE_SECONDS);
}

/* Reads all sources of the configuration. */
static enum error_code serve_read(struct cli *cli, int argc, char **argv, struct config *config, bool *print,
                                  bool *help, struct error *err)
{
    static const char *const own[] = {"print_config", NULL};
    enum error_code code = cli_begin(cli, argc, argv, config, err);
    cli->own = own;
    while (!code && cli_next(cli, "")) {
        if (!*cli->name)
            code = error_set(err, ERROR_INVALID, "serve takes no \"%s\"; --help lists what it takes", cli->value);
        else if (!strcmp(cli->name, "help") || !strcmp(cli->name, "h"))
            code = cli_flag(cli, help, err);
        else if (!strcmp(cli->name, "print_config"))
            code = cli_flag(cli, print, err);
        else
            code = cli_config(cli, config, err);
    }
    if (config->role == SERVE_WORKER) /* it answers only at metrics_listen */
        *config->listen = 0;
    return code;
}

/* SIGHUP. What cannot be read changes nothing. */
static void serve_reload(struct server *server, int argc, char **argv)
{
    struct cli cli;
    struct config wanted;
    struct error err = ERROR_INIT;
    bool ignored = false;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    notify_send("RELOADING=1\nMONOTONIC_USEC=%lld", (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000);
    if (serve_read(&cli, argc, argv, &wanted, &ignored, &ignored, &err) || server_reload(server, &wanted, &err))
        log_event(LOG_ERROR, "reload", "text=\"%s\" result=\"the old configuration stays\"", err.text);
    notify_send("READY=1");
}

static bool serve_answers(const void *server, int milliseconds)
{
    return server_answers(server, milliseconds);
}

/* Until a signal that ends the server. */
static void serve_wait(struct server *server, const sigset_t *signals, int argc, char **argv)
{
    for (;;) {
        const int number = serve_wait_signal(signals, 3600 * 1000);
        if (number == SIGHUP)
            serve_reload(server, argc, argv);
        else if (number == SIGUSR1)
            server_log_status(server);
        else if (number)
            return;
    }
}

/* Opens the spool. Without a folder for it there are no asynchronous jobs, and large bodies stay in memory; but two
 * servers must not share one. */
static enum error_code serve_open_spool(const struct config *config, struct spool **spool, struct error *err)
{
    char folder[1024], path[1100];
    struct error local = ERROR_INIT;
    enum error_code code = ERROR_NOT_FOUND;
    if (config_state_dir(config, folder, sizeof folder)) {
        snprintf(path, sizeof path, "%s/spool", folder);
        code = spool_open(spool, path, config->spool_max_bytes, &local);
        if (!code)
            spill_into(path);
    }
    if (code == ERROR_BUSY)
        return error_set(err, code,
                         "state_dir: another server is running with %s; stop it, or give this one a state_dir of its "
                         "own",
                         folder);
    if (code) {
        log_event(LOG_WARN, "no-state-folder",
                  "text=\"%s%slarge bodies stay in memory, and there are no asynchronous jobs; set state_dir to a "
                  "folder that can be written\"",
                  local.text, *local.text ? "; " : "");
    }
    return OK;
}

/* Where pictures are that servers share. */
static enum error_code serve_open_payload(const struct config *config, struct payload **payload, struct error *err)
{
    return payload_open(payload,
                        &(struct payload_settings){.where = config->payload,
                                                   .store = config->store,
                                                   .password_file = config->store_password_file},
                        err);
}

/* Opens the jobs in it. */
static enum error_code serve_open_jobs(const struct config *config, struct worker_pool *pool,
                                       const struct model_store *models, struct spool *spool, struct payload *payload,
                                       struct keeper **keeper, struct error *err)
{
    char folder[1024], path[1100];
    const bool shared = store_is_shared(config->store);
    if (!spool || !config_state_dir(config, folder, sizeof folder))
        return shared ? error_set(err, ERROR_IO,
                                  "store = postgresql://… needs a state_dir that can be written, for "
                                  "pictures that are on their way")
                      : OK;
    snprintf(path, sizeof path, "%s/jobs.db", folder);
    return keeper_create(keeper,
                         &(struct keeper_settings){.path = path,
                                                   .store = shared ? config->store : NULL,
                                                   .password_file = config->store_password_file,
                                                   .role = config_role_name(config->role),
                                                   .payload = payload,
                                                   .limits = server_limits(config),
                                                   .queue = config->async_queue,
                                                   .result_seconds = (int64_t)config->result_ttl},
                         pool, models, spool, err);
}

/* Models from the store, for a server that takes jobs. */
static enum error_code serve_open_supply(const struct config *config, struct model_store *models, struct keeper *keeper,
                                         struct payload *payload, struct supply **supply, struct error *err)
{
    char folder[1100];
    if (config->role == SERVE_FRONT || !config_models_cache(config, folder, sizeof folder))
        return OK;
    return supply_create(supply,
                         &(struct supply_settings){.store = keeper_store(keeper),
                                                   .payload = payload,
                                                   .models = models,
                                                   .folder = folder,
                                                   .most = config->models_cache_bytes,
                                                   .defaults = {[ROLE_DETECTOR] = config->default_detector,
                                                                [ROLE_FACE] = config->default_version,
                                                                [ROLE_PARSER] = config->default_parser,
                                                                [ROLE_UPSCALER] = config->default_bg_upsampler}},
                         err);
}

/* Before models are looked for. */
static void serve_trim_models(const struct config *config)
{
    char folder[1100];
    if (config_models_cache(config, folder, sizeof folder))
        supply_trim(folder, config->models_cache_bytes);
}

/* Whether workers share the tiles of large pictures with other servers. */
static bool serve_shares(const struct config *config)
{
    return store_is_shared(config->store) && config->share_pixels && config->role != SERVE_FRONT;
}

static enum error_code serve_open_share(const struct config *config, struct worker_pool *pool,
                                        const struct model_store *models, const struct keeper *keeper,
                                        struct share **share, struct error *err)
{
    if (!serve_shares(config))
        return OK;
    const enum error_code code = share_create(share,
                                              &(struct share_settings){.store = config->store,
                                                                       .password_file = config->store_password_file,
                                                                       .owner = keeper_owner(keeper),
                                                                       .pixels = config->share_pixels},
                                              models, err);
    worker_pool_set_share(pool, *share);
    return code;
}

struct serve_start {
    const struct config *config;
    const struct config_files *files;
    struct model_store *store;
    struct sandbox *sandbox;
};

/* The devices are chosen, and threads are started next: from here on in the sandbox. */
static enum error_code serve_chosen(void *context, struct devices *devices, struct error *err)
{
    struct serve_start *start = context;
    enum error_code code = cli_sandbox_enter(&start->sandbox, start->config, start->files, start->store, devices, err);
    if (!code && start->config->role != SERVE_FRONT)
        model_store_open_defaults(start->store); /* while the workers open their devices */
    return code;
}

static int serve_run(const struct config *config, const struct config_files *files, int argc, char **argv)
{
    char cache[1024], url[160];
    struct error err = ERROR_INIT;
    struct model_store *store = NULL;
    struct worker_pool *pool = NULL;
    struct keeper *keeper = NULL;
    struct spool *spool = NULL;
    struct payload *payload = NULL;
    struct supply *supply = NULL;
    struct share *share = NULL;
    struct server *server = NULL;
    struct notify_watch *watch = NULL;
    struct serve_start start = {.config = config, .files = files};
    struct worker_settings settings = {.precision = config->precision,
                                       .workers = (int)config->workers,
                                       .queue = (size_t)config->queue,
                                       .inflight_memory = config->inflight_memory,
                                       .job_seconds = (int)config->job_seconds,
                                       .stall_seconds = (int)config->stall_seconds,
                                       .memory = config->memory,
                                       .keep_seconds = (int64_t)config->keep_seconds,
                                       .device = config->device,
                                       .shares = serve_shares(config),
                                       .front = config->role == SERVE_FRONT,
                                       .chosen = serve_chosen,
                                       .context = &start,
                                       .cache_dir = config_cache_dir(config, cache, sizeof cache)};

    /* Blocked before any thread is started, so that only this one gets the signals. */
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    sigaddset(&signals, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);

    /* as long as programs may be started */
    if (cli_check_config(config, &err) || server_check_addresses(config, &err) ||
        serve_open_payload(config, &payload, &err) || decoder_start(NULL, &err) ||
        serve_open_spool(config, &spool, &err))
        goto out;
    serve_trim_models(config);
    if (cli_open_store(&store, config, &err))
        goto out;
    start.store = store;
    if (worker_pool_create(&pool, &settings, store, &err) ||
        serve_open_jobs(config, pool, store, spool, payload, &keeper, &err) ||
        serve_open_supply(config, store, keeper, payload, &supply, &err) ||
        serve_open_share(config, pool, store, keeper, &share, &err) ||
        server_create(&server, config, store, pool, keeper, &err))
        goto out;
    server_url(server, url, sizeof url);
    log_event(LOG_INFO, "start", "version=%s url=%s workers=%d queue=%zu", RESTORED_VERSION, url, settings.workers,
              settings.queue);
    server_admin_url(server, url, sizeof url);
    if (*url)
        log_event(LOG_INFO, "admin", "url=%s", url);
    server_url(server, url, sizeof url);
    if (server_is_open(server))
        log_event(LOG_WARN, "OPEN-TO-THE-NETWORK",
                  "url=%s text=\"anyone who reaches this address may use the server, because it has no tokens; set "
                  "auth_token_file, listen on 127.0.0.1, or put a proxy with a password in front\"",
                  url);
    if (config->role != SERVE_FRONT && model_store_ready(store, &err))
        log_event(LOG_WARN, "no-models", "text=\"%s\"", err.text);
    error_clear(&err);
    if (!*url)
        server_admin_url(server, url, sizeof url);
    printf("listening on %s\n", url);
    fflush(stdout);
    notify_send("READY=1\nSTATUS=listening on %s", url);
    watch = notify_watch(serve_answers, server);

    serve_wait(server, &signals, argc, argv);
    serve_drain(pool, keeper, server, &signals, server_config(server)->drain_seconds);
out:
    notify_unwatch(&watch);
    /* drain has ended every job and every wait, so no connection is suspended when HTTP stops, which uses the workers.
     */
    server_destroy(&server);
    supply_destroy(&supply);
    keeper_destroy(&keeper);
    payload_close(&payload);
    spool_close(&spool);
    worker_pool_destroy(&pool);
    share_destroy(&share);
    model_store_destroy(&store);
    sandbox_destroy(&start.sandbox);
    decoder_stop();
    if (err.code && err.code != ERROR_CANCELLED) /* by a signal that came while it started */
        return cli_fail(&err, CLI_FAILED);
    log_event(LOG_INFO, "end", "version=%s", RESTORED_VERSION);
    return CLI_OK;
}

/* What a size of 0 means on this machine. */
static void serve_note(const struct config *config, const char *key, char *out, size_t size)
{
    const bool memory = !strcmp(key, "memory") && !config->memory,
               requests = !strcmp(key, "inflight_memory") && !config->inflight_memory;
    struct device_info *list = NULL;
    struct error err = ERROR_INIT;
    size_t count = 0, used = 0;
    *out = 0;
    if ((!memory && !requests) || device_list(&list, &count, &err))
        return;
    if (requests)
        snprintf(out, size, "%llu bytes", (unsigned long long)worker_pool_inflight_usual(list, count));
    for (size_t i = 0; memory && i < count && used < size; i++) {
        const uint64_t bytes = plan_cache_usual(&list[i]);
        if (list[i].usable && bytes != UINT64_MAX)
            used += (size_t)snprintf(out + used, size - used, "%s%llu bytes on %s", used ? ", " : "",
                                     (unsigned long long)bytes, list[i].id);
    }
    free(list);
}

int cli_serve(int argc, char **argv)
{
    struct cli cli;
    struct config config;
    struct error err = ERROR_INIT;
    bool print = false, help = false;
    enum error_code code = serve_read(&cli, argc, argv, &config, &print, &help, &err);
    if (help) {
        serve_usage();
        return CLI_OK;
    }
    if (code)
        return cli_fail(&err, CLI_USAGE);
    if (print) {
        for (int i = 0; i < cli.files.count; i++)
            printf("# %s: %s\n", cli.files.file[i].path, cli.files.file[i].read ? "read" : "not there");
        config_apply(&config);
        config_print(&config, serve_note, stdout);
        return CLI_OK;
    }
    config_apply_log(&config, LOG_DEBUG);
    config_apply(&config);
    device_set_cpu_handles((int)config.workers);
    return serve_run(&config, &cli.files, argc, argv);
}
