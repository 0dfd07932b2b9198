/* What model_set.c and the bench need of model_store.c.
 * Thread-safety: as model_store.h. */
#ifndef SERVER_PIPELINE_MODEL_STORE_PRIVATE_H
#define SERVER_PIPELINE_MODEL_STORE_PRIVATE_H

#include "server/pipeline/model_store.h"

/* Opens the model of an entry, with the settings that models.conf has for it. */
enum error_code model_store_open(struct model **out, const struct model_entry *entry, struct error *err) MUST_CHECK;

/* The same, shared by all who hold it: opened for the first, closed with the last. From any thread. */
enum error_code model_store_hold(const struct model **out, const struct model_entry *entry,
                                 struct error *err) MUST_CHECK;
void model_store_release(const struct model_entry *entry);

#endif
