/* Questions that a server asks all others with the same store, such as what a restoration would take there. They go
 * and come as notifications of the database (at most ASK_BYTES_MAX each), so nothing connects to a worker, and whoever
 * asks holds no thread. A server of a version that does not know them stays silent.
 * Thread-safety: create and destroy on one thread; the rest from any. */
#ifndef SERVER_JOB_ASK_H
#define SERVER_JOB_ASK_H

#include "server/job/cluster.h"

#define ASK_BYTES_MAX 7900
#define ASK_MS 3000 /* nobody is waited for any longer */

struct asks;

/* What this server says to a question: the caller's; NULL: nothing. */
typedef json_t *asks_answer_fn(void *context, const json_t *question);

/* answer: NULL: it answers nothing. Until asks_destroy it hears what cluster_say of others says. */
enum error_code asks_create(struct asks **out, struct cluster *cluster, asks_answer_fn *answer, void *context,
                            struct error *err) MUST_CHECK;
/* The server stops: whoever waits is called, also in future. */
void asks_end(struct asks *asks);
void asks_destroy(struct asks **asks); /* NULL-safe */

struct ask {
    int wanted;                  /* so many answers are waited for */
    void (*done)(void *context); /* they are there, or the time is over; on a thread of the cluster's */
    void *context;
    json_t *answers; /* an array; the caller's when done is called */
    char id[33];     /* this and the following are the module's */
    int64_t until;
    struct ask *next;
};

/* Takes the question over. ERROR_TOO_LARGE, ERROR_NO_MEMORY, ERROR_BUSY (it stops): done is not called. */
enum error_code asks_put(struct asks *asks, struct ask *ask, json_t *question, struct error *err) MUST_CHECK;
/* After this, done is not called any more. */
void asks_leave(struct asks *asks, struct ask *ask);

#endif
