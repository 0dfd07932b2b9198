#include "server/job/keeper_input.h"

#include <errno.h>
#include <nettle/sha2.h>
#include <string.h>
#include <unistd.h>

/* The options and the picture as SHA-256: what makes two requests the same. */
static enum error_code keeper_input_hash(const struct keeper_ticket *ticket, uint8_t hash[32], struct error *err)
{
    struct sha256_ctx context;
    sha256_init(&context);
    sha256_update(&context, strlen(ticket->job.options) + 1, (const uint8_t *)ticket->job.options);
    if (ticket->body.data) {
        sha256_update(&context, ticket->body.size, ticket->body.data);
    } else {
        uint8_t bytes[65536];
        off_t at = 0;
        ssize_t n;
        while ((n = pread(spool_descriptor(ticket->body.file), bytes, sizeof bytes, at)) > 0 ||
               (n < 0 && errno == EINTR)) {
            sha256_update(&context, n > 0 ? (size_t)n : 0, bytes);
            at += n > 0 ? n : 0;
        }
        if (n < 0)
            return error_set(err, ERROR_IO, "the picture could not be read again: %m");
    }
    sha256_digest(&context, 32, hash);
    return OK;
}

enum error_code keeper_input_keep(struct keeper_ticket *ticket, struct store *store, struct spool *spool,
                                  uint64_t waiting, uint64_t most)
{
    struct error *err = &ticket->err;
    bool known = false; /* then it will be that job, however many wait */
    enum error_code code = OK;
    if (*ticket->key && !(code = store_has_key(store, ticket->job.client, ticket->key, &known, err)))
        code = keeper_input_hash(ticket, ticket->hash, err);
    if (!code && waiting >= most && !known)
        code = error_set(err, ERROR_BUSY, "%llu asynchronous jobs wait, and no more may (async_queue)",
                         (unsigned long long)waiting);
    ticket->job.input_bytes = ticket->body.size;
    return code ? code : body_keep(&ticket->body, spool, ticket->job.id, err);
}
