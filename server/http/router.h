/* The table of routes, and what is checked in every request before its route sees it.
 * Thread-safety: as struct request. */
#ifndef SERVER_HTTP_ROUTER_H
#define SERVER_HTTP_ROUTER_H

#include "server/http/request.h"

/* Which browser requests a route answers. */
enum route_access {
    ROUTE_GUARDED, /* only those of our own page, and visits */
    ROUTE_PROBE,   /* the same; Host may be any IP address */
    ROUTE_OPEN     /* all, without a token: the page and what belongs to it, /openapi.json */
};

enum route_method { ROUTE_GET /* and HEAD */, ROUTE_POST /* with a body */, ROUTE_DELETE, ROUTE_PUT /* with a body */ };

struct route {
    const char *path; /* "{id}" and "{n}" stand for one part each: request->parts */
    enum route_method method;
    /* POST and PUT: called when only the headers are there; may refuse by an answer. Else NULL. */
    enum MHD_Result (*begin)(struct request *request);
    /* Answers; for POST and PUT when the body has arrived, and again when a suspended request is resumed. */
    enum MHD_Result (*answer)(struct request *request);
    enum route_access access;
    /* What its query may hold, with blanks between, each once; NULL: whatever, and the route looks at it itself. */
    const char *arguments;
};

/* The route at a place in the table; NULL after the last. */
const struct route *router_at(size_t index);

/* The route of a path and a method, with the path's parts; NULL if there is none. allowed: the methods that the path
 * takes, for a header, "" if there is no such path. */
#define ROUTER_ALLOWED_MAX 32
const struct route *router_find(const char *path, const char *method, struct router_parts *parts,
                                char allowed[ROUTER_ALLOWED_MAX]);

/* Checks the path, the framing and the method of a new request: finds its route, or answers the refusal. path NULL: the
 * target names no host. */
enum MHD_Result router_begin(struct request *request, const char *path, const struct framing *framing);

/* A header's value, NULL if there is none. */
const char *router_header(const struct request *request, const char *name);

/* The routes. */
enum MHD_Result route_restore_begin(struct request *request);
enum MHD_Result route_restore_answer(struct request *request);
/* Whether the request asks for a report alone; for report and picture in one answer; and by Accept for the report
 * rather than for a picture of that type. */
bool route_restore_is_detect(const struct request *request);
bool route_restore_wants_both(const char *accept);
bool route_restore_wants_report(const char *accept, const char *picture);
enum MHD_Result route_detect_begin(struct request *request);
enum MHD_Result route_damage_begin(struct request *request);
enum MHD_Result route_estimate_begin(struct request *request);
enum MHD_Result route_estimate_answer(struct request *request);
enum MHD_Result route_healthz(struct request *request);
enum MHD_Result route_readyz(struct request *request);
enum MHD_Result route_metrics(struct request *request);
enum MHD_Result route_jobs(struct request *request);
/* Whether the request asks not to wait for its job. */
bool route_jobs_wanted(const struct request *request);
/* Makes a checked restoration an asynchronous job; the body is taken over. The connection is suspended, and answered by
 * route_jobs_accepted when the job is on the disk. */
enum MHD_Result route_jobs_submit(struct request *request, const struct restoration *r, struct body *body);
enum MHD_Result route_jobs_accepted(struct request *request);
/* Whether this client has a job of the request's Idempotency-Key. */
bool route_jobs_repeated(const struct request *request, const char *client);
/* The request is over. */
void route_jobs_forget(struct request *request);
enum MHD_Result route_job(struct request *request);
enum MHD_Result route_job_delete(struct request *request);
enum MHD_Result route_job_result(struct request *request);
enum MHD_Result route_job_mask(struct request *request);
enum MHD_Result route_events(struct request *request);
enum MHD_Result route_job_events(struct request *request);
enum MHD_Result route_job_face(struct request *request);
enum MHD_Result route_batch(struct request *request);
enum MHD_Result route_batch_delete(struct request *request);
enum MHD_Result route_batch_results(struct request *request);
enum MHD_Result route_devices(struct request *request);
/* What GET /v1/models answers; a new reference. NULL: memory runs out, or err says why. */
json_t *route_info_models(struct request *request, struct error *err);
enum MHD_Result route_models(struct request *request);
enum MHD_Result route_capabilities(struct request *request);
enum MHD_Result route_openapi(struct request *request);
enum MHD_Result route_static(struct request *request);

/* Sends bytes that change only with the server, with an ETag; 304 to a client that has them. Takes the text over if
 * owned, also on failure. */
struct route_file {
    const void *bytes;
    size_t size;
    const char *type;
    bool owned;
};
enum MHD_Result route_static_send(struct request *request, const struct route_file *file);

/* Whether route_static has a file for that path. */
bool route_static_has(const char *path);

#endif
