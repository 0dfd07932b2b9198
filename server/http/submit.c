#include "server/http/submit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/http/fleet.h"
#include "server/http/quota.h"
#include "server/http/router.h"
#include "server/job/waiting.h"

enum MHD_Result submit_refuse(struct request *request, enum reply reply, int wait, const struct error *err)
{
    char seconds[16];
    json_t *extra = NULL;
    const char *header = NULL;
    const bool waits =
        reply == REPLY_QUEUE_FULL || reply == REPLY_TOO_MANY_JOBS ||
        (reply == REPLY_UNAVAILABLE &&
         (err->code == ERROR_BUSY || (request->server->keeper && keeper_cluster(request->server->keeper))));
    if (wait || waits) {
        header = MHD_HTTP_HEADER_RETRY_AFTER;
        snprintf(seconds, sizeof seconds, "%d", wait ? wait : worker_pool_retry_after(request->server->pool));
    }
    if (err->code == ERROR_TOO_SLOW && request->job)
        extra = json_pack("{s:f, s:I}", "estimate_seconds", request->job->estimate.seconds, "limit_seconds",
                          (json_int_t)request->server->config->job_seconds);
    if (reply == REPLY_BODY_TOO_LARGE)
        extra = json_pack("{s:I}", "limit", (json_int_t)request->server->config->body_limit);
    return reply_problem(request, reply, err, extra, header, seconds);
}

/* Whether the request's token may have one more job wait. Under the lock of worker_pool_waiting, where it has a limit.
 */
static enum reply submit_count(struct request *request, struct error *err)
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
static enum reply submit_allows(struct request *request, struct error *err)
{
    if (!request->identity.jobs) /* it takes no lock */
        return REPLY_OK;
    struct waiting *waiting = worker_pool_waiting(request->server->pool);
    waiting_lock(waiting);
    const enum reply reply = submit_count(request, err);
    waiting_unlock(waiting);
    return reply;
}

enum reply submit_admit(struct request *request, uint64_t *length, int *wait, struct error *err)
{
    struct server *server = request->server;
    const char *text = router_header(request, MHD_HTTP_HEADER_CONTENT_LENGTH);
    *length = request->chunked ? server->config->body_limit : text ? strtoull(text, NULL, 10) : 0;
    if (*length > server->config->body_limit) {
        char sent[ERROR_BYTES_MAX], limit[ERROR_BYTES_MAX];
        metrics_rejected(server->metrics, REJECTED_BODY_TOO_LARGE);
        error_set(err, ERROR_TOO_LARGE, "the body is %s; at most %s are taken", error_bytes(sent, *length),
                  error_bytes(limit, server->config->body_limit));
        return REPLY_BODY_TOO_LARGE;
    }
    if (worker_pool_draining(server->pool)) {
        metrics_rejected(server->metrics, REJECTED_DRAINING);
        error_set(err, ERROR_BUSY, "the server is shutting down and accepts no new jobs");
        return REPLY_UNAVAILABLE;
    }
    enum error_code ready = worker_pool_ready(server->pool, err);
    /* while the models are being loaded a job may wait, and a lost device is opened again for it */
    if (ready && ready != ERROR_BUSY && ready != ERROR_DEVICE_LOST) {
        metrics_rejected(server->metrics, REJECTED_NOT_READY);
        return REPLY_UNAVAILABLE;
    }
    error_clear(err);
    char client[72];
    quota_client(request, client);
    request->repeated = route_jobs_repeated(request, client);
    if (request->repeated)
        return REPLY_OK;
    const enum reply reply = quota_take_pixels(request, 0, wait, err);
    return reply == REPLY_OK ? submit_allows(request, err) : reply;
}

enum reply submit_room(struct request *request, struct error *err)
{
    struct queue *queue = worker_pool_queue(request->server->pool);
    char client[72];
    quota_client(request, client);
    if (!queue_full(queue, client))
        return REPLY_OK;
    metrics_rejected(request->server->metrics, REJECTED_QUEUE_FULL);
    error_set(err, ERROR_BUSY, "the queue is full: %zu jobs wait, and no more may", queue_bounded(queue));
    return REPLY_QUEUE_FULL;
}

enum reply submit_check(struct request *request, struct restoration *r, struct body *body, struct error *err)
{
    struct server *server = request->server;
    int device;
    fleet_choose(request, r);
    const struct model_store *checks = fleet_checks(request);
    if (body_read(body, r, pipeline_check, checks, err)) {
        if (err->code == ERROR_TOO_LARGE)
            metrics_rejected(server->metrics, REJECTED_PIXELS);
        return reply_for(err->code);
    }
    if (checks && *r->options.device && strcmp(r->options.device, "auto") != 0 &&
        devices_find(worker_pool_devices(server->pool), r->options.device, &device, err))
        return reply_for(err->code);
    return REPLY_OK;
}

enum reply submit_charge(struct request *request, const struct restoration *r, int *wait, struct error *err)
{
    const enum reply reply = submit_allows(request, err);
    return reply == REPLY_OK
               ? quota_take_pixels(request, (uint64_t)r->in_info.width * (uint64_t)r->in_info.height, wait, err)
               : reply;
}

/* The job has ended: libmicrohttpd calls the route's answer again. */
static void submit_resume(struct job *job, void *context)
{
    (void)job;
    MHD_resume_connection(context);
}

/* Gives the job to the workers; REPLY_OK, or why it was refused. */
static enum reply submit_queue(struct request *request, struct error *err)
{
    struct server *server = request->server;
    enum reply reply = REPLY_OK;
    /* a token's jobs are counted once more, and this one is among them before the next request counts */
    struct waiting *waiting = request->identity.jobs ? worker_pool_waiting(server->pool) : NULL;
    if (waiting)
        waiting_lock(waiting);
    reply = submit_count(request, err);
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

enum reply submit_start(struct request *request, struct restoration **r, struct body *body, bool low, struct error *err)
{
    char id[33];
    job_make_id(id);
    if (job_create(&request->job, id, r, body, submit_resume, request->connection, err))
        return reply_for(err->code);
    memcpy(request->job->token, request->identity.name, sizeof request->job->token);
    quota_client(request, request->job->client);
    request->job->low = low;
    /* Suspended first: the job may end, and resume, before submit returns. */
    connection_waiting(request->link, request->job, request->interim);
    MHD_suspend_connection(request->connection);
    const enum reply reply = submit_queue(request, err);
    if (reply != REPLY_OK) {
        quota_give_back(request);
        request->refused = reply;
        request->refusal = *err;
        MHD_resume_connection(request->connection);
    }
    return REPLY_OK;
}
