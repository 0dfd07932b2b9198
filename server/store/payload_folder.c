/* Payloads as files of a folder that all servers see, such as one of NFS. A file gets its name when all of it is on the
 * disk. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/mem.h"
#include "server/store/payload.h"

#define FOLDER_PIECE ((size_t)1 << 20)

struct folder {
    struct payload payload;
    int fd;
    DIR *list; /* where a sweep goes on; NULL: none has stopped on its way */
};

static enum error_code folder_failed(const char *what, struct error *err)
{
    const bool full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
    return error_set(err, full ? ERROR_FULL : ERROR_IO, "the folder of payloads cannot be %s: %m", what);
}

/* One file a payload, with '-' for each '/'. */
static void folder_name(char out[PAYLOAD_NAME_MAX], const char *name)
{
    snprintf(out, PAYLOAD_NAME_MAX, "%s", name);
    for (char *c = out; *c; c++)
        *c = *c == '/' ? '-' : *c;
}

/* Passes on what a file holds. ERROR_IO: it could not be read, or has less than `size`. */
static enum error_code folder_read(int fd, uint64_t size, payload_take_fn *take, void *context, struct error *err)
{
    uint8_t *data = mem_alloc(FOLDER_PIECE, 1);
    enum error_code code = data ? OK : error_set(err, ERROR_NO_MEMORY, "no memory for a payload");
    for (uint64_t at = 0; !code && at < size;) {
        const size_t want = size - at < FOLDER_PIECE ? (size_t)(size - at) : FOLDER_PIECE;
        const ssize_t got = pread(fd, data, want, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            code = got ? folder_failed("read", err) : error_set(err, ERROR_IO, "a payload is shorter than it was");
            break;
        }
        at += (uint64_t)got;
        code = take(context, data, (size_t)got, err);
    }
    free(data);
    return code;
}

/* A payload_take_fn: into the file whose descriptor this is. */
static enum error_code folder_write(void *context, const void *data, size_t size, struct error *err)
{
    const int fd = *(const int *)context;
    for (size_t done = 0; done < size;) {
        const ssize_t count = write(fd, (const uint8_t *)data + done, size - done);
        if (count > 0)
            done += (size_t)count;
        else if (count == 0 || errno != EINTR)
            return folder_failed("written", err);
    }
    return OK;
}

static enum error_code folder_put(struct payload *payload, const char *name, int fd, uint64_t size, struct error *err)
{
    const struct folder *folder = (struct folder *)payload;
    char file[PAYLOAD_NAME_MAX], part[PAYLOAD_NAME_MAX + 48];
    folder_name(file, name);
    snprintf(part, sizeof part, ".part-%s-%ld-%d", file, (long)getpid(), fd);
    int to = openat(folder->fd, part, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (to < 0)
        return folder_failed("written", err);
    enum error_code code = folder_read(fd, size, folder_write, &to, err);
    if (!code && fsync(to) != 0)
        code = folder_failed("written", err);
    close(to);
    if (!code && renameat(folder->fd, part, folder->fd, file) != 0)
        code = folder_failed("written", err);
    if (code)
        unlinkat(folder->fd, part, 0);
    else if (fsync(folder->fd) != 0 && errno != EINVAL)
        code = folder_failed("written", err);
    return code;
}

static enum error_code folder_get(struct payload *payload, const char *name, payload_take_fn *take, void *context,
                                  struct error *err)
{
    const struct folder *folder = (struct folder *)payload;
    char file[PAYLOAD_NAME_MAX];
    struct stat st;
    folder_name(file, name);
    const int fd = openat(folder->fd, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno == ENOENT)
        return error_set(err, ERROR_NOT_FOUND, "the folder of payloads has no such picture");
    enum error_code code = fd < 0 || fstat(fd, &st) != 0 ? folder_failed("read", err) : OK;
    if (!code)
        code = folder_read(fd, (uint64_t)st.st_size, take, context, err);
    if (fd >= 0)
        close(fd);
    return code;
}

static enum error_code folder_remove(struct payload *payload, const char *name, struct error *err)
{
    const struct folder *folder = (struct folder *)payload;
    char file[PAYLOAD_NAME_MAX];
    folder_name(file, name);
    return unlinkat(folder->fd, file, 0) == 0 || errno == ENOENT ? OK : folder_failed("written", err);
}

/* The time of the machine that has the folder, which is that of its files. */
static enum error_code folder_now(const struct folder *folder, time_t *now, struct error *err)
{
    struct stat st;
    const int fd = openat(folder->fd, ".clock", O_CREAT | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600);
    const bool known = fd >= 0 && futimens(fd, NULL) == 0 && fstat(fd, &st) == 0;
    const enum error_code code = known ? OK : folder_failed("written", err);
    if (fd >= 0)
        close(fd);
    *now = known ? st.st_mtime : 0;
    return code;
}

/* What is looked at, some at a time. */
struct folder_round {
    const struct folder *folder;
    time_t before;
    payload_wanted_fn *wanted;
    void *context;
    size_t count;
    struct payload_asked asked[PAYLOAD_ASK_MOST];
    char files[PAYLOAD_ASK_MOST][64];
};

static enum error_code folder_sweep_file(const struct folder_round *round, const char *file, struct error *err)
{
    struct stat st;
    if (fstatat(round->folder->fd, file, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode) ||
        st.st_mtime >= round->before || unlinkat(round->folder->fd, file, 0) == 0 || errno == ENOENT)
        return OK;
    return folder_failed("written", err);
}

/* Those that no job has go, if they are old. Asked first, because nearly all are wanted, and asking each file for its
 * age would take a network's round trip. */
static enum error_code folder_sweep_some(struct folder_round *round, struct error *err)
{
    enum error_code code = OK;
    if (round->count)
        round->wanted(round->context, round->asked, round->count);
    for (size_t i = 0; i < round->count && !code; i++)
        if (!round->asked[i].wanted)
            code = folder_sweep_file(round, round->files[i], err);
    round->count = 0;
    return code;
}

/* A name of the folder; one that is not a payload's, nor of what a crash has left of one, is not ours. */
static enum error_code folder_sweep_name(struct folder_round *round, const char *file, struct error *err)
{
    struct payload_asked *asked = &round->asked[round->count];
    int used = 0;
    *asked = (struct payload_asked){0};
    if (!strncmp(file, ".part-", 6))
        return folder_sweep_file(round, file, err);
    const bool in = sscanf(file, "in-%32[0-9a-zA-Z]%n", asked->id, &used) == 1 && !file[used];
    if (!in && (sscanf(file, "out-%32[0-9a-zA-Z]-%d%n", asked->id, &asked->attempts, &used) != 2 || file[used] ||
                asked->attempts < 1 || strlen(file) >= sizeof round->files[0]))
        return OK;
    snprintf(round->files[round->count++], sizeof round->files[0], "%.63s", file);
    return round->count < PAYLOAD_ASK_MOST ? OK : folder_sweep_some(round, err);
}

static enum error_code folder_sweep_open(struct folder *folder, struct error *err)
{
    const int fd = openat(folder->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* a place in it of its own */
    folder->list = fd >= 0 ? fdopendir(fd) : NULL;
    if (folder->list)
        return OK;
    const enum error_code code = folder_failed("read", err);
    if (fd >= 0)
        close(fd);
    return code;
}

static enum error_code folder_sweep(struct payload *payload, int64_t seconds, int most, payload_wanted_fn *wanted,
                                    void *context, bool *more, struct error *err)
{
    struct folder *folder = (struct folder *)payload;
    struct folder_round *round = mem_calloc(1, sizeof *round);
    time_t now = 0;
    *more = false;
    enum error_code code =
        round ? folder_now(folder, &now, err) : error_set(err, ERROR_NO_MEMORY, "no memory to look at payloads");
    if (!code && !folder->list)
        code = folder_sweep_open(folder, err);
    if (!code) {
        struct dirent *entry = NULL;
        round->folder = folder;
        round->before = now - (time_t)seconds;
        round->wanted = wanted;
        round->context = context;
        for (int i = 0; !code && i < most && (entry = readdir(folder->list)); i++)
            code = folder_sweep_name(round, entry->d_name, err);
        if (!code)
            code = folder_sweep_some(round, err);
        *more = !code && entry;
    }
    if (!*more && folder->list) {
        closedir(folder->list);
        folder->list = NULL;
    }
    free(round);
    return code;
}

static void folder_close(struct payload *payload)
{
    struct folder *folder = (struct folder *)payload;
    if (folder->list)
        closedir(folder->list);
    if (folder->fd >= 0)
        close(folder->fd);
    free(folder);
}

static const struct payload_engine folder_engine = {.name = "folder",
                                                    .put = folder_put,
                                                    .get = folder_get,
                                                    .remove = folder_remove,
                                                    .sweep = folder_sweep,
                                                    .close = folder_close};

enum error_code payload_folder_open(struct payload **out, const struct payload_settings *settings, struct error *err)
{
    struct folder *folder = mem_calloc(1, sizeof *folder);
    *out = folder ? &folder->payload : NULL;
    if (!folder)
        return error_set(err, ERROR_NO_MEMORY, "no memory for payloads");
    folder->payload.engine = &folder_engine;
    folder->fd = open(settings->where, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder->fd >= 0)
        return OK;
    error_set(err, ERROR_INVALID, "payload: the folder %.300s cannot be opened: %m", settings->where);
    payload_close(out);
    return ERROR_INVALID;
}
