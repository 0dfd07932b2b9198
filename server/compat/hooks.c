#include "server/compat/hooks_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "server/http/site.h"
#include "server/job/job.h"

#define HOOKS_LOOK_MS 100   /* how often a prediction is looked at, at most */
#define HOOKS_LOOKS 200     /* at all of them together, a second */
#define HOOKS_EACH 4        /* on their way to one receiver, so that one which hangs holds no more than its own */
#define HOOKS_IDLE_MS 60000 /* between two looks for something to do, if nobody says that there is */
#define HOOKS_ASK_MS 5000   /* between two renewals of their leases, and looks for some of servers that are gone */
#define HOOKS_ASKS_MS 50    /* between two looks whether the keeper has answered */

/* Under the lock: where a URL leads; NULL: no memory. */
static struct hooks_receiver *hooks_receiver(struct hooks *hooks, const char *url)
{
    char origin[REACH_ORIGIN_MAX] = "";
    struct hooks_receiver *receiver = hooks->receivers;
    (void)reach_origin(url, origin); /* it has been read already */
    while (receiver && strcmp(receiver->origin, origin) != 0)
        receiver = receiver->next;
    if (!receiver && (receiver = mem_calloc(1, sizeof *receiver + strlen(origin) + 1))) {
        memcpy(receiver->origin, origin, strlen(origin) + 1);
        receiver->next = hooks->receivers;
        hooks->receivers = receiver;
    }
    return receiver;
}

/* Whether this server sends any: those of others, too. */
static bool hooks_sends(const struct server *server)
{
    return server->keeper && *server->config->webhook_origins && server->config->role != SERVE_WORKER;
}

/* Takes it out of the list. over: nobody is to send it any more. */
static void hooks_forget(struct hooks *hooks, struct hooks_row *row, bool over)
{
    if (over) /* without memory it is sent once more, when its lease is over */
        hooks_note(&hooks->over, row->job);
    struct hooks_row **at = &hooks->rows;
    while (*at != row)
        at = &(*at)->next;
    *at = row->next;
    free(row);
    pthread_mutex_lock(&hooks->lock);
    hooks->count--;
    pthread_mutex_unlock(&hooks->lock);
}

/* --- what is stored ------------------------------------------------------------------------------------------------
 */

/* A hook_rows_fn: it becomes this server's, with its first webhook if nobody is known to have sent that. */
static void hooks_took(void *context, const char *job, const char *about)
{
    struct hooks_ask *ask = context;
    struct hooks_row *row = mem_calloc(1, sizeof *row);
    if (!row) /* another one, or this one's next start, takes it when the lease is over */
        return;
    snprintf(row->job, sizeof row->job, "%s", job);
    hooks_parse(about, &row->hook, row->prediction);
    row->next = ask->taken;
    ask->taken = row;
}

static void hooks_let_go(struct hooks_ask *ask)
{
    if (atomic_fetch_sub(&ask->holders, 1) > 1)
        return;
    for (struct hooks_row *row = ask->taken, *next; row; row = next) {
        next = row->next;
        free(row);
    }
    keeper_ticket_clear(&ask->ticket);
    free(ask);
}

/* On the keeper's thread. */
static void hooks_asked(void *context)
{
    struct hooks_ask *ask = context;
    atomic_store(&ask->done, true);
    hooks_let_go(ask);
}

/* Asks the keeper for up to `most` of servers that are gone. */
static void hooks_ask(struct hooks *hooks, int most)
{
    struct hooks_ask *ask = hooks->ask = mem_calloc(1, sizeof *ask);
    hooks->ask_ns = job_now() + HOOKS_ASK_MS * INT64_C(1000000);
    if (!ask)
        return;
    ask->ticket = (struct keeper_ticket){.wish = KEEPER_HOOKS,
                                         .done = hooks_asked,
                                         .context = ask,
                                         .taken = hooks_took,
                                         .most = (uint32_t)most,
                                         .hook = hooks->over ? json_dumps(hooks->over, JSON_COMPACT) : NULL,
                                         .told = hooks->told ? json_dumps(hooks->told, JSON_COMPACT) : NULL};
    atomic_init(&ask->holders, 2);
    keeper_ask(hooks->server->keeper, &ask->ticket);
}

/* One that was another server's is this one's: whether it may send it. */
static bool hooks_receive(struct hooks *hooks, struct hooks_row *row)
{
    char origin[REACH_ORIGIN_MAX];
    const bool listed =
        reach_origin(row->hook.url, origin) && site_is_listed_origin(origin, hooks->server->config->webhook_origins);
    row->hooks = hooks;
    pthread_mutex_lock(&hooks->lock);
    row->to = listed ? hooks_receiver(hooks, row->hook.url) : NULL;
    hooks->count++;
    pthread_mutex_unlock(&hooks->lock);
    if (!listed)
        log_event(LOG_WARN, "webhook",
                  "prediction=%s text=\"it is not sent: its origin is not one of this server's webhook_origins\"",
                  row->prediction);
    return row->to;
}

/* The keeper has dealt with these ids: they leave the list; what came meanwhile is not among them. */
static void hooks_noted(json_t *list, const char *ids)
{
    json_t *gone = ids ? json_loads(ids, 0, NULL) : NULL;
    for (size_t i = json_array_size(gone); i > 0; i--)
        json_array_remove(list, i - 1);
    json_decref(gone);
}

/* The keeper has answered. */
static void hooks_answered(struct hooks *hooks)
{
    struct hooks_ask *ask = hooks->ask;
    hooks->ask = NULL;
    if (!ask->ticket.err.code) {
        hooks_noted(hooks->over, ask->ticket.hook);
        hooks_noted(hooks->told, ask->ticket.told);
    }
    while (!ask->ticket.err.code && ask->taken) {
        struct hooks_row *row = ask->taken;
        ask->taken = row->next;
        row->next = hooks->rows;
        hooks->rows = row;
        if (!hooks_receive(hooks, row))
            hooks_forget(hooks, row, true);
    }
    hooks_let_go(ask);
}

/* Deals with the keeper. Returns in how many milliseconds there is something to do. */
static int hooks_share(struct hooks *hooks)
{
    if (!hooks->server->keeper)
        return HOOKS_IDLE_MS;
    if (hooks->ask && atomic_load(&hooks->ask->done))
        hooks_answered(hooks);
    const bool news = json_array_size(hooks->over) || json_array_size(hooks->told), due = job_now() >= hooks->ask_ns;
    pthread_mutex_lock(&hooks->lock);
    const int most = hooks_sends(hooks->server) ? HOOKS_MOST - hooks->count : 0;
    pthread_mutex_unlock(&hooks->lock);
    if (!hooks->ask && (due || news))
        hooks_ask(hooks, most > 0 ? most : 0);
    const int64_t left_ns = hooks->ask_ns - job_now();
    return hooks->ask || left_ns <= 0 ? HOOKS_ASKS_MS : (int)(left_ns / 1000000) + 1;
}

/* --- the thread ----------------------------------------------------------------------------------------------------
 */

/* Does what there is to do for a row of which nothing is on its way; true: it is over. */
static bool hooks_step(struct hooks_row *row)
{
    struct keeper *keeper = row->hooks->server->keeper;
    struct keeper_view view;
    struct error err = ERROR_INIT;
    row->next_ns = job_now() + HOOKS_LOOK_MS * INT64_C(1000000);
    if (!row->started && row->hook.start) {
        json_t *json = json_pack("{s:s, s:s}", "id", row->prediction, "status", "starting");
        row->started = true;
        return hooks_send(row, compat_text_make(json, NULL, NULL), false);
    }
    if (!row->hook.end)
        return true;
    const enum error_code code = keeper_look(keeper, row->job, &view, &err);
    if (code == ERROR_NOT_FOUND)
        log_event(LOG_WARN, "webhook", "prediction=%s text=\"it was forgotten before it had ended\"", row->prediction);
    if (code)
        return code == ERROR_NOT_FOUND;
    const bool ended = view.job.state > STORE_RUNNING && !view.waits.code;
    const bool over = ended && hooks_send(row, cog_prediction(keeper, row->prediction, &view, -1), true);
    keeper_view_clear(&view);
    return over;
}

/* Puts what has come to the end of the list; returns how many rows there are. */
static int hooks_take(struct hooks *hooks)
{
    struct hooks_row **end = &hooks->rows;
    while (*end)
        end = &(*end)->next;
    pthread_mutex_lock(&hooks->lock);
    *end = hooks->fresh;
    hooks->fresh = NULL;
    const int count = hooks->count;
    pthread_mutex_unlock(&hooks->lock);
    return count;
}

/* Does what is due. Returns for how many milliseconds there is nothing more to do, as far as is known. */
static int hooks_turn(struct hooks *hooks, int count)
{
    /* of many each is looked at less often, so that the store is asked no more than so often */
    const int64_t apart_ns = count * (INT64_C(1000000000) / HOOKS_LOOKS);
    int64_t first_ns = job_now() + HOOKS_IDLE_MS * INT64_C(1000000);
    for (struct hooks_row *row = hooks->rows, *next; row && !atomic_load(&hooks->stop); row = next) {
        next = row->next;
        if (row->curl || row->to->sending >= HOOKS_EACH)
            continue; /* there will be an answer, or an end to waiting for it */
        const int64_t now = job_now();
        if (row->next_ns <= now) {
            if (hooks_step(row)) {
                hooks_forget(hooks, row, true);
                continue;
            }
            if (row->next_ns < now + apart_ns)
                row->next_ns = now + apart_ns;
        }
        if (!row->curl && row->next_ns < first_ns)
            first_ns = row->next_ns;
    }
    const int64_t left_ns = first_ns - job_now();
    return left_ns > 0 ? (int)(left_ns / 1000000) + 1 : 0;
}

/* Deals with what has been answered, or will not be. */
static void hooks_collect(struct hooks *hooks)
{
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(hooks->multi, &left))) {
        if (message->msg != CURLMSG_DONE)
            continue;
        CURL *curl = message->easy_handle;
        const CURLcode result = message->data.result; /* the message goes with the handle */
        struct hooks_row *row = NULL;
        long status = 0;
        curl_easy_getinfo(curl, CURLINFO_PRIVATE, &row);
        if (result == CURLE_OK)
            curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
        if (!status && !*row->why)
            snprintf(row->why, sizeof row->why, "%s", curl_easy_strerror(result));
        if (hooks_sent(row, status))
            hooks_forget(hooks, row, true);
    }
}

static void *hooks_run(void *argument)
{
    struct hooks *hooks = argument;
    while (!atomic_load(&hooks->stop)) {
        int moving;
        curl_multi_perform(hooks->multi, &moving);
        hooks_collect(hooks);
        const int wait = hooks_turn(hooks, hooks_take(hooks)), asks = hooks_share(hooks);
        curl_multi_poll(hooks->multi, NULL, 0, asks < wait ? asks : wait, NULL);
    }
    return NULL;
}

/* Under the lock: whether the thread is there. */
static bool hooks_begin(struct hooks *hooks)
{
    if (!hooks->multi)
        hooks->multi = curl_multi_init();
    if (hooks->multi && !hooks->running)
        hooks->running = !pthread_create(&hooks->thread, NULL, hooks_run, hooks);
    return hooks->running;
}

enum error_code hooks_start(struct server *server, struct error *err)
{
    struct hooks *hooks = server->hooks = mem_calloc(1, sizeof *hooks);
    if (!hooks || curl_global_init(CURL_GLOBAL_DEFAULT)) {
        free(hooks);
        server->hooks = NULL;
        return error_set(err, ERROR_NO_MEMORY, "no memory for webhooks");
    }
    hooks->server = server;
    pthread_mutex_init(&hooks->lock, NULL);
    pthread_mutex_lock(&hooks->lock);
    const bool begun = !hooks_sends(server) || hooks_begin(hooks);
    pthread_mutex_unlock(&hooks->lock);
    return begun ? OK : error_set(err, ERROR_IO, "the thread that sends webhooks could not be started");
}

void hooks_stop(struct server *server)
{
    struct hooks *hooks = server->hooks;
    if (!hooks)
        return;
    server->hooks = NULL;
    atomic_store(&hooks->stop, true);
    if (hooks->running) {
        curl_multi_wakeup(hooks->multi);
        pthread_join(hooks->thread, NULL);
    }
    (void)hooks_take(hooks);
    while (hooks->rows) {
        struct hooks_row *row = hooks->rows;
        log_event(
            LOG_WARN, "webhook",
            "prediction=%s text=\"the server ended before it was sent\" result=\"another server of the same store "
            "sends it, or the next start\"",
            row->prediction);
        hooks_drop(row);
        hooks_forget(hooks, row, false);
    }
    if (hooks->ask)
        hooks_let_go(hooks->ask);
    if (hooks->over || hooks->told) { /* nobody waits for the answer */
        hooks_ask(hooks, 0);
        if (hooks->ask)
            hooks_let_go(hooks->ask);
    }
    json_decref(hooks->over);
    json_decref(hooks->told);
    while (hooks->receivers) {
        struct hooks_receiver *receiver = hooks->receivers;
        hooks->receivers = receiver->next;
        free(receiver);
    }
    curl_multi_cleanup(hooks->multi);
    pthread_mutex_destroy(&hooks->lock);
    free(hooks);
}

void hooks_add(struct server *server, const struct hook *hook, const char *job, const char *prediction)
{
    struct hooks *hooks = server->hooks;
    struct hooks_row *row = mem_calloc(1, sizeof *row);
    pthread_mutex_lock(&hooks->lock);
    const bool fits =
        row && hooks_begin(hooks) && hooks->count < HOOKS_MOST && (row->to = hooks_receiver(hooks, hook->url));
    if (fits) {
        row->hooks = hooks;
        row->hook = *hook;
        snprintf(row->job, sizeof row->job, "%s", job);
        snprintf(row->prediction, sizeof row->prediction, "%s", prediction);
        row->next = hooks->fresh;
        hooks->fresh = row;
        hooks->count++;
        curl_multi_wakeup(hooks->multi);
    }
    pthread_mutex_unlock(&hooks->lock);
    if (!fits) {
        free(row);
        log_event(LOG_WARN, "webhook", "prediction=%s text=\"there are too many: it will not be sent\"", prediction);
    }
}
