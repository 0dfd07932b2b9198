/* What model_set.c and the bench need of model_store.c.
 * Thread-safety: as model_store.h. */
#ifndef SERVER_PIPELINE_MODEL_STORE_PRIVATE_H
#define SERVER_PIPELINE_MODEL_STORE_PRIVATE_H

#include "server/pipeline/model_store.h"

/* Opens the model of an entry, with the settings that models.conf has for it. */
enum error_code model_store_open(struct model **out, const struct model_entry *entry, struct error *err) MUST_CHECK;

#endif
