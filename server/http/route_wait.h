/* A request that waits for its answer at a front, which computes nothing: the picture becomes a job of the shared
 * store, the connection is suspended, and when another server has done the job its result is fetched, sent and
 * forgotten. Thread-safety: as struct request. */
#ifndef SERVER_HTTP_ROUTE_WAIT_H
#define SERVER_HTTP_ROUTE_WAIT_H

#include "server/http/request.h"

/* Makes a checked restoration such a job; the body is taken over. route_wait_answer goes on. */
enum MHD_Result route_wait_submit(struct request *request, const struct restoration *r, struct body *body);
enum MHD_Result route_wait_answer(struct request *request);
/* The request is over. */
void route_wait_forget(struct request *request);

#endif
