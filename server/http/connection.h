/* The open connections, watched by a thread of their own for what libmicrohttpd does not do: a client that hangs up
 * while its job is at work (its connection is suspended and nothing else looks at it), requests and answers that take
 * too long, the number of connections of one address, and a socket that is read empty after its body was refused, so
 * that the refusal is not lost to a reset. Thread-safety: every function may be called from any thread, but for create
 * and destroy. */
#ifndef SERVER_HTTP_CONNECTION_H
#define SERVER_HTTP_CONNECTION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "server/job/worker_pool.h"

struct connection;
struct connections;

/* Starts the watching thread, which also ends the pool's jobs that are past their deadline. */
enum error_code connections_create(struct connections **out, struct worker_pool *pool, int request_seconds,
                                   int per_address, struct error *err) MUST_CHECK;
/* None may be open. */
void connections_destroy(struct connections **connections);

/* Whether one more from this address is within its limit. Loopback always is. */
bool connections_admit(struct connections *connections, const struct sockaddr *address);

/* One was opened. NULL when memory is out; all the functions below take that. */
struct connection *connection_open(struct connections *connections, int fd, const struct sockaddr *address);

/* It is about to be closed; its socket is still there. */
void connection_close(struct connection **connection);

/* What it does now. A request begins (opened, or the last one is over): */
void connection_reading(struct connection *connection);
/* It waits, suspended, for this job: */
void connection_waiting(struct connection *connection, struct job *job);
/* Its answer goes out: */
void connection_sending(struct connection *connection);

/* Whether the answer is given without reading the body: then it is read on for a while after the close. */
void connection_linger(struct connection *connection, bool linger);

/* Whether the client hung up while it waited. */
bool connection_gone(struct connection *connection);

/* Cuts those off that are neither sending an answer nor waiting for one; how many are left. */
int connections_close_idle(struct connections *connections);

#endif
