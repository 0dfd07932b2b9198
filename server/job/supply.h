/* Models that this server fetches from the store that it shares (models_from = store). A thread looks at what waits
 * there: where a job needs a published model that is not here, its file is fetched into a folder that is searched for
 * models. Only then does this server offer that model, and claim the job. So a transfer that fails costs no job an
 * attempt: it is told in the log and tried again, and meanwhile any other server may fetch it and do the job.
 *
 * What stands in a model's row (store/published.h) as `about`: {"file": its file's name, "names": [what options may
 * call it], "licence": its licence or "", "settings": lines of a models.conf (model_conf_lines), "model": the model as
 * GET /v1/models shows it}.
 *
 * Thread-safety: create and destroy on one thread; the others from any. */
#ifndef SERVER_JOB_SUPPLY_H
#define SERVER_JOB_SUPPLY_H

#include <jansson.h>

#include "server/pipeline/model_store.h"
#include "server/store/published.h"

#define SUPPLY_NAME_MAX 64 /* bytes of a model's name with its final 0: one of models.conf's */

struct supply;

struct supply_settings {
    struct store *store; /* to read from; this and the next two are borrowed */
    struct payload *payload;
    struct model_store *models;
    const char *folder;               /* where fetched models go: the `fetched` of `models` */
    uint64_t most;                    /* bytes of all files in it */
    const char *defaults[ROLE_COUNT]; /* models that are fetched whether a job needs them or not; NULL or "": none */
};

/* Makes the folder and starts the thread. ERROR_IO, ERROR_NO_MEMORY. */
enum error_code supply_create(struct supply **out, const struct supply_settings *settings,
                              struct error *err) MUST_CHECK;
/* A transfer at work is broken off. */
void supply_destroy(struct supply **supply); /* NULL-safe */

/* Before the folder is searched: removes those that were fetched first, until at most so many bytes are left. Models
 * are never removed while the server runs, because jobs that it has claimed need them. */
void supply_trim(const char *folder, uint64_t most);

/* The models that are published: objects {name, sha256, bytes, about}. The caller's; NULL: they cannot be read. Rows
 * whose `about` is not what is said above are left out. */
json_t *supply_published(struct store *store, struct error *err);

/* Whether a file of this name may be published and fetched: NAME.pth, .pt, .ckpt or .safetensors, with a name that
 * models.conf can have. ERROR_UNSUPPORTED, ERROR_INVALID: the text says why. */
enum error_code supply_check_file(const char *file, struct error *err) MUST_CHECK;

#endif
