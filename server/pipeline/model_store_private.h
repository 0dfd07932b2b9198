/* Shared by model_store.c, model_scan.c, model_set.c and the bench.
 * Thread-safety: as model_store.h. */
#ifndef SERVER_PIPELINE_MODEL_STORE_PRIVATE_H
#define SERVER_PIPELINE_MODEL_STORE_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "runtime/base/file.h"
#include "runtime/base/mem.h"
#include "server/pipeline/model_conf.h"
#include "server/pipeline/model_store.h"

#define STORE_MAX_FILES 1000
#define STORE_MAX_FOLDERS 1000
#define STORE_MAX_PATHS 5

struct store_file {
    struct model_entry entry;            /* first: model_store_open goes from an entry to its file */
    struct file_id id;                   /* what was probed; zeros of an embedded one */
    const struct model_section *section; /* what models.conf knows of it, or NULL */
    struct model_settings settings;      /* that it is opened with: its section's and the user's */
    char own_licence[64];                /* what the user's section says; "": nothing */
    bool unreadable;                     /* when it was hashed */
    atomic_bool replaced;                /* its path now has another file or none; holders of the model go on */
    pthread_mutex_t lock;                /* of the next two */
    struct model *model;                 /* while somebody holds it */
    int holders;
};

struct store_folder { /* that was scanned, or does not exist */
    char *path;
    struct file_id id;
};

/* A models.conf of the user's, or none, in a folder of the search path. */
struct store_conf {
    char path[1024];
    struct file_id id;
    struct model_section *sections;
    size_t count;
};

/* What a scan of the folders found. */
struct store_list {
    struct store_conf *confs; /* one a folder of the search path */
    size_t conf_count;
    struct store_file **files;
    size_t count;
    struct store_folder *folders;
    size_t folder_count;
    bool full; /* there are more than STORE_MAX_… */
};

struct model_store {
    char *paths[STORE_MAX_PATHS];
    int path_count;
    struct model_section *sections;
    size_t section_count;
    char *fetched;                     /* the last of paths, or NULL */
    const struct embed_file *starters; /* a starter model may be a default */
    bool (*cancelled)(void);
    char default_name[ROLE_COUNT][128];
    atomic_bool stopping;

    pthread_mutex_t lock; /* recursive; guards all members below, and the entries' sha256, known_as and licence */
    struct arena *arena;  /* old lists that may still be read */
    struct store_list list;
    struct store_file **all; /* all that were ever in it: entries live as long as the store */
    size_t all_count;
    struct model_missing *missing;
    size_t missing_count;
    uint64_t generation;
    bool lost[ROLE_COUNT]; /* requests that name no model of this role fail */
    int64_t looked_ns;
    pthread_t opener; /* while `opening`: of the default models */
    bool opening;
    const struct model_entry *opened[ROLE_COUNT]; /* by it, and held */
};

/* The folders to scan. */
enum error_code model_scan_paths(struct model_store *store, const char *models_dir, const char *fetched,
                                 struct error *err) MUST_CHECK;
/* Scans them; files that are unchanged since `old` keep their entries. out is the caller's, even on failure. NO_MEMORY,
 * CANCELLED. */
enum error_code model_scan(struct model_store *store, const struct store_list *old, struct store_list *out,
                           struct error *err) MUST_CHECK;
/* Frees a list, but not the files. */
void model_scan_free(struct store_list *list);
/* Whether a folder or file has changed. */
bool model_scan_stale(const struct store_list *list);
/* The length of a name without a checkpoint's extension; the whole length if it has none. */
size_t model_scan_stem(const char *name);
/* stop: gives up when it becomes true. */
bool model_scan_hash(const struct model_entry *entry, const atomic_bool *stop, char hex[65]);

/* Sets known_as and the licence, by what is known of the file now: it was probed, and perhaps hashed. */
void model_scan_know(const struct model_store *store, struct store_file *file);

/* Opens the model of an entry, with the settings that models.conf has for it. ERROR_IO when it is no longer the file
 * that was probed. */
enum error_code model_store_open(struct model **out, const struct model_entry *entry, struct error *err) MUST_CHECK;

/* The same, but shared: opened for the first holder, closed by the last. From any thread. */
enum error_code model_store_hold(const struct model **out, const struct model_entry *entry,
                                 struct error *err) MUST_CHECK;
void model_store_release(const struct model_entry *entry);
/* The settings that an entry's model is opened with. */
const struct model_settings *model_store_settings(const struct model_entry *entry);
/* Whether the file has been replaced, so that nobody will ask for this entry again. */
bool model_store_replaced(const struct model_entry *entry);

#endif
