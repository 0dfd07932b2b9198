/* What model_set.c needs of model_store.c.
 * Thread-safety: as model_store.h. */
#ifndef SERVER_PIPELINE_MODEL_STORE_PRIVATE_H
#define SERVER_PIPELINE_MODEL_STORE_PRIVATE_H

#include "server/pipeline/model_store.h"

/* The settings that models.conf has for an entry of a store; NULL for the reference's. */
const struct model_settings *model_store_settings(const struct model_entry *entry);

#endif
