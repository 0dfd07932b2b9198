/* A picture's file as it came: in memory, or, when it is large and there is a spool, in a file there that has no name.
 * Such a file is mapped only while somebody reads it, so that what waits takes no memory.
 * Thread-safety: a body belongs to one thread at a time. */
#ifndef SERVER_JOB_BODY_H
#define SERVER_JOB_BODY_H

#include "server/pipeline/pipeline.h"
#include "server/store/spool.h"

#define BODY_MEMORY ((size_t)256 << 10) /* bytes that stay in memory */

/* All zeros but the spool: empty. It may be moved by copying it and zeroing the original. */
struct body {
    struct spool *spool; /* NULL: all of it stays in memory */
    size_t size;
    uint8_t *data; /* from malloc; NULL: it is in one of the next two, or empty */
    size_t room;   /* of data */
    struct spool_file *file;
    int kept; /* a descriptor plus 1; 0: none */
};

/* Appends to it; the room grows with what really arrives. ERROR_NO_MEMORY, ERROR_IO, ERROR_FULL: as it was before. */
enum error_code body_append(struct body *body, const void *data, size_t size, struct error *err) MUST_CHECK;

/* Appends all of another body to it. Errors as body_append, and ERROR_IO. */
enum error_code body_copy(struct body *to, const struct body *from, struct error *err) MUST_CHECK;

/* Runs pipeline_check or pipeline_begin on the body as the restoration's input, on mask_bytes behind it as its mask and
 * on its last other_bytes as the other result; all are NULL again afterwards. Their
 * errors; ERROR_IO: the file could not be read. */
typedef enum error_code body_reader(struct restoration *r, const struct model_store *store, struct error *err);
enum error_code body_read(struct body *body, struct restoration *r, body_reader *reader,
                          const struct model_store *store, struct error *err) MUST_CHECK;

/* Its bytes lie in a file of the spool from now on. */
enum error_code body_to_file(struct body *body, struct spool *spool, struct error *err) MUST_CHECK;

/* Puts it into the spool as this job's input, as spool_place does; it becomes empty. On failure it stays. */
enum error_code body_keep(struct body *body, struct spool *spool, const char *id, struct error *err) MUST_CHECK;
/* This job's input from there. Errors as spool_read. */
enum error_code body_kept(struct body *out, struct spool *spool, const char *id, struct error *err) MUST_CHECK;

/* Frees what it has; it is empty then. */
void body_clear(struct body *body);

#endif
