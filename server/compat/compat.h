/* What the routes of other programs' clients share: jobs one after another, and answers that hold pictures as base64.
 * Each picture is one job of the same queue, with the same limits and the same token as one of POST /v1/restore.
 * Thread-safety: as struct request. */
#ifndef SERVER_COMPAT_COMPAT_H
#define SERVER_COMPAT_COMPAT_H

#include "server/http/dialect.h"
#include "server/http/upload.h"

#define COMPAT_PICTURES 16 /* of one request, as OpenAI has it */
#define COMPAT_PASSES 5    /* jobs that a picture goes through */

/* A picture on its way: what it came as, and the jobs that it needs. */
struct compat_picture {
    struct body body; /* its file, with a mask behind it */
    size_t mask_bytes;
    bool mask_clear; /* see struct restoration */
    struct options passes[COMPAT_PASSES];
    int pass_count, pass;
    struct job *job; /* the last one that is done, with the result */
};

/* A request to one of these routes, request->reading. Its users put it first in a struct of their own. */
struct compat {
    struct compat_picture pictures[COMPAT_PICTURES];
    int count, at;
    bool prepared;
    /* The body is there: fills in the passes. Errors are answered as reply_for has it. */
    enum error_code (*prepare)(struct request *request, struct error *err);
    /* A picture is about to go through its first job, and its header has been read. NULL: there is nothing to do. */
    enum error_code (*plan)(struct compat_picture *picture, const struct restoration *r, struct error *err);
    /* All pictures are done. */
    enum MHD_Result (*answer)(struct request *request);
};

/* Checks the headers, makes room for the body, and lets the reader have it. A refusal is answered. Takes over context.
 */
enum MHD_Result compat_begin(struct request *request, const struct request_reader *reader, void *context);

/* The answer of such a route. */
enum MHD_Result compat_answer(struct request *request);

/* Frees what it holds. */
void compat_clear(struct compat *compat);

/* The picture's result, as text in JSON that compat_send fills in: base64, behind `before`. */
json_t *compat_mark(int picture, const char *before);

/* "image/png" and the like: what the picture's result is. */
const char *compat_type(const struct compat *compat, int picture);

/* Sends the JSON, which is taken over; each mark in it becomes that picture's result on its way out, so that no copy of
 * it is made. */
enum MHD_Result compat_send(struct request *request, enum reply reply, json_t *json);

/* Bytes of `from` in base64, from the place `at` of their text on; at most `most` characters. Returns how many. */
size_t compat_encode(const uint8_t *from, size_t size, uint64_t at, char *out, size_t most);

/* The routes' dialects. */
extern const struct dialect openai_dialect;

#endif
