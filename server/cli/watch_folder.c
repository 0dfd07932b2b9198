#include "server/cli/watch_folder.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/mem.h"
#include "runtime/base/utf8.h"
#include "server/cli/cli_inputs.h"

#define WATCH_EVENTS (IN_CLOSE_WRITE | IN_MOVED_TO | IN_CREATE | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR)
#define WATCH_DEPTH 100 /* folders below each other; each takes some KiB of the stack */

struct watch_place {
    int wd;
    char *path, *below;
};

/* A file that was found. */
struct watch_waiting {
    char *path, *below;
    uint64_t hash; /* of the path */
    uint64_t size;
    int64_t changed_ns, due_ns;
};

struct watch {
    struct watch_settings settings;
    char *folder;
    int fd;
    bool gone, overflow;
    int64_t scanned_ns;
    struct watch_place *places;
    size_t place_count, place_room;
    struct watch_waiting *files;
    size_t file_count, file_room;
    struct watch_waiting given;
};

static int64_t watch_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static enum error_code watch_no_memory(struct error *err)
{
    return error_set(err, ERROR_NO_MEMORY, "no memory for the list of files");
}

static uint64_t watch_hash(const char *text)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return hash;
}

/* ---- files ---- */

static enum error_code watch_put(struct watch *watch, const struct watch_waiting *file, struct error *err)
{
    if (watch->file_count == watch->file_room) {
        const size_t room = watch->file_room ? 2 * watch->file_room : 64;
        struct watch_waiting *grown = realloc(watch->files, room * sizeof *grown);
        if (!grown)
            return watch_no_memory(err);
        watch->files = grown;
        watch->file_room = room;
    }
    watch->files[watch->file_count++] = *file;
    return OK;
}

static enum error_code watch_found(struct watch *watch, const char *path, const char *below, const struct stat *status,
                                   struct error *err)
{
    const uint64_t hash = watch_hash(path);
    const int64_t due = watch_now() + (int64_t)(watch->settings.settle * 1e9);
    for (size_t i = 0; i < watch->file_count; i++)
        if (watch->files[i].hash == hash && !strcmp(watch->files[i].path, path)) {
            struct watch_waiting *file = &watch->files[i];
            const bool same = file->size == (uint64_t)status->st_size && file->changed_ns == cli_inputs_changed(status);
            file->size = (uint64_t)status->st_size;
            file->changed_ns = cli_inputs_changed(status);
            file->due_ns = same ? file->due_ns : due; /* looks at what waits must not make it wait for longer */
            return OK;
        }
    if (!watch->settings.wanted(path, status, watch->settings.user))
        return OK;
    struct watch_waiting file = {
        strdup(path), strdup(below), hash, (uint64_t)status->st_size, cli_inputs_changed(status), due};
    enum error_code code = file.path && file.below ? watch_put(watch, &file, err) : watch_no_memory(err);
    if (code) {
        free(file.path);
        free(file.below);
    }
    return code;
}

/* ---- folders ---- */

static enum error_code watch_folder(struct watch *watch, const char *path, const char *below, struct error *err);

/* What is called name in a folder: a file, a folder, or of no interest. */
static enum error_code watch_look(struct watch *watch, const char *folder, const char *below, const char *name,
                                  struct error *err)
{
    char path[PATH_MAX], inner[PATH_MAX];
    struct stat status, link;
    const char *slash = folder[strlen(folder) - 1] == '/' ? "" : "/";
    if (*name == '.' || snprintf(path, sizeof path, "%s%s%s", folder, slash, name) >= (int)sizeof path ||
        stat(path, &status))
        return OK;
    if (!S_ISDIR(status.st_mode))
        return S_ISREG(status.st_mode) ? watch_found(watch, path, below, &status, err) : OK;
    const struct stat *results = &watch->settings.results;
    const bool ours = results->st_nlink && status.st_dev == results->st_dev && status.st_ino == results->st_ino;
    if (ours || lstat(path, &link) || S_ISLNK(link.st_mode) ||
        snprintf(inner, sizeof inner, "%s%s%s", below, *below ? "/" : "", name) >= (int)sizeof inner)
        return OK;
    size_t depth = 1;
    for (const char *at = inner; (at = strchr(at, '/')); at++)
        depth++;
    if (depth > WATCH_DEPTH) {
        char shown[4 * PATH_MAX];
        fprintf(stderr, "restored: %s: not watched, because it is more than %d folders deep\n",
                utf8_escape(shown, sizeof shown, path), WATCH_DEPTH);
        return OK;
    }
    struct error local = ERROR_INIT;
    const enum error_code code = watch_folder(watch, path, inner, &local);
    if (code != ERROR_NOT_FOUND && code != ERROR_IO)
        return code ? error_copy(err, code, &local) : OK;
    if (code == ERROR_IO) /* an unreadable folder does not stop the others */
        fprintf(stderr, "restored: %s\n", local.text);
    return OK;
}

/* The system gives a folder that is watched already its old number, whatever its path was. */
static enum error_code watch_place(struct watch *watch, int wd, const char *path, const char *below, struct error *err)
{
    struct watch_place *place = NULL;
    for (size_t i = 0; i < watch->place_count && !place; i++)
        if (watch->places[i].wd == wd)
            place = &watch->places[i];
    if (!place && watch->place_count == watch->place_room) {
        const size_t room = watch->place_room ? 2 * watch->place_room : 16;
        struct watch_place *grown = realloc(watch->places, room * sizeof *grown);
        if (!grown)
            return watch_no_memory(err);
        watch->places = grown;
        watch->place_room = room;
    }
    if (!place) {
        place = &watch->places[watch->place_count++];
        *place = (struct watch_place){.wd = wd};
    }
    free(place->path);
    free(place->below);
    place->path = strdup(path);
    place->below = strdup(below);
    return place->path && place->below ? OK : watch_no_memory(err);
}

/* Begins to watch before it looks, so that nothing is missed. ERROR_NOT_FOUND: it is gone. */
static enum error_code watch_folder(struct watch *watch, const char *path, const char *below, struct error *err)
{
    /* a folder may have become a link since it was looked at */
    const int wd = inotify_add_watch(watch->fd, path, WATCH_EVENTS | (*below ? IN_DONT_FOLLOW : 0));
    if (wd < 0 && errno == ENOSPC)
        return error_set(err, ERROR_IO,
                         "%s cannot be watched: the system allows no more watches; raise fs.inotify.max_user_watches",
                         path);
    if (wd < 0)
        return error_set(err, errno == ENOENT || errno == ENOTDIR ? ERROR_NOT_FOUND : ERROR_IO,
                         "%s cannot be watched: %m", path);
    enum error_code code = watch_place(watch, wd, path, below, err);
    struct dirent **names = NULL;
    const int count = code ? 0 : scandir(path, &names, NULL, alphasort);
    if (count < 0)
        return error_set(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_IO, "%s: %m", path);
    for (int i = 0; i < count; i++) {
        if (!code)
            code = watch_look(watch, path, below, names[i]->d_name, err);
        free(names[i]);
    }
    free(names);
    return code;
}

static enum error_code watch_scan(struct watch *watch, struct error *err)
{
    struct error local = ERROR_INIT;
    watch->overflow = false;
    watch->scanned_ns = watch_now();
    const enum error_code code = watch_folder(watch, watch->folder, "", &local);
    return code ? error_copy(err, code == ERROR_NOT_FOUND ? ERROR_IO : code, &local) : OK;
}

/* ---- events ---- */

static enum error_code watch_event(struct watch *watch, const struct inotify_event *event, struct error *err)
{
    struct watch_place *place = NULL;
    watch->overflow = watch->overflow || event->mask & IN_Q_OVERFLOW;
    for (size_t i = 0; i < watch->place_count && !place; i++)
        if (watch->places[i].wd == event->wd)
            place = &watch->places[i];
    if (!place)
        return OK;
    if (event->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT) && !*place->below)
        watch->gone = true;
    if (event->mask & IN_IGNORED) { /* it is no longer there */
        free(place->path);
        free(place->below);
        *place = watch->places[--watch->place_count];
        return OK;
    }
    /* a file that was created is looked at when it is closed; a folder may hold files by now */
    if (!event->len || (event->mask & IN_CREATE && !(event->mask & IN_ISDIR)))
        return OK;
    char path[PATH_MAX], below[PATH_MAX]; /* the list of places may move */
    snprintf(path, sizeof path, "%s", place->path);
    snprintf(below, sizeof below, "%s", place->below);
    return watch_look(watch, path, below, event->name, err);
}

static enum error_code watch_read(struct watch *watch, struct error *err)
{
    _Alignas(struct inotify_event) char buffer[16384];
    enum error_code code = OK;
    ssize_t size;
    while (!code && (size = read(watch->fd, buffer, sizeof buffer)) > 0)
        for (const char *at = buffer; at < buffer + size && !code;) {
            const struct inotify_event *event = (const struct inotify_event *)(const void *)at;
            code = watch_event(watch, event, err);
            at += sizeof *event + event->len;
        }
    return code;
}

/* ---- what is ready ---- */

/* Takes a file that has settled: true, and watch->given is it. */
static bool watch_ready(struct watch *watch, size_t index)
{
    struct watch_waiting *file = &watch->files[index];
    struct stat status;
    const bool there = stat(file->path, &status) == 0 && S_ISREG(status.st_mode);
    if (there && ((uint64_t)status.st_size != file->size || cli_inputs_changed(&status) != file->changed_ns)) {
        file->size = (uint64_t)status.st_size;
        file->changed_ns = cli_inputs_changed(&status);
        file->due_ns = watch_now() + (int64_t)(watch->settings.settle * 1e9);
        return false;
    }
    const struct watch_waiting taken = *file;
    memmove(file, file + 1, (--watch->file_count - index) * sizeof *file);
    if (!there || !watch->settings.wanted(taken.path, &status, watch->settings.user)) {
        free(taken.path);
        free(taken.below);
        return false;
    }
    free(watch->given.path);
    free(watch->given.below);
    watch->given = taken;
    return true;
}

/* The first file that is due and ready; *wait_ms: until the next one is due, -1: there is none. */
static bool watch_take(struct watch *watch, int *wait_ms)
{
    const int64_t now = watch_now();
    int64_t next = INT64_MAX;
    for (size_t i = 0; i < watch->file_count;) {
        const size_t before = watch->file_count;
        if (watch->files[i].due_ns <= now && watch_ready(watch, i))
            return true;
        if (watch->file_count < before) /* dropped */
            continue;
        next = watch->files[i].due_ns < next ? watch->files[i].due_ns : next;
        i++;
    }
    if (watch->settings.rescan > 0) {
        const int64_t scan = watch->scanned_ns + (int64_t)(watch->settings.rescan * 1e9);
        next = scan < next ? scan : next;
    }
    const int64_t wait = next == INT64_MAX ? -1 : next > now ? (next - now) / 1000000 + 1 : 0;
    *wait_ms = wait > 3600000 ? 3600000 : (int)wait;
    return false;
}

enum error_code watch_next(struct watch *watch, struct watch_file *file, struct error *err)
{
    enum error_code code = OK;
    for (int wait_ms = 0; !code; wait_ms = 0) {
        struct pollfd ready[] = {{.fd = watch->fd, .events = POLLIN}, {.fd = watch->settings.stop, .events = POLLIN}};
        code = watch_read(watch, err);
        const bool due =
            watch->settings.rescan > 0 && watch_now() - watch->scanned_ns >= (int64_t)(watch->settings.rescan * 1e9);
        if (!code && watch->gone)
            code = error_set(err, ERROR_IO, "%s is gone", watch->folder);
        if (!code && (watch->overflow || due))
            code = watch_scan(watch, err);
        if (!code && poll(&ready[1], 1, 0) > 0)
            code = error_set(err, ERROR_CANCELLED, "stopped");
        if (!code && watch_take(watch, &wait_ms)) {
            *file = (struct watch_file){watch->given.path, watch->given.below};
            return OK;
        }
        if (!code)
            poll(ready, 2, wait_ms);
    }
    return code;
}

enum error_code watch_again(struct watch *watch, double seconds, struct error *err)
{
    struct watch_waiting file = watch->given;
    file.path = strdup(file.path);
    file.below = strdup(file.below);
    file.due_ns = watch_now() + (int64_t)(seconds * 1e9);
    enum error_code code = file.path && file.below ? watch_put(watch, &file, err) : watch_no_memory(err);
    if (code) {
        free(file.path);
        free(file.below);
    }
    return code;
}

size_t watch_waiting(const struct watch *watch)
{
    return watch->file_count;
}

enum error_code watch_create(struct watch **out, const char *folder, const struct watch_settings *settings,
                             struct error *err)
{
    struct watch *watch = *out = mem_calloc(1, sizeof *watch);
    if (!watch)
        return watch_no_memory(err);
    watch->settings = *settings;
    watch->folder = strdup(folder);
    watch->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    enum error_code code = watch->folder ? OK : watch_no_memory(err);
    if (!code && watch->fd < 0)
        code = error_set(err, ERROR_IO, "%s cannot be watched: %m", folder);
    if (!code)
        code = watch_scan(watch, err);
    if (code)
        watch_destroy(out);
    return code;
}

void watch_destroy(struct watch **watch)
{
    struct watch *old = *watch;
    *watch = NULL;
    if (!old)
        return;
    for (size_t i = 0; i < old->place_count; i++) {
        free(old->places[i].path);
        free(old->places[i].below);
    }
    for (size_t i = 0; i < old->file_count; i++) {
        free(old->files[i].path);
        free(old->files[i].below);
    }
    free(old->given.path);
    free(old->given.below);
    free(old->places);
    free(old->files);
    free(old->folder);
    if (old->fd >= 0)
        close(old->fd);
    free(old);
}
