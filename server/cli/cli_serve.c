/* restored serve: puts models, workers and HTTP together, waits for signals, and takes it all down in order. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "server/cli/cli.h"
#include "server/http/server.h"
#include "server/job/worker_pool.h"
#include "server/version.h"

#define POLL_MS 50
#define CANCEL_SECONDS 20 /* for a cancelled job to end: a device finishes what was submitted to it */
#define ANSWER_SECONDS 5  /* for answers still on their way when all jobs have ended */

static void usage(void)
{
    printf(
        "restored serve [--config FILE] [--KEY VALUE]...\n\n"
        "Serves HTTP until SIGTERM or SIGINT. A key comes from the file, then from the environment as RESTORED_KEY,\n"
        "then from its flag; the later wins.\n\n"
        "  --config FILE               file of `key = value` lines; see config/restored.conf\n"
        "  --print-config              show each value and where it comes from, and exit\n"
        "  --models DIR                the same as --models_dir\n");
    config_help(stdout);
}

/* The signal that came within the time, 0 for none. */
static int wait_signal(const sigset_t *signals, int milliseconds)
{
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    int number = sigtimedwait(signals, NULL, &time);
    return number > 0 ? number : 0;
}

/* Until every job has ended or the time is over; with signals also until the next of them comes. */
static void wait_idle(struct worker_pool *pool, const sigset_t *signals, uint64_t seconds)
{
    const struct timespec pause = {0, POLL_MS * 1000000L};
    int64_t until = job_now() + (int64_t)seconds * 1000000000;
    while (!worker_pool_idle(pool) && job_now() < until)
        if (!signals) {
            nanosleep(&pause, NULL);
        } else if (wait_signal(signals, POLL_MS)) {
            log_event(LOG_WARN, "stop", "at=once");
            return;
        }
}

static void drain(struct worker_pool *pool, struct server *server, const sigset_t *signals, uint64_t seconds)
{
    log_event(LOG_INFO, "drain", "seconds=%llu waiting=%zu", (unsigned long long)seconds,
              queue_depth(worker_pool_queue(pool)));
    worker_pool_drain(pool);
    wait_idle(pool, signals, seconds);
    worker_pool_cancel_all(pool);
    /* Every job must have ended, and its connection be resumed, before HTTP may stop. */
    wait_idle(pool, NULL, CANCEL_SECONDS);
    if (!worker_pool_idle(pool)) {
        log_event(LOG_ERROR, "stop", "text=\"a job does not end; leaving without it\"");
        _exit(CLI_FAILED);
    }
    int64_t until = job_now() + ANSWER_SECONDS * INT64_C(1000000000);
    while (server_close_idle(server) && job_now() < until)
        wait_signal(signals, POLL_MS);
}

static int serve(const struct config *config)
{
    char cache[1024], url[160];
    struct error err = ERROR_INIT;
    struct model_store *store = NULL;
    struct worker_pool *pool = NULL;
    struct server *server = NULL;
    struct worker_settings settings = {.precision = config->precision,
                                       .workers = (int)config->workers,
                                       .queue = (size_t)config->queue,
                                       .job_seconds = (int)config->job_seconds,
                                       .device = config->device,
                                       .cache_dir = config_cache_dir(config, cache, sizeof cache)};

    /* Blocked before any thread is there, so that the signals come to this one alone. */
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);

    if (cli_open_store(&store, config, &err))
        goto out;
    model_store_open_defaults(store); /* while the workers open their devices */
    if (worker_pool_create(&pool, &settings, store, &err) || server_create(&server, config, store, pool, &err))
        goto out;
    server_url(server, url, sizeof url);
    log_event(LOG_INFO, "start", "version=%s url=%s workers=%d queue=%zu", RESTORED_VERSION, url, settings.workers,
              settings.queue);
    if (!server_is_local(server))
        log_event(
            LOG_WARN, "OPEN-TO-THE-NETWORK",
            "url=%s text=\"anybody who reaches this address may use the server: there are no tokens yet; listen on "
            "127.0.0.1, or put a proxy with a password in front\"",
            url);
    if (model_store_ready(store, &err))
        log_event(LOG_WARN, "no-models", "text=\"%s\"", err.text);
    error_clear(&err);
    printf("listening on %s\n", url);
    fflush(stdout);

    while (!wait_signal(&signals, 3600 * 1000))
        ;
    drain(pool, server, &signals, config->drain_seconds);
out:
    /* drain has ended every job, so that no connection is suspended when HTTP stops; and HTTP uses the workers. */
    server_destroy(&server);
    worker_pool_destroy(&pool);
    model_store_destroy(&store);
    if (err.code)
        return cli_fail(&err, CLI_FAILED);
    log_event(LOG_INFO, "end", "version=%s", RESTORED_VERSION);
    return CLI_OK;
}

int cli_serve(int argc, char **argv)
{
    struct cli cli;
    struct config config;
    struct error err = ERROR_INIT;
    bool print = false, help = false;
    enum error_code code = cli_begin(&cli, argc, argv, &config, &err);
    while (!code && cli_next(&cli, "")) {
        if (!*cli.name)
            code = error_set(&err, ERROR_INVALID, "serve takes no \"%s\"; --help lists what it takes", cli.value);
        else if (!strcmp(cli.name, "help") || !strcmp(cli.name, "h"))
            code = cli_flag(&cli, &help, &err);
        else if (!strcmp(cli.name, "print_config"))
            code = cli_flag(&cli, &print, &err);
        else
            code = cli_config(&cli, &config, &err);
    }
    if (help) {
        usage();
        return CLI_OK;
    }
    if (code)
        return cli_fail(&err, CLI_USAGE);
    if (print) {
        config_print(&config, stdout);
        return CLI_OK;
    }
    log_set_level(config.log_level);
    device_set_cpu_threads((int)config.cpu_threads);
    device_set_cpu_handles((int)config.workers);
    return serve(&config);
}
