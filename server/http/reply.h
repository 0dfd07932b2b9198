/* Answers: pictures, JSON, text, and RFC 9457 problems. The only place with HTTP status numbers.
 * Thread-safety: as struct request. */
#ifndef SERVER_HTTP_REPLY_H
#define SERVER_HTTP_REPLY_H

#include <jansson.h>
#include <microhttpd.h>
#include <stdbool.h>

#include "runtime/base/error.h"

struct request;

enum reply {
    REPLY_OK,
    REPLY_ACCEPTED,
    REPLY_NO_CONTENT,
    REPLY_NOT_MODIFIED,
    REPLY_BAD_REQUEST,
    REPLY_UNAUTHORIZED,
    REPLY_FORBIDDEN,
    REPLY_NOT_FOUND,
    REPLY_METHOD_NOT_ALLOWED,
    REPLY_NOT_ACCEPTABLE,
    REPLY_CONFLICT,
    REPLY_GONE,
    REPLY_LENGTH_REQUIRED,
    REPLY_BODY_TOO_LARGE,
    REPLY_UNSUPPORTED,
    REPLY_EXPECTATION_FAILED,
    REPLY_MISDIRECTED,
    REPLY_UNPROCESSABLE,
    REPLY_QUEUE_FULL,
    REPLY_MEMORY_FULL,
    REPLY_RATE_LIMITED,
    REPLY_TOO_MANY_JOBS,
    REPLY_HEADER_TOO_LARGE,
    REPLY_CLIENT_GONE, /* only for the log and the metrics */
    REPLY_INTERNAL,
    REPLY_UNAVAILABLE,
    REPLY_TIMEOUT,
    REPLY_FULL,
    REPLY_COUNT
};

/* The status number, and what it is in words. */
int reply_status(enum reply reply);
const char *reply_title(enum reply reply);

/* The codes of all problems with this status (0: with any), a JSON array. */
json_t *reply_codes(int status);

/* What an error means to a client. */
enum reply reply_for(enum error_code code);

/* Queues a response, with the headers that every answer has, and takes it over. content_type NULL: none. */
enum MHD_Result reply_send(struct request *request, enum reply reply, struct MHD_Response *response,
                           const char *content_type);

/* Whether the client is on this machine. A proxy on this machine says which client it asks for. */
bool reply_is_near(const struct request *request);

/* An error's text for this client, as a complete sentence: it begins with a capital letter, unless it begins with the
 * name of a field or device. Clients on other machines are not told this machine's paths and commands (error_local).
 * out has room for err->text. */
char *reply_sentence(char *out, const struct request *request, const struct error *err);

/* The text, which ends with a newline for people with curl; to be freed with free(). NULL when memory runs out. Takes
 * the reference over. */
char *reply_dump(json_t *json, size_t *size);

/* Takes the JSON reference over; NULL gives the answer for out of memory. */
enum MHD_Result reply_json(struct request *request, enum reply reply, json_t *json);

/* Text that is free()d. */
enum MHD_Result reply_text(struct request *request, enum reply reply, char *text, size_t size,
                           const char *content_type);

/* A problem with err's text ('?' for what is not UTF-8 in it). extra: additional members (taken over), or NULL. header
 * and value: an additional header, or NULL. */
enum MHD_Result reply_problem(struct request *request, enum reply reply, const struct error *err, json_t *extra,
                              const char *header, const char *value);

/* The problem itself, about the resource at this path; a new reference, NULL when memory runs out. */
json_t *reply_problem_json(const struct request *request, enum reply reply, const struct error *err,
                           const char *instance);

/* What a job's error means to a client. Once the picture is decoded, what is broken or not supported is ours: a model's
 * file, an operator of the device. */
enum reply reply_for_job(enum error_code code, bool decoded);

/* The problem's code: what its status, or its error, is called. */
const char *reply_code(enum reply reply, const struct error *err);

/* The same as reply_problem in the middle of a body, where libmicrohttpd takes no response: written directly to the
 * socket. The connection must be closed next (MHD_NO). */
void reply_now(struct request *request, enum reply reply, const struct error *err);

#endif
