/* A request's picture and options, gathered from the query and the body: multipart/form-data, or the picture itself.
 * The first thing wrong stays; what follows is swallowed without being kept.
 * Thread-safety: an upload belongs to one thread at a time. */
#ifndef SERVER_HTTP_UPLOAD_H
#define SERVER_HTTP_UPLOAD_H

#include <microhttpd.h>

#include "server/pipeline/options.h"

#define UPLOAD_VALUE_MAX 512 /* bytes of a field's value with its final 0 */

struct upload;

/* detect: only the fields of POST /v1/detect are known. limit: bytes of the body. */
enum error_code upload_create(struct upload **out, bool detect, size_t limit, struct error *err) MUST_CHECK;
void upload_destroy(struct upload **upload);

/* Sets one option, from the query or a form field. ERROR_INVALID names the field, what was sent and what is allowed:
 * for an unknown one, one that came before, an empty value (but of suffix), one that is not UTF-8, a value out of
 * range. */
enum error_code upload_field(struct upload *upload, const char *name, const char *value, size_t size,
                             struct error *err) MUST_CHECK;

/* Says how the body comes, before it does. A body that is not multipart is the picture, whatever its declared type.
 * expected: its Content-Length. ERROR_INVALID for multipart without a boundary, ERROR_UNSUPPORTED for another
 * multipart type. */
enum error_code upload_begin(struct upload *upload, struct MHD_Connection *connection, const char *content_type,
                             size_t expected, struct error *err) MUST_CHECK;

/* The next bytes of the body. ERROR_TOO_LARGE past the limit, and what upload_part says. */
enum error_code upload_feed(struct upload *upload, const char *data, size_t size, struct error *err) MUST_CHECK;

/* The next bytes of a part of a form, as libmicrohttpd's post processor gives them: name NULL where it has none, offset
 * 0 for its first. */
enum error_code upload_part(struct upload *upload, const char *name, const char *file_name, const char *encoding,
                            const char *data, uint64_t offset, size_t size, struct error *err) MUST_CHECK;

/* The body is over. ERROR_INVALID when the form is cut off, there is no picture, or options do not go together. */
enum error_code upload_finish(struct upload *upload, struct error *err) MUST_CHECK;

struct options *upload_options(struct upload *upload);
const char *upload_file_name(const struct upload *upload); /* the client's, unsafe; "" if none */
uint64_t upload_received(const struct upload *upload);     /* bytes of the body so far */

/* Hands the picture's bytes over, free() them. */
uint8_t *upload_take(struct upload *upload, size_t *size);

#endif
