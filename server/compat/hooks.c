#include "server/compat/hooks.h"

#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "server/compat/cog.h"
#include "server/compat/reach.h"
#include "server/http/site.h"

/* docs/http.md of cog: the last one is tried so often, each time after twice as long. */
#define HOOKS_TRIES 12
#define HOOKS_FIRST_MS 100
#define HOOKS_LOOK_MS 100 /* how often a prediction is looked at, at most */
#define HOOKS_LOOKS 200   /* at all of them together, a second */
#define HOOKS_SECONDS 30L
#define HOOKS_EACH 4        /* on their way to one receiver, so that one which hangs holds no more than its own */
#define HOOKS_IDLE_MS 60000 /* between two looks for something to do, if nobody says that there is */

/* Where webhooks go: scheme, host and port. */
struct hooks_receiver {
    int sending;
    struct hooks_receiver *next;
    char origin[];
};

struct hooks_row {
    struct hooks *hooks;
    struct hook hook;
    struct hooks_receiver *to;
    char job[33], prediction[64];
    bool started; /* the first is sent */
    int tries;    /* of the last */
    int64_t next_ns;
    struct hooks_row *next;

    CURL *curl; /* what is on its way; NULL: nothing, and the rest is empty */
    struct curl_slist *headers;
    struct compat_text *text;
    uint64_t at;        /* so much of the text is sent */
    bool last;          /* it is the one that is tried again */
    struct reach reach; /* of the receiver's addresses */
    char why[CURL_ERROR_SIZE];
};

struct hooks {
    struct server *server;
    pthread_mutex_t lock; /* of fresh, count, running, and receivers as a list */
    struct hooks_row *fresh;
    struct hooks_receiver *receivers; /* few: the setting lists them */
    int count;
    bool running;
    pthread_t thread;
    atomic_bool stop;
    CURLM *multi;           /* there as long as the thread is */
    struct hooks_row *rows; /* the thread's, the oldest first */
};

/* --- what a client may ask for -------------------------------------------------------------------------------------
 */

enum error_code hooks_read(const struct config *config, const json_t *json, struct hook *out, struct error *err)
{
    const json_t *url = json_object_get(json, "webhook"), *filter = json_object_get(json, "webhook_events_filter");
    const json_t *event;
    char origin[REACH_ORIGIN_MAX];
    size_t i;
    *out = (struct hook){.start = !json_is_array(filter), .end = !json_is_array(filter)};
    if (!url || json_is_null(url))
        return OK;
    if (!json_is_string(url) || json_string_length(url) >= sizeof out->url ||
        !reach_origin(json_string_value(url), origin))
        return error_set(err, ERROR_INVALID, "webhook: it has to be an http or https URL, without a user's name");
    if (!site_is_listed_origin(origin, config->webhook_origins))
        return error_set(err, ERROR_INVALID, "webhook: %.100s is not one of the server's webhook_origins", origin);
    if (filter && !json_is_null(filter) && !json_is_array(filter))
        return error_set(err, ERROR_INVALID, "webhook_events_filter: it has to be a list");
    json_array_foreach(filter, i, event)
    {
        const char *name = json_string_value(event);
        if (!name ||
            (strcmp(name, "start") && strcmp(name, "output") && strcmp(name, "logs") && strcmp(name, "completed")))
            return error_set(err, ERROR_INVALID,
                             "webhook_events_filter: allowed are start, output, logs and completed");
        out->start = out->start || !strcmp(name, "start");
        out->end = out->end || !strcmp(name, "output") || !strcmp(name, "completed"); /* the output comes at the end */
    }
    snprintf(out->url, sizeof out->url, "%s", json_string_value(url));
    return OK;
}

void hooks_trace(struct hook_trace *out, const char *parent, const char *state)
{
    *out = (struct hook_trace){0};
    if (!parent || strlen(parent) >= sizeof out->parent) /* without it the other means nothing */
        return;
    strcpy(out->parent, parent);
    if (state && strlen(state) < sizeof out->state)
        strcpy(out->state, state);
}

/* --- sending -------------------------------------------------------------------------------------------------------
 */

static size_t hooks_body(char *to, size_t one, size_t count, void *user)
{
    struct hooks_row *row = user;
    const size_t size = compat_text_read(row->text, row->at, to, one * count);
    row->at += size;
    return size;
}

/* A connection that was kept has turned out to be closed: the text begins anew on another. */
static int hooks_rewind(void *user, curl_off_t at, int from)
{
    struct hooks_row *row = user;
    row->at = (uint64_t)at;
    return from == SEEK_SET ? CURL_SEEKFUNC_OK : CURL_SEEKFUNC_FAIL;
}

static size_t hooks_ignore(char *from, size_t one, size_t count, void *user)
{
    (void)from, (void)user;
    return one * count;
}

static void hooks_set_up(struct hooks_row *row)
{
    CURL *curl = row->curl;
    row->reach.listed = row->hooks->server->config->webhook_private;
    reach_prepare(curl, &row->reach);
    curl_easy_setopt(curl, CURLOPT_URL, row->hook.url);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, row->why);
    curl_easy_setopt(curl, CURLOPT_PRIVATE, row);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, row->headers);
    curl_easy_setopt(curl, CURLOPT_POST, 1L);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)compat_text_size(row->text));
    curl_easy_setopt(curl, CURLOPT_READFUNCTION, hooks_body);
    curl_easy_setopt(curl, CURLOPT_READDATA, row);
    curl_easy_setopt(curl, CURLOPT_SEEKFUNCTION, hooks_rewind);
    curl_easy_setopt(curl, CURLOPT_SEEKDATA, row);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, hooks_ignore);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, HOOKS_SECONDS);
}

/* Adds a header, unless it has no value. */
static bool hooks_header(struct curl_slist *headers, const char *name, const char *value)
{
    char *line = NULL;
    if (!value || !*value)
        return true;
    if (asprintf(&line, "%s%s", name, value) < 0)
        return false;
    const bool added = curl_slist_append(headers, line);
    free(line);
    return added;
}

static struct curl_slist *hooks_headers(const struct hook_trace *trace)
{
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
    if (headers && curl_slist_append(headers, "Expect:") &&
        hooks_header(headers, "Authorization: Bearer ", getenv("WEBHOOK_AUTH_TOKEN")) &&
        hooks_header(headers, "traceparent: ", trace->parent) && hooks_header(headers, "tracestate: ", trace->state))
        return headers;
    curl_slist_free_all(headers);
    return NULL;
}

/* Nothing of it is on its way any more. */
static void hooks_drop(struct hooks_row *row)
{
    if (row->curl) {
        row->to->sending--;
        curl_multi_remove_handle(row->hooks->multi, row->curl);
    }
    curl_easy_cleanup(row->curl);
    curl_slist_free_all(row->headers);
    compat_text_free(row->text);
    row->curl = NULL;
    row->headers = NULL;
    row->text = NULL;
    row->reach.refused = row->reach.allowed = false;
}

/* Whether it is worth trying again, as docs/http.md of cog has it. */
static bool hooks_again(long status)
{
    return status == 0 || status == 429 || status == 500 || (status >= 502 && status <= 504);
}

/* It was answered with this status; 0: it was not, and row->why says why. True: nothing more is to be sent. */
static bool hooks_sent(struct hooks_row *row, long status)
{
    const bool last = row->last;
    if (row->reach.refused && !row->reach.allowed &&
        !status) { /* of a name's addresses, one that may be tried is tried again */
        status = -1;
        snprintf(row->why, sizeof row->why, "its address is not public, and webhook_private does not list it");
    }
    hooks_drop(row);
    if (status >= 200 && status < 300)
        return last || !row->hook.end;
    if (last && hooks_again(status) && ++row->tries < HOOKS_TRIES) {
        row->next_ns = job_now() + ((int64_t)HOOKS_FIRST_MS << (row->tries - 1)) * 1000000;
        return false;
    }
    log_event(LOG_WARN, "webhook", "prediction=%s status=%ld tries=%d text=\"%s\"", row->prediction, status, row->tries,
              status > 0 ? "the receiver did not take it" : row->why);
    return last || !row->hook.end;
}

/* Sends the text, which is taken over; true: it could not be, and nothing more is to be sent. */
static bool hooks_send(struct hooks_row *row, struct compat_text *text, bool last)
{
    row->text = text;
    row->at = 0;
    row->last = last;
    row->headers = hooks_headers(&row->hook.trace);
    row->curl = row->text && row->headers ? curl_easy_init() : NULL;
    if (row->curl) {
        hooks_set_up(row);
        row->to->sending++;
        if (!curl_multi_add_handle(row->hooks->multi, row->curl))
            return false;
    }
    snprintf(row->why, sizeof row->why, "no memory for it");
    return hooks_sent(row, 0);
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
    if (!row->started) {
        json_t *json = json_pack("{s:s, s:s}", "id", row->prediction, "status", "starting");
        row->started = true;
        if (row->hook.start)
            return hooks_send(row, compat_text_make(json, NULL, NULL), false);
        json_decref(json);
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

/* Takes it out of the list. */
static void hooks_forget(struct hooks *hooks, struct hooks_row *row)
{
    struct hooks_row **at = &hooks->rows;
    while (*at != row)
        at = &(*at)->next;
    *at = row->next;
    free(row);
    pthread_mutex_lock(&hooks->lock);
    hooks->count--;
    pthread_mutex_unlock(&hooks->lock);
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
                hooks_forget(hooks, row);
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
            hooks_forget(hooks, row);
    }
}

static void *hooks_run(void *argument)
{
    struct hooks *hooks = argument;
    while (!atomic_load(&hooks->stop)) {
        int moving;
        curl_multi_perform(hooks->multi, &moving);
        hooks_collect(hooks);
        const int wait = hooks_turn(hooks, hooks_take(hooks));
        curl_multi_poll(hooks->multi, NULL, 0, wait, NULL);
    }
    return NULL;
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
    return OK;
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
        log_event(LOG_WARN, "webhook", "prediction=%s text=\"the server ended before it was sent\"", row->prediction);
        hooks_drop(row);
        hooks_forget(hooks, row);
    }
    while (hooks->receivers) {
        struct hooks_receiver *receiver = hooks->receivers;
        hooks->receivers = receiver->next;
        free(receiver);
    }
    curl_multi_cleanup(hooks->multi);
    pthread_mutex_destroy(&hooks->lock);
    free(hooks);
}

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

/* Under the lock: whether the thread is there. */
static bool hooks_begin(struct hooks *hooks)
{
    if (!hooks->multi)
        hooks->multi = curl_multi_init();
    if (hooks->multi && !hooks->running)
        hooks->running = !pthread_create(&hooks->thread, NULL, hooks_run, hooks);
    return hooks->running;
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
