#include "server/http/room.h"

#include <stdio.h>

#include "server/http/quota.h"

static void room_hold(void *context)
{
    struct request *request = context;
    request->held = true;
    connection_holding(request->link);
    MHD_suspend_connection(request->connection);
}

static void room_go_on(void *context)
{
    const struct request *request = context;
    if (request->body.refused)
        connection_reading(request->link);
    else
        connection_uploading(request->link);
    MHD_resume_connection(request->connection);
}

/* The kernel and libmicrohttpd hold more of the body than its first bytes. */
static bool room_left(void *context)
{
    const struct request *request = context;
    const uint64_t buffered = 2 * request->server->config->header_limit;
    return connection_left(request->link,
                           !request->chunked && request->length > buffered ? request->length - buffered : 0);
}

static enum MHD_Result room_refuse(struct request *request)
{
    struct error err = ERROR_INIT;
    struct server *server = request->server;
    const bool draining = worker_pool_draining(server->pool);
    metrics_rejected(server->metrics, draining ? REJECTED_DRAINING : REJECTED_MEMORY);
    error_set(&err, ERROR_BUSY, "%s",
              draining ? "the server is shutting down and accepts no new jobs"
                       : "other requests have all the memory that there is for requests (inflight_memory)");
    char seconds[16];
    snprintf(seconds, sizeof seconds, "%d", worker_pool_retry_after(server->pool));
    return reply_problem(request, draining ? REPLY_UNAVAILABLE : REPLY_MEMORY_FULL, &err, NULL,
                         MHD_HTTP_HEADER_RETRY_AFTER, seconds);
}

/* The memory that a body of that length takes. */
static uint64_t room_for(const struct request *request, uint64_t length)
{
    return request->server->spool && length > BODY_MEMORY ? BODY_MEMORY : length;
}

enum MHD_Result room_make(struct request *request, uint64_t length, uint64_t more)
{
    request->length = length;
    request->body =
        (struct inflight_body){.suspend = room_hold, .resume = room_go_on, .gone = room_left, .context = request};
    quota_client(request, request->body.client);
    switch (
        inflight_enter(worker_pool_inflight(request->server->pool), &request->body, room_for(request, length + more))) {
    case INFLIGHT_FULL:
        return room_refuse(request);
    case INFLIGHT_ADMITTED:
        connection_uploading(request->link);
        break;
    case INFLIGHT_WAITS:
        break;
    }
    return MHD_YES;
}

enum MHD_Result room_resumed(struct request *request)
{
    request->held = false;
    if (!request->body.refused)
        return MHD_YES;
    connection_linger(request->link, true);
    return room_refuse(request);
}

void room_shrink(struct request *request, uint64_t length)
{
    inflight_shrink(worker_pool_inflight(request->server->pool), &request->body, room_for(request, length));
}

void room_leave(struct request *request)
{
    if (request->body.context)
        inflight_leave(worker_pool_inflight(request->server->pool), &request->body);
}
