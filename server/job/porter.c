#include "server/job/porter.h"

#include <pthread.h>
#include <stdlib.h>

#include "runtime/base/mem.h"

#define PORTER_THREADS 6

struct porter {
    const struct depot *depot;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct porter_work *first, **last;
    pthread_t threads[PORTER_THREADS];
    int count;
    bool stop;
};

static void *porter_main(void *argument)
{
    struct porter *porter = argument;
    pthread_mutex_lock(&porter->lock);
    for (;;) {
        while (!porter->first && !porter->stop)
            pthread_cond_wait(&porter->changed, &porter->lock);
        struct porter_work *work = porter->first;
        if (!work)
            break;
        porter->first = work->next;
        porter->last = work->next ? porter->last : &porter->first;
        const bool stop = porter->stop;
        pthread_mutex_unlock(&porter->lock);
        work->carry(work->context, porter->depot, stop); /* it may be gone now */
        pthread_mutex_lock(&porter->lock);
    }
    pthread_mutex_unlock(&porter->lock);
    return NULL;
}

enum error_code porter_create(struct porter **out, const struct depot *depot, struct error *err)
{
    struct porter *porter = *out = mem_calloc(1, sizeof *porter);
    if (!porter)
        return error_set(err, ERROR_NO_MEMORY, "no memory to carry pictures");
    porter->depot = depot;
    porter->last = &porter->first;
    pthread_mutex_init(&porter->lock, NULL);
    pthread_cond_init(&porter->changed, NULL);
    while (porter->count < PORTER_THREADS &&
           !pthread_create(&porter->threads[porter->count], NULL, porter_main, porter))
        porter->count++;
    if (porter->count)
        return OK;
    porter_destroy(out);
    return error_set(err, ERROR_IO, "the threads that carry pictures could not be started");
}

void porter_finish(struct porter *porter)
{
    pthread_mutex_lock(&porter->lock);
    porter->stop = true;
    pthread_cond_broadcast(&porter->changed);
    pthread_mutex_unlock(&porter->lock);
    while (porter->count > 0)
        pthread_join(porter->threads[--porter->count], NULL);
}

void porter_destroy(struct porter **porter)
{
    struct porter *old = *porter;
    *porter = NULL;
    if (!old)
        return;
    porter_finish(old);
    pthread_cond_destroy(&old->changed);
    pthread_mutex_destroy(&old->lock);
    free(old);
}

void porter_ask(struct porter *porter, struct porter_work *work)
{
    work->next = NULL;
    pthread_mutex_lock(&porter->lock);
    const bool stop = porter->stop;
    if (!stop) {
        *porter->last = work;
        porter->last = &work->next;
        pthread_cond_signal(&porter->changed);
    }
    pthread_mutex_unlock(&porter->lock);
    if (stop)
        work->carry(work->context, porter->depot, true);
}
