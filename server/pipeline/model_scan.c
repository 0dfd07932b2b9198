/* Scans the folders of models: which files there are, and what each one is. */
#include <dirent.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/base/utf8.h"
#include "server/pipeline/licence.h"
#include "server/pipeline/model_store_private.h"

#define SCAN_MAX_DEPTH 6
#define SCAN_MAX_CONF 65536               /* bytes */
#define SCAN_HASH_BYTES ((size_t)1 << 20) /* at a time */

struct scan {
    struct model_store *store;
    const struct store_list *old;
    struct store_list *list;
    struct error *err;
};

static enum error_code scan_no_memory(struct scan *scan)
{
    return error_set(scan->err, ERROR_NO_MEMORY, "out of memory while listing models");
}

/* ---- a file ------------------------------------------------------------------------------------------------------ */

size_t model_scan_stem(const char *name)
{
    static const char *const extensions[] = {".pth", ".pt", ".ckpt", ".safetensors", ".param"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof extensions / sizeof extensions[0]; i++) {
        size_t e = strlen(extensions[i]);
        if (n > e && strcasecmp(name + n - e, extensions[i]) == 0)
            return n - e;
    }
    return n;
}

/* Adds bytes to the hash in pieces, until asked to stop. */
static void scan_hash_bytes(struct sha256_ctx *context, const uint8_t *data, size_t size, const atomic_bool *stop)
{
    for (size_t at = 0, n; at < size && !atomic_load(stop); at += n) {
        n = size - at < SCAN_HASH_BYTES ? size - at : SCAN_HASH_BYTES;
        sha256_update(context, n, data + at);
    }
}

static bool scan_hash_file(struct sha256_ctx *context, const char *path, const atomic_bool *stop)
{
    struct file file;
    struct error err = ERROR_INIT;
    if (file_map(&file, path, &err) != OK)
        return false;
    scan_hash_bytes(context, file.data, file.size, stop);
    const bool good = !file_changed(&file);
    file_unmap(&file);
    return good;
}

bool model_scan_hash(const struct model_entry *entry, const atomic_bool *stop, char hex[65])
{
    struct sha256_ctx context;
    uint8_t digest[SHA256_DIGEST_SIZE];
    char bin[4096];
    bool good = true;
    sha256_init(&context);
    if (entry->content)
        scan_hash_bytes(&context, entry->content, (size_t)entry->bytes, stop);
    else
        good = scan_hash_file(&context, entry->path, stop);
    if (!entry->content && weights_bin_path(bin, sizeof bin, entry->path))
        good = good && scan_hash_file(&context, bin, stop);
    sha256_digest(&context, sizeof digest, digest);
    good = good && !atomic_load(stop);
    for (size_t i = 0; i < sizeof digest && good; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    return good;
}

/* What a file is opened with: what its section and the user say of it. */
static struct model_settings scan_settings(const struct store_list *list, const struct store_file *file,
                                           const char *name)
{
    struct model_settings settings = {0};
    if (file && file->section && file->section->has_settings)
        settings = file->section->settings;
    for (size_t i = list->conf_count; i-- > 0;)
        model_conf_overlay(&settings, list->confs[i].sections, list->confs[i].count, name);
    return settings;
}

/* What the user says of a file's licence; "": nothing. */
static const char *scan_licence(const struct store_list *list, const char *name)
{
    for (size_t i = 0; i < list->conf_count; i++) {
        const struct model_section *own = model_conf_find(list->confs[i].sections, list->confs[i].count, name);
        if (own && own->licence[0])
            return own->licence;
    }
    return "";
}

/* A section applies to the files with its hash or its name. A file is hashed here only when that decides how it must be
 * run (settings); renamed copies of others are recognised by model_store_hash. */
static void scan_identify(const struct model_store *store, struct store_file *file)
{
    struct model_entry *e = &file->entry;
    for (size_t i = 0; i < store->section_count && !file->section; i++) {
        const struct model_section *s = &store->sections[i];
        if (s->has_settings && s->sha256[0]) {
            if (s->bytes == e->bytes && (e->sha256[0] || model_scan_hash(e, &store->stopping, e->sha256)) &&
                strcmp(e->sha256, s->sha256) == 0)
                file->section = s;
        } else if (strcmp(s->name, e->name) == 0) {
            file->section = s;
        }
    }
    e->starter = file->section && file->section->starter;
}

/* Whether the file is that of a section, as far as it can be told without reading it: by its hash where both are known,
 * else by its name, its size and what it is for. */
static bool scan_is(const struct model_section *s, const struct model_entry *e)
{
    if (e->recognised && e->info.kind != s->role)
        return false;
    if (s->sha256[0] && e->sha256[0])
        return strcmp(s->sha256, e->sha256) == 0;
    return strcmp(s->name, e->name) == 0 && (!s->bytes || s->bytes == e->bytes);
}

void model_scan_know(const struct model_store *store, struct store_file *file)
{
    struct model_entry *e = &file->entry;
    const struct model_section *known = NULL;
    const char *network = e->recognised ? licence_of_network(e->info.architecture) : "";
    for (size_t i = 0; i < store->section_count && !known; i++)
        if (scan_is(&store->sections[i], e))
            known = &store->sections[i];
    snprintf(e->known_as, sizeof e->known_as, "%s", known ? known->name : "");
    const char *licence = *file->own_licence ? file->own_licence
                          : *network         ? network
                          : known            ? known->licence
                                             : e->card.licence;
    snprintf(e->licence, sizeof e->licence, "%s", licence);
    if (!*licence && file->section)
        snprintf(e->licence, sizeof e->licence, "unknown (only named like %.36s)", file->section->name);
}

/* A text from the file, made fit to be shown anywhere. */
static void scan_text(char *out, size_t size, const struct weights *weights, const char *key)
{
    const char *text = weights_metadata(weights, key);
    size_t n = 0;
    for (; text && text[n] && n + 1 < size; n++)
        out[n] = text[n] >= 0x20 && text[n] < 0x7f ? text[n] : '?';
    out[n] = '\0';
}

/* What the file is and says about itself. It is opened as for work, which reads its header and no values: a tensor that
 * is missing or has another shape shows here. */
static void scan_probe(struct store_file *file)
{
    struct model_entry *e = &file->entry;
    struct model *model = NULL;
    struct error err = ERROR_INIT;
    const char *name = e->content ? e->shown : e->path;
    enum error_code code = e->content
                               ? model_open_memory(&model, name, e->content, (size_t)e->bytes, &file->settings, &err)
                               : model_open(&model, name, &file->settings, &err);
    e->recognised = code == OK;
    if (!e->recognised) {
        const size_t n = strlen(name);
        const bool named = !strncmp(err.text, name, n) && !strncmp(err.text + n, ": ", 2);
        utf8_copy(e->reason, sizeof e->reason, named ? err.text + n + 2 : err.text);
        return;
    }
    const struct weights *weights = model_weights(model);
    e->info = *model_info(model);
    if (!e->content) {
        file->id = weights_id(weights);
        e->bytes = weights_bytes(weights);
    }
    scan_text(e->card.name, sizeof e->card.name, weights, "name");
    licence_told(weights, e->card.licence, sizeof e->card.licence);
    scan_text(e->card.commit, sizeof e->card.commit, weights, "commit");
    scan_text(e->card.data, sizeof e->card.data, weights, "data");
    model_close(&model);
}

/* ---- a list ------------------------------------------------------------------------------------------------------ */

/* The same file as before, if it is there. */
static struct store_file *scan_known(const struct scan *scan, const char *path, const uint8_t *content,
                                     const struct file_id *id)
{
    for (size_t i = 0; i < scan->old->count; i++) {
        struct store_file *file = scan->old->files[i];
        if (strcmp(file->entry.path, path) == 0 && file->entry.content == content && file_same(&file->id, id)) {
            const struct model_settings settings = scan_settings(scan->list, file, file->entry.name);
            const bool same = model_conf_same(&settings, &file->settings) &&
                              strcmp(file->own_licence, scan_licence(scan->list, file->entry.name)) == 0;
            return same ? file : NULL;
        }
    }
    return NULL;
}

static enum error_code scan_new(struct scan *scan, const char *path, const char *name, const uint8_t *content,
                                uint64_t bytes, const struct file_id *id, struct store_file **out)
{
    struct model_store *store = scan->store;
    if (store->cancelled && store->cancelled())
        return error_set(scan->err, ERROR_CANCELLED, "stopped while listing models");
    struct store_file **grown = realloc(store->all, (store->all_count + 1) * sizeof *grown);
    if (grown)
        store->all = grown;
    struct store_file *file = grown ? mem_calloc(1, sizeof *file) : NULL;
    if (!file)
        return scan_no_memory(scan);
    store->all[store->all_count++] = file;
    pthread_mutex_init(&file->lock, NULL);
    struct model_entry *e = &file->entry;
    snprintf(e->name, sizeof e->name, "%s", name);
    snprintf(e->path, sizeof e->path, "%s", path);
    utf8_escape(e->shown, sizeof e->shown, path);
    e->content = content;
    const size_t folder = store->fetched ? strlen(store->fetched) : 0;
    e->fetched = folder && !strncmp(path, store->fetched, folder) && path[folder] == '/';
    e->bytes = bytes;
    file->id = *id;
    scan_identify(store, file);
    file->settings = scan_settings(scan->list, file, e->name);
    snprintf(file->own_licence, sizeof file->own_licence, "%s", scan_licence(scan->list, e->name));
    scan_probe(file);
    model_scan_know(store, file);
    *out = file;
    return OK;
}

/* The place of the file of that name; the count: there is none. */
static size_t scan_at(const struct store_list *list, const char *name)
{
    size_t at = 0;
    while (at < list->count && strcmp(list->files[at]->entry.name, name) != 0)
        at++;
    return at;
}

/* content: NULL for a file at path. */
static enum error_code scan_add(struct scan *scan, const char *path, const char *file_name, const uint8_t *content,
                                uint64_t bytes, const struct file_id *id)
{
    struct store_list *list = scan->list;
    char name[sizeof((struct model_entry *)0)->name];
    size_t stem = model_scan_stem(file_name);
    if (stem == strlen(file_name) || stem >= sizeof name || strlen(path) >= sizeof((struct model_entry *)0)->path)
        return OK;
    char plain[sizeof name];
    memcpy(plain, file_name, stem);
    plain[stem] = '\0';
    utf8_escape(name, sizeof name, plain);
    const size_t at = scan_at(list, name);
    if (at < list->count && list->files[at]->entry.recognised)
        return OK; /* found earlier on the search path */
    list->full = list->full || at == STORE_MAX_FILES;
    if (list->full)
        return OK;
    if (!list->files && !(list->files = mem_calloc(STORE_MAX_FILES, sizeof *list->files)))
        return scan_no_memory(scan);
    struct store_file *file = scan_known(scan, path, content, id);
    enum error_code code = file ? OK : scan_new(scan, path, name, content, bytes, id, &file);
    if (code == OK && (at == list->count || file->entry.recognised)) /* else the first one tells what is wrong */
        list->files[at] = file;
    list->count += code == OK && at == list->count;
    return code;
}

/* Whether the folder must be scanned: only the first time, however many links lead to it. */
static enum error_code scan_enter(struct scan *scan, const char *path, bool *in)
{
    struct store_list *list = scan->list;
    struct file_id id;
    struct stat st;
    *in = file_identify(&id, path) && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    for (size_t i = 0; i < list->folder_count && *in; i++)
        *in = list->folders[i].id.device != id.device || list->folders[i].id.inode != id.inode;
    list->full = list->full || list->folder_count == STORE_MAX_FOLDERS;
    if (list->full)
        *in = false;
    if (list->full || (!*in && id.inode))
        return OK;
    if (!list->folders && !(list->folders = mem_calloc(STORE_MAX_FOLDERS, sizeof *list->folders)))
        return scan_no_memory(scan);
    char *copy = strdup(path);
    if (!copy)
        return scan_no_memory(scan);
    list->folders[list->folder_count++] = (struct store_folder){.path = copy, .id = id};
    return OK;
}

static enum error_code scan_folder(struct scan *scan, const char *path, int depth)
{
    bool in = false;
    enum error_code code = depth <= SCAN_MAX_DEPTH ? scan_enter(scan, path, &in) : OK;
    if (!in)
        return code;
    struct dirent **names = NULL;
    int count = scandir(path, &names, NULL, alphasort);
    for (int pass = 0; pass < 2; pass++) { /* a folder's own files go before those of its subfolders */
        for (int i = 0; i < count && code == OK; i++) {
            const char *name = names[i]->d_name;
            char full[1024];
            struct stat st;
            struct file_id id;
            if (name[0] == '.' || snprintf(full, sizeof full, "%s/%s", path, name) >= (int)sizeof full ||
                stat(full, &st) != 0)
                continue;
            if (pass == 0 && S_ISREG(st.st_mode) && file_identify(&id, full))
                code = scan_add(scan, full, name, NULL, id.size, &id);
            else if (pass == 1 && S_ISDIR(st.st_mode))
                code = scan_folder(scan, full, depth + 1);
        }
    }
    for (int i = 0; i < count; i++)
        free(names[i]);
    free(names);
    return code;
}

/* Reads the user's models.conf of each folder of the search path. */
static enum error_code scan_confs(struct scan *scan)
{
    struct store_list *list = scan->list;
    list->confs = mem_calloc((size_t)scan->store->path_count, sizeof *list->confs);
    if (!list->confs)
        return scan_no_memory(scan);
    for (int i = 0; i < scan->store->path_count; i++) {
        struct store_conf *conf = &list->confs[list->conf_count];
        struct file file;
        struct error err = ERROR_INIT;
        if (snprintf(conf->path, sizeof conf->path, "%s/models.conf", scan->store->paths[i]) >= (int)sizeof conf->path)
            continue;
        list->conf_count++;
        if (!file_identify(&conf->id, conf->path) || conf->id.size == 0)
            continue;
        enum error_code code =
            conf->id.size > SCAN_MAX_CONF
                ? error_set(&err, ERROR_TOO_LARGE, "%s: larger than %d bytes", conf->path, SCAN_MAX_CONF)
                : file_map(&file, conf->path, &err);
        if (code == OK) {
            code = model_conf_own((const char *)file.data, file.size, &conf->sections, &conf->count, &err);
            file_unmap(&file);
        }
        if (code)
            log_event(LOG_WARN, "models-conf-ignored", "file=\"%s\" text=\"%s%s\"", conf->path, err.text,
                      code == ERROR_INVALID ? "; such lines are left out, and all under such a heading" : "");
    }
    return OK;
}

/* Sections that name no model say nothing: of a licence that must not pass in silence. Nor do settings that the model's
 * network does not have. */
static void scan_unused(const struct store_list *list)
{
    for (size_t i = 0; i < list->conf_count; i++)
        for (size_t k = 0; k < list->confs[i].count; k++) {
            const struct model_section *section = &list->confs[i].sections[k];
            const size_t at = scan_at(list, section->name);
            const struct model_entry *entry = at < list->count ? &list->files[at]->entry : NULL;
            const char *unused =
                entry && entry->recognised ? model_settings_unused(&section->settings, &entry->info) : NULL;
            char shown[192];
            utf8_escape(shown, sizeof shown, section->name);
            if (!entry)
                log_event(LOG_WARN, "models-conf-unused", "file=\"%s\" text=\"[%s]: no model has this name\"",
                          list->confs[i].path, shown);
            else if (unused)
                log_event(LOG_WARN, "models-conf-unused", "file=\"%s\" text=\"[%s]: this %s has no %s to be set\"",
                          list->confs[i].path, shown, entry->info.architecture, unused);
        }
}

static enum error_code scan_starters(struct scan *scan)
{
    const struct file_id none = {0};
    enum error_code code = OK;
    for (const struct embed_file *file = scan->store->starters; file && file->name && code == OK; file++) {
        char path[1024];
        snprintf(path, sizeof path, "embedded:%s", file->name);
        code = scan_add(scan, path, file->name, file->start, (uint64_t)(file->end - file->start), &none);
    }
    return code;
}

enum error_code model_scan(struct model_store *store, const struct store_list *old, struct store_list *out,
                           struct error *err)
{
    struct scan scan = {store, old, out, err};
    *out = (struct store_list){0};
    enum error_code code = scan_confs(&scan);
    for (int i = 0; code == OK && i < store->path_count; i++)
        code = scan_folder(&scan, store->paths[i], 0);
    if (out->full)
        log_event(LOG_WARN, "models-left-out",
                  "text=\"more than %d files or %d folders of models; the rest is "
                  "ignored\"",
                  STORE_MAX_FILES, STORE_MAX_FOLDERS);
    code = code == OK ? scan_starters(&scan) : code;
    if (code == OK)
        scan_unused(out);
    return code;
}

void model_scan_free(struct store_list *list)
{
    for (size_t i = 0; i < list->folder_count; i++)
        free(list->folders[i].path);
    for (size_t i = 0; i < list->conf_count; i++)
        free(list->confs[i].sections);
    free(list->confs);
    free(list->folders);
    free(list->files);
    *list = (struct store_list){0};
}

bool model_scan_stale(const struct store_list *list)
{
    struct file_id now;
    for (size_t i = 0; i < list->folder_count; i++) {
        file_identify(&now, list->folders[i].path);
        if (!file_same(&now, &list->folders[i].id))
            return true;
    }
    for (size_t i = 0; i < list->conf_count; i++) {
        file_identify(&now, list->confs[i].path);
        if (!file_same(&now, &list->confs[i].id))
            return true;
    }
    for (size_t i = 0; i < list->count; i++) {
        const struct store_file *file = list->files[i];
        if (file->entry.content)
            continue;
        file_identify(&now, file->entry.path);
        if (!file_same(&now, &file->id))
            return true;
    }
    return false;
}

/* ---- the search path --------------------------------------------------------------------------------------------- */

static enum error_code scan_add_path(struct model_store *store, const char *a, const char *b, struct error *err)
{
    char *path = mem_alloc(strlen(a) + strlen(b) + 1, 1);
    if (!path)
        return error_set(err, ERROR_NO_MEMORY, "out of memory while listing models");
    sprintf(path, "%s%s", a, b);
    store->paths[store->path_count++] = path;
    return OK;
}

/* PREFIX of an installed program: the folder above its own, if its own is called bin; else "", also for /usr, which is
 * searched anyway. */
static void scan_prefix(char out[1024])
{
    const ssize_t length = readlink("/proc/self/exe", out, 1023);
    out[length > 0 ? length : 0] = 0;
    char *slash = strrchr(out, '/');
    if (slash)
        *slash = 0;
    slash = strrchr(out, '/');
    if (!slash || strcmp(slash, "/bin") != 0)
        slash = out;
    *slash = 0;
    if (!strcmp(out, "/usr"))
        *out = 0;
}

enum error_code model_scan_paths(struct model_store *store, const char *models_dir, const char *fetched,
                                 struct error *err)
{
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    enum error_code code = OK;
    if (models_dir && *models_dir) {
        code = scan_add_path(store, models_dir, "", err);
    } else {
        code = scan_add_path(store, "./models", "", err);
        if (code == OK && data && data[0] == '/')
            code = scan_add_path(store, data, "/restored/models", err);
        else if (code == OK && home && home[0] == '/')
            code = scan_add_path(store, home, "/.local/share/restored/models", err);
    }
    char prefix[1024];
    scan_prefix(prefix);
    if (code == OK && *prefix)
        code = scan_add_path(store, prefix, "/share/restored/models", err);
    if (code == OK)
        code = scan_add_path(store, "/usr/share/restored/models", "", err);
    if (code == OK && fetched && !(code = scan_add_path(store, fetched, "", err)))
        store->fetched = store->paths[store->path_count - 1];
    return code;
}
