/* Where the pictures of jobs lie that several servers share: named blobs, each written once as a whole, read and
 * removed. Rows of the database (payload_rows), S3 (payload_s3) and a shared folder (payload_folder) fill the same
 * table of functions. A server with a store of its own needs none: its pictures stay in its spool.
 *
 * Names: "in/ID" is a job's picture, "out/ID/ATTEMPTS" the result of that attempt, so that a worker that comes late
 * overwrites nobody's. A payload is put before the row that tells of it is committed, and removed after the row is
 * gone; what a crash leaves between the two is swept.
 *
 * Nothing here holds a whole payload in memory. Thread-safety: every function may be called from any thread, except
 * payload_open and payload_close. */
#ifndef SERVER_STORE_PAYLOAD_H
#define SERVER_STORE_PAYLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

#define PAYLOAD_NAME_MAX 96

struct payload; /* begins with a pointer to its functions */

/* Takes the next bytes of a payload that is read. An error ends the reading, which returns it. */
typedef enum error_code payload_take_fn(void *context, const void *data, size_t size, struct error *err);

/* A payload that may be swept: a job's picture (attempts 0), or the result of that attempt. */
#define PAYLOAD_ASK_MOST 500 /* at a time */
struct payload_asked {
    char id[33];
    int attempts;
    bool wanted; /* a job has it; what cannot be known is */
};
typedef void payload_wanted_fn(void *context, struct payload_asked *list, size_t count);

#define PAYLOAD_RESTS 5

struct payload_engine {
    const char *name; /* for logs and metrics: "rows", "s3", "folder" */
    /* Puts `size` bytes of the file (pread from its start, so its offset does not matter) under this name, in place of
     * what was there; they last when it returns OK. Nobody sees half of them. */
    enum error_code (*put)(struct payload *payload, const char *name, int fd, uint64_t size, struct error *err);
    /* Reads it in pieces of 1 MiB at most. ERROR_NOT_FOUND: there is none; ERROR_CORRUPT: some of it is missing. */
    enum error_code (*get)(struct payload *payload, const char *name, payload_take_fn *take, void *context,
                           struct error *err);
    /* Removes it; OK where there is none. */
    enum error_code (*remove)(struct payload *payload, const char *name, struct error *err);
    /* Removes payloads older than `seconds` that no job has any more; an engine that sees the jobs itself does not ask
     * `wanted`. One thread at a time. most: about so many names are looked at, or payloads removed; *more: there are
     * others, and the next call goes on with them. NULL: a rule of the store does that. */
    enum error_code (*sweep)(struct payload *payload, int64_t seconds, int most, payload_wanted_fn *wanted,
                             void *context, bool *more, struct error *err);
    /* Called once a second: connections that were kept for the next call and have not been used for PAYLOAD_RESTS of
     * these are closed, so that other servers may have them. NULL: none are kept. From any thread. */
    void (*rest)(struct payload *payload);
    /* The server stops: what hangs from now on is given up sooner. NULL: nothing hangs for long. From any thread. */
    void (*hurry)(struct payload *payload);
    void (*close)(struct payload *payload);
};

struct payload {
    const struct payload_engine *engine;
};

struct payload_settings {
    const char *where;         /* the setting `payload`: auto, spool, rows, s3://BUCKET/PREFIX…, or a folder's path */
    const char *store;         /* the setting `store` */
    const char *password_file; /* of the database; "": none */
    const char *cache;         /* a folder for what is on its way; may be NULL */
    bool brief;                /* somebody waits: S3 is tried twice, for five seconds each where it does not answer */
};

/* auto: rows, where the store is PostgreSQL; else spool. *out is NULL for spool: the pictures stay in this server's
 * spool. ERROR_INVALID: the setting is wrong, or does not go with the store; ERROR_UNSUPPORTED: this program was built
 * without the library. No connection is made before the first use. */
enum error_code payload_open(struct payload **out, const struct payload_settings *settings,
                             struct error *err) MUST_CHECK;
void payload_close(struct payload **payload); /* NULL-safe */

/* The engines' openings, which payload_open chooses from. */
enum error_code payload_rows_open(struct payload **out, const struct payload_settings *settings,
                                  struct error *err) MUST_CHECK;
enum error_code payload_s3_open(struct payload **out, const struct payload_settings *settings,
                                struct error *err) MUST_CHECK;
enum error_code payload_folder_open(struct payload **out, const struct payload_settings *settings,
                                    struct error *err) MUST_CHECK;

/* "in/ID" and "out/ID/ATTEMPTS". */
void payload_input_name(char out[PAYLOAD_NAME_MAX], const char *id);
void payload_output_name(char out[PAYLOAD_NAME_MAX], const char *id, int attempts);

#endif
