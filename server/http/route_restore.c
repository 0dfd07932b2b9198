/* POST /v1/restore and POST /v1/detect: the body becomes a job, the connection is suspended until the job has ended. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/spill.h"
#include "server/http/header.h"
#include "server/http/mixed.h"
#include "server/http/quota.h"
#include "server/http/room.h"
#include "server/http/router.h"
#include "server/http/server.h"
#include "server/image/codec.h"
#include "server/job/waiting.h"

#define ROUTE_PIECE ((size_t)256 << 10) /* bytes of a result in a file that are sent at a time */

static enum MHD_Result route_restore_fail(struct request *request, enum reply reply, const struct error *err)
{
    char seconds[16];
    json_t *extra = NULL;
    const char *header = NULL;
    struct worker_pool *pool = request->server->pool;
    if (reply == REPLY_QUEUE_FULL || (reply == REPLY_UNAVAILABLE && err->code == ERROR_BUSY)) {
        header = MHD_HTTP_HEADER_RETRY_AFTER;
        snprintf(seconds, sizeof seconds, "%d", worker_pool_retry_after(pool));
    }
    if (reply == REPLY_TOO_MANY_JOBS) {
        header = MHD_HTTP_HEADER_RETRY_AFTER;
        snprintf(seconds, sizeof seconds, "%d", worker_pool_retry_after(pool));
    }
    if (err->code == ERROR_TOO_SLOW && request->job)
        extra = json_pack("{s:f, s:I}", "estimate_seconds", request->job->estimate.seconds, "limit_seconds",
                          (json_int_t)request->server->config->job_seconds);
    if (reply == REPLY_BODY_TOO_LARGE)
        extra = json_pack("{s:I}", "limit", (json_int_t)request->server->config->body_limit);
    return reply_problem(request, reply, err, extra, header, seconds);
}

struct query {
    struct upload *upload;
    struct error err;
};

static enum MHD_Result route_restore_argument(void *context, enum MHD_ValueKind kind, const char *name,
                                              size_t name_size, const char *value, size_t value_size)
{
    struct query *query = context;
    (void)kind;
    return upload_argument(query->upload, name, name_size, value, value_size, &query->err) ? MHD_NO : MHD_YES;
}

/* Whether the client asks for report and picture in one answer: only if it names that type. */
static bool route_restore_wants_both(const char *accept)
{
    bool named;
    int both = header_accept(accept, "multipart/mixed", &named);
    bool best = named && both > 0 && both >= header_accept(accept, "application/json", NULL);
    for (int format = IMAGE_JPEG; best && format < IMAGE_FORMAT_COUNT; format++)
        if (codec_max_side((enum image_format)format) > 0)
            best = both >= header_accept(accept, codec_media_type((enum image_format)format), NULL);
    return best;
}

/* Faces need an answer with room for them. */
static enum error_code route_restore_check_faces(struct request *request, struct error *err)
{
    if (!upload_faces_out(request->upload) || route_jobs_wanted(request) ||
        route_restore_wants_both(router_header(request, MHD_HTTP_HEADER_ACCEPT)))
        return OK;
    return error_set(
        err, ERROR_INVALID,
        "faces_out: true needs the header \"Accept: multipart/mixed\", because the faces come as more parts of "
        "the answer");
}

/* For a token that has sent what it may: when it may go on. */
static enum MHD_Result route_restore_slow_down(struct request *request, int wait, const struct error *err)
{
    char seconds[16];
    snprintf(seconds, sizeof seconds, "%d", wait);
    return reply_problem(request, REPLY_RATE_LIMITED, err, NULL, MHD_HTTP_HEADER_RETRY_AFTER, seconds);
}

/* Whether the request's token may have one more job wait. Under the lock of worker_pool_waiting, where it has a limit.
 */
static enum reply route_restore_count(struct request *request, struct error *err)
{
    const struct server *server = request->server;
    struct error ignored = ERROR_INIT; /* the store's: then the others count */
    char client[72];
    uint64_t count = 0;
    if (!request->identity.jobs)
        return REPLY_OK;
    quota_client(request, client);
    (void)!waiting_count(worker_pool_waiting(server->pool), server->keeper ? keeper_store(server->keeper) : NULL,
                         worker_pool_queue(server->pool), client, request->identity.name, &count, &ignored);
    return quota_allows_job(request, (size_t)count, err);
}

/* The same, for a request that will be counted once more when its job is queued. */
static enum reply route_restore_allows(struct request *request, struct error *err)
{
    if (!request->identity.jobs) /* it takes no lock */
        return REPLY_OK;
    struct waiting *waiting = worker_pool_waiting(request->server->pool);
    waiting_lock(waiting);
    const enum reply reply = route_restore_count(request, err);
    waiting_unlock(waiting);
    return reply;
}

/* Refuses everything that can be refused by the headers alone. */
static enum MHD_Result route_restore_check(struct request *request, bool detect)
{
    struct server *server = request->server;
    struct error err = ERROR_INIT;
    const char *text = router_header(request, MHD_HTTP_HEADER_CONTENT_LENGTH);
    const uint64_t length = request->chunked ? server->config->body_limit : text ? strtoull(text, NULL, 10) : 0;
    if (length > server->config->body_limit) {
        char sent[ERROR_BYTES_MAX], limit[ERROR_BYTES_MAX];
        metrics_rejected(server->metrics, REJECTED_BODY_TOO_LARGE);
        error_set(&err, ERROR_TOO_LARGE, "the body is %s; at most %s are taken", error_bytes(sent, length),
                  error_bytes(limit, server->config->body_limit));
        return route_restore_fail(request, REPLY_BODY_TOO_LARGE, &err);
    }
    if (worker_pool_draining(server->pool)) {
        metrics_rejected(server->metrics, REJECTED_DRAINING);
        error_set(&err, ERROR_BUSY, "the server is shutting down and accepts no new jobs");
        return route_restore_fail(request, REPLY_UNAVAILABLE, &err);
    }
    enum error_code ready = worker_pool_ready(server->pool, &err);
    /* while the models are being loaded a job may wait, and a lost device is opened again for it */
    if (ready && ready != ERROR_BUSY && ready != ERROR_DEVICE_LOST) {
        metrics_rejected(server->metrics, REJECTED_NOT_READY);
        return route_restore_fail(request, REPLY_UNAVAILABLE, &err);
    }
    error_clear(&err);
    char client[72];
    int wait = 0;
    quota_client(request, client);
    request->repeated = route_jobs_repeated(request, client);
    if (!request->repeated) {
        if (quota_take_pixels(request, 0, &wait, &err) != REPLY_OK)
            return route_restore_slow_down(request, wait, &err);
        enum reply jobs = route_restore_allows(request, &err);
        if (jobs != REPLY_OK)
            return route_restore_fail(request, jobs, &err);
    }
    if (upload_create(&request->upload, detect, (size_t)server->config->body_limit, &err))
        return route_restore_fail(request, reply_for(err.code), &err);
    upload_use_spool(request->upload, server->spool);
    struct query query = {request->upload, ERROR_INIT};
    MHD_get_connection_values_n(request->connection, MHD_GET_ARGUMENT_KIND, route_restore_argument, &query);
    if (query.err.code)
        return route_restore_fail(request, reply_for(query.err.code), &query.err);
    struct queue *queue = worker_pool_queue(server->pool);
    if (!route_jobs_wanted(request) && queue_full(queue, client)) {
        metrics_rejected(server->metrics, REJECTED_QUEUE_FULL);
        error_set(&err, ERROR_BUSY, "the queue is full: %zu jobs wait, and no more may", queue_bounded(queue));
        return route_restore_fail(request, REPLY_QUEUE_FULL, &err);
    }
    if (route_restore_check_faces(request, &err))
        return route_restore_fail(request, reply_for(err.code), &err);
    if (upload_begin(request->upload, router_header(request, MHD_HTTP_HEADER_CONTENT_TYPE), (size_t)length, &err))
        return route_restore_fail(request, reply_for(err.code), &err);
    return room_make(request, length);
}

enum MHD_Result route_restore_begin(struct request *request)
{
    return route_restore_check(request, false);
}

enum MHD_Result route_detect_begin(struct request *request)
{
    return route_restore_check(request, true);
}

enum MHD_Result route_damage_begin(struct request *request)
{
    return route_restore_check(request, true);
}

/* The job has ended: libmicrohttpd calls route_restore_answer again. */
static void route_restore_resume(struct job *job, void *context)
{
    (void)job;
    MHD_resume_connection(context);
}

/* Whether the client prefers the report to the picture: only if it names JSON. */
static bool route_restore_wants_report(const char *accept, const char *picture)
{
    bool named;
    int json = header_accept(accept, "application/json", &named);
    return named && json > header_accept(accept, picture, NULL);
}

static enum error_code route_restore_check_accept(struct request *request, const struct restoration *r,
                                                  struct error *err)
{
    const char *accept = router_header(request, MHD_HTTP_HEADER_ACCEPT);
    const char *type = r->detect_only ? "application/json" : codec_media_type(r->output_format);
    if (header_accept(accept, type, NULL) > 0 ||
        (!r->detect_only && (route_restore_wants_report(accept, type) || route_restore_wants_both(accept))))
        return OK;
    return error_set(err, ERROR_INVALID, "the answer is %s%s, and Accept excludes it", type,
                     r->detect_only ? "" : ", application/json or multipart/mixed");
}

/* Gives the job to the workers; REPLY_OK, or why it was refused. */
static enum reply route_restore_queue(struct request *request, struct error *err)
{
    struct server *server = request->server;
    enum reply reply = REPLY_OK;
    /* a token's jobs are counted once more, and this one is among them before the next request counts */
    struct waiting *waiting = request->identity.jobs ? worker_pool_waiting(server->pool) : NULL;
    if (waiting)
        waiting_lock(waiting);
    reply = route_restore_count(request, err);
    if (reply == REPLY_OK && worker_pool_submit(server->pool, request->job, err)) {
        const bool draining = worker_pool_draining(server->pool);
        if (err->code == ERROR_BUSY)
            metrics_rejected(server->metrics, draining ? REJECTED_DRAINING : REJECTED_QUEUE_FULL);
        if (err->code == ERROR_TOO_SLOW)
            metrics_rejected(server->metrics, REJECTED_TOO_SLOW);
        reply = err->code != ERROR_BUSY ? reply_for(err->code) : draining ? REPLY_UNAVAILABLE : REPLY_QUEUE_FULL;
    }
    if (waiting)
        waiting_unlock(waiting);
    return reply;
}

/* Makes the job and queues it; the connection is suspended when this is OK. */
static enum MHD_Result route_restore_submit(struct request *request)
{
    struct server *server = request->server;
    struct error err = ERROR_INIT;
    struct restoration *r = NULL;
    struct body body = {0};
    int wait = 0;
    enum reply reply = REPLY_OK;
    if (upload_finish(request->upload, &err) || route_restore_check_faces(request, &err) ||
        restoration_create(&r, &err)) {
        reply = reply_for(err.code);
        goto out;
    }
    upload_take(request->upload, &body);
    room_shrink(request, body.size);
    r->options = *upload_options(request->upload);
    r->limits = server_limits(server->config);
    r->mask_bytes = upload_mask(request->upload);
    const bool async = route_jobs_wanted(request);
    r->detect_only = request->route->begin == route_detect_begin;
    r->damage_only = request->route->begin == route_damage_begin;
    r->encode_mask = async || route_restore_wants_both(router_header(request, MHD_HTTP_HEADER_ACCEPT));
    r->elsewhere = !reply_is_near(request);
    r->keep_faces = r->encode_faces = upload_faces_out(request->upload);
    const char *accept = router_header(request, MHD_HTTP_HEADER_ACCEPT);
    for (int format = IMAGE_JPEG; format < IMAGE_FORMAT_COUNT; format++)
        if (codec_max_side((enum image_format)format) > 0)
            r->format_weight[format] = header_accept(accept, codec_media_type((enum image_format)format), NULL);
    int device;
    if (body_read(&body, r, pipeline_check, server->store, &err)) {
        if (err.code == ERROR_TOO_LARGE)
            metrics_rejected(server->metrics, REJECTED_PIXELS);
        reply = reply_for(err.code);
        goto out;
    }
    if (*r->options.device && strcmp(r->options.device, "auto") != 0 &&
        devices_find(worker_pool_devices(server->pool), r->options.device, &device, &err)) {
        reply = reply_for(err.code);
        goto out;
    }
    if (route_restore_check_accept(request, r, &err)) {
        reply = REPLY_NOT_ACCEPTABLE;
        goto out;
    }
    if (!async || !request->repeated)
        reply = route_restore_allows(request, &err);
    if (reply == REPLY_OK && (!async || !request->repeated))
        reply = quota_take_pixels(request, (uint64_t)r->in_info.width * (uint64_t)r->in_info.height, &wait, &err);
    if (reply != REPLY_OK)
        goto out;
    if (async) {
        const enum MHD_Result result = route_jobs_submit(request, r, &body);
        restoration_destroy(&r);
        body_clear(&body);
        return result;
    }
    char job_id[33];
    job_make_id(job_id);
    if (job_create(&request->job, job_id, &r, &body, route_restore_resume, request->connection, &err)) {
        reply = reply_for(err.code);
        goto out;
    }
    memcpy(request->job->token, request->identity.name, sizeof request->job->token);
    quota_client(request, request->job->client);
    request->job->low = upload_low(request->upload);
    /* Suspended first: the job may end, and resume, before submit returns. */
    connection_waiting(request->link, request->job, request->interim);
    MHD_suspend_connection(request->connection);
    reply = route_restore_queue(request, &err);
    if (reply != REPLY_OK) {
        quota_give_back(request);
        request->refused = reply;
        request->refusal = err;
        MHD_resume_connection(request->connection);
    }
    return MHD_YES;
out:
    restoration_destroy(&r);
    body_clear(&body);
    return wait ? route_restore_slow_down(request, wait, &err) : route_restore_fail(request, reply, &err);
}

static void route_restore_add_timing(struct MHD_Response *response, const struct restoration *r)
{
    char timing[512] = "";
    for (int stage = STAGE_DECODE; stage < STAGE_COUNT; stage++) {
        size_t used = strlen(timing);
        snprintf(timing + used, sizeof timing - used, "%s;dur=%.1f, ", stage_name((enum stage)stage),
                 r->stage_ms[stage]);
    }
    size_t used = strlen(timing);
    snprintf(timing + used, sizeof timing - used, "%s;dur=%.1f", stage_name(STAGE_QUEUE), r->stage_ms[STAGE_QUEUE]);
    MHD_add_response_header(response, "Server-Timing", timing);
}

/* detector="NAME", face="NAME", ... as an RFC 8941 dictionary; a file may have any name, but a header cannot hold any
 * text. */
static void route_restore_add_models(struct MHD_Response *response, const struct restoration *r)
{
    static const char *const keys[ROLE_COUNT] = {
        [ROLE_DETECTOR] = "detector",   [ROLE_FACE] = "face",     [ROLE_PARSER] = "parser",
        [ROLE_UPSCALER] = "background", [ROLE_DAMAGE] = "damage", [ROLE_FILLER] = "fill"};
    char text[ROLE_COUNT * (sizeof r->model_names[0] + 20)] = "";
    size_t n = 0;
    for (int role = 0; role < ROLE_COUNT; role++) {
        if (!r->model_names[role][0])
            continue;
        n += (size_t)sprintf(text + n, "%s%s=\"", n ? ", " : "", keys[role]);
        for (const char *c = r->model_names[role]; *c; c++)
            text[n++] = *c >= 0x20 && *c < 0x7f && *c != '"' && *c != '\\' ? *c : '?';
        text[n++] = '"';
        text[n] = '\0';
    }
    if (n)
        MHD_add_response_header(response, "X-Restored-Models", text);
}

/* The report's notes, for clients that get only the picture. */
static void route_restore_add_notes(struct MHD_Response *response, const struct restoration *r)
{
    const char *notes[sizeof r->notes / sizeof *r->notes];
    char text[HEADER_NOTES_MAX + 1];
    if (!r->note_count)
        return;
    for (int i = 0; i < r->note_count; i++)
        notes[i] = r->notes[i];
    header_notes(notes, r->note_count, text);
    MHD_add_response_header(response, "X-Restored-Notes", text);
}

/* Headers that the picture and the multipart answer share. */
static void route_restore_add_headers(struct MHD_Response *response, const struct restoration *r)
{
    char text[16];
    int restored = 0;
    for (int i = 0; i < r->face_count; i++)
        restored += r->faces[i].restored;
    snprintf(text, sizeof text, "%d", restored);
    MHD_add_response_header(response, "X-Restored-Faces", text);
    MHD_add_response_header(response, "X-Restored-Device", r->device);
    route_restore_add_models(response, r);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    route_restore_add_timing(response, r);
}

/* A result that lies in a file goes out piece by piece. */
static ssize_t route_restore_read(void *context, uint64_t at, char *to, size_t most)
{
    memcpy(to, (const uint8_t *)context + at, most);
    spill_passed((const uint8_t *)context + at, most);
    return (ssize_t)most;
}

static enum MHD_Result route_restore_send_picture(struct request *request, struct job *job)
{
    struct restoration *r = job->restoration;
    uint8_t *output = r->output;
    size_t size = r->output_bytes;
    struct MHD_Response *response =
        spill_is(output) ? MHD_create_response_from_callback(size, ROUTE_PIECE, route_restore_read, output, spill_free)
                         : MHD_create_response_from_buffer(size, output, MHD_RESPMEM_MUST_FREE);
    if (!response)
        return MHD_NO;
    r->output = NULL; /* the response's now */
    r->output_bytes = 0;
    request->answer_bytes = size;
    char text[1024];
    header_disposition(upload_file_name(request->upload), r->options.suffix, codec_extension(r->output_format), text,
                       sizeof text);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_DISPOSITION, text);
    MHD_add_response_header(response, MHD_HTTP_HEADER_ETAG, job->etag);
    route_restore_add_headers(response, r);
    route_restore_add_notes(response, r);
    return reply_send(request, REPLY_OK, response, codec_media_type(r->output_format));
}

static enum MHD_Result route_restore_send_both(struct request *request, struct job *job)
{
    char type[MIXED_TYPE_MAX];
    struct MHD_Response *response =
        mixed_response(job, upload_file_name(request->upload), type, &request->answer_bytes);
    if (!response)
        return MHD_NO;
    route_restore_add_headers(response, job->restoration);
    return reply_send(request, REPLY_OK, response, type);
}

enum MHD_Result route_restore_answer(struct request *request)
{
    struct job *job = request->job;
    if (request->ticket)
        return route_jobs_accepted(request);
    if (!job)
        return route_restore_submit(request);
    if (request->refused)
        return route_restore_fail(request, request->refused, &request->refusal);
    if (connection_gone(request->link)) {
        request->status = reply_status(REPLY_CLIENT_GONE);
        return MHD_NO; /* closes a connection that the client has closed already */
    }
    if (atomic_load(&job->state) != JOB_DONE)
        return route_restore_fail(request, reply_for_job(job->error.code, job->restoration->decoded), &job->error);
    const char *accept = router_header(request, MHD_HTTP_HEADER_ACCEPT);
    if (!job->restoration->detect_only && route_restore_wants_both(accept))
        return route_restore_send_both(request, job);
    if (job->restoration->detect_only ||
        route_restore_wants_report(accept, codec_media_type(job->restoration->output_format)))
        return reply_json(request, REPLY_OK, restoration_report(job->restoration));
    return route_restore_send_picture(request, job);
}
