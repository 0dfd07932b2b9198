/* One HTTP request on its way through router, upload, job and reply, and the server that all requests share.
 * Thread-safety: a request belongs to the HTTP thread of its connection; while it is suspended, its job's end may only
 * resume it. A struct server is shared: its members lock for themselves. */
#ifndef SERVER_HTTP_REQUEST_H
#define SERVER_HTTP_REQUEST_H

#include <microhttpd.h>
#include <stdatomic.h>

#include "server/config.h"
#include "server/http/auth.h"
#include "server/http/connection.h"
#include "server/http/framing.h"
#include "server/http/metrics.h"
#include "server/http/model_list.h"
#include "server/http/rate.h"
#include "server/http/reply.h"
#include "server/http/tls.h"
#include "server/http/upload.h"
#include "server/job/keeper.h"
#include "server/job/piece.h"
#include "server/job/worker_pool.h"

struct route;
struct dialect;
struct hooks;
struct fetches;
struct held_ticket;

/* What stands in a path for the parts of its pattern. */
struct router_parts {
    char id[64], number[16];
};

/* A copy of a configuration that is or was in force. */
struct server_config {
    struct config config;
    struct server_config *older;
};

/* What reads a request's body in place of its upload. */
struct request_reader {
    enum error_code (*feed)(void *context, const char *data, size_t size, struct error *err);
    void (*destroy)(void *context);
    enum reply invalid; /* what is answered to ERROR_INVALID; REPLY_OK: as reply_for has it */
};

struct server {
    _Atomic(const struct config *) config; /* the current one: server_reload puts another one here */
    struct server_config *configs;         /* all that there have been, because a request may still use one */
    struct model_store *store;
    struct worker_pool *pool;
    const struct model_store *checks; /* what requests are checked against; NULL: other servers have the models */
    struct keeper *keeper;            /* NULL: there is no folder for its state, and no asynchronous jobs */
    struct spool *spool;              /* NULL: bodies stay in memory */
    struct pieces *pieces;            /* NULL: as keeper */
    struct asks *asks;                /* NULL: the store is this server's alone */
    struct connections *connections;
    struct streams *streams;
    struct metrics *metrics;
    struct model_list *model_list;
    struct auth *auth;
    struct hooks *hooks;          /* of server/compat/hooks.h */
    struct fetches *fetches;      /* of server/compat/fetch.h */
    struct held_ticket *held;     /* requests that wait for the keeper: route_ticket.c */
    bool holds_no_more;           /* none may any more */
    struct tls *tls;              /* NULL: HTTP */
    struct rate *pixels, *visits; /* what tokens and what addresses take */
    struct listener {
        struct server *server;
        enum connection_side side;
        struct MHD_Daemon *daemon; /* NULL: there is no such address */
        int port;
        unsigned threads; /* of the daemon */
    } listeners[CONNECTION_SIDES];
};

struct request {
    struct server *server;
    struct MHD_Connection *connection;
    struct connection *link;
    enum connection_side side;
    bool tls;                      /* its connection is encrypted: nothing may be written to the socket itself */
    bool interim;                  /* its client takes interim answers (HTTP/1.1) */
    const struct route *route;     /* NULL: none of ours */
    const struct dialect *dialect; /* whose client it is; NULL: our own */
    char method[16], path[128];    /* path: for the log and errors, unsafe characters replaced */
    struct router_parts parts;
    char host[FRAMING_HOST_MAX]; /* of a target in absolute form, which counts instead of Host (RFC 9112, 3.2.2); or ""
                                  */
    char id[65];
    char client[46], agent[96];    /* for the log: its address, and its User-Agent with unsafe characters replaced */
    struct auth_identity identity; /* whose it is */
    int64_t started_ns;
    struct framing_target target; /* until it has begun */
    bool begun;                   /* its whole header has arrived */
    bool shared;                  /* a page of an origin in cors_origins sent it */
    bool complete;                /* so has its body */
    bool answered;                /* a response is queued */
    bool chunked;                 /* its body is chunked: nothing after it is read */
    bool held;                    /* it waits for room for its body */
    bool elsewhere;               /* other servers have the models that it names: fleet_choose */
    bool repeated;                /* its Idempotency-Key is known: most likely its job is, too */
    double charged;               /* megapixels that its token has paid for it */
    uint64_t length;              /* of that body; of a chunked one, the most that it may have */
    struct inflight_body body;    /* that room */
    struct upload *upload;
    const struct request_reader *reader; /* with its context; NULL: the upload reads the body */
    void *reading;
    uint64_t received; /* bytes of the body that the reader has had */
    struct job *job;
    struct route_wait *wait;      /* of a front: the answer that it waits for */
    struct fleet_ask *asked;      /* of a front: what it asks of other servers */
    struct keeper_ticket *ticket; /* what it asks of the keeper, while it waits for that */
    struct piece_ticket *piece;   /* the part of a result that it waits for */
    enum reply refused;           /* not REPLY_OK: the answer to give once the body has passed */
    struct error refusal;
    int status;            /* of the answer, 0: none */
    uint64_t answer_bytes; /* of its body */
};

#endif
