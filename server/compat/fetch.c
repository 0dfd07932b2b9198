#include "server/compat/fetch.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "server/http/site.h"

#define FETCH_REDIRECTS 3

struct fetches {
    pthread_mutex_t lock;
    pthread_cond_t less; /* count has become less */
    int count;
    atomic_bool over;
};

enum error_code fetch_check(const struct config *config, const char *url, struct error *err)
{
    char origin[REACH_ORIGIN_MAX];
    if (!*config->fetch_origins)
        return error_set(err, ERROR_INVALID,
                         "this server fetches no pictures from addresses (fetch_origins); send the picture itself, as "
                         "a data URI or in base64");
    if (strlen(url) >= FETCH_URL_MAX || !reach_origin(url, origin))
        return error_set(err, ERROR_INVALID,
                         "it has to be an http or https URL of at most %d bytes, without a user's "
                         "name",
                         FETCH_URL_MAX - 1);
    if (!site_is_listed_origin(origin, config->fetch_origins))
        return error_set(err, ERROR_INVALID, "%.100s is not one of the server's fetch_origins", origin);
    return OK;
}

/* --- one picture ---------------------------------------------------------------------------------------------------
 */

struct fetch_transfer {
    struct fetch *fetch;
    CURL *curl;
    char why[CURL_ERROR_SIZE];
};

static size_t fetch_write(char *from, size_t one, size_t count, void *user)
{
    struct fetch_transfer *transfer = user;
    struct fetch *fetch = transfer->fetch;
    const size_t size = one * count;
    long status = 0;
    curl_easy_getinfo(transfer->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200) /* what stands beside an error is not read, and passes by beside a redirection */
        return status >= 300 && status <= 399 ? size : 0;
    if (size > fetch->config->body_limit - fetch->body.size) {
        char limit[ERROR_BYTES_MAX];
        error_set(&fetch->err, ERROR_TOO_LARGE, "the picture is over the limit of %s",
                  error_bytes(limit, fetch->config->body_limit));
        return 0;
    }
    return body_append(&fetch->body, from, size, &fetch->err) ? 0 : size;
}

static int fetch_goes_on(void *user, curl_off_t total, curl_off_t now, curl_off_t up_total, curl_off_t up)
{
    const struct fetch *fetch = ((struct fetch_transfer *)user)->fetch;
    (void)total, (void)now, (void)up_total, (void)up;
    return atomic_load(&fetch->fetches->over);
}

static void fetch_set_up(struct fetch_transfer *transfer)
{
    CURL *curl = transfer->curl;
    transfer->fetch->reach.listed = transfer->fetch->config->fetch_private;
    reach_prepare(curl,
                  &transfer->fetch->reach); /* redirections are followed here, where each place is checked first */
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, transfer->why);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, fetch_write);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, transfer);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, fetch_goes_on);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, transfer);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
}

/* Follows the answer to the next place; false: there is none, or none that may be fetched from (fetch->err). */
static bool fetch_follow(struct fetch_transfer *transfer, long status, int redirects)
{
    struct fetch *fetch = transfer->fetch;
    const char *to = NULL;
    curl_easy_getinfo(transfer->curl, CURLINFO_REDIRECT_URL, &to);
    if (status < 300 || status > 399 || !to)
        return false;
    if (redirects == FETCH_REDIRECTS)
        return error_set(&fetch->err, ERROR_INVALID, "it leads on more than %d times", FETCH_REDIRECTS), false;
    struct error why = ERROR_INIT;
    if (fetch_check(fetch->config, to, &why))
        return error_set(&fetch->err, ERROR_INVALID, "it leads on to where it may not: %s", why.text), false;
    snprintf(fetch->url, sizeof fetch->url, "%s", to);
    return true;
}

/* What became of it, if fetch->err does not say so already. */
static void fetch_judge(struct fetch *fetch, const char *origin, CURLcode result, long status)
{
    struct error *err = &fetch->err;
    if (err->code)
        return;
    if (atomic_load(&fetch->fetches->over))
        error_set(err, ERROR_BUSY, "the server is shutting down");
    else if (fetch->reach.refused && !fetch->reach.allowed)
        error_set(err, ERROR_INVALID, "%.100s has no public address, and fetch_private does not list its own", origin);
    else if (result == CURLE_OPERATION_TIMEDOUT)
        error_set(err, ERROR_INVALID, "%.100s did not send it in %d seconds", origin, FETCH_SECONDS);
    else if (status && status != 200)
        error_set(err, ERROR_INVALID, "%.100s answered %ld", origin, status);
    else if (result)
        error_set(err, ERROR_INVALID, "%.100s did not send it: %s", origin, curl_easy_strerror(result));
    else if (!fetch->body.size)
        error_set(err, ERROR_INVALID, "%.100s sent nothing", origin);
}

static void fetch_all(struct fetch *fetch)
{
    struct fetch_transfer transfer = {.fetch = fetch, .curl = curl_easy_init()};
    char origin[REACH_ORIGIN_MAX] = "";
    if (!transfer.curl) {
        error_set(&fetch->err, ERROR_NO_MEMORY, "no memory to fetch a picture");
        return;
    }
    fetch_set_up(&transfer);
    for (int redirects = 0;; redirects++) {
        const int64_t left_ms = (fetch->until_ns - job_now()) / 1000000;
        long status = 0;
        (void)reach_origin(fetch->url, origin); /* it has been checked */
        fetch->reach.refused = fetch->reach.allowed = false;
        curl_easy_setopt(transfer.curl, CURLOPT_URL, fetch->url);
        curl_easy_setopt(transfer.curl, CURLOPT_TIMEOUT_MS, (long)(left_ms > 1 ? left_ms : 1));
        const CURLcode result = curl_easy_perform(transfer.curl);
        curl_easy_getinfo(transfer.curl, CURLINFO_RESPONSE_CODE, &status);
        if (!fetch->err.code && fetch_follow(&transfer, status, redirects))
            continue;
        fetch_judge(fetch, origin, result, status);
        break;
    }
    if (fetch->err.code) {
        body_clear(&fetch->body);
        log_event(LOG_WARN, "fetch", "origin=%s text=\"%s\" curl=\"%s\"", origin, fetch->err.text, transfer.why);
    }
    curl_easy_cleanup(transfer.curl);
}

static void *fetch_run(void *argument)
{
    struct fetch *fetch = argument;
    struct fetches *fetches = fetch->fetches;
    fetch_all(fetch);
    fetch->done(fetch->context); /* from here on it may be freed */
    pthread_mutex_lock(&fetches->lock);
    fetches->count--;
    pthread_cond_signal(&fetches->less);
    pthread_mutex_unlock(&fetches->lock);
    return NULL;
}

enum error_code fetch_begin(struct server *server, struct fetch *fetch, struct error *err)
{
    struct fetches *fetches = fetch->fetches = server->fetches;
    pthread_t thread;
    enum error_code code = OK;
    fetch->config = server->config;
    fetch->until_ns = job_now() + FETCH_SECONDS * INT64_C(1000000000);
    pthread_mutex_lock(&fetches->lock);
    if (atomic_load(&fetches->over) || fetches->count == FETCH_MOST)
        code = error_set(err, ERROR_BUSY, "%d pictures are being fetched already; try again soon", FETCH_MOST);
    else if (pthread_create(&thread, NULL, fetch_run, fetch))
        code = error_set(err, ERROR_NO_MEMORY, "no thread to fetch a picture");
    if (!code) {
        pthread_detach(thread);
        fetches->count++;
    }
    pthread_mutex_unlock(&fetches->lock);
    return code;
}

/* --- all of them ---------------------------------------------------------------------------------------------------
 */

enum error_code fetch_start(struct server *server, struct error *err)
{
    struct fetches *fetches = server->fetches = mem_calloc(1, sizeof *fetches);
    if (!fetches || curl_global_init(CURL_GLOBAL_DEFAULT)) {
        free(fetches);
        server->fetches = NULL;
        return error_set(err, ERROR_NO_MEMORY, "no memory to fetch pictures");
    }
    pthread_mutex_init(&fetches->lock, NULL);
    pthread_cond_init(&fetches->less, NULL);
    return OK;
}

void fetch_end(struct server *server)
{
    struct fetches *fetches = server->fetches;
    if (!fetches)
        return;
    pthread_mutex_lock(&fetches->lock);
    atomic_store(&fetches->over, true);
    while (fetches->count)
        pthread_cond_wait(&fetches->less, &fetches->lock);
    pthread_mutex_unlock(&fetches->lock);
}

void fetch_stop(struct server *server)
{
    struct fetches *fetches = server->fetches;
    server->fetches = NULL;
    if (!fetches)
        return;
    pthread_cond_destroy(&fetches->less);
    pthread_mutex_destroy(&fetches->lock);
    free(fetches);
}
