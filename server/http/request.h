/* One HTTP request on its way through router, upload, job and reply, and the server that they all share.
 * Thread-safety: a request belongs to the HTTP thread of its connection; while it is suspended, its job's end may only
 * resume it. A struct server is shared: its members lock for themselves. */
#ifndef SERVER_HTTP_REQUEST_H
#define SERVER_HTTP_REQUEST_H

#include <microhttpd.h>
#include <stdatomic.h>

#include "server/config.h"
#include "server/http/connection.h"
#include "server/http/framing.h"
#include "server/http/metrics.h"
#include "server/http/model_list.h"
#include "server/http/reply.h"
#include "server/http/upload.h"
#include "server/job/worker_pool.h"

struct route;

struct server {
    const struct config *config;
    struct model_store *store;
    struct worker_pool *pool;
    struct connections *connections;
    struct metrics *metrics;
    struct model_list *model_list;
    struct MHD_Daemon *daemon;
    int port;
};

struct request {
    struct server *server;
    struct MHD_Connection *connection;
    struct connection *link;
    const struct route *route;  /* NULL: none of ours */
    char method[16], path[128]; /* path: for the log and errors, unsafe characters replaced */
    char id[65];
    int64_t started_ns;
    struct framing_target target; /* until it has begun */
    bool begun;                   /* its header has come whole */
    bool answered;                /* a response is queued */
    struct upload *upload;
    struct job *job;
    enum reply refused; /* not REPLY_OK: what is answered once the body has passed */
    struct error refusal;
    int status;            /* of the answer, 0: none */
    uint64_t answer_bytes; /* of its body */
};

#endif
