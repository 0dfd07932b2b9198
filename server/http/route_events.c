/* GET /v1/events and GET /v1/jobs/ID/events: what happens to jobs, as Server-Sent Events. An event's id is
 * START-NUMBER: the start of the server and the event's place in its ring. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/http/job_json.h"
#include "server/http/route_jobs.h"
#include "server/http/router.h"
#include "server/http/stream.h"

#define READ_MOST 16  /* events at a time: what a client that reads slowly makes us keep */
#define LIST_MOST 100 /* jobs that a listener to all is told of when it has missed events */

static const char *route_events_name(const struct event *event)
{
    static const char *const ends[] = {[JOB_DONE] = "done", [JOB_FAILED] = "failed", [JOB_CANCELLED] = "cancelled"};
    if (event->kind == EVENT_ENDED && event->state > JOB_RUNNING)
        return ends[event->state];
    return event->kind == EVENT_QUEUED ? "queued" : event->kind == EVENT_STARTED ? "started" : "progress";
}

/* id 0: the event stands for no event of the ring. Takes the JSON over. */
static void route_events_say(struct stream *stream, uint64_t id, const char *name, json_t *json)
{
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(10)) : NULL;
    json_decref(json);
    if (!text) {
        stream->over = true;
        return;
    }
    if (id)
        stream_say(stream, "id: %s-%llu\n", events_boot(worker_pool_events(stream->request->server->pool)),
                   (unsigned long long)id);
    stream_say(stream, "event: %s\ndata: %s\n\n", name, text);
    free(text);
}

/* What the event itself says, in the words of GET /v1/jobs/ID. */
static json_t *route_events_json(const struct event *event)
{
    char path[64];
    const bool runs = event->state == JOB_RUNNING;
    snprintf(path, sizeof path, "/v1/jobs/%s", event->job);
    return json_pack("{s:s, s:s, s:o, s:f, s:o, s:o, s:i, s:i, s:i, s:i, s:{s:s}}", "id", event->job, "state",
                     job_json_state((enum store_state)event->state), "time", job_json_time(event->time_ms), "progress",
                     job_json_round(event->progress), "eta_seconds",
                     event->seconds_left < 0 ? json_null() : json_real(job_json_round(event->seconds_left)), "stage",
                     job_json_stage(runs, (int)event->stage), "tiles_done", event->tiles_done, "tiles_total",
                     event->tiles_total, "faces_done", event->faces_done, "faces_total", event->faces_total, "links",
                     "self", path);
}

/* The job as GET /v1/jobs/ID has it; false: it is not there. */
static bool route_events_look(struct stream *stream, const char *id, struct keeper_view *view)
{
    struct error ignored = ERROR_INIT;
    return !keeper_look(stream->request->server->keeper, id, view, &ignored);
}

/* An event with all that is known of its job, if that is still what the event says: with its place in the queue, or,
 * once it has ended, with its result's links and its error. */
static void route_events_tell(struct stream *stream, const struct event *event)
{
    struct keeper_view view;
    json_t *json = NULL;
    if ((event->kind == EVENT_QUEUED || event->kind == EVENT_ENDED) && route_events_look(stream, event->job, &view)) {
        if (view.job.state == (enum store_state)event->state)
            json = job_json(stream->request, &view);
        stream->position = view.position;
        keeper_view_clear(&view);
    }
    stream->waits = event->kind == EVENT_QUEUED;
    route_events_say(stream, event->sequence, route_events_name(event), json ? json : route_events_json(event));
    stream->over = stream->over || (*stream->job && event->kind == EVENT_ENDED);
}

/* The job as it is now. id: of the last event before. */
static void route_events_tell_now(struct stream *stream, uint64_t id)
{
    struct keeper_view view;
    if (!route_events_look(stream, stream->job, &view)) {
        stream->over = true; /* it has been forgotten */
        return;
    }
    const enum store_state state = view.job.state;
    const char *name = state == STORE_QUEUED ? "queued" : state == STORE_RUNNING ? "progress" : job_json_state(state);
    stream->waits = state == STORE_QUEUED;
    stream->position = view.position;
    stream->over = state > STORE_RUNNING;
    route_events_say(stream, id, name, job_json(stream->request, &view));
    keeper_view_clear(&view);
}

struct events_list {
    struct stream *stream;
    json_t *rows[LIST_MOST];
    const char *names[LIST_MOST];
    int count;
};

static void route_events_add(void *context, const struct store_job *row)
{
    struct events_list *list = context;
    if (list->count == LIST_MOST)
        return;
    list->names[list->count] = row->state == STORE_RUNNING ? "progress" : job_json_state(row->state);
    list->rows[list->count++] = job_json_row(row);
}

/* The newest jobs as they are now, oldest first. */
static void route_events_tell_all(struct stream *stream, uint64_t id)
{
    struct events_list list = {.stream = stream};
    struct error ignored = ERROR_INIT;
    bool more;
    const struct store_filter filter = {.token = stream->all ? NULL : stream->token, .limit = LIST_MOST};
    (void)!keeper_look_list(stream->request->server->keeper, &filter, route_events_add, &list, &more, &ignored);
    while (list.count-- > 0)
        route_events_say(stream, id, list.names[list.count], list.rows[list.count]);
}

/* The next text of a stream. */
static void route_events_next(struct stream *stream, bool quiet)
{
    struct events *events = worker_pool_events(stream->request->server->pool);
    struct event read[READ_MOST];
    bool lost, begun = stream->begun;
    stream->begun = true;
    const size_t count = events_read(events, &stream->after, *stream->job ? stream->job : NULL,
                                     stream->all ? NULL : stream->token, read, READ_MOST, &lost);
    if (lost && begun) {
        stream->over = true; /* it reads too slowly; it may come again, and is told how things are */
    } else if (lost || (!begun && *stream->job && !count)) {
        if (*stream->job)
            route_events_tell_now(stream, stream->after);
        else
            route_events_tell_all(stream, stream->after);
    } else if (!begun && !count) {
        stream_say(stream, "id: %s-%llu\n:\n\n", events_boot(events), (unsigned long long)stream->after);
    }
    for (size_t i = 0; i < count && !stream->over; i++)
        route_events_tell(stream, &read[i]);
    if (!quiet || count || !*stream->job || stream->over || stream->size)
        return;
    /* its place may have changed, or it may have ended in a way that makes no event */
    struct keeper_view view;
    const bool there = route_events_look(stream, stream->job, &view);
    const bool same = there && view.job.state <= STORE_RUNNING &&
                      (view.job.state != STORE_QUEUED || view.position == stream->position);
    if (there)
        keeper_view_clear(&view);
    if (!same)
        route_events_tell_now(stream, 0);
}

/* The last event that the client has; UINT64_MAX: it has none of this start, or says nothing that we understand.
 * *said: it says something. */
static uint64_t route_events_last(const struct request *request, bool *said)
{
    const char *last = router_header(request, "Last-Event-ID"),
               *boot = events_boot(worker_pool_events(request->server->pool));
    const size_t size = strlen(boot);
    if (!last)
        last = MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, "last_event_id");
    *said = last && *last;
    if (!*said || strncmp(last, boot, size) != 0 || last[size] != '-' || strspn(last + size + 1, "0123456789") > 18 ||
        strspn(last + size + 1, "0123456789") != strlen(last + size + 1) || !last[size + 1])
        return UINT64_MAX;
    return strtoull(last + size + 1, NULL, 10);
}

static enum MHD_Result route_events_answer(struct request *request, const char *job)
{
    struct events *events = worker_pool_events(request->server->pool);
    const char *token = route_jobs_token(request);
    bool said;
    struct stream stream = {.request = request, .all = !token, .next = route_events_next};
    snprintf(stream.job, sizeof stream.job, "%s", job);
    snprintf(stream.token, sizeof stream.token, "%s", token ? token : "");
    stream.after = route_events_last(request, &said);
    if (!said)
        stream.after = events_newest(events);
    /* some connections stay for those who send pictures */
    return stream_answer(&stream, (int)(request->server->config->connections / 4 * 3));
}

enum MHD_Result route_events(struct request *request)
{
    struct error err = ERROR_INIT;
    if (!route_jobs_there(request, &err))
        return route_jobs_fail(request, REPLY_UNAVAILABLE, &err);
    return route_events_answer(request, "");
}

enum MHD_Result route_job_events(struct request *request)
{
    enum MHD_Result result;
    struct store_job row;
    if (!route_job_find(request, &row, &result))
        return result;
    store_job_clear(&row);
    return route_events_answer(request, request->parts.id);
}
