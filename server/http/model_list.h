/* The text of GET /v1/models. The SHA-256 of every model takes reading gigabytes, so a thread of its own does that at
 * start; until it is done the sums are null.
 * Thread-safety: create and destroy on one thread; model_list_text from any. */
#ifndef SERVER_HTTP_MODEL_LIST_H
#define SERVER_HTTP_MODEL_LIST_H

#include "server/pipeline/model_store.h"

struct model_list;

/* The store is borrowed. */
enum error_code model_list_create(struct model_list **out, struct model_store *store, struct error *err) MUST_CHECK;
/* Waits for the thread. */
void model_list_destroy(struct model_list **model_list);

/* A copy of the JSON, free() it; NULL when memory is out. */
char *model_list_text(struct model_list *model_list, size_t *size);

#endif
