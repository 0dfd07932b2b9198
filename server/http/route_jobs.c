/* Asynchronous jobs: accepting them, and /v1/jobs. */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/mem.h"
#include "server/http/fleet.h"
#include "server/http/header.h"
#include "server/http/job_json.h"
#include "server/http/quota.h"
#include "server/http/route_jobs.h"
#include "server/http/route_piece.h"
#include "server/http/router.h"
#include "server/job/keeper_output.h"
#include "server/job/record.h"

#define LIST_USUAL 100

enum MHD_Result route_jobs_fail(struct request *request, enum reply reply, const struct error *err)
{
    /* a shared store comes back, or another server takes its place */
    const bool later = reply == REPLY_UNAVAILABLE && request->server->keeper && keeper_cluster(request->server->keeper);
    return reply_problem(request, reply, err, NULL, later ? MHD_HTTP_HEADER_RETRY_AFTER : NULL, later ? "5" : NULL);
}

bool route_jobs_there(const struct request *request, struct error *err)
{
    if (!request->server->keeper)
        error_set(err, ERROR_BUSY, "this server keeps no asynchronous jobs: it has no folder for them (state_dir)");
    return request->server->keeper;
}

const char *route_jobs_token(const struct request *request)
{
    return request->identity.admin ? NULL : request->identity.name;
}

/* There is no such job for this client, or not any more. */
static enum MHD_Result route_jobs_missing(struct request *request, const char *id)
{
    struct error err = ERROR_INIT;
    bool gone = false;
    enum error_code code = store_gone(keeper_store(request->server->keeper), id, &gone, &err);
    if (code)
        return route_jobs_fail(request, reply_for(code), &err);
    error_set(&err, ERROR_NOT_FOUND, gone ? "the job %s has expired, and its result with it" : "there is no job %s",
              id);
    return route_jobs_fail(request, gone ? REPLY_GONE : REPLY_NOT_FOUND, &err);
}

/* --- accepting them ------------------------------------------------------------------------------------------------
 */

bool route_jobs_wanted(const struct request *request)
{
    const char *prefer = router_header(request, "Prefer");
    bool preferred = false;
    while (prefer && *prefer && !preferred) { /* a list of words, each perhaps with a value and parameters */
        prefer += strspn(prefer, " \t,");
        const size_t size = strcspn(prefer, " \t,;=");
        preferred = size == 13 && strncasecmp(prefer, "respond-async", size) == 0;
        prefer += strcspn(prefer, ",");
    }
    return upload_async(request->upload, preferred);
}

/* The row of a new job. *estimate: zeros where there is none. */
static enum error_code route_jobs_describe(struct request *request, struct store_job *row, const struct restoration *r,
                                           struct estimate *estimate, struct error *err)
{
    const struct model_entry *models[ROLE_COUNT];
    struct error ignored = ERROR_INIT; /* the job will meet it */
    job_make_id(row->id);
    quota_client(request, row->client);
    row->low = upload_low(request->upload);
    snprintf(row->token, sizeof row->token, "%s", request->identity.name);
    snprintf(row->batch, sizeof row->batch, "%s", upload_batch(request->upload));
    snprintf(row->name, sizeof row->name, "%s", upload_file_name(request->upload));
    row->created = job_clock();
    row->megapixels = (double)r->in_info.width * r->in_info.height / 1e6;
    struct restoration *sized = (struct restoration *)r;
    if (!pipeline_check_size(sized, fleet_checks(request), models, &ignored) &&
        !worker_pool_estimate(request->server->pool, r, models, -1, row->client, row->low, estimate, &ignored))
        row->seconds = estimate->device_seconds;
    else
        *estimate = (struct estimate){0};
    row->output_bytes = keeper_output_estimate(r);
    row->options = record_options(r);
    if (keeper_cluster(request->server->keeper))
        row->needs = record_needs(r);
    return row->options ? OK : error_set(err, ERROR_NO_MEMORY, "no memory for a job");
}

static enum MHD_Result route_jobs_count_key(void *context, enum MHD_ValueKind kind, const char *name, const char *value)
{
    (void)kind, (void)value;
    *(int *)context += !strcasecmp(name, "Idempotency-Key");
    return MHD_YES;
}

/* The key that makes a repeated request the same job: printable ASCII. */
static enum error_code route_jobs_key(const struct request *request, char out[KEEPER_KEY_MAX], struct error *err)
{
    const char *key = router_header(request, "Idempotency-Key");
    if (!key)
        return OK;
    int keys = 0;
    MHD_get_connection_values(request->connection, MHD_HEADER_KIND, route_jobs_count_key, &keys);
    if (keys > 1)
        return error_set(err, ERROR_INVALID, "Idempotency-Key: sent more than once; once is allowed");
    const size_t size = strlen(key);
    bool plain = size && size < KEEPER_KEY_MAX;
    for (size_t i = 0; plain && i < size; i++)
        plain = key[i] >= 0x20 && key[i] < 0x7f;
    if (!plain)
        return error_set(err, ERROR_INVALID, "Idempotency-Key: 1 to %d printable ASCII characters are allowed",
                         KEEPER_KEY_MAX - 1);
    memcpy(out, key, size + 1);
    return OK;
}

bool route_jobs_repeated(const struct request *request, const char *client)
{
    struct error ignored = ERROR_INIT; /* a wrong key is refused when the request has come */
    char key[KEEPER_KEY_MAX] = "";
    bool found = false;
    if (!request->server->keeper || route_jobs_key(request, key, &ignored) || !*key)
        return false;
    return !store_has_key(keeper_store(request->server->keeper), client, key, &found, &ignored) && found;
}

/* Refuses what can hardly be done before its deadline. */
static enum error_code route_jobs_in_time(struct request *request, const struct store_job *row,
                                          const struct estimate *estimate, struct error *err)
{
    struct error ignored = ERROR_INIT; /* the keeper will meet it */
    double stored = 0;
    if (request->repeated)
        return OK;
    (void)!store_ahead_of_new(keeper_store(request->server->keeper), row->client, row->low, &stored, &ignored);
    return worker_pool_in_time(request->server->pool, estimate, stored, err);
}

/* It is refused before the keeper has seen it. */
static enum MHD_Result route_jobs_refuse(struct request *request, const struct estimate *estimate,
                                         const struct error *err)
{
    struct metrics *metrics = request->server->metrics;
    char seconds[16];
    quota_give_back(request);
    if (err->code == ERROR_BUSY) {
        metrics_rejected(metrics, REJECTED_QUEUE_FULL);
        snprintf(seconds, sizeof seconds, "%d", worker_pool_retry_after(request->server->pool));
        return reply_problem(request, REPLY_QUEUE_FULL, err, NULL, MHD_HTTP_HEADER_RETRY_AFTER, seconds);
    }
    if (err->code != ERROR_TOO_SLOW)
        return route_jobs_fail(request, reply_for(err->code), err);
    metrics_rejected(metrics, REJECTED_TOO_SLOW);
    return reply_problem(request, reply_for(err->code), err,
                         json_pack("{s:f, s:I}", "estimate_seconds", estimate->seconds, "limit_seconds",
                                   (json_int_t)request->server->config->job_seconds),
                         NULL, NULL);
}

enum MHD_Result route_jobs_submit(struct request *request, const struct restoration *r, struct body *body)
{
    return route_jobs_submit_as(request, r, body, NULL, NULL);
}

enum MHD_Result route_jobs_submit_as(struct request *request, const struct restoration *r, struct body *body,
                                     const char *id, const char *hook)
{
    struct estimate estimate = {0};
    struct error err = ERROR_INIT;
    if (!route_jobs_there(request, &err))
        return route_jobs_fail(request, REPLY_UNAVAILABLE, &err);
    struct keeper_ticket *ticket = route_jobs_ticket(request, KEEPER_ACCEPT);
    if (!ticket)
        error_set(&err, ERROR_NO_MEMORY, "no memory for a job");
    else if ((id || !route_jobs_key(request, ticket->key, &err)) &&
             !route_jobs_describe(request, &ticket->job, r, &estimate, &err))
        (void)!route_jobs_in_time(request, &ticket->job, &estimate, &err);
    if (ticket && id) {
        snprintf(ticket->job.id, sizeof ticket->job.id, "%s", id);
        snprintf(ticket->key, sizeof ticket->key, "%s", id); /* of two at once, one is the other */
    }
    if (ticket && hook && !(ticket->hook = strdup(hook)))
        error_set(&err, ERROR_NO_MEMORY, "no memory for a job");
    if (err.code) {
        route_jobs_forget(request);
        return route_jobs_refuse(request, &estimate, &err);
    }
    ticket->body = *body;
    *body = (struct body){0};
    ticket->most = request->repeated ? 0 : request->identity.jobs;
    return route_jobs_ask(request);
}

/* A job as it is now. */
static enum MHD_Result route_jobs_show(struct request *request, const char *id, enum reply reply)
{
    struct error err = ERROR_INIT;
    struct keeper_view view;
    const char *token = route_jobs_token(request);
    enum error_code code = keeper_look(request->server->keeper, id, &view, &err);
    if (!code && token && strcmp(token, view.job.token) != 0) {
        keeper_view_clear(&view);
        code = ERROR_NOT_FOUND;
    }
    if (code)
        return code == ERROR_NOT_FOUND ? route_jobs_missing(request, id)
                                       : route_jobs_fail(request, reply_for(code), &err);
    char location[64];
    size_t size = 0;
    snprintf(location, sizeof location, "/v1/jobs/%s", view.job.id);
    char *text = reply_dump(job_json(request, &view), &size);
    keeper_view_clear(&view);
    struct MHD_Response *response = text ? MHD_create_response_from_buffer(size, text, MHD_RESPMEM_MUST_FREE) : NULL;
    if (!response) {
        free(text);
        return MHD_NO;
    }
    request->answer_bytes = size;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    if (reply == REPLY_ACCEPTED) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_LOCATION, location);
        MHD_add_response_header(response, "Preference-Applied", "respond-async");
    }
    return reply_send(request, reply, response, "application/json");
}

enum MHD_Result route_jobs_accepted(struct request *request)
{
    struct keeper_ticket *ticket = request->ticket;
    struct error err = ticket->err;
    char id[33], seconds[16];
    connection_sending(request->link);
    if (err.code || ticket->inserted != STORE_NEW)
        quota_give_back(request);
    if (ticket->over) {
        error_clear(&err);
        const enum reply reply = quota_too_many_jobs(request, &err);
        snprintf(seconds, sizeof seconds, "%d", worker_pool_retry_after(request->server->pool));
        return reply_problem(request, reply, &err, NULL, MHD_HTTP_HEADER_RETRY_AFTER, seconds);
    }
    if (err.code == ERROR_BUSY) {
        metrics_rejected(request->server->metrics, REJECTED_QUEUE_FULL);
        snprintf(seconds, sizeof seconds, "%d", worker_pool_retry_after(request->server->pool));
        return reply_problem(request, REPLY_QUEUE_FULL, &err, NULL, MHD_HTTP_HEADER_RETRY_AFTER, seconds);
    }
    if (err.code == ERROR_FULL)
        metrics_rejected(request->server->metrics, REJECTED_FULL);
    if (err.code)
        return route_jobs_fail(request, reply_for(err.code), &err);
    if (ticket->inserted == STORE_OTHER) {
        error_set(&err, ERROR_INVALID,
                  "Idempotency-Key: the job %s has this key, and its picture or options are different", ticket->job.id);
        return route_jobs_fail(request, REPLY_UNPROCESSABLE, &err);
    }
    memcpy(id, ticket->job.id, sizeof id);
    return route_jobs_show(request, id, REPLY_ACCEPTED);
}

/* --- one job -------------------------------------------------------------------------------------------------------
 */

enum MHD_Result route_job(struct request *request)
{
    struct error err = ERROR_INIT;
    if (!route_jobs_there(request, &err))
        return route_jobs_fail(request, REPLY_UNAVAILABLE, &err);
    return route_jobs_show(request, request->parts.id, REPLY_OK);
}

bool route_job_find(struct request *request, struct store_job *row, enum MHD_Result *result)
{
    struct error err = ERROR_INIT;
    const char *token = route_jobs_token(request), *id = request->parts.id;
    if (!route_jobs_there(request, &err)) {
        *result = route_jobs_fail(request, REPLY_UNAVAILABLE, &err);
        return false;
    }
    struct keeper_view view;
    enum error_code code = keeper_look(request->server->keeper, id, &view, &err);
    *row = view.job;
    if (!code && (!token || !strcmp(token, row->token)))
        return true;
    store_job_clear(row);
    *result = code && code != ERROR_NOT_FOUND ? route_jobs_fail(request, reply_for(code), &err)
                                              : route_jobs_missing(request, id);
    return false;
}

enum MHD_Result route_job_delete(struct request *request)
{
    struct keeper_ticket *ticket = request->ticket;
    enum MHD_Result result;
    if (!ticket) {
        struct store_job row;
        if (!route_job_find(request, &row, &result))
            return result;
        if ((ticket = route_jobs_ticket(request, KEEPER_CANCEL)))
            memcpy(ticket->job.id, row.id, sizeof row.id);
        store_job_clear(&row);
        return ticket ? route_jobs_ask(request) : MHD_NO;
    }
    connection_sending(request->link);
    if (ticket->err.code)
        return route_jobs_fail(
            request, ticket->err.code == ERROR_NOT_FOUND ? REPLY_NOT_FOUND : reply_for(ticket->err.code), &ticket->err);
    if (ticket->before <= STORE_RUNNING)
        return route_jobs_show(request, request->parts.id, REPLY_OK);
    return reply_send(request, REPLY_NO_CONTENT, MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT),
                      NULL);
}

/* --- its pictures --------------------------------------------------------------------------------------------------
 */

/* Which picture of a job: the result (face negative), or one of a face. */
struct job_picture {
    int face;
    const char *kind;
};

/* What is added to the name of the file that a client saves it in: as on the command line. */
static void route_job_tail(const struct store_job *row, const struct record_part *part, char tail[JOB_JSON_TAIL_MAX])
{
    char suffix[OPTION_NAME_MAX];
    job_json_suffix(row, suffix);
    if (!strcmp(part->kind, "result"))
        snprintf(tail, JOB_JSON_TAIL_MAX, "%s", suffix);
    else if (!strcmp(part->kind, "mask"))
        snprintf(tail, JOB_JSON_TAIL_MAX, "mask");
    else if (!strcmp(part->kind, "crop"))
        snprintf(tail, JOB_JSON_TAIL_MAX, "%02d", part->number);
    else
        snprintf(tail, JOB_JSON_TAIL_MAX, "%02d%s%s", part->number, *suffix ? "_" : "", suffix);
}

/* Its file is not there: the job has just expired or been forgotten, or somebody has removed the file. */
static enum MHD_Result route_job_lost(struct request *request, const char *id)
{
    struct error err = ERROR_INIT;
    struct store_job row;
    bool found;
    const enum error_code code = store_get(keeper_store(request->server->keeper), id, &row, &found, &err);
    store_job_clear(&row);
    if (code)
        return route_jobs_fail(request, reply_for(code), &err);
    if (!found)
        return route_jobs_missing(request, id);
    error_set(&err, ERROR_INTERNAL,
              "the result of this job is lost: its file is not in the spool any more; send the picture again");
    return route_jobs_fail(request, REPLY_INTERNAL, &err);
}

static enum MHD_Result route_job_send(struct request *request, const struct store_job *row,
                                      const struct record_part *part)
{
    struct error err = ERROR_INIT;
    struct keeper_ticket *ticket = request->ticket;
    uint64_t bytes = 0;
    int fd = -1;
    const uint64_t size = part->size, offset = part->offset;
    const struct depot *depot = keeper_depot(request->server->keeper);
    if (depot->payload && !ticket) /* it is fetched first */
        return route_jobs_fetch(request, row);
    if (ticket) {
        connection_sending(request->link);
        fd = ticket->fd;
        bytes = ticket->size;
        err = ticket->err;
        ticket->fd = -1;
    }
    const enum error_code code = ticket ? err.code : depot_get_output(depot, row->id, row->attempts, &fd, &bytes, &err);
    if (code == ERROR_NOT_FOUND)
        return route_job_lost(request, row->id);
    if (code)
        return route_jobs_fail(request, reply_for(code), &err);
    const bool there = offset <= bytes && size <= bytes - offset;
    const char *etag = *part->etag ? part->etag : NULL;
    if (there && route_piece_wanted(request))
        return route_piece_ask(request, &(struct route_piece_source){row->id, etag, fd, offset, size});
    struct MHD_Response *response = there ? MHD_create_response_from_fd_at_offset64(size, fd, offset) : NULL;
    if (!response) {
        close(fd);
        error_set(&err, ERROR_IO, "the result of this job is damaged");
        return route_jobs_fail(request, REPLY_INTERNAL, &err);
    }
    char text[1024], tail[JOB_JSON_TAIL_MAX];
    request->answer_bytes = size;
    route_job_tail(row, part, tail);
    header_disposition(row->name, tail, part->extension, text, sizeof text);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_DISPOSITION, text);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    if (etag)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ETAG, etag);
    return reply_send(request, REPLY_OK, response, part->type);
}

static enum MHD_Result route_job_picture(struct request *request, const struct job_picture *picture)
{
    struct store_job row;
    enum MHD_Result result;
    struct error err = ERROR_INIT;
    if (!route_job_find(request, &row, &result))
        return result;
    struct record_part part;
    const bool found = record_part(row.parts, picture->kind, picture->face, &part);
    if (row.state != STORE_DONE) {
        static const char *const texts[] = {"the job waits; it has no result yet", "the job runs; it has no result yet",
                                            [STORE_FAILED] =
                                                "the job has failed, and has no result; its error says why",
                                            [STORE_CANCELLED] = "the job was cancelled, and has no result"};
        error_set(&err, ERROR_BUSY, "%s", texts[row.state]);
        result = route_jobs_fail(request, REPLY_CONFLICT, &err);
    } else if (!found) {
        error_set(&err, ERROR_NOT_FOUND,
                  picture->face < 0 ? strcmp(picture->kind, "mask") ? "this job makes no picture"
                                                                    : "nothing was filled, so there is no mask"
                                    : "there is no such picture of a face; faces_out=true keeps them");
        result = route_jobs_fail(request, REPLY_NOT_FOUND, &err);
    } else {
        result = route_job_send(request, &row, &part);
    }
    store_job_clear(&row);
    return result;
}

enum MHD_Result route_job_result(struct request *request)
{
    if (request->piece)
        return route_piece_answer(request);
    return route_job_picture(request, &(struct job_picture){.face = -1, .kind = "result"});
}

enum MHD_Result route_job_mask(struct request *request)
{
    return route_job_picture(request, &(struct job_picture){.face = -1, .kind = "mask"});
}

enum MHD_Result route_job_face(struct request *request)
{
    struct error err = ERROR_INIT;
    char *end;
    const long face = strtol(request->parts.number, &end, 10);
    const char *kind = MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, "kind");
    kind = kind ? kind : "restored";
    if (!isdigit((unsigned char)request->parts.number[0]) || *end || face > INT_MAX) {
        error_set(&err, ERROR_NOT_FOUND, "there is nothing at this path");
        return route_jobs_fail(request, REPLY_NOT_FOUND, &err);
    }
    if (strcmp(kind, "restored") != 0 && strcmp(kind, "crop") != 0) {
        error_set(&err, ERROR_INVALID, "kind: \"%.60s\" is not allowed; allowed: crop or restored", kind);
        return route_jobs_fail(request, REPLY_BAD_REQUEST, &err);
    }
    return route_job_picture(request, &(struct job_picture){.face = (int)face, .kind = kind});
}

/* --- lists ---------------------------------------------------------------------------------------------------------
 */

struct job_list {
    struct store_filter filter;
    char batch[UPLOAD_BATCH_MAX];
    struct error err;
    json_t *jobs;
    char last[33];
};

/* "queued,running" as bits; 0: not a list of states. */
static unsigned job_list_states(const char *value)
{
    unsigned states = 0;
    while (*value) {
        const size_t size = strcspn(value, ",");
        int state = 0;
        while (state < STORE_STATES && (strncmp(job_json_state((enum store_state)state), value, size) != 0 ||
                                        strlen(job_json_state((enum store_state)state)) != size))
            state++;
        if (state == STORE_STATES)
            return 0;
        states |= 1u << state;
        value += size + (value[size] == ',');
    }
    return states;
}

static enum MHD_Result job_list_argument(void *context, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct job_list *list = context;
    struct store_filter *filter = &list->filter;
    const char *allowed = "a job's id";
    char range[32];
    bool right;
    (void)kind;
    value = value ? value : "";
    if (!strcmp(name, "limit")) {
        char *end;
        const long limit = isdigit((unsigned char)*value) ? strtol(value, &end, 10) : 0;
        snprintf(range, sizeof range, "1 to %d", ROUTE_JOBS_MOST);
        allowed = range;
        right = limit >= 1 && limit <= ROUTE_JOBS_MOST && !*end;
        filter->limit = right ? (int)limit : 0;
    } else if (!strcmp(name, "state")) {
        allowed = "some of queued, running, done, failed, cancelled, with commas between";
        right = (filter->states = job_list_states(value));
    } else if (!strcmp(name, "batch")) {
        allowed = "a batch's name";
        right = upload_is_batch(value);
        snprintf(list->batch, sizeof list->batch, "%s", value);
        filter->batch = list->batch;
    } else if (!strcmp(name, "since")) {
        allowed = "a time such as 2026-01-31T12:00:00Z";
        right = (filter->since = job_json_read_time(value)) >= 0;
    } else {
        right = strlen(value) == 32;
        memcpy(filter->after, value, right ? sizeof filter->after : 0);
    }
    if (!right)
        error_set(&list->err, ERROR_INVALID, "%s: \"%.60s\" is not allowed; allowed: %s", name, value, allowed);
    return right ? MHD_YES : MHD_NO;
}

static void job_list_add(void *context, const struct store_job *row)
{
    struct job_list *list = context;
    json_array_append_new(list->jobs, job_json_row(row));
    snprintf(list->last, sizeof list->last, "%s", row->id);
}

/* The path of the next page: the same filters, behind the last job. */
static json_t *job_list_next(const struct job_list *list)
{
    const struct store_filter *filter = &list->filter;
    char path[400];
    int n = snprintf(path, sizeof path, "/v1/jobs?limit=%d", filter->limit);
    for (int state = 0, count = 0; state < STORE_STATES; state++)
        if (filter->states >> state & 1)
            n += snprintf(path + n, sizeof path - (size_t)n, "%s%s",
                          count++ ? "," : "&state=", job_json_state((enum store_state)state));
    if (filter->batch)
        n += snprintf(path + n, sizeof path - (size_t)n, "&batch=%s", filter->batch);
    json_t *since = job_json_time(filter->since);
    if (json_is_string(since))
        n += snprintf(path + n, sizeof path - (size_t)n, "&since=%s", json_string_value(since));
    json_decref(since);
    snprintf(path + n, sizeof path - (size_t)n, "&after=%s", list->last);
    return json_string(path);
}

enum MHD_Result route_jobs(struct request *request)
{
    struct job_list list = {.filter = {.limit = LIST_USUAL, .token = route_jobs_token(request)}};
    bool more = false;
    if (!route_jobs_there(request, &list.err))
        return route_jobs_fail(request, REPLY_UNAVAILABLE, &list.err);
    MHD_get_connection_values(request->connection, MHD_GET_ARGUMENT_KIND, job_list_argument, &list);
    if (list.err.code)
        return route_jobs_fail(request, REPLY_BAD_REQUEST, &list.err);
    list.jobs = json_array();
    if (keeper_look_list(request->server->keeper, &list.filter, job_list_add, &list, &more, &list.err)) {
        json_decref(list.jobs);
        return route_jobs_fail(request, reply_for(list.err.code), &list.err);
    }
    return reply_json(request, REPLY_OK,
                      json_pack("{s:o, s:o}", "jobs", list.jobs, "next", more ? job_list_next(&list) : json_null()));
}
