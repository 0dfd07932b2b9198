/* The rows that /openapi.json is made of: what the server's own tables do not have.
 * Thread-safety: constant data. */
#ifndef SERVER_HTTP_OPENAPI_ROWS_H
#define SERVER_HTTP_OPENAPI_ROWS_H

#include <stddef.h>

#include "server/http/router.h"

/* Parameters that are no options. key: its name in components and in the table of operations, which names those that
 * are in the path or in headers; those in the query stand in the router's table. */
struct openapi_parameter {
    const char *key, *name, *in, *type, *help, *pattern;
    int least, most; /* of a number, or of a text's length; both 0: no bounds */
    const char *example;
};
extern const struct openapi_parameter openapi_parameter_rows[];
extern const size_t openapi_parameter_count;

/* Headers of answers. */
struct openapi_header {
    const char *name, *type, *help;
};
extern const struct openapi_header openapi_header_rows[];
extern const size_t openapi_header_count;

enum openapi_body { BODY_NONE, BODY_RESTORE, BODY_DETECT, BODY_DAMAGE, BODY_ESTIMATE, BODY_COUNT };
struct openapi_body_row {
    const char *name, *help;
};
extern const struct openapi_body_row openapi_body_rows[BODY_COUNT];

/* Bodies to try: the members of a form, as JSON. "@photo.jpg" stands for a picture's bytes. */
struct openapi_example {
    enum openapi_body body;
    const char *name, *summary, *json;
};
extern const struct openapi_example openapi_example_rows[];
extern const size_t openapi_example_count;

/* Every route of the router, in its order; a test compares them. content: media types and names of schemas, which are
 * JSON, with blanks between; NULL: no body. wrong: problems that are worth naming beside those that all routes have. */
struct openapi_operation {
    enum route_method method;
    const char *path, *id, *tag, *summary, *parameters;
    enum openapi_body body;
    struct openapi_good {
        enum reply reply; /* REPLY_OK without content: the end */
        const char *content, *headers;
    } good[3];
    enum reply wrong[12]; /* REPLY_OK: the end */
};
extern const struct openapi_operation openapi_operations[];
extern const size_t openapi_operation_count;

#endif
