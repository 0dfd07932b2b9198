#include "server/http/access.h"

#include <stdio.h>
#include <string.h>

#include "server/http/proxies.h"
#include "server/http/router.h"

/* All lines of a header in order, joined by commas. What does not fit is cut off at the beginning, because the last
 * proxy's entry is at the end. */
struct access_header {
    const char *name;
    char text[1024];
    bool found;
};

static enum MHD_Result access_join(void *context, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct access_header *header = context;
    (void)kind;
    if (!value || strcasecmp(name, header->name) != 0)
        return MHD_YES;
    size_t used = strlen(header->text), size = strlen(value);
    const size_t room = sizeof header->text - 1;
    if (size >= room) {
        value += size - (room - 1);
        size = room - 1;
    }
    if (used + 1 + size > room) {
        const size_t drop = used + 1 + size - room;
        memmove(header->text, header->text + drop, used - drop);
        used -= drop;
    }
    header->text[used] = ',';
    memcpy(header->text + used + 1, value, size);
    header->text[used + 1 + size] = 0;
    header->found = true;
    return MHD_YES;
}

void access_begin(struct request *request)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct in6_addr peer = proxies_address(info ? info->client_addr : NULL);
    struct access_header x_forwarded = {.name = "X-Forwarded-For"}, forwarded = {.name = "Forwarded"};
    const char *trusted = request->server->config->trusted_proxies;
    if (*trusted) {
        MHD_get_connection_values(request->connection, MHD_HEADER_KIND, access_join, &x_forwarded);
        MHD_get_connection_values(request->connection, MHD_HEADER_KIND, access_join, &forwarded);
    }
    proxies_client(trusted, &peer, x_forwarded.found ? x_forwarded.text : NULL, forwarded.found ? forwarded.text : NULL,
                   request->client);
    const char *agent = router_header(request, MHD_HTTP_HEADER_USER_AGENT);
    size_t n = 0;
    for (; agent && agent[n] && n + 1 < sizeof request->agent; n++)
        request->agent[n] = agent[n] >= 0x20 && agent[n] < 0x7f && agent[n] != '"' && agent[n] != '\\' ? agent[n] : '_';
    request->agent[n] = 0;
}

/* What an ended job tells about its picture: size, faces, and the time of each stage that took any. */
static void access_describe(struct log_line *line, const struct job *job)
{
    const struct restoration *r = job->restoration;
    int restored = 0;
    for (int i = 0; i < r->face_count; i++)
        restored += r->faces[i].restored;
    log_add(line, "picture=%dx%d result=%dx%d faces=%d restored=%d", r->in_info.width, r->in_info.height,
            r->out_info.width, r->out_info.height, r->face_count, restored);
    for (int stage = 0; stage < STAGE_COUNT; stage++)
        if (r->stage_ms[stage] > 0)
            log_add(line, "%s_ms=%.1f", stage_name((enum stage)stage), r->stage_ms[stage]);
}

/* The id of the job that it is about: its own, or the stored one that it has sent, cancelled or forgotten; NULL: none.
 */
static const char *access_job(const struct request *request)
{
    const struct keeper_ticket *ticket = request->ticket;
    if (request->job)
        return request->job->id;
    return ticket && !ticket->err.code && *ticket->job.id ? ticket->job.id : NULL;
}

/* Clients that poll every few seconds would drown the rest. */
static bool access_is_poll(const struct request *request)
{
    static const char *const paths[] = {"/healthz", "/readyz", "/metrics"};
    for (int i = 0; i < 3; i++)
        if (request->route && !strcmp(request->route->path, paths[i]))
            return true;
    return false;
}

void access_log(const struct request *request, int status, double seconds)
{
    struct log_line line;
    const struct job *job = request->job;
    const enum job_state state = job ? atomic_load(&job->state) : JOB_QUEUED;
    const char *id = access_job(request);
    log_begin(&line, access_is_poll(request) ? LOG_DEBUG : LOG_INFO, "request");
    log_add(&line, "id=%s", request->id);
    if (*request->client)
        log_add(&line, "client=%s", request->client);
    if (*request->identity.name)
        log_add(&line, "token=%s", request->identity.name);
    log_add(&line, "method=%s path=%s status=%d ms=%.1f in=%llu out=%llu", request->method, request->path, status,
            seconds * 1e3,
            (unsigned long long)(request->reader   ? request->received
                                 : request->upload ? upload_received(request->upload)
                                                   : 0),
            (unsigned long long)request->answer_bytes);
    if (id)
        log_add(&line, "job=%s", id);
    if (state == JOB_DONE || state == JOB_FAILED || state == JOB_CANCELLED)
        access_describe(&line, job);
    log_add(&line, "agent=\"%s\"", request->agent);
    log_end(&line);
}
