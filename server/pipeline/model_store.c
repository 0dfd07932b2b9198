#include "server/pipeline/model_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/log.h"
#include "runtime/base/thread.h"
#include "server/pipeline/model_choice.h"
#include "server/pipeline/model_store_private.h"

#define STORE_LOOK_NS INT64_C(1000000000) /* between two scans of all folders and files */

static enum error_code store_list_missing(struct model_store *store, struct error *err)
{
    store->missing_count = 0;
    store->missing = arena_alloc(store->arena, store->section_count, sizeof *store->missing, err);
    if (!store->missing)
        return ERROR_NO_MEMORY;
    for (size_t i = 0; i < store->section_count; i++) {
        const struct model_section *s = &store->sections[i];
        if (!s->downloadable || !s->supported || model_choice_file(store, s))
            continue;
        struct model_missing *m = &store->missing[store->missing_count++];
        snprintf(m->name, sizeof m->name, "%s", s->name);
        snprintf(m->file, sizeof m->file, "%s", s->file);
        model_choice_get(s, m->get, sizeof m->get);
    }
    return OK;
}

/* Marks the defaults, and the files of the previous list that were replaced. */
static void store_settle(struct model_store *store, const struct store_list *before)
{
    const struct model_entry *defaults[ROLE_COUNT];
    for (int role = 0; role < ROLE_COUNT; role++) {
        struct error why = ERROR_INIT;
        const bool lost = model_choice(store, (enum model_role)role, NULL, &defaults[role], &why) != OK;
        if (lost)
            defaults[role] = NULL;
        if (store->generation && lost != store->lost[role]) /* whoever opens the store reports how it begins */
            log_event(lost ? LOG_WARN : LOG_INFO, lost ? "default-model-lost" : "default-model-back",
                      "role=%s text=\"%s\"", model_choice_option((enum model_role)role),
                      lost ? why.text : defaults[role]->name);
        store->lost[role] = lost;
    }
    for (size_t i = 0; i < before->count; i++) {
        bool kept = false;
        for (size_t k = 0; k < store->list.count && !kept; k++)
            kept = store->list.files[k] == before->files[i];
        if (!kept)
            atomic_store(&before->files[i]->replaced, true);
    }
    for (size_t i = 0; i < store->list.count; i++) {
        struct store_file *file = store->list.files[i];
        bool is_default = false;
        for (int role = 0; role < ROLE_COUNT; role++)
            is_default = is_default || defaults[role] == &file->entry;
        atomic_store(&file->entry.is_default, is_default);
        if (file->section && file->section->downloadable && !file->entry.recognised) /* another may take its place */
            log_event(LOG_WARN, "model-unusable", "text=\"%s: %s\"", file->entry.shown, file->entry.reason);
    }
    for (int role = 0; role < ROLE_COUNT; role++) {
        const struct model_entry *opened = store->opened[role];
        if (!opened || !model_store_replaced(opened))
            continue;
        store->opened[role] = NULL;
        model_store_release(opened);
    }
}

/* Scans the folders. On failure the list is unchanged. */
static enum error_code store_look(struct model_store *store, struct error *err)
{
    struct store_list found, before = store->list;
    enum error_code code = model_scan(store, &before, &found, err);
    if (code != OK) {
        model_scan_free(&found);
        return code;
    }
    store->list = found;
    code = store_list_missing(store, err);
    store_settle(store, &before);
    model_scan_free(&before);
    store->generation++;
    return code;
}

static int64_t store_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Scans again if something changed. The only failure is lack of memory: then the old list stays. */
static void store_look_again(struct model_store *store)
{
    struct error ignored = ERROR_INIT;
    store->looked_ns = store_now();
    if (store_look(store, &ignored) == OK)
        log_event(LOG_INFO, "models-changed", "files=%zu", store->list.count);
}

uint64_t model_store_refresh(struct model_store *store)
{
    pthread_mutex_lock(&store->lock);
    if (store_now() - store->looked_ns >= STORE_LOOK_NS) {
        store->looked_ns = store_now();
        if (model_scan_stale(&store->list))
            store_look_again(store);
    }
    const uint64_t generation = store->generation;
    pthread_mutex_unlock(&store->lock);
    return generation;
}

enum error_code model_store_create(struct model_store **out, const char *models_dir,
                                   const struct model_defaults *defaults, struct error *err)
{
    pthread_mutexattr_t recursive;
    *out = NULL;
    struct model_store *store = mem_calloc(1, sizeof *store);
    if (!store)
        return error_set(err, ERROR_NO_MEMORY, "out of memory while listing models");
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&store->lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    for (int role = 0; defaults && role < ROLE_COUNT; role++)
        if (defaults->name[role])
            snprintf(store->default_name[role], sizeof store->default_name[role], "%s", defaults->name[role]);
    store->starters = defaults ? defaults->starters : NULL;
    store->cancelled = defaults ? defaults->cancelled : NULL;
    store->looked_ns = store_now();
    enum error_code code = arena_create(&store->arena, err);
    if (code == OK)
        code = model_conf_load(&store->sections, &store->section_count, err);
    if (code == OK)
        code = model_scan_paths(store, models_dir, defaults ? defaults->fetched : NULL, err);
    if (code == OK)
        code = store_look(store, err);
    store->cancelled = NULL; /* that was only for the start */
    if (code == OK)
        *out = store;
    else
        model_store_destroy(&store);
    return code;
}

void model_store_stop(struct model_store *store)
{
    atomic_store(&store->stopping, true);
}

void model_store_destroy(struct model_store **store)
{
    struct model_store *s = *store;
    if (!s)
        return;
    model_store_stop(s);
    if (s->opening)
        pthread_join(s->opener, NULL);
    for (int role = 0; role < ROLE_COUNT; role++)
        if (s->opened[role])
            model_store_release(s->opened[role]);
    for (size_t i = 0; i < s->all_count; i++) {
        pthread_mutex_destroy(&s->all[i]->lock);
        free(s->all[i]);
    }
    for (int i = 0; i < s->path_count; i++)
        free(s->paths[i]);
    model_scan_free(&s->list);
    free(s->all);
    free(s->sections);
    arena_destroy(&s->arena);
    pthread_mutex_destroy(&s->lock);
    free(s);
    *store = NULL;
}

void model_store_lock(const struct model_store *store)
{
    pthread_mutex_lock((pthread_mutex_t *)(uintptr_t)&store->lock);
}

void model_store_unlock(const struct model_store *store)
{
    pthread_mutex_unlock((pthread_mutex_t *)(uintptr_t)&store->lock);
}

size_t model_store_count(const struct model_store *store)
{
    return store->list.count;
}

const struct model_entry *model_store_at(const struct model_store *store, size_t index)
{
    return &store->list.files[index]->entry;
}

const char *model_store_unread(const struct model_entry *entry)
{
    const struct store_file *file = (const struct store_file *)(const void *)entry;
    if (!entry->recognised)
        return entry->reason;
    return file->unreadable ? "it could not be read to its end; put a complete file in its place" : NULL;
}

size_t model_store_missing(const struct model_store *store, const struct model_missing **out)
{
    *out = store->missing;
    return store->missing_count;
}

/* The next file without a hash. */
static struct store_file *store_unhashed(struct model_store *store)
{
    struct store_file *file = NULL;
    model_store_lock(store);
    for (size_t i = 0; i < store->list.count && !file; i++)
        if (!store->list.files[i]->entry.sha256[0] && !store->list.files[i]->unreadable)
            file = store->list.files[i];
    model_store_unlock(store);
    return file;
}

void model_store_names(const struct model_store *store, const struct model_entry *entry, model_name_fn *each,
                       void *context)
{
    const struct store_file *file = (const struct store_file *)(const void *)entry;
    const struct model_section *section = file->section;
    each(context, entry->name);
    if (*entry->sha256)
        each(context, entry->sha256);
    if (*entry->known_as)
        each(context, entry->known_as);
    if (!section || model_choice_file(store, section) != file) /* another file has these */
        return;
    each(context, section->name);
    for (const char *alias = section->alias; *alias;) {
        char name[sizeof section->alias];
        const size_t length = strcspn(alias, " ");
        snprintf(name, sizeof name, "%.*s", (int)length, alias);
        each(context, name);
        alias += length + strspn(alias + length, " ");
    }
}

size_t model_store_stem(const char *name)
{
    return model_scan_stem(name);
}

const struct model_settings *model_store_settings(const struct model_entry *entry)
{
    return &((const struct store_file *)(const void *)entry)->settings;
}

const char *model_store_folder(const struct model_store *store, int index)
{
    return index < store->path_count ? store->paths[index] : NULL;
}

static bool store_hash_file(struct model_store *store, struct store_file *file)
{
    char hex[65] = "";
    const bool good = model_scan_hash(&file->entry, &store->stopping, hex);
    model_store_lock(store);
    file->unreadable = !good && !atomic_load(&store->stopping);
    memcpy(file->entry.sha256, hex, sizeof hex);
    model_store_unlock(store);
    if (!good && !atomic_load(&store->stopping))
        log_event(LOG_WARN, "model-unreadable", "file=\"%s\"", file->entry.shown);
    return good;
}

bool model_store_hash_entry(struct model_store *store, const struct model_entry *entry)
{
    struct store_file *file = (struct store_file *)(uintptr_t)entry; /* whose entry alone is constant */
    model_store_lock(store);
    const bool hashed = *entry->sha256; /* another thread may be at it */
    model_store_unlock(store);
    if (!hashed && !store_hash_file(store, file))
        return false;
    model_store_lock(store);
    model_scan_know(store, file);
    model_store_unlock(store);
    return true;
}

void model_store_hash(struct model_store *store)
{
    struct store_file *file;
    while (!atomic_load(&store->stopping) && (file = store_unhashed(store)))
        (void)!store_hash_file(store, file);
    model_store_lock(store);
    for (size_t i = 0; i < store->list.count; i++)
        if (store->list.files[i]->entry.sha256[0])
            model_scan_know(store, store->list.files[i]);
    model_store_unlock(store);
}

bool model_store_identity(const struct model_store *store, const struct model_entry *entry, char out[256])
{
    const struct model_settings *set = &((const struct store_file *)(const void *)entry)->settings;
    model_store_lock(store);
    const bool known = *entry->sha256;
    snprintf(out, 256, "%s slope=%d,%.9g activation=%d,%.9g noise=%d,%.9g quality=%d,%.9g", entry->sha256,
             set->has_slope, (double)set->slope, (int)set->activation, (double)set->activation_slope,
             set->has_noise_level, (double)set->noise_level, set->has_jpeg_quality, (double)set->jpeg_quality);
    model_store_unlock(store);
    return known;
}

/* Whether two probes found the same facts: buffers and tiles are sized by these. */
static bool store_same_info(const struct model_info *a, const struct model_info *b)
{
    return a->kind == b->kind && strcmp(a->architecture, b->architecture) == 0 && a->scale == b->scale &&
           a->unshuffle == b->unshuffle && a->full_body == b->full_body && a->border == b->border &&
           a->radius == b->radius && a->exact_tiles == b->exact_tiles && a->pool_count == b->pool_count &&
           memcmp(a->pools, b->pools, sizeof a->pools) == 0 && a->face_size == b->face_size && a->side == b->side &&
           a->context == b->context && a->noise_count == b->noise_count && a->classes == b->classes &&
           a->output_count == b->output_count;
}

enum error_code model_store_open(struct model **out, const struct model_entry *entry, struct error *err)
{
    const struct store_file *file = (const struct store_file *)(const void *)entry;
    if (entry->content)
        return model_open_memory(out, entry->path, entry->content, (size_t)entry->bytes, &file->settings, err);
    enum error_code code = model_open(out, entry->path, &file->settings, err);
    if (code != OK)
        return code;
    const struct file_id id = weights_id(model_weights(*out));
    if (file_same(&id, &file->id) && store_same_info(model_info(*out), &entry->info))
        return OK;
    model_close(out);
    return error_set(err, ERROR_IO, "%s: the file was just replaced; try again, and the new one is read", entry->shown);
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

bool model_store_replaced(const struct model_entry *entry)
{
    const struct store_file *file = (const struct store_file *)(const void *)entry;
    return atomic_load(&file->replaced);
}

/* For one role; if it fails, whoever needs the model gets the error. */
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
    pthread_mutex_lock(&store->lock);
    bool replaced = model_store_replaced(entry);
    store->opened[role] = replaced ? NULL : entry;
    pthread_mutex_unlock(&store->lock);
    if (replaced)
        model_store_release(entry);
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

/* Whether the file is still the one that was probed. */
static bool store_current(const struct model_entry *entry)
{
    const struct store_file *file = (const struct store_file *)(const void *)entry;
    struct file_id now;
    return entry->content || (file_identify(&now, entry->path) && file_same(&now, &file->id));
}

enum error_code model_store_resolve(const struct model_store *store, enum model_role role, const char *wanted,
                                    const struct model_entry **entry, struct error *err)
{
    struct model_store *own = (struct model_store *)(uintptr_t)store; /* which checks by itself whether it is current */
    struct error why = ERROR_INIT;
    pthread_mutex_lock(&own->lock);
    model_store_refresh(own);
    enum error_code code = model_choice(store, role, wanted, entry, &why);
    if (code == OK && *entry && !store_current(*entry)) {
        store_look_again(own);
        code = model_choice(store, role, wanted, entry, &why);
    }
    pthread_mutex_unlock(&own->lock);
    return code == OK ? OK : error_copy(err, code, &why);
}

enum error_code model_store_ready(const struct model_store *store, struct error *err)
{
    static const enum model_role order[] = {ROLE_FACE,     ROLE_DETECTOR, ROLE_PARSER,
                                            ROLE_UPSCALER, ROLE_DAMAGE,   ROLE_FILLER};
    const struct model_entry *entry;
    enum error_code code = OK;
    for (int i = 0; code == OK && i < ROLE_COUNT; i++)
        code = model_store_resolve(store, order[i], NULL, &entry, err);
    return code;
}
