#include "runtime/base/file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/spill.h"

#define FILE_PIECE ((size_t)16 << 20) /* bytes that are written at a time */
#define FILE_GUARDS 2048              /* files mapped at the same time */

/* A mapped file. The handler searches the slots while threads take and return others. */
struct file_guard {
    atomic_uintptr_t begin, end; /* begin 0: free */
    atomic_bool changed;
    int fd;
    struct file_id id;
};

static struct {
    pthread_mutex_t lock; /* for taking and returning slots, and for the next two */
    uintptr_t page;
    struct sigaction before;
    struct file_guard guards[FILE_GUARDS];
} files = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A page of a mapped file no longer exists; this may happen on any thread. Zeros replace the rest of the file and the
 * read goes on; whoever used it calls file_changed. Any other SIGBUS goes to the previous handler. */
static void file_answer(int number, siginfo_t *info, void *context)
{
    const uintptr_t at = (uintptr_t)info->si_addr;
    const int saved = errno;
    (void)context;
    for (int i = 0; i < FILE_GUARDS; i++) {
        struct file_guard *guard = &files.guards[i];
        const uintptr_t begin = atomic_load(&guard->begin), end = atomic_load(&guard->end);
        if (!begin || at < begin || at >= end || atomic_load(&guard->begin) != begin)
            continue;
        const uintptr_t page = at / files.page * files.page;
        atomic_store(&guard->changed, true);
        if (mmap((void *)page, end - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED) {
            errno = saved;
            return;
        }
    }
    sigaction(number, &files.before, NULL);
}

/* For each file, because a driver or a test may have replaced our handler. */
static void file_listen(void)
{
    struct sigaction action = {.sa_sigaction = file_answer, .sa_flags = SA_SIGINFO}, now;
    if (sigaction(SIGBUS, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) && now.sa_sigaction == file_answer)
        return;
    files.page = (uintptr_t)sysconf(_SC_PAGESIZE);
    files.before = now;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

static struct file_id file_id_of(const struct stat *st)
{
    return (struct file_id){.device = (uint64_t)st->st_dev,
                            .inode = (uint64_t)st->st_ino,
                            .size = (uint64_t)st->st_size,
                            .changed_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec};
}

/* Takes over the descriptor. */
static struct file_guard *file_guard_take(int fd, const struct stat *st, void *data)
{
    struct file_guard *guard = NULL;
    pthread_mutex_lock(&files.lock);
    file_listen();
    for (int i = 0; i < FILE_GUARDS && !guard; i++)
        if (!atomic_load(&files.guards[i].begin))
            guard = &files.guards[i];
    if (guard) {
        guard->fd = fd;
        guard->id = file_id_of(st);
        atomic_store(&guard->changed, false);
        atomic_store(&guard->end, (uintptr_t)data + (uintptr_t)st->st_size);
        atomic_store(&guard->begin, (uintptr_t)data);
    }
    pthread_mutex_unlock(&files.lock);
    return guard;
}

static enum error_code file_map_open(struct file *out, int fd, const struct stat *st, const char *path,
                                     struct error *err)
{
    void *p = mmap(NULL, (size_t)st->st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED)
        return error_set(err, ERROR_IO, "%s: %s", path, strerror(errno));
    struct file_guard *guard = file_guard_take(fd, st, p);
    if (!guard) {
        munmap(p, (size_t)st->st_size);
        return error_set(err, ERROR_NO_MEMORY, "%s: too many files are open", path);
    }
    *out = (struct file){.data = p, .size = (size_t)st->st_size, .guard = guard};
    return OK;
}

/* Takes over the descriptor. */
static enum error_code file_map_opened(struct file *out, int fd, const char *path, struct error *err)
{
    enum error_code code = OK;
    struct stat st;
    if (fstat(fd, &st) != 0)
        code = error_set(err, ERROR_IO, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        code = error_set(err, ERROR_IO, "%s: not a regular file", path);
    else if (st.st_size > 0)
        code = file_map_open(out, fd, &st, path, err);
    if (!out->guard)
        close(fd);
    return code;
}

enum error_code file_map(struct file *out, const char *path, struct error *err)
{
    *out = (struct file){0};
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must be refused at once, not waited for */
    if (fd < 0)
        return error_set(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_IO, "%s: %s", path, strerror(errno));
    return file_map_opened(out, fd, path, err);
}

enum error_code file_map_descriptor(struct file *out, int fd, const char *name, struct error *err)
{
    *out = (struct file){0};
    const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        return error_set(err, ERROR_IO, "%s: %s", name, strerror(errno));
    return file_map_opened(out, own, name, err);
}

void file_expect(const struct file *file)
{
    if (file->data)
        madvise((void *)(uintptr_t)file->data, file->size, MADV_WILLNEED); /* only a hint */
}

bool file_changed(const struct file *file)
{
    struct file_guard *guard = file->guard;
    struct stat st;
    if (!guard || atomic_load(&guard->changed))
        return guard != NULL;
    if (fstat(guard->fd, &st) == 0) {
        const struct file_id now = file_id_of(&st);
        if (file_same(&now, &guard->id))
            return false;
    }
    atomic_store(&guard->changed, true);
    return true;
}

struct file_id file_id(const struct file *file)
{
    return file->guard ? file->guard->id : (struct file_id){0};
}

bool file_identify(struct file_id *out, const char *path)
{
    struct stat st;
    *out = (struct file_id){0};
    if (stat(path, &st) != 0)
        return false;
    *out = file_id_of(&st);
    return true;
}

bool file_same(const struct file_id *a, const struct file_id *b)
{
    return a->device == b->device && a->inode == b->inode && a->size == b->size && a->changed_ns == b->changed_ns;
}

void file_unmap(struct file *file)
{
    struct file_guard *guard = file->guard;
    if (guard) {
        const int fd = guard->fd;
        atomic_store(&guard->begin, 0);
        munmap((void *)(uintptr_t)file->data, file->size);
        close(fd);
    }
    *file = (struct file){0};
}

bool file_is_left(const char *name)
{
    const size_t length = strlen(name), end = strlen(".part");
    if (length <= end || strcmp(name + length - end, ".part") != 0)
        return false;
    const char *digit = name + length - end;
    while (digit > name && isdigit((unsigned char)digit[-1]))
        digit--;
    const long pid = strtol(digit, NULL, 10);
    if (digit == name || digit[-1] != '.' || pid <= 0 || pid > INT_MAX)
        return false;
    /* in a container a new process often has the number of the one that was killed */
    return pid == getpid() || (kill((pid_t)pid, 0) && errno == ESRCH);
}

enum error_code file_write(const char *path, const void *data, size_t size, struct error *err)
{
    char part[4096];
    const char *slash = strrchr(path, '/');
    if (snprintf(part, sizeof part, "%s.%ld.part", path, (long)getpid()) >= (int)sizeof part ||
        strlen(slash ? slash + 1 : path) > FILE_NAME_LONGEST)
        return error_set(err, ERROR_INVALID, "%s: the name is too long; up to %d bytes can be written", path,
                         FILE_NAME_LONGEST);
    int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666); /* no link leads elsewhere */
    if (fd < 0)
        return error_set(err, ERROR_IO, "%s: %s", part, strerror(errno));
    const uint8_t *p = data;
    size_t left = size;
    int failure = 0;
    while (left > 0 && !failure) {
        ssize_t n = write(fd, p, left < FILE_PIECE ? left : FILE_PIECE);
        if (n > 0) {
            spill_passed(p, (size_t)n);
            p += n;
            left -= (size_t)n;
        } else if (n < 0 && errno != EINTR) {
            failure = errno;
        }
    }
    if (!failure && fsync(fd) != 0)
        failure = errno;
    if (close(fd) != 0 && !failure)
        failure = errno;
    if (!failure && rename(part, path) != 0)
        failure = errno;
    if (failure) {
        unlink(part);
        return error_set(err, ERROR_IO, "%s: %s", path, strerror(failure));
    }
    return OK;
}

enum error_code file_make_folders(const char *path, unsigned mode, struct error *err)
{
    char copy[4096];
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof copy)
        return error_set(err, ERROR_IO, "%s: not a usable folder name", path);
    memcpy(copy, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (copy[i] != '/' && copy[i] != '\0')
            continue;
        char keep = copy[i];
        copy[i] = '\0';
        if (mkdir(copy, mode) != 0 && errno != EEXIST)
            return error_set(err, ERROR_IO, "%s: %s", copy, strerror(errno));
        copy[i] = keep;
    }
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return error_set(err, ERROR_IO, "%s: not a folder", path);
    return OK;
}
