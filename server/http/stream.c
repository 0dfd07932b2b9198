#include "server/http/stream.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "server/http/router.h"

#define BLOCK 4096
#define TICK_MS 500
#define REST_NS 10000000                /* between two looks, so that many events do not mean many looks */
#define COMMENT_NS INT64_C(15000000000) /* a stream says something at least so often: proxies close silent ones */
#define LOOK_NS INT64_C(2000000000)     /* so often the place of a waiting job is looked at */
#define PROBES 2 /* the first is answered by a reset if the client is gone, and the second then fails */

struct streams {
    struct worker_pool *pool;
    struct events *events;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t opened;
    struct stream *first;
    int count;
    bool end, stop;
};

void stream_say(struct stream *stream, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int size = vsnprintf(NULL, 0, format, args);
    va_end(args);
    const size_t need = stream->size + (size_t)(size > 0 ? size : 0) + 1;
    if (need > stream->room) {
        char *grown = realloc(stream->text, need);
        if (!grown) {
            stream->over = true;
            return;
        }
        stream->text = grown;
        stream->room = need;
    }
    va_start(args, format);
    vsnprintf(stream->text + stream->size, stream->room - stream->size, format, args);
    va_end(args);
    stream->size = need - 1;
}

static bool stream_has_news(struct stream *stream)
{
    struct event event;
    bool lost;
    uint64_t after = stream->after;
    const size_t count = events_read(stream->streams->events, &after, *stream->job ? stream->job : NULL,
                                     stream->all ? NULL : stream->token, &event, 1, &lost);
    if (count || lost)
        return true;
    stream->after = after;
    return false;
}

/* Why a suspended stream must be asked for text; a silent one also when its client seems to be gone. */
static bool stream_is_due(struct stream *stream, int64_t now, bool ticks)
{
    if (stream->streams->end || stream_has_news(stream))
        return true;
    stream->quiet = now - stream->said_ns >= COMMENT_NS || (stream->waits && now - stream->looked_ns >= LOOK_NS);
    if (stream->quiet || !ticks || stream->probes >= PROBES || !connection_left(stream->request->link, 1))
        return stream->quiet;
    stream->probes++;
    stream->said_ns = 0; /* a comment now */
    return true;
}

static void *streams_watch(void *argument)
{
    struct streams *streams = argument;
    const struct timespec rest = {0, REST_NS};
    uint64_t seen = 0;
    int64_t ticked = 0;
    pthread_mutex_lock(&streams->lock);
    while (!streams->stop) {
        if (!streams->first) {
            pthread_cond_wait(&streams->opened, &streams->lock);
            continue;
        }
        pthread_mutex_unlock(&streams->lock);
        nanosleep(&rest, NULL);
        seen = events_wait(streams->events, seen, TICK_MS);
        const int64_t now = job_now();
        const bool ticks = now - ticked >= TICK_MS * INT64_C(1000000);
        ticked = ticks ? now : ticked;
        pthread_mutex_lock(&streams->lock);
        streams->end = streams->end || worker_pool_draining(streams->pool);
        for (struct stream *stream = streams->first; stream; stream = stream->older)
            if (stream->suspended && stream_is_due(stream, now, ticks)) {
                stream->suspended = false;
                MHD_resume_connection(stream->request->connection);
            }
    }
    pthread_mutex_unlock(&streams->lock);
    return NULL;
}

/* Whether the tokens have been read since its client was found among them. */
static bool stream_is_old(const struct stream *stream)
{
    return stream->generation != auth_generation(stream->request->server->auth);
}

/* Whether its client still is who it was, and may still listen. */
static bool stream_is_allowed(struct stream *stream)
{
    const struct request *request = stream->request;
    struct auth *auth = request->server->auth;
    struct auth_identity now;
    stream->generation = auth_generation(auth); /* before the look: one that is read meanwhile brings another */
    return auth_check(auth, router_header(request, MHD_HTTP_HEADER_AUTHORIZATION), &now) == AUTH_GOOD &&
           now.admin == request->identity.admin && !strcmp(now.name, request->identity.name);
}

/* Suspends the connection, unless there is something to say after all. */
static bool stream_suspend(struct stream *stream)
{
    struct streams *streams = stream->streams;
    pthread_mutex_lock(&streams->lock);
    const bool suspended = !streams->end && !stream_is_old(stream) && !stream_has_news(stream);
    stream->suspended = suspended;
    if (suspended)
        MHD_suspend_connection(stream->request->connection);
    pthread_mutex_unlock(&streams->lock);
    return suspended;
}

static bool streams_ended(struct streams *streams)
{
    pthread_mutex_lock(&streams->lock);
    const bool ended = streams->end;
    pthread_mutex_unlock(&streams->lock);
    return ended;
}

/* libmicrohttpd can send more. */
static ssize_t stream_read(void *context, uint64_t position, char *out, size_t most)
{
    struct stream *stream = context;
    (void)position;
    for (;;) {
        const int64_t now = job_now();
        if (stream->sent < stream->size) {
            const size_t left = stream->size - stream->sent, n = left < most ? left : most;
            memcpy(out, stream->text + stream->sent, n);
            stream->sent += n;
            stream->said_ns = now;
            stream->request->answer_bytes += n;
            return (ssize_t)n;
        }
        if (stream_is_old(stream) && !stream_is_allowed(stream))
            stream->over = true;
        if (stream->over || streams_ended(stream->streams))
            return MHD_CONTENT_READER_END_OF_STREAM;
        stream->size = stream->sent = 0;
        const bool quiet = stream->quiet;
        stream->quiet = false;
        stream->looked_ns = quiet ? now : stream->looked_ns;
        stream->next(stream, quiet);
        if (!stream->size && !stream->over && now - stream->said_ns >= COMMENT_NS)
            stream_say(stream, ":\n\n");
        if (!stream->size && !stream->over && stream_suspend(stream))
            return 0;
    }
}

static void stream_close(void *context)
{
    struct stream *stream = context;
    struct streams *streams = stream->streams;
    pthread_mutex_lock(&streams->lock);
    if (stream->newer)
        stream->newer->older = stream->older;
    else
        streams->first = stream->older;
    if (stream->older)
        stream->older->newer = stream->newer;
    streams->count--;
    pthread_mutex_unlock(&streams->lock);
    free(stream->text);
    free(stream);
}

/* Adds it to the list; false: there are too many. */
static bool stream_open(struct stream *stream, int most)
{
    struct streams *streams = stream->streams;
    pthread_mutex_lock(&streams->lock);
    const bool room = streams->count < most;
    if (room) {
        stream->older = streams->first;
        if (stream->older)
            stream->older->newer = stream;
        streams->first = stream;
        streams->count++;
        pthread_cond_signal(&streams->opened);
    }
    pthread_mutex_unlock(&streams->lock);
    return room;
}

enum MHD_Result stream_answer(const struct stream *as, int most)
{
    struct request *request = as->request;
    struct error err = ERROR_INIT;
    struct stream *stream = mem_calloc(1, sizeof *stream);
    if (!stream)
        return MHD_NO;
    *stream = *as;
    stream->streams = request->server->streams;
    stream->said_ns = job_now();
    if (!stream_open(stream, most)) {
        free(stream);
        error_set(&err, ERROR_BUSY, "%d clients listen to events, and no more may (connections)", most);
        metrics_rejected(request->server->metrics, REJECTED_CONNECTIONS);
        return reply_problem(request, REPLY_UNAVAILABLE, &err, NULL, MHD_HTTP_HEADER_RETRY_AFTER, "10");
    }
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, stream_read, stream, stream_close);
    if (!response) {
        stream_close(stream);
        return MHD_NO;
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    MHD_add_response_header(response, "X-Accel-Buffering", "no");
    const enum MHD_Result result = reply_send(request, REPLY_OK, response, "text/event-stream");
    connection_streaming(request->link);
    return result;
}

enum error_code streams_create(struct streams **out, struct worker_pool *pool, struct error *err)
{
    *out = NULL;
    struct streams *streams = mem_calloc(1, sizeof *streams);
    if (!streams)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the streams");
    streams->pool = pool;
    streams->events = worker_pool_events(pool);
    pthread_mutex_init(&streams->lock, NULL);
    pthread_cond_init(&streams->opened, NULL);
    if (pthread_create(&streams->thread, NULL, streams_watch, streams)) {
        free(streams);
        return error_set(err, ERROR_IO, "the thread that watches streams could not be started");
    }
    *out = streams;
    return OK;
}

/* All that are suspended go on. end: and end. */
static void streams_resume(struct streams *streams, bool end)
{
    pthread_mutex_lock(&streams->lock);
    streams->end = streams->end || end;
    for (struct stream *stream = streams->first; stream; stream = stream->older)
        if (stream->suspended) {
            stream->suspended = false;
            MHD_resume_connection(stream->request->connection);
        }
    pthread_mutex_unlock(&streams->lock);
}

void streams_recheck(struct streams *streams)
{
    streams_resume(streams, false);
}

void streams_end(struct streams *streams)
{
    if (streams)
        streams_resume(streams, true);
}

void streams_destroy(struct streams **streams)
{
    struct streams *old = *streams;
    *streams = NULL;
    if (!old)
        return;
    pthread_mutex_lock(&old->lock);
    old->stop = true;
    pthread_cond_signal(&old->opened);
    pthread_mutex_unlock(&old->lock);
    events_wake(old->events);
    pthread_join(old->thread, NULL);
    pthread_cond_destroy(&old->opened);
    pthread_mutex_destroy(&old->lock);
    free(old);
}
