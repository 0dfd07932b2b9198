#include "server/job/inflight.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/mem.h"
#include "runtime/base/spill.h"
#include "server/job/job.h"

#define WAIT_NS INT64_C(10000000000) /* for a body */
#define STOP_MS 100                  /* how soon a waiting picture notices that it must stop */

/* A picture that waits for its turn. */
struct inflight_turn {
    struct inflight_turn *next;
};

struct inflight {
    atomic_int references;
    uint64_t capacity;
    size_t most_waiting;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t held, work; /* bodies and results; pictures at work */
    int pictures;        /* at work */
    size_t waiting;
    struct inflight_body *first; /* in their order */
    struct inflight_turn *turn, **last_turn;
    bool closed;
};

enum error_code inflight_create(struct inflight **out, uint64_t capacity, size_t most_waiting, struct error *err)
{
    struct inflight *inflight = *out = mem_calloc(1, sizeof *inflight);
    if (!inflight)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the workers");
    job_condition(&inflight->changed);
    pthread_mutex_init(&inflight->lock, NULL);
    atomic_init(&inflight->references, 1);
    inflight->capacity = capacity ? capacity : UINT64_MAX;
    inflight->most_waiting = most_waiting;
    inflight->last_turn = &inflight->turn;
    return OK;
}

struct inflight *inflight_hold(struct inflight *inflight)
{
    atomic_fetch_add(&inflight->references, 1);
    return inflight;
}

void inflight_destroy(struct inflight **inflight)
{
    struct inflight *old = *inflight;
    *inflight = NULL;
    if (!old || atomic_fetch_sub(&old->references, 1) > 1)
        return;
    pthread_cond_destroy(&old->changed);
    pthread_mutex_destroy(&old->lock);
    free(old);
}

/* Under the lock; so are the functions below that say nothing else. */
static bool inflight_fits_body(const struct inflight *inflight, uint64_t bytes)
{
    const uint64_t used = inflight->held + inflight->work;
    if (!used)
        return true;
    return bytes <= inflight->capacity / 2 && inflight->held <= inflight->capacity / 2 - bytes &&
           used <= inflight->capacity - bytes;
}

static bool inflight_fits_picture(const struct inflight *inflight, uint64_t bytes)
{
    const uint64_t used = inflight->held + inflight->work;
    return !inflight->pictures || (bytes <= inflight->capacity && used <= inflight->capacity - bytes);
}

/* Removes the body from those that wait, and wakes it. */
static void inflight_resume(struct inflight *inflight, struct inflight_body **link, bool refused)
{
    struct inflight_body *body = *link;
    *link = body->next;
    inflight->waiting--;
    body->next = NULL;
    body->waiting = false;
    body->refused = refused;
    if (refused)
        body->bytes = 0;
    else
        inflight->held += body->bytes;
    body->resume(body->context); /* from here on it may be freed */
}

/* Memory was given back, or the one in front stopped waiting. */
static void inflight_changed(struct inflight *inflight)
{
    while (inflight->first && inflight_fits_body(inflight, inflight->first->bytes))
        inflight_resume(inflight, &inflight->first, false);
    pthread_cond_broadcast(&inflight->changed);
}

/* Whether one more body of this client may wait. */
static bool inflight_may_wait(const struct inflight *inflight, const char *client)
{
    const size_t most = inflight->most_waiting, share = most > 8 ? most / 8 : 1;
    size_t own = 0;
    for (const struct inflight_body *body = inflight->first; body; body = body->next)
        own += !strcmp(body->client, client);
    return inflight->waiting < most || (own < share && inflight->waiting - most < most);
}

/* Puts the body in its place: a turn after its client's last one, but not before the first that waits. */
static void inflight_wait(struct inflight *inflight, struct inflight_body *body)
{
    struct inflight_body **at;
    body->turn = inflight->first ? inflight->first->turn : 0;
    for (const struct inflight_body *other = inflight->first; other; other = other->next)
        if (!strcmp(other->client, body->client))
            body->turn = other->turn + 1;
    for (at = &inflight->first; *at && (*at)->turn <= body->turn;)
        at = &(*at)->next;
    body->next = *at;
    *at = body;
    inflight->waiting++;
}

enum inflight_answer inflight_enter(struct inflight *inflight, struct inflight_body *body, uint64_t bytes)
{
    enum inflight_answer answer = INFLIGHT_ADMITTED;
    pthread_mutex_lock(&inflight->lock);
    if (!inflight->first && inflight_fits_body(inflight, bytes)) {
        body->bytes = bytes;
        inflight->held += bytes;
    } else if (inflight->closed || !inflight_may_wait(inflight, body->client)) {
        answer = INFLIGHT_FULL;
    } else {
        answer = INFLIGHT_WAITS;
        body->suspend(body->context);
        body->bytes = bytes;
        body->waiting = true;
        body->since_ns = job_now();
        inflight_wait(inflight, body);
    }
    pthread_mutex_unlock(&inflight->lock);
    return answer;
}

void inflight_shrink(struct inflight *inflight, struct inflight_body *body, uint64_t bytes)
{
    pthread_mutex_lock(&inflight->lock);
    if (bytes < body->bytes) {
        inflight->held -= body->bytes - bytes;
        body->bytes = bytes;
        inflight_changed(inflight);
    }
    pthread_mutex_unlock(&inflight->lock);
}

void inflight_leave(struct inflight *inflight, struct inflight_body *body)
{
    pthread_mutex_lock(&inflight->lock);
    if (body->waiting) {
        struct inflight_body **link = &inflight->first;
        while (*link != body)
            link = &(*link)->next;
        *link = body->next;
        inflight->waiting--;
        body->waiting = false;
    } else {
        inflight->held -= body->bytes;
    }
    body->bytes = 0;
    inflight_changed(inflight);
    pthread_mutex_unlock(&inflight->lock);
}

void inflight_sweep(struct inflight *inflight, int64_t now_ns)
{
    pthread_mutex_lock(&inflight->lock);
    for (struct inflight_body **link = &inflight->first; *link;)
        if (now_ns - (*link)->since_ns > WAIT_NS || (*link)->gone((*link)->context))
            inflight_resume(inflight, link, true);
        else
            link = &(*link)->next;
    inflight_changed(inflight);
    pthread_mutex_unlock(&inflight->lock);
}

void inflight_close(struct inflight *inflight)
{
    pthread_mutex_lock(&inflight->lock);
    inflight->closed = true;
    while (inflight->first)
        inflight_resume(inflight, &inflight->first, true);
    pthread_mutex_unlock(&inflight->lock);
}

bool inflight_begin(struct inflight *inflight, uint64_t bytes, const atomic_int *stop)
{
    struct inflight_turn turn = {NULL};
    pthread_mutex_lock(&inflight->lock);
    *inflight->last_turn = &turn;
    inflight->last_turn = &turn.next;
    while (!atomic_load(stop) && (inflight->turn != &turn || !inflight_fits_picture(inflight, bytes))) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += STOP_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&inflight->changed, &inflight->lock, &until);
    }
    const bool stopped = atomic_load(stop);
    struct inflight_turn **link = &inflight->turn;
    while (*link != &turn)
        link = &(*link)->next;
    *link = turn.next;
    if (inflight->last_turn == &turn.next)
        inflight->last_turn = link;
    if (!stopped) {
        inflight->work += bytes;
        inflight->pictures++;
    }
    if (inflight->turn)
        pthread_cond_broadcast(&inflight->changed);
    pthread_mutex_unlock(&inflight->lock);
    return !stopped;
}

void inflight_end(struct inflight *inflight, uint64_t bytes, uint64_t result)
{
    pthread_mutex_lock(&inflight->lock);
    inflight->work -= bytes;
    inflight->pictures--;
    inflight->held += result;
    inflight_changed(inflight);
    pthread_mutex_unlock(&inflight->lock);
}

void inflight_sent(struct inflight *inflight, uint64_t result)
{
    pthread_mutex_lock(&inflight->lock);
    inflight->held -= result;
    inflight_changed(inflight);
    pthread_mutex_unlock(&inflight->lock);
}

bool inflight_wanted(struct inflight *inflight)
{
    pthread_mutex_lock(&inflight->lock);
    const bool wanted = inflight->first != NULL;
    pthread_mutex_unlock(&inflight->lock);
    return wanted;
}

uint64_t inflight_used(struct inflight *inflight)
{
    pthread_mutex_lock(&inflight->lock);
    const uint64_t used = inflight->held + inflight->work;
    pthread_mutex_unlock(&inflight->lock);
    return used;
}

uint64_t inflight_capacity(const struct inflight *inflight)
{
    return inflight->capacity;
}

uint64_t inflight_picture(const struct restoration *r)
{
    const uint64_t pixels = (uint64_t)r->in_info.width * (uint64_t)r->in_info.height;
    const uint64_t sample = r->in_info.bits > 8 ? 2 : 1, stored = (uint64_t)r->in_info.channels * sample;
    /* the pipeline works on RGB, of 16 bits beside that of 8 */
    const uint64_t pixel = (stored > 3 * sample ? stored : 3 * sample) + (sample > 1 ? 2 : 0);
    struct size size = {0};
    if (!r->detect_only && !r->options.aligned)
        pipeline_size(r, &size);
    /* libraries for the other formats work on planes of 32 bits */
    const uint64_t working = r->in_info.format > IMAGE_PNG ? 16 : 0;
    return pixels * (2 * pixel + working) +
           (r->other_bytes ? 3 : 2) * spill_share((uint64_t)size.width * (uint64_t)size.height * 4 * sample);
}
