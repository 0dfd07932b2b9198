#include "server/http/reply.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "runtime/base/utf8.h"
#include "server/http/dialect.h"
#include "server/http/request.h"

static const struct {
    int status;
    const char *title, *code; /* code: used if the error has none */
} rows[] = {
    [REPLY_OK] = {200, "OK", ""},
    [REPLY_ACCEPTED] = {202, "Accepted", ""},
    [REPLY_NO_CONTENT] = {204, "No Content", ""},
    [REPLY_NOT_MODIFIED] = {304, "Not Modified", ""},
    [REPLY_BAD_REQUEST] = {400, "Bad Request", "invalid"},
    [REPLY_UNAUTHORIZED] = {401, "Unauthorized", "unauthorized"},
    [REPLY_FORBIDDEN] = {403, "Forbidden", "cross-site"},
    [REPLY_NOT_FOUND] = {404, "Not Found", "not-found"},
    [REPLY_METHOD_NOT_ALLOWED] = {405, "Method Not Allowed", "method-not-allowed"},
    [REPLY_NOT_ACCEPTABLE] = {406, "Not Acceptable", "not-acceptable"},
    [REPLY_CONFLICT] = {409, "Conflict", "conflict"},
    [REPLY_GONE] = {410, "Gone", "gone"},
    [REPLY_LENGTH_REQUIRED] = {411, "Length Required", "length-required"},
    [REPLY_BODY_TOO_LARGE] = {413, "Content Too Large", "body-too-large"},
    [REPLY_UNSUPPORTED] = {415, "Unsupported Media Type", "unsupported"},
    [REPLY_EXPECTATION_FAILED] = {417, "Expectation Failed", "expectation-failed"},
    [REPLY_MISDIRECTED] = {421, "Misdirected Request", "host-not-allowed"},
    [REPLY_UNPROCESSABLE] = {422, "Unprocessable Content", "unprocessable"},
    [REPLY_QUEUE_FULL] = {429, "Too Many Requests", "queue-full"},
    [REPLY_MEMORY_FULL] = {429, "Too Many Requests", "memory-full"},
    [REPLY_RATE_LIMITED] = {429, "Too Many Requests", "rate-limited"},
    [REPLY_TOO_MANY_JOBS] = {429, "Too Many Requests", "too-many-jobs"},
    [REPLY_HEADER_TOO_LARGE] = {431, "Request Header Fields Too Large", "header-too-large"},
    [REPLY_CLIENT_GONE] = {499, "Client Closed Request", "client-gone"},
    [REPLY_INTERNAL] = {500, "Internal Server Error", "internal"},
    [REPLY_UNAVAILABLE] = {503, "Service Unavailable", "unavailable"},
    [REPLY_TIMEOUT] = {504, "Gateway Timeout", "timeout"},
    [REPLY_FULL] = {507, "Insufficient Storage", "full"},
};

int reply_status(enum reply reply)
{
    return rows[reply].status;
}

const char *reply_title(enum reply reply)
{
    return rows[reply].title;
}

enum reply reply_for(enum error_code code)
{
    switch (code) {
    case OK:
        return REPLY_OK;
    case ERROR_INVALID:
        return REPLY_BAD_REQUEST;
    case ERROR_UNSUPPORTED:
        return REPLY_UNSUPPORTED;
    case ERROR_CORRUPT:
    case ERROR_TOO_LARGE:
    case ERROR_TOO_SLOW:
        return REPLY_UNPROCESSABLE;
    case ERROR_NOT_FOUND: /* a model or device that this machine lacks, not a path */
    case ERROR_IO:        /* a file of the server's, such as a model that was changed while in use */
    case ERROR_NO_MEMORY:
    case ERROR_DEVICE_LOST:
    case ERROR_DEVICE_DISABLED:
    case ERROR_BUSY:
        return REPLY_UNAVAILABLE;
    case ERROR_CANCELLED:
        return REPLY_CLIENT_GONE;
    case ERROR_TIMEOUT:
    case ERROR_STALLED:
        return REPLY_TIMEOUT;
    case ERROR_FULL:
        return REPLY_FULL;
    case ERROR_DEVICE:
    case ERROR_INTERNAL:
        break;
    }
    return REPLY_INTERNAL;
}

/* Codes that say more than the status, by error_code. */
static const char *const own_codes[] = {
    [ERROR_UNSUPPORTED] = "unsupported-format",
    [ERROR_CORRUPT] = "corrupt",
    [ERROR_TOO_LARGE] = "too-large",
    [ERROR_NO_MEMORY] = "no-memory",
    [ERROR_IO] = "io",
    [ERROR_DEVICE] = "device",
    [ERROR_DEVICE_LOST] = "device-lost",
    [ERROR_DEVICE_DISABLED] = "device-disabled",
    [ERROR_STALLED] = "stalled",
    [ERROR_TOO_SLOW] = "too-slow",
    [ERROR_INTERNAL] = NULL,
};

json_t *reply_codes(int status)
{
    json_t *codes = json_array();
    for (int reply = 0; reply < REPLY_COUNT; reply++)
        if (*rows[reply].code && (!status || rows[reply].status == status))
            json_array_append_new(codes, json_string(rows[reply].code));
    for (size_t code = 0; code < sizeof own_codes / sizeof *own_codes; code++)
        if (own_codes[code] && (!status || reply_status(reply_for((enum error_code)code)) == status))
            json_array_append_new(codes, json_string(own_codes[code]));
    return codes;
}

/* For pages of other origins that may use the server (CORS): that they may read the answer, and which headers of it. */
static void reply_share(const struct request *request, struct MHD_Response *response)
{
    if (!*request->server->config->cors_origins)
        return;
    MHD_add_response_header(response, MHD_HTTP_HEADER_VARY, MHD_HTTP_HEADER_ORIGIN);
    if (!request->shared)
        return;
    MHD_add_response_header(response, "Access-Control-Allow-Origin",
                            MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ORIGIN));
    MHD_add_response_header(response, "Access-Control-Expose-Headers",
                            "Content-Disposition, ETag, Location, Preference-Applied, Retry-After, Server-Timing, "
                            "WWW-Authenticate, X-Request-Id, X-Restored-Damage, X-Restored-Device, X-Restored-Face, "
                            "X-Restored-Faces, X-Restored-Models, X-Restored-Notes");
}

enum MHD_Result reply_send(struct request *request, enum reply reply, struct MHD_Response *response,
                           const char *content_type)
{
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, "X-Request-Id", request->id);
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "Cross-Origin-Resource-Policy", "same-origin");
    reply_share(request, response);
    if (content_type)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
    if (request->chunked) /* libmicrohttpd reads chunks leniently: what follows them must not be taken for a request */
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    request->status = rows[reply].status;
    request->answered = true;
    connection_sending(request->link);
    enum MHD_Result result = MHD_queue_response(request->connection, (unsigned)request->status, response);
    MHD_destroy_response(response);
    return result;
}

enum MHD_Result reply_text(struct request *request, enum reply reply, char *text, size_t size, const char *content_type)
{
    if (!text)
        return MHD_NO;
    request->answer_bytes = size;
    struct MHD_Response *response = MHD_create_response_from_buffer(size, text, MHD_RESPMEM_MUST_FREE);
    if (!response)
        free(text);
    else
        MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    return reply_send(request, reply, response, content_type);
}

bool reply_is_near(const struct request *request)
{
    static const char *const forwarded[] = {"X-Forwarded-For", "Forwarded", "X-Real-IP", "X-Forwarded-Host", "Via"};
    for (int i = 0; i < 5; i++)
        if (MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, forwarded[i]))
            return false;
    return connection_is_local(request->link);
}

/* Reduces each absolute path to its last part, except the request's own. */
static void reply_hide_paths(char *text, const char *own)
{
    for (char *at = text; (at = strchr(at, '/')); at++) {
        const size_t size = strcspn(at, " \"',;)");
        if ((at > text && !strchr(" \"'(=:", at[-1])) || !strncmp(at, "/v1/", 4) || !strncmp(at, "/sdapi/", 7) ||
            !strncmp(at, own, strlen(own)))
            continue;
        const char *last = memrchr(at, '/', size);
        if (last > at && last + 1 < at + size)
            memmove(at, last + 1, strlen(last + 1) + 1);
    }
}

char *reply_sentence(char *out, const struct request *request, const struct error *err)
{
    utf8_copy(out, sizeof err->text, err->text);
    if (!reply_is_near(request)) {
        static const char instead[] = "; whoever runs this server can say more";
        if (err->local && (size_t)err->local + sizeof instead <= sizeof err->text)
            strcpy(out + err->local, instead);
        reply_hide_paths(out, request->path);
    }
    size_t n = strspn(out, "abcdefghijklmnopqrstuvwxyz");
    if (n && strchr(" ,", out[n]) && strncmp(out, "cpu ", 4) != 0)
        *out = (char)(*out - 'a' + 'A');
    return out;
}

char *reply_dump(json_t *json, size_t *size)
{
    char *text = json ? json_dumps(json, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(10)) : NULL;
    json_decref(json);
    char *longer = text ? realloc(text, strlen(text) + 2) : NULL;
    if (!longer) {
        free(text);
        return NULL;
    }
    strcat(longer, "\n");
    *size = strlen(longer);
    return longer;
}

enum MHD_Result reply_json(struct request *request, enum reply reply, json_t *json)
{
    size_t size;
    char *text = reply_dump(json, &size);
    if (!text) {
        struct error err = ERROR_INIT;
        error_set(&err, ERROR_NO_MEMORY, "no memory for the answer");
        return reply_problem(request, REPLY_UNAVAILABLE, &err, NULL, NULL, NULL);
    }
    return reply_text(request, reply, text, size, "application/json");
}

const char *reply_code(enum reply reply, const struct error *err)
{
    return reply_for(err->code) == reply && own_codes[err->code] ? own_codes[err->code] : rows[reply].code;
}

json_t *reply_problem_json(const struct request *request, enum reply reply, const struct error *err,
                           const char *instance)
{
    char detail[sizeof err->text];
    reply_sentence(detail, request, err);
    return json_pack("{s:s, s:s, s:i, s:s, s:s, s:s, s:s}", "type", "about:blank", "title", rows[reply].title, "status",
                     rows[reply].status, "detail", detail, "instance", instance, "code", reply_code(reply, err),
                     "request_id", request->id);
}

enum reply reply_for_job(enum error_code code, bool decoded)
{
    return (code == ERROR_CORRUPT || code == ERROR_UNSUPPORTED) && decoded ? REPLY_INTERNAL : reply_for(code);
}

/* Clients of other programs expect plain JSON. */
static const char *reply_problem_type(const struct request *request)
{
    return request->dialect ? "application/json" : "application/problem+json";
}

static char *reply_problem_text(const struct request *request, enum reply reply, const struct error *err, json_t *extra,
                                size_t *size)
{
    json_t *json = request->dialect ? request->dialect->problem(request, reply, err)
                                    : reply_problem_json(request, reply, err, request->path);
    const struct dialect *shared =
        request->dialect ? NULL : dialect_shared(request->path, request->server->config->compat);
    json_t *also = shared ? shared->problem(request, reply, err) : NULL;
    if (json && extra && !request->dialect)
        json_object_update_missing(json, extra);
    if (json && also)
        json_object_update_missing(json, also);
    json_decref(also);
    json_decref(extra);
    return reply_dump(json, size);
}

enum MHD_Result reply_problem(struct request *request, enum reply reply, const struct error *err, json_t *extra,
                              const char *header, const char *value)
{
    size_t size;
    char *text = reply_problem_text(request, reply, err, extra, &size);
    if (!text)
        return MHD_NO;
    request->answer_bytes = size;
    struct MHD_Response *response = MHD_create_response_from_buffer(size, text, MHD_RESPMEM_MUST_FREE);
    if (!response) {
        free(text);
        return MHD_NO;
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    if (header)
        MHD_add_response_header(response, header, value);
    return reply_send(request, reply, response, reply_problem_type(request));
}

void reply_now(struct request *request, enum reply reply, const struct error *err)
{
    size_t size;
    char head[512], *text = reply_problem_text(request, reply, err, NULL, &size);
    const union MHD_ConnectionInfo *fd =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    request->status = rows[reply].status;
    request->answered = true;
    connection_linger(request->link, true);
    if (text && (fd || request->tls)) {
        int n = snprintf(head, sizeof head,
                         "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
                         "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nX-Request-Id: %s\r\n"
                         "Connection: close\r\n\r\n",
                         rows[reply].status, rows[reply].title, reply_problem_type(request), size, request->id);
        if (request->tls) {
            const union MHD_ConnectionInfo *session =
                MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
            if (session && tls_send(session->tls_session, head, (size_t)n) &&
                tls_send(session->tls_session, text, size))
                request->answer_bytes = size;
            free(text);
            return;
        }
        struct iovec parts[2] = {{head, (size_t)n}, {text, size}};
        const struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        /* nothing was sent before, so the socket takes all of it; if not, the client is gone */
        if (sendmsg(fd->connect_fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
            request->answer_bytes = size;
    }
    free(text);
}
