/* A bound on the memory of all requests together: bodies that arrive or wait, pictures being processed (as their
 * headers predict), and results being sent. Bodies and results get at most half of it, so that there is always room to
 * process pictures and the waiting ones get their turn. Clients whose bodies wait take turns, and one that fills the
 * places keeps nobody else from waiting, as in the queue. Pictures: first come, first served. A single request is
 * admitted whatever it needs. Thread-safety: every function may be called from any thread. */
#ifndef SERVER_JOB_INFLIGHT_H
#define SERVER_JOB_INFLIGHT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

struct inflight;
struct restoration;

/* A body's share. Zero it and set the three functions, their context and the client; the other members, except
 * `refused`, are for inflight.c. */
struct inflight_body {
    void (*suspend)(void *context); /* the body must wait; called before inflight_enter returns */
    void (*resume)(void *context);  /* the wait is over; from any thread, maybe before inflight_enter returns */
    bool (*gone)(void *context);    /* whether waiting has become pointless: its client is gone */
    void *context;
    char client[72]; /* as that of struct job */
    bool refused;    /* set when it is resumed because there was no room in time */

    bool waiting;
    uint64_t bytes;
    int64_t since_ns;
    uint64_t turn;
    struct inflight_body *next;
};

enum inflight_answer { INFLIGHT_ADMITTED, INFLIGHT_WAITS, INFLIGHT_FULL };

/* capacity: bytes; 0: no bound. most_waiting: how many bodies may wait at a time; a client that has fewer than an
 * eighth of them (at least one) still may, until twice as many wait. */
enum error_code inflight_create(struct inflight **out, uint64_t capacity, size_t most_waiting,
                                struct error *err) MUST_CHECK;
/* One more reference: a job keeps one, since its result may be sent after the workers are gone. */
struct inflight *inflight_hold(struct inflight *inflight);
/* Gives a reference back; the last frees it, and nobody may wait then. */
void inflight_destroy(struct inflight **inflight);

/* A body of up to that many bytes wants to come in. FULL: too many are waiting, or it is closed. */
enum inflight_answer inflight_enter(struct inflight *inflight, struct inflight_body *body, uint64_t bytes);
/* The body has arrived, and is smaller. */
void inflight_shrink(struct inflight *inflight, struct inflight_body *body, uint64_t bytes);
/* It is freed. Does nothing for one that never entered. */
void inflight_leave(struct inflight *inflight, struct inflight_body *body);

/* Refuses those that have waited too long and those that are gone. Call it a few times a second. */
void inflight_sweep(struct inflight *inflight, int64_t now_ns);
/* Refuses all that wait, and from now on all that would have to wait. */
void inflight_close(struct inflight *inflight);

/* A picture that takes this many bytes will be processed: waits until there is room. false: it was stopped. */
bool inflight_begin(struct inflight *inflight, uint64_t bytes, const atomic_int *stop);
/* The work is over; a result of this many bytes is left, for inflight_sent. */
void inflight_end(struct inflight *inflight, uint64_t bytes, uint64_t result);
void inflight_sent(struct inflight *inflight, uint64_t result);

/* Whether anybody waits for room for a body. */
bool inflight_wanted(struct inflight *inflight);
/* Bytes in use now. */
uint64_t inflight_used(struct inflight *inflight);
uint64_t inflight_capacity(const struct inflight *inflight);

/* The bytes that a picture takes while it is processed, from its header and options: the picture twice (turned,
 * converted to 8 bit RGB) with what its decoder needs, and the result with its file. */
uint64_t inflight_picture(const struct restoration *r);

#endif
