#include "server/job/keeper_input.h"

#include <errno.h>
#include <nettle/sha2.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "server/job/waiting.h"

#define INPUT_THREADS 4

/* The options, batch, priority and the picture as SHA-256: what makes two requests the same. */
static enum error_code keeper_input_hash(const struct keeper_ticket *ticket, uint8_t hash[32], struct error *err)
{
    struct sha256_ctx context;
    sha256_init(&context);
    sha256_update(&context, strlen(ticket->job.options) + 1, (const uint8_t *)ticket->job.options);
    sha256_update(&context, strlen(ticket->job.batch) + 1, (const uint8_t *)ticket->job.batch);
    sha256_update(&context, 1, (const uint8_t *)(ticket->job.low ? "l" : "n"));
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

/* Counts a ticket among its client's jobs, if that may have one more. */
static void keeper_input_count(struct keeper_ticket *ticket, struct store *store, struct worker_pool *pool)
{
    struct waiting *waiting = worker_pool_waiting(pool);
    uint64_t count;
    waiting_lock(waiting);
    if (!waiting_count(waiting, store, worker_pool_queue(pool), ticket->job.client, ticket->job.token, &count,
                       &ticket->err)) {
        ticket->over = count >= ticket->most && !ticket->unsure; /* that one may be among them */
        if (ticket->over)
            error_set(&ticket->err, ERROR_BUSY, "%llu jobs of this client wait, and no more may",
                      (unsigned long long)count);
        else
            waiting_add(waiting, ticket->job.id, ticket->job.client);
    }
    waiting_unlock(waiting);
}

void keeper_input_insert(struct keeper_ticket *ticket, struct store *store, struct worker_pool *pool, const char *owner)
{
    char existing[33];
    if (!ticket->err.code && ticket->most)
        keeper_input_count(ticket, store, pool);
    if (ticket->err.code)
        return;
    (void)!store_insert(store, &ticket->job, *ticket->key ? ticket->key : NULL, ticket->hash, &ticket->inserted,
                        existing, &ticket->err);
    if (ticket->most && (ticket->err.code || ticket->inserted != STORE_NEW))
        waiting_arrived(worker_pool_waiting(pool), ticket->job.id);
    if (!ticket->err.code && ticket->inserted == STORE_NEW && ticket->hook)
        (void)!hook_rows_add(store, ticket->job.id, ticket->hook, owner, store_clock(store) + KEEPER_HOOK_MS,
                             &ticket->err);
    if (!ticket->err.code && ticket->inserted != STORE_NEW) {
        memcpy(ticket->unused, ticket->job.id, sizeof ticket->unused);
        memcpy(ticket->job.id, existing, sizeof existing);
    }
}

struct input_work {
    struct store *store;
    const struct depot *depot;
    uint64_t waiting, most; /* waiting: with those of this group that are being placed; under the lock */
    pthread_mutex_t lock;
    struct keeper_ticket *next; /* the first that nobody has taken yet */
    bool placed;                /* some picture has a name now */
};

/* Whether one more may wait; then it is counted. */
static enum error_code keeper_input_enter(struct input_work *work, struct error *err)
{
    pthread_mutex_lock(&work->lock);
    const uint64_t waiting = work->waiting;
    const bool room = waiting < work->most;
    work->waiting += room;
    pthread_mutex_unlock(&work->lock);
    return room ? OK
                : error_set(err, ERROR_BUSY, "%llu asynchronous jobs wait, and no more may (async_queue)",
                            (unsigned long long)waiting);
}

static void keeper_input_leave(struct input_work *work)
{
    pthread_mutex_lock(&work->lock);
    work->waiting--;
    pthread_mutex_unlock(&work->lock);
}

static enum error_code keeper_input_place(struct input_work *work, struct keeper_ticket *ticket)
{
    struct error *err = &ticket->err;
    bool known = false; /* then it will be that job, however many wait */
    enum error_code code = OK;
    if (ticket->placed) /* it comes again */
        return OK;
    if (!store_reachable(work->store)) /* each picture would wait for a connection of its own */
        return error_set(err, ERROR_IO, "the database of jobs cannot be reached; try again later");
    if (*ticket->key && !(code = store_has_key(work->store, ticket->job.client, ticket->key, &known, err)))
        code = keeper_input_hash(ticket, ticket->hash, err);
    const bool entered = !code && !known && !(code = keeper_input_enter(work, err));
    ticket->job.input_bytes = ticket->body.size;
    if (!code)
        code = depot_put_input(work->depot, &ticket->body, ticket->job.id, err);
    if (!code && !known && !work->depot->payload) {
        code = spool_promise(work->depot->spool, ticket->job.output_bytes, err);
        ticket->promised = !code;
    }
    if (code && entered)
        keeper_input_leave(work);
    ticket->placed = !code;
    return code;
}

/* Takes one ticket after the other. */
static void *keeper_input_work(void *argument)
{
    struct input_work *work = argument;
    pthread_mutex_lock(&work->lock);
    for (struct keeper_ticket *ticket; (ticket = work->next);) {
        work->next = ticket->next;
        pthread_mutex_unlock(&work->lock);
        const bool placed = ticket->wish == KEEPER_ACCEPT && !keeper_input_place(work, ticket);
        pthread_mutex_lock(&work->lock);
        work->placed |= placed;
    }
    pthread_mutex_unlock(&work->lock);
    return NULL;
}

void keeper_input_keep(struct keeper_ticket *tickets, struct store *store, const struct depot *depot, uint64_t waiting,
                       uint64_t most)
{
    struct input_work work = {.store = store, .depot = depot, .waiting = waiting, .most = most, .next = tickets};
    pthread_t threads[INPUT_THREADS - 1];
    struct error err = ERROR_INIT;
    int count = 0;
    pthread_mutex_init(&work.lock, NULL);
    for (const struct keeper_ticket *at = tickets; at && at->next && count < INPUT_THREADS - 1; at = at->next)
        if (!pthread_create(&threads[count], NULL, keeper_input_work, &work)) /* else this one does it all */
            count++;
    keeper_input_work(&work);
    while (count-- > 0)
        pthread_join(threads[count], NULL);
    pthread_mutex_destroy(&work.lock);
    if (work.placed && !depot->payload && spool_sync(depot->spool, &err))
        for (struct keeper_ticket *ticket = tickets; ticket; ticket = ticket->next)
            if (ticket->wish == KEEPER_ACCEPT && !ticket->err.code)
                ticket->err = err;
}
