#include "server/compat/compat.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/spill.h"
#include "server/http/fleet.h"
#include "server/http/header.h"
#include "server/http/quota.h"
#include "server/http/room.h"
#include "server/http/route_wait.h"
#include "server/http/server.h"
#include "server/http/submit.h"

const struct dialect *const dialects[] = {&openai_dialect, &a1111_dialect, &cog_dialect, NULL};

/* --- those at work -------------------------------------------------------------------------------------------------
 */

/* Those of all servers of this process. */
static struct {
    pthread_mutex_t lock;
    struct compat *first;
} compat_all = {PTHREAD_MUTEX_INITIALIZER, NULL};

/* Under the lock. */
static void compat_enter(struct compat *compat, struct request *request)
{
    if (compat->listed)
        return;
    struct compat **end = &compat_all.first;
    while (*end)
        end = &(*end)->next;
    compat->request = request;
    compat->listed = true;
    compat->next = NULL;
    *end = compat;
}

static void compat_enlist(struct compat *compat, struct request *request)
{
    pthread_mutex_lock(&compat_all.lock);
    compat_enter(compat, request);
    pthread_mutex_unlock(&compat_all.lock);
}

static void compat_delist(struct compat *compat)
{
    pthread_mutex_lock(&compat_all.lock);
    for (struct compat **at = &compat_all.first; *at; at = &(*at)->next)
        if (*at == compat) {
            *at = compat->next;
            break;
        }
    job_release(&compat->working);
    compat->listed = false;
    pthread_mutex_unlock(&compat_all.lock);
}

/* Under the lock: whether one is of the same dialect, and of a token that the request may act for. */
static bool compat_is_own(const struct compat *compat, const struct request *request, const char *id)
{
    const struct request *other = compat->request;
    return other->server == request->server && other->dialect == request->dialect && other != request &&
           (request->identity.admin || !strcmp(other->identity.name, request->identity.name)) &&
           (!id || !strcmp(compat->id, id));
}

bool compat_look(const struct request *request, const char *id, struct compat_state *out)
{
    bool found = false;
    pthread_mutex_lock(&compat_all.lock);
    for (struct compat *at = compat_all.first; at && !found; at = at->next) {
        if (!compat_is_own(at, request, id))
            continue;
        found = true;
        *out = (struct compat_state){.seconds_left = -1, .pictures = at->count, .at = at->at};
        memcpy(out->id, at->id, sizeof out->id);
        memcpy(out->job, at->sent_id, sizeof out->job);
        const int64_t begun = at->working ? atomic_load(&at->working->running_ns) : 0;
        const double elapsed = begun ? (double)(job_now() - begun) / 1e9 : 0;
        const double part =
            begun ? estimate_progress(&at->working->estimate, at->working->restoration, elapsed, &out->seconds_left)
                  : 0;
        out->progress = at->count ? (at->at + part) / at->count : 0;
    }
    pthread_mutex_unlock(&compat_all.lock);
    return found;
}

int compat_cancel(const struct request *request, const char *id)
{
    enum { MOST = 16 }; /* at a time */
    struct job *jobs[MOST];
    char sent[MOST][sizeof((struct compat *)0)->sent_id];
    int found, count;
    do {
        found = count = 0;
        pthread_mutex_lock(&compat_all.lock);
        for (struct compat *at = compat_all.first; at && count < MOST; at = at->next) {
            if (!compat_is_own(at, request, id))
                continue;
            found++;
            if (!at->cancelled && (at->working || *at->sent_id)) {
                memcpy(sent[count], at->sent_id, sizeof *sent);
                jobs[count++] = at->working ? job_hold(at->working) : NULL;
            }
            at->cancelled = true;
        }
        pthread_mutex_unlock(&compat_all.lock);
        for (int i = 0; i < count; i++) { /* outside of the lock: the end of one that waits resumes its connection */
            if (jobs[i])
                worker_pool_cancel(request->server->pool, jobs[i], ERROR_CANCELLED);
            else
                route_wait_drop(request->server->keeper, sent[i]);
            job_release(&jobs[i]);
        }
    } while (count == MOST);
    return found;
}

bool compat_name(struct request *request, const char *id)
{
    struct compat *compat = request->reading;
    bool taken = false;
    pthread_mutex_lock(&compat_all.lock);
    for (struct compat *at = compat_all.first; at; at = at->next)
        taken = taken || (at->request->server == request->server && at->request->dialect == request->dialect &&
                          !strcmp(at->request->identity.name, request->identity.name) && !strcmp(at->id, id));
    if (!taken) {
        snprintf(compat->id, sizeof compat->id, "%s", id);
        compat_enter(compat, request);
    }
    pthread_mutex_unlock(&compat_all.lock);
    return !taken;
}

/* Whether it was cancelled. */
static bool compat_cancelled(struct compat *compat)
{
    pthread_mutex_lock(&compat_all.lock);
    const bool cancelled = compat->cancelled;
    pthread_mutex_unlock(&compat_all.lock);
    return cancelled;
}

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
    request->repeated = false; /* an Idempotency-Key of another job frees no job of these from a limit */

    const struct compat *compat = context; /* the first member */
    if (reply == REPLY_OK && !compat->stored)
        reply = submit_room(request, &err);
    if (reply == REPLY_OK)
        return room_make(request, length, compat->more);
    return compat->fail ? compat->fail(request, reply, wait, &err) : submit_refuse(request, reply, wait, &err);
}

void compat_clear(struct compat *compat)
{
    if (compat->listed)
        compat_delist(compat);
    for (int i = 0; i < compat->count; i++) {
        struct compat_picture *picture = &compat->pictures[i];
        body_clear(&picture->body);
        body_clear(&picture->original);
        job_release(&picture->job);
        job_release(&picture->kept);
        free(picture->passes);
    }
    restoration_destroy(&compat->sent);
    json_decref(compat->notes);
    free(compat->pictures);
}

struct compat_picture *compat_add(struct compat *compat, struct spool *spool, struct error *err)
{
    if (compat->count == COMPAT_PICTURES) {
        error_set(err, ERROR_INVALID, "there are more than %d pictures", COMPAT_PICTURES);
        return NULL;
    }
    struct compat_picture *more = realloc(compat->pictures, ((size_t)compat->count + 1) * sizeof *more);
    if (!more) {
        error_set(err, ERROR_NO_MEMORY, "no memory for a request");
        return NULL;
    }
    compat->pictures = more;
    more += compat->count++;
    *more = (struct compat_picture){.body.spool = spool, .original.spool = spool};
    return more;
}

struct compat_pass *compat_add_pass(struct compat_picture *picture, struct error *err)
{
    struct compat_pass *more = realloc(picture->passes, ((size_t)picture->pass_count + 1) * sizeof *more);
    if (!more || picture->pass_count == COMPAT_PASSES) {
        picture->passes = more ? more : picture->passes;
        error_set(err, ERROR_NO_MEMORY, "no memory for a request");
        return NULL;
    }
    picture->passes = more;
    more += picture->pass_count++;
    *more = (struct compat_pass){.blend = 0};
    options_init(&more->options);
    return more;
}

/* Appends a job's result to the body, and drops the job. */
static enum error_code compat_append(struct body *body, struct job **job, size_t *size, struct error *err)
{
    struct restoration *r = (*job)->restoration;
    const enum error_code code = body_append(body, r->output, r->output_bytes, err);
    *size = r->output_bytes;
    spill_free(r->output);
    r->output = NULL;
    r->output_bytes = 0;
    job_release(job);
    return code;
}

/* Makes the body what the current pass works on; *other: bytes at its end that its result is blended with. */
static enum error_code compat_prepare_body(struct compat_picture *picture, size_t *other, struct error *err)
{
    const struct compat_pass *pass = &picture->passes[picture->pass];
    size_t size;
    enum error_code code = OK;
    picture->body.spool = picture->original.spool; /* the last job took the body, and that with it */
    if (pass->again) {
        picture->kept = picture->job;
        picture->job = NULL;
        picture->body = picture->original;
        picture->original = (struct body){.spool = picture->body.spool};
    } else if (picture->job) {
        picture->mask_bytes = 0;
        code = compat_append(&picture->body, &picture->job, &size, err);
    }
    if (code == OK && pass->blend > 0)
        code = compat_append(&picture->body, &picture->kept, other, err);
    return code;
}

/* How a request is refused that its dialect does not take. */
static enum reply compat_refusal(const struct request *request, struct error *err)
{
    compat_front_explain(request, err);
    return request->reader->invalid && err->code == ERROR_INVALID ? request->reader->invalid : reply_for(err->code);
}

/* Of several pictures the error says which one it is about. What is wrong with the options is found with the first. */
static void compat_tell_which(const struct compat *compat, struct error *err)
{
    const enum error_code code = err->code;
    const bool about = code == ERROR_UNSUPPORTED || code == ERROR_CORRUPT || code == ERROR_TOO_LARGE ||
                       code == ERROR_TOO_SLOW || code == ERROR_TIMEOUT || (code == ERROR_INVALID && compat->at);
    if (!compat->field || compat->count < 2 || !about || !strncmp(err->text, "mask:", 5))
        return;
    const size_t size = strspn(err->text, "abcdefghijklmnopqrstuvwxyz0123456789_");
    const bool named = size && err->text[size] == ':' && err->text[size + 1] == ' ';
    const char *name = named ? err->text : compat->field, *rest = named ? err->text + size + 2 : err->text;
    struct error told = {.detail = ""};
    error_set(&told, code, "%.*s: picture %d of %d: %s", named ? (int)size : 100, name, compat->at + 1, compat->count,
              rest);
    memcpy(told.detail, err->detail, sizeof told.detail);
    if (err->local)
        told.local = err->local + (int)strlen(told.text) - (int)strlen(err->text);
    *err = told;
}

/* A picture's first pass: its size decides what becomes of it. */
static enum reply compat_plan(struct request *request, struct compat_picture *picture, struct restoration *r,
                              struct error *err)
{
    struct compat *compat = request->reading;
    bool again = false;
    if (compat->plan) {
        snprintf(r->options.version, sizeof r->options.version, "none");
        snprintf(r->options.bg_upsampler, sizeof r->options.bg_upsampler, "none");
        r->options.upscale = 1;
        r->options.repair = REPAIR_FALSE;
        const enum reply reply = submit_check(request, r, &picture->body, err);
        if (reply != REPLY_OK)
            return reply;
        if (compat->plan(request, picture, r, err))
            return compat_refusal(request, err);
    }
    for (int i = 1; i < picture->pass_count; i++)
        again = again || picture->passes[i].again;
    if (again && body_copy(&picture->original, &picture->body, err))
        return reply_for(err->code);
    return REPLY_OK;
}

/* Queues the picture's next job; the connection is suspended when it is REPLY_OK. */
static enum reply compat_submit(struct request *request, struct compat_picture *picture, int *wait, struct error *err)
{
    struct compat *compat = request->reading;
    struct restoration *r = NULL;
    char id[33] = "";
    if (restoration_create(&r, err))
        return reply_for(err->code);
    r->limits = server_limits(request->server->config);
    r->mask_clear = picture->mask_clear;
    r->elsewhere = !reply_is_near(request);
    r->mask_bytes = picture->mask_bytes;
    enum reply reply = picture->pass ? REPLY_OK : compat_plan(request, picture, r, err);
    if (reply == REPLY_OK && compat_prepare_body(picture, &r->other_bytes, err))
        reply = reply_for(err->code);
    if (reply == REPLY_OK) {
        r->options = picture->passes[picture->pass].options;
        r->mask_bytes = picture->mask_bytes;
        r->other_share = picture->passes[picture->pass].blend;
        reply = submit_check(request, r, &picture->body, err);
        if (reply == REPLY_BAD_REQUEST && request->reader->invalid)
            reply = request->reader->invalid;
    }
    if (reply == REPLY_OK && !picture->pass)
        reply = submit_charge(request, r, wait, err);
    if (reply == REPLY_OK) {
        job_release(&request->job);
        if (!fleet_checks(request) && *compat->job_id)
            memcpy(id, compat->job_id, sizeof id);
        else if (!fleet_checks(request))
            job_make_id(id);
        reply = *id ? compat_front_submit(request, &r, &picture->body, id, err)
                    : submit_start(request, &r, &picture->body, false, err);
    }
    bool cancelled = false;
    if (reply == REPLY_OK && !request->refused) {
        pthread_mutex_lock(&compat_all.lock);
        if (compat->listed && request->job)
            compat->working = job_hold(request->job);
        memcpy(compat->sent_id, id, sizeof id);
        cancelled = compat->cancelled; /* before there was a job to end */
        pthread_mutex_unlock(&compat_all.lock);
    }
    if (cancelled && request->job)
        worker_pool_cancel(request->server->pool, request->job, ERROR_CANCELLED);
    else if (cancelled)
        route_wait_drop(request->server->keeper, id);
    restoration_destroy(&r);
    return reply;
}

/* Keeps what a job's report says beside its result. */
static void compat_keep_notes(struct compat *compat, const struct restoration *r)
{
    compat->notes = compat->notes ? compat->notes : json_array();
    for (int i = 0; i < r->note_count; i++) {
        const json_t *known;
        bool again = false;
        size_t k;
        json_array_foreach(compat->notes, k, known) again = again || !strcmp(json_string_value(known), r->notes[i]);
        if (!again)
            json_array_append_new(compat->notes, json_string(r->notes[i]));
    }
}

/* The job of the current pass has ended; REPLY_OK, or why it failed. */
static enum reply compat_take(struct request *request, struct compat *compat, struct error *err)
{
    struct compat_picture *picture = &compat->pictures[compat->at];
    struct job *job = request->job;
    pthread_mutex_lock(&compat_all.lock);
    job_release(&compat->working);
    *compat->sent_id = 0;
    pthread_mutex_unlock(&compat_all.lock);
    if (request->refused || atomic_load(&job->state) != JOB_DONE) {
        *err = request->refused ? request->refusal : job->error;
        compat_tell_which(compat, err);
        return request->refused ? request->refused : reply_for_job(job->error.code, job->restoration->decoded);
    }
    const struct restoration *r = job->restoration;
    picture->job = job_hold(job);
    compat_keep_notes(compat, r);
    if (++picture->pass < picture->pass_count)
        return REPLY_OK;
    pthread_mutex_lock(&compat_all.lock); /* others read it */
    compat->at++;
    pthread_mutex_unlock(&compat_all.lock);
    compat->result_pixels += (uint64_t)r->out_info.width * (uint64_t)r->out_info.height;
    if (compat->result_pixels > request->server->config->result_pixels && compat->count > 1) {
        error_set(err, ERROR_TOO_LARGE,
                  "the results of all pictures of this request have more than %llu pixels together",
                  (unsigned long long)request->server->config->result_pixels);
        return REPLY_UNPROCESSABLE;
    }
    return REPLY_OK;
}

/* The body has come. */
static enum reply compat_open(struct request *request, struct compat *compat, struct error *err)
{
    uint64_t size = 0;
    const enum error_code code = compat->prepare(request, err);
    if (compat->waits)
        return REPLY_OK;
    compat->prepared = true;
    for (int i = 0; i < compat->count; i++)
        size += compat->pictures[i].body.size;
    room_shrink(request, size);
    if (code)
        return compat_refusal(request, err);
    if (!request->answered && !request->ticket)
        compat_enlist(compat, request);
    return REPLY_OK;
}

enum MHD_Result compat_answer(struct request *request)
{
    struct compat *compat = request->reading;
    struct error err = ERROR_INIT;
    int wait = 0;
    if (request->wait)
        return route_wait_answer(request);
    if (request->job && connection_gone(request->link)) {
        request->status = reply_status(REPLY_CLIENT_GONE);
        return MHD_NO; /* closes a connection that the client has closed already */
    }
    enum reply reply = compat->prepared ? compat_take(request, compat, &err) : compat_open(request, compat, &err);
    if (request->answered || request->ticket || compat->waits)
        return MHD_YES; /* prepare has answered, made it an asynchronous job, or waits */
    const bool cancelled = compat_cancelled(compat);
    if (cancelled || (reply == REPLY_OK && compat->at == compat->count))
        return compat->answer(request);
    if (reply == REPLY_OK) {
        reply = compat_submit(request, &compat->pictures[compat->at], &wait, &err);
        if (reply == REPLY_OK)
            return MHD_YES;
        compat_tell_which(compat, &err);
    }
    return compat->fail ? compat->fail(request, reply, wait, &err) : submit_refuse(request, reply, wait, &err);
}
