/* Jobs for tests of the queue. What goes wrong fails the test.
 * Thread-safety: queued_make may be called from any thread. */
#ifndef TESTS_COMMON_QUEUED_H
#define TESTS_COMMON_QUEUED_H

#include "server/job/queue.h"

/* A job of 4 bytes for device 0. */
struct job *queued_make(const char *id);

/* One for these devices, in the queue; and one whose picture was read, too. */
struct job *queued_push(struct queue *queue, const char *id, uint32_t devices);
struct job *queued_push_read(struct queue *queue, const char *id, uint32_t devices);

/* As a carrier does that has read the picture. */
void queued_carry(struct queue *queue, struct job *want);

/* Takes a job for a worker of the device, which is to be this one, or NULL for none. */
void queued_expect(struct queue *queue, int device, bool up, struct job *want);

#endif
