/* A request that waits for its answer at a front, which computes nothing: the picture becomes a job of the shared
 * store, the connection is suspended, and when another server has done the job its result is fetched, sent and
 * forgotten. Thread-safety: as struct request. */
#ifndef SERVER_HTTP_ROUTE_WAIT_H
#define SERVER_HTTP_ROUTE_WAIT_H

#include "server/http/request.h"

/* Makes a checked restoration such a job; the body is taken over. route_wait_answer goes on. */
enum MHD_Result route_wait_submit(struct request *request, const struct restoration *r, struct body *body);
/* The same for one who goes on with the result of the job, which gets this id: `taken` is called in place of an answer,
 * when the job is done (REPLY_OK; row: with report and parts; fd: of its output, -1 where it has none) or has not been
 * (reply and err say why). What it gets is the function's only during the call; route_wait_forget ends it, and forgets
 * the job. */
typedef enum MHD_Result route_wait_taken_fn(struct request *request, enum reply reply, const struct error *err,
                                            const struct store_job *row, int fd);
enum MHD_Result route_wait_submit_for(struct request *request, const struct restoration *r, struct body *body,
                                      const char *id, route_wait_taken_fn *taken);
enum MHD_Result route_wait_answer(struct request *request);
/* A job that nobody waits for any more: cancelled, or forgotten if it has ended. */
void route_wait_drop(struct keeper *keeper, const char *id);
/* The request is over. */
void route_wait_forget(struct request *request);

#endif
