/* Answers that go on for as long as something happens (Server-Sent Events). No thread waits for any of them: a
 * connection without news is suspended, and one thread for all resumes those that have some. A client that does not
 * read is closed; nothing is kept for it beyond the ring of events and one piece of text.
 * Thread-safety: streams_create and streams_destroy on one thread; a stream belongs to the HTTP thread of its
 * connection, and to the watching thread while it is suspended; the rest from any. */
#ifndef SERVER_HTTP_STREAM_H
#define SERVER_HTTP_STREAM_H

#include "server/http/request.h"
#include "server/job/events.h"

struct streams;

struct stream {
    struct request *request;
    char job[33];      /* "": of all jobs */
    char token[64];    /* whose jobs: of this token */
    bool all;          /* or of all */
    uint64_t after;    /* the last event that it has, or that is not for it */
    bool begun;        /* it has had its first text */
    bool over;         /* it ends when its text is sent */
    bool waits;        /* its job waits: it is asked from time to time even if there is no event */
    uint64_t position; /* the place in the queue that it was told last */
    /* Asks for its next text (stream_say), or to set `over`; what says nothing waits for the next event. quiet: for a
     * while there was none. */
    void (*next)(struct stream *stream, bool quiet);

    /* the following are of stream.c */
    struct streams *streams;
    struct stream *newer, *older;
    char *text;
    size_t size, room, sent;
    bool suspended, quiet;
    uint64_t generation; /* of the tokens by which its client may listen */
    int probes;          /* comments sent to see whether the client is still there */
    int64_t said_ns, looked_ns, asked_ns;
};

enum error_code streams_create(struct streams **out, struct worker_pool *pool, struct error *err) MUST_CHECK;
/* The tokens have been read again: whose token is not among them any more, or is another's now, is not listened to any
 * longer. */
void streams_recheck(struct streams *streams);

/* Ends all of them, now and from now on: call it before HTTP stops. NULL-safe. */
void streams_end(struct streams *streams);
void streams_destroy(struct streams **streams);

/* Answers the request with a stream that begins as this one, of which request, job, token, all, after and next are
 * set. most: so many may be open. */
enum MHD_Result stream_answer(const struct stream *as, int most);

/* Appends to the text. Out of memory: the stream ends. */
void stream_say(struct stream *stream, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
