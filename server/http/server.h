/* The HTTP server: libmicrohttpd with two threads that never wait for a job.
 * Thread-safety: create and destroy on one thread; the rest from any. */
#ifndef SERVER_HTTP_SERVER_H
#define SERVER_HTTP_SERVER_H

#include "server/config.h"
#include "server/job/keeper.h"
#include "server/job/worker_pool.h"
#include "server/store/spool.h"

struct server;

/* Whether its lists of hosts, origins and proxies can be read. ERROR_INVALID. */
enum error_code server_check_lists(const struct config *config, struct error *err) MUST_CHECK;

/* Whether server_create could succeed as things are now, for the start, which takes a while until there is a pool; with
 * its errors. The lists, the token file and the certificate: */
enum error_code server_check_config(const struct config *config, struct error *err) MUST_CHECK;
/* Whether it may listen at its addresses. */
enum error_code server_check_addresses(const struct config *config, struct error *err) MUST_CHECK;

/* Binds, listens and serves. config, store, pool and keeper are borrowed; without a keeper (NULL) there are no
 * asynchronous jobs, and all bodies stay in memory. ERROR_BUSY: somebody else listens at an address; ERROR_IO: it
 * cannot be listened at for another reason. Both name it. */
enum error_code server_create(struct server **out, const struct config *config, struct model_store *store,
                              struct worker_pool *pool, struct keeper *keeper, struct error *err) MUST_CHECK;

/* "http://127.0.0.1:8080", with the port in use. */
void server_url(const struct server *server, char *out, size_t size);
/* The same for metrics_listen; "" when there is none. */
void server_admin_url(const struct server *server, char *out, size_t size);
/* Whether anybody who reaches it from elsewhere may use it: it has no tokens. */
bool server_is_open(const struct server *server);

/* Takes over the values of this configuration that a running server may change (config_is_live), by copying them, and
 * reads tokens and certificate again (if that
 * fails, the log says why, and the old ones stay), and finds new models in the folders. ERROR_INVALID for a list that
 * cannot be read, or ERROR_NO_MEMORY: nothing has changed. */
enum error_code server_reload(struct server *server, const struct config *config, struct error *err) MUST_CHECK;

/* The configuration in force; it lives as long as the server, even after a reload. */
const struct config *server_config(const struct server *server);

/* The bounds of every restoration that a configuration sets. */
struct limits server_limits(const struct config *config);

/* Why a request that names no models cannot be done now, with the shutdown alone while it shuts down; 0: it can. */
#define SERVER_REASONS_MAX 4
int server_reasons(struct server *server, struct error reasons[SERVER_REASONS_MAX]);

/* Writes one line to the log, whatever the level: current jobs, queue, connections, memory and devices. */
void server_log_status(struct server *server);

/* Whether every thread that serves HTTP answers a request within that time each. */
bool server_answers(const struct server *server, int milliseconds);

/* Closes connections that neither wait for an answer nor receive one; returns how many are left. */
int server_close_idle(struct server *server);

/* Requests that still wait for the database or for shared pictures are answered that the server stops. False: there
 * is none. */
bool server_end_waits(struct server *server);

/* Stops at once. The pool must have ended its jobs, so that their connections have been resumed. */
void server_destroy(struct server **server);

#endif
