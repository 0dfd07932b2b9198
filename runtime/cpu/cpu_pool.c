#include "runtime/cpu/cpu_pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "runtime/base/mem.h"

/* How long a thread looks for work, and the caller for its end, before sleeping: while a plan runs, loops follow each
 * other within microseconds, and waking a thread takes longer than that. */
#define SPIN_NS 50000

struct worker {
    struct cpu_pool *pool;
    pthread_t thread;
    int number;
};

/* The state of the pool in one word: a loop's number, whether workers may still enter it, and how many are in it. The
 * caller waits only for workers that did enter, so one that the system schedules late delays nobody. */
#define STATE_WORKER ((uint64_t)1)
#define STATE_WORKERS ((uint64_t)0xffff)
#define STATE_OPEN ((uint64_t)1 << 16)
#define STATE_LOOP ((uint64_t)1 << 17)
#define STATE_LOOPS (~(STATE_LOOP - 1))

struct cpu_pool {
    int threads;
    struct worker *workers; /* threads - 1; the caller is thread 0 */

    /* The loop; written by the caller while it is closed and no worker is in it. */
    cpu_pool_fn *fn;
    void *context;
    int count;
    atomic_int next; /* the next item */
    _Atomic uint64_t state;
    atomic_bool stop;

    pthread_mutex_t lock; /* for those that sleep */
    pthread_cond_t opened, left;
    atomic_int sleepers;
};

static void pool_pause_briefly(void)
{
#if defined __x86_64__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("yield");
#endif
}

static bool pool_spin_over(const struct timespec *since)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - since->tv_sec) * 1000000000LL + (now.tv_nsec - since->tv_nsec) > SPIN_NS;
}

static bool pool_can_enter(const struct cpu_pool *pool, uint64_t seen)
{
    const uint64_t state = atomic_load(&pool->state);
    return (state & STATE_OPEN) && (state & STATE_LOOPS) != seen;
}

static bool pool_is_empty(const struct cpu_pool *pool, uint64_t unused)
{
    (void)unused;
    return (atomic_load(&pool->state) & STATE_WORKERS) == 0;
}

/* Waits until the condition holds; whoever makes it true signals `changed`. */
static void pool_wait_until(struct cpu_pool *pool, bool (*condition)(const struct cpu_pool *, uint64_t), uint64_t seen,
                            pthread_cond_t *changed)
{
    struct timespec since;
    clock_gettime(CLOCK_MONOTONIC, &since);
    for (int i = 1; !condition(pool, seen); i++) {
        pool_pause_briefly();
        if (i % 64 == 0 && pool_spin_over(&since))
            break;
    }
    if (condition(pool, seen))
        return;
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->sleepers, 1);
    while (!condition(pool, seen))
        pthread_cond_wait(changed, &pool->lock);
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->lock);
}

static void pool_announce(struct cpu_pool *pool, pthread_cond_t *changed)
{
    if (atomic_load(&pool->sleepers) == 0)
        return;
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(changed);
    pthread_mutex_unlock(&pool->lock);
}

static void pool_do_items(struct cpu_pool *pool, int thread)
{
    int item;
    while ((item = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed)) < pool->count)
        pool->fn(pool->context, item, thread);
}

static void *pool_worker_main(void *data)
{
    struct worker *worker = data;
    struct cpu_pool *pool = worker->pool;
    for (uint64_t seen = 0; !atomic_load(&pool->stop);) {
        pool_wait_until(pool, pool_can_enter, seen, &pool->opened);
        uint64_t state = atomic_load(&pool->state);
        while ((state & STATE_OPEN) && !atomic_compare_exchange_weak(&pool->state, &state, state + STATE_WORKER))
            ;
        if (!(state & STATE_OPEN))
            continue; /* closed in the meantime */
        seen = state & STATE_LOOPS;
        pool_do_items(pool, worker->number);
        state = atomic_fetch_sub(&pool->state, STATE_WORKER);
        if (!(state & STATE_OPEN) && (state & STATE_WORKERS) == STATE_WORKER)
            pool_announce(pool, &pool->left);
    }
    return NULL;
}

enum error_code cpu_pool_create(struct cpu_pool **out, int threads, struct error *err)
{
    struct cpu_pool *pool = mem_calloc(1, sizeof *pool);
    struct worker *workers = mem_calloc((size_t)threads, sizeof *workers);
    *out = NULL;
    if (!pool || !workers) {
        free(pool);
        free(workers);
        return error_set(err, ERROR_NO_MEMORY, "out of memory for threads");
    }
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->opened, NULL);
    pthread_cond_init(&pool->left, NULL);
    pool->workers = workers;
    for (pool->threads = 1; pool->threads < threads; pool->threads++) {
        struct worker *w = &workers[pool->threads - 1];
        *w = (struct worker){.pool = pool, .number = pool->threads};
        if (pthread_create(&w->thread, NULL, pool_worker_main, w))
            break;
    }
    *out = pool;
    return OK;
}

void cpu_pool_destroy(struct cpu_pool **pool)
{
    struct cpu_pool *old = *pool;
    *pool = NULL;
    if (!old)
        return;
    atomic_store(&old->stop, true);
    old->count = 0;
    atomic_store(&old->state, (old->state & STATE_LOOPS) + STATE_LOOP + STATE_OPEN);
    pool_announce(old, &old->opened);
    for (int i = 0; i < old->threads - 1; i++)
        pthread_join(old->workers[i].thread, NULL);
    pthread_mutex_destroy(&old->lock);
    pthread_cond_destroy(&old->opened);
    pthread_cond_destroy(&old->left);
    free(old->workers);
    free(old);
}

int cpu_pool_threads(const struct cpu_pool *pool)
{
    return pool->threads;
}

void cpu_pool_run(struct cpu_pool *pool, int count, cpu_pool_fn *fn, void *context)
{
    if (pool->threads == 1 || count <= 1) {
        for (int i = 0; i < count; i++)
            fn(context, i, 0);
        return;
    }
    pool->fn = fn;
    pool->context = context;
    pool->count = count;
    atomic_store(&pool->next, 0);
    atomic_store(&pool->state, (pool->state & STATE_LOOPS) + STATE_LOOP + STATE_OPEN);
    pool_announce(pool, &pool->opened);
    pool_do_items(pool, 0);
    atomic_fetch_and(&pool->state, ~STATE_OPEN);
    pool_wait_until(pool, pool_is_empty, 0, &pool->left);
}
