/* The JSON schemas of /openapi.json: what the server answers with, and the values of its options and fields.
 * Thread-safety: functions without state. Each returns a new reference, NULL when memory runs out. */
#ifndef SERVER_HTTP_OPENAPI_SCHEMA_H
#define SERVER_HTTP_OPENAPI_SCHEMA_H

#include <jansson.h>

#include "server/config.h"
#include "server/http/upload.h"

/* The schema of a type, with this sentence as its description (NULL: none):
 *   string, integer, number, boolean, time, binary, any
 *   Name      a schema of openapi_schemas
 *   =a|b      one of these texts; =@state and the like: of the names that a C enum has
 *   type[]    a list, type[5] a list of five
 *   type?     or null; stands last */
json_t *openapi_schema(const char *type, const char *help);

/* The value of an option; of a field that says how a request is answered; of a field of POST /v1/estimate. */
json_t *openapi_schema_option(const struct option_row *row);
json_t *openapi_schema_field(const struct upload_row *row);
json_t *openapi_schema_size(const struct upload_size_row *row);

/* All named schemas, by their names. */
json_t *openapi_schema_all(const struct config *config);

#endif
