#include "server/job/cluster_event.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void event_dump(json_t *json, char *out, size_t size)
{
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
    json_decref(json);
    snprintf(out, size, "%s", text && strlen(text) < size ? text : "");
    free(text);
}

/* Stage, tiles, faces, share done, seconds left. */
static json_t *event_progress(const struct event *event)
{
    return json_pack("[i, i, i, i, i, f, f]", (int)event->stage, event->tiles_done, event->tiles_total,
                     event->faces_done, event->faces_total, event->progress, event->seconds_left);
}

static bool event_read_progress(json_t *json, struct event *out)
{
    int stage;
    if (!json || json_unpack(json, "[i, i, i, i, i, F, F]", &stage, &out->tiles_done, &out->tiles_total,
                             &out->faces_done, &out->faces_total, &out->progress, &out->seconds_left))
        return false;
    out->stage = stage >= 0 && stage <= STAGE_COUNT ? (enum stage)stage : STAGE_QUEUE;
    return true;
}

void cluster_event_progress(const struct event *event, char *out, size_t size)
{
    event_dump(event_progress(event), out, size);
}

bool cluster_event_read_progress(const char *text, struct event *out)
{
    json_t *json = json_loads(text, 0, NULL);
    const bool read = event_read_progress(json, out);
    json_decref(json);
    return read;
}

void cluster_event_write(const struct event *event, const char *owner, char *out, size_t size)
{
    event_dump(json_pack("{s:s, s:s, s:s, s:i, s:i, s:o}", "owner", owner, "job", event->job, "token", event->token,
                         "kind", (int)event->kind, "state", (int)event->state, "progress", event_progress(event)),
               out, size);
}

bool cluster_event_read(const char *text, const char *owner, struct event *out)
{
    const char *from, *job, *token;
    int kind, state;
    json_t *progress, *json = json_loads(text, 0, NULL);
    *out = (struct event){.position = -1};
    const bool read = json &&
                      !json_unpack(json, "{s:s, s:s, s:s, s:i, s:i, s:o}", "owner", &from, "job", &job, "token", &token,
                                   "kind", &kind, "state", &state, "progress", &progress) &&
                      strcmp(from, owner) != 0 && strlen(job) < sizeof out->job && strlen(token) < sizeof out->token &&
                      kind >= 0 && kind <= EVENT_ENDED && state >= 0 && state <= JOB_CANCELLED &&
                      event_read_progress(progress, out);
    if (read) {
        strcpy(out->job, job);
        strcpy(out->token, token);
        out->kind = (enum event_kind)kind;
        out->state = (enum job_state)state;
    }
    json_decref(json);
    return read;
}
