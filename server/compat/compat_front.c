/* Passes of other programs' clients at a front: jobs of the shared store, whose results come back as if they had been
 * made here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/mem.h"
#include "runtime/base/spill.h"
#include "server/compat/compat.h"
#include "server/http/fleet.h"
#include "server/http/job_json.h"
#include "server/http/route_jobs.h"
#include "server/http/route_wait.h"
#include "server/image/codec.h"
#include "server/job/keeper_look.h"
#include "server/job/record.h"

void compat_front_explain(const struct request *request, struct error *err)
{
    struct error away = ERROR_INIT;
    uint64_t ignored;
    if (err->code != ERROR_INVALID || !fleet_is_shared(request) || request->server->checks ||
        !store_queued(keeper_store(request->server->keeper), &ignored, &away))
        return;
    error_clear(err);
    error_set(err, ERROR_BUSY, "%s", away.text);
}

/* --- results -------------------------------------------------------------------------------------------------------
 */

/* The picture's file into memory, or a file of its own where it is large. */
static enum error_code compat_front_read(struct restoration *r, const struct record_part *part, int fd,
                                         struct error *err)
{
    r->output = spill_alloc(part->size ? part->size : 1, 1);
    if (!r->output)
        return error_set(err, ERROR_NO_MEMORY, "no memory for a result");
    for (uint64_t at = 0; at < part->size;) {
        const ssize_t got = pread(fd, r->output + at, part->size - at, (off_t)(part->offset + at));
        if (got <= 0)
            return error_set(err, ERROR_IO, "a result cannot be read");
        at += (uint64_t)got;
    }
    r->output_bytes = part->size;
    return OK;
}

/* What its report says, as the restoration of a job that was done here has it. */
static void compat_front_describe(struct restoration *r, const json_t *report, const char *type)
{
    const json_t *output = json_object_get(report, "output"), *note;
    size_t i;
    r->out_info.width = (int)json_integer_value(json_object_get(output, "width"));
    r->out_info.height = (int)json_integer_value(json_object_get(output, "height"));
    for (int format = IMAGE_JPEG; format < IMAGE_FORMAT_COUNT; format++)
        if (codec_max_side((enum image_format)format) > 0 && !strcmp(codec_media_type((enum image_format)format), type))
            r->output_format = (enum image_format)format;
    r->note_count = 0; /* those of the front are among them */
    json_array_foreach(json_object_get(report, "notes"), i, note)
        restoration_note(r, "", "%s", json_string_value(note));
    r->decoded = true;
}

static enum error_code compat_front_job(struct request *request, const struct store_job *row, int fd, struct error *err)
{
    struct compat *compat = request->reading;
    struct record_part *parts;
    struct body none = {0};
    json_t *report = row->report ? json_loads(row->report, 0, NULL) : NULL;
    const size_t count = record_parts(row->parts, &parts); /* the first is the result */
    enum error_code code = count && fd >= 0 ? compat_front_read(compat->sent, parts, fd, err)
                                            : error_set(err, ERROR_INTERNAL, "the result of this job is damaged");
    if (!code)
        compat_front_describe(compat->sent, report, parts->type);
    if (!code)
        code = job_create(&request->job, row->id, &compat->sent, &none, NULL, NULL, err);
    if (!code) {
        atomic_store(&request->job->begun_ms, row->started);
        request->job->started_ns = job_now() - (row->finished - row->started) * 1000000;
        atomic_store(&request->job->state, JOB_DONE);
    }
    json_decref(report);
    free(parts);
    return code;
}

/* A route_wait_taken_fn. */
static enum MHD_Result compat_front_taken(struct request *request, enum reply reply, const struct error *why,
                                          const struct store_job *row, int fd)
{
    struct error err = *why;
    if (reply == REPLY_OK && compat_front_job(request, row, fd, &err))
        reply = reply_for(err.code);
    route_wait_forget(request);
    route_jobs_forget(request);
    connection_sending(request->link);
    if (reply != REPLY_OK) {
        request->refused = reply;
        request->refusal = err;
    }
    return compat_answer(request);
}

/* --- how far they are ----------------------------------------------------------------------------------------------
 */

/* Newest first, of those that run and those that wait. */
struct compat_front_oldest {
    char running[33], waiting[33];
};

/* A store_job_fn. */
static void compat_front_note(void *context, const struct store_job *job)
{
    struct compat_front_oldest *oldest = context;
    memcpy(job->state == STORE_RUNNING ? oldest->running : oldest->waiting, job->id, sizeof job->id);
}

bool compat_front_look(const struct request *request, struct compat_state *out)
{
    struct keeper *keeper = request->server->keeper;
    struct keeper_view view;
    struct error ignored = ERROR_INIT;
    struct compat_front_oldest oldest = {0};
    const struct store_filter filter = {
        .token = route_jobs_token(request), .states = 1u << STORE_QUEUED | 1u << STORE_RUNNING, .limit = 1000};
    const bool found = compat_look(request, NULL, out);
    bool more;
    if (!found) {
        *out = (struct compat_state){.seconds_left = -1, .pictures = 1};
        if (keeper_look_list(keeper, &filter, compat_front_note, &oldest, &more, &ignored))
            return false;
        memcpy(out->job, *oldest.running ? oldest.running : oldest.waiting, sizeof out->job);
    }
    if (!*out->job || keeper_look(keeper, out->job, &view, &ignored))
        return found; /* it is not among the jobs yet */
    const double part = view.job.state > STORE_RUNNING ? 1 : view.running ? view.progress : 0;
    out->progress = out->pictures ? (out->at + part) / out->pictures : 0;
    out->seconds_left = view.left;
    keeper_view_clear(&view);
    return true;
}

/* --- from compat.c -------------------------------------------------------------------------------------------------
 */

enum reply compat_front_submit(struct request *request, struct restoration **r, struct body *body, const char *id,
                               struct error *err)
{
    struct compat *compat = request->reading;
    if (!request->upload && upload_create(&request->upload, false, 0, err)) /* it is asked for a batch: there is none */
        return reply_for(err->code);
    restoration_destroy(&compat->sent);
    compat->sent = *r;
    *r = NULL;
    if (route_wait_submit_for(request, compat->sent, body, id, compat_front_taken) != MHD_YES && !request->answered) {
        error_set(err, ERROR_NO_MEMORY, "no memory for a job");
        return reply_for(err->code);
    }
    return REPLY_OK;
}
