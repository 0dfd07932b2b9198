/* What the routes of jobs and of batches share.
 * Thread-safety: as struct request. */
#ifndef SERVER_HTTP_ROUTE_JOBS_H
#define SERVER_HTTP_ROUTE_JOBS_H

#include "server/http/request.h"

#define ROUTE_JOBS_MOST 1000 /* jobs on a page of a list */

enum MHD_Result route_jobs_fail(struct request *request, enum reply reply, const struct error *err);

/* Whether the server keeps jobs; else err says why not. */
bool route_jobs_there(const struct request *request, struct error *err);

/* Whose jobs the client may see: this token's; NULL: all. */
const char *route_jobs_token(const struct request *request);

/* The row of the job in the path, if the client may see it; else the refusal is answered, into *result. */
bool route_job_find(struct request *request, struct store_job *row, enum MHD_Result *result);

/* route_jobs_submit with an id of the caller's own (NULL: any), 32 characters that may be in a file's name, which is
 * its Idempotency-Key as well. hook: of its webhook, as in the keeper's ticket; NULL: none. */
enum MHD_Result route_jobs_submit_as(struct request *request, const struct restoration *r, struct body *body,
                                     const char *id, const char *hook);

/* A ticket of this request, without a file; NULL when memory is out. */
struct keeper_ticket *route_jobs_ticket(struct request *request, enum keeper_wish wish);
/* The connection is suspended until the ticket is done, and the route's answer is called again. */
enum MHD_Result route_jobs_ask(struct request *request);
/* The same for the result of this job, which servers share; MHD_NO when memory is out. */
enum MHD_Result route_jobs_fetch(struct request *request, const struct store_job *row);
/* The server stops: whoever waits for the keeper goes on, with a ticket that says so by ERROR_BUSY, and so does whoever
 * asks from now on. libmicrohttpd must not end while a connection is suspended, and the keeper may wait for a database
 * or for payloads that do not answer. Before keeper_destroy. False: nobody waited. */
bool route_jobs_end(struct server *server);

#endif
