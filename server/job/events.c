#include "server/job/events.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/mem.h"

struct events {
    char boot[33];
    pthread_mutex_t lock;
    pthread_cond_t news;
    uint64_t newest;
    bool waiting, woken;
    struct event ring[EVENTS_KEPT]; /* event s is at s % EVENTS_KEPT */
};

enum error_code events_create(struct events **out, struct error *err)
{
    struct events *events = *out = mem_calloc(1, sizeof *events);
    if (!events)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the events");
    job_make_id(events->boot);
    events->boot[12] = 0; /* long enough that no two starts share it */
    pthread_mutex_init(&events->lock, NULL);
    job_condition(&events->news);
    return OK;
}

void events_destroy(struct events **events)
{
    struct events *old = *events;
    *events = NULL;
    if (!old)
        return;
    pthread_cond_destroy(&old->news);
    pthread_mutex_destroy(&old->lock);
    free(old);
}

const char *events_boot(const struct events *events)
{
    return events->boot;
}

uint64_t events_publish(struct events *events, const struct event *event)
{
    const int64_t now = job_clock();
    pthread_mutex_lock(&events->lock);
    const uint64_t sequence = ++events->newest;
    struct event *kept = &events->ring[sequence % EVENTS_KEPT];
    *kept = *event;
    kept->sequence = sequence;
    kept->time_ms = now;
    if (events->waiting)
        pthread_cond_signal(&events->news);
    pthread_mutex_unlock(&events->lock);
    return sequence;
}

uint64_t events_newest(struct events *events)
{
    pthread_mutex_lock(&events->lock);
    const uint64_t newest = events->newest;
    pthread_mutex_unlock(&events->lock);
    return newest;
}

size_t events_read(struct events *events, uint64_t *after, const char *job, const char *token, struct event *out,
                   size_t most, bool *lost)
{
    size_t count = 0;
    pthread_mutex_lock(&events->lock);
    *lost = *after > events->newest || events->newest - *after > EVENTS_KEPT;
    if (*lost)
        *after = events->newest;
    while (*after < events->newest && count < most) {
        const struct event *event = &events->ring[++*after % EVENTS_KEPT];
        if ((!job || !strcmp(event->job, job)) && (!token || !strcmp(event->token, token)))
            out[count++] = *event;
    }
    pthread_mutex_unlock(&events->lock);
    return count;
}

uint64_t events_wait(struct events *events, uint64_t after, int timeout_ms)
{
    const struct timespec until = job_deadline(timeout_ms);
    pthread_mutex_lock(&events->lock);
    events->waiting = true;
    int waited = 0;
    while (events->newest <= after && !events->woken && !waited)
        waited = pthread_cond_timedwait(&events->news, &events->lock, &until);
    events->waiting = events->woken = false;
    const uint64_t newest = events->newest;
    pthread_mutex_unlock(&events->lock);
    return newest;
}

void events_wake(struct events *events)
{
    pthread_mutex_lock(&events->lock);
    events->woken = true;
    pthread_cond_signal(&events->news);
    pthread_mutex_unlock(&events->lock);
}

/* --- of jobs -------------------------------------------------------------------------------------------------------
 */

void events_describe(struct event *out, const struct job *job, enum event_kind kind)
{
    const struct restoration *r = job->restoration;
    const int64_t begun = atomic_load(&job->running_ns);
    *out = (struct event){.kind = kind,
                          .state = atomic_load(&job->state),
                          .stage = (enum stage)atomic_load(&r->stage),
                          .tiles_done = atomic_load(&r->tiles_done),
                          .tiles_total = atomic_load(&r->tiles_total),
                          .faces_done = atomic_load(&r->faces_done),
                          .faces_total = atomic_load(&r->faces_total),
                          .position = -1};
    snprintf(out->job, sizeof out->job, "%s", job->id);
    snprintf(out->token, sizeof out->token, "%s", job->token);
    if (out->state > JOB_RUNNING) {
        out->progress = out->state == JOB_DONE;
        out->stage = STAGE_COUNT;
    } else if (out->state == JOB_RUNNING) {
        out->progress = estimate_progress(&job->estimate, r, (double)(job_now() - begun) / 1e9, &out->seconds_left);
    } else {
        out->seconds_left = -1;
    }
}

static void events_tell(struct job *job, enum event_kind kind)
{
    struct event event;
    events_describe(&event, job, kind);
    if (event.progress < job->progress) /* some of it is done again */
        event.progress = job->progress;
    job->progress = event.progress;
    events_publish(job->events, &event);
}

/* Something of the restoration has moved. */
static void events_moved(struct restoration *r, void *context)
{
    struct job *job = context;
    const int stage = atomic_load(&r->stage), tiles = atomic_load(&r->tiles_done), faces = atomic_load(&r->faces_done);
    if (atomic_load(&job->state) != JOB_RUNNING)
        return;
    const bool entered = stage != job->told_stage && stage != STAGE_QUEUE; /* that is between two threads */
    const enum event_kind kind = entered ? EVENT_STAGE : tiles != job->told_tiles ? EVENT_TILE : EVENT_FACE;
    if (!entered && tiles == job->told_tiles && faces == job->told_faces)
        return;
    job->told_stage = stage;
    job->told_tiles = tiles;
    job->told_faces = faces;
    events_tell(job, kind);
}

void events_follow(struct events *events, struct job *job)
{
    job->events = events;
    job->restoration->moved = events_moved;
    job->restoration->moved_context = job;
}

void events_started(struct job *job)
{
    if (job->events)
        events_tell(job, EVENT_STARTED);
}
