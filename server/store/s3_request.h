/* One signed request to an S3 store: signed, sent, tried again, its errors put into words. For s3.c alone.
 * Thread-safety: s3_request_send may be called from any thread. */
#ifndef SERVER_STORE_S3_REQUEST_H
#define SERVER_STORE_S3_REQUEST_H

#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "server/store/s3.h"

#define S3_IDLE 8

struct s3 {
    char url[512]; /* up to the key: "https://host/bucket/prefix/" */
    char bucket[64], signer[128], ca_file[512];
    char access[256], secret[256], session[4096];
    bool encrypted; /* https: what is sent need not be hashed */
    int stall_seconds, tries;
    atomic_bool hurry; /* s3_hurry */
    pthread_mutex_t lock;
    CURL *idle[S3_IDLE]; /* with their connections; under the lock */
    int idle_count;
};

struct s3_request {
    const char *method; /* PUT, GET, HEAD, POST, DELETE */
    const char *key;
    const char *query;              /* as signature 4 wants it: sorted, escaped, each name with its '='; NULL: none */
    const struct s3_source *source; /* the body: `size` bytes from `offset` on; NULL: none */
    uint64_t offset, size;
    s3_take_fn *take; /* of a GET; NULL: the answer's beginning is kept in `body` */
    void *context;
    uint64_t from, length; /* of a GET: the range; length 0: to the end */

    /* the answer */
    long status;
    uint64_t whole; /* the object's size */
    char etag[128];
    char body[2048]; /* of an error, or of an answer in XML */
    size_t body_size;
};

/* Sends it until it is answered by 2xx, or fails for good: ERROR_NOT_FOUND for 404, ERROR_CANCELLED when `take` said
 * stop, else ERROR_IO. */
enum error_code s3_request_send(struct s3 *s3, struct s3_request *request, struct error *err) MUST_CHECK;

/* The text of an element of a small XML answer; false: it has none that fits. */
bool s3_request_element(const struct s3_request *request, const char *name, char *out, size_t size);

#endif
