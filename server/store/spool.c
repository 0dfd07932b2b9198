#include "server/store/spool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "runtime/base/mem.h"
#include "runtime/base/spill.h"

#define SPOOL_PART ".part-" /* how the names begin of what is not whole, or not yet on the disk */
#define SPOOL_LOCK "lock"
#define SPOOL_ID 32
#define SPOOL_PIECE ((size_t)16 << 20) /* bytes that are written at a time */
#define SPOOL_NAME 48

static const char *const spool_kinds[SPOOL_KINDS] = {".input", ".output", ".record"};

struct spool {
    int folder, lock; /* descriptors; the lock file's is locked as long as it is open */
    bool nameless;    /* the file system has files without a name that can be given one */
    uint64_t most;
    _Atomic uint64_t used, parts; /* bytes; names of parts so far */
    _Atomic uint64_t promised;    /* bytes, of files to come */
    pthread_mutex_t names;        /* while a name begins or ceases to be, so that the bytes of each are counted once */
};

struct spool_file {
    struct spool *spool;
    int fd;
    uint64_t size;
    char part[SPOOL_NAME]; /* "": it has no name */
};

/* An error of the system, by errno. */
static enum error_code spool_error(struct error *err, const char *what)
{
    const int number = errno;
    const bool full = number == ENOSPC || number == EDQUOT || number == EFBIG;
    return error_set(err, full ? ERROR_FULL : ERROR_IO, "%s: %s", what, strerror(number));
}

/* The name of a job's file. Ids are made by us; another text here would be a bug, and must not become a path. */
static enum error_code spool_name(char out[SPOOL_NAME], const char *id, enum spool_kind kind, struct error *err)
{
    if (strlen(id) != SPOOL_ID || strspn(id, "0123456789abcdef") != SPOOL_ID || (unsigned)kind >= SPOOL_KINDS)
        return error_set(err, ERROR_INTERNAL, "this is not the id of a job");
    snprintf(out, SPOOL_NAME, "%s%s", id, spool_kinds[kind]);
    return OK;
}

/* The reverse; false for a name that is no job's file. */
static bool spool_parse(const char *name, char id[SPOOL_ID + 1], enum spool_kind *kind)
{
    char same[SPOOL_NAME];
    snprintf(id, SPOOL_ID + 1, "%s", name);
    for (int k = 0; k < SPOOL_KINDS; k++)
        if (!spool_name(same, id, (enum spool_kind)k, NULL) && !strcmp(same, name)) {
            *kind = (enum spool_kind)k;
            return true;
        }
    return false;
}

static void spool_part(struct spool *spool, char out[SPOOL_NAME])
{
    snprintf(out, SPOOL_NAME, SPOOL_PART "%" PRIx64, atomic_fetch_add(&spool->parts, 1));
}

/* Gives an open file without a name this one. */
static int spool_link(const struct spool *spool, int fd, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return linkat(AT_FDCWD, path, spool->folder, name, AT_SYMLINK_FOLLOW);
}

static int spool_sync_folder(int folder)
{
    return fsync(folder) == 0 || errno == EINVAL ? 0 : -1; /* EINVAL: this file system syncs no folders */
}

/* --- opening -------------------------------------------------------------------------------------------------------
 */

/* Makes a folder and those above it, for us alone, so that a power cut does not take them back. */
static int spool_make_folder(const char *path)
{
    char above[1024];
    if (mkdir(path, 0700) != 0) {
        if (errno != ENOENT)
            return errno == EEXIST ? 0 : -1;
        if ((size_t)snprintf(above, sizeof above, "%s", path) >= sizeof above) {
            errno = ENAMETOOLONG;
            return -1;
        }
        char *slash = strrchr(above, '/');
        if (!slash || slash == above) {
            errno = ENOENT;
            return -1;
        }
        *slash = 0;
        if (spool_make_folder(above) != 0 || (mkdir(path, 0700) != 0 && errno != EEXIST))
            return -1;
    }
    snprintf(above, sizeof above, "%s/..", path);
    const int folder = open(above, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int result = folder < 0 ? -1 : spool_sync_folder(folder);
    if (folder >= 0)
        close(folder);
    return result;
}

/* Whether files can be made here without a name, and be given one. Not on every file system, nor without /proc. */
static bool spool_try_nameless(struct spool *spool)
{
    char part[SPOOL_NAME];
    const int fd = openat(spool->folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    spool_part(spool, part);
    const bool linked = spool_link(spool, fd, part) == 0;
    if (linked)
        unlinkat(spool->folder, part, 0);
    close(fd);
    return linked;
}

/* Calls the function for each entry of the folder. */
typedef void spool_entry_fn(struct spool *spool, const char *name, void *context);
static int spool_list(struct spool *spool, spool_entry_fn *each, void *context)
{
    const int fd = openat(spool->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    if (!entries) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    for (const struct dirent *entry; (entry = readdir(entries));)
        each(spool, entry->d_name, context);
    closedir(entries);
    return 0;
}

/* Bytes of the file of that name; 0 if there is none. */
static uint64_t spool_bytes(const struct spool *spool, const char *name)
{
    struct stat st;
    return fstatat(spool->folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? (uint64_t)st.st_size : 0;
}

static void spool_found(struct spool *spool, const char *name, void *context)
{
    char id[SPOOL_ID + 1];
    enum spool_kind kind;
    (void)context;
    if (!strncmp(name, SPOOL_PART, strlen(SPOOL_PART)))
        unlinkat(spool->folder, name, 0);
    else if (spool_parse(name, id, &kind))
        atomic_fetch_add(&spool->used, spool_bytes(spool, name));
}

static enum error_code spool_start(struct spool *spool, const char *folder, struct error *err)
{
    if (spool_make_folder(folder) != 0 || (spool->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 ||
        (spool->lock = openat(spool->folder, SPOOL_LOCK, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)) < 0)
        return spool_error(err, folder);
    if (flock(spool->lock, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK
                   ? error_set(err, ERROR_BUSY, "%s: another server uses this folder; give each a state_dir of its own",
                               folder)
                   : spool_error(err, folder);
    if (spool_list(spool, spool_found, NULL) != 0)
        return spool_error(err, folder);
    spool->nameless = spool_try_nameless(spool);
    return OK;
}

enum error_code spool_open(struct spool **out, const char *folder, uint64_t most, struct error *err)
{
    *out = NULL;
    struct spool *spool = mem_calloc(1, sizeof *spool);
    if (!spool)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the spool");
    spool->folder = spool->lock = -1;
    spool->most = most;
    pthread_mutex_init(&spool->names, NULL);
    const enum error_code code = spool_start(spool, folder, err);
    if (code)
        spool_close(&spool);
    *out = spool;
    return code;
}

void spool_close(struct spool **spool)
{
    struct spool *old = *spool;
    *spool = NULL;
    if (!old)
        return;
    if (old->folder >= 0)
        close(old->folder);
    if (old->lock >= 0)
        close(old->lock);
    pthread_mutex_destroy(&old->names);
    free(old);
}

/* --- writing -------------------------------------------------------------------------------------------------------
 */

enum error_code spool_create(struct spool *spool, struct spool_file **out, struct error *err)
{
    *out = NULL;
    struct spool_file *file = mem_calloc(1, sizeof *file);
    if (!file)
        return error_set(err, ERROR_NO_MEMORY, "no memory for a file of the spool");
    file->spool = spool;
    if (!spool->nameless)
        spool_part(spool, file->part);
    file->fd = spool->nameless ? openat(spool->folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)
                               : openat(spool->folder, file->part, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    if (file->fd < 0) {
        const enum error_code code = spool_error(err, "a file of the spool cannot be made");
        free(file);
        return code;
    }
    *out = file;
    return OK;
}

/* All of it, or nothing. */
static int spool_put(const struct spool_file *file, const char *data, size_t size)
{
    for (size_t done = 0; done < size;) {
        const ssize_t count = pwrite(file->fd, data + done, size - done < SPOOL_PIECE ? size - done : SPOOL_PIECE,
                                     (off_t)(file->size + done));
        if (count > 0) {
            spill_passed(data + done, (size_t)count);
            done += (size_t)count;
        } else if (count == 0 || errno != EINTR) {
            const int number = count == 0 ? ENOSPC : errno;
            const int ignored = ftruncate(file->fd, (off_t)file->size); /* else its size says more than was counted */
            (void)ignored;
            errno = number;
            return -1;
        }
    }
    return 0;
}

enum error_code spool_write(struct spool_file *file, const void *data, size_t size, struct error *err)
{
    struct spool *spool = file->spool;
    char most[ERROR_BYTES_MAX];
    if (size > spool->most || atomic_fetch_add(&spool->used, size) > spool->most - size) {
        if (size <= spool->most)
            atomic_fetch_sub(&spool->used, size);
        return error_set(err, ERROR_FULL, "the spool is full; spool_max_bytes allows %s",
                         error_bytes(most, spool->most));
    }
    if (spool_put(file, data, size) != 0) {
        atomic_fetch_sub(&spool->used, size);
        return spool_error(err, "the spool cannot be written");
    }
    file->size += size;
    return OK;
}

uint64_t spool_size(const struct spool_file *file)
{
    return file->size;
}

int spool_descriptor(const struct spool_file *file)
{
    return file->fd;
}

void spool_discard(struct spool_file **file)
{
    struct spool_file *old = *file;
    *file = NULL;
    if (!old)
        return;
    if (*old->part)
        unlinkat(old->spool->folder, old->part, 0);
    close(old->fd);
    atomic_fetch_sub(&old->spool->used, old->size);
    free(old);
}

/* The part becomes the file of that name, in place of one that was there. */
static int spool_rename(struct spool_file *file, const char *name)
{
    struct spool *spool = file->spool;
    pthread_mutex_lock(&spool->names);
    const uint64_t before = spool_bytes(spool, name);
    const int result = renameat(spool->folder, file->part, spool->folder, name);
    if (result == 0) {
        atomic_fetch_sub(&spool->used, before);
        *file->part = 0;
    }
    pthread_mutex_unlock(&spool->names);
    return result;
}

/* Puts the file's bytes on the disk, unless that is not asked for, and gives it this name. */
static enum error_code spool_call(struct spool *spool, struct spool_file *kept, const char *name, bool sync,
                                  struct error *err)
{
    char part[SPOOL_NAME];
    /* First its bytes, then its name. A part comes between, because a link replaces no file. */
    if (sync && fsync(kept->fd) != 0)
        return spool_error(err, "the spool cannot be written");
    if (!*kept->part) {
        spool_part(spool, part);
        if (spool_link(spool, kept->fd, part) != 0)
            return spool_error(err, "a file of the spool cannot be named");
        strcpy(kept->part, part);
    }
    return spool_rename(kept, name) != 0 ? spool_error(err, "a file of the spool cannot be named") : OK;
}

/* It has its name, and is nobody's any more. */
static void spool_let_go(struct spool_file **file)
{
    close((*file)->fd);
    free(*file);
    *file = NULL;
}

static enum error_code spool_hand(struct spool *spool, struct spool_file **file, const char *id, enum spool_kind kind,
                                  bool sync, struct error *err)
{
    char name[SPOOL_NAME];
    enum error_code code = spool_name(name, id, kind, err);
    if (!code)
        code = spool_call(spool, *file, name, sync, err);
    if (!code)
        spool_let_go(file);
    return code;
}

enum error_code spool_place(struct spool *spool, struct spool_file **file, const char *id, enum spool_kind kind,
                            struct error *err)
{
    return spool_hand(spool, file, id, kind, true, err);
}

enum error_code spool_lay(struct spool *spool, struct spool_file **file, const char *id, enum spool_kind kind,
                          struct error *err)
{
    return spool_hand(spool, file, id, kind, false, err);
}

enum error_code spool_save(struct spool *spool, const char *id, enum spool_kind kind, struct error *err)
{
    int fd;
    uint64_t size;
    const enum error_code code = spool_read(spool, id, kind, &fd, &size, err);
    if (code)
        return code;
    const int result = fsync(fd);
    close(fd);
    return result != 0 ? spool_error(err, "the spool cannot be written") : spool_sync(spool, err);
}

enum error_code spool_sync(struct spool *spool, struct error *err)
{
    return spool_sync_folder(spool->folder) != 0 ? spool_error(err, "the folder of the spool cannot be written") : OK;
}

enum error_code spool_keep(struct spool *spool, struct spool_file **file, const char *id, enum spool_kind kind,
                           struct error *err)
{
    char name[SPOOL_NAME];
    enum error_code code = spool_name(name, id, kind, err);
    if (!code)
        code = spool_call(spool, *file, name, true, err);
    if (code)
        return code;
    code = spool_sync(spool, err);
    if (code)
        unlinkat(spool->folder, name, 0); /* nobody was told; its bytes count until the caller discards it */
    else
        spool_let_go(file);
    return code;
}

/* --- what is there -------------------------------------------------------------------------------------------------
 */

enum error_code spool_read(struct spool *spool, const char *id, enum spool_kind kind, int *fd, uint64_t *size,
                           struct error *err)
{
    char name[SPOOL_NAME];
    struct stat st;
    *fd = -1;
    const enum error_code code = spool_name(name, id, kind, err);
    if (code)
        return code;
    *fd = openat(spool->folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (*fd < 0 && errno == ENOENT)
        return error_set(err, ERROR_NOT_FOUND, "the spool has no such file");
    if (*fd < 0 || fstat(*fd, &st) != 0) {
        const enum error_code failed = spool_error(err, "a file of the spool cannot be read");
        if (*fd >= 0)
            close(*fd);
        *fd = -1;
        return failed;
    }
    *size = (uint64_t)st.st_size;
    return OK;
}

bool spool_has(struct spool *spool, const char *id, enum spool_kind kind)
{
    char name[SPOOL_NAME];
    return !spool_name(name, id, kind, NULL) && faccessat(spool->folder, name, F_OK, 0) == 0;
}

void spool_remove(struct spool *spool, const char *id, enum spool_kind kind)
{
    char name[SPOOL_NAME];
    if (spool_name(name, id, kind, NULL))
        return;
    pthread_mutex_lock(&spool->names);
    const uint64_t bytes = spool_bytes(spool, name);
    if (unlinkat(spool->folder, name, 0) == 0)
        atomic_fetch_sub(&spool->used, bytes);
    pthread_mutex_unlock(&spool->names);
}

struct spool_visit {
    spool_file_fn *each;
    void *context;
};

static void spool_visit_entry(struct spool *spool, const char *name, void *context)
{
    const struct spool_visit *visit = context;
    char id[SPOOL_ID + 1];
    enum spool_kind kind;
    (void)spool;
    if (spool_parse(name, id, &kind))
        visit->each(visit->context, id, kind);
}

void spool_each(struct spool *spool, spool_file_fn *each, void *context)
{
    struct spool_visit visit = {each, context};
    spool_list(spool, spool_visit_entry, &visit);
}

/* --- promises ------------------------------------------------------------------------------------------------------
 */

/* Bytes that could still be written. */
static uint64_t spool_room(struct spool *spool)
{
    const uint64_t used = atomic_load(&spool->used);
    uint64_t disk, room = used < spool->most ? spool->most - used : 0;
    struct statvfs system;
    if (fstatvfs(spool->folder, &system) == 0 &&
        !__builtin_mul_overflow((uint64_t)system.f_bavail, (uint64_t)system.f_frsize, &disk) && disk < room)
        room = disk;
    return room;
}

enum error_code spool_promise(struct spool *spool, uint64_t bytes, struct error *err)
{
    char wanted[ERROR_BYTES_MAX], others[ERROR_BYTES_MAX], most[ERROR_BYTES_MAX];
    const uint64_t room = spool_room(spool), before = atomic_fetch_add(&spool->promised, bytes);
    if (before <= room && bytes <= room - before)
        return OK;
    spool_release(spool, bytes);
    return error_set(err, ERROR_FULL,
                     "the spool has no room for the result, about %s: %s are kept for results of other jobs, and "
                     "spool_max_bytes allows %s, or its disk is full",
                     error_bytes(wanted, bytes), error_bytes(others, before), error_bytes(most, spool->most));
}

void spool_promise_anyway(struct spool *spool, uint64_t bytes)
{
    atomic_fetch_add(&spool->promised, bytes);
}

void spool_release(struct spool *spool, uint64_t bytes)
{
    uint64_t before = atomic_load(&spool->promised);
    while (!atomic_compare_exchange_weak(&spool->promised, &before, before > bytes ? before - bytes : 0))
        ;
}

uint64_t spool_promised(struct spool *spool)
{
    return atomic_load(&spool->promised);
}

uint64_t spool_used(struct spool *spool)
{
    return atomic_load(&spool->used);
}

uint64_t spool_most(const struct spool *spool)
{
    return spool->most;
}
