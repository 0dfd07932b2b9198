/* Where a job that still is in the store will stand: jobs come from there into the queue, a few at a time, and clients
 * take their turns in both.
 * Thread-safety: functions without state. */
#ifndef SERVER_JOB_PLACE_H
#define SERVER_JOB_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct place_job {
    char client[72];
    bool low, stored; /* it has come from the store */
    uint64_t turn;    /* in the queue */
    double seconds;
};

/* What begins before a job. */
struct place {
    size_t jobs;
    double seconds;
};

/* Of the last of the jobs that will come. queue: those that wait there, in their order, with room for all that come.
 * room: how many come at once; after that, one when a stored job ends. begun: stored jobs that are at work. */
struct place place_of(struct place_job *queue, size_t waiting, const struct place_job *coming, size_t count, int room,
                      size_t begun);

#endif
