/* The form of cog, in which Replicate's models are served: predictions. The protocol is that of its docs/http.md; the
 * inputs are those of the predictors that GFPGAN and Real-ESRGAN publish (cog_predict.py), and of their namesakes
 * there. A prediction that is waited for is a job of its connection; one that is not (Prefer: respond-async) is a
 * stored job, whose id is made of the prediction's. */
#include <math.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/mem.h"
#include "server/compat/cog.h"
#include "server/compat/cog_input.h"
#include "server/compat/compat.h"
#include "server/compat/fetch.h"
#include "server/compat/hooks.h"
#include "server/compat/intake.h"
#include "server/http/job_json.h"
#include "server/http/quota.h"
#include "server/http/route_jobs.h"
#include "server/http/server.h"
#include "server/http/submit.h"
#include "server/image/codec.h"
#include "server/job/keeper_look.h"
#include "server/version.h"

#define COG_ID_MAX 64 /* with its final 0 */

/* A request for a prediction. */
struct cog {
    struct compat base;
    struct intake *intake;
    struct cog_input input;
    char id[COG_ID_MAX];
    int64_t created;
    bool async;
    struct hook_trace trace;
    struct fetch *fetch; /* the picture is at an address; NULL: it is in the body */
};

/* --- predictions that are stored -----------------------------------------------------------------------------------
 */

/* Whether it may be an id: it is in paths. */
static bool cog_is_id(const char *id)
{
    const size_t size = strlen(id);
    return size && size < COG_ID_MAX &&
           strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == size;
}

/* The id of the job that a prediction of this token is. */
static void cog_job_id(const char *token, const char *id, char out[33])
{
    struct sha256_ctx hash;
    uint8_t digest[16];
    sha256_init(&hash);
    sha256_update(&hash, 4, (const uint8_t *)"cog");
    sha256_update(&hash, strlen(token) + 1, (const uint8_t *)token);
    sha256_update(&hash, strlen(id), (const uint8_t *)id);
    sha256_digest(&hash, sizeof digest, digest);
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

static json_t *cog_short(const char *id, const char *status)
{
    return json_pack("{s:s, s:s}", "id", id, "status", status);
}

/* The stored prediction of that id, answered; false: there is none. */
static bool cog_show(struct request *request, const char *id, bool created, enum MHD_Result *result)
{
    struct keeper *keeper = request->server->keeper;
    struct keeper_view view;
    struct error err = ERROR_INIT;
    char job[33];
    cog_job_id(request->identity.name, id, job);
    if (!keeper || keeper_look(keeper, job, &view, &err))
        return false;
    const bool ended = view.job.state > STORE_RUNNING && !view.waits.code;
    struct keeper_ticket *ticket = request->ticket;
    if (ended && view.job.state == STORE_DONE && keeper_depot(keeper)->payload && !ticket) { /* it is elsewhere */
        *result =
            created ? reply_json(request, REPLY_OK, cog_short(id, "succeeded")) : route_jobs_fetch(request, &view.job);
        keeper_view_clear(&view);
        return true;
    }
    int fd = -1;
    if (ticket) {
        connection_sending(request->link);
        fd = ticket->err.code ? COG_LOST : ticket->fd; /* it is not fetched on this thread */
        ticket->fd = -1;
        if (ticket->err.code && ticket->err.code != ERROR_NOT_FOUND) {
            keeper_view_clear(&view);
            *result = submit_refuse(request, reply_for(ticket->err.code), 0, &ticket->err);
            return true;
        }
    }
    *result =
        compat_send_text(request, ended || !created ? REPLY_OK : REPLY_ACCEPTED, cog_prediction(keeper, id, &view, fd));
    keeper_view_clear(&view);
    return true;
}

/* --- a request -----------------------------------------------------------------------------------------------------
 */

/* An id in flight, or stored: its state is the answer. */
static bool cog_join(struct request *request, const char *id, enum MHD_Result *result)
{
    struct compat_state state;
    if (cog_show(request, id, true, result))
        return true;
    if (!compat_look(request, id, &state))
        return false;
    *result = reply_json(request, REPLY_ACCEPTED, cog_short(id, "processing"));
    return true;
}

/* The prediction of this connection has ended like that. */
static enum MHD_Result cog_end(struct request *request, const char *status, const char *error)
{
    struct cog *cog = request->reading;
    const bool done = !strcmp(status, "succeeded");
    const struct job *job = request->job;
    const int64_t begun = job ? atomic_load(&job->begun_ms) : 0;
    char before[80] = "";
    if (done)
        snprintf(before, sizeof before, "data:%s;base64,", compat_type(&cog->base, 0));
    const double seconds = job && job->started_ns ? (double)(job_now() - job->started_ns) / 1e9 : 0;
    return compat_send(request, REPLY_OK,
                       json_pack("{s:s, s:s, s:o, s:o, s:o, s:{s:f}, s:o, s:o, s:o}", "id", cog->id, "status", status,
                                 "output", done ? compat_mark(0, before) : json_null(), "error",
                                 error ? json_string(error) : json_null(), "logs",
                                 cog_logs(done ? cog->base.notes : NULL), "metrics", "predict_time", seconds,
                                 "created_at", job_json_time(cog->created), "started_at", job_json_time(begun),
                                 "completed_at", job_json_time(job_clock())));
}

/* What is wrong with the picture is the prediction's failure; the rest is the server's. */
static enum MHD_Result cog_fail(struct request *request, enum reply reply, int wait, const struct error *err)
{
    struct cog *cog = request->reading;
    char text[sizeof err->text];
    const bool known = cog->base.count && (reply == REPLY_UNSUPPORTED || reply == REPLY_UNPROCESSABLE ||
                                           reply == REPLY_INTERNAL || reply == REPLY_TIMEOUT);
    if (known && err->code != ERROR_INVALID)
        return cog_end(request, "failed", reply_sentence(text, request, err));
    if (reply == REPLY_QUEUE_FULL)
        return reply_json(request, REPLY_CONFLICT,
                          json_pack("{s:s, s:s, s:s}", "error", "At capacity - all prediction slots busy", "detail",
                                    reply_sentence(text, request, err), "status", "failed"));
    return submit_refuse(request, reply, wait, err);
}

/* Sends the job to the keeper, which answers for it. */
static enum error_code cog_store(struct request *request, struct cog *cog, struct error *err)
{
    struct compat_picture *picture = &cog->base.pictures[0];
    struct restoration *r = NULL;
    char id[33];
    int wait = 0;
    if (restoration_create(&r, err))
        return err->code;
    r->limits = server_limits(request->server->config);
    r->elsewhere = !reply_is_near(request);
    cog_input_neutral(&r->options);
    enum reply reply = submit_check(request, r, &picture->body, err);
    if (reply == REPLY_OK && cog_input_plan(&cog->input, r->in_info.width, r->in_info.height, &r->options, err))
        reply = REPLY_UNPROCESSABLE;
    if (reply == REPLY_OK)
        reply = submit_check(request, r, &picture->body, err);
    if (reply == REPLY_OK)
        reply = submit_charge(request, r, &wait, err);
    cog_job_id(request->identity.name, cog->id, id);
    char *hook = reply == REPLY_OK && *cog->input.hook.url ? hooks_text(&cog->input.hook, cog->id) : NULL;
    if (reply == REPLY_OK && *cog->input.hook.url && !hook) {
        error_set(err, ERROR_NO_MEMORY, "no memory for a webhook");
        reply = reply_for(err->code);
    }
    if (reply != REPLY_OK)
        (void)cog_fail(request, reply, wait, err);
    else
        (void)route_jobs_submit_as(request, r, &picture->body, id, hook);
    free(hook);
    restoration_destroy(&r);
    return OK; /* it is answered, or will be */
}

/* The picture is at an address. */
static enum error_code cog_read_address(struct request *request, struct cog *cog, const char *url, struct error *err)
{
    struct error why = ERROR_INIT;
    if (fetch_check(request->server->config, url, &why))
        return error_set(err, ERROR_INVALID, "%s: %s", cog->input.file_name, why.text);
    cog->fetch = mem_calloc(1, sizeof *cog->fetch);
    if (!cog->fetch)
        return error_set(err, ERROR_NO_MEMORY, "no memory for a request");
    snprintf(cog->fetch->url, sizeof cog->fetch->url, "%s", url);
    cog->fetch->body.spool = request->server->spool;
    return OK;
}

static enum error_code cog_read(struct request *request, struct cog *cog, struct error *err)
{
    json_t *json = NULL;
    enum error_code code = intake_finish(cog->intake, &json, err);
    const json_t *id = json_object_get(json, "id"), *file = NULL;
    const char *text = json_string_value(id), *path = request->parts.id;
    if (!code && *path && text && strcmp(text, path) != 0)
        code = error_set(err, ERROR_INVALID, "id: it is another than that of the path");
    if (!code && (text || (id && !json_is_null(id))) && !(text && cog_is_id(text)))
        code = error_set(err, ERROR_INVALID, "id: it has 1 to %d letters, digits, - and _", COG_ID_MAX - 1);
    json_t *models = code ? NULL : compat_models(request);
    if (!code)
        code = cog_input_read(&cog->input, models, json_object_get(json, "input"), &file, err);
    json_decref(models);
    if (!code)
        code = hooks_read(request->server->config, json, &cog->input.hook, err);
    cog->input.hook.trace = cog->trace;
    if (!code && *cog->input.hook.url && !cog->async)
        code = error_set(err, ERROR_INVALID,
                         "webhook: it is for predictions that are not waited for; send the header "
                         "\"Prefer: respond-async\"");
    struct compat_picture *picture = code ? NULL : compat_add(&cog->base, request->server->spool, err);
    const bool address =
        !code && json_is_string(file) && intake_is_address(json_string_value(file), json_string_length(file));
    if (!code && !picture)
        code = err->code;
    else if (!code)
        code = address ? cog_read_address(request, cog, json_string_value(file), err)
                       : intake_file(cog->intake, file, cog->input.file_name, &picture->body, err);
    if (!code && !address && !picture->body.size)
        code = error_set(err, ERROR_INVALID, "%s: the picture is empty", cog->input.file_name);
    if (*path)
        snprintf(cog->id, sizeof cog->id, "%s", path);
    else if (text && !code)
        snprintf(cog->id, sizeof cog->id, "%s", text);
    else
        job_make_id(cog->id);
    json_decref(json);
    return code;
}

static void cog_resume(void *connection)
{
    MHD_resume_connection(connection);
}

/* Fetches the picture while the connection is suspended; cog_prepare goes on then. */
static void cog_fetch(struct request *request, struct cog *cog)
{
    struct error why = ERROR_INIT;
    cog->fetch->done = cog_resume;
    cog->fetch->context = request->connection;
    cog->base.waits = true;
    connection_holding(request->link);
    MHD_suspend_connection(request->connection);
    if (fetch_begin(request->server, cog->fetch, &why)) {
        cog->fetch->err = why;
        MHD_resume_connection(request->connection);
    }
}

/* The picture has come, or not: that is the prediction's failure, unless it is the server's. */
static enum error_code cog_fetched(struct request *request, struct cog *cog, struct error *err)
{
    struct fetch *fetch = cog->fetch;
    cog->base.waits = false;
    connection_sending(request->link);
    if (fetch->err.code == ERROR_INVALID || fetch->err.code == ERROR_TOO_LARGE) {
        error_set(err, fetch->err.code, "%s: %s", cog->input.file_name, fetch->err.text);
        (void)cog_end(request, "failed", err->text);
        error_clear(err);
        return OK;
    }
    if (fetch->err.code) {
        *err = fetch->err;
        return err->code;
    }
    cog->base.pictures[0].body = fetch->body;
    fetch->body = (struct body){0};
    return cog->async ? cog_store(request, cog, err) : OK;
}

static enum error_code cog_prepare(struct request *request, struct error *err)
{
    struct cog *cog = request->reading;
    enum MHD_Result result;
    if (cog->base.waits)
        return cog_fetched(request, cog, err);
    const enum error_code code = cog_read(request, cog, err);
    if (code)
        return code;
    if (cog_join(request, cog->id, &result))
        return OK;
    if (cog->async && !route_jobs_there(request, err)) {
        (void)submit_refuse(request, REPLY_UNAVAILABLE, 0, err);
        error_clear(err);
        return OK;
    }
    if (!cog->async && !compat_name(request, cog->id)) {
        (void)reply_json(request, REPLY_ACCEPTED, cog_short(cog->id, "processing"));
        return OK;
    }
    if (!cog->async) /* where its front end is gone another one shows it */
        cog_job_id(request->identity.name, cog->id, cog->base.job_id);
    if (cog->fetch) {
        cog_fetch(request, cog);
        return OK;
    }
    return cog->async ? cog_store(request, cog, err) : OK;
}

static enum error_code cog_plan(struct request *request, struct compat_picture *picture, const struct restoration *r,
                                struct error *err)
{
    const struct cog *cog = request->reading;
    struct compat_pass *pass = compat_add_pass(picture, err);
    return pass ? cog_input_plan(&cog->input, r->in_info.width, r->in_info.height, &pass->options, err) : err->code;
}

static enum MHD_Result cog_done(struct request *request)
{
    struct cog *cog = request->reading;
    return cog->base.at ? cog_end(request, "succeeded", NULL) : cog_end(request, "canceled", NULL);
}

static enum error_code cog_feed(void *context, const char *data, size_t size, struct error *err)
{
    return intake_feed(((struct cog *)context)->intake, data, size, err);
}

static void cog_destroy(void *context)
{
    struct cog *cog = context;
    compat_clear(&cog->base);
    intake_destroy(&cog->intake);
    if (cog->fetch)
        body_clear(&cog->fetch->body);
    free(cog->fetch);
    free(cog);
}

static const struct request_reader cog_reader = {cog_feed, cog_destroy, REPLY_UNPROCESSABLE};

static enum MHD_Result cog_begin(struct request *request)
{
    struct error err = ERROR_INIT;
    struct cog *cog = mem_calloc(1, sizeof *cog);
    const char *prefer = router_header(request, "Prefer"), *accept = router_header(request, MHD_HTTP_HEADER_ACCEPT);
    if (!cog)
        return MHD_NO;
    cog->base.prepare = cog_prepare;
    cog->base.plan = cog_plan;
    cog->base.answer = cog_done;
    cog->base.fail = cog_fail;
    cog->async = prefer && !strcmp(prefer, "respond-async");
    hooks_trace(&cog->trace, router_header(request, "traceparent"), router_header(request, "tracestate"));
    cog->base.stored = cog->async;
    cog->base.more = *request->server->config->fetch_origins ? request->server->config->body_limit : 0;
    cog->created = job_clock();
    enum reply reply = REPLY_OK;
    if (*request->parts.id && !cog_is_id(request->parts.id)) {
        error_set(&err, ERROR_INVALID, "id: it has 1 to %d letters, digits, - and _", COG_ID_MAX - 1);
        reply = REPLY_UNPROCESSABLE;
    } else if (accept && !strcasecmp(accept, "text/event-stream")) {
        error_set(&err, ERROR_INVALID, "a prediction has one output, and no stream of them");
        reply = REPLY_NOT_ACCEPTABLE;
    } else if (intake_create(&cog->intake, request->server->spool, request->server->config->body_limit, &err) ||
               upload_create(&request->upload, false, 0,
                             &err)) { /* the keeper asks it for a batch, which there is none */
        reply = reply_for(err.code);
    }
    if (reply != REPLY_OK) {
        cog_destroy(cog);
        return reply_problem(request, reply, &err, NULL, NULL, NULL);
    }
    return compat_begin(request, &cog_reader, cog);
}

/* The keeper has taken it, or not. */
static enum MHD_Result cog_accepted(struct request *request)
{
    struct cog *cog = request->reading;
    const struct keeper_ticket *ticket = request->ticket;
    if (ticket->over || ticket->err.code || ticket->inserted == STORE_OTHER)
        return route_jobs_accepted(request);
    connection_sending(request->link);
    if (ticket->inserted != STORE_NEW) /* the same came at once; it has been charged */
        quota_give_back(request);
    if (ticket->inserted == STORE_NEW && *cog->input.hook.url)
        hooks_add(request->server, &cog->input.hook, ticket->job.id, cog->id);
    return reply_json(request, REPLY_ACCEPTED, cog_short(cog->id, "starting"));
}

static enum MHD_Result cog_answer(struct request *request)
{
    return request->ticket && !request->wait ? cog_accepted(request) : compat_answer(request);
}

/* --- the other routes ----------------------------------------------------------------------------------------------
 */

static enum MHD_Result cog_missing(struct request *request)
{
    struct error err = ERROR_INIT;
    error_set(&err, ERROR_NOT_FOUND, "there is no prediction %s", request->parts.id);
    return reply_problem(request, REPLY_NOT_FOUND, &err, NULL, NULL, NULL);
}

static enum MHD_Result cog_get(struct request *request)
{
    enum MHD_Result result;
    struct compat_state state;
    if (cog_show(request, request->parts.id, false, &result))
        return result;
    return compat_look(request, request->parts.id, &state)
               ? reply_json(request, REPLY_OK, cog_short(request->parts.id, "processing"))
               : cog_missing(request);
}

static enum error_code cog_ignore(void *context, const char *data, size_t size, struct error *err)
{
    (void)context, (void)data, (void)size, (void)err;
    return OK;
}

static void cog_ignored(void *context)
{
    (void)context;
}

static const struct request_reader cog_no_reader = {cog_ignore, cog_ignored, REPLY_OK};

static enum MHD_Result cog_begin_cancel(struct request *request)
{
    request->reader = &cog_no_reader;
    return MHD_YES;
}

/* Whether a stored prediction of that id has not ended. */
static bool cog_active(const struct request *request, const char *job)
{
    struct keeper_view view;
    struct error ignored = ERROR_INIT;
    if (!request->server->keeper || keeper_look(request->server->keeper, job, &view, &ignored))
        return false;
    const bool active = view.job.state <= STORE_RUNNING;
    keeper_view_clear(&view);
    return active;
}

static enum MHD_Result cog_cancel(struct request *request)
{
    char job[33];
    if (request->ticket) {
        connection_sending(request->link);
        return reply_json(request, request->ticket->err.code ? REPLY_NOT_FOUND : REPLY_OK, json_object());
    }
    if (compat_cancel(request, request->parts.id))
        return reply_json(request, REPLY_OK, json_object());
    cog_job_id(request->identity.name, request->parts.id, job);
    struct keeper_ticket *ticket = cog_active(request, job) ? route_jobs_ticket(request, KEEPER_CANCEL) : NULL;
    if (!ticket)
        return reply_json(request, REPLY_NOT_FOUND, json_object());
    memcpy(ticket->job.id, job, sizeof job);
    return route_jobs_ask(request);
}

static enum MHD_Result cog_health(struct request *request)
{
    struct error reasons[SERVER_REASONS_MAX];
    const int count = server_reasons(request->server, reasons);
    struct queue *queue = worker_pool_queue(request->server->pool);
    struct error ignored = ERROR_INIT;
    const char *status = "READY", *setup = "succeeded";
    if (queue_bounded(queue) >= queue_capacity(queue)) {
        status = "BUSY";
    } else if (count) {
        const bool ends = worker_pool_draining(request->server->pool);
        const bool starts = worker_pool_ready(request->server->pool, &ignored) == ERROR_BUSY ||
                            (!ends && reasons[0].code == ERROR_BUSY); /* the database will be back */
        status = starts ? "STARTING" : ends ? "DEFUNCT" : "SETUP_FAILED";
        setup = starts ? "starting" : ends ? setup : "failed";
    }
    char text[sizeof reasons->text];
    return reply_json(request, REPLY_OK,
                      json_pack("{s:s, s:{s:s, s:s}, s:{s:s}}", "status", status, "setup", "status", setup, "logs",
                                count ? reply_sentence(text, request, &reasons[0]) : "", "version", "restored",
                                RESTORED_VERSION));
}

static enum MHD_Result cog_index(struct request *request)
{
    return reply_json(request, REPLY_OK,
                      json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "restored_version", RESTORED_VERSION, "docs_url",
                                "/", "openapi_url", "/openapi.json", "healthcheck_url", "/health-check",
                                "predictions_url", "/predictions", "predictions_idempotent_url",
                                "/predictions/{prediction_id}", "predictions_cancel_url",
                                "/predictions/{prediction_id}/cancel"));
}

/* --- the form of its answers ---------------------------------------------------------------------------------------
 */

/* FastAPI's list of what is wrong with a body, or a sentence. */
static json_t *cog_problem(const struct request *request, enum reply reply, const struct error *err)
{
    char text[sizeof err->text];
    reply_sentence(text, request, err);
    const size_t size = strspn(text, "abcdefghijklmnopqrstuvwxyz_");
    const bool field = size && text[size] == ':' && text[size + 1] == ' ';
    if (reply_status(reply) != 422)
        return json_pack("{s:s, s:s}", "detail", text, "error", reply_code(reply, err));
    json_t *place = json_pack("[s]", "body");
    if (field && strncmp(text, "webhook", 7) != 0 && strncmp(text, "id:", 3) != 0)
        json_array_append_new(place, json_string("input"));
    if (field)
        json_array_append_new(place, json_stringn(text, size));
    return json_pack("{s:[{s:o, s:s, s:s}], s:s}", "detail", "loc", place, "msg", text, "type", "value_error", "error",
                     reply_code(reply, err));
}

static enum error_code cog_start(struct server *server, struct error *err)
{
    const enum error_code code = fetch_start(server, err);
    return code ? code : hooks_start(server, err);
}

static void cog_stop(struct server *server)
{
    hooks_stop(server);
    fetch_stop(server);
}

static const struct route cog_index_route = {"/", ROUTE_GET, NULL, cog_index, ROUTE_OPEN, NULL};
static const struct route cog_routes[] = {
    {"/predictions", ROUTE_POST, cog_begin, cog_answer, ROUTE_GUARDED, ""},
    {"/predictions/{id}", ROUTE_PUT, cog_begin, cog_answer, ROUTE_GUARDED, ""},
    {"/predictions/{id}", ROUTE_GET, NULL, cog_get, ROUTE_GUARDED, ""},
    {"/predictions/{id}/cancel", ROUTE_POST, cog_begin_cancel, cog_cancel, ROUTE_GUARDED, ""},
    {"/health-check", ROUTE_GET, NULL, cog_health, ROUTE_PROBE, NULL},
    {0},
};

const struct dialect cog_dialect = {.name = "cog",
                                    .paths = "=/predictions /predictions/ =/health-check",
                                    .routes = cog_routes,
                                    .index = &cog_index_route,
                                    .problem = cog_problem,
                                    .start = cog_start,
                                    .end = fetch_end,
                                    .stop = cog_stop,
                                    .openapi = "cog.json"};
