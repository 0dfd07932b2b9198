#include "runtime/base/thread.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define THREAD_MAX 64
#define THREAD_NICE 5

/* How long a helper looks for the next loop before it sleeps: while rows pass from step to step, loops follow each
 * other within microseconds, and waking a thread takes longer than that. */
#define THREAD_LOOK_NS 50000
#define THREAD_LOOK_AWAKE_NS 2000000 /* thread_keep_awake */

static atomic_int thread_wanted, thread_awake;

void thread_set_count(int count)
{
    atomic_store(&thread_wanted, count);
}

int thread_count(void)
{
    int count = atomic_load(&thread_wanted);
    if (count <= 0) {
        cpu_set_t set;
        count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    }
    return count < 1 ? 1 : count > THREAD_MAX ? THREAD_MAX : count;
}

/* A loop is on the stack of its caller, who leaves it when no helper is in it. */
struct thread_loop {
    thread_item_fn *fn;
    void *context;
    int count;
    atomic_int next, helpers;
    int places; /* for helpers that may still join; under the lock */
    struct thread_loop *following;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t posted, left;
    struct thread_loop *loops;
    int count; /* of the loops */
    int threads, sleeping;
    atomic_int places;  /* of all loops */
    atomic_int waiting; /* callers that sleep until their helpers have left */
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .posted = PTHREAD_COND_INITIALIZER, .left = PTHREAD_COND_INITIALIZER};

static void thread_work(struct thread_loop *loop)
{
    int item;
    while ((item = atomic_fetch_add_explicit(&loop->next, 1, memory_order_relaxed)) < loop->count)
        loop->fn(loop->context, item);
}

static int64_t thread_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Until when to look for the next loop, or for the end of one, before going to sleep. */
static int64_t thread_look(void)
{
    return thread_now() + (atomic_load(&thread_awake) > 0 ? THREAD_LOOK_AWAKE_NS : THREAD_LOOK_NS);
}

void thread_keep_awake(bool awake)
{
    atomic_fetch_add(&thread_awake, awake ? 1 : -1);
}

/* Under the lock. Wakes two at a time; each of them wakes two more, so that nobody has to wake all. */
static void thread_wake(void)
{
    for (int i = 0; i < 2 && i < pool.sleeping && i < atomic_load(&pool.places); i++)
        pthread_cond_signal(&pool.posted);
}

/* Under the lock. */
static struct thread_loop *thread_join_loop(void)
{
    struct thread_loop *loop = pool.loops;
    while (loop && loop->places == 0)
        loop = loop->following;
    if (loop) {
        loop->places--;
        atomic_fetch_sub(&pool.places, 1);
        atomic_fetch_add(&loop->helpers, 1);
        thread_wake();
    }
    return loop;
}

static void thread_leave_loop(struct thread_loop *loop)
{
    if (atomic_fetch_sub(&loop->helpers, 1) > 1 || atomic_load(&pool.waiting) == 0)
        return; /* after this subtraction the loop may no longer exist */
    pthread_mutex_lock(&pool.lock);
    pthread_cond_broadcast(&pool.left);
    pthread_mutex_unlock(&pool.lock);
}

void thread_give_way(void)
{
    /* On Linux each thread has its own nice value, and threads that it starts, a driver's included, inherit it. */
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), THREAD_NICE);
}

static void *thread_help(void *unused)
{
    thread_give_way(); /* whoever started it */
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        struct thread_loop *loop = thread_join_loop();
        if (!loop) {
            pool.sleeping++;
            pthread_cond_wait(&pool.posted, &pool.lock);
            pool.sleeping--;
            continue;
        }
        pthread_mutex_unlock(&pool.lock);
        thread_work(loop);
        thread_leave_loop(loop);
        for (int64_t until = thread_look(); atomic_load(&pool.places) == 0 && thread_now() < until;)
            sched_yield();
        pthread_mutex_lock(&pool.lock);
    }
    return unused;
}

/* Under the lock: starts up to that many helpers, as far as the system allows. They never end, and block all signals
 * except the one that file.h handles. */
static void thread_start(int wanted)
{
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    if (pool.threads >= wanted || pthread_sigmask(SIG_SETMASK, &all, &before))
        return;
    for (; pool.threads < wanted && pthread_create(&thread, NULL, thread_help, NULL) == 0; pool.threads++)
        pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Loops that run at the same time share the threads: with many jobs each loop gets only a few, which come and go less
 * often. */
static void thread_post(struct thread_loop *loop, int places)
{
    pthread_mutex_lock(&pool.lock);
    thread_start(places);
    pool.count++;
    places = (places + pool.count) / pool.count - 1;
    loop->places = places;
    loop->following = pool.loops;
    pool.loops = loop;
    atomic_fetch_add(&pool.places, places);
    thread_wake();
    pthread_mutex_unlock(&pool.lock);
}

/* Closes the loop to new helpers and waits for those in it. */
static void thread_close(struct thread_loop *loop)
{
    pthread_mutex_lock(&pool.lock);
    struct thread_loop **at = &pool.loops;
    while (*at != loop)
        at = &(*at)->following;
    *at = loop->following;
    pool.count--;
    atomic_fetch_sub(&pool.places, loop->places);
    pthread_mutex_unlock(&pool.lock);
    for (int64_t until = thread_look(); atomic_load(&loop->helpers) && thread_now() < until;)
        sched_yield();
    if (!atomic_load(&loop->helpers))
        return;
    pthread_mutex_lock(&pool.lock);
    atomic_fetch_add(&pool.waiting, 1);
    while (atomic_load(&loop->helpers))
        pthread_cond_wait(&pool.left, &pool.lock);
    atomic_fetch_sub(&pool.waiting, 1);
    pthread_mutex_unlock(&pool.lock);
}

void thread_for(int count, thread_item_fn *fn, void *context)
{
    struct thread_loop loop = {.fn = fn, .context = context, .count = count};
    int threads = thread_count(), wanted = (threads < count ? threads : count) - 1; /* the caller is one of them */
    if (wanted > 0)
        thread_post(&loop, wanted);
    thread_work(&loop);
    if (wanted > 0)
        thread_close(&loop);
}

int thread_bands(int rows)
{
    return (rows + THREAD_BAND - 1) / THREAD_BAND;
}

void thread_band(int rows, int item, int *begin, int *end)
{
    *begin = item * THREAD_BAND;
    *end = *begin + THREAD_BAND < rows ? *begin + THREAD_BAND : rows;
}
