/* The limits of one client: of its token (megapixels a minute, jobs that wait), and of its address.
 * Thread-safety: as struct request. */
#ifndef SERVER_HTTP_QUOTA_H
#define SERVER_HTTP_QUOTA_H

#include "server/http/request.h"

/* Takes a picture's pixels from what the request's token may send in a minute; 0: asks only whether it may send any.
 * REPLY_OK, or REPLY_RATE_LIMITED with the sentence and the seconds to wait (Retry-After). */
enum reply quota_take_pixels(struct request *request, uint64_t pixels, int *seconds, struct error *err) MUST_CHECK;

/* Puts back what quota_take_pixels took for this request: no job has come of it. */
void quota_give_back(struct request *request);

/* Takes one request from what the client's address may send in a minute; the same. */
enum reply quota_take_request(struct request *request, int *seconds, struct error *err) MUST_CHECK;

/* Whose turn in the queue its jobs take: "token NAME", else "address A", where A may be a network (rate_key). */
void quota_client(const struct request *request, char out[72]);

/* Whether the request's token may have one more job wait beside those that do. REPLY_OK, or REPLY_TOO_MANY_JOBS with
 * the sentence. */
enum reply quota_allows_job(struct request *request, size_t waiting, struct error *err) MUST_CHECK;
/* That refusal. */
enum reply quota_too_many_jobs(struct request *request, struct error *err);

#endif
