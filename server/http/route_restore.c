/* POST /v1/restore and POST /v1/detect: the body becomes a job, the connection is suspended until the job has ended. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/spill.h"
#include "server/http/fleet.h"
#include "server/http/header.h"
#include "server/http/mixed.h"
#include "server/http/room.h"
#include "server/http/route_wait.h"
#include "server/http/router.h"
#include "server/http/server.h"
#include "server/http/submit.h"
#include "server/image/codec.h"

#define ROUTE_PIECE ((size_t)256 << 10) /* bytes of a result in a file that are sent at a time */

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
bool route_restore_wants_both(const char *accept)
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

/* Refuses everything that can be refused by the headers alone. */
static enum MHD_Result route_restore_check(struct request *request, bool detect)
{
    struct server *server = request->server;
    struct error err = ERROR_INIT;
    uint64_t length = 0;
    int wait = 0;
    const enum reply reply = submit_admit(request, &length, &wait, &err);
    if (reply != REPLY_OK)
        return submit_refuse(request, reply, wait, &err);
    if (upload_create(&request->upload, detect, (size_t)server->config->body_limit, &err))
        return submit_refuse(request, reply_for(err.code), 0, &err);
    upload_use_spool(request->upload, server->spool);
    struct query query = {request->upload, ERROR_INIT};
    MHD_get_connection_values_n(request->connection, MHD_GET_ARGUMENT_KIND, route_restore_argument, &query);
    if (query.err.code)
        return submit_refuse(request, reply_for(query.err.code), 0, &query.err);
    const enum reply room = route_jobs_wanted(request) ? REPLY_OK : submit_room(request, &err);
    if (room != REPLY_OK)
        return submit_refuse(request, room, 0, &err);
    if (route_restore_check_faces(request, &err))
        return submit_refuse(request, reply_for(err.code), 0, &err);
    if (upload_begin(request->upload, router_header(request, MHD_HTTP_HEADER_CONTENT_TYPE), (size_t)length, &err))
        return submit_refuse(request, reply_for(err.code), 0, &err);
    return room_make(request, length, 0);
}

enum MHD_Result route_restore_begin(struct request *request)
{
    return route_restore_check(request, false);
}

enum MHD_Result route_detect_begin(struct request *request)
{
    return route_restore_check(request, true);
}

bool route_restore_is_detect(const struct request *request)
{
    return request->route->begin == route_detect_begin;
}

enum MHD_Result route_damage_begin(struct request *request)
{
    return route_restore_check(request, true);
}

/* Whether the client prefers the report to the picture: only if it names JSON. */
bool route_restore_wants_report(const char *accept, const char *picture)
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

/* Fills in what the request asks for. */
static void route_restore_describe(struct request *request, struct restoration *r, bool async)
{
    const char *accept = router_header(request, MHD_HTTP_HEADER_ACCEPT);
    r->options = *upload_options(request->upload);
    r->limits = server_limits(request->server->config);
    r->mask_bytes = upload_mask(request->upload);
    r->detect_only = request->route->begin == route_detect_begin;
    r->damage_only = request->route->begin == route_damage_begin;
    r->encode_mask = async || route_restore_wants_both(accept);
    r->elsewhere = !reply_is_near(request);
    r->keep_faces = r->encode_faces = upload_faces_out(request->upload);
    for (int format = IMAGE_JPEG; format < IMAGE_FORMAT_COUNT; format++)
        if (codec_max_side((enum image_format)format) > 0)
            r->format_weight[format] = header_accept(accept, codec_media_type((enum image_format)format), NULL);
}

/* Makes the job and queues it; the connection is suspended when this is OK. */
static enum MHD_Result route_restore_submit(struct request *request)
{
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
    const bool async = route_jobs_wanted(request);
    route_restore_describe(request, r, async);
    reply = submit_check(request, r, &body, &err);
    if (reply == REPLY_OK && route_restore_check_accept(request, r, &err))
        reply = REPLY_NOT_ACCEPTABLE;
    if (reply == REPLY_OK && (!async || !request->repeated))
        reply = submit_charge(request, r, &wait, &err);
    if (reply != REPLY_OK)
        goto out;
    if (async || !fleet_checks(request)) {
        const enum MHD_Result result =
            async ? route_jobs_submit(request, r, &body) : route_wait_submit(request, r, &body);
        restoration_destroy(&r);
        body_clear(&body);
        return result;
    }
    reply = submit_start(request, &r, &body, upload_low(request->upload), &err);
    if (reply == REPLY_OK)
        return MHD_YES;
out:
    restoration_destroy(&r);
    body_clear(&body);
    return submit_refuse(request, reply, wait, &err);
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
    char text[16], damage[HEADER_DAMAGE_MAX];
    int restored = 0;
    for (int i = 0; i < r->face_count; i++)
        restored += r->faces[i].restored;
    snprintf(text, sizeof text, "%d", restored);
    MHD_add_response_header(response, "X-Restored-Faces", text);
    MHD_add_response_header(response, "X-Restored-Device", r->device);
    route_restore_add_models(response, r);
    header_damage(r->damage.defects, damage);
    if (r->damage.looked || r->damage.sent)
        MHD_add_response_header(response, "X-Restored-Damage", damage);
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
    header_disposition(upload_file_name(request->upload), r->damage_only ? "mask" : r->options.suffix,
                       codec_extension(r->output_format), text, sizeof text);
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
    if (request->wait)
        return route_wait_answer(request);
    if (request->ticket)
        return route_jobs_accepted(request);
    if (!job)
        return route_restore_submit(request);
    if (request->refused)
        return submit_refuse(request, request->refused, 0, &request->refusal);
    if (connection_gone(request->link)) {
        request->status = reply_status(REPLY_CLIENT_GONE);
        return MHD_NO; /* closes a connection that the client has closed already */
    }
    if (atomic_load(&job->state) != JOB_DONE)
        return submit_refuse(request, reply_for_job(job->error.code, job->restoration->decoded), 0, &job->error);
    const char *accept = router_header(request, MHD_HTTP_HEADER_ACCEPT);
    if (!job->restoration->detect_only && route_restore_wants_both(accept))
        return route_restore_send_both(request, job);
    if (job->restoration->detect_only ||
        route_restore_wants_report(accept, codec_media_type(job->restoration->output_format)))
        return reply_json(request, REPLY_OK, restoration_report(job->restoration));
    return route_restore_send_picture(request, job);
}
