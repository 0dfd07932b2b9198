/* The HTTP server: libmicrohttpd with two threads that never wait for a job.
 * Thread-safety: create and destroy on one thread; the rest from any. */
#ifndef SERVER_HTTP_SERVER_H
#define SERVER_HTTP_SERVER_H

#include "server/config.h"
#include "server/job/worker_pool.h"

struct server;

/* Binds, listens and serves. config, store and pool are borrowed. ERROR_IO names the address and the reason. */
enum error_code server_create(struct server **out, const struct config *config, struct model_store *store,
                              struct worker_pool *pool, struct error *err) MUST_CHECK;

/* "http://127.0.0.1:8080", with the port that was given to it. */
void server_url(const struct server *server, char *out, size_t size);
/* Whether it listens on a loopback address alone. */
bool server_is_local(const struct server *server);

/* Closes connections that neither wait for an answer nor take one; how many are left. */
int server_close_idle(struct server *server);

/* Stops at once. The pool must have ended its jobs: their connections are then resumed. */
void server_destroy(struct server **server);

#endif
