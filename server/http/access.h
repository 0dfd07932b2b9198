/* The access log: one line for each request, with the client, the request and the result. Thread-safety: as struct
 * request. */
#ifndef SERVER_HTTP_ACCESS_H
#define SERVER_HTTP_ACCESS_H

struct request;

/* The header has arrived: notes the client. */
void access_begin(struct request *request);

/* The request is over. status: as in the log and the metrics. */
void access_log(const struct request *request, int status, double seconds);

#endif
