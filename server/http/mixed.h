/* The answer with several parts (multipart/mixed, RFC 2046): the report, the picture, and maybe the faces.
 * Thread-safety: functions without state. */
#ifndef SERVER_HTTP_MIXED_H
#define SERVER_HTTP_MIXED_H

#include <microhttpd.h>

#include <jansson.h>

#include "server/job/job.h"

#define MIXED_TYPE_MAX 80

/* The response for a finished job; it holds the job until it is sent, and copies no picture. file_name: the client's,
 * unsafe. type: its Content-Type. bytes: the size of its body. NULL when memory runs out. */
struct MHD_Response *mixed_response(struct job *job, const char *file_name, char type[MIXED_TYPE_MAX], uint64_t *bytes);

/* The same from what the store has: the report, the parts (see record_output) and the open file in which they lie.
 * suffix: of the result's name. Errors: those of mapping the file, or memory; then NULL. */
struct MHD_Response *mixed_stored(int fd, json_t *report, const char *parts, const char *file_name, const char *suffix,
                                  char type[MIXED_TYPE_MAX], uint64_t *bytes, struct error *err);

#endif
