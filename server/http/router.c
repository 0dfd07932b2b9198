#include "server/http/router.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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

/* "100-continue" alone is defined, and libmicrohttpd sees to it. */
static bool expects_more(const struct request *request)
{
    const char *expect = router_header(request, MHD_HTTP_HEADER_EXPECT);
    return expect && strcasecmp(expect, "100-continue") != 0;
}

enum MHD_Result router_begin(struct request *request, const char *path, const struct framing *framing)
{
    const union MHD_ConnectionInfo *size =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    const char *id = router_header(request, "X-Request-Id");
    if (id && header_is_request_id(id))
        snprintf(request->id, sizeof request->id, "%s", id);
    request->route = path ? router_find(path) : NULL;
    /* until the body is taken, every answer is given without reading it */
    connection_linger(request->link, framing->has_body);

    /* An answer given now closes the connection: nothing after it is parsed. */
    if (framing->wrong)
        return refuse(request, REPLY_BAD_REQUEST, framing->wrong);
    if (!path)
        return refuse(request, REPLY_BAD_REQUEST, "the request's target names no host");
    if (size && size->header_size > request->server->config->header_limit)
        return refuse(request, REPLY_HEADER_TOO_LARGE, "the request's header is over the limit");
    if (expects_more(request))
        return refuse(request, REPLY_EXPECTATION_FAILED, "of expectations only 100-continue is known");
    if (!request->route)
        return refuse(request, REPLY_NOT_FOUND, "there is nothing at this path");
    bool fits = request->route->post
                    ? !strcmp(request->method, MHD_HTTP_METHOD_POST)
                    : !strcmp(request->method, MHD_HTTP_METHOD_GET) || !strcmp(request->method, MHD_HTTP_METHOD_HEAD);
    if (!fits)
        return refuse_method(request);
    if (!request->route->post)
        return framing->has_body ? refuse(request, REPLY_BAD_REQUEST, "this path takes no body") : MHD_YES;
    if (!framing->has_length)
        return refuse(request, REPLY_LENGTH_REQUIRED, "the body needs a Content-Length");
    enum MHD_Result result = request->route->begin(request);
    if (!request->answered)
        connection_linger(request->link, false);
    return result;
}
