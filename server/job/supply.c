#include "server/job/supply.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
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
#include "runtime/models/model.h"
#include "server/job/job.h"
#include "server/job/offers.h"
#include "server/pipeline/model_conf.h"

#define LOOK_MS 1000       /* between two looks at what waits */
#define AGAIN_MS 5000      /* after a transfer that failed */
#define UNFIT_MS 600000    /* after a file that cannot be used here */
#define CONF "models.conf" /* of the folder: the settings of what is in it, and their SHA-256 */
#define PART ".part"       /* what is being fetched: names with a dot are not searched */

static const char *const supply_endings[] = {".pth", ".pt", ".ckpt", ".safetensors"};

struct supply {
    struct supply_settings settings;
    char *folder;
    json_t *later; /* SHA-256 of those whose fetching failed, and when they may be tried again (job_clock) */
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t stopped;
    bool stop;
};

/* --- what is published ---------------------------------------------------------------------------------------------
 */

enum error_code supply_check_file(const char *file, struct error *err)
{
    const size_t stem = model_store_stem(file);
    bool known = false, plain = *file != '.';
    for (size_t i = 0; i < sizeof supply_endings / sizeof *supply_endings; i++)
        known |= !strcasecmp(file + stem, supply_endings[i]);
    if (!known)
        return error_set(err, ERROR_UNSUPPORTED, "%.200s: only .pth, .pt, .ckpt and .safetensors are published", file);
    for (const char *c = file; *c; c++)
        plain &= (unsigned char)*c >= 0x20 && (unsigned char)*c < 0x7f && !strchr("/\\[]\"", *c);
    if (!plain || !stem || stem >= SUPPLY_NAME_MAX || file[0] == ' ' || file[stem - 1] == ' ')
        return error_set(err, ERROR_INVALID,
                         "\"%.200s\" is no name for a model that is published: up to %d bytes of printable ASCII "
                         "without / \\ [ ] \", not beginning with a dot",
                         file, SUPPLY_NAME_MAX - 1);
    return OK;
}

/* A published_fn. */
static void supply_add(void *context, const struct published *model)
{
    struct error ignored = ERROR_INIT;
    json_t *about = json_loads(model->about, 0, NULL);
    const char *file = json_string_value(json_object_get(about, "file"));
    const bool sane = file && !supply_check_file(file, &ignored) && strlen(model->name) == model_store_stem(file) &&
                      !strncmp(file, model->name, strlen(model->name)) && strlen(model->sha256) == 64 &&
                      strspn(model->sha256, "0123456789abcdef") == 64;
    if (sane)
        json_array_append_new(context, json_pack("{s:s, s:s, s:I, s:O}", "name", model->name, "sha256", model->sha256,
                                                 "bytes", (json_int_t)model->bytes, "about", about));
    json_decref(about);
}

json_t *supply_published(struct store *store, struct error *err)
{
    json_t *list = json_array();
    if (!published_each(store, supply_add, list, err))
        return list;
    json_decref(list);
    return NULL;
}

static const char *supply_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static bool supply_called(const json_t *row, const char *name)
{
    const json_t *other;
    size_t i;
    if (!strcmp(supply_text(row, "name"), name) || !strcmp(supply_text(row, "sha256"), name))
        return true;
    json_array_foreach(json_object_get(json_object_get(row, "about"), "names"), i, other)
    {
        if (json_is_string(other) && !strcmp(json_string_value(other), name))
            return true;
    }
    return false;
}

/* --- the folder ----------------------------------------------------------------------------------------------------
 */

static bool supply_path(char out[1200], const char *folder, const char *name)
{
    return snprintf(out, 1200, "%s/%s", folder, name) < 1200;
}

struct supply_file {
    char name[256];
    uint64_t size;
    int64_t time;
};

/* The files of models in the folder; the caller's to free(). */
static struct supply_file *supply_files(const char *folder, size_t *count)
{
    struct supply_file *files = NULL;
    DIR *dir = opendir(folder);
    *count = 0;
    for (const struct dirent *entry; dir && (entry = readdir(dir));) {
        struct stat st;
        struct supply_file *more;
        if (*entry->d_name == '.' || model_store_stem(entry->d_name) == strlen(entry->d_name) ||
            fstatat(dirfd(dir), entry->d_name, &st, 0) || !S_ISREG(st.st_mode) ||
            !(more = realloc(files, (*count + 1) * sizeof *files)))
            continue;
        files = more;
        snprintf(files[*count].name, sizeof files->name, "%s", entry->d_name);
        files[*count].size = (uint64_t)st.st_size;
        files[(*count)++].time = (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000;
    }
    if (dir)
        closedir(dir);
    return files;
}

static uint64_t supply_sum(const struct supply_file *files, size_t count)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += files[i].size;
    return sum;
}

static int supply_older(const void *a, const void *b)
{
    const int64_t one = ((const struct supply_file *)a)->time, two = ((const struct supply_file *)b)->time;
    return one < two ? -1 : one > two;
}

void supply_trim(const char *folder, uint64_t most)
{
    size_t count;
    struct supply_file *files = supply_files(folder, &count);
    uint64_t sum = supply_sum(files, count);
    if (count)
        qsort(files, count, sizeof *files, supply_older);
    for (size_t i = 0; i < count && sum > most; i++) {
        char path[1200];
        if (!supply_path(path, folder, files[i].name) || unlink(path))
            continue;
        log_event(LOG_INFO, "model-removed", "file=\"%s\" text=\"models_cache_bytes\"", files[i].name);
        sum -= files[i].size;
    }
    free(files);
}

/* The sections of the folder's models.conf: name and SHA-256 of what was fetched. The caller's to free(). */
static struct model_section *supply_sections(const struct supply *supply, size_t *count)
{
    char path[1200];
    struct file file;
    struct error ignored = ERROR_INIT;
    struct model_section *sections = NULL;
    *count = 0;
    if (!supply_path(path, supply->folder, CONF) || file_map(&file, path, &ignored))
        return NULL;
    (void)!model_conf_own((const char *)file.data, file.size, &sections, count, &ignored);
    file_unmap(&file);
    return *count ? sections : (free(sections), NULL);
}

/* Whether the folder has this row's file: *stale true: one of that name, but of another content. */
static bool supply_has(const struct supply *supply, const json_t *row, bool *stale)
{
    size_t count;
    char path[1200];
    struct model_section *sections = supply_sections(supply, &count);
    const struct model_section *section = model_conf_find(sections, count, supply_text(row, "name"));
    const bool here = section &&
                      supply_path(path, supply->folder, supply_text(json_object_get(row, "about"), "file")) &&
                      !access(path, F_OK);
    const bool same = section && !strcmp(section->sha256, supply_text(row, "sha256"));
    *stale = section && !same;
    free(sections);
    return here && same;
}

/* One line: no section can be begun by it. */
static void supply_print_line(FILE *out, const char *key, const char *value)
{
    fprintf(out, "%s = ", key);
    for (; *value; value++)
        fputc((unsigned char)*value < 0x20 ? ' ' : *value, out);
    fputc('\n', out);
}

/* Adds a section for this row to the folder's models.conf, in place of an older one; placed: its file is there. */
static enum error_code supply_write_conf(const struct supply *supply, const json_t *row, bool placed, struct error *err)
{
    char path[1200], *text = NULL;
    size_t size = 0, count;
    const json_t *about = json_object_get(row, "about");
    struct model_section *sections = supply_sections(supply, &count);
    FILE *out = supply_path(path, supply->folder, CONF) ? open_memstream(&text, &size) : NULL;
    if (!out) {
        free(sections);
        return error_set(err, ERROR_NO_MEMORY, "no memory for models.conf");
    }
    for (size_t i = 0; i < count; i++) {
        char *lines =
            strcmp(sections[i].name, supply_text(row, "name")) ? model_conf_lines(&sections[i].settings) : NULL;
        if (lines) {
            fprintf(out, "[model %s]\n%s", sections[i].name, lines);
            if (*sections[i].sha256)
                supply_print_line(out, "sha256", sections[i].sha256);
            if (*sections[i].licence)
                supply_print_line(out, "licence", sections[i].licence);
        }
        free(lines);
    }
    fprintf(out, "[model %s]\n", supply_text(row, "name"));
    if (placed)
        supply_print_line(out, "sha256", supply_text(row, "sha256"));
    if (*supply_text(about, "licence") && strlen(supply_text(about, "licence")) < sizeof sections->licence)
        supply_print_line(out, "licence", supply_text(about, "licence"));
    struct model_section *own = NULL;
    struct error ignored = ERROR_INIT;
    char *lines = NULL, whole[1024];
    snprintf(whole, sizeof whole, "[x]\n%s", supply_text(about, "settings"));
    if (!model_conf_own(whole, strlen(whole), &own, &count, &ignored) && count == 1)
        lines = model_conf_lines(&own->settings); /* those that this version knows, and nothing else */
    fputs(lines ? lines : "", out);
    free(lines);
    free(own);
    free(sections);
    fclose(out);
    const enum error_code code = file_write(path, text, size, err);
    free(text);
    return code;
}

/* --- fetching ------------------------------------------------------------------------------------------------------
 */

struct supply_transfer {
    struct supply *supply;
    int fd;
    uint64_t size, most;
    struct sha256_ctx sha256;
};

/* A payload_take_fn. */
static enum error_code supply_take(void *context, const void *data, size_t size, struct error *err)
{
    struct supply_transfer *transfer = context;
    pthread_mutex_lock(&transfer->supply->lock);
    const bool stop = transfer->supply->stop;
    pthread_mutex_unlock(&transfer->supply->lock);
    if (stop)
        return error_set(err, ERROR_CANCELLED, "the server stops");
    transfer->size += size;
    if (transfer->size > transfer->most)
        return error_set(err, ERROR_CORRUPT, "it is longer than the file that was published");
    sha256_update(&transfer->sha256, size, data);
    for (size_t done = 0; done < size;) {
        const ssize_t count = write(transfer->fd, (const uint8_t *)data + done, size - done);
        if (count > 0)
            done += (size_t)count;
        else if (count == 0 || errno != EINTR)
            return error_set(err, errno == ENOSPC || errno == EDQUOT ? ERROR_FULL : ERROR_IO,
                             "it cannot be written: %m");
    }
    return OK;
}

/* The file into `part`, checked. */
static enum error_code supply_transfer(struct supply *supply, const json_t *row, const char *part, struct error *err)
{
    char name[PAYLOAD_NAME_MAX], hex[2 * SHA256_DIGEST_SIZE + 1];
    uint8_t digest[SHA256_DIGEST_SIZE];
    struct payload *payload = supply->settings.payload;
    struct supply_transfer transfer = {.supply = supply,
                                       .most = (uint64_t)json_integer_value(json_object_get(row, "bytes"))};
    published_payload(name, supply_text(row, "sha256"));
    sha256_init(&transfer.sha256);
    transfer.fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (transfer.fd < 0)
        return error_set(err, ERROR_IO, "%s: %m", part);
    enum error_code code = payload->engine->get(payload, name, supply_take, &transfer, err);
    sha256_digest(&transfer.sha256, sizeof digest, digest);
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    if (!code && strcmp(hex, supply_text(row, "sha256")) != 0)
        code = error_set(err, ERROR_CORRUPT, "what came is damaged: its SHA-256 is %s, not %s", hex,
                         supply_text(row, "sha256"));
    if (!code && fsync(transfer.fd))
        code = error_set(err, ERROR_IO, "%s: %m", part);
    close(transfer.fd);
    return code;
}

/* Whether the ordinary loader takes it. */
static enum error_code supply_probe(const char *part, struct error *err)
{
    struct weights *weights = NULL;
    struct model_info info;
    enum error_code code = weights_open(&weights, part, err);
    if (!code)
        code = model_probe(&info, weights, part, err);
    weights_close(&weights);
    return code;
}

/* Gives the fetched file its name, and removes one of that model under another ending. */
static enum error_code supply_place(const struct supply *supply, const char *part, const char *file, struct error *err)
{
    char path[1200], other[1200];
    if (!supply_path(path, supply->folder, file) || rename(part, path))
        return error_set(err, ERROR_IO, "%s: %m", file);
    for (size_t i = 0; i < sizeof supply_endings / sizeof *supply_endings; i++)
        if (snprintf(other, sizeof other, "%s/%.*s%s", supply->folder, (int)model_store_stem(file), file,
                     supply_endings[i]) < (int)sizeof other &&
            strcmp(other, path) != 0)
            unlink(other);
    const int folder = open(supply->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0) {
        fsync(folder);
        close(folder);
    }
    return OK;
}

static enum error_code supply_room(const struct supply *supply, uint64_t bytes, struct error *err)
{
    size_t count;
    struct supply_file *files = supply_files(supply->folder, &count);
    const uint64_t sum = supply_sum(files, count);
    free(files);
    if (sum + bytes <= supply->settings.most)
        return OK;
    return error_set(err, ERROR_FULL,
                     "%s has %llu bytes, and with this one it would have more than models_cache_bytes; when the server "
                     "starts again, those that were fetched first go",
                     supply->folder, (unsigned long long)sum);
}

/* The section before the file, because a file would be read without its settings; but its SHA-256 only when the file is
 * there: whenever the server dies, no section tells that of another file, and one that tells none is fetched again. */
static enum error_code supply_fetch(struct supply *supply, const json_t *row, struct error *err)
{
    char part[1200];
    if (!supply_path(part, supply->folder, PART))
        return error_set(err, ERROR_INVALID, "the path of %s is too long", supply->folder);
    enum error_code code = supply_room(supply, (uint64_t)json_integer_value(json_object_get(row, "bytes")), err);
    if (!code)
        code = supply_transfer(supply, row, part, err);
    if (!code)
        code = supply_probe(part, err);
    if (!code)
        code = supply_write_conf(supply, row, false, err);
    if (!code)
        code = supply_place(supply, part, supply_text(json_object_get(row, "about"), "file"), err);
    if (!code)
        code = supply_write_conf(supply, row, true, err);
    if (code)
        unlink(part);
    return code;
}

/* Fetches it, unless that has just failed. */
static void supply_get(struct supply *supply, const json_t *row)
{
    struct error err = ERROR_INIT;
    bool stale;
    const char *sha256 = supply_text(row, "sha256"), *name = supply_text(row, "name");
    const int64_t begun = job_clock();
    if (json_integer_value(json_object_get(supply->later, sha256)) > begun)
        return;
    enum error_code code = OK;
    if (supply_has(supply, row, &stale)) /* and the store of models does not take it */
        code = error_set(&err, ERROR_UNSUPPORTED, "it is here already, and cannot be used");
    else
        code = supply_fetch(supply, row, &err);
    if (!code) {
        log_event(LOG_INFO, "model-fetched", "model=\"%s\" sha256=%s ms=%lld", name, sha256,
                  (long long)(job_clock() - begun));
        return;
    }
    const bool transfer = code == ERROR_IO || code == ERROR_CORRUPT || code == ERROR_NOT_FOUND || code == ERROR_BUSY;
    if (code != ERROR_CANCELLED)
        log_event(LOG_WARN, "model-not-fetched", "model=\"%s\" sha256=%s text=\"%s\" result=\"tried again in %d s\"",
                  name, sha256, err.text, (transfer ? AGAIN_MS : UNFIT_MS) / 1000);
    json_object_set_new(supply->later, sha256, json_integer(job_clock() + (transfer ? AGAIN_MS : UNFIT_MS)));
}

/* --- the thread ----------------------------------------------------------------------------------------------------
 */

/* A store_needs_fn. */
static void supply_want(void *context, const char *needs, uint64_t jobs, double megapixels)
{
    json_t *list = *needs ? json_loads(needs, 0, NULL) : NULL;
    (void)jobs, (void)megapixels;
    if (json_is_array(list))
        json_array_append(context, list);
    json_decref(list);
}

/* Texts that are wanted together: what of them is not here, if all of that is published, is fetched. */
static void supply_serve(struct supply *supply, const json_t *wanted, const json_t *here, const json_t *published)
{
    json_t *rows = json_array(), *row, *text;
    size_t i, k;
    bool all = true;
    json_array_foreach(wanted, i, text)
    {
        const json_t *found = NULL;
        const char *name = json_string_value(text);
        if (!name || json_object_get(here, name))
            continue;
        json_array_foreach(published, k, row) if (!found && supply_called(row, name)) found = row;
        all &= found != NULL;
        if (found)
            json_array_append(rows, (json_t *)(uintptr_t)found);
    }
    if (all)
        json_array_foreach(rows, i, row) supply_get(supply, row);
    json_decref(rows);
}

/* The texts of offers_own, as keys. */
static json_t *supply_here(const struct supply *supply)
{
    json_t *here = json_object(), *list, *name;
    size_t i;
    char *text = offers_own(supply->settings.models);
    list = text ? json_loads(text, 0, NULL) : NULL;
    json_array_foreach(list, i, name) json_object_set_new(here, json_string_value(name), json_true());
    json_decref(list);
    free(text);
    return here;
}

/* Those that were fetched get their SHA-256 in the list of models, too. */
static void supply_hash(struct model_store *models)
{
    const struct model_entry *entry;
    do {
        entry = NULL;
        model_store_lock(models);
        for (size_t i = 0; i < model_store_count(models) && !entry; i++) {
            const struct model_entry *at = model_store_at(models, i);
            entry = at->fetched && at->recognised && !*at->sha256 ? at : NULL;
        }
        model_store_unlock(models);
    } while (entry && model_store_hash_entry(models, entry));
}

static void supply_turn(struct supply *supply)
{
    struct error ignored = ERROR_INIT; /* then it is looked at again */
    json_t *wanted = json_array(), *list, *row;
    size_t i;
    for (int role = 0; role < ROLE_COUNT; role++)
        if (supply->settings.defaults[role] && *supply->settings.defaults[role] &&
            strcmp(supply->settings.defaults[role], "none") != 0)
            json_array_append_new(wanted, json_pack("[s%]", supply->settings.defaults[role],
                                                    model_store_stem(supply->settings.defaults[role])));
    model_store_refresh(supply->settings.models);
    supply_hash(supply->settings.models);
    const bool read = !store_needs(supply->settings.store, supply_want, wanted, &ignored);
    json_t *published = read ? supply_published(supply->settings.store, &ignored) : NULL;
    json_t *here = supply_here(supply);
    json_array_foreach(published, i, row)
    {
        bool stale;
        if (!supply_has(supply, row, &stale) && stale)
            supply_get(supply, row);
    }
    if (published)
        json_array_foreach(wanted, i, list) supply_serve(supply, list, here, published);
    json_decref(here);
    json_decref(published);
    json_decref(wanted);
}

static void *supply_main(void *argument)
{
    struct supply *supply = argument;
    bool stop = false;
    while (!stop) {
        supply_turn(supply);
        const struct timespec until = job_deadline(LOOK_MS);
        pthread_mutex_lock(&supply->lock);
        while (!supply->stop && pthread_cond_timedwait(&supply->stopped, &supply->lock, &until) != ETIMEDOUT)
            ;
        stop = supply->stop;
        pthread_mutex_unlock(&supply->lock);
    }
    return NULL;
}

enum error_code supply_create(struct supply **out, const struct supply_settings *settings, struct error *err)
{
    struct supply *supply = *out = mem_calloc(1, sizeof *supply);
    if (!supply)
        return error_set(err, ERROR_NO_MEMORY, "no memory to fetch models");
    supply->settings = *settings;
    supply->folder = strdup(settings->folder);
    supply->later = json_object();
    job_condition(&supply->stopped);
    pthread_mutex_init(&supply->lock, NULL);
    enum error_code code = supply->folder && supply->later
                               ? file_make_folders(settings->folder, 0700, err)
                               : error_set(err, ERROR_NO_MEMORY, "no memory to fetch models");
    if (!code && pthread_create(&supply->thread, NULL, supply_main, supply))
        code = error_set(err, ERROR_IO, "the thread that fetches models could not be started");
    supply->started = !code;
    if (code)
        supply_destroy(out);
    return code;
}

void supply_destroy(struct supply **supply)
{
    struct supply *old = *supply;
    *supply = NULL;
    if (!old)
        return;
    pthread_mutex_lock(&old->lock);
    old->stop = true;
    pthread_cond_signal(&old->stopped);
    pthread_mutex_unlock(&old->lock);
    if (old->started)
        pthread_join(old->thread, NULL);
    pthread_cond_destroy(&old->stopped);
    pthread_mutex_destroy(&old->lock);
    json_decref(old->later);
    free(old->folder);
    free(old);
}
