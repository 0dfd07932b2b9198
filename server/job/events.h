/* What happens to jobs, for those who listen: one ring of the server's newest events. Publishing copies into the ring
 * and never waits for a listener; one that reads too late is told that it lost some, and looks at the jobs instead.
 * Thread-safety: every function may be called from any thread, except create and destroy; one thread may wait at a
 * time. */
#ifndef SERVER_JOB_EVENTS_H
#define SERVER_JOB_EVENTS_H

#include "server/job/job.h"

#define EVENTS_KEPT 8192

enum event_kind { EVENT_QUEUED, EVENT_STARTED, EVENT_STAGE, EVENT_TILE, EVENT_FACE, EVENT_ENDED };

struct event {
    uint64_t sequence;       /* from 1, without gaps; this and the time are set by events_publish */
    int64_t time_ms;         /* since 1970 */
    char job[33], token[64]; /* token: the job's; who may see it */
    bool foreign;            /* another server has told it: see cluster.h */
    enum event_kind kind;
    enum job_state state;
    enum stage stage;                                     /* STAGE_COUNT once it has ended */
    int tiles_done, tiles_total, faces_done, faces_total; /* totals 0 while unknown */
    double progress;                                      /* 0..1 */
    double seconds_left;                                  /* until it has ended; negative: unknown */
    int position;                                         /* of a waiting job: how many go before it; else negative */
};

struct events;

enum error_code events_create(struct events **out, struct error *err) MUST_CHECK;
/* Nobody may wait. */
void events_destroy(struct events **events);

/* Names this start of the server: sequences of different starts have nothing to do with each other. */
const char *events_boot(const struct events *events);

/* Returns its sequence. */
uint64_t events_publish(struct events *events, const struct event *event);

/* The sequence of the newest event; 0: there was none. */
uint64_t events_newest(struct events *events);

/* Copies the oldest events after *after which this listener may see, up to `most`, and sets *after to the last one
 * looked at. job NULL: of any; token NULL: of any, else of this token alone. *lost: the ring no longer has (or never
 * had) what follows *after; then nothing is copied and *after is the newest event, so that what is looked at from now
 * on and what is read next leave no gap. */
size_t events_read(struct events *events, uint64_t *after, const char *job, const char *token, struct event *out,
                   size_t most, bool *lost);

/* Waits until there is an event after this one, or events_wake is called (also before), or the time is over. Returns
 * the newest. */
uint64_t events_wait(struct events *events, uint64_t after, int timeout_ms);
void events_wake(struct events *events);

/* From now on, what the job's restoration does on a device is published, from the thread that does it: call it before
 * the job is queued. Whoever owns the job publishes that it is queued and that it has ended. */
void events_follow(struct events *events, struct job *job);
/* The job begins on a device. Does nothing if it is not followed. */
void events_started(struct job *job);

/* An event that says how the job is now. The position is unknown. */
void events_describe(struct event *out, const struct job *job, enum event_kind kind);

#endif
