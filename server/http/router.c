#include "server/http/router.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/http/header.h"

static const struct route routes[] = {
    {"/v1/restore", true, route_restore_begin, route_restore_answer},
    {"/v1/detect", true, route_detect_begin, route_restore_answer},
    {"/v1/devices", false, NULL, route_devices},
    {"/v1/models", false, NULL, route_models},
    {"/v1/capabilities", false, NULL, route_capabilities},
    {"/healthz", false, NULL, route_healthz},
    {"/readyz", false, NULL, route_readyz},
    {"/metrics", false, NULL, route_metrics},
};
static const struct route page = {"/", false, NULL, route_static}, asset = {"static", false, NULL, route_static};

const struct route *router_find(const char *path)
{
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        if (!strcmp(routes[i].path, path))
            return &routes[i];
    if (!route_static_has(path))
        return NULL;
    return strcmp(path, "/") != 0 ? &asset : &page;
}

const char *router_header(const struct request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, name);
}

struct framing {
    int hosts, lengths, encodings;
    const char *bad; /* what is wrong with a header */
    uint64_t length;
};

static enum MHD_Result look_at(void *context, enum MHD_ValueKind kind, const char *name, size_t name_size,
                               const char *value, size_t value_size)
{
    struct framing *framing = context;
    (void)kind;
    if (!header_is_token(name, name_size)) {
        framing->bad = "a header's name holds characters that are not allowed";
    } else if (!strcasecmp(name, MHD_HTTP_HEADER_HOST)) {
        framing->hosts++;
    } else if (!strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING)) {
        framing->encodings++;
    } else if (!strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH)) {
        framing->lengths++;
        if (value && header_is_length(value, value_size))
            framing->length = strtoull(value, NULL, 10);
        else
            framing->bad = "Content-Length is not a number";
    }
    return MHD_YES;
}

static enum MHD_Result refuse(struct request *request, enum reply reply, const char *text)
{
    struct error err = ERROR_INIT;
    error_set(&err, ERROR_INVALID, "%s", text);
    return reply_problem(request, reply, &err, NULL, NULL, NULL);
}

static enum MHD_Result refuse_method(struct request *request)
{
    struct error err = ERROR_INIT;
    const char *allowed = request->route->post ? "POST" : "GET, HEAD";
    error_set(&err, ERROR_INVALID, "%s takes %s", request->path, allowed);
    return reply_problem(request, REPLY_METHOD_NOT_ALLOWED, &err, NULL, MHD_HTTP_HEADER_ALLOW, allowed);
}

enum MHD_Result router_begin(struct request *request, const char *path, const char *version)
{
    struct framing framing = {0};
    const union MHD_ConnectionInfo *size =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    MHD_get_connection_values_n(request->connection, MHD_HEADER_KIND, look_at, &framing);
    const char *id = router_header(request, "X-Request-Id");
    if (id && header_is_request_id(id))
        snprintf(request->id, sizeof request->id, "%s", id);
    request->route = path ? router_find(path) : NULL;
    bool has_body = framing.encodings || framing.length;
    connection_linger(request->link, has_body); /* until the body is taken, every answer is given without reading it */

    /* What two parsers could read differently. An answer given now closes the connection: nothing after it is parsed.
     */
    if (!path)
        return refuse(request, REPLY_BAD_REQUEST, "the request's target holds a blank");
    if (framing.bad)
        return refuse(request, REPLY_BAD_REQUEST, framing.bad);
    if (framing.encodings && framing.lengths)
        return refuse(request, REPLY_BAD_REQUEST, "Content-Length and Transfer-Encoding exclude each other");
    if (framing.lengths > 1)
        return refuse(request, REPLY_BAD_REQUEST, "there is more than one Content-Length");
    if (framing.encodings > 1)
        return refuse(request, REPLY_BAD_REQUEST, "there is more than one Transfer-Encoding");
    if (framing.hosts > 1 || (!framing.hosts && strcmp(version, MHD_HTTP_VERSION_1_0) != 0))
        return refuse(request, REPLY_BAD_REQUEST, "there must be one Host");
    if (size && size->header_size > request->server->config->header_limit)
        return refuse(request, REPLY_HEADER_TOO_LARGE, "the request's header is over the limit");
    if (!request->route)
        return refuse(request, REPLY_NOT_FOUND, "there is nothing at this path");
    bool fits = request->route->post
                    ? !strcmp(request->method, MHD_HTTP_METHOD_POST)
                    : !strcmp(request->method, MHD_HTTP_METHOD_GET) || !strcmp(request->method, MHD_HTTP_METHOD_HEAD);
    if (!fits)
        return refuse_method(request);
    if (!request->route->post)
        return has_body ? refuse(request, REPLY_BAD_REQUEST, "this path takes no body") : MHD_YES;
    if (!framing.lengths)
        return refuse(request, REPLY_LENGTH_REQUIRED, "the body needs a Content-Length");
    enum MHD_Result result = request->route->begin(request);
    if (!request->answered)
        connection_linger(request->link, false);
    return result;
}
