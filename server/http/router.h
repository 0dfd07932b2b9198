/* Which request goes where: the table of routes, and what is checked of every request before its route sees it.
 * Thread-safety: as struct request. */
#ifndef SERVER_HTTP_ROUTER_H
#define SERVER_HTTP_ROUTER_H

#include "server/http/request.h"

struct route {
    const char *path;
    bool post; /* POST with a body; else GET and HEAD */
    /* POST: called with the headers alone, may refuse by an answer. NULL for GET. */
    enum MHD_Result (*begin)(struct request *request);
    /* Answers; for POST once the body is there, and again when a suspended request is resumed. */
    enum MHD_Result (*answer)(struct request *request);
};

/* The route of a path, NULL if there is none. */
const struct route *router_find(const char *path);

/* Looks at the path, the framing and the method of a new request: finds its route, or answers the refusal. path NULL:
 * the target names no host. */
enum MHD_Result router_begin(struct request *request, const char *path, const struct framing *framing);

/* A header's value, NULL if there is none. */
const char *router_header(const struct request *request, const char *name);

/* The routes. */
enum MHD_Result route_restore_begin(struct request *request);
enum MHD_Result route_restore_answer(struct request *request);
enum MHD_Result route_detect_begin(struct request *request);
enum MHD_Result route_healthz(struct request *request);
enum MHD_Result route_readyz(struct request *request);
enum MHD_Result route_metrics(struct request *request);
enum MHD_Result route_devices(struct request *request);
enum MHD_Result route_models(struct request *request);
enum MHD_Result route_capabilities(struct request *request);
enum MHD_Result route_static(struct request *request);

/* Whether route_static has a file for that path. */
bool route_static_has(const char *path);

#endif
