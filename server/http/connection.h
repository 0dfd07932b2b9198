/* The open connections, watched by a separate thread for what libmicrohttpd does not handle: clients that hang up in
 * the middle of a request or while their job runs; requests and answers that take too long; the number of connections,
 * of one address and in total (a new one too many makes the longest idle one go); uploads that make no progress while
 * others wait for their room; and sockets that are drained after their body was refused, so that the refusal is not
 * lost to a reset. Thread-safety: every function may be called from any thread, except create and destroy. */
#ifndef SERVER_HTTP_CONNECTION_H
#define SERVER_HTTP_CONNECTION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "server/job/worker_pool.h"

struct connection;
struct connections;

/* Which side a client is on: the service, or the address for operators (metrics_listen). */
enum connection_side { CONNECTION_SERVICE, CONNECTION_ADMIN, CONNECTION_SIDES };

struct connection_limits {
    int request_seconds, per_address;
    int most[CONNECTION_SIDES];
};

/* Starts the watching thread, which also ends the pool's jobs that are past their deadline. */
enum error_code connections_create(struct connections **out, struct worker_pool *pool,
                                   const struct connection_limits *limits, struct error *err) MUST_CHECK;
/* None may be open. */
void connections_destroy(struct connections **connections);

/* Whether one more connection from this address is within its limit; always true for loopback. */
bool connections_admit(struct connections *connections, const struct sockaddr *address);

/* A connection was opened. If that is one too many, the longest idle one of its side is cut off (idle: no request has
 * begun). NULL when memory runs out; all functions below accept NULL. */
struct connection *connection_open(struct connections *connections, enum connection_side side, int fd,
                                   const struct sockaddr *address);

/* It is about to be closed; its socket still exists. */
void connection_close(struct connection **connection);

/* What it does now. A request begins (opened, or the last one is over): */
void connection_reading(struct connection *connection);
/* Its body, for which others may have to wait, comes in: */
void connection_uploading(struct connection *connection);
/* More of its request has come: */
void connection_moved(struct connection *connection);
/* It waits, suspended, for room for its body: */
void connection_holding(struct connection *connection);
/* It waits, suspended, for this job. interim: its client takes interim answers (HTTP/1.1); sending one tells a client
 * that has only closed its own direction from one that is gone. */
void connection_waiting(struct connection *connection, struct job *job, bool interim);
/* It waits, suspended, for the job of this id, which another server does; leave is called if its client hangs up, on a
 * thread of the connections' own and perhaps when the job has just ended. */
typedef void connection_leave_fn(void *context, const char *id);
void connection_waiting_elsewhere(struct connection *connection, connection_leave_fn *leave, void *context,
                                  const char *id, bool interim);
/* Its answer goes out: */
void connection_sending(struct connection *connection);
/* Its answer goes on for as long as it likes: */
void connection_streaming(struct connection *connection);

/* Whether there are more connections than allowed and none could be cut off for this one: do only small things for
 * it. */
bool connection_crowded(struct connection *connection);

/* Whether the request was answered without reading its body: then the socket is drained for a while after the close. */
void connection_linger(struct connection *connection, bool linger);

/* Whether the client is on this machine (so is a reverse proxy there). */
bool connection_is_local(const struct connection *connection);

/* Whether the client hung up while it waited. */
bool connection_gone(struct connection *connection);

/* How many are open. */
int connections_count(struct connections *connections);

/* Changes the limits, for open connections, too. */
void connections_set_limits(struct connections *connections, int request_seconds, int per_address);

/* Whether a client that waits for room is gone, or has closed its direction without having sent that much of the
 * body. */
bool connection_left(struct connection *connection, uint64_t body);

/* Cuts off connections that neither receive an answer nor wait for one; returns how many are left. */
int connections_close_idle(struct connections *connections);

#endif
