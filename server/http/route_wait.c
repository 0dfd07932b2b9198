#include "server/http/route_wait.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/mem.h"
#include "server/http/header.h"
#include "server/http/job_json.h"
#include "server/http/mixed.h"
#include "server/http/quota.h"
#include "server/http/route_jobs.h"
#include "server/http/router.h"
#include "server/image/defect.h"
#include "server/job/record.h"

enum wait_for { WAIT_ACCEPTED, WAIT_END, WAIT_RESULT };

struct route_wait {
    enum wait_for what;
    struct cluster_waiter waiter;
    bool waiting; /* the waiter is known to the cluster */
    bool keyed;   /* its job stays, for whoever repeats the request */
    struct store_job row;
    route_wait_taken_fn *taken; /* NULL: the request is answered */
};

static void route_wait_resume(void *context)
{
    MHD_resume_connection(context);
}

/* --- what is sent --------------------------------------------------------------------------------------------------
 */

/* model="NAME", … as a restoration's own answer has them. */
static void route_wait_add_models(struct MHD_Response *response, const json_t *report)
{
    static const char *const keys[] = {"detector", "face", "parser", "background", "damage", "fill"};
    char text[1024] = "";
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *name = json_string_value(json_object_get(json_object_get(report, "models"), keys[i]));
        const size_t used = strlen(text);
        if (!name)
            continue;
        snprintf(text + used, sizeof text - used, "%s%s=\"%s\"", used ? ", " : "", keys[i], name);
        for (char *c = text + used + (used ? 2 : 0) + strlen(keys[i]) + 2; *c && c[1]; c++)
            *c = *c >= 0x20 && *c < 0x7f && *c != '"' && *c != '\\' ? *c : '?';
    }
    if (*text)
        MHD_add_response_header(response, "X-Restored-Models", text);
}

static void route_wait_add_notes(struct MHD_Response *response, const json_t *report)
{
    const char *notes[16];
    char text[HEADER_NOTES_MAX + 1];
    const json_t *list = json_object_get(report, "notes");
    int count = 0;
    for (; count < 16 && (size_t)count < json_array_size(list); count++)
        notes[count] = json_string_value(json_array_get(list, (size_t)count));
    if (!count)
        return;
    header_notes(notes, count, text);
    MHD_add_response_header(response, "X-Restored-Notes", text);
}

static void route_wait_add_damage(struct MHD_Response *response, const json_t *report)
{
    const json_t *kinds = json_object_get(json_object_get(report, "damage"), "kinds");
    char text[HEADER_DAMAGE_MAX];
    int counts[DEFECT_KINDS];
    for (int k = 0; k < DEFECT_KINDS; k++)
        counts[k] = (int)json_integer_value(json_object_get(json_object_get(kinds, defect_names[k]), "count"));
    header_damage(counts, text);
    if (kinds)
        MHD_add_response_header(response, "X-Restored-Damage", text);
}

static void route_wait_add_headers(struct MHD_Response *response, json_t *report)
{
    char text[16], timing[512] = "";
    const char *name;
    json_t *face, *value;
    size_t i;
    int restored = 0;
    json_array_foreach(json_object_get(report, "faces"), i, face)
    {
        const char *action = json_string_value(json_object_get(face, "action"));
        restored += action && strcmp(action, "skipped") != 0;
    }
    snprintf(text, sizeof text, "%d", restored);
    MHD_add_response_header(response, "X-Restored-Faces", text);
    MHD_add_response_header(response, "X-Restored-Device", json_string_value(json_object_get(report, "device")));
    json_object_foreach(json_object_get(report, "timings_ms"), name, value)
    {
        const size_t used = strlen(timing);
        if (strcmp(name, "total") != 0)
            snprintf(timing + used, sizeof timing - used, "%s%s;dur=%.1f", used ? ", " : "", name,
                     json_number_value(value));
    }
    route_wait_add_models(response, report);
    route_wait_add_damage(response, report);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    if (*timing)
        MHD_add_response_header(response, "Server-Timing", timing);
}

/* The picture alone, from its file. */
static enum MHD_Result route_wait_picture(struct request *request, json_t *report, const struct record_part *part)
{
    struct keeper_ticket *ticket = request->ticket;
    struct error err = ERROR_INIT;
    char text[1024], suffix[OPTION_NAME_MAX];
    const uint64_t size = part->size, offset = part->offset;
    struct MHD_Response *response = offset <= ticket->size && size <= ticket->size - offset
                                        ? MHD_create_response_from_fd_at_offset64(size, ticket->fd, offset)
                                        : NULL;
    if (!response) {
        error_set(&err, ERROR_INTERNAL, "the result of this job is damaged");
        return route_jobs_fail(request, REPLY_INTERNAL, &err);
    }
    ticket->fd = -1; /* the response's now */
    request->answer_bytes = size;
    job_json_suffix(&request->wait->row, suffix);
    header_disposition(upload_file_name(request->upload), suffix, part->extension, text, sizeof text);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_DISPOSITION, text);
    if (*part->etag)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ETAG, part->etag);
    route_wait_add_headers(response, report);
    route_wait_add_notes(response, report);
    return reply_send(request, REPLY_OK, response, part->type);
}

static enum MHD_Result route_wait_both(struct request *request, json_t *report)
{
    char type[MIXED_TYPE_MAX], suffix[OPTION_NAME_MAX];
    struct error err = ERROR_INIT;
    job_json_suffix(&request->wait->row, suffix);
    struct MHD_Response *response =
        mixed_stored(request->ticket->fd, report, request->wait->row.parts, upload_file_name(request->upload), suffix,
                     type, &request->answer_bytes, &err);
    if (!response)
        return route_jobs_fail(request, REPLY_INTERNAL, &err);
    route_wait_add_headers(response, report);
    return reply_send(request, REPLY_OK, response, type);
}

/* The job is done; its result is fetched, if it has one. */
static enum MHD_Result route_wait_send(struct request *request)
{
    struct route_wait *wait = request->wait;
    if (wait->taken) {
        const struct error none = ERROR_INIT;
        return wait->taken(request, REPLY_OK, &none, &wait->row, request->ticket ? request->ticket->fd : -1);
    }
    json_t *report = wait->row.report ? json_loads(wait->row.report, 0, NULL) : NULL;
    struct record_part *parts;
    const size_t count = record_parts(wait->row.parts, &parts); /* the first is the result */
    const char *accept = router_header(request, MHD_HTTP_HEADER_ACCEPT);
    const char *type = count ? parts->type : NULL;
    enum MHD_Result result;
    if (type && !route_restore_is_detect(request) && route_restore_wants_both(accept))
        result = route_wait_both(request, report);
    else if (!type || route_restore_is_detect(request) || route_restore_wants_report(accept, type))
        result = reply_json(request, REPLY_OK, json_incref(report));
    else
        result = route_wait_picture(request, report, parts);
    json_decref(report);
    free(parts);
    return result;
}

/* --- waiting -------------------------------------------------------------------------------------------------------
 */

/* A wish whose outcome nobody waits for. */
static void route_wait_dropped(void *context)
{
    struct keeper_ticket *ticket = context;
    keeper_ticket_clear(ticket);
    free(ticket);
}

void route_wait_drop(struct keeper *keeper, const char *id)
{
    struct keeper_ticket *ticket = *id ? mem_calloc(1, sizeof *ticket) : NULL;
    if (!ticket)
        return; /* it expires */
    ticket->wish = KEEPER_CANCEL;
    ticket->done = route_wait_dropped;
    ticket->context = ticket;
    snprintf(ticket->job.id, sizeof ticket->job.id, "%s", id);
    keeper_ask(keeper, ticket);
}

/* A connection_leave_fn. */
static void route_wait_leave(void *context, const char *id)
{
    route_wait_drop(context, id);
}

/* It is accepted: waits for its end. */
static enum MHD_Result route_wait_accepted(struct request *request)
{
    struct route_wait *wait = request->wait;
    const struct keeper_ticket *ticket = request->ticket;
    if (ticket->err.code && wait->taken) {
        const struct error err = ticket->err;
        quota_give_back(request);
        return wait->taken(request,
                           ticket->over             ? REPLY_TOO_MANY_JOBS
                           : err.code == ERROR_BUSY ? REPLY_QUEUE_FULL
                                                    : reply_for(err.code),
                           &err, NULL, -1);
    }
    if (ticket->err.code || ticket->inserted == STORE_OTHER)
        return route_jobs_accepted(request); /* refused, as an asynchronous one is */
    memcpy(wait->waiter.id, ticket->job.id, sizeof wait->waiter.id);
    wait->keyed = *ticket->key && !wait->taken;
    wait->waiter.done = route_wait_resume;
    wait->waiter.context = request->connection;
    route_jobs_forget(request);
    wait->what = WAIT_END;
    wait->waiting = true;
    if (wait->keyed)
        connection_holding(request->link);
    else
        connection_waiting_elsewhere(request->link, route_wait_leave, request->server->keeper, wait->waiter.id,
                                     request->interim);
    MHD_suspend_connection(request->connection);
    cluster_await(keeper_cluster(request->server->keeper), &wait->waiter);
    return MHD_YES;
}

static enum MHD_Result route_wait_fail(struct request *request, enum reply reply, const struct error *err)
{
    return request->wait->taken ? request->wait->taken(request, reply, err, NULL, -1)
                                : route_jobs_fail(request, reply, err);
}

static enum MHD_Result route_wait_failed(struct request *request)
{
    struct route_wait *wait = request->wait;
    struct error err = ERROR_INIT;
    bool decoded = false;
    if (wait->row.state == STORE_FAILED) {
        record_read_error(wait->row.error, &err, &decoded);
        return route_wait_fail(request, reply_for_job(err.code, decoded), &err);
    }
    if (wait->row.state == STORE_CANCELLED) {
        error_set(&err, ERROR_CANCELLED, "the job was cancelled");
        return route_wait_fail(request, reply_for(err.code), &err);
    }
    error_set(&err, ERROR_BUSY, "the server is shutting down");
    return route_wait_fail(request, REPLY_UNAVAILABLE, &err);
}

/* It has ended: fetches its result, or says why there is none. */
static enum MHD_Result route_wait_ended(struct request *request)
{
    struct route_wait *wait = request->wait;
    struct error err = ERROR_INIT;
    bool found = false;
    wait->waiting = false;
    connection_sending(request->link);
    const enum error_code code =
        store_get(keeper_store(request->server->keeper), wait->waiter.id, &wait->row, &found, &err);
    if (!code && !found)
        error_set(&err, ERROR_INTERNAL, "the job is gone");
    if (err.code)
        return route_wait_fail(request, reply_for(err.code), &err);
    wait->what = WAIT_RESULT;
    if (wait->row.state != STORE_DONE)
        return route_wait_failed(request);
    if (!wait->row.output_bytes)
        return route_wait_send(request);
    return route_jobs_fetch(request, &wait->row);
}

enum MHD_Result route_wait_submit(struct request *request, const struct restoration *r, struct body *body)
{
    request->wait = mem_calloc(1, sizeof *request->wait);
    return request->wait ? route_jobs_submit(request, r, body) : MHD_NO;
}

enum MHD_Result route_wait_submit_for(struct request *request, const struct restoration *r, struct body *body,
                                      const char *id, route_wait_taken_fn *taken)
{
    request->wait = mem_calloc(1, sizeof *request->wait);
    if (!request->wait)
        return MHD_NO;
    request->wait->taken = taken;
    return route_jobs_submit_as(request, r, body, id, NULL);
}

enum MHD_Result route_wait_answer(struct request *request)
{
    struct route_wait *wait = request->wait;
    if (wait->what == WAIT_ACCEPTED)
        return route_wait_accepted(request);
    if (wait->what == WAIT_END)
        return route_wait_ended(request);
    connection_sending(request->link);
    if (request->ticket->err.code)
        return route_wait_fail(request, reply_for(request->ticket->err.code), &request->ticket->err);
    return route_wait_send(request);
}

void route_wait_forget(struct request *request)
{
    struct route_wait *wait = request->wait;
    if (!wait)
        return;
    if (wait->waiting)
        cluster_leave(keeper_cluster(request->server->keeper), &wait->waiter);
    if (!wait->keyed)
        route_wait_drop(request->server->keeper, wait->waiter.id);
    store_job_clear(&wait->row);
    free(wait);
    request->wait = NULL;
}
