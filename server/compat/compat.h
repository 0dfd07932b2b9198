/* What the routes of other programs' clients share: jobs one after another, and answers that hold pictures as base64.
 * Each pass of a picture is one job of the same queue, with the same limits and the same token as one of POST
 * /v1/restore. What such requests do can be asked for, and ended, by the same token.
 * Thread-safety: as struct request; compat_look and compat_cancel may be called from any thread. */
#ifndef SERVER_COMPAT_COMPAT_H
#define SERVER_COMPAT_COMPAT_H

#include "server/http/dialect.h"
#include "server/http/upload.h"

#define COMPAT_PICTURES 64 /* of one request */
#define COMPAT_PASSES 8    /* jobs that a picture goes through, at most */

/* One job of a picture. */
struct compat_pass {
    struct options options;
    bool again;   /* it begins with the picture as it came, and what there is so far is kept for blending */
    double blend; /* how much of its result is mixed with what was kept; 0: nothing was kept */
};

/* A picture on its way: what it came as, and the passes that it goes through. */
struct compat_picture {
    struct body body, original; /* its file, with a mask behind it; the same again, if a pass needs it */
    size_t mask_bytes;
    bool mask_clear; /* see struct restoration */
    struct compat_pass *passes;
    int pass_count, pass;
    struct job *job;  /* the last one that is done, with the result */
    struct job *kept; /* for blending */
};

/* A request to one of these routes, request->reading. Its users put it first in a struct of their own. */
struct compat {
    struct compat_picture *pictures;
    int count, at;
    bool prepared;
    bool waits;    /* prepare has suspended the connection, and is called again when it goes on */
    uint64_t more; /* bytes of pictures that it may fetch, besides its body */
    bool stored;   /* it becomes an asynchronous job, which takes no place in the queue of those that are waited for */
    uint64_t result_pixels; /* of all that is done */
    json_t *notes;          /* of all jobs that are done, each once; NULL: none is done yet */
    char job_id[33];        /* at a front: of the job of its only pass; "": any */
    /* The body is there: fills in the pictures, and their passes if there is no plan; or waits for one. */
    enum error_code (*prepare)(struct request *request, struct error *err);
    /* The picture's header has been read into r->in_info: fills in its passes. NULL: they are there. */
    enum error_code (*plan)(struct request *request, struct compat_picture *picture, const struct restoration *r,
                            struct error *err);
    /* All pictures are done, or it was cancelled (`at` are done). */
    enum MHD_Result (*answer)(struct request *request);
    const char *field; /* of the pictures, where a request may have several: errors begin with it */
    /* It has failed; NULL: answered as a problem of its dialect. */
    enum MHD_Result (*fail)(struct request *request, enum reply reply, int wait, const struct error *err);

    /* under the lock of those at work */
    struct restoration *sent; /* at a front: what another server does now */
    char sent_id[33];         /* of its job */
    struct compat *next;
    struct request *request;
    char id[64]; /* by which its client knows it; "": by none */
    struct job *working;
    bool listed, cancelled;
};

/* Checks the headers, makes room for the body, and lets the reader have it. A refusal is answered. Takes over context.
 */
enum MHD_Result compat_begin(struct request *request, const struct request_reader *reader, void *context);

/* At a front: another server does the picture's pass, as the job of this id; r is taken over. When it is done
 * request->job is as if it had been done here, and compat_answer goes on. REPLY_OK: the connection is suspended, or
 * answered. */
enum reply compat_front_submit(struct request *request, struct restoration **r, struct body *body, const char *id,
                               struct error *err);
/* At a front whose database does not answer no model is known: ERROR_INVALID becomes ERROR_BUSY, after which clients
 * try again. */
void compat_front_explain(const struct request *request, struct error *err);

/* The answer of such a route. */
enum MHD_Result compat_answer(struct request *request);

/* Frees what it holds. */
void compat_clear(struct compat *compat);

/* One more picture, empty; NULL: there are too many, or no memory. */
struct compat_picture *compat_add(struct compat *compat, struct spool *spool, struct error *err);
/* One more pass of it, with all options at their defaults; the same. */
struct compat_pass *compat_add_pass(struct compat_picture *picture, struct error *err);

/* The models that a request may name, as rows of GET /v1/models: this server's own; at a front, what the others have
 * and what is published. The caller's. */
json_t *compat_models(const struct request *request);
/* A row's text, "" for none; and whether it is of that kind ("face", "upscaler"). */
const char *compat_model_text(const json_t *model, const char *key);
bool compat_model_is(const json_t *model, const char *kind);
/* The upscaler of that name, here or among the known ones; "starter": the one inside the program. NULL: none. */
const json_t *compat_upscaler(const json_t *models, const char *name);

/* --- those at work -------------------------------------------------------------------------------------------------
 */

/* What a request is at. */
struct compat_state {
    char id[64];
    char job[33];                  /* at a front: the job that it waits for; else "" */
    double progress, seconds_left; /* 0..1; negative: not known */
    int pictures, at;
};

/* The oldest request at work of the same dialect and token as this one, or of that id; false: there is none. */
bool compat_look(const struct request *request, const char *id, struct compat_state *out);
/* At a front, whatever front the request came to: of the job that the first of these waits for, else of the oldest job
 * of the same token that has not ended, as its worker last told. */
bool compat_front_look(const struct request *request, struct compat_state *out);
/* Ends it, or all of them if id is NULL; returns how many. */
int compat_cancel(const struct request *request, const char *id);
/* Gives a request an id, and lists it with those at work; false: its token has one of that id, and it stays without. */
bool compat_name(struct request *request, const char *id);

/* --- answers -------------------------------------------------------------------------------------------------------
 */

/* The picture's result, as text in JSON that compat_send fills in: base64, behind `before`. */
json_t *compat_mark(int picture, const char *before);

/* "image/png" and the like: what the picture's result is. */
const char *compat_type(const struct compat *compat, int picture);

/* Sends the JSON, which is taken over; each mark in it becomes that picture's result on its way out, so that no copy of
 * it is made. */
enum MHD_Result compat_send(struct request *request, enum reply reply, json_t *json);

/* A picture's file, and how to let go of it. */
struct compat_bytes {
    const uint8_t *data;
    size_t size;
    void *owner;
    void (*release)(void *owner);
};
/* The picture of that number, if there is one. */
typedef bool compat_picture_fn(void *context, int number, struct compat_bytes *out);

/* The same as a text to be read in pieces, from any place; takes the JSON over. NULL: no memory. */
struct compat_text;
struct compat_text *compat_text_make(json_t *json, compat_picture_fn *picture, void *context);
void compat_text_free(struct compat_text *text);
uint64_t compat_text_size(const struct compat_text *text);
size_t compat_text_read(const struct compat_text *text, uint64_t at, char *to, size_t most);
/* Sends it, and takes it over; NULL: answers that memory is out. */
enum MHD_Result compat_send_text(struct request *request, enum reply reply, struct compat_text *text);

/* Bytes of `from` in base64, from the place `at` of their text on; at most `most` characters. Returns how many. */
size_t compat_encode(const uint8_t *from, size_t size, uint64_t at, char *out, size_t most);

/* The dialects. */
extern const struct dialect openai_dialect, a1111_dialect, cog_dialect;

#endif
