#include "server/compat/hooks.h"

#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "server/compat/cog.h"
#include "server/http/proxies.h"
#include "server/http/site.h"
#include "server/version.h"

/* docs/http.md of cog: the last one is tried so often, each time after twice as long. */
#define HOOKS_TRIES 12
#define HOOKS_FIRST_MS 100
#define HOOKS_LOOK_MS 100 /* how often a prediction is looked at, at most */
#define HOOKS_LOOKS 200   /* at all of them together, a second */
#define HOOKS_SECONDS 30L

/* IANA's special-purpose registries: what is not reachable from everywhere, and what leads there (NAT64, 6to4). */
static const char hooks_private[] =
    "0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16, 172.16.0.0/12, 192.0.0.0/24, 192.0.2.0/24, "
    "192.88.99.0/24, 192.168.0.0/16, 198.18.0.0/15, 198.51.100.0/24, 203.0.113.0/24, 224.0.0.0/3, ::/96, 64:ff9b::/96, "
    "64:ff9b:1::/48, 100::/64, 2001::/23, 2001:db8::/32, 2002::/16, fc00::/7, fe80::/9, ff00::/8";

struct hooks_row {
    struct hook hook;
    char job[33], prediction[64];
    bool started; /* the first is sent */
    int tries;    /* of the last */
    int64_t next_ns;
    struct hooks_row *next;
};

struct hooks {
    struct server *server;
    pthread_mutex_t lock; /* of the list, count, and running */
    pthread_cond_t changed;
    struct hooks_row *rows;
    int count;
    bool running;
    pthread_t thread;
    atomic_bool stop;
};

/* --- what a client may ask for -------------------------------------------------------------------------------------
 */

/* scheme://host:port of a URL; false: it is none, or has a user's name. */
static bool hooks_origin(const char *url, char out[HOOKS_URL_MAX])
{
    const size_t scheme = !strncmp(url, "http://", 7) ? 7 : !strncmp(url, "https://", 8) ? 8 : 0;
    const size_t host = strcspn(url + scheme, "/?#"), size = strlen(url);
    if (!scheme || !host || size >= HOOKS_URL_MAX || memchr(url + scheme, '@', host))
        return false;
    for (size_t i = 0; i < size; i++)
        if (url[i] <= 0x20 || url[i] >= 0x7f || strchr("\"\\<>^`{|}", url[i]))
            return false;
    memcpy(out, url, scheme + host);
    out[scheme + host] = 0;
    return true;
}

enum error_code hooks_read(const struct config *config, const json_t *json, struct hook *out, struct error *err)
{
    const json_t *url = json_object_get(json, "webhook"), *filter = json_object_get(json, "webhook_events_filter");
    const json_t *event;
    char origin[HOOKS_URL_MAX];
    size_t i;
    *out = (struct hook){.start = !json_is_array(filter), .end = !json_is_array(filter)};
    if (!url || json_is_null(url))
        return OK;
    if (!json_is_string(url) || !hooks_origin(json_string_value(url), origin))
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

bool hooks_may_connect(const struct sockaddr *address, const char *listed)
{
    if (address->sa_family != AF_INET && address->sa_family != AF_INET6)
        return false;
    const struct in6_addr plain = proxies_address(address);
    return !proxies_is_listed(hooks_private, &plain) || proxies_is_listed(listed, &plain);
}

/* --- sending -------------------------------------------------------------------------------------------------------
 */

struct hooks_sending {
    struct hooks *hooks;
    const struct compat_text *text;
    uint64_t at;
    bool refused; /* by hooks_may_connect */
};

static size_t hooks_body(char *to, size_t one, size_t count, void *user)
{
    struct hooks_sending *sending = user;
    const size_t size = compat_text_read(sending->text, sending->at, to, one * count);
    sending->at += size;
    return size;
}

static curl_socket_t hooks_socket(void *user, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct hooks_sending *sending = user;
    (void)purpose;
    if (hooks_may_connect(&address->addr, sending->hooks->server->config->webhook_private))
        return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    sending->refused = true;
    return CURL_SOCKET_BAD;
}

static size_t hooks_ignore(char *from, size_t one, size_t count, void *user)
{
    (void)from, (void)user;
    return one * count;
}

static int hooks_watch(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    (void)a, (void)b, (void)c, (void)d;
    return atomic_load(&((struct hooks *)user)->stop);
}

static void hooks_set_up(CURL *curl, struct hooks_sending *sending, struct curl_slist *headers)
{
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_POST, 1L);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)compat_text_size(sending->text));
    curl_easy_setopt(curl, CURLOPT_READFUNCTION, hooks_body);
    curl_easy_setopt(curl, CURLOPT_READDATA, sending);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, hooks_ignore);
    curl_easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, hooks_socket);
    curl_easy_setopt(curl, CURLOPT_OPENSOCKETDATA, sending);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, hooks_watch);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, sending->hooks);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, HOOKS_SECONDS);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "restored/" RESTORED_VERSION);
}

/* The answer's status; 0: there was none, and *why says why; negative: it may never be sent there. */
static long hooks_post(struct hooks *hooks, const char *url, const struct compat_text *text, char why[CURL_ERROR_SIZE])
{
    struct hooks_sending sending = {.hooks = hooks, .text = text};
    const char *token = getenv("WEBHOOK_AUTH_TOKEN");
    char authorization[512];
    long status = 0;
    CURL *curl = curl_easy_init();
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
    struct curl_slist *more = headers ? curl_slist_append(headers, "Expect:") : NULL;
    snprintf(authorization, sizeof authorization, "Authorization: Bearer %s", token ? token : "");
    if (more && token && *token)
        more = curl_slist_append(headers, authorization);
    *why = 0;
    if (curl && more) {
        curl_easy_setopt(curl, CURLOPT_URL, url);
        curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
        hooks_set_up(curl, &sending, headers);
        if (curl_easy_perform(curl) == CURLE_OK)
            curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    }
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    if (sending.refused && !status)
        snprintf(why, CURL_ERROR_SIZE, "its address is not public, and webhook_private does not list it");
    return sending.refused && !status ? -1 : status;
}

/* Whether it is worth trying again, as docs/http.md of cog has it. */
static bool hooks_again(long status)
{
    return status == 0 || status == 429 || status == 500 || (status >= 502 && status <= 504);
}

/* --- the thread ----------------------------------------------------------------------------------------------------
 */

/* Tells of a state; true: it is done with, sent or not. */
static bool hooks_tell(struct hooks *hooks, struct hooks_row *row, struct compat_text *text, bool last)
{
    char why[CURL_ERROR_SIZE] = "no memory for it";
    const long status = text ? hooks_post(hooks, row->hook.url, text, why) : 0;
    compat_text_free(text);
    if (status >= 200 && status < 300)
        return true;
    if (last && hooks_again(status) && ++row->tries < HOOKS_TRIES && !atomic_load(&hooks->stop)) {
        row->next_ns = job_now() + ((int64_t)HOOKS_FIRST_MS << (row->tries - 1)) * 1000000;
        return false;
    }
    log_event(LOG_WARN, "webhook", "prediction=%s status=%ld tries=%d text=\"%s\"", row->prediction, status, row->tries,
              status > 0 ? "the receiver did not take it" : why);
    return true;
}

/* Does what there is to do for a row; true: it is over. */
static bool hooks_step(struct hooks *hooks, struct hooks_row *row)
{
    struct keeper *keeper = hooks->server->keeper;
    struct keeper_view view;
    struct error err = ERROR_INIT;
    if (!row->started) {
        row->started = true;
        if (row->hook.start)
            (void)hooks_tell(
                hooks, row,
                compat_text_make(json_pack("{s:s, s:s}", "id", row->prediction, "status", "starting"), NULL, NULL),
                false);
    }
    row->next_ns = job_now() + HOOKS_LOOK_MS * INT64_C(1000000);
    if (!row->hook.end)
        return true;
    const enum error_code code = keeper_look(keeper, row->job, &view, &err);
    if (code == ERROR_NOT_FOUND)
        log_event(LOG_WARN, "webhook", "prediction=%s text=\"it was forgotten before it had ended\"", row->prediction);
    if (code)
        return code == ERROR_NOT_FOUND;
    const bool ended = view.job.state > STORE_RUNNING && !view.waits.code;
    const bool over = ended && hooks_tell(hooks, row, cog_prediction(keeper, row->prediction, &view, -1), true);
    keeper_view_clear(&view);
    return over;
}

/* Takes out the first row whose time has come; NULL: none has. */
static struct hooks_row *hooks_due(struct hooks *hooks)
{
    const int64_t now = job_now();
    for (struct hooks_row **at = &hooks->rows; *at; at = &(*at)->next)
        if ((*at)->next_ns <= now) {
            struct hooks_row *row = *at;
            *at = row->next;
            row->next = NULL;
            return row;
        }
    return NULL;
}

static void *hooks_run(void *argument)
{
    struct hooks *hooks = argument;
    pthread_mutex_lock(&hooks->lock);
    while (!atomic_load(&hooks->stop)) {
        struct hooks_row *row = hooks_due(hooks);
        if (!row && hooks->rows) {
            const struct timespec until = job_deadline(HOOKS_LOOK_MS);
            pthread_cond_timedwait(&hooks->changed, &hooks->lock, &until);
            continue;
        }
        if (!row) {
            pthread_cond_wait(&hooks->changed, &hooks->lock);
            continue;
        }
        pthread_mutex_unlock(&hooks->lock);
        const bool over = hooks_step(hooks, row);
        pthread_mutex_lock(&hooks->lock);
        if (over) {
            free(row);
            hooks->count--;
            continue;
        }
        /* of many each is looked at less often, so that the store is asked no more than so often */
        const int64_t next_ns = job_now() + hooks->count * (INT64_C(1000000000) / HOOKS_LOOKS);
        if (row->next_ns < next_ns)
            row->next_ns = next_ns;
        struct hooks_row **end = &hooks->rows;
        while (*end)
            end = &(*end)->next;
        *end = row;
    }
    pthread_mutex_unlock(&hooks->lock);
    return NULL;
}

enum error_code hooks_start(struct server *server, struct error *err)
{
    struct hooks *hooks = server->hooks = mem_calloc(1, sizeof *hooks);
    pthread_condattr_t monotonic;
    if (!hooks || curl_global_init(CURL_GLOBAL_DEFAULT)) {
        free(hooks);
        server->hooks = NULL;
        return error_set(err, ERROR_NO_MEMORY, "no memory for webhooks");
    }
    hooks->server = server;
    pthread_mutex_init(&hooks->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&hooks->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return OK;
}

void hooks_stop(struct server *server)
{
    struct hooks *hooks = server->hooks;
    server->hooks = NULL;
    if (!hooks)
        return;
    pthread_mutex_lock(&hooks->lock);
    atomic_store(&hooks->stop, true);
    pthread_cond_signal(&hooks->changed);
    pthread_mutex_unlock(&hooks->lock);
    if (hooks->running)
        pthread_join(hooks->thread, NULL);
    while (hooks->rows) {
        struct hooks_row *row = hooks->rows;
        log_event(LOG_WARN, "webhook", "prediction=%s text=\"the server ended before it was sent\"", row->prediction);
        hooks->rows = row->next;
        free(row);
    }
    pthread_cond_destroy(&hooks->changed);
    pthread_mutex_destroy(&hooks->lock);
    free(hooks);
}

void hooks_add(struct server *server, const struct hook *hook, const char *job, const char *prediction)
{
    struct hooks *hooks = server->hooks;
    struct hooks_row *row = mem_calloc(1, sizeof *row);
    pthread_mutex_lock(&hooks->lock);
    if (row && !hooks->running)
        hooks->running = !pthread_create(&hooks->thread, NULL, hooks_run, hooks);
    const bool fits = row && hooks->running && hooks->count < HOOKS_MOST;
    if (fits) {
        row->hook = *hook;
        snprintf(row->job, sizeof row->job, "%s", job);
        snprintf(row->prediction, sizeof row->prediction, "%s", prediction);
        row->next = hooks->rows;
        hooks->rows = row;
        hooks->count++;
        pthread_cond_signal(&hooks->changed);
    }
    pthread_mutex_unlock(&hooks->lock);
    if (!fits) {
        free(row);
        log_event(LOG_WARN, "webhook", "prediction=%s text=\"there are too many: it will not be sent\"", prediction);
    }
}
