/* Objects of one bucket of an S3 store (AWS, MinIO, Ceph, Garage …), by libcurl's signature version 4. Nothing is kept
 * whole in memory: bodies are read from a file or a block of the caller's, and answers are handed on as they come.
 *
 * A request that the network or the store lets down (no connection, a stall, 429, 5xx) is tried again a few times, with
 * growing pauses; a download goes on where it was cut. Texts of errors name bucket and key, never a credential.
 *
 * What was read for this: AWS's "Signature Version 4 signing process" and "Amazon S3 API reference" (PutObject,
 * GetObject, DeleteObject, CreateMultipartUpload, UploadPart, CompleteMultipartUpload, AbortMultipartUpload, Error
 * responses). libcurl 7.88 signs a hash that the caller names in x-amz-content-sha256, and sends none by itself.
 *
 * Thread-safety: every function may be called from any thread, except s3_close; calls from several threads go on at the
 * same time, each over a connection of its own. */
#ifndef SERVER_STORE_S3_H
#define SERVER_STORE_S3_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

#define S3_KEY_MAX 256

struct s3_settings {
    const char *endpoint;    /* https://HOST[:PORT] or http://…; "" or NULL: https://s3.REGION.amazonaws.com */
    const char *bucket;      /* 3 to 63 of a-z 0-9 . - */
    const char *prefix;      /* before each key, without a slash at its ends; "" or NULL: none */
    const char *region;      /* NULL or "": us-east-1 */
    bool host_style;         /* https://BUCKET.HOST/KEY instead of https://HOST/BUCKET/KEY */
    const char *credentials; /* a file as AWS has it: aws_access_key_id = …, aws_secret_access_key = …, and perhaps
                                aws_session_token = …; "" or NULL: the variables of these names in capitals */
    const char *ca_file;     /* certificates to trust instead of the system's; "" or NULL: the system's */
    int stall_seconds;       /* a transfer without a byte for so long is broken off; 0: 30 */
    int tries;               /* for each request; 0: 6, over about 6 seconds */
};

struct s3;

/* Checks the settings and reads the credentials; nothing is sent. ERROR_INVALID names the setting, ERROR_NOT_FOUND the
 * credentials that are missing. */
enum error_code s3_open(struct s3 **out, const struct s3_settings *settings, struct error *err) MUST_CHECK;
void s3_close(struct s3 **s3);

/* From now on nothing is tried again, and a transfer without a byte for five seconds is broken off, also one at work.
 */
void s3_hurry(struct s3 *s3);

/* What is sent: `size` bytes of `data`, or of the file at `fd` from its start (by pread) where data is NULL. */
struct s3_source {
    const void *data;
    int fd;
    uint64_t size;
};

/* Stores an object, which is there when this returns; one of that key is replaced at once. Above 64 MiB it goes in
 * parts, and if one fails what came is removed again. key: up to S3_KEY_MAX of a-z A-Z 0-9 / . _ -. ERROR_IO. */
enum error_code s3_put(struct s3 *s3, const char *key, const struct s3_source *source, struct error *err) MUST_CHECK;

/* Takes the next bytes of an object; false: stop. */
typedef bool s3_take_fn(void *context, const void *data, size_t size);

/* Hands an object's bytes to `take`, in order, from `offset` on, `size` of them (0: to its end). *whole (may be NULL)
 * gets the object's size before the first byte is taken. ERROR_NOT_FOUND: there is no such object. ERROR_CANCELLED:
 * `take` said stop. ERROR_IO: also when fewer bytes came than were announced. */
enum error_code s3_get(struct s3 *s3, const char *key, uint64_t offset, uint64_t size, uint64_t *whole,
                       s3_take_fn *take, void *context, struct error *err) MUST_CHECK;

/* The object's size. ERROR_NOT_FOUND. */
enum error_code s3_head(struct s3 *s3, const char *key, uint64_t *size, struct error *err) MUST_CHECK;

/* Removes an object; OK, too, when there is none. */
enum error_code s3_delete(struct s3 *s3, const char *key, struct error *err) MUST_CHECK;

/* A part of a multipart upload, and what is sent in one piece at most. S3 wants at least 5 MiB, and 10,000 at most. */
#define S3_PART (UINT64_C(64) << 20)

#endif
