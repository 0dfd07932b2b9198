/* The text of GET /v1/models, made again when files change. The SHA-256 sums need gigabytes to be read, so a separate
 * thread computes them; until it is done they are null.
 * Thread-safety: create and destroy on one thread; model_list_text from any. */
#ifndef SERVER_HTTP_MODEL_LIST_H
#define SERVER_HTTP_MODEL_LIST_H

#include <jansson.h>

#include "server/pipeline/model_store.h"

struct model_list;

/* The store is borrowed. */
enum error_code model_list_create(struct model_list **out, struct model_store *store, struct error *err) MUST_CHECK;
/* Ends the hashing of the store for good. */
void model_list_destroy(struct model_list **model_list);

/* A copy of the JSON (near: as json_models), to be freed with free(); NULL when memory runs out. */
char *model_list_text(struct model_list *model_list, bool near, size_t *size);

/* Adds to what json_models gives the same once more as OpenAI's clients read it: "object", and as "data" what POST
 * /v1/images/edits takes as its model. */
void model_list_add_ids(json_t *json);

#endif
