/* Parses multipart/form-data (RFC 7578) as it comes in. Anything that two parsers could read differently is refused;
 * text before the first boundary and after the last is ignored.
 * Thread-safety: a parser belongs to one thread at a time. */
#ifndef SERVER_HTTP_MULTIPART_H
#define SERVER_HTTP_MULTIPART_H

#include <stddef.h>

#include "runtime/base/error.h"

#define MULTIPART_PARTS 128       /* of a form: several times as many as there are fields */
#define MULTIPART_HEADER_MAX 8192 /* bytes of a part's header, and of Content-Type */
#define MULTIPART_BOUNDARY_MAX 70 /* RFC 2046 5.1.1 */

/* A part's header; NULL for what it does not say. The texts are as sent, without quotes and escapes. */
struct multipart_part {
    const char *name, *file_name, *encoding; /* encoding: Content-Transfer-Encoding */
};

/* Called for each part: begin, then data as long as there are bytes, then end. An error from one of them ends the
 * parse. */
struct multipart_events {
    enum error_code (*begin)(void *context, const struct multipart_part *part, struct error *err);
    enum error_code (*data)(void *context, const char *data, size_t size, struct error *err);
    enum error_code (*end)(void *context, struct error *err);
};

struct multipart;

/* content_type: the request's, which names the boundary; ERROR_INVALID when that is missing or wrong. events are
 * borrowed. */
enum error_code multipart_create(struct multipart **out, const char *content_type,
                                 const struct multipart_events *events, void *context, struct error *err) MUST_CHECK;
void multipart_destroy(struct multipart **multipart);

/* The next bytes of the body. After an error the parser may only be destroyed. */
enum error_code multipart_feed(struct multipart *multipart, const char *data, size_t size,
                               struct error *err) MUST_CHECK;

/* The body is over. ERROR_INVALID when its last boundary is missing. */
enum error_code multipart_finish(const struct multipart *multipart, struct error *err) MUST_CHECK;

#endif
