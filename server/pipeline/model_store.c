#include "server/pipeline/model_store.h"

#include <dirent.h>
#include <nettle/sha2.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "server/pipeline/model_conf.h"
#include "server/pipeline/model_store_private.h"

#define STORE_MAX_DEPTH 6
#define STORE_MAX_FILES 1000
#define STORE_MAX_PATHS 4

struct store_file {
    struct model_entry entry;            /* first: model_store_open goes from an entry to its file */
    const struct model_section *section; /* what models.conf knows of it, or NULL */
    pthread_mutex_t lock;                /* of the next two */
    struct model *model;                 /* while somebody holds it */
    int holders;
};

struct model_store {
    char *paths[STORE_MAX_PATHS];
    int path_count;
    struct model_section *sections;
    size_t section_count;
    struct store_file **files; /* entries stay where they are while the list grows */
    size_t file_count;
    struct model_missing *missing;
    size_t missing_count;
    bool starters; /* a starter model may be a default */
    char default_name[ROLE_COUNT][128];
    pthread_mutex_t lock; /* of sha256 and known_as, the only fields of entries that change after creation */
    pthread_t opener;     /* while `opening`: of the default models */
    bool opening;
    const struct model_entry *opened[ROLE_COUNT]; /* by it, and held */
};

static const struct store_role {
    const char *option, *what, *article;
} store_roles[ROLE_COUNT] = {
    [ROLE_DETECTOR] = {"detector", "detector", "a"},
    [ROLE_FACE] = {"version", "face network", "a"},
    [ROLE_PARSER] = {"parser", "face parser", "a"},
    [ROLE_UPSCALER] = {"bg_upsampler", "upscaler", "an"},
};
_Static_assert((int)ROLE_DETECTOR == MODEL_DETECTOR && (int)ROLE_FACE == MODEL_FACE &&
                   (int)ROLE_PARSER == MODEL_PARSER && (int)ROLE_UPSCALER == MODEL_UPSCALER,
               "a role is filled by the kind of the same number");

static const char *const store_extensions[] = {".pth", ".pt", ".safetensors"};

/* The length of a name without a checkpoint's extension; the whole length if it has none. */
static size_t store_stem(const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof store_extensions / sizeof store_extensions[0]; i++) {
        size_t e = strlen(store_extensions[i]);
        if (n > e && strcasecmp(name + n - e, store_extensions[i]) == 0)
            return n - e;
    }
    return n;
}

static bool store_hash_file(const struct model_entry *entry, char hex[65])
{
    struct file file = {0};
    struct error err = ERROR_INIT;
    if (!entry->content && file_map(&file, entry->path, &err) != OK)
        return false;
    struct sha256_ctx context;
    uint8_t digest[SHA256_DIGEST_SIZE];
    sha256_init(&context);
    if (entry->content)
        sha256_update(&context, (size_t)entry->bytes, entry->content);
    else
        sha256_update(&context, file.size, file.data);
    sha256_digest(&context, sizeof digest, digest);
    file_unmap(&file);
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    return true;
}

/* A section stands for the files of its hash, or of its name. A file is hashed here only where that decides how it has
 * to be run (settings): a renamed copy of the others is recognised by model_store_hash. */
static void store_identify(struct model_store *store, struct store_file *file)
{
    struct model_entry *e = &file->entry;
    for (size_t i = 0; i < store->section_count && !file->section; i++) {
        const struct model_section *s = &store->sections[i];
        if (s->has_settings && s->sha256[0]) {
            if (s->bytes == e->bytes && (e->sha256[0] || store_hash_file(e, e->sha256)) &&
                strcmp(e->sha256, s->sha256) == 0)
                file->section = s;
        } else if (strcmp(s->name, e->name) == 0) {
            file->section = s;
        }
    }
    if (!file->section)
        return;
    e->starter = file->section->starter;
    snprintf(e->licence, sizeof e->licence, "%s", file->section->licence);
    bool same_size = !file->section->bytes || file->section->bytes == e->bytes;
    if (same_size && (!e->sha256[0] || !file->section->sha256[0] || strcmp(e->sha256, file->section->sha256) == 0))
        snprintf(e->known_as, sizeof e->known_as, "%s", file->section->name);
}

/* A text of the file's own, fit to be shown anywhere. */
static void store_text(char *out, size_t size, const struct weights *weights, const char *key)
{
    const char *text = weights_metadata(weights, key);
    size_t n = 0;
    for (; text && text[n] && n + 1 < size; n++)
        out[n] = text[n] >= 0x20 && text[n] < 0x7f ? text[n] : '?';
    out[n] = '\0';
}

/* What the file is and says of itself, by its header alone. */
static void store_probe(struct model_entry *e)
{
    struct weights *weights = NULL;
    struct error err = ERROR_INIT;
    enum error_code code = e->content ? weights_open_memory(&weights, e->path, e->content, (size_t)e->bytes, &err)
                                      : weights_open(&weights, e->path, &err);
    if (code == OK)
        code = model_probe(&e->info, weights, e->path, &err);
    e->recognised = code == OK;
    if (e->recognised) {
        store_text(e->card.name, sizeof e->card.name, weights, "name");
        store_text(e->card.licence, sizeof e->card.licence, weights, "licence");
        store_text(e->card.commit, sizeof e->card.commit, weights, "commit");
        store_text(e->card.data, sizeof e->card.data, weights, "data");
        if (!e->licence[0])
            memcpy(e->licence, e->card.licence, sizeof e->licence);
    } else {
        snprintf(e->reason, sizeof e->reason, "%.255s", err.text);
    }
    weights_close(&weights);
}

/* content: NULL for a file at path. */
static enum error_code store_add(struct model_store *store, const char *path, const char *name, const uint8_t *content,
                                 uint64_t bytes, struct error *err)
{
    size_t stem = store_stem(name);
    if (stem == strlen(name) || stem >= sizeof((struct model_entry *)0)->name ||
        strlen(path) >= sizeof((struct model_entry *)0)->path || store->file_count >= STORE_MAX_FILES)
        return OK;
    for (size_t i = 0; i < store->file_count; i++) {
        const char *other = store->files[i]->entry.name;
        if (strlen(other) == stem && memcmp(other, name, stem) == 0)
            return OK; /* found earlier on the search path */
    }
    struct store_file **grown = realloc(store->files, (store->file_count + 1) * sizeof *grown);
    if (grown)
        store->files = grown;
    struct store_file *file = grown ? mem_calloc(1, sizeof *file) : NULL;
    if (!file)
        return error_set(err, ERROR_NO_MEMORY, "out of memory while listing models");
    store->files[store->file_count++] = file;
    pthread_mutex_init(&file->lock, NULL);
    struct model_entry *e = &file->entry;
    memcpy(e->name, name, stem);
    memcpy(e->path, path, strlen(path) + 1);
    e->content = content;
    e->bytes = bytes;
    store_identify(store, file);
    store_probe(e);
    return OK;
}

struct store_walk { /* the folders that we are in, so that a link back to one of them ends there */
    const struct store_walk *parent;
    dev_t device;
    ino_t inode;
    int depth;
};

static enum error_code store_scan(struct model_store *store, const char *path, const struct store_walk *parent,
                                  struct error *err)
{
    struct stat st;
    struct store_walk walk = {.parent = parent, .depth = parent ? parent->depth + 1 : 0};
    if (walk.depth > STORE_MAX_DEPTH || stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return OK;
    walk.device = st.st_dev;
    walk.inode = st.st_ino;
    for (const struct store_walk *w = parent; w; w = w->parent)
        if (w->device == walk.device && w->inode == walk.inode)
            return OK;
    struct dirent **names = NULL;
    int count = scandir(path, &names, NULL, alphasort);
    enum error_code code = OK;
    for (int pass = 0; pass < 2; pass++) { /* a folder's own files go before those of its subfolders */
        for (int i = 0; i < count && code == OK; i++) {
            const char *name = names[i]->d_name;
            char full[1024];
            if (name[0] == '.' || snprintf(full, sizeof full, "%s/%s", path, name) >= (int)sizeof full ||
                stat(full, &st) != 0)
                continue;
            if (pass == 0 && S_ISREG(st.st_mode))
                code = store_add(store, full, name, NULL, (uint64_t)st.st_size, err);
            else if (pass == 1 && S_ISDIR(st.st_mode))
                code = store_scan(store, full, &walk, err);
        }
    }
    for (int i = 0; i < count; i++)
        free(names[i]);
    free(names);
    return code;
}

static enum error_code store_add_starters(struct model_store *store, const struct embed_file *file, struct error *err)
{
    enum error_code code = OK;
    for (; file && file->name && code == OK; file++) {
        char path[1024];
        snprintf(path, sizeof path, "embedded:%s", file->name);
        code = store_add(store, path, file->name, file->start, (uint64_t)(file->end - file->start), err);
    }
    return code;
}

static enum error_code store_add_path(struct model_store *store, const char *a, const char *b, struct error *err)
{
    char *path = mem_alloc(strlen(a) + strlen(b) + 1, 1);
    if (!path)
        return error_set(err, ERROR_NO_MEMORY, "out of memory while listing models");
    sprintf(path, "%s%s", a, b);
    store->paths[store->path_count++] = path;
    return OK;
}

static enum error_code store_search_path(struct model_store *store, const char *models_dir, struct error *err)
{
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    enum error_code code = OK;
    if (models_dir && *models_dir) {
        code = store_add_path(store, models_dir, "", err);
    } else {
        code = store_add_path(store, "./models", "", err);
        if (code == OK && data && data[0] == '/')
            code = store_add_path(store, data, "/restored/models", err);
        else if (code == OK && home && home[0] == '/')
            code = store_add_path(store, home, "/.local/share/restored/models", err);
    }
    return code == OK ? store_add_path(store, "/usr/share/restored/models", "", err) : code;
}

/* The command that gets a section's file. */
static void store_get_command(const struct model_section *section, char *out, size_t size)
{
    snprintf(out, size, section->is_default ? "make models" : "make models MODELS=%s", section->name);
}

static struct store_file *store_file_of(const struct model_store *store, const struct model_section *section)
{
    for (size_t i = 0; i < store->file_count; i++)
        if (store->files[i]->section == section)
            return store->files[i];
    return NULL;
}

static enum error_code store_list_missing(struct model_store *store, struct error *err)
{
    store->missing = mem_calloc(store->section_count, sizeof *store->missing);
    if (!store->missing)
        return error_set(err, ERROR_NO_MEMORY, "out of memory while listing models");
    for (size_t i = 0; i < store->section_count; i++) {
        const struct model_section *s = &store->sections[i];
        if (!s->downloadable || !s->supported || store_file_of(store, s))
            continue;
        struct model_missing *m = &store->missing[store->missing_count++];
        snprintf(m->name, sizeof m->name, "%s", s->name);
        snprintf(m->file, sizeof m->file, "%s", s->file);
        store_get_command(s, m->get, sizeof m->get);
    }
    return OK;
}

enum error_code model_store_create(struct model_store **out, const char *models_dir,
                                   const struct model_defaults *defaults, struct error *err)
{
    *out = NULL;
    struct model_store *store = mem_calloc(1, sizeof *store);
    if (!store)
        return error_set(err, ERROR_NO_MEMORY, "out of memory while listing models");
    pthread_mutex_init(&store->lock, NULL);
    for (int role = 0; defaults && role < ROLE_COUNT; role++)
        if (defaults->name[role])
            snprintf(store->default_name[role], sizeof store->default_name[role], "%s", defaults->name[role]);
    enum error_code code = model_conf_load(&store->sections, &store->section_count, err);
    if (code == OK)
        code = store_search_path(store, models_dir, err);
    for (int i = 0; code == OK && i < store->path_count; i++)
        code = store_scan(store, store->paths[i], NULL, err);
    store->starters = defaults && defaults->starters;
    if (code == OK && store->starters)
        code = store_add_starters(store, defaults->starters, err);
    if (code == OK)
        code = store_list_missing(store, err);
    for (size_t i = 0; code == OK && i < store->file_count; i++) {
        const struct store_file *file = store->files[i];
        if (file->section && file->section->downloadable &&
            !file->entry.recognised) /* another one may take its place */
            log_event(LOG_WARN, "model-unusable", "text=\"%s\"", file->entry.reason);
    }
    for (int role = 0; code == OK && role < ROLE_COUNT; role++) {
        const struct model_entry *entry;
        struct error ignored = ERROR_INIT;
        if (model_store_resolve(store, (enum model_role)role, NULL, &entry, &ignored) == OK && entry)
            for (size_t i = 0; i < store->file_count; i++)
                if (&store->files[i]->entry == entry)
                    store->files[i]->entry.is_default = true;
    }
    if (code == OK)
        *out = store;
    else
        model_store_destroy(&store);
    return code;
}

void model_store_destroy(struct model_store **store)
{
    struct model_store *s = *store;
    if (!s)
        return;
    if (s->opening)
        pthread_join(s->opener, NULL);
    for (int role = 0; role < ROLE_COUNT; role++)
        if (s->opened[role])
            model_store_release(s->opened[role]);
    for (size_t i = 0; i < s->file_count; i++) {
        pthread_mutex_destroy(&s->files[i]->lock);
        free(s->files[i]);
    }
    for (int i = 0; i < s->path_count; i++)
        free(s->paths[i]);
    free(s->files);
    free(s->missing);
    free(s->sections);
    pthread_mutex_destroy(&s->lock);
    free(s);
    *store = NULL;
}

size_t model_store_count(const struct model_store *store)
{
    return store->file_count;
}

const struct model_entry *model_store_at(const struct model_store *store, size_t index)
{
    return &store->files[index]->entry;
}

size_t model_store_missing(const struct model_store *store, const struct model_missing **out)
{
    *out = store->missing;
    return store->missing_count;
}

void model_store_hash(struct model_store *store)
{
    pthread_mutex_lock(&store->lock);
    for (size_t i = 0; i < store->file_count; i++) {
        struct model_entry *e = &store->files[i]->entry;
        if (!e->sha256[0] && !store_hash_file(e, e->sha256)) {
            log_event(LOG_WARN, "model-unreadable", "file=%s", e->path);
            continue;
        }
        e->known_as[0] = '\0';
        for (size_t k = 0; k < store->section_count; k++) {
            const struct model_section *s = &store->sections[k];
            if (s->sha256[0] ? strcmp(s->sha256, e->sha256) == 0 : strcmp(s->name, e->name) == 0)
                snprintf(e->known_as, sizeof e->known_as, "%s", s->name);
        }
    }
    pthread_mutex_unlock(&store->lock);
}

enum error_code model_store_open(struct model **out, const struct model_entry *entry, struct error *err)
{
    const struct store_file *file = (const struct store_file *)(const void *)entry;
    const struct model_settings *settings =
        file->section && file->section->has_settings ? &file->section->settings : NULL;
    if (entry->content)
        return model_open_memory(out, entry->path, entry->content, (size_t)entry->bytes, settings, err);
    return model_open(out, entry->path, settings, err);
}

enum error_code model_store_hold(const struct model **out, const struct model_entry *entry, struct error *err)
{
    struct store_file *file = (struct store_file *)(uintptr_t)entry; /* whose entry alone is constant */
    enum error_code code = OK;
    pthread_mutex_lock(&file->lock);
    if (!file->model) {
        code = model_store_open(&file->model, entry, err);
        if (code == OK)
            log_event(LOG_INFO, "model-opened", "model=%s architecture=%s", entry->name, entry->info.architecture);
    }
    file->holders += code == OK;
    *out = file->model;
    pthread_mutex_unlock(&file->lock);
    return code;
}

void model_store_release(const struct model_entry *entry)
{
    struct store_file *file = (struct store_file *)(uintptr_t)entry;
    pthread_mutex_lock(&file->lock);
    if (--file->holders == 0)
        model_close(&file->model);
    pthread_mutex_unlock(&file->lock);
}

/* Of one role; where it fails, whoever needs the model hears of it. */
static void store_open_default(void *context, int role)
{
    struct model_store *store = context;
    const struct model_entry *entry = NULL;
    const struct model *model;
    struct error ignored = ERROR_INIT;
    if (model_store_resolve(store, (enum model_role)role, NULL, &entry, &ignored) != OK || !entry ||
        model_store_hold(&model, entry, &ignored) != OK)
        return;
    weights_expect(model_weights(model));
    store->opened[role] = entry;
}

static void *store_open_defaults(void *store)
{
    thread_for(ROLE_COUNT, store_open_default, store);
    return NULL;
}

void model_store_open_defaults(struct model_store *store)
{
    store->opening = pthread_create(&store->opener, NULL, store_open_defaults, store) == 0;
}

/* "FILE was looked for in A, B and with subfolders; get it with: make models" */
static enum error_code store_not_there(const struct model_store *store, enum error_code code, const char *what,
                                       const char *name, const struct model_section *section, struct error *err)
{
    char where[320] = "", file[160], get[128] = "make models";
    for (int i = 0; i < store->path_count; i++)
        snprintf(where + strlen(where), sizeof where - strlen(where), "%s%s", i ? ", " : "", store->paths[i]);
    if (section) {
        snprintf(file, sizeof file, "%s", section->file);
        store_get_command(section, get, sizeof get);
    } else {
        snprintf(file, sizeof file, "%.*s.pth (or .pt, .safetensors)", (int)store_stem(name), name);
    }
    if (section && section->downloadable)
        return error_set(err, code, "%s; %s was looked for in %s and their subfolders; get it with: %s", what, file,
                         where, get);
    return error_set(err, code, "%s; %s was looked for in %s and their subfolders; the official models come with: %s",
                     what, file, where, get);
}

static enum error_code store_resolve_name(const struct model_store *store, enum model_role role, const char *label,
                                          const char *wanted, enum error_code not_there,
                                          const struct model_entry **entry, struct error *err)
{
    char name[128], what[256];
    snprintf(name, sizeof name, "%.*s", (int)store_stem(wanted), wanted);
    const struct store_file *file = NULL;
    const struct model_section *section = NULL;
    for (size_t i = 0; i < store->file_count && !file; i++)
        if (strcmp(store->files[i]->entry.name, name) == 0)
            file = store->files[i];
    /* "starter" stands for one model of each role */
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < store->section_count && !file && !section; i++)
            if (model_conf_called(&store->sections[i], name) && (pass || (int)store->sections[i].role == (int)role))
                section = &store->sections[i];
    if (section)
        file = store_file_of(store, section);
    if (file && file->section)
        section = file->section;
    if (section && !section->supported)
        return error_set(err, ERROR_INVALID, "%s: %s (%s) is not supported yet", label, wanted, section->file);
    if (section && !file && (int)section->role != (int)role)
        return error_set(err, ERROR_INVALID, "%s: %s is not %s %s", label, section->name, store_roles[role].article,
                         store_roles[role].what);
    if (!file) {
        snprintf(what, sizeof what, "%s: %s is not installed", label, wanted);
        return store_not_there(store, not_there, what, name, section, err);
    }
    if (!file->entry.recognised)
        return error_set(err, not_there, "%s: %s cannot be used: %s", label, wanted, file->entry.reason);
    const struct store_role *other = &store_roles[file->entry.info.kind];
    if ((int)file->entry.info.kind != (int)role)
        return error_set(err, ERROR_INVALID, "%s: %s is not %s %s but %s %s", label, wanted, store_roles[role].article,
                         store_roles[role].what, other->article, other->what);
    *entry = &file->entry;
    return OK;
}

/* The official default, the other official files, the starter models, the special official files, in the order of
 * models.conf. */
static const struct model_entry *store_default(const struct model_store *store, enum model_role role,
                                               const struct model_entry **broken)
{
    for (int rank = 0; rank < 4; rank++) {
        for (size_t i = 0; i < store->section_count; i++) {
            const struct model_section *s = &store->sections[i];
            int own = s->is_default ? 0 : s->starter && store->starters ? 2 : !s->downloadable ? 4 : s->special ? 3 : 1;
            const struct store_file *file =
                own == rank && (int)s->role == (int)role && s->supported ? store_file_of(store, s) : NULL;
            if (file && file->entry.recognised && (int)file->entry.info.kind == (int)role)
                return &file->entry;
            if (file && !*broken)
                *broken = &file->entry;
        }
    }
    return NULL;
}

enum error_code model_store_resolve(const struct model_store *store, enum model_role role, const char *wanted,
                                    const struct model_entry **entry, struct error *err)
{
    *entry = NULL;
    bool optional = role == ROLE_PARSER || role == ROLE_UPSCALER;
    const char *configured = store->default_name[role];
    if (wanted && *wanted) {
        if (strcmp(wanted, "none") != 0)
            return store_resolve_name(store, role, store_roles[role].option, wanted, ERROR_INVALID, entry, err);
        if (role == ROLE_DETECTOR)
            return error_set(err, ERROR_INVALID, "detector: none is not allowed; version=none leaves faces alone");
        return OK;
    }
    if (*configured) {
        char label[64];
        snprintf(label, sizeof label, "default_%s", store_roles[role].option);
        if (strcmp(configured, "none") != 0 || role == ROLE_DETECTOR)
            return store_resolve_name(store, role, label, configured, ERROR_NOT_FOUND, entry, err);
        return OK;
    }
    const struct model_entry *broken = NULL;
    *entry = store_default(store, role, &broken);
    if (*entry || optional)
        return OK;
    if (broken)
        return error_set(err, ERROR_NOT_FOUND, "there is no %s: %s cannot be used: %s", store_roles[role].what,
                         broken->path, broken->reason);
    const struct model_section *official = NULL;
    for (size_t i = 0; i < store->section_count && !official; i++)
        if (store->sections[i].is_default && (int)store->sections[i].role == (int)role)
            official = &store->sections[i];
    char what[64];
    snprintf(what, sizeof what, "no %s is installed", store_roles[role].what);
    return store_not_there(store, ERROR_NOT_FOUND, what, "", official, err);
}

enum error_code model_store_ready(const struct model_store *store, struct error *err)
{
    static const enum model_role order[] = {ROLE_FACE, ROLE_DETECTOR, ROLE_PARSER, ROLE_UPSCALER};
    const struct model_entry *entry;
    enum error_code code = OK;
    for (int i = 0; code == OK && i < ROLE_COUNT; i++)
        code = model_store_resolve(store, order[i], NULL, &entry, err);
    return code;
}
