/* The checkpoints found on this machine and their sessions on one device.
 * The search path: models_dir, else ./models and $XDG_DATA_HOME/restored/models; PREFIX/share/restored/models of the
 * installed program; /usr/share/restored/models; all with subfolders; then the starter models, which are part of the
 * program. A model's name is its file's name without the extension. config/models.conf (embedded) knows the official
 * files by name and SHA-256: aliases ("1.3"), where to get them, licence, settings such as slope and min_sizes. A
 * models.conf in a folder of the search path has such settings for the user's own files.
 * Thread-safety: a struct model_store may be shared by all workers (it locks); struct model_set belongs to one worker.
 */
#ifndef SERVER_PIPELINE_MODEL_STORE_H
#define SERVER_PIPELINE_MODEL_STORE_H

#include <stdatomic.h>
#include <stddef.h>

#include "runtime/base/embed.h"
#include "runtime/models/model.h"

enum model_role { ROLE_DETECTOR, ROLE_FACE, ROLE_PARSER, ROLE_UPSCALER, ROLE_DAMAGE, ROLE_FILLER, ROLE_COUNT };

struct model_defaults {
    /* default_detector, default_version, default_parser, default_bg_upsampler; NULL: the official one, else others */
    const char *name[ROLE_COUNT];
    /* What models/starter/ held when the program was built (embed_starters), borrowed. NULL: no starter model is a
     * default, though one in a folder may be asked for by name. */
    const struct embed_file *starters;
    /* A folder that is searched last: of models that this server has fetched from a store for jobs that name them. None
     * of them is a default unless `name` says so. NULL: none. */
    const char *fetched;
    /* Called between files while the store is created: true ends that with ERROR_CANCELLED. May be NULL. */
    bool (*cancelled)(void);
};

/* What a safetensors file says about itself under __metadata__: cut to fit, with '?' for all but printable ASCII, ""
 * where it says nothing. Not to be trusted. */
struct model_card {
    char name[96], licence[64], commit[64], data[1024];
};

struct model_entry {        /* one file found */
    char name[128];         /* with \xNN for what is not printable UTF-8 */
    char path[1024];        /* of an embedded file "embedded:NAME.safetensors" */
    char shown[1024];       /* the path for people, as the name */
    const uint8_t *content; /* of an embedded file, bytes long; else NULL */
    bool recognised;        /* false: it has a checkpoint's extension, but is damaged or no network that we know */
    char reason[256];       /* why it is not; without the file's name */
    struct model_info info; /* when recognised */
    uint64_t bytes;
    char sha256[65];    /* hexadecimal; "" until model_store_hash */
    char known_as[128]; /* the official name or alias it stands for, "" if unknown */
    char licence[64];   /* from the user's models.conf, else the network's, the program's models.conf, the card */
    struct model_card card;
    bool starter; /* a starter model, embedded or in a folder */
    bool fetched; /* it lies in that folder of the defaults */
    atomic_bool is_default;
};

struct model_missing { /* an official file that is missing */
    char name[64], file[128], get[128];
};

struct model_store;

/* models_dir: NULL for the search path above. */
enum error_code model_store_create(struct model_store **out, const char *models_dir,
                                   const struct model_defaults *defaults, struct error *err) MUST_CHECK;
void model_store_destroy(struct model_store **store);

/* Checks whether files were added, removed or replaced, at most once a second. Returns a number that changes when they
 * were. */
uint64_t model_store_refresh(struct model_store *store);

/* Nothing changes between these two calls: for callers that walk through the list or read sha256, known_as or licence
 * while other threads run. */
void model_store_lock(const struct model_store *store);
void model_store_unlock(const struct model_store *store);
size_t model_store_count(const struct model_store *store);
const struct model_entry *model_store_at(const struct model_store *store, size_t index);
/* Why this file cannot be used, without its name: it is not recognised, or could not be read when it was hashed. NULL:
 * nothing is known against it; its values were not looked at. Under the lock. */
const char *model_store_unread(const struct model_entry *entry);
size_t model_store_missing(const struct model_store *store, const struct model_missing **out);

/* Every text that an option may name this entry by: name, SHA-256, official name and aliases; some come twice. Under
 * the lock of model_store_lock. */
typedef void model_name_fn(void *context, const char *name);
void model_store_names(const struct model_store *store, const struct model_entry *entry, model_name_fn *each,
                       void *context);
/* The length of a model's name, as options have it, without a checkpoint's extension. */
size_t model_store_stem(const char *name);

/* The folders that are searched, which need not exist; NULL after the last. */
const char *model_store_folder(const struct model_store *store, int index);

/* Computes the SHA-256 of every file that has none yet (which reads the whole file), and from it known_as and the
 * licence, of renamed files, too. */
void model_store_hash(struct model_store *store);
/* The same for one of the store's entries; false: it cannot be read, or it was stopped. */
bool model_store_hash_entry(struct model_store *store, const struct model_entry *entry);
/* Makes model_store_hash end soon, whatever thread it runs on; it will not begin again. */
void model_store_stop(struct model_store *store);

/* What another server must have for the same model: its SHA-256 and the settings that it is opened with. false: the
 * SHA-256 is not known yet. */
bool model_store_identity(const struct model_store *store, const struct model_entry *entry, char out[256]);

/* Finds the model for a role. wanted: the request's option, "" or NULL for the default. *entry is NULL with OK where
 * the role may be empty (no parser, no upsampler installed and none asked for; wanted "none"). ERROR_INVALID for a
 * model asked for by name but not installed, or of another kind, or not supported yet: the text names the file, where
 * it was looked for and how to get it. ERROR_NOT_FOUND: no default for a needed role (detector, face network): the same
 * sentence. */
enum error_code model_store_resolve(const struct model_store *store, enum model_role role, const char *wanted,
                                    const struct model_entry **entry, struct error *err) MUST_CHECK;

/* OK when there are a detector and a face network, else ERROR_NOT_FOUND with the sentence for the user. */
enum error_code model_store_ready(const struct model_store *store, struct error *err) MUST_CHECK;

/* Begins to open the default models, in threads of its own, so that they are there when the first worker's device is.
 * They stay open as long as the store. Call it once. */
void model_store_open_defaults(struct model_store *store);

/* One worker's sessions: models opened and put on its device when first used. */
struct model_set;
enum error_code model_set_create(struct model_set **out, struct model_store *store, struct device *device,
                                 struct error *err) MUST_CHECK;
void model_set_destroy(struct model_set **set);
/* The session for an entry, and the model's info. */
enum error_code model_set_session(struct model_set *set, const struct model_entry *entry, enum precision precision,
                                  struct session **session, const struct model_info **info,
                                  struct error *err) MUST_CHECK;
/* Sets how much the device may hold between jobs, as plan_cache_set_budget, and drops plans and weights to get there,
 * the least recently used first, except for the default models' weights. Call this and the next only between jobs. */
void model_set_budget(struct model_set *set, uint64_t bytes, int handles);
void model_set_settle(struct model_set *set);
/* Gives back what was not used since that time (log_clock_ms): plans, weights, and models that are not defaults.
 * Returns when the oldest of the rest was used; INFINITY: nothing is left that may be given back. */
double model_set_give_back(struct model_set *set, double since_ms);
/* Drops models whose files were replaced. Call it between restorations: none may be using them. */
void model_set_drop_replaced(struct model_set *set);
/* Removes the plans and weights of all models but one from the device, to make room for it. They come back when they
 * are used. keep may be NULL. */
void model_set_trim(struct model_set *set, const struct session *keep);

#endif
