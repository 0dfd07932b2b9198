/* The models that tests work with; what goes wrong fails the test. Thread-safety: no shared state. */
#ifndef TESTS_COMMON_MODELS_H
#define TESTS_COMMON_MODELS_H

#include "server/pipeline/model_store.h"

/* Those of a folder. defaults: as model_store_create takes them. */
struct model_store *models_of(const char *folder, const struct model_defaults *defaults);

/* The fixtures, one of each role the default. */
struct model_store *models_of_fixtures(void);

/* As model_store_resolve. */
const struct model_entry *models_resolve(const struct model_store *store, enum model_role role, const char *wanted);

#endif
