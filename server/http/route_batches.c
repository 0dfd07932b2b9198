/* /v1/batches: the jobs of a batch together. */
#include <stdio.h>
#include <string.h>

#include "server/http/batch_zip.h"
#include "server/http/job_json.h"
#include "server/http/route_jobs.h"
#include "server/http/router.h"

static enum MHD_Result route_batch_show(struct request *request, struct error *err)
{
    struct store_counts counts;
    const char *name = request->parts.id;
    uint64_t total = 0;
    if (!upload_is_batch(name) ||
        keeper_look_count(request->server->keeper, name, route_jobs_token(request), &counts, err))
        return route_jobs_fail(request, err->code ? reply_for(err->code) : REPLY_NOT_FOUND, err);
    for (int state = 0; state < STORE_STATES; state++)
        total += counts.jobs[state];
    if (!total) {
        error_set(err, ERROR_NOT_FOUND, "there is no batch of this name");
        return route_jobs_fail(request, REPLY_NOT_FOUND, err);
    }
    const uint64_t ended = total - counts.jobs[STORE_QUEUED] - counts.jobs[STORE_RUNNING];
    const double seconds = worker_pool_seconds(request->server->pool, counts.seconds_queued);
    json_t *json = json_pack("{s:s, s:I, s:f, s:o}", "batch", name, "jobs", (json_int_t)total, "progress",
                             (double)ended / (double)total, "eta_seconds",
                             ended < total ? json_real(job_json_round(seconds)) : json_null());
    for (int state = 0; state < STORE_STATES; state++)
        json_object_set_new(json, job_json_state((enum store_state)state),
                            json_integer((json_int_t)counts.jobs[state]));
    char path[160];
    char zip[160];
    snprintf(path, sizeof path, "/v1/jobs?batch=%s", name);
    snprintf(zip, sizeof zip, "/v1/batches/%s/results.zip", name);
    json_object_set_new(json, "links", json_pack("{s:s, s:s}", "jobs", path, "results", zip));
    return reply_json(request, REPLY_OK, json);
}

enum MHD_Result route_batch(struct request *request)
{
    struct error err = ERROR_INIT;
    if (!route_jobs_there(request, &err))
        return route_jobs_fail(request, REPLY_UNAVAILABLE, &err);
    return route_batch_show(request, &err);
}

enum MHD_Result route_batch_delete(struct request *request)
{
    struct error err = ERROR_INIT;
    struct keeper_ticket *ticket = request->ticket;
    const char *token = route_jobs_token(request);
    if (!route_jobs_there(request, &err))
        return route_jobs_fail(request, REPLY_UNAVAILABLE, &err);
    if (!ticket) {
        if (!upload_is_batch(request->parts.id)) {
            error_set(&err, ERROR_NOT_FOUND, "there is no batch of this name");
            return route_jobs_fail(request, REPLY_NOT_FOUND, &err);
        }
        if (!(ticket = route_jobs_ticket(request, KEEPER_CANCEL_BATCH)))
            return MHD_NO;
        snprintf(ticket->job.batch, sizeof ticket->job.batch, "%s", request->parts.id);
        snprintf(ticket->job.token, sizeof ticket->job.token, "%s", token ? token : "");
        return route_jobs_ask(request);
    }
    connection_sending(request->link);
    if (ticket->err.code)
        return route_jobs_fail(request, reply_for(ticket->err.code), &ticket->err);
    return route_batch_show(request, &err);
}

/* What the archive is saved as: the page makes its batches' names of random numbers, which tell nobody anything. */
static const char *route_batch_title(const char *name)
{
    return job_json_is_page(name) ? "restored" : name;
}

enum MHD_Result route_batch_results(struct request *request)
{
    struct error err = ERROR_INIT;
    const char *name = request->parts.id;
    char text[128];
    if (!route_jobs_there(request, &err))
        return route_jobs_fail(request, REPLY_UNAVAILABLE, &err);
    struct MHD_Response *response =
        upload_is_batch(name) ? batch_zip_response(request, name, route_jobs_token(request), &err) : NULL;
    if (!response) {
        error_set(&err, ERROR_NOT_FOUND, "there is no batch of this name with results");
        return route_jobs_fail(request, err.code == ERROR_NOT_FOUND ? REPLY_NOT_FOUND : reply_for(err.code), &err);
    }
    snprintf(text, sizeof text, "attachment; filename=\"%s.zip\"", route_batch_title(name));
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_DISPOSITION, text);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    return reply_send(request, REPLY_OK, response, "application/zip");
}
