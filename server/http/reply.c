#include "server/http/reply.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/http/request.h"
#include "server/http/utf8.h"

static const struct {
    int status;
    const char *title, *code; /* code: where the error has none of its own */
} rows[] = {
    [REPLY_OK] = {200, "OK", ""},
    [REPLY_NOT_MODIFIED] = {304, "Not Modified", ""},
    [REPLY_BAD_REQUEST] = {400, "Bad Request", "invalid"},
    [REPLY_NOT_FOUND] = {404, "Not Found", "not-found"},
    [REPLY_METHOD_NOT_ALLOWED] = {405, "Method Not Allowed", "method-not-allowed"},
    [REPLY_NOT_ACCEPTABLE] = {406, "Not Acceptable", "not-acceptable"},
    [REPLY_LENGTH_REQUIRED] = {411, "Length Required", "length-required"},
    [REPLY_BODY_TOO_LARGE] = {413, "Content Too Large", "body-too-large"},
    [REPLY_UNSUPPORTED] = {415, "Unsupported Media Type", "unsupported"},
    [REPLY_EXPECTATION_FAILED] = {417, "Expectation Failed", "expectation-failed"},
    [REPLY_UNPROCESSABLE] = {422, "Unprocessable Content", "unprocessable"},
    [REPLY_QUEUE_FULL] = {429, "Too Many Requests", "queue-full"},
    [REPLY_HEADER_TOO_LARGE] = {431, "Request Header Fields Too Large", "header-too-large"},
    [REPLY_CLIENT_GONE] = {499, "Client Closed Request", "client-gone"},
    [REPLY_INTERNAL] = {500, "Internal Server Error", "internal"},
    [REPLY_UNAVAILABLE] = {503, "Service Unavailable", "unavailable"},
    [REPLY_TIMEOUT] = {504, "Gateway Timeout", "timeout"},
};

int reply_status(enum reply reply)
{
    return rows[reply].status;
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
        return REPLY_UNPROCESSABLE;
    case ERROR_NOT_FOUND: /* a model or device that this machine lacks, not a path */
    case ERROR_NO_MEMORY:
    case ERROR_DEVICE_LOST:
    case ERROR_DEVICE_DISABLED:
    case ERROR_BUSY:
        return REPLY_UNAVAILABLE;
    case ERROR_CANCELLED:
        return REPLY_CLIENT_GONE;
    case ERROR_TIMEOUT:
        return REPLY_TIMEOUT;
    case ERROR_IO:
    case ERROR_DEVICE:
    case ERROR_INTERNAL:
        break;
    }
    return REPLY_INTERNAL;
}

enum MHD_Result reply_send(struct request *request, enum reply reply, struct MHD_Response *response,
                           const char *content_type)
{
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, "X-Request-Id", request->id);
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (content_type)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
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

/* The text with a newline, for people with curl. */
static char *dump(json_t *json, size_t *size)
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
    char *text = dump(json, &size);
    if (!text) {
        struct error err = ERROR_INIT;
        error_set(&err, ERROR_NO_MEMORY, "no memory for the answer");
        return reply_problem(request, REPLY_UNAVAILABLE, &err, NULL, NULL, NULL);
    }
    return reply_text(request, reply, text, size, "application/json");
}

enum MHD_Result reply_problem(struct request *request, enum reply reply, const struct error *err, json_t *extra,
                              const char *header, const char *value)
{
    static const char *const own[] = {/* codes that say more than the status does */
                                      [ERROR_UNSUPPORTED] = "not-a-picture",
                                      [ERROR_CORRUPT] = "corrupt",
                                      [ERROR_TOO_LARGE] = "too-large",
                                      [ERROR_NO_MEMORY] = "no-memory",
                                      [ERROR_IO] = "io",
                                      [ERROR_DEVICE] = "device",
                                      [ERROR_DEVICE_LOST] = "device-lost",
                                      [ERROR_DEVICE_DISABLED] = "device-disabled",
                                      [ERROR_INTERNAL] = NULL};
    const char *code = reply_for(err->code) == reply && own[err->code] ? own[err->code] : rows[reply].code;
    char detail[sizeof err->text];
    json_t *json = json_pack("{s:s, s:s, s:i, s:s, s:s, s:s, s:s}", "type", "about:blank", "title", rows[reply].title,
                             "status", rows[reply].status, "detail", utf8_copy(detail, sizeof detail, err->text),
                             "instance", request->path, "code", code, "request_id", request->id);
    if (json && extra)
        json_object_update_missing(json, extra);
    json_decref(extra);
    size_t size;
    char *text = dump(json, &size);
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
    return reply_send(request, reply, response, "application/problem+json");
}
