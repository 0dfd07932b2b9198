/* The checkpoints found on this machine and their sessions on one device.
 * The search path: models_dir, else ./models, $XDG_DATA_HOME/restored/models, /usr/share/restored/models; with
 * subfolders; then the starter models, which are part of the program. A model's name is its file's name without the
 * extension. config/models.conf (embedded) knows the official files by name and SHA-256: aliases ("1.3"), where to get
 * them, licence, settings such as slope and min_sizes. Thread-safety: a struct model_store may be shared by all workers
 * (it locks); struct model_set belongs to one worker.
 */
#ifndef SERVER_PIPELINE_MODEL_STORE_H
#define SERVER_PIPELINE_MODEL_STORE_H

#include <stddef.h>

#include "runtime/base/embed.h"
#include "runtime/models/model.h"

enum model_role { ROLE_DETECTOR, ROLE_FACE, ROLE_PARSER, ROLE_UPSCALER, ROLE_COUNT };

struct model_defaults {
    /* default_detector, default_version, default_parser, default_bg_upsampler; NULL: the official one, else others */
    const char *name[ROLE_COUNT];
    /* What models/starter/ held when the program was built (embed_starters), borrowed. NULL: no starter model is a
     * default, though one that lies in a folder may be asked for by name. */
    const struct embed_file *starters;
};

/* What a safetensors file says of itself under __metadata__; cut to fit, all but printable ASCII as '?', "" where it
 * says nothing. Nobody vouches for it. */
struct model_card {
    char name[96], licence[64], commit[64], data[1024];
};

struct model_entry { /* one file found */
    char name[128];
    char path[1024];        /* of an embedded one "embedded:NAME.safetensors" */
    const uint8_t *content; /* of an embedded one, bytes long; else NULL */
    bool recognised; /* false: a file with a checkpoint's extension that is no network of ours; reason says why */
    char reason[256];
    struct model_info info; /* when recognised */
    uint64_t bytes;
    char sha256[65];    /* hexadecimal; "" until model_store_hash */
    char known_as[128]; /* the official name or alias it stands for, "" if unknown */
    char licence[64];   /* what models.conf says, else the card */
    struct model_card card;
    bool starter; /* a starter model, embedded or in a folder */
    bool is_default;
};

struct model_missing { /* an official file that is not there */
    char name[64], file[128], get[128];
};

struct model_store;

/* models_dir: NULL for the search path above. */
enum error_code model_store_create(struct model_store **out, const char *models_dir,
                                   const struct model_defaults *defaults, struct error *err) MUST_CHECK;
void model_store_destroy(struct model_store **store);

size_t model_store_count(const struct model_store *store);
const struct model_entry *model_store_at(const struct model_store *store, size_t index);
size_t model_store_missing(const struct model_store *store, const struct model_missing **out);
/* Computes the SHA-256 of every file (reads them all), and with it known_as for renamed files. Call it before reading
 * those fields while other threads run. */
void model_store_hash(struct model_store *store);

/* Finds the model for a role. wanted: the request's option, "" or NULL for the default. *entry is NULL with OK where
 * the role may be empty (no parser, no upsampler installed and none asked for; wanted "none"). ERROR_INVALID for a
 * model asked for by name but not installed, or of another kind, or not supported yet: names the file, where it was
 * looked for and how to get it. ERROR_NOT_FOUND: no default for a needed role (detector, face network): the same
 * sentence. */
enum error_code model_store_resolve(const struct model_store *store, enum model_role role, const char *wanted,
                                    const struct model_entry **entry, struct error *err) MUST_CHECK;

/* Ready when a detector and a face network are there: else ERROR_NOT_FOUND with the sentence for the user. */
enum error_code model_store_ready(const struct model_store *store, struct error *err) MUST_CHECK;

/* Begins to open the default models, in threads of its own, so that they are there when the first worker's device is.
 * They stay open as long as the store. To be called once. */
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
/* Takes the plans of all sessions but one, and the weights of all models but that one's, off the device, to give it the
 * device's memory. They come back when they are used. keep may be NULL. */
void model_set_trim(struct model_set *set, const struct session *keep);

#endif
