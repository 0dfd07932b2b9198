/* One webhook's way: a POST with curl, and what its answer means. */
#include "server/compat/hooks_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "server/job/job.h"

/* docs/http.md of cog: the last one is tried so often, each time after twice as long. */
#define HOOKS_TRIES 12
#define HOOKS_FIRST_MS 100
#define HOOKS_SECONDS 30L

void hooks_note(json_t **list, const char *job)
{
    if (!*list)
        *list = json_array();
    json_array_append_new(*list, json_string(job));
}

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

void hooks_drop(struct hooks_row *row)
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

bool hooks_sent(struct hooks_row *row, long status)
{
    const bool last = row->last;
    if (row->reach.refused && !row->reach.allowed &&
        !status) { /* of a name's addresses, one that may be tried is tried again */
        status = -1;
        snprintf(row->why, sizeof row->why, "its address is not public, and webhook_private does not list it");
    }
    hooks_drop(row);
    if (!last && row->hook.end) /* however it went: the first is sent once */
        hooks_note(&row->hooks->told, row->job);
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

bool hooks_send(struct hooks_row *row, struct compat_text *text, bool last)
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
