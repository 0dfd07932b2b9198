#include "server/job/fetcher.h"

#include <pthread.h>
#include <stdlib.h>

#include "runtime/base/mem.h"
#include "server/job/keeper.h"

#define FETCHER_THREADS 3

struct fetcher {
    const struct depot *depot;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct keeper_ticket *first, **last;
    pthread_t threads[FETCHER_THREADS];
    int count;
    bool stop;
};

static void *fetcher_main(void *argument)
{
    struct fetcher *fetcher = argument;
    pthread_mutex_lock(&fetcher->lock);
    for (;;) {
        while (!fetcher->first && !fetcher->stop)
            pthread_cond_wait(&fetcher->changed, &fetcher->lock);
        struct keeper_ticket *ticket = fetcher->first;
        if (!ticket)
            break;
        fetcher->first = ticket->next;
        fetcher->last = ticket->next ? fetcher->last : &fetcher->first;
        const bool stop = fetcher->stop;
        pthread_mutex_unlock(&fetcher->lock);
        if (stop)
            error_set(&ticket->err, ERROR_BUSY, "the server is shutting down");
        else
            (void)!depot_get_output(fetcher->depot, ticket->job.id, ticket->job.attempts, &ticket->fd, &ticket->size,
                                    &ticket->err);
        ticket->done(ticket->context); /* it may be gone now */
        pthread_mutex_lock(&fetcher->lock);
    }
    pthread_mutex_unlock(&fetcher->lock);
    return NULL;
}

enum error_code fetcher_create(struct fetcher **out, const struct depot *depot, struct error *err)
{
    struct fetcher *fetcher = *out = mem_calloc(1, sizeof *fetcher);
    if (!fetcher)
        return error_set(err, ERROR_NO_MEMORY, "no memory to fetch results");
    fetcher->depot = depot;
    fetcher->last = &fetcher->first;
    pthread_mutex_init(&fetcher->lock, NULL);
    pthread_cond_init(&fetcher->changed, NULL);
    while (fetcher->count < FETCHER_THREADS &&
           !pthread_create(&fetcher->threads[fetcher->count], NULL, fetcher_main, fetcher))
        fetcher->count++;
    if (fetcher->count)
        return OK;
    fetcher_destroy(out);
    return error_set(err, ERROR_IO, "the threads that fetch results could not be started");
}

void fetcher_destroy(struct fetcher **fetcher)
{
    struct fetcher *old = *fetcher;
    *fetcher = NULL;
    if (!old)
        return;
    pthread_mutex_lock(&old->lock);
    old->stop = true;
    pthread_cond_broadcast(&old->changed);
    pthread_mutex_unlock(&old->lock);
    while (old->count > 0)
        pthread_join(old->threads[--old->count], NULL);
    pthread_cond_destroy(&old->changed);
    pthread_mutex_destroy(&old->lock);
    free(old);
}

void fetcher_ask(struct fetcher *fetcher, struct keeper_ticket *ticket)
{
    ticket->next = NULL;
    pthread_mutex_lock(&fetcher->lock);
    *fetcher->last = ticket;
    fetcher->last = &ticket->next;
    pthread_cond_signal(&fetcher->changed);
    pthread_mutex_unlock(&fetcher->lock);
}
