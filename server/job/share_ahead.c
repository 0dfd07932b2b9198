#include "server/job/share_ahead.h"

#include <pthread.h>
#include <stdlib.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "server/job/job.h"

#define AHEAD_KEPT_MS 300 /* a tile that is not taken so long after a delivery is given back */

/* What becomes of the tile that comes. */
enum ahead_next { NEXT_NONE, NEXT_WANTED, NEXT_HERE };

struct share_ahead {
    struct share_rows *rows; /* only the thread uses it */
    const char *owner;
    _Atomic uint64_t *given;
    pthread_t thread;
    bool running;

    pthread_mutex_t lock; /* of the following */
    pthread_cond_t changed;
    bool stop, broken;
    enum ahead_next next;
    struct share_tile tile; /* NEXT_HERE; NEXT_WANTED: its task */
    double until_ms;        /* it is given back then; 0: when something else says so */
    struct share_tile done; /* the result that goes; output NULL: none does */
    void *output;
    size_t size;
};

/* Each of these is called with the lock, and lets go of it meanwhile. */

static void ahead_send(struct share_ahead *ahead)
{
    struct error err = ERROR_INIT;
    bool held = false;
    pthread_mutex_unlock(&ahead->lock);
    const enum error_code code =
        share_rows_deliver(ahead->rows, &ahead->done, ahead->owner, ahead->output, ahead->size, &held, &err);
    if (code)
        log_event(LOG_DEBUG, "share", "text=\"%s\"", err.text);
    if (held)
        atomic_fetch_add(ahead->given, 1);
    pthread_mutex_lock(&ahead->lock);
    ahead->broken |= code != OK;
    free(ahead->output);
    ahead->output = NULL;
}

static void ahead_get(struct share_ahead *ahead)
{
    struct error err = ERROR_INIT;
    struct share_tile tile;
    bool found = false;
    const int64_t task = ahead->tile.task;
    pthread_mutex_unlock(&ahead->lock);
    const enum error_code code = share_rows_claim(ahead->rows, task, ahead->owner, true, &tile, &found, &err);
    if (code) {
        log_event(LOG_DEBUG, "share", "text=\"%s\"", err.text);
        free(tile.input);
    }
    pthread_mutex_lock(&ahead->lock);
    ahead->broken |= code != OK;
    ahead->next = !code && found ? NEXT_HERE : NEXT_NONE;
    ahead->tile = tile;
}

static void ahead_give_back(struct share_ahead *ahead)
{
    struct error err = ERROR_INIT;
    const struct share_tile tile = ahead->tile;
    ahead->next = NEXT_NONE;
    pthread_mutex_unlock(&ahead->lock);
    if (share_rows_return(ahead->rows, &tile, ahead->owner, false, &err)) /* its owner computes it */
        log_event(LOG_DEBUG, "share", "text=\"%s\"", err.text);
    free(tile.input);
    pthread_mutex_lock(&ahead->lock);
}

static void *ahead_run(void *argument)
{
    struct share_ahead *ahead = argument;
    pthread_mutex_lock(&ahead->lock);
    for (;;) {
        const double left = ahead->until_ms ? ahead->until_ms - log_clock_ms() : 1000;
        if (ahead->output)
            ahead_send(ahead);
        else if (ahead->next == NEXT_WANTED)
            ahead_get(ahead);
        else if (ahead->next == NEXT_HERE && (ahead->stop || left <= 0))
            ahead_give_back(ahead);
        else if (ahead->stop)
            break;
        else {
            const struct timespec until = job_deadline(left > 1 ? (int)left : 1);
            if (ahead->next == NEXT_HERE && ahead->until_ms)
                pthread_cond_timedwait(&ahead->changed, &ahead->lock, &until);
            else
                pthread_cond_wait(&ahead->changed, &ahead->lock);
            continue;
        }
        pthread_cond_broadcast(&ahead->changed);
    }
    pthread_mutex_unlock(&ahead->lock);
    return NULL;
}

enum error_code share_ahead_create(struct share_ahead **out, const char *where, const char *password_file,
                                   const char *owner, _Atomic uint64_t *given, struct error *err)
{
    struct share_ahead *ahead = *out = mem_calloc(1, sizeof *ahead);
    if (!ahead)
        return error_set(err, ERROR_NO_MEMORY, "no memory for shared tiles");
    ahead->owner = owner;
    ahead->given = given;
    pthread_mutex_init(&ahead->lock, NULL);
    job_condition(&ahead->changed);
    enum error_code code = share_rows_open(&ahead->rows, where, password_file, err);
    if (!code && pthread_create(&ahead->thread, NULL, ahead_run, ahead))
        code = error_set(err, ERROR_IO, "the thread that carries shared tiles could not be started");
    ahead->running = !code;
    if (code)
        share_ahead_destroy(out);
    return code;
}

void share_ahead_destroy(struct share_ahead **ahead)
{
    struct share_ahead *old = *ahead;
    *ahead = NULL;
    if (!old)
        return;
    pthread_mutex_lock(&old->lock);
    old->stop = true;
    pthread_cond_broadcast(&old->changed);
    pthread_mutex_unlock(&old->lock);
    if (old->running)
        pthread_join(old->thread, NULL);
    share_rows_close(&old->rows);
    pthread_cond_destroy(&old->changed);
    pthread_mutex_destroy(&old->lock);
    free(old);
}

void share_ahead_fetch(struct share_ahead *ahead, int64_t task)
{
    pthread_mutex_lock(&ahead->lock);
    if (ahead->next == NEXT_NONE && !ahead->broken) {
        ahead->next = NEXT_WANTED;
        ahead->tile = (struct share_tile){.task = task};
        ahead->until_ms = 0;
        pthread_cond_broadcast(&ahead->changed);
    }
    pthread_mutex_unlock(&ahead->lock);
}

bool share_ahead_take(struct share_ahead *ahead, struct share_tile *out, bool *broken)
{
    pthread_mutex_lock(&ahead->lock);
    while (ahead->next == NEXT_WANTED)
        pthread_cond_wait(&ahead->changed, &ahead->lock);
    const bool here = ahead->next == NEXT_HERE;
    if (here)
        *out = ahead->tile;
    ahead->next = NEXT_NONE;
    *broken = ahead->broken;
    ahead->broken = false;
    pthread_mutex_unlock(&ahead->lock);
    return here;
}

static void ahead_keep_for(struct share_ahead *ahead, double ms)
{
    ahead->until_ms = log_clock_ms() + ms;
    pthread_cond_broadcast(&ahead->changed);
}

void share_ahead_leave(struct share_ahead *ahead)
{
    pthread_mutex_lock(&ahead->lock);
    ahead_keep_for(ahead, 0);
    pthread_mutex_unlock(&ahead->lock);
}

void share_ahead_deliver(struct share_ahead *ahead, const struct share_tile *tile, void *output, size_t size)
{
    pthread_mutex_lock(&ahead->lock);
    while (ahead->output)
        pthread_cond_wait(&ahead->changed, &ahead->lock);
    ahead->done = *tile;
    ahead->output = output;
    ahead->size = size;
    ahead_keep_for(ahead, AHEAD_KEPT_MS);
    pthread_mutex_unlock(&ahead->lock);
}
