/* The bounded queue between those who submit jobs and the workers of all devices. A carrier reads the picture of a
 * waiting job, a little ahead of the devices; then a worker takes the job. Each worker takes the first job that is
 * ready, that its device may run (job->devices), and that no idle worker of a preferred device (one before it in the
 * table) may run. The queue holds one reference to each job in it.
 *
 * Who is first: clients take turns, so that one who sends many jobs does not keep another's waiting behind them. A job
 * gets a turn when it is pushed: one after its client's last waiting job, but never before the smallest turn that
 * waits. Jobs stand in the order of (low, turn, number), the number by when they were pushed; low ones, after all
 * others, have turns of their own.
 * Thread-safety: every function may be called from any thread. */
#ifndef SERVER_JOB_QUEUE_H
#define SERVER_JOB_QUEUE_H

#include "server/job/job.h"
#include "server/job/place.h"

struct queue;

/* capacity: how many jobs may wait, apart from those that idle workers are about to take and those that were accepted
 * before they came. ahead: how many jobs may wait
 * for each device with their pictures read. */
enum error_code queue_create(struct queue **out, size_t capacity, int ahead, struct error *err) MUST_CHECK;
/* Must be empty. */
void queue_destroy(struct queue **queue);

/* Puts the job in its place and takes a reference of its own. ERROR_BUSY when the queue is closed, or full (queue_full)
 * and the job was not accepted before. */
enum error_code queue_push(struct queue *queue, struct job *job, struct error *err) MUST_CHECK;

/* For a carrier: the first job that no carrier has, as far ahead as is allowed. The job stays in the queue; the caller
 * gets a reference of its own and calls queue_ready or queue_drop next. Waits until there is one; NULL when the queue
 * has ended and none is left. */
struct job *queue_carry(struct queue *queue);

/* The job's picture is read: the workers may take it. */
void queue_ready(struct queue *queue, struct job *job);
/* Removes a job that its carrier cannot make ready; the queue's reference is dropped. */
void queue_drop(struct queue *queue, struct job *job);

/* Puts a job that was taken out back in its place, with the reference that came with it, even when the queue is
 * full or closed. */
void queue_return(struct queue *queue, struct job *job);

/* A worker of the device becomes able (up) or unable to work. */
void queue_worker(struct queue *queue, int device, bool up);

/* A worker that is up has done its job, or has none yet, and is about to call queue_pop: from now until it has taken a
 * job, workers of devices after its own leave it what it may run. Call this before announcing the job's end, which may
 * bring the next job before this worker waits. */
void queue_idle(struct queue *queue, int device);

/* Takes the first job that is ready and that the device may run, and passes its reference to the caller; waits until
 * there is one. A worker that is not up only gets jobs that no worker which is up may take: it will say why they fail.
 * NULL when the queue has ended and is empty, or after timeout_ms (negative: never). */
struct job *queue_pop(struct queue *queue, int device, bool up, int timeout_ms);
/* The same; but also NULL when queue_call was called since *calls was 0 or set by the last queue_await. */
struct job *queue_await(struct queue *queue, int device, bool up, int timeout_ms, unsigned *calls);
/* Whoever waits for a job should look for other work. */
void queue_call(struct queue *queue);

/* For a worker whose device has not finished a job but has nothing more to begin: the same, if there is a job and no
 * idle worker may take it. Never waits. */
struct job *queue_pop_ahead(struct queue *queue, int device);

/* Takes this job out if it is waiting and its picture is not just being read (then the queue's reference is the
 * caller's), else returns false. If job->ready is set the caller must call job_computed; otherwise nobody else has the
 * job. */
bool queue_remove(struct queue *queue, const struct job *job);

/* The same with a job that was created before that time (CLOCK_MONOTONIC); NULL: there is none. Never waits. */
struct job *queue_take_older(struct queue *queue, int64_t created_before_ns);

/* No job can be pushed from now on, but jobs can still be put back. */
void queue_close(struct queue *queue);
bool queue_closed(struct queue *queue);
/* From now on queue_carry does not wait, nor does queue_pop once the queue is empty. */
void queue_end(struct queue *queue);
/* Whether it has ended and is empty. */
bool queue_ended(struct queue *queue);

/* Whether no more job of this client may wait. That is so when `capacity` jobs wait, unless fewer than an eighth of
 * that (at least one) are its own and fewer than twice as many wait in all. */
bool queue_full(struct queue *queue, const char *client);
/* How many jobs wait, apart from those that idle workers are about to take. */
size_t queue_depth(struct queue *queue);
/* How many of them count for the capacity. */
size_t queue_bounded(struct queue *queue);
/* How many jobs of that token wait. */
size_t queue_depth_of(struct queue *queue, const char *token);

/* What goes before a job. */
struct queue_ahead {
    size_t jobs;
    double seconds; /* of device time, by the jobs' estimates; of those that may run on one of its devices */
};
/* Before a job that waits; false: it does not. */
bool queue_ahead_of(struct queue *queue, const struct job *job, struct queue_ahead *out);
/* Before one that this client would push now; client NULL: before one behind all others. */
void queue_ahead_of_new(struct queue *queue, uint32_t devices, const char *client, bool low, struct queue_ahead *out);
/* All that wait, in their order, with the seconds of those that may run on one of these devices; at most so many.
 * Returns how many. */
size_t queue_list(struct queue *queue, uint32_t devices, struct place_job *out, size_t most);
size_t queue_capacity(const struct queue *queue);

#endif
