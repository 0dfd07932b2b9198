#include "server/job/share_desk.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "server/job/job.h"

#define DESK_LOOK_MS 15                    /* it looks this often how the tiles stand */
#define DESK_LOOK_ALONE_MS 50              /* and this, while nobody helps, */
#define DESK_LOOKS_FIRST 20                /* but not at first, when helpers have just been called */
#define DESK_WINDOWS 8                     /* that lie here; while nobody helps, for whoever begins to */
#define DESK_ROOM ((uint64_t)1 << 30)      /* bytes of a task's tiles in the database, with their results */
#define DESK_RESULTS ((uint64_t)128 << 20) /* of results that have come; one that is waited for comes in any case */

/* A window that waits here, or a result that has come. */
struct desk_item {
    struct desk_item *next;
    int n;
    char spec[160];
    void *bytes;
    size_t size;
};

/* What the database took of the thread's time. */
struct desk_time {
    int count;
    double ms;
};

struct share_desk {
    struct share_rows *own, *rows; /* own: the thread's alone */
    pthread_t thread;
    bool running;

    pthread_mutex_t lock; /* of the following */
    pthread_cond_t changed;
    bool stop, open, broken;
    int64_t task;
    struct error why;
    int busy;                            /* the tile that the thread carries; -1: none */
    bool works;                          /* the thread talks to the database */
    int asked;                           /* the tile that is waited for */
    struct desk_item *windows, *results; /* in their order */
    uint64_t tile_bytes;                 /* of the last tile that came here, with its result */
    uint64_t result_bytes;
    unsigned changes; /* rows that were taken away: what was seen meanwhile may have them still */
    struct share_look look;
    double look_ms;
    struct desk_time looks, offers, fetches; /* of this task */
};

/* --- under the lock ------------------------------------------------------------------------------------------------
 */

static void desk_count_time(struct desk_time *time, double begin)
{
    time->count++;
    time->ms += log_clock_ms() - begin;
}

static struct desk_item **desk_find(struct desk_item **list, int n)
{
    while (*list && (*list)->n != n)
        list = &(*list)->next;
    return list;
}

static struct desk_item *desk_unlink(struct desk_item **at)
{
    struct desk_item *item = *at;
    if (item)
        *at = item->next;
    return item;
}

static void desk_free(struct desk_item *item)
{
    if (item)
        free(item->bytes);
    free(item);
}

static void desk_append(struct desk_item **list, struct desk_item *item)
{
    while (*list)
        list = &(*list)->next;
    item->next = NULL;
    *list = item;
}

static struct share_look_tile *desk_look_at(struct share_desk *desk, int n)
{
    for (int i = 0; i < desk->look.count; i++)
        if (desk->look.tiles[i].n == n)
            return &desk->look.tiles[i];
    return NULL;
}

/* The row is gone. */
static void desk_unlook(struct share_desk *desk, int n)
{
    struct share_look_tile *tile = desk_look_at(desk, n);
    if (tile)
        *tile = desk->look.tiles[--desk->look.count];
    desk->changes++;
}

static void desk_break(struct share_desk *desk, const struct error *err)
{
    if (!desk->broken)
        desk->why = *err;
    desk->broken = true;
}

static int desk_count(const struct share_desk *desk, enum share_state state)
{
    int count = 0;
    for (int i = 0; i < desk->look.count; i++)
        count += desk->look.tiles[i].state == state;
    return count;
}

/* So many that nobody waits for the next one, but no more than have room. */
static bool desk_may_offer(const struct share_desk *desk)
{
    const int most = desk->tile_bytes && DESK_ROOM / desk->tile_bytes < SHARE_ROWS_MOST
                         ? (int)(DESK_ROOM / desk->tile_bytes)
                         : SHARE_ROWS_MOST;
    return desk->windows && desk->look.wanted && desk->look.count < most &&
           desk_count(desk, SHARE_OFFERED) < 2 + desk_count(desk, SHARE_HELD);
}

/* The first tile whose result may come; negative: none. */
static int desk_done(const struct share_desk *desk)
{
    int first = -1;
    for (int i = 0; i < desk->look.count; i++) {
        const struct share_look_tile *tile = &desk->look.tiles[i];
        if (tile->state != SHARE_DONE)
            continue;
        if (tile->n == desk->asked)
            return tile->n;
        first = first < 0 || tile->n < first ? tile->n : first;
    }
    return desk->result_bytes < DESK_RESULTS ? first : -1;
}

/* --- the thread: each is called with the lock, and lets go of it meanwhile -----------------------------------------
 */

static void desk_look(struct share_desk *desk)
{
    struct share_look look;
    struct error err = ERROR_INIT;
    const int64_t task = desk->task;
    const unsigned changes = desk->changes;
    const double begin = log_clock_ms();
    pthread_mutex_unlock(&desk->lock);
    const enum error_code code = share_rows_look(desk->own, task, &look, &err);
    pthread_mutex_lock(&desk->lock);
    desk_count_time(&desk->looks, begin);
    if (code)
        desk_break(desk, &err);
    else if (changes == desk->changes)
        desk->look = look;
    desk->look_ms = changes == desk->changes ? log_clock_ms() : 0;
}

static void desk_offer(struct share_desk *desk)
{
    struct error err = ERROR_INIT;
    struct desk_item *item = desk_unlink(&desk->windows);
    const int64_t task = desk->task;
    const double begin = log_clock_ms();
    desk->busy = item->n;
    pthread_mutex_unlock(&desk->lock);
    const enum error_code code = share_rows_offer(desk->own, task, item->n, item->spec, item->bytes, item->size, &err);
    pthread_mutex_lock(&desk->lock);
    desk_count_time(&desk->offers, begin);
    if (code)
        desk_break(desk, &err);
    else if (desk->look.count < SHARE_ROWS_MOST)
        desk->look.tiles[desk->look.count++] = (struct share_look_tile){item->n, SHARE_OFFERED};
    desk_free(item);
}

static void desk_fetch(struct share_desk *desk, int n)
{
    struct error err = ERROR_INIT;
    struct desk_item *item = mem_calloc(1, sizeof *item);
    const int64_t task = desk->task;
    const double begin = log_clock_ms();
    desk->busy = n;
    pthread_mutex_unlock(&desk->lock);
    enum error_code code = item ? share_rows_fetch(desk->own, task, n, &item->bytes, &item->size, &err)
                                : error_set(&err, ERROR_NO_MEMORY, "no memory for a shared tile");
    pthread_mutex_lock(&desk->lock);
    desk_count_time(&desk->fetches, begin);
    desk_unlook(desk, n);
    if (code) {
        desk_free(item);
        desk_break(desk, &err);
        return;
    }
    item->n = n;
    desk->result_bytes += item->size;
    desk_append(&desk->results, item);
}

/* How long it does not look again, ms. */
static int desk_pause(const struct share_desk *desk)
{
    return desk->look.wanted || desk->looks.count < DESK_LOOKS_FIRST ? DESK_LOOK_MS : DESK_LOOK_ALONE_MS;
}

static void *desk_run(void *argument)
{
    struct share_desk *desk = argument;
    pthread_mutex_lock(&desk->lock);
    while (!desk->stop) {
        const bool at_work = desk->open && !desk->broken;
        const int done = at_work ? desk_done(desk) : -1;
        const struct timespec until = job_deadline(desk_pause(desk));
        desk->works = true;
        if (at_work && log_clock_ms() - desk->look_ms >= desk_pause(desk))
            desk_look(desk);
        else if (at_work && desk_may_offer(desk))
            desk_offer(desk);
        else if (done >= 0)
            desk_fetch(desk, done);
        desk->works = false;
        desk->busy = -1;
        pthread_cond_broadcast(&desk->changed);
        if (!desk->open || desk->broken)
            pthread_cond_wait(&desk->changed, &desk->lock);
        else if (!desk_may_offer(desk) && desk_done(desk) < 0)
            pthread_cond_timedwait(&desk->changed, &desk->lock, &until);
    }
    pthread_mutex_unlock(&desk->lock);
    return NULL;
}

/* --- from outside --------------------------------------------------------------------------------------------------
 */

enum error_code share_desk_create(struct share_desk **out, const char *where, const char *password_file,
                                  struct share_rows *rows, struct error *err)
{
    struct share_desk *desk = *out = mem_calloc(1, sizeof *desk);
    if (!desk)
        return error_set(err, ERROR_NO_MEMORY, "no memory for shared tiles");
    desk->rows = rows;
    desk->busy = desk->asked = -1;
    pthread_mutex_init(&desk->lock, NULL);
    job_condition(&desk->changed);
    enum error_code code = share_rows_open(&desk->own, where, password_file, err);
    if (!code && pthread_create(&desk->thread, NULL, desk_run, desk))
        code = error_set(err, ERROR_IO, "the thread that carries shared tiles could not be started");
    desk->running = !code;
    if (code)
        share_desk_destroy(out);
    return code;
}

void share_desk_destroy(struct share_desk **desk)
{
    struct share_desk *old = *desk;
    *desk = NULL;
    if (!old)
        return;
    if (old->running) {
        share_desk_close(old);
        pthread_mutex_lock(&old->lock);
        old->stop = true;
        pthread_cond_broadcast(&old->changed);
        pthread_mutex_unlock(&old->lock);
        pthread_join(old->thread, NULL);
    }
    share_rows_close(&old->own);
    pthread_cond_destroy(&old->changed);
    pthread_mutex_destroy(&old->lock);
    free(old);
}

void share_desk_open(struct share_desk *desk, int64_t task)
{
    pthread_mutex_lock(&desk->lock);
    desk->task = task;
    desk->open = true;
    desk->broken = false;
    desk->asked = -1;
    desk->look = (struct share_look){0};
    desk->look_ms = 0;
    desk->looks = desk->offers = desk->fetches = (struct desk_time){0};
    error_clear(&desk->why);
    pthread_cond_broadcast(&desk->changed);
    pthread_mutex_unlock(&desk->lock);
}

void share_desk_close(struct share_desk *desk)
{
    pthread_mutex_lock(&desk->lock);
    desk->open = false;
    while (desk->works)
        pthread_cond_wait(&desk->changed, &desk->lock);
    log_event(LOG_DEBUG, "share-desk", "looks=%d look_ms=%.0f offers=%d offer_ms=%.0f fetches=%d fetch_ms=%.0f",
              desk->looks.count, desk->looks.ms, desk->offers.count, desk->offers.ms, desk->fetches.count,
              desk->fetches.ms);
    while (desk->windows)
        desk_free(desk_unlink(&desk->windows));
    while (desk->results)
        desk_free(desk_unlink(&desk->results));
    desk->result_bytes = 0;
    pthread_mutex_unlock(&desk->lock);
}

bool share_desk_broken(struct share_desk *desk, struct error *why)
{
    pthread_mutex_lock(&desk->lock);
    const bool broken = desk->broken;
    if (broken)
        *why = desk->why;
    pthread_mutex_unlock(&desk->lock);
    return broken;
}

int share_desk_room(struct share_desk *desk)
{
    int count = 0;
    pthread_mutex_lock(&desk->lock);
    for (const struct desk_item *item = desk->windows; item; item = item->next)
        count++;
    const int most = desk->broken ? 0 : DESK_WINDOWS;
    pthread_mutex_unlock(&desk->lock);
    return most - count;
}

void share_desk_put(struct share_desk *desk, int n, const char *spec, void *window, size_t size, size_t result)
{
    struct desk_item *item = mem_calloc(1, sizeof *item);
    if (!item) { /* it is nowhere, so it is computed here */
        free(window);
        return;
    }
    *item = (struct desk_item){.n = n, .bytes = window, .size = size};
    snprintf(item->spec, sizeof item->spec, "%s", spec);
    pthread_mutex_lock(&desk->lock);
    desk->tile_bytes = size + result;
    desk_append(&desk->windows, item);
    pthread_cond_broadcast(&desk->changed);
    pthread_mutex_unlock(&desk->lock);
}

/* Takes tile n (negative: the first one) back from the database. With the lock, which it lets go of meanwhile. */
static int desk_withdraw(struct share_desk *desk, int n)
{
    struct error err = ERROR_INIT;
    const int64_t task = desk->task;
    pthread_mutex_unlock(&desk->lock);
    const enum error_code code = share_rows_withdraw(desk->rows, task, &n, &err);
    pthread_mutex_lock(&desk->lock);
    if (code)
        desk_break(desk, &err);
    if (n >= 0)
        desk_unlook(desk, n);
    return n;
}

enum desk_place share_desk_ask(struct share_desk *desk, int n)
{
    enum desk_place place = DESK_NOWHERE;
    pthread_mutex_lock(&desk->lock);
    desk->asked = n;
    while (desk->busy == n)
        pthread_cond_wait(&desk->changed, &desk->lock);
    struct desk_item *waiting = desk_unlink(desk_find(&desk->windows, n));
    const struct share_look_tile *tile = desk_look_at(desk, n);
    desk_free(waiting);
    if (*desk_find(&desk->results, n))
        place = DESK_HERE;
    else if (!waiting && !desk->broken && tile) {
        place = DESK_ELSEWHERE;
        if (tile->state != SHARE_HELD && tile->state != SHARE_DONE && (desk_withdraw(desk, n) == n || desk->broken))
            place = DESK_NOWHERE; /* or somebody was faster */
    }
    pthread_cond_broadcast(&desk->changed); /* it is waited for */
    pthread_mutex_unlock(&desk->lock);
    return place;
}

int share_desk_take(struct share_desk *desk)
{
    int n = -1;
    pthread_mutex_lock(&desk->lock);
    struct desk_item *item = desk_unlink(&desk->windows);
    if (item)
        n = item->n;
    else if (!desk->broken && desk_count(desk, SHARE_OFFERED))
        n = desk_withdraw(desk, -1);
    desk_free(item);
    pthread_mutex_unlock(&desk->lock);
    return n;
}

bool share_desk_fetch(struct share_desk *desk, int n, void *output, size_t size)
{
    pthread_mutex_lock(&desk->lock);
    struct desk_item *item = desk_unlink(desk_find(&desk->results, n));
    if (item)
        desk->result_bytes -= item->size;
    pthread_cond_broadcast(&desk->changed);
    pthread_mutex_unlock(&desk->lock);
    const bool sound = item && item->size == size;
    if (sound)
        memcpy(output, item->bytes, size);
    desk_free(item);
    return sound;
}

void share_desk_drop(struct share_desk *desk, int n)
{
    struct error err = ERROR_INIT;
    pthread_mutex_lock(&desk->lock);
    while (desk->busy == n)
        pthread_cond_wait(&desk->changed, &desk->lock);
    struct desk_item *item = desk_unlink(desk_find(&desk->results, n));
    if (item)
        desk->result_bytes -= item->size;
    desk_free(item);
    desk_free(desk_unlink(desk_find(&desk->windows, n)));
    const int64_t task = desk->task;
    const bool broken = desk->broken;
    pthread_mutex_unlock(&desk->lock);
    const enum error_code code = broken ? OK : share_rows_drop(desk->rows, task, n, &err);
    pthread_mutex_lock(&desk->lock);
    if (code)
        desk_break(desk, &err);
    desk_unlook(desk, n);
    pthread_mutex_unlock(&desk->lock);
}
