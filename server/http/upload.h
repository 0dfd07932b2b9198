/* A request's picture and options, gathered from the query and the body: multipart/form-data, or the picture itself.
 * The first error is kept; what follows it is discarded.
 * Thread-safety: an upload belongs to one thread at a time. */
#ifndef SERVER_HTTP_UPLOAD_H
#define SERVER_HTTP_UPLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/job/body.h"
#include "server/pipeline/options.h"

#define UPLOAD_VALUE_MAX 512 /* bytes of a field's value with its final 0 */

#define UPLOAD_BATCH_MAX 64                                        /* bytes of a batch's name with its final 0 */
#define UPLOAD_BATCH_PATTERN "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,62}$" /* what upload_is_batch takes */

struct upload;

/* Fields that say how a request is answered, and are no options of the pipeline. Booleans are false by default. */
struct upload_row {
    const char *name, *type, *allowed, *help;
    bool detect;         /* POST /v1/detect takes it too */
    const char *initial; /* its default, if it is no boolean; NULL: none */
};
extern const struct upload_row upload_answers[];
extern const int upload_answer_count;

/* The fields of POST /v1/estimate only. */
struct upload_size_row {
    const char *name;
    long least, most;
    const char *allowed;
};
extern const struct upload_size_row upload_sizes[];
extern const int upload_size_count;

/* Whether this may be the name of a batch. */
bool upload_is_batch(const char *name);

/* detect: only the fields of POST /v1/detect are known. limit: bytes of the body. */
enum error_code upload_create(struct upload **out, bool detect, size_t limit, struct error *err) MUST_CHECK;
void upload_destroy(struct upload **upload);

/* Large pictures go there instead of into memory. Call it first. */
void upload_use_spool(struct upload *upload, struct spool *spool);

/* What POST /v1/estimate gets instead of a picture; 0 (faces: negative): not given. */
struct upload_size {
    int width, height, faces;
};

/* Makes it the upload of POST /v1/estimate: it also knows the fields width, height and face_count, a form may be
 * application/x-www-form-urlencoded, and no picture is needed when width and height are given. Call it first. */
void upload_take_size(struct upload *upload);
const struct upload_size *upload_size(const struct upload *upload);
bool upload_has_picture(const struct upload *upload);

/* Whether there is a field of that name: an option, or one that says how the answer comes. */
bool upload_knows(const struct upload *upload, const char *name);

/* Sets one option, from the query or a form field. ERROR_INVALID names the field, what was sent and what is allowed:
 * for an unknown field, a repeated one, an empty value (except of suffix), one that is not UTF-8, or a value out of
 * range. */
enum error_code upload_field(struct upload *upload, const char *name, const char *value, size_t size,
                             struct error *err) MUST_CHECK;

/* The same for an argument of the query, or of a body of such arguments: its name and value as decoded, which may hold
 * zero bytes; value NULL: there is no "=". One without name and value is passed over. */
enum error_code upload_argument(struct upload *upload, const char *name, size_t name_size, const char *value,
                                size_t size, struct error *err) MUST_CHECK;

/* Says how the body will come. A body that is not multipart is the picture, whatever its declared type. expected: its
 * Content-Length. ERROR_INVALID for multipart without a boundary, ERROR_UNSUPPORTED for another multipart type. */
enum error_code upload_begin(struct upload *upload, const char *content_type, size_t expected,
                             struct error *err) MUST_CHECK;

/* The next bytes of the body. After an error the picture is dropped. ERROR_TOO_LARGE past the limit; ERROR_FULL; the
 * errors of multipart_feed for a form and of upload_field for its fields; ERROR_INVALID for a part without a name, an
 * unknown one, or more than one picture. */
enum error_code upload_feed(struct upload *upload, const char *data, size_t size, struct error *err) MUST_CHECK;

/* The body is over. ERROR_INVALID when the form is cut off, there is no picture, or options do not go together. */
enum error_code upload_finish(struct upload *upload, struct error *err) MUST_CHECK;

struct options *upload_options(struct upload *upload);
/* Whether the answer shall not wait for the job: as the field async says, else as preferred (Prefer: respond-async).
 * Jobs of a batch are asynchronous. */
bool upload_async(const struct upload *upload, bool preferred);
const char *upload_batch(const struct upload *upload);     /* "" if none */
bool upload_faces_out(const struct upload *upload);        /* whether the faces are asked for, too */
bool upload_low(const struct upload *upload);              /* whether it may wait for all others */
const char *upload_file_name(const struct upload *upload); /* the client's, unsafe; "" if none */
uint64_t upload_received(const struct upload *upload);     /* bytes of the body so far */

/* Bytes of the mask that came with the picture, which stands behind it in the body; 0: none. */
size_t upload_mask(const struct upload *upload);
/* Hands over the picture's file, which the caller clears. */
void upload_take(struct upload *upload, struct body *out);

#endif
