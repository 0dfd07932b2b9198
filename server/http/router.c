#include "server/http/router.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "server/http/dialect.h"
#include "server/http/header.h"
#include "server/http/quota.h"
#include "server/http/site.h"

static const struct route routes[] = {
    {"/v1/restore", ROUTE_POST, route_restore_begin, route_restore_answer, ROUTE_GUARDED, NULL},
    {"/v1/detect", ROUTE_POST, route_detect_begin, route_restore_answer, ROUTE_GUARDED, NULL},
    {"/v1/damage", ROUTE_POST, route_damage_begin, route_restore_answer, ROUTE_GUARDED, NULL},
    {"/v1/estimate", ROUTE_POST, route_estimate_begin, route_estimate_answer, ROUTE_GUARDED, NULL},
    {"/v1/jobs", ROUTE_GET, NULL, route_jobs, ROUTE_GUARDED, "limit state batch since after"},
    {"/v1/jobs/{id}", ROUTE_GET, NULL, route_job, ROUTE_GUARDED, ""},
    {"/v1/jobs/{id}", ROUTE_DELETE, NULL, route_job_delete, ROUTE_GUARDED, ""},
    {"/v1/jobs/{id}/result", ROUTE_GET, NULL, route_job_result, ROUTE_GUARDED, "preview region"},
    {"/v1/jobs/{id}/mask", ROUTE_GET, NULL, route_job_mask, ROUTE_GUARDED, ""},
    {"/v1/jobs/{id}/faces/{n}", ROUTE_GET, NULL, route_job_face, ROUTE_GUARDED, "kind"},
    {"/v1/jobs/{id}/events", ROUTE_GET, NULL, route_job_events, ROUTE_GUARDED, "last_event_id"},
    {"/v1/events", ROUTE_GET, NULL, route_events, ROUTE_GUARDED, "last_event_id"},
    {"/v1/batches/{id}", ROUTE_GET, NULL, route_batch, ROUTE_GUARDED, ""},
    {"/v1/batches/{id}", ROUTE_DELETE, NULL, route_batch_delete, ROUTE_GUARDED, ""},
    {"/v1/batches/{id}/results.zip", ROUTE_GET, NULL, route_batch_results, ROUTE_GUARDED, ""},
    {"/v1/devices", ROUTE_GET, NULL, route_devices, ROUTE_GUARDED, ""},
    {"/v1/models", ROUTE_GET, NULL, route_models, ROUTE_GUARDED, ""},
    {"/v1/capabilities", ROUTE_GET, NULL, route_capabilities, ROUTE_GUARDED, ""},
    {"/healthz", ROUTE_GET, NULL, route_healthz, ROUTE_PROBE, NULL},
    {"/readyz", ROUTE_GET, NULL, route_readyz, ROUTE_PROBE, NULL},
    {"/metrics", ROUTE_GET, NULL, route_metrics, ROUTE_GUARDED, NULL},
    {"/openapi.json", ROUTE_GET, NULL, route_openapi, ROUTE_OPEN, NULL},
    {0},
};
static const struct route page = {"/", ROUTE_GET, NULL, route_static, ROUTE_OPEN, NULL},
                          asset = {"static", ROUTE_GET, NULL, route_static, ROUTE_OPEN, NULL};

static const struct {
    const char *allowed, *methods[2];
} router_methods[] = {
    [ROUTE_GET] = {"GET, HEAD", {MHD_HTTP_METHOD_GET, MHD_HTTP_METHOD_HEAD}},
    [ROUTE_POST] = {"POST", {MHD_HTTP_METHOD_POST, MHD_HTTP_METHOD_POST}},
    [ROUTE_DELETE] = {"DELETE", {MHD_HTTP_METHOD_DELETE, MHD_HTTP_METHOD_DELETE}},
    [ROUTE_PUT] = {"PUT", {MHD_HTTP_METHOD_PUT, MHD_HTTP_METHOD_PUT}},
};

const struct route *router_at(size_t index)
{
    return routes[index].path ? &routes[index] : NULL;
}

/* Whether the path has this form; fills in its parts. A part is too long only where nothing can be found by it. */
static bool router_matches(const char *pattern, const char *path, struct router_parts *parts)
{
    while (*pattern && *path) {
        if (*pattern != '{') {
            if (*pattern++ != *path++)
                return false;
            continue;
        }
        const size_t size = strcspn(path, "/");
        const bool id = pattern[1] == 'i';
        const size_t room = id ? sizeof parts->id : sizeof parts->number;
        if (!size || size >= room)
            return false;
        memcpy(id ? parts->id : parts->number, path, size);
        (id ? parts->id : parts->number)[size] = 0;
        pattern += strcspn(pattern, "}") + 1;
        path += size;
    }
    return !*pattern && !*path;
}

static bool router_takes(const struct route *route, const char *method)
{
    return !strcmp(router_methods[route->method].methods[0], method) ||
           !strcmp(router_methods[route->method].methods[1], method);
}

/* router_find among other routes, the last of which has no path. */
static const struct route *router_find_among(const struct route *among, const char *path, const char *method,
                                             struct router_parts *parts, char allowed[ROUTER_ALLOWED_MAX])
{
    const struct route *found = NULL;
    size_t used = 0;
    *allowed = 0;
    for (; among->path; among++) {
        if (!router_matches(among->path, path, parts))
            continue;
        used += (size_t)snprintf(allowed + used, ROUTER_ALLOWED_MAX - used, "%s%s", used ? ", " : "",
                                 router_methods[among->method].allowed);
        if (router_takes(among, method))
            found = among;
    }
    return found;
}

const struct route *router_find(const char *path, const char *method, struct router_parts *parts,
                                char allowed[ROUTER_ALLOWED_MAX])
{
    const struct route *found = router_find_among(routes, path, method, parts, allowed);
    if (*allowed || !route_static_has(path))
        return found;
    snprintf(allowed, ROUTER_ALLOWED_MAX, "%s", router_methods[ROUTE_GET].allowed);
    found = strcmp(path, "/") != 0 ? &asset : &page;
    return router_takes(found, method) ? found : NULL;
}

/* What metrics_listen answers. */
static bool router_for_operators(const struct route *route)
{
    return route->answer == route_healthz || route->answer == route_readyz || route->answer == route_metrics ||
           route->answer == route_devices;
}

const char *router_header(const struct request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, name);
}

static enum MHD_Result router_refuse(struct request *request, enum reply reply, const char *text)
{
    struct error err = ERROR_INIT;
    error_set(&err, ERROR_INVALID, "%s", text);
    return reply_problem(request, reply, &err, NULL, NULL, NULL);
}

static enum MHD_Result router_refuse_method(struct request *request, const char *allowed)
{
    struct error err = ERROR_INIT;
    error_set(&err, ERROR_INVALID, "%s takes %s", request->path, allowed);
    return reply_problem(request, REPLY_METHOD_NOT_ALLOWED, &err, NULL, MHD_HTTP_HEADER_ALLOW, allowed);
}

static enum MHD_Result router_refuse_path(struct request *request)
{
    struct error err = ERROR_INIT;
    const char *elsewhere = request->dialect ? request->dialect->elsewhere : NULL;
    error_set(&err, ERROR_INVALID, "there is nothing at this path%s%s", elsewhere ? "; " : "",
              elsewhere ? elsewhere : "");
    return reply_problem(request, REPLY_NOT_FOUND, &err, NULL, NULL, NULL);
}

/* All connections are taken by others that wait for answers; this one may only ask how the server is. */
static enum MHD_Result router_refuse_crowd(struct request *request)
{
    struct error err = ERROR_INIT;
    error_set(&err, ERROR_BUSY, "all %llu connections are taken",
              (unsigned long long)request->server->config->connections);
    metrics_rejected(request->server->metrics, REJECTED_CONNECTIONS);
    return reply_problem(request, REPLY_UNAVAILABLE, &err, NULL, MHD_HTTP_HEADER_RETRY_AFTER, "1");
}

/* Refuses a Host that is not ours, or a page of another site; REPLY_OK: neither. */
static enum reply router_check_site(const struct request *request, struct error *err)
{
    const struct config *config = request->server->config;
    const char *listen_on = request->side == CONNECTION_ADMIN ? config->metrics_listen : config->listen;
    const enum route_access access = request->route ? request->route->access : ROUTE_GUARDED;
    const struct site_request from = {.origin = router_header(request, MHD_HTTP_HEADER_ORIGIN),
                                      .fetch_site = router_header(request, "Sec-Fetch-Site"),
                                      .fetch_mode = router_header(request, "Sec-Fetch-Mode"),
                                      .fetch_dest = router_header(request, "Sec-Fetch-Dest"),
                                      .host =
                                          *request->host ? request->host : router_header(request, MHD_HTTP_HEADER_HOST),
                                      .forwarded_host = router_header(request, "X-Forwarded-Host")};
    if (!site_host_is_ours(from.host, config->allowed_hosts, listen_on, access == ROUTE_PROBE)) {
        error_set(err, ERROR_INVALID,
                  "Host: this server does not go by the name \"%.200s\"; to use it under that name, add the name to "
                  "allowed_hosts in the server's configuration",
                  from.host);
        return REPLY_MISDIRECTED;
    }
    const bool reads = !strcmp(request->method, MHD_HTTP_METHOD_GET) || !strcmp(request->method, MHD_HTTP_METHOD_HEAD);
    if (request->shared || access == ROUTE_OPEN || !(reads ? site_is_foreign_read(&from) : site_is_foreign(&from)))
        return REPLY_OK;
    error_set(err, ERROR_INVALID,
              "a web page of another site%s%.200s%s sent this request, and only this server's own page may; behind a "
              "reverse proxy, let it pass on the Host that the browser sent",
              from.origin ? " (" : "", from.origin ? from.origin : "", from.origin ? ")" : "");
    return REPLY_FORBIDDEN;
}

/* A browser asks whether a page of another origin may send a request that a plain form could not. */
static enum MHD_Result router_answer_preflight(struct request *request)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, "Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, DELETE");
    MHD_add_response_header(
        response, "Access-Control-Allow-Headers",
        "Accept, Authorization, Content-Type, Idempotency-Key, Last-Event-ID, Prefer, X-Request-Id");
    MHD_add_response_header(response, "Access-Control-Max-Age", "600");
    return reply_send(request, REPLY_NO_CONTENT, response, NULL);
}

/* Whether the client's address has sent too many requests; then it is answered. */
static bool router_slow_down(struct request *request, enum MHD_Result *result)
{
    struct error err = ERROR_INIT;
    char seconds[16];
    int wait = 0;
    const bool probe = request->route && request->route->access == ROUTE_PROBE;
    if (request->side == CONNECTION_ADMIN || probe || quota_take_request(request, &wait, &err) == REPLY_OK)
        return false;
    snprintf(seconds, sizeof seconds, "%d", wait);
    *result = reply_problem(request, REPLY_RATE_LIMITED, &err, NULL, MHD_HTTP_HEADER_RETRY_AFTER, seconds);
    return true;
}

/* Whose the request is; REPLY_OK, or why it is refused. */
static enum reply router_check_identity(struct request *request, struct error *err)
{
    const bool free_for_all =
        request->side == CONNECTION_ADMIN || (request->route && request->route->access != ROUTE_GUARDED);
    request->identity = auth_anonymous(request->side == CONNECTION_ADMIN);
    if (free_for_all)
        return REPLY_OK;
    char bearer[AUTH_TOKEN_MAX + 16];
    const char *authorization = router_header(request, MHD_HTTP_HEADER_AUTHORIZATION);
    if (request->dialect && request->dialect->challenge && auth_from_basic(authorization, bearer))
        authorization = bearer;
    const enum auth_verdict verdict = auth_check(request->server->auth, authorization, &request->identity);
    explicit_bzero(bearer, sizeof bearer);
    switch (verdict) {
    case AUTH_GOOD:
        return REPLY_OK;
    case AUTH_MISSING:
        error_set(err, ERROR_INVALID, "this server asks for a token; send it %s: \"Authorization: Bearer TOKEN\"",
                  request->dialect && request->dialect->challenge
                      ? "as the password of HTTP Basic, with any user's name, or in a header"
                      : "in a header");
        break;
    case AUTH_WRONG:
        error_set(err, ERROR_INVALID, "the server does not know this token");
        break;
    }
    metrics_rejected(request->server->metrics, REJECTED_UNAUTHORIZED);
    return REPLY_UNAUTHORIZED;
}

/* Only "100-continue" is defined, and libmicrohttpd handles it. */
static bool router_expects_more(const struct request *request)
{
    const char *expect = router_header(request, MHD_HTTP_HEADER_EXPECT);
    return expect && strcasecmp(expect, "100-continue") != 0;
}

/* A request's query so far. */
struct router_query {
    const char *known; /* names with blanks between */
    uint32_t seen;     /* bits of those */
    struct error err;
};

/* The place of a name among those; negative: it is none of them. */
static int router_find_word(const char *words, const char *name, size_t size)
{
    for (int i = 0; *words; i++) {
        const size_t length = strcspn(words, " ");
        if (length == size && !memcmp(words, name, size))
            return i;
        words += length + (words[length] == ' ');
    }
    return -1;
}

static enum MHD_Result router_check_argument(void *context, enum MHD_ValueKind kind, const char *name, size_t name_size,
                                             const char *value, size_t value_size)
{
    struct router_query *query = context;
    const int at = router_find_word(query->known, name, name_size);
    (void)kind;
    if (at < 0)
        error_set(&query->err, ERROR_INVALID, "%.40s: there is no such argument; %s%s", name,
                  *query->known ? "known are: " : "this path takes none", query->known);
    else if (query->seen >> at & 1)
        error_set(&query->err, ERROR_INVALID, "%s: sent more than once; once is allowed", name);
    else if (value && strlen(value) != value_size)
        error_set(&query->err, ERROR_INVALID, "%s: the value holds a zero byte", name);
    else
        query->seen |= UINT32_C(1) << at;
    return query->err.code ? MHD_NO : MHD_YES;
}

/* Refuses arguments that the route does not know, or that are sent twice. */
static enum error_code router_check_query(const struct request *request, struct error *err)
{
    struct router_query query = {request->route->arguments, 0, ERROR_INIT};
    if (query.known)
        MHD_get_connection_values_n(request->connection, MHD_GET_ARGUMENT_KIND, router_check_argument, &query);
    if (query.err.code)
        *err = query.err;
    return query.err.code;
}

/* GET / is the page; a client that names JSON, and no HTML, may mean another's index. */
static const struct route *router_index(const struct request *request)
{
    const char *accept = router_header(request, MHD_HTTP_HEADER_ACCEPT);
    bool named = false;
    if (header_accept(accept, "application/json", &named) <= 0 || !named ||
        header_accept(accept, "text/html", NULL) > 0)
        return &page;
    for (const struct dialect *const *row = dialects; *row; row++)
        if ((*row)->index && dialect_on(*row, request->server->config->compat))
            return (*row)->index;
    return &page;
}

enum MHD_Result router_begin(struct request *request, const char *path, const struct framing *framing)
{
    const union MHD_ConnectionInfo *size =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    const char *id = router_header(request, "X-Request-Id");
    if (id && header_is_request_id(id))
        snprintf(request->id, sizeof request->id, "%s", id);
    char allowed[ROUTER_ALLOWED_MAX] = "";
    request->dialect = path ? dialect_of(path, request->server->config->compat) : NULL;
    request->route = !path ? NULL
                     : request->dialect
                         ? router_find_among(request->dialect->routes, path, request->method, &request->parts, allowed)
                         : router_find(path, request->method, &request->parts, allowed);
    if (request->route == &page)
        request->route = router_index(request);
    if (request->side == CONNECTION_ADMIN && path) { /* what is not for operators is not there, whatever the method */
        char reads[ROUTER_ALLOWED_MAX];
        const struct route *read = router_find(path, MHD_HTTP_METHOD_GET, &request->parts, reads);
        if (!read || !router_for_operators(read)) {
            request->route = NULL;
            request->dialect = NULL;
            *allowed = 0;
        }
    }
    /* until the body is accepted, every answer is given without reading it */
    connection_linger(request->link, framing->has_body);

    /* An answer given now closes the connection: nothing after it is parsed. */
    if (framing->wrong)
        return router_refuse(request, REPLY_BAD_REQUEST, framing->wrong);
    if (!path)
        return router_refuse(request, REPLY_BAD_REQUEST, "the request's target names no host");
    if (size && size->header_size > request->server->config->header_limit)
        return router_refuse(request, REPLY_HEADER_TOO_LARGE, "the request's header is over the limit");
    struct error err = ERROR_INIT;
    enum MHD_Result answered;
    const char *origin = router_header(request, MHD_HTTP_HEADER_ORIGIN);
    request->shared = site_is_listed_origin(origin, request->server->config->cors_origins);
    if (router_slow_down(request, &answered))
        return answered;
    enum reply site = router_check_site(request, &err);
    if (site != REPLY_OK)
        return reply_problem(request, site, &err, NULL, NULL, NULL);
    if (request->shared && !strcmp(request->method, MHD_HTTP_METHOD_OPTIONS) &&
        router_header(request, "Access-Control-Request-Method"))
        return router_answer_preflight(request);
    if (router_check_identity(request, &err) != REPLY_OK)
        return reply_problem(request, REPLY_UNAUTHORIZED, &err, NULL, MHD_HTTP_HEADER_WWW_AUTHENTICATE,
                             request->dialect && request->dialect->challenge ? request->dialect->challenge
                             : router_header(request, MHD_HTTP_HEADER_AUTHORIZATION)
                                 ? "Bearer realm=\"restored\", error=\"invalid_token\""
                                 : "Bearer realm=\"restored\"");
    if (router_expects_more(request))
        return router_refuse(request, REPLY_EXPECTATION_FAILED, "Expect: only 100-continue is supported");
    if (!request->route)
        return *allowed ? router_refuse_method(request, allowed) : router_refuse_path(request);
    const bool takes_body = request->route->begin;
    if (!takes_body && framing->has_body)
        return router_refuse(request, REPLY_BAD_REQUEST, "this path takes no body");
    if (router_check_query(request, &err))
        return reply_problem(request, REPLY_BAD_REQUEST, &err, NULL, NULL, NULL);
    if (!takes_body)
        return MHD_YES;
    if (connection_crowded(request->link))
        return router_refuse_crowd(request);
    const bool bare = request->dialect || request->route->begin == route_estimate_begin; /* it may have none */
    const bool needs_body = framing->has_body || !bare;
    if (needs_body && !framing->has_length && !framing->chunked)
        return router_refuse(request, REPLY_LENGTH_REQUIRED, "the body needs a Content-Length, or has to be chunked");
    request->chunked = framing->chunked;
    enum MHD_Result result = request->route->begin(request);
    if (!request->answered)
        connection_linger(request->link, false);
    return result;
}
