#include "server/http/server.h"
#include "server/http/metrics_scale.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "server/http/access.h"
#include "server/http/dialect.h"
#include "server/http/fleet.h"
#include "server/http/json.h"
#include "server/http/proxies.h"
#include "server/http/room.h"
#include "server/http/route_jobs.h"
#include "server/http/route_piece.h"
#include "server/http/route_wait.h"
#include "server/http/router.h"
#include "server/http/site.h"
#include "server/http/stream.h"
#include "server/job/ask.h"

#define HTTP_THREADS 2
#define BACKLOG 512
#define ADMIN_CONNECTIONS 32
#define CONNECTIONS_SPARE 64 /* while room is made for them, and for probes and polls when that is impossible */

/* A path for the log and for errors: it cannot end a line or begin another key. */
static void server_copy_path(const char *path, char *out, size_t size)
{
    size_t n = 0;
    for (; path[n] && n + 1 < size; n++)
        out[n] = path[n] > 0x20 && path[n] < 0x7f && !strchr("\"\\=<>", path[n]) ? path[n] : '_';
    out[n] = 0;
}

static struct connection *server_link(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

/* libmicrohttpd calls this with a request's target as received; what it returns is the first *slot of handle. */
static void *server_request_create(void *context, const char *target, struct MHD_Connection *connection)
{
    struct request *request = mem_calloc(1, sizeof *request);
    if (!request)
        return NULL;
    const struct listener *listener = context;
    request->server = listener->server;
    request->side = listener->side;
    request->tls = listener->side == CONNECTION_SERVICE && listener->server->tls;
    request->connection = connection;
    request->link = server_link(connection);
    request->started_ns = job_now();
    framing_look(&request->target, target);
    job_make_id(request->id);
    return request;
}

/* The header has arrived. */
static enum MHD_Result server_begin(struct request *request, const char *path, const char *method, const char *version)
{
    struct framing framing;
    request->begun = true;
    request->interim = strcmp(version, MHD_HTTP_VERSION_1_0) != 0 && !request->tls;
    connection_moved(request->link);
    access_begin(request);
    framing_read(&framing, request->connection, method, &request->target, version);
    const char *own = framing_path(path, request->host);
    server_copy_path(own ? own : path, request->path, sizeof request->path);
    server_copy_path(method, request->method, sizeof request->method);
    return router_begin(request, own, &framing);
}

/* The next bytes of a body. Errors in it are reported after it has passed; until then the rest is dropped. A chunked
 * body that is too long might never end, so that is reported at once. */
static void server_feed(struct request *request, const char *data, size_t size)
{
    if (request->refused || (!request->upload && !request->reader))
        return;
    request->received += size;
    if (request->reader ? !request->reader->feed(request->reading, data, size, &request->refusal)
                        : !upload_feed(request->upload, data, size, &request->refusal))
        return;
    const enum error_code code = request->refusal.code;
    request->refused = code == ERROR_TOO_LARGE ? REPLY_BODY_TOO_LARGE : reply_for(code);
    if (code == ERROR_INVALID && request->reader && request->reader->invalid)
        request->refused = request->reader->invalid;
    if (request->refusal.code == ERROR_FULL)
        metrics_rejected(request->server->metrics, REJECTED_FULL);
    if (request->chunked && request->refusal.code == ERROR_TOO_LARGE) {
        metrics_rejected(request->server->metrics, REJECTED_BODY_TOO_LARGE);
        reply_now(request, request->refused, &request->refusal);
    }
}

/* libmicrohttpd calls this with a request's headers, then with each piece of its body, then without data, and again
 * when the connection was resumed. */
static enum MHD_Result server_handle(void *context, struct MHD_Connection *connection, const char *path,
                                     const char *method, const char *version, const char *data, size_t *size,
                                     void **slot)
{
    struct request *request = *slot;
    (void)context, (void)connection;
    if (!request)
        return MHD_NO; /* no memory for it */
    if (!request->begun)
        return server_begin(request, path, method, version);
    if (request->held)
        return room_resumed(request);
    if (*size) {
        connection_moved(request->link);
        server_feed(request, data, *size);
        *size = 0;
        return request->answered ? MHD_NO : MHD_YES; /* closes it */
    }
    if (request->answered)
        return MHD_YES;
    if (request->refused && !request->job)
        return reply_problem(request, request->refused, &request->refusal, NULL, NULL, NULL);
    /* Whoever is suspended at this first call looks to libmicrohttpd (0.9.75) as if more were to be read from him. When
     * he goes on, the end of a client that has closed its own direction is read, and the connection is closed without
     * an answer. At the next call nothing is read. */
    if (!request->complete && request->route->method != ROUTE_GET) {
        request->complete = true;
        return MHD_YES;
    }
    return request->route->answer(request);
}

/* A request is over, answered or not. */
static void server_completed(void *context, struct MHD_Connection *connection, void **slot,
                             enum MHD_RequestTerminationCode reason)
{
    struct server *server = ((struct listener *)context)->server;
    struct request *request = *slot;
    (void)connection;
    *slot = NULL;
    if (!request || !request->begun) { /* refused by libmicrohttpd itself */
        free(request);
        return;
    }
    double seconds = (double)(job_now() - request->started_ns) / 1e9;
    int status = request->status;
    if (!request->answered || reason == MHD_REQUEST_TERMINATED_CLIENT_ABORT)
        status = reply_status(REPLY_CLIENT_GONE);
    const char *route = request->route ? request->route->path : "other";
    static const char *const methods[] = {"GET", "HEAD", "POST", "PUT", "DELETE"};
    const char *method = "other";
    for (int i = 0; i < 5; i++)
        if (!strcmp(methods[i], request->method))
            method = methods[i];
    metrics_request(server->metrics, route, method, status, seconds);
    access_log(request, status, seconds);
    connection_reading(request->link);
    room_leave(request);
    job_release(&request->job);
    route_wait_forget(request);
    fleet_forget(request);
    route_jobs_forget(request);
    route_piece_forget(request);
    upload_destroy(&request->upload);
    if (request->reader)
        request->reader->destroy(request->reading);
    free(request);
}

static enum MHD_Result server_admit(void *context, const struct sockaddr *address, socklen_t size)
{
    const struct listener *listener = context;
    (void)size;
    return connections_admit(listener->server->connections, address) ? MHD_YES : MHD_NO;
}

static void server_opened_or_closed(void *context, struct MHD_Connection *connection, void **slot,
                                    enum MHD_ConnectionNotificationCode what)
{
    const struct listener *listener = context;
    struct connection *link = *slot;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        connection_close(&link);
        *slot = NULL;
        return;
    }
    const union MHD_ConnectionInfo *fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    int number = fd ? fd->connect_fd : -1;
    const union MHD_ConnectionInfo *address = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    *slot = number >= 0 ? connection_open(listener->server->connections, listener->side, number,
                                          address ? address->client_addr : NULL)
                        : NULL;
}

static void server_log_library(void *context, const char *format, va_list args)
{
    char line[512];
    (void)context;
    vsnprintf(line, sizeof line, format, args);
    line[strcspn(line, "\n")] = 0;
    log_event(LOG_DEBUG, "http", "text=\"%s\"", line);
}

/* A listening socket for `listen`; its port into *port. */
static enum error_code server_open_socket(const char *listen_on, int *out, int *port, struct error *err)
{
    char host[128], service[8];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    if (!config_split_listen(listen_on, host, sizeof host, service, sizeof service))
        return error_set(err, ERROR_INVALID, "listen: \"%s\" is not ADDRESS:PORT", listen_on);
    int failed = getaddrinfo(host, service, &hints, &found);
    if (failed)
        return error_set(err, ERROR_IO, "cannot listen on %s: %s", listen_on, gai_strerror(failed));
    int on = 1, fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_storage bound;
    socklen_t size = sizeof bound;
    enum error_code code = OK;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
        bind(fd, found->ai_addr, found->ai_addrlen) || listen(fd, BACKLOG) ||
        getsockname(fd, (struct sockaddr *)&bound, &size)) {
        code = error_set(err, errno == EADDRINUSE ? ERROR_BUSY : ERROR_IO, "cannot listen on %s: %m", listen_on);
        if (fd >= 0)
            close(fd);
    } else {
        *out = fd;
        *port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                                  : ((struct sockaddr_in *)&bound)->sin_port);
    }
    freeaddrinfo(found);
    return code;
}

/* Starts to answer on one of the two addresses. */
static enum error_code server_listen(struct server *server, enum connection_side side, const char *listen_on,
                                     unsigned threads, int connections, struct error *err)
{
    const struct config *config = server->config;
    struct listener *listener = &server->listeners[side];
    int fd = -1;
    const bool tls = side == CONNECTION_SERVICE && server->tls;
    *listener = (struct listener){.server = server, .side = side, .threads = threads};
    enum error_code code = server_open_socket(listen_on, &fd, &listener->port, err);
    if (code)
        return code;
    /* A connection's memory pool holds its header twice: as bytes, and as the list made from them. */
    listener->daemon = MHD_start_daemon(
        (tls ? MHD_USE_TLS : 0) | MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC |
            MHD_USE_ERROR_LOG,
        0, server_admit, listener, server_handle, listener, MHD_OPTION_EXTERNAL_LOGGER, server_log_library, NULL,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_THREAD_POOL_SIZE, threads, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)(connections + CONNECTIONS_SPARE), MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)config->idle_seconds,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)config->header_limit * 2, MHD_OPTION_URI_LOG_CALLBACK,
        server_request_create, listener, MHD_OPTION_NOTIFY_COMPLETED, server_completed, listener,
        MHD_OPTION_NOTIFY_CONNECTION, server_opened_or_closed, listener,
        tls ? MHD_OPTION_HTTPS_PRIORITIES : MHD_OPTION_END, TLS_PRIORITIES, MHD_OPTION_HTTPS_CERT_CALLBACK,
        tls_callback(), MHD_OPTION_END);
    if (listener->daemon)
        return OK;
    close(fd);
    return error_set(err, ERROR_IO, "the HTTP server could not be started");
}

enum error_code server_check_lists(const struct config *config, struct error *err)
{
    enum error_code code = site_check_list(config->allowed_hosts, err);
    if (!code)
        code = site_check_origins(config->cors_origins, err);
    if (!code)
        code = dialect_check(config->compat, err);
    struct error wrong = ERROR_INIT;
    if (!code && site_check_origins(config->webhook_origins, &wrong))
        code = error_set(err, ERROR_INVALID,
                         "webhook_origins: \"%.200s\" is no list of origins, such as "
                         "https://hooks.example.com",
                         config->webhook_origins);
    if (!code && proxies_check_list(config->webhook_private, &wrong))
        code = error_set(err, ERROR_INVALID,
                         "webhook_private: \"%.200s\" is no list of addresses and ranges, such as "
                         "10.0.0.0/8",
                         config->webhook_private);
    if (!code && site_check_origins(config->fetch_origins, &wrong))
        code = error_set(err, ERROR_INVALID,
                         "fetch_origins: \"%.200s\" is no list of origins, such as https://photos.example.com",
                         config->fetch_origins);
    if (!code && proxies_check_list(config->fetch_private, &wrong))
        code = error_set(err, ERROR_INVALID,
                         "fetch_private: \"%.200s\" is no list of addresses and ranges, such as 10.0.0.0/8",
                         config->fetch_private);
    return code ? code : proxies_check_list(config->trusted_proxies, err);
}

enum error_code server_check_config(const struct config *config, struct error *err)
{
    struct auth *auth = NULL;
    struct tls *tls = NULL;
    enum error_code code = server_check_lists(config, err);
    if (!code)
        code = auth_create(&auth, config->auth_token_file, err);
    if (!code)
        code = tls_create(&tls, config->tls_cert, config->tls_key, err);
    auth_destroy(&auth);
    tls_destroy(&tls);
    return code;
}

enum error_code server_check_addresses(const struct config *config, struct error *err)
{
    enum error_code code = OK;
    for (int side = 0; side < CONNECTION_SIDES && !code; side++) {
        const char *listen_on = side == CONNECTION_SERVICE ? config->listen : config->metrics_listen;
        int fd = -1, port;
        if (*listen_on && !(code = server_open_socket(listen_on, &fd, &port, err)))
            close(fd);
    }
    return code;
}

/* A cluster_about_fn: what the fronts show of this server. */
static json_t *server_about(void *context)
{
    const struct server *server = context;
    struct device_status *list = NULL;
    struct error ignored = ERROR_INIT;
    size_t count = 0;
    if (devices_read(worker_pool_devices(server->pool), &list, &count, &ignored))
        return NULL;
    json_t *about = json_pack("{s:o}", "devices", json_devices(list, count, server->config->precision));
    free(list);
    metrics_scale_about(about, server->pool);
    json_object_set_new(about, "answers", json_boolean(server->checks != NULL));
    if (server->checks)
        json_object_set_new(about, "models", json_models(server->checks, false));
    return about;
}

enum error_code server_create(struct server **out, const struct config *config, struct model_store *store,
                              struct worker_pool *pool, struct keeper *keeper, struct error *err)
{
    *out = NULL;
    struct server *server = mem_calloc(1, sizeof *server);
    if (!server)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the server");
    server->config = config;
    server->store = store;
    server->pool = pool;
    server->checks = config->role == SERVE_FRONT ? NULL : store;
    server->keeper = keeper;
    server->spool = keeper ? keeper_spool(keeper) : NULL;
    const int connections = (int)config->connections;
    const struct connection_limits limits = {.request_seconds = (int)config->request_seconds,
                                             .per_address = (int)config->connections_per_address,
                                             .most = {connections, ADMIN_CONNECTIONS}};
    enum error_code code = server_check_lists(config, err);
    if (!code)
        code = auth_create(&server->auth, config->auth_token_file, err);
    if (!code)
        code = tls_create(&server->tls, config->tls_cert, config->tls_key, err);
    if (!code)
        code = rate_create(&server->pixels, err);
    if (!code)
        code = rate_create(&server->visits, err);
    if (!code)
        code = metrics_create(&server->metrics, err);
    if (!code)
        code = model_list_create(&server->model_list, store, err);
    if (!code)
        code = connections_create(&server->connections, pool, &limits, err);
    if (!code)
        code = streams_create(&server->streams, pool, err);
    if (!code && keeper && keeper_cluster(keeper))
        code = asks_create(&server->asks, keeper_cluster(keeper), server->checks ? fleet_answer : NULL, server, err);
    if (!code && server->spool)
        code = pieces_create(&server->pieces, server->spool, err);
    for (const struct dialect *const *row = dialects; *row && !code; row++)
        if ((*row)->start)
            code = (*row)->start(server, err);
    if (!code && *config->listen)
        code = server_listen(server, CONNECTION_SERVICE, config->listen, HTTP_THREADS, connections, err);
    if (!code && *config->metrics_listen)
        code = server_listen(server, CONNECTION_ADMIN, config->metrics_listen, 1, ADMIN_CONNECTIONS, err);
    if (!code && keeper && keeper_cluster(keeper))
        cluster_set_about(keeper_cluster(keeper), server_about, server);
    if (code)
        server_destroy(&server);
    *out = server;
    return code;
}

struct limits server_limits(const struct config *config)
{
    return (struct limits){.input_pixels = config->input_pixels,
                           .result_pixels = config->result_pixels,
                           .detect_max_side = (int)config->detect_max_side,
                           .max_faces = (int)config->max_faces};
}

/* Whether it listens only on a loopback address. */
static bool server_is_local(const struct server *server)
{
    return !*server->config->listen || site_is_local(server->config->listen);
}

bool server_is_open(const struct server *server)
{
    return !server_is_local(server) && !auth_count(server->auth);
}

static void server_print_url(const struct listener *listener, const char *listen_on, char *out, size_t size)
{
    /* a listener that does not listen knows no server */
    const bool tls = listener->daemon && listener->side == CONNECTION_SERVICE && listener->server->tls;
    if (listener->daemon)
        snprintf(out, size, "http%s://%.*s:%d", tls ? "s" : "", (int)(strrchr(listen_on, ':') - listen_on), listen_on,
                 listener->port);
    else
        *out = 0;
}

void server_url(const struct server *server, char *out, size_t size)
{
    server_print_url(&server->listeners[CONNECTION_SERVICE], server->config->listen, out, size);
}

void server_admin_url(const struct server *server, char *out, size_t size)
{
    server_print_url(&server->listeners[CONNECTION_ADMIN], server->config->metrics_listen, out, size);
}

int server_close_idle(struct server *server)
{
    return connections_close_idle(server->connections);
}

bool server_end_waits(struct server *server)
{
    return route_jobs_end(server);
}

void server_destroy(struct server **server)
{
    struct server *old = *server;
    *server = NULL;
    if (!old)
        return;
    if (old->keeper && keeper_cluster(old->keeper))
        cluster_set_about(keeper_cluster(old->keeper), NULL, NULL);
    (void)server_end_waits(old);
    asks_end(old->asks);
    streams_end(old->streams);
    pieces_end(old->pieces);
    for (const struct dialect *const *row = dialects; *row; row++)
        if ((*row)->end)
            (*row)->end(old);
    for (int side = 0; side < CONNECTION_SIDES; side++)
        if (old->listeners[side].daemon)
            MHD_stop_daemon(old->listeners[side].daemon); /* closes the listening socket, too */
    streams_destroy(&old->streams);
    for (const struct dialect *const *row = dialects; *row; row++)
        if ((*row)->stop)
            (*row)->stop(old);
    pieces_destroy(&old->pieces);
    asks_destroy(&old->asks);
    connections_destroy(&old->connections);
    model_list_destroy(&old->model_list);
    metrics_destroy(&old->metrics);
    rate_destroy(&old->pixels);
    rate_destroy(&old->visits);
    tls_destroy(&old->tls);
    auth_destroy(&old->auth);
    while (old->configs) {
        struct server_config *older = old->configs->older;
        free(old->configs);
        old->configs = older;
    }
    free(old);
}
