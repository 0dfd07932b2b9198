/* The bounded queue between those who submit jobs and the workers of all devices. A carrier reads the picture of a job
 * that waits, a little ahead of the devices; then a worker takes it: each the oldest one that is ready, that its device
 * may run (job->devices) and that no idle worker of a device before it, which is preferred, may. It holds one reference
 * of each job in it.
 * Thread-safety: every function may be called from any thread. */
#ifndef SERVER_JOB_QUEUE_H
#define SERVER_JOB_QUEUE_H

#include "server/job/job.h"

struct queue;

/* capacity: jobs that may wait beside those that idle workers are about to take. ahead: jobs with their pictures read
 * that may wait for each device. */
enum error_code queue_create(struct queue **out, size_t capacity, int ahead, struct error *err) MUST_CHECK;
/* Must be empty. */
void queue_destroy(struct queue **queue);

/* Appends the job and takes a reference of its own. ERROR_BUSY when it is full or closed. */
enum error_code queue_push(struct queue *queue, struct job *job, struct error *err) MUST_CHECK;

/* For a carrier: the oldest job that nobody has, as far ahead as is allowed; the job stays in the queue, the caller
 * gets a reference of its own and calls queue_ready or queue_drop next. Waits until there is one; NULL when the queue
 * has ended and none is left. */
struct job *queue_carry(struct queue *queue);

/* The job's picture is read: the workers may take it. */
void queue_ready(struct queue *queue, struct job *job);
/* Takes the job out that its carrier cannot make ready; the queue's reference goes. */
void queue_drop(struct queue *queue, struct job *job);

/* Puts a job that was taken out back to its place by age, with the reference that came with it; also when the queue is
 * full or closed. */
void queue_return(struct queue *queue, struct job *job);

/* A worker of the device begins (up) or ceases to be able to work. */
void queue_worker(struct queue *queue, int device, bool up);

/* A worker that is up has done its job, or has none yet, and comes to queue_pop now: workers of the devices after its
 * own leave it what it may run, from now until it has taken a job. To be called before the job's end is told, since the
 * next one may come of that before this worker waits. */
void queue_idle(struct queue *queue, int device);

/* Takes the oldest job that is ready and that the device may run, its reference goes to the caller; waits until there
 * is one. A worker that is not up gets those alone that no worker who is up may take: it will say why they fail. NULL
 * when the queue has ended and is empty, or after timeout_ms (negative: never). */
struct job *queue_pop(struct queue *queue, int device, bool up, int timeout_ms);

/* For a worker whose device is not done with a job but has nothing more to begin: the same, if there is one and no idle
 * worker may take it. Never waits. */
struct job *queue_pop_ahead(struct queue *queue, int device);

/* Takes this job out if it waits and its picture is not just being read (then the queue's reference is the caller's),
 * else false. If job->ready the caller calls job_computed, else nobody else has it. */
bool queue_remove(struct queue *queue, const struct job *job);

/* The same with the oldest job that was created before that time (CLOCK_MONOTONIC); NULL: there is none. Never waits.
 */
struct job *queue_take_older(struct queue *queue, int64_t created_before_ns);

/* No job is pushed from now on; those that are returned still are. */
void queue_close(struct queue *queue);
bool queue_closed(struct queue *queue);
/* queue_carry and, once the queue is empty, queue_pop no longer wait. */
void queue_end(struct queue *queue);
/* It has ended and is empty. */
bool queue_ended(struct queue *queue);

/* How many jobs wait beside those that idle workers are about to take. */
size_t queue_depth(struct queue *queue);
size_t queue_capacity(const struct queue *queue);

#endif
