#include "server/compat/compat.h"

#include <nettle/base64.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/spill.h"
#include "server/http/header.h"
#include "server/http/quota.h"
#include "server/http/room.h"
#include "server/http/server.h"
#include "server/http/submit.h"
#include "server/image/codec.h"

#define COMPAT_PIECE ((size_t)64 << 10) /* bytes that are sent at a time */
#define COMPAT_MARK "\\u0001"           /* as JSON writes the byte on both sides of a picture's number */

const struct dialect *const dialects[] = {&openai_dialect, NULL};

/* --- jobs ----------------------------------------------------------------------------------------------------------
 */

enum MHD_Result compat_begin(struct request *request, const struct request_reader *reader, void *context)
{
    struct error err = ERROR_INIT;
    uint64_t length = 0;
    int wait = 0;
    request->reader = reader;
    request->reading = context;
    enum reply reply = submit_admit(request, &length, &wait, &err);
    if (reply == REPLY_OK)
        reply = submit_room(request, &err);
    return reply == REPLY_OK ? room_make(request, length) : submit_refuse(request, reply, wait, &err);
}

void compat_clear(struct compat *compat)
{
    for (int i = 0; i < COMPAT_PICTURES; i++) {
        body_clear(&compat->pictures[i].body);
        job_release(&compat->pictures[i].job);
    }
}

/* The result of the pass before is the picture of the next one. */
static enum error_code compat_feed_back(struct compat_picture *picture, struct spool *spool, struct error *err)
{
    struct restoration *r = picture->job->restoration;
    picture->body.spool = spool;
    const enum error_code code = body_append(&picture->body, r->output, r->output_bytes, err);
    spill_free(r->output);
    r->output = NULL;
    r->output_bytes = 0;
    picture->mask_bytes = 0;
    job_release(&picture->job);
    return code;
}

/* Queues the picture's next job; the connection is suspended when it is REPLY_OK. */
static enum reply compat_submit(struct request *request, struct compat_picture *picture, int *wait, struct error *err)
{
    struct compat *compat = request->reading;
    struct restoration *r = NULL;
    enum reply reply = REPLY_OK;
    if (picture->job && compat_feed_back(picture, request->server->spool, err))
        return reply_for(err->code);
    if (restoration_create(&r, err))
        return reply_for(err->code);
    r->options = picture->passes[picture->pass];
    r->limits = server_limits(request->server->config);
    r->mask_bytes = picture->mask_bytes;
    r->mask_clear = picture->mask_clear;
    r->elsewhere = !reply_is_near(request);
    if (!picture->pass && compat->plan) { /* its size decides what becomes of it */
        reply = submit_check(request, r, &picture->body, err);
        if (reply == REPLY_OK && compat->plan(picture, r, err))
            reply = reply_for(err->code);
        r->options = picture->passes[0];
    }
    if (reply == REPLY_OK)
        reply = submit_check(request, r, &picture->body, err);
    if (reply == REPLY_OK && !picture->pass)
        reply = submit_charge(request, r, wait, err);
    if (reply == REPLY_OK) {
        job_release(&request->job);
        reply = submit_start(request, &r, &picture->body, false, err);
    }
    restoration_destroy(&r);
    return reply;
}

/* The job of the current pass has ended; REPLY_OK, or why it failed. */
static enum reply compat_take(struct request *request, struct compat *compat, struct error *err)
{
    struct compat_picture *picture = &compat->pictures[compat->at];
    struct job *job = request->job;
    if (request->refused || atomic_load(&job->state) != JOB_DONE) {
        *err = request->refused ? request->refusal : job->error;
        return request->refused ? request->refused : reply_for_job(job->error.code, job->restoration->decoded);
    }
    picture->job = job_hold(job);
    if (++picture->pass == picture->pass_count)
        compat->at++;
    return REPLY_OK;
}

enum MHD_Result compat_answer(struct request *request)
{
    struct compat *compat = request->reading;
    struct error err = ERROR_INIT;
    enum reply reply = REPLY_OK;
    int wait = 0;
    if (request->job && connection_gone(request->link)) {
        request->status = reply_status(REPLY_CLIENT_GONE);
        return MHD_NO; /* closes a connection that the client has closed already */
    }
    if (!compat->prepared) {
        compat->prepared = true;
        if (compat->prepare(request, &err))
            reply = reply_for(err.code);
        uint64_t size = 0;
        for (int i = 0; i < compat->count; i++)
            size += compat->pictures[i].body.size;
        room_shrink(request, size);
    } else {
        reply = compat_take(request, compat, &err);
    }
    if (reply == REPLY_OK && compat->at == compat->count)
        return compat->answer(request);
    if (reply == REPLY_OK)
        reply = compat_submit(request, &compat->pictures[compat->at], &wait, &err);
    return reply == REPLY_OK ? MHD_YES : submit_refuse(request, reply, wait, &err);
}

/* --- answers -------------------------------------------------------------------------------------------------------
 */

json_t *compat_mark(int picture, const char *before)
{
    return json_sprintf("%s\x01%d\x01", before, picture);
}

const char *compat_type(const struct compat *compat, int picture)
{
    return codec_media_type(compat->pictures[picture].job->restoration->output_format);
}

size_t compat_encode(const uint8_t *from, size_t size, uint64_t at, char *out, size_t most)
{
    const uint64_t all = BASE64_ENCODE_RAW_LENGTH(size);
    size_t used = 0;
    while (at < all && used < most) {
        const size_t first = (size_t)(at / 4) * 3, in = (size_t)(at % 4), left = size - first;
        if (!in && most - used >= 4) {
            size_t groups = (most - used) / 4, bytes = groups * 3;
            if (bytes > left)
                bytes = left;
            groups = (bytes + 2) / 3;
            base64_encode_raw(out + used, bytes, from + first);
            used += 4 * groups;
            at += 4 * groups;
            continue;
        }
        char group[4];
        base64_encode_raw(group, left < 3 ? left : 3, from + first);
        const size_t part = most - used < 4 - in ? most - used : 4 - in;
        memcpy(out + used, group + in, part);
        used += part;
        at += part;
    }
    return used;
}

/* A part of an answer: text, or a job's result. */
struct compat_part {
    uint64_t begin; /* in the answer */
    const char *text;
    struct job *job; /* NULL: it is text */
};

struct compat_sending {
    char *text; /* of all parts */
    uint64_t size;
    size_t count;
    struct compat_part parts[];
};

static void compat_end(void *context)
{
    struct compat_sending *sending = context;
    for (size_t i = 0; i < sending->count; i++)
        job_release(&sending->parts[i].job);
    free(sending->text);
    free(sending);
}

static ssize_t compat_read(void *context, uint64_t at, char *to, size_t most)
{
    const struct compat_sending *sending = context;
    size_t used = 0, i = 0;
    while (i + 1 < sending->count && sending->parts[i + 1].begin <= at)
        i++;
    for (; i < sending->count && used < most; i++) {
        const struct compat_part *part = &sending->parts[i];
        const uint64_t end = i + 1 < sending->count ? sending->parts[i + 1].begin : sending->size;
        const uint64_t from = at + used - part->begin;
        size_t take = most - used;
        if (take > end - part->begin - from)
            take = (size_t)(end - part->begin - from);
        if (part->job)
            compat_encode(part->job->restoration->output, part->job->restoration->output_bytes, from, to + used, take);
        else
            memcpy(to + used, part->text + from, take);
        used += take;
    }
    return (ssize_t)used;
}

/* The next mark: one behind a backslash is text that somebody wrote. NULL: there is none. */
static const char *compat_find(const char *text, const char *from)
{
    while ((from = strstr(from, COMPAT_MARK)) && from > text && from[-1] == '\\')
        from++;
    return from;
}

/* Cuts the text at its marks. NULL: no memory. Takes the text over. */
static struct compat_sending *compat_cut(const struct compat *compat, char *text, size_t size)
{
    size_t marks = 0;
    for (const char *at = text; (at = compat_find(text, at)); at += strlen(COMPAT_MARK))
        marks++;
    struct compat_sending *sending = mem_calloc(1, sizeof *sending + (marks + 1) * sizeof *sending->parts);
    if (!sending) {
        free(text);
        return NULL;
    }
    sending->text = text;
    const char *at = text, *mark;
    while ((mark = compat_find(text, at))) {
        char *end;
        const long picture = strtol(mark + strlen(COMPAT_MARK), &end, 10);
        const struct compat_picture *row =
            picture >= 0 && picture < compat->count ? &compat->pictures[picture] : NULL;
        sending->parts[sending->count++] = (struct compat_part){sending->size, at, NULL};
        sending->size += (uint64_t)(mark - at);
        at = strncmp(end, COMPAT_MARK, strlen(COMPAT_MARK)) != 0 ? end : end + strlen(COMPAT_MARK);
        if (!row || !row->job)
            continue;
        sending->parts[sending->count++] = (struct compat_part){sending->size, NULL, job_hold(row->job)};
        sending->size += BASE64_ENCODE_RAW_LENGTH(row->job->restoration->output_bytes);
    }
    sending->parts[sending->count++] = (struct compat_part){sending->size, at, NULL};
    sending->size += size - (size_t)(at - text);
    return sending;
}

enum MHD_Result compat_send(struct request *request, enum reply reply, json_t *json)
{
    const struct compat *compat = request->reading;
    size_t size = 0;
    char *text = reply_dump(json, &size);
    struct compat_sending *sending = text ? compat_cut(compat, text, size) : NULL;
    if (!sending)
        return reply_json(request, reply, NULL);
    struct MHD_Response *response =
        MHD_create_response_from_callback(sending->size, COMPAT_PIECE, compat_read, sending, compat_end);
    if (!response) {
        compat_end(sending);
        return MHD_NO;
    }
    request->answer_bytes = sending->size;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    return reply_send(request, reply, response, "application/json");
}
