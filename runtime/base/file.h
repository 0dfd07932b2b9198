/* A whole file, mapped read-only. The first one installs a handler for SIGBUS; threads that read must not block that
 * signal.
 * Thread-safety: a mapped file may be read from any thread. */
#ifndef RUNTIME_BASE_FILE_H
#define RUNTIME_BASE_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

/* Identifies a file, to tell whether it is still the same one. */
struct file_id {
    uint64_t device, inode, size;
    int64_t changed_ns; /* mtime */
};

struct file {
    const uint8_t *data; /* NULL for an empty file */
    size_t size;
    struct file_guard *guard;
};

/* Maps path. ERROR_NOT_FOUND when there is none, ERROR_IO for the rest (a directory, no permission); the text names the
 * path and the reason. Others may write to the file or truncate it while it is mapped. Reads then give arbitrary bytes,
 * or zeros where the system would send SIGBUS (which is handled here), and file_changed says so. */
enum error_code file_map(struct file *out, const char *path, struct error *err) MUST_CHECK;
/* The same for an open file, which stays open. name: for the text. */
enum error_code file_map_descriptor(struct file *out, int fd, const char *name, struct error *err) MUST_CHECK;
void file_unmap(struct file *file);

/* Whether the file was written to or truncated since it was mapped, or could not be read. Once true it stays true. Call
 * it after reading, before relying on what was read. */
bool file_changed(const struct file *file);

/* The identity of the file when it was mapped; zeros without one. And of what lies at a path now; false: nothing
 * does. */
struct file_id file_id(const struct file *file);
bool file_identify(struct file_id *out, const char *path);
bool file_same(const struct file_id *a, const struct file_id *b);

/* All of it will be read soon: tells the system to start loading what is not in memory. */
void file_expect(const struct file *file);

#define FILE_NAME_LONGEST (NAME_MAX - 20) /* bytes: the temporary name of file_write is longer */

/* Writes a whole file: to a temporary one beside it, then fsync and rename. After a failure the old file is
 * unchanged. ERROR_INVALID: its name has more than FILE_NAME_LONGEST bytes. */
enum error_code file_write(const char *path, const void *data, size_t size, struct error *err) MUST_CHECK;
/* Whether a file of that name is what file_write left half written in a process that was killed: NAME.PID.part. For
 * when this process writes none there: one with its number is an earlier process's. */
bool file_is_left(const char *name);

/* Creates a folder and those above it (of this mode less the umask). OK when it exists already. */
enum error_code file_make_folders(const char *path, unsigned mode, struct error *err) MUST_CHECK;

#endif
