/* The pictures of jobs that last, as files of one folder, and bodies and results that are too large for memory. Names
 * are made by us from a job's id, never from what a client sends. A file gets its name only when all of it is on the
 * disk, and the folder is synchronised before anyone is told. One server at a time: the folder holds a lock.
 * Thread-safety: every function may be called from any thread, except spool_open and spool_close; a spool_file belongs
 * to one thread at a time. */
#ifndef SERVER_STORE_SPOOL_H
#define SERVER_STORE_SPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

struct spool;
struct spool_file;

/* RECORD: whose attempt the output is that could not be delivered to the store that servers share. */
enum spool_kind { SPOOL_INPUT, SPOOL_OUTPUT, SPOOL_RECORD, SPOOL_KINDS };

/* Makes the folder if it is not there (0700), locks it, and removes what was being written when the last server ended.
 * most: bytes of all files together. Ignores SIGXFSZ, so that a limit on the size of files is met as an error.
 * ERROR_BUSY: another server uses it; ERROR_IO. */
enum error_code spool_open(struct spool **out, const char *folder, uint64_t most, struct error *err) MUST_CHECK;
void spool_close(struct spool **spool);

/* A new file without a name, which is gone when it is discarded or the process ends (where the file system has none
 * such, it has a name that spool_open removes). ERROR_FULL, here and below: the disk or the spool is full. */
enum error_code spool_create(struct spool *spool, struct spool_file **out, struct error *err) MUST_CHECK;
/* Appends all of it, or nothing. */
enum error_code spool_write(struct spool_file *file, const void *data, size_t size, struct error *err) MUST_CHECK;
uint64_t spool_size(const struct spool_file *file);
/* Its descriptor, which stays the file's. */
int spool_descriptor(const struct spool_file *file);
void spool_discard(struct spool_file **file);

/* Gives the file its name, when it is on the disk, and closes it; the folder is on the disk, too. A file of that name
 * is replaced at once, never seen half. On failure the name is as it was, or gone, and the file is still the caller's,
 * to be discarded. Any id but 32 digits 0-9a-f is refused as a bug of ours, here and below. */
enum error_code spool_keep(struct spool *spool, struct spool_file **file, const char *id, enum spool_kind kind,
                           struct error *err) MUST_CHECK;
/* The same for one of several: their names last from spool_sync on, which is called once for all. If that fails they
 * are to be removed. */
enum error_code spool_place(struct spool *spool, struct spool_file **file, const char *id, enum spool_kind kind,
                            struct error *err) MUST_CHECK;
enum error_code spool_sync(struct spool *spool, struct error *err) MUST_CHECK;
/* The same, but nothing waits for the disk: for what can be made again where the machine loses its power. spool_save:
 * it is to outlast that now, which waits for the file and the folder. ERROR_NOT_FOUND: it is not there. */
enum error_code spool_lay(struct spool *spool, struct spool_file **file, const char *id, enum spool_kind kind,
                          struct error *err) MUST_CHECK;
enum error_code spool_save(struct spool *spool, const char *id, enum spool_kind kind, struct error *err) MUST_CHECK;

/* A descriptor to read from, and the size. ERROR_NOT_FOUND: there is no such file. */
enum error_code spool_read(struct spool *spool, const char *id, enum spool_kind kind, int *fd, uint64_t *size,
                           struct error *err) MUST_CHECK;
bool spool_has(struct spool *spool, const char *id, enum spool_kind kind);
/* Removes it, if it is there. */
void spool_remove(struct spool *spool, const char *id, enum spool_kind kind);

/* Each file with a name; the function may remove it. */
typedef void spool_file_fn(void *context, const char *id, enum spool_kind kind);
void spool_each(struct spool *spool, spool_file_fn *each, void *context);

/* Promises room to a file that will be written later, if there is so much in the spool and on its disk beside what is
 * promised already; ERROR_FULL. Files do not keep to it, so that a promise may be broken by bodies and by results that
 * are larger than was foretold; then a result waits. */
enum error_code spool_promise(struct spool *spool, uint64_t bytes, struct error *err) MUST_CHECK;
/* The same, whether there is room or not. */
void spool_promise_anyway(struct spool *spool, uint64_t bytes);
void spool_release(struct spool *spool, uint64_t bytes);
uint64_t spool_promised(struct spool *spool);

/* Bytes in use, files without a name included, and the bound. */
uint64_t spool_used(struct spool *spool);
uint64_t spool_most(const struct spool *spool);

#endif
