#include "runtime/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum error_code file_map(struct file *out, const char *path, struct error *err)
{
    *out = (struct file){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not be waited for, only refused */
    if (fd < 0)
        return error_set(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_IO, "%s: %s", path, strerror(errno));
    enum error_code code = OK;
    struct stat st;
    if (fstat(fd, &st) != 0) {
        code = error_set(err, ERROR_IO, "%s: %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        code = error_set(err, ERROR_IO, "%s: not a regular file", path);
    } else if (st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED)
            code = error_set(err, ERROR_IO, "%s: %s", path, strerror(errno));
        else
            *out = (struct file){.data = p, .size = (size_t)st.st_size};
    }
    close(fd);
    return code;
}

void file_expect(const struct file *file)
{
    if (file->data)
        madvise((void *)(uintptr_t)file->data, file->size, MADV_WILLNEED); /* no more than a hint */
}

void file_unmap(struct file *file)
{
    if (file->data)
        munmap((void *)(uintptr_t)file->data, file->size);
    *file = (struct file){0};
}

enum error_code file_write(const char *path, const void *data, size_t size, struct error *err)
{
    char part[4096];
    if (snprintf(part, sizeof part, "%s.%ld.part", path, (long)getpid()) >= (int)sizeof part)
        return error_set(err, ERROR_IO, "%s: the name is too long", path);
    int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return error_set(err, ERROR_IO, "%s: %s", part, strerror(errno));
    const uint8_t *p = data;
    size_t left = size;
    int failure = 0;
    while (left > 0 && !failure) {
        ssize_t n = write(fd, p, left);
        if (n > 0) {
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

enum error_code file_make_folders(const char *path, struct error *err)
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
        if (mkdir(copy, 0777) != 0 && errno != EEXIST)
            return error_set(err, ERROR_IO, "%s: %s", copy, strerror(errno));
        copy[i] = keep;
    }
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return error_set(err, ERROR_IO, "%s: not a folder", path);
    return OK;
}
