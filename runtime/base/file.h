/* A whole file, mapped read-only. Thread-safety: a mapped file may be read from any thread. */
#ifndef RUNTIME_BASE_FILE_H
#define RUNTIME_BASE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

struct file {
    const uint8_t *data; /* NULL for an empty file */
    size_t size;
};

/* Maps path. ERROR_NOT_FOUND when there is none, ERROR_IO for the rest (a directory, no permission); the text names
 * the path and the reason. */
enum error_code file_map(struct file *out, const char *path, struct error *err) MUST_CHECK;
void file_unmap(struct file *file);

/* All of it is going to be read soon: lets the system begin to, where it is not in memory. */
void file_expect(const struct file *file);

/* Writes a file whole: to a temporary beside it, fsync, rename; at any failure the old file stays as it was. */
enum error_code file_write(const char *path, const void *data, size_t size, struct error *err) MUST_CHECK;

/* Creates a folder and those above it (mode 0777 less the umask). OK when it is there. */
enum error_code file_make_folders(const char *path, struct error *err) MUST_CHECK;

#endif
