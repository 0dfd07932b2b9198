/* GET /openapi.json: the API described for programs, from the tables that the server itself uses.
 * Thread-safety: functions without state. */
#ifndef SERVER_HTTP_OPENAPI_H
#define SERVER_HTTP_OPENAPI_H

#include <jansson.h>

#include "server/config.h"

/* The OpenAPI 3.1 document; a new reference, NULL when memory runs out. tokens: the server asks for them. */
json_t *openapi_document(const struct config *config, bool tokens);

#endif
