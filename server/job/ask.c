#include "server/job/ask.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "server/job/job.h"

struct asks {
    struct cluster *cluster;
    asks_answer_fn *answer;
    void *context;
    pthread_mutex_t lock;
    struct ask *first;
    bool ended;
    pthread_mutex_t calling; /* while a done is called, so that asks_leave waits for that */
};

/* Under the lock of calls: takes one that has all its answers, or whose time is over (all: any), out of the list. */
static struct ask *asks_take(struct asks *asks, const struct ask *which, bool all)
{
    const int64_t now = job_now() / 1000000;
    pthread_mutex_lock(&asks->lock);
    struct ask **at = &asks->first;
    while (*at && (which ? *at != which
                         : !all && (*at)->until > now && json_array_size((*at)->answers) < (size_t)(*at)->wanted))
        at = &(*at)->next;
    struct ask *found = *at;
    if (found)
        *at = found->next;
    pthread_mutex_unlock(&asks->lock);
    return found;
}

static void asks_finish(struct asks *asks, bool all)
{
    struct ask *ask;
    pthread_mutex_lock(&asks->calling);
    while ((ask = asks_take(asks, NULL, all)))
        ask->done(ask->context); /* it may be gone now */
    pthread_mutex_unlock(&asks->calling);
}

static bool asks_say(struct asks *asks, char kind, json_t *json)
{
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(10)) : NULL;
    char *line = text && strlen(text) < ASK_BYTES_MAX ? mem_alloc(strlen(text) + 2, 1) : NULL;
    if (line) {
        sprintf(line, "%c%s", kind, text);
        cluster_say(asks->cluster, line);
    }
    free(text);
    json_decref(json);
    return line;
}

static void asks_hear_answer(struct asks *asks, const json_t *json)
{
    const char *id = json_string_value(json_object_get(json, "id"));
    pthread_mutex_lock(&asks->lock);
    struct ask *at = asks->first;
    while (at && (!id || strcmp(at->id, id) != 0))
        at = at->next;
    if (at)
        json_array_append(at->answers, json_object_get(json, "answer"));
    pthread_mutex_unlock(&asks->lock);
}

/* A cluster_listener_fn. */
static void asks_hear(void *context, const char *text)
{
    struct asks *asks = context;
    json_t *json = text ? json_loads(text + 1, 0, NULL) : NULL;
    const json_t *id = json_object_get(json, "id");
    if (text && *text == '!')
        asks_hear_answer(asks, json);
    if (text && *text == '?' && asks->answer && json_is_string(id)) {
        json_t *answer = asks->answer(asks->context, json_object_get(json, "question"));
        if (answer)
            (void)asks_say(asks, '!', json_pack("{s:s, s:o}", "id", json_string_value(id), "answer", answer));
    }
    json_decref(json);
    asks_finish(asks, false);
}

enum error_code asks_create(struct asks **out, struct cluster *cluster, asks_answer_fn *answer, void *context,
                            struct error *err)
{
    struct asks *asks = *out = mem_calloc(1, sizeof *asks);
    if (!asks)
        return error_set(err, ERROR_NO_MEMORY, "no memory for questions to other servers");
    asks->cluster = cluster;
    asks->answer = answer;
    asks->context = context;
    pthread_mutex_init(&asks->lock, NULL);
    pthread_mutex_init(&asks->calling, NULL);
    cluster_set_listener(cluster, asks_hear, asks);
    return OK;
}

void asks_end(struct asks *asks)
{
    if (!asks)
        return;
    pthread_mutex_lock(&asks->lock);
    asks->ended = true;
    pthread_mutex_unlock(&asks->lock);
    asks_finish(asks, true);
}

void asks_destroy(struct asks **asks)
{
    struct asks *old = *asks;
    *asks = NULL;
    if (!old)
        return;
    cluster_set_listener(old->cluster, NULL, NULL);
    asks_end(old);
    pthread_mutex_destroy(&old->lock);
    pthread_mutex_destroy(&old->calling);
    free(old);
}

enum error_code asks_put(struct asks *asks, struct ask *ask, json_t *question, struct error *err)
{
    job_make_id(ask->id);
    ask->until = job_now() / 1000000 + ASK_MS;
    ask->answers = json_array();
    pthread_mutex_lock(&asks->lock);
    const bool ended = asks->ended;
    if (!ended) {
        ask->next = asks->first;
        asks->first = ask;
    }
    pthread_mutex_unlock(&asks->lock);
    json_t *json = json_pack("{s:s, s:o}", "id", ask->id, "question", question);
    if (ended) {
        json_decref(json);
        return error_set(err, ERROR_BUSY, "the server is shutting down");
    }
    if (asks_say(asks, '?', json))
        return OK;
    asks_leave(asks, ask);
    return error_set(err, ERROR_TOO_LARGE, "the request has too many options to be asked of other servers");
}

void asks_leave(struct asks *asks, struct ask *ask)
{
    pthread_mutex_lock(&asks->calling);
    (void)asks_take(asks, ask, false);
    pthread_mutex_unlock(&asks->calling);
}
