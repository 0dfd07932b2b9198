/* Answers: pictures, JSON, text, and RFC 9457 problems. The only place with HTTP status numbers.
 * Thread-safety: as struct request. */
#ifndef SERVER_HTTP_REPLY_H
#define SERVER_HTTP_REPLY_H

#include <jansson.h>
#include <microhttpd.h>

#include "runtime/base/error.h"

struct request;

enum reply {
    REPLY_OK,
    REPLY_NOT_MODIFIED,
    REPLY_BAD_REQUEST,
    REPLY_NOT_FOUND,
    REPLY_METHOD_NOT_ALLOWED,
    REPLY_NOT_ACCEPTABLE,
    REPLY_LENGTH_REQUIRED,
    REPLY_BODY_TOO_LARGE,
    REPLY_UNSUPPORTED,
    REPLY_EXPECTATION_FAILED,
    REPLY_UNPROCESSABLE,
    REPLY_QUEUE_FULL,
    REPLY_HEADER_TOO_LARGE,
    REPLY_CLIENT_GONE, /* for the log and the metrics alone */
    REPLY_INTERNAL,
    REPLY_UNAVAILABLE,
    REPLY_TIMEOUT
};

/* The status number. */
int reply_status(enum reply reply);

/* What an error means to a client. */
enum reply reply_for(enum error_code code);

/* Queues a response: adds the headers that every answer has. It takes the response over. content_type NULL: none. */
enum MHD_Result reply_send(struct request *request, enum reply reply, struct MHD_Response *response,
                           const char *content_type);

/* Takes the JSON reference over; NULL is answered as out of memory. */
enum MHD_Result reply_json(struct request *request, enum reply reply, json_t *json);

/* Text that is free()d. */
enum MHD_Result reply_text(struct request *request, enum reply reply, char *text, size_t size,
                           const char *content_type);

/* A problem: the text is err's, '?' for what is not UTF-8 in it. extra: members added to it (taken over), or NULL.
 * header and value: one more header, or NULL. */
enum MHD_Result reply_problem(struct request *request, enum reply reply, const struct error *err, json_t *extra,
                              const char *header, const char *value);

#endif
