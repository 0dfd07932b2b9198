#include "server/http/server.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "server/http/router.h"

#define HTTP_THREADS 2
#define BACKLOG 512

/* A path for the log and for errors: nothing in it can end a line or begin another key. */
static void copy_path(const char *path, char *out, size_t size)
{
    size_t n = 0;
    for (; path[n] && n + 1 < size; n++)
        out[n] = path[n] > 0x20 && path[n] < 0x7f && !strchr("\"\\=<>", path[n]) ? path[n] : '_';
    out[n] = 0;
}

static struct connection *link_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

/* libmicrohttpd calls this with a request's target, as it came; what it returns is the first *slot of handle. */
static void *request_create(void *context, const char *target, struct MHD_Connection *connection)
{
    struct request *request = mem_calloc(1, sizeof *request);
    if (!request)
        return NULL;
    request->server = context;
    request->connection = connection;
    request->link = link_of(connection);
    request->started_ns = job_now();
    framing_look(&request->target, target);
    job_make_id(request->id);
    return request;
}

/* The header is there. */
static enum MHD_Result begin(struct request *request, const char *path, const char *method, const char *version)
{
    struct framing framing;
    request->begun = true;
    framing_read(&framing, request->connection, method, &request->target, version);
    const char *own = framing_path(path);
    copy_path(own ? own : path, request->path, sizeof request->path);
    copy_path(method, request->method, sizeof request->method);
    return router_begin(request, own, &framing);
}

/* The next bytes of a body. What is wrong with it can only be said once it has passed; until then it is dropped. */
static void feed(struct request *request, const char *data, size_t size)
{
    if (request->refused || !request->upload || !upload_feed(request->upload, data, size, &request->refusal))
        return;
    request->refused =
        request->refusal.code == ERROR_TOO_LARGE ? REPLY_BODY_TOO_LARGE : reply_for(request->refusal.code);
}

/* libmicrohttpd calls this with a request's headers, then with each piece of its body, then without data, and again
 * when the connection was resumed. */
static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *path, const char *method,
                              const char *version, const char *data, size_t *size, void **slot)
{
    struct request *request = *slot;
    (void)context, (void)connection;
    if (!request)
        return MHD_NO; /* no memory for it */
    if (!request->begun)
        return begin(request, path, method, version);
    if (*size) {
        feed(request, data, *size);
        *size = 0;
        return MHD_YES;
    }
    if (request->answered)
        return MHD_YES;
    if (request->refused && !request->job)
        return reply_problem(request, request->refused, &request->refusal, NULL, NULL, NULL);
    return request->route->answer(request);
}

/* A request is over, answered or not. */
static void completed(void *context, struct MHD_Connection *connection, void **slot,
                      enum MHD_RequestTerminationCode reason)
{
    struct server *server = context;
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
    static const char *const methods[] = {"GET", "HEAD", "POST"};
    const char *method = "other";
    for (int i = 0; i < 3; i++)
        if (!strcmp(methods[i], request->method))
            method = methods[i];
    metrics_request(server->metrics, route, method, status, seconds);
    log_event(LOG_INFO, "request", "id=%s method=%s path=%s status=%d ms=%.1f in=%llu out=%llu job=%s", request->id,
              request->method, request->path, status, seconds * 1e3,
              (unsigned long long)(request->upload ? upload_received(request->upload) : 0),
              (unsigned long long)request->answer_bytes, request->job ? request->job->id : "-");
    connection_reading(request->link);
    job_release(&request->job);
    upload_destroy(&request->upload);
    free(request);
}

static enum MHD_Result admit(void *context, const struct sockaddr *address, socklen_t size)
{
    struct server *server = context;
    (void)size;
    return connections_admit(server->connections, address) ? MHD_YES : MHD_NO;
}

static void opened_or_closed(void *context, struct MHD_Connection *connection, void **slot,
                             enum MHD_ConnectionNotificationCode what)
{
    struct server *server = context;
    struct connection *link = *slot;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        connection_close(&link);
        *slot = NULL;
        return;
    }
    const union MHD_ConnectionInfo *fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    int number = fd ? fd->connect_fd : -1;
    const union MHD_ConnectionInfo *address = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    *slot = number >= 0 ? connection_open(server->connections, number, address ? address->client_addr : NULL) : NULL;
}

static void log_library(void *context, const char *format, va_list args)
{
    char line[512];
    (void)context;
    vsnprintf(line, sizeof line, format, args);
    line[strcspn(line, "\n")] = 0;
    log_event(LOG_DEBUG, "http", "text=\"%s\"", line);
}

/* A listening socket for `listen`; its port into *port. */
static enum error_code open_socket(const char *listen_on, int *out, int *port, struct error *err)
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
        code = error_set(err, ERROR_IO, "cannot listen on %s: %m", listen_on);
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

enum error_code server_create(struct server **out, const struct config *config, struct model_store *store,
                              struct worker_pool *pool, struct error *err)
{
    *out = NULL;
    int fd = -1;
    struct server *server = mem_calloc(1, sizeof *server);
    if (!server)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the server");
    server->config = config;
    server->store = store;
    server->pool = pool;
    enum error_code code = metrics_create(&server->metrics, err);
    if (!code)
        code = model_list_create(&server->model_list, store, err);
    if (!code)
        code = connections_create(&server->connections, pool, (int)config->request_seconds,
                                  (int)config->connections_per_address, err);
    if (!code)
        code = open_socket(config->listen, &fd, &server->port, err);
    if (!code) {
        /* The pool of a connection holds its header twice: as bytes, and as the list made of them. */
        server->daemon = MHD_start_daemon(
            MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC | MHD_USE_ERROR_LOG, 0, admit,
            server, handle, server, MHD_OPTION_EXTERNAL_LOGGER, log_library, NULL, MHD_OPTION_LISTEN_SOCKET, fd,
            MHD_OPTION_THREAD_POOL_SIZE, (unsigned)HTTP_THREADS, MHD_OPTION_CONNECTION_LIMIT,
            (unsigned)config->connections, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)config->idle_seconds,
            MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)config->header_limit * 2, MHD_OPTION_URI_LOG_CALLBACK,
            request_create, server, MHD_OPTION_NOTIFY_COMPLETED, completed, server, MHD_OPTION_NOTIFY_CONNECTION,
            opened_or_closed, server, MHD_OPTION_END);
        if (!server->daemon) {
            close(fd);
            code = error_set(err, ERROR_IO, "the HTTP server could not be started");
        }
    }
    if (code)
        server_destroy(&server);
    *out = server;
    return code;
}

bool server_is_local(const struct server *server)
{
    const char *listen_on = server->config->listen;
    return !strncmp(listen_on, "127.", 4) || !strncmp(listen_on, "[::1]", 5) || !strncmp(listen_on, "localhost:", 10);
}

void server_url(const struct server *server, char *out, size_t size)
{
    const char *listen_on = server->config->listen;
    snprintf(out, size, "http://%.*s:%d", (int)(strrchr(listen_on, ':') - listen_on), listen_on, server->port);
}

int server_close_idle(struct server *server)
{
    return connections_close_idle(server->connections);
}

void server_destroy(struct server **server)
{
    struct server *old = *server;
    *server = NULL;
    if (!old)
        return;
    if (old->daemon)
        MHD_stop_daemon(old->daemon); /* closes the listening socket, too */
    connections_destroy(&old->connections);
    model_list_destroy(&old->model_list);
    metrics_destroy(&old->metrics);
    free(old);
}
