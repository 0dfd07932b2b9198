/* Preloaded into a server: lets calls fail that change what is on the disk, in the files of one folder. Which ones is
 * told by a control file that the test maps, too: struct control. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

struct control {
    atomic_uint calls; /* counted since the test set it to 0 */
    atomic_uint from;  /* the first call that fails; 0: none */
    atomic_uint count; /* how many fail */
    atomic_uint how;   /* errno; 0: the process is killed instead */
    atomic_uint failed;
    atomic_uint hold; /* while it is not 0, fsync does not come back */
    atomic_uint held; /* how often it waited so */
};

static struct control *control;
static const char *folder;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("CHAOS_CONTROL");
    const int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    folder = getenv("CHAOS_FOLDER");
    if (fd < 0 || !folder)
        return;
    control = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (control == MAP_FAILED)
        control = NULL;
    close(fd);
}

static bool fails(void)
{
    const unsigned from = atomic_load(&control->from), call = atomic_fetch_add(&control->calls, 1) + 1;
    if (!from || call < from || call - from >= atomic_load(&control->count))
        return false;
    atomic_fetch_add(&control->failed, 1);
    const int how = (int)atomic_load(&control->how);
    if (!how)
        kill(getpid(), SIGKILL);
    errno = how;
    return true;
}

static bool inside(const char *path)
{
    return !strncmp(path, folder, strlen(folder));
}

static bool fails_fd(int fd)
{
    char link[64], path[4096];
    if (!control)
        return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const int saved = errno;
    const ssize_t n = readlink(link, path, sizeof path - 1);
    errno = saved;
    if (n <= 0)
        return false;
    path[n] = 0;
    return inside(path) && fails();
}

static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

#define OF_FD(name, result, parameters, fd, arguments)                                                                 \
    result name parameters                                                                                             \
    {                                                                                                                  \
        static result(*real) parameters;                                                                               \
        if (!real)                                                                                                     \
            *(void **)&real = next(#name);                                                                             \
        return fails_fd(fd) ? -1 : real arguments;                                                                     \
    }

OF_FD(fdatasync, int, (int fd), fd, (fd))
OF_FD(ftruncate, int, (int fd, off_t size), fd, (fd, size))
OF_FD(ftruncate64, int, (int fd, off64_t size), fd, (fd, size))
OF_FD(write, ssize_t, (int fd, const void *data, size_t size), fd, (fd, data, size))
OF_FD(pwrite, ssize_t, (int fd, const void *data, size_t size, off_t at), fd, (fd, data, size, at))
OF_FD(pwrite64, ssize_t, (int fd, const void *data, size_t size, off64_t at), fd, (fd, data, size, at))
OF_FD(renameat, int, (int from, const char *a, int to, const char *b), from, (from, a, to, b))
/* of linkat the folder that gets the name counts */
OF_FD(linkat, int, (int from, const char *a, int to, const char *b, int flags), to, (from, a, to, b, flags))

int fsync(int fd)
{
    static int (*real)(int);
    if (!real)
        *(void **)&real = next("fsync");
    if (control && atomic_load(&control->hold)) {
        atomic_fetch_add(&control->held, 1);
        while (atomic_load(&control->hold))
            usleep(1000);
    }
    return fails_fd(fd) ? -1 : real(fd);
}

int rename(const char *a, const char *b)
{
    static int (*real)(const char *, const char *);
    if (!real)
        *(void **)&real = next("rename");
    return control && inside(a) && fails() ? -1 : real(a, b);
}
