/* How a picture of a request becomes a job whose answer the connection waits for: the checks before its body comes and
 * after, and the queue. Shared by our own routes and those of server/compat.
 * Thread-safety: as struct request. */
#ifndef SERVER_HTTP_SUBMIT_H
#define SERVER_HTTP_SUBMIT_H

#include "server/http/request.h"

/* Refuses what can be refused before the body is read: its length, a shutdown, no device or models, what the token may
 * send. *length: bytes of the body, at most. REPLY_OK, or the reason; *wait: seconds until it is worth trying again. */
enum reply submit_admit(struct request *request, uint64_t *length, int *wait, struct error *err) MUST_CHECK;

/* Whether no more job of this client may wait: REPLY_QUEUE_FULL, which is counted as a rejection. */
enum reply submit_room(struct request *request, struct error *err) MUST_CHECK;

/* Answers a refusal in the form of the request's route. wait: 0, or as submit_admit. */
enum MHD_Result submit_refuse(struct request *request, enum reply reply, int wait, const struct error *err);

/* Checks a restoration and its picture as pipeline_check does, and its device. */
enum reply submit_check(struct request *request, struct restoration *r, struct body *body,
                        struct error *err) MUST_CHECK;

/* Takes the picture's pixels from what the request's token may send, and asks whether it may have one more job wait. */
enum reply submit_charge(struct request *request, const struct restoration *r, int *wait, struct error *err) MUST_CHECK;

/* Makes the job, request->job, and queues it; takes both over. The connection is suspended, and its route's answer
 * called again when the job has ended, or request->refused is set. Not REPLY_OK: nothing was suspended, and both are
 * still the caller's. low: it goes after all that are not. */
enum reply submit_start(struct request *request, struct restoration **r, struct body *body, bool low,
                        struct error *err) MUST_CHECK;

#endif
