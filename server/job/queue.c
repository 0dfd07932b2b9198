#include "server/job/queue.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/mem.h"

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* for the workers */
    pthread_cond_t carry;   /* for the carriers */
    struct job *first;      /* in their order */
    size_t capacity;
    int ahead;
    uint64_t pushed;     /* jobs so far */
    int up[DEVICES_MAX]; /* workers of each device that can work */
    uint32_t up_devices; /* those with any */
    int idle[DEVICES_MAX];
    uint32_t idle_devices; /* the same for workers that are about to take a job */
    unsigned calls;        /* of queue_call */
    bool closed, ended;
};

enum error_code queue_create(struct queue **out, size_t capacity, int ahead, struct error *err)
{
    struct queue *queue = mem_calloc(1, sizeof *queue);
    if (!queue)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the queue");
    queue->capacity = capacity;
    queue->ahead = ahead;
    pthread_mutex_init(&queue->lock, NULL);
    job_condition(&queue->changed);
    pthread_cond_init(&queue->carry, NULL);
    *out = queue;
    return OK;
}

void queue_destroy(struct queue **queue)
{
    struct queue *old = *queue;
    *queue = NULL;
    if (!old)
        return;
    pthread_cond_destroy(&old->carry);
    pthread_cond_destroy(&old->changed);
    pthread_mutex_destroy(&old->lock);
    free(old);
}

/* Under the lock: something has changed. Wakes all, because not everyone may do what there is to do. */
static void queue_wake(struct queue *queue)
{
    pthread_cond_broadcast(&queue->changed);
    pthread_cond_broadcast(&queue->carry);
}

/* Under the lock: how many waiting jobs no idle worker is about to take; all: also those that were accepted before,
 * which have a bound of their own. */
static size_t queue_waiting(const struct queue *queue, bool all)
{
    int idle[DEVICES_MAX];
    uint32_t devices = queue->idle_devices;
    size_t count = 0;
    memcpy(idle, queue->idle, sizeof idle);
    for (const struct job *job = queue->first; job; job = job->next) {
        if (!(job->devices & devices)) {
            count += all || !job->accepted;
            continue;
        }
        const int device = __builtin_ctz(job->devices & devices);
        if (!--idle[device])
            devices &= ~(UINT32_C(1) << device);
    }
    return count;
}

/* Under the lock: whether one more job of this client may wait. When all places are taken, one who has few of them
 * still gets in, so that another who has taken them all keeps nobody out. */
static bool queue_has_room(const struct queue *queue, const char *client)
{
    const size_t depth = queue_waiting(queue, false), share = queue->capacity > 8 ? queue->capacity / 8 : 1;
    size_t own = 0;
    if (depth < queue->capacity)
        return true;
    for (const struct job *job = queue->first; job; job = job->next)
        own += !job->accepted && !strcmp(job->client, client);
    return own < share && depth - queue->capacity < queue->capacity;
}

/* Whether this place comes before that of the job. */
static bool queue_goes_before(bool low, uint64_t turn, uint64_t number, const struct job *job)
{
    return low != job->low ? !low : turn != job->turn ? turn < job->turn : number < job->number;
}

/* Under the lock: the turn of a job that this client would push now. */
static uint64_t queue_turn(const struct queue *queue, const char *client, bool low)
{
    const struct job *job = queue->first;
    while (job && job->low != low)
        job = job->next;
    uint64_t turn = job ? job->turn : 0; /* the smallest: they stand in order */
    for (; job && job->low == low; job = job->next)
        if (!strcmp(job->client, client))
            turn = job->turn + 1;
    return turn;
}

/* Under the lock: puts the job in its place. */
static void queue_link(struct queue *queue, struct job *job)
{
    struct job **at = &queue->first;
    while (*at && !queue_goes_before(job->low, job->turn, job->number, *at))
        at = &(*at)->next;
    job->next = *at;
    *at = job;
    queue_wake(queue);
}

enum error_code queue_push(struct queue *queue, struct job *job, struct error *err)
{
    enum error_code code = OK;
    pthread_mutex_lock(&queue->lock);
    if (queue->closed) {
        code = error_set(err, ERROR_BUSY, "the server is shutting down and accepts no new jobs");
    } else if (!job->accepted && !queue_has_room(queue, job->client)) {
        code = error_set(err, ERROR_BUSY, "the queue is full: %zu jobs wait, and no more may",
                         queue_waiting(queue, false));
    } else {
        job->turn = queue_turn(queue, job->client, job->low);
        job->number = ++queue->pushed;
        queue_link(queue, job_hold(job));
    }
    pthread_mutex_unlock(&queue->lock);
    return code;
}

/* Under the lock. previous: the one before it, NULL for the first. */
static struct job *queue_unlink(struct queue *queue, struct job *previous, struct job *job)
{
    if (previous)
        previous->next = job->next;
    else
        queue->first = job->next;
    job->next = NULL;
    queue_wake(queue);
    return job;
}

/* Under the lock: the first job that a carrier may take now. Carriers may have at most `ahead` jobs that share its
 * devices for each of its devices. */
static struct job *queue_next_to_carry(const struct queue *queue)
{
    for (struct job *job = queue->first; job; job = job->next) {
        int before = 0;
        if (job->carried)
            continue;
        for (const struct job *other = queue->first; other; other = other->next)
            before += other->carried && (other->devices & job->devices);
        if (before < queue->ahead * __builtin_popcount(job->devices))
            return job;
    }
    return NULL;
}

struct job *queue_carry(struct queue *queue)
{
    struct job *job;
    pthread_mutex_lock(&queue->lock);
    while (!(job = queue_next_to_carry(queue)) && !queue->ended)
        pthread_cond_wait(&queue->carry, &queue->lock);
    if (job) {
        job->carried = true;
        job_hold(job);
    }
    pthread_mutex_unlock(&queue->lock);
    return job;
}

void queue_ready(struct queue *queue, struct job *job)
{
    pthread_mutex_lock(&queue->lock);
    job->ready = true;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
}

void queue_return(struct queue *queue, struct job *job)
{
    pthread_mutex_lock(&queue->lock);
    queue_link(queue, job);
    pthread_mutex_unlock(&queue->lock);
}

void queue_worker(struct queue *queue, int device, bool up)
{
    pthread_mutex_lock(&queue->lock);
    queue->up[device] += up ? 1 : -1;
    queue->up_devices = (queue->up_devices & ~(UINT32_C(1) << device)) | (uint32_t)(queue->up[device] > 0) << device;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
}

/* Under the lock. */
static void queue_set_idle(struct queue *queue, int device, int change)
{
    queue->idle[device] += change;
    queue->idle_devices = (queue->idle_devices & ~(UINT32_C(1) << device)) | (uint32_t)(queue->idle[device] > 0)
                                                                                 << device;
}

void queue_idle(struct queue *queue, int device)
{
    pthread_mutex_lock(&queue->lock);
    queue_set_idle(queue, device, 1);
    pthread_mutex_unlock(&queue->lock);
}

/* Under the lock: the first job for a worker of the device, taken out. */
static struct job *queue_take(struct queue *queue, int device, bool up)
{
    const uint32_t others = up ? queue->idle_devices & ((UINT32_C(1) << device) - 1) : queue->up_devices;
    struct job *previous = NULL, *job = queue->first;
    while (job && (!job->ready || !(job->devices >> device & 1) || (job->devices & others))) {
        previous = job;
        job = job->next;
    }
    if (job && up && queue->idle[device] > 0) {
        queue_set_idle(queue, device, -1);
        pthread_cond_broadcast(&queue->changed); /* the others may now take what was reserved for this worker */
    }
    return job ? queue_unlink(queue, previous, job) : NULL;
}

struct job *queue_await(struct queue *queue, int device, bool up, int timeout_ms, unsigned *calls)
{
    const struct timespec until = job_deadline(timeout_ms);
    pthread_mutex_lock(&queue->lock);
    int waited = 0;
    struct job *job;
    while (!(job = queue_take(queue, device, up)) && !(queue->ended && !queue->first) && !waited &&
           !(calls && *calls != queue->calls))
        waited = timeout_ms < 0 ? pthread_cond_wait(&queue->changed, &queue->lock)
                                : pthread_cond_timedwait(&queue->changed, &queue->lock, &until);
    if (calls)
        *calls = queue->calls;
    pthread_mutex_unlock(&queue->lock);
    return job;
}

struct job *queue_pop(struct queue *queue, int device, bool up, int timeout_ms)
{
    return queue_await(queue, device, up, timeout_ms, NULL);
}

void queue_call(struct queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->calls++;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
}

struct job *queue_pop_ahead(struct queue *queue, int device)
{
    pthread_mutex_lock(&queue->lock);
    struct job *previous = NULL, *job = queue->first;
    while (job && (!job->ready || !(job->devices >> device & 1) || (job->devices & queue->idle_devices))) {
        previous = job;
        job = job->next;
    }
    if (job)
        queue_unlink(queue, previous, job);
    pthread_mutex_unlock(&queue->lock);
    return job;
}

/* Under the lock: removes it, if it is there. */
static bool queue_take_out(struct queue *queue, const struct job *job)
{
    struct job *previous = NULL, *at = queue->first;
    while (at && at != job) {
        previous = at;
        at = at->next;
    }
    if (at)
        queue_unlink(queue, previous, at);
    return at != NULL;
}

/* Whether its carrier is reading its picture now. */
static bool queue_in_hand(const struct job *job)
{
    return job->carried && !job->ready;
}

void queue_drop(struct queue *queue, struct job *job)
{
    pthread_mutex_lock(&queue->lock);
    const bool there = queue_take_out(queue, job);
    pthread_mutex_unlock(&queue->lock);
    if (there)
        job_release(&job);
}

bool queue_remove(struct queue *queue, const struct job *job)
{
    pthread_mutex_lock(&queue->lock);
    const bool removed = !queue_in_hand(job) && queue_take_out(queue, job);
    pthread_mutex_unlock(&queue->lock);
    return removed;
}

struct job *queue_take_older(struct queue *queue, int64_t created_before_ns)
{
    pthread_mutex_lock(&queue->lock);
    struct job *job = queue->first;
    while (job && (queue_in_hand(job) || job->created_ns >= created_before_ns))
        job = job->next;
    if (job)
        queue_take_out(queue, job);
    pthread_mutex_unlock(&queue->lock);
    return job;
}

static void queue_set_flag(struct queue *queue, bool *flag)
{
    pthread_mutex_lock(&queue->lock);
    *flag = true;
    queue_wake(queue);
    pthread_mutex_unlock(&queue->lock);
}

void queue_close(struct queue *queue)
{
    queue_set_flag(queue, &queue->closed);
}

bool queue_closed(struct queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    const bool closed = queue->closed;
    pthread_mutex_unlock(&queue->lock);
    return closed;
}

void queue_end(struct queue *queue)
{
    queue_set_flag(queue, &queue->ended);
}

bool queue_ended(struct queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    const bool ended = queue->ended && !queue->first;
    pthread_mutex_unlock(&queue->lock);
    return ended;
}

size_t queue_bounded(struct queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    const size_t count = queue_waiting(queue, false);
    pthread_mutex_unlock(&queue->lock);
    return count;
}

size_t queue_depth(struct queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    const size_t depth = queue_waiting(queue, true);
    pthread_mutex_unlock(&queue->lock);
    return depth;
}

bool queue_full(struct queue *queue, const char *client)
{
    pthread_mutex_lock(&queue->lock);
    const bool full = !queue_has_room(queue, client);
    pthread_mutex_unlock(&queue->lock);
    return full;
}

size_t queue_depth_of(struct queue *queue, const char *token)
{
    size_t count = 0;
    pthread_mutex_lock(&queue->lock);
    const size_t depth = queue_waiting(queue, true);
    for (const struct job *job = queue->first; job; job = job->next)
        count += !strcmp(job->token, token);
    pthread_mutex_unlock(&queue->lock);
    return count < depth ? count : depth;
}

size_t queue_capacity(const struct queue *queue)
{
    return queue->capacity;
}

static void queue_add_ahead(struct queue_ahead *sum, const struct job *job, uint32_t devices)
{
    sum->jobs++;
    sum->seconds += job->devices & devices ? job->estimate.device_seconds : 0;
}

bool queue_ahead_of(struct queue *queue, const struct job *job, struct queue_ahead *out)
{
    const struct job *at;
    *out = (struct queue_ahead){0};
    pthread_mutex_lock(&queue->lock);
    for (at = queue->first; at && at != job; at = at->next)
        queue_add_ahead(out, at, job->devices);
    pthread_mutex_unlock(&queue->lock);
    return at != NULL;
}

void queue_ahead_of_new(struct queue *queue, uint32_t devices, const char *client, bool low, struct queue_ahead *out)
{
    *out = (struct queue_ahead){0};
    pthread_mutex_lock(&queue->lock);
    const uint64_t turn = client ? queue_turn(queue, client, low) : 0;
    for (const struct job *at = queue->first; at; at = at->next)
        if (!client || !queue_goes_before(low, turn, UINT64_MAX, at))
            queue_add_ahead(out, at, devices);
    pthread_mutex_unlock(&queue->lock);
}

size_t queue_list(struct queue *queue, uint32_t devices, struct place_job *out, size_t most)
{
    size_t count = 0;
    pthread_mutex_lock(&queue->lock);
    for (const struct job *job = queue->first; job && count < most; job = job->next) {
        struct place_job *place = &out[count++];
        memcpy(place->client, job->client, sizeof place->client);
        place->low = job->low;
        place->stored = job->accepted;
        place->turn = job->turn;
        place->seconds = job->devices & devices ? job->estimate.device_seconds : 0;
    }
    pthread_mutex_unlock(&queue->lock);
    return count;
}
