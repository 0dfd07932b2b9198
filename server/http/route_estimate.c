/* POST /v1/estimate: what a restoration would take, from the picture's size and the options. Nothing is queued. */
#include <math.h>
#include <string.h>

#include "server/http/fleet.h"
#include "server/http/quota.h"
#include "server/http/room.h"
#include "server/http/route_jobs.h"
#include "server/http/router.h"
#include "server/http/server.h"

static enum MHD_Result estimate_fail(struct request *request, const struct error *err)
{
    json_t *extra = NULL;
    const enum reply reply = reply_for(err->code);
    if (reply == REPLY_BODY_TOO_LARGE)
        extra = json_pack("{s:I}", "limit", (json_int_t)request->server->config->body_limit);
    return extra ? reply_problem(request, reply, err, extra, NULL, NULL) : route_jobs_fail(request, reply, err);
}

struct estimate_query {
    struct upload *upload;
    struct error err;
};

static enum MHD_Result estimate_argument(void *context, enum MHD_ValueKind kind, const char *name, size_t name_size,
                                         const char *value, size_t value_size)
{
    struct estimate_query *query = context;
    (void)kind;
    return upload_argument(query->upload, name, name_size, value, value_size, &query->err) ? MHD_NO : MHD_YES;
}

enum MHD_Result route_estimate_begin(struct request *request)
{
    const struct config *config = request->server->config;
    struct error err = ERROR_INIT;
    const char *text = router_header(request, MHD_HTTP_HEADER_CONTENT_LENGTH);
    const uint64_t length = request->chunked ? config->body_limit : text ? strtoull(text, NULL, 10) : 0;
    if (length > config->body_limit) {
        char sent[ERROR_BYTES_MAX], limit[ERROR_BYTES_MAX];
        error_set(&err, ERROR_TOO_LARGE, "the body is %s; at most %s are taken", error_bytes(sent, length),
                  error_bytes(limit, config->body_limit));
        return reply_problem(request, REPLY_BODY_TOO_LARGE, &err,
                             json_pack("{s:I}", "limit", (json_int_t)config->body_limit), NULL, NULL);
    }
    if (upload_create(&request->upload, false, (size_t)config->body_limit, &err))
        return estimate_fail(request, &err);
    upload_use_spool(request->upload, request->server->spool);
    upload_take_size(request->upload);
    struct estimate_query query = {request->upload, ERROR_INIT};
    MHD_get_connection_values_n(request->connection, MHD_GET_ARGUMENT_KIND, estimate_argument, &query);
    if (query.err.code)
        return estimate_fail(request, &query.err);
    if (upload_begin(request->upload, router_header(request, MHD_HTTP_HEADER_CONTENT_TYPE), (size_t)length, &err))
        return estimate_fail(request, &err);
    return room_make(request, length, 0);
}

/* The restoration to estimate, and its models. */
static enum error_code estimate_restoration(struct request *request, struct restoration *r,
                                            const struct model_entry *models[ROLE_COUNT], struct error *err)
{
    const struct server *server = request->server;
    const struct upload_size *told = upload_size(request->upload);
    r->options = *upload_options(request->upload);
    r->limits = server_limits(server->config);
    fleet_choose(request, r);
    if (upload_has_picture(request->upload)) {
        struct body body;
        upload_take(request->upload, &body);
        const enum error_code code = body_read(&body, r, pipeline_check, fleet_checks(request), err);
        body_clear(&body);
        if (code)
            return code;
    } else {
        r->in_info.width = told->width;
        r->in_info.height = told->height;
        r->in_info.bits = 8;
        r->in_info.channels = 3;
        r->in_info.format = IMAGE_JPEG;
    }
    return fleet_checks(request) ? pipeline_check_size(r, server->store, models, err) : OK;
}

/* Seconds as people read them: three digits. */
static double estimate_round(double seconds)
{
    const double unit = seconds > 0 ? pow(10, floor(log10(seconds)) - 2) : 1;
    return fmax(0.001, round(seconds / unit) * unit);
}

static json_t *estimate_json(const struct request *request, const struct estimate *estimate, const char *device)
{
    const struct server *server = request->server;
    const double limit = (double)server->config->job_seconds;
    struct queue *queue = worker_pool_queue(server->pool);
    const char *why = "too-slow";
    char reason[256] = "", client[72];
    quota_client(request, client);
    if (limit > 0 && estimate->low > limit)
        snprintf(reason, sizeof reason, "it would take longer than the %.0f-second limit", limit);
    else if (limit > 0 && estimate->measured && estimate->low + estimate->queue_seconds / 2 > limit)
        snprintf(reason, sizeof reason, "with the jobs before it, it would take longer than the %.0f-second limit",
                 limit);
    else if (queue_full(queue, client)) {
        snprintf(reason, sizeof reason, "the queue is full: %zu jobs wait, and no more may", queue_bounded(queue));
        why = "queue-full";
    }
    return json_pack("{s:f, s:f, s:f, s:f, s:I, s:i, s:{s:i, s:i}, s:s, s:b, s:b, s:s, s:s}", "seconds",
                     estimate_round(estimate->seconds), "low", estimate_round(estimate->low), "high",
                     estimate_round(estimate->high), "queue_seconds",
                     estimate->queue_seconds > 0 ? estimate_round(estimate->queue_seconds) : 0.0, "memory",
                     (json_int_t)estimate->memory, "tiles", estimate->tiles, "output", "width", estimate->width,
                     "height", estimate->height, "device", device, "measured", estimate->measured, "fits", !*reason,
                     "reason", reason, "code", *reason ? why : "");
}

/* The other servers have answered. */
static enum MHD_Result estimate_of_fleet(struct request *request)
{
    struct error err = ERROR_INIT;
    struct estimate estimate;
    const char *device;
    json_t *document = NULL;
    const enum error_code code = fleet_estimated(request, &estimate, &device, &document, &err);
    const enum MHD_Result result =
        code ? estimate_fail(request, &err) : reply_json(request, REPLY_OK, estimate_json(request, &estimate, device));
    json_decref(document);
    return result;
}

enum MHD_Result route_estimate_answer(struct request *request)
{
    if (request->asked)
        return estimate_of_fleet(request);
    struct error err = ERROR_INIT;
    struct restoration *r = NULL;
    struct estimate estimate;
    const struct model_entry *models[ROLE_COUNT];
    char client[72];
    quota_client(request, client);
    if (upload_finish(request->upload, &err) || restoration_create(&r, &err) ||
        estimate_restoration(request, r, models, &err) ||
        (fleet_checks(request)
             ? worker_pool_estimate(request->server->pool, r, models, upload_size(request->upload)->faces, client,
                                    upload_low(request->upload), &estimate, &err)
             : fleet_ask(request, r, upload_size(request->upload)->faces, &err))) {
        restoration_destroy(&r);
        return estimate_fail(request, &err);
    }
    restoration_destroy(&r);
    if (!fleet_checks(request)) /* it is suspended */
        return MHD_YES;
    const char *device = devices_id(worker_pool_devices(request->server->pool), estimate.device);
    return reply_json(request, REPLY_OK, estimate_json(request, &estimate, device));
}
