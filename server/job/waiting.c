#include "server/job/waiting.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"

struct waiting_job {
    char id[33], client[72];
};

struct waiting {
    pthread_mutex_t lock;
    struct waiting_job *jobs; /* on their way */
    size_t count, room;
};

enum error_code waiting_create(struct waiting **out, struct error *err)
{
    struct waiting *waiting = *out = mem_calloc(1, sizeof *waiting);
    if (!waiting)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the workers");
    pthread_mutex_init(&waiting->lock, NULL);
    return OK;
}

void waiting_destroy(struct waiting **waiting)
{
    struct waiting *old = *waiting;
    *waiting = NULL;
    if (!old)
        return;
    pthread_mutex_destroy(&old->lock);
    free(old->jobs);
    free(old);
}

void waiting_lock(struct waiting *waiting)
{
    pthread_mutex_lock(&waiting->lock);
}

void waiting_unlock(struct waiting *waiting)
{
    pthread_mutex_unlock(&waiting->lock);
}

void waiting_add(struct waiting *waiting, const char *id, const char *client)
{
    for (size_t i = 0; i < waiting->count; i++)
        if (!strcmp(waiting->jobs[i].id, id))
            return;
    if (waiting->count == waiting->room) {
        const size_t room = waiting->room ? 2 * waiting->room : 16;
        void *grown = realloc(waiting->jobs, room * sizeof *waiting->jobs);
        if (!grown)
            return;
        waiting->jobs = grown;
        waiting->room = room;
    }
    struct waiting_job *job = &waiting->jobs[waiting->count++];
    snprintf(job->id, sizeof job->id, "%s", id);
    snprintf(job->client, sizeof job->client, "%s", client);
}

void waiting_remove(struct waiting *waiting, const char *id)
{
    size_t kept = 0;
    for (size_t i = 0; i < waiting->count; i++)
        if (id && strcmp(waiting->jobs[i].id, id) != 0)
            waiting->jobs[kept++] = waiting->jobs[i];
    waiting->count = kept;
}

void waiting_arrived(struct waiting *waiting, const char *id)
{
    waiting_lock(waiting);
    waiting_remove(waiting, id);
    waiting_unlock(waiting);
}

/* The ids of this client's jobs that are on their way, as a JSON array; free(). NULL when memory is out. */
static char *waiting_ids(const struct waiting *waiting, const char *client, uint64_t *count)
{
    char *text = mem_alloc(waiting->count + 1, 36);
    size_t used = 0;
    *count = 0;
    if (!text)
        return NULL;
    text[used++] = '[';
    for (size_t i = 0; i < waiting->count; i++)
        if (!strcmp(waiting->jobs[i].client, client))
            used += (size_t)sprintf(text + used, "%s\"%s\"", (*count)++ ? "," : "", waiting->jobs[i].id);
    strcpy(text + used, "]");
    return text;
}

enum error_code waiting_count(struct waiting *waiting, struct store *store, struct queue *queue, const char *client,
                              const char *token, uint64_t *out, struct error *err)
{
    uint64_t stored = 0, between = 0;
    char *ids = waiting_ids(waiting, client, &between);
    enum error_code code = ids ? OK : error_set(err, ERROR_NO_MEMORY, "no memory to count jobs");
    if (!code && store) /* those that have arrived there meanwhile are counted here */
        code = store_waiting(store, client, ids, &stored, err);
    free(ids);
    *out = stored + between + queue_depth_of(queue, token);
    return code;
}
