/* Which of a store's models fills a role, and what is said where none does.
 * Thread-safety: under the store's lock. */
#ifndef SERVER_PIPELINE_MODEL_CHOICE_H
#define SERVER_PIPELINE_MODEL_CHOICE_H

#include "server/pipeline/model_store_private.h"

/* As model_store_resolve, which see, of the list as it is. */
enum error_code model_choice(const struct model_store *store, enum model_role role, const char *wanted,
                             const struct model_entry **entry, struct error *err) MUST_CHECK;

/* The option that chooses a role's model. */
const char *model_choice_option(enum model_role role);

/* The file that a section of models.conf is about; NULL: it is not there. */
struct store_file *model_choice_file(const struct model_store *store, const struct model_section *section);

/* The command that gets a section's file. */
void model_choice_get(const struct model_section *section, char *out, size_t size);

#endif
