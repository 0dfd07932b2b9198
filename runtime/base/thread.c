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
#define THREAD_MANY 8                /* of fewer cores, those who wait for a GPU take none from the helpers */

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
    atomic_int next;
};

/* Where helpers find a loop. They enter and leave without a lock, since a short loop takes less time than as many locks
 * in a row as there are cores. */
struct thread_slot {
    _Alignas(64) atomic_uint state; /* places for helpers that may still join, and THREAD_IN for each that has */
    struct thread_loop *loop;       /* set while there are places or helpers */
    atomic_bool taken;
};
#define THREAD_IN (1u << 16)

static struct {
    struct thread_slot slots[THREAD_MAX]; /* other loops are done by their callers alone */
    atomic_int top;                       /* slots from here on were never taken */
    atomic_int count, threads, sleeping;  /* loops; helpers; helpers that sleep */
    atomic_int waiting;                   /* callers that sleep until their helpers have left */
    pthread_mutex_t lock;                 /* for going to sleep, waking and starting */
    pthread_cond_t posted, left;
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

/* Wakes two at a time; each of them wakes two more, so that nobody has to wake all. */
static void thread_wake(unsigned places)
{
    if (!places || !atomic_load(&pool.sleeping))
        return;
    pthread_mutex_lock(&pool.lock);
    for (int i = 0; i < 2 && i < atomic_load(&pool.sleeping); i++)
        pthread_cond_signal(&pool.posted);
    pthread_mutex_unlock(&pool.lock);
}

void thread_keep_awake(bool awake)
{
    if (atomic_fetch_add(&thread_awake, awake ? 1 : -1) == 0)
        thread_wake(1);
}

bool thread_look_again(int64_t *until)
{
    if (atomic_load(&thread_awake) <= 0 || thread_count() < THREAD_MANY)
        return false;
    *until = *until ? *until : thread_look();
    sched_yield();
    return thread_now() < *until;
}

/* Enters a loop that has a place; NULL: none has. */
static struct thread_slot *thread_enter(void)
{
    const int top = atomic_load(&pool.top);
    for (int i = 0; i < top; i++) {
        struct thread_slot *slot = &pool.slots[i];
        unsigned state = atomic_load(&slot->state);
        while (state % THREAD_IN)
            if (atomic_compare_exchange_weak(&slot->state, &state, state - 1 + THREAD_IN))
                return slot;
    }
    return NULL;
}

static void thread_leave(struct thread_slot *slot)
{
    if (atomic_fetch_sub(&slot->state, THREAD_IN) / THREAD_IN > 1 || atomic_load(&pool.waiting) == 0)
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

/* Sleeps until there may be a loop. */
static void thread_sleep(void)
{
    pthread_mutex_lock(&pool.lock);
    atomic_fetch_add(&pool.sleeping, 1);
    bool any = false; /* posted before it counted as asleep */
    for (int i = 0; i < atomic_load(&pool.top) && !any; i++)
        any = atomic_load(&pool.slots[i].state) % THREAD_IN;
    if (!any)
        pthread_cond_wait(&pool.posted, &pool.lock);
    atomic_fetch_sub(&pool.sleeping, 1);
    pthread_mutex_unlock(&pool.lock);
}

static void *thread_help(void *unused)
{
    thread_give_way(); /* whoever started it */
    for (int64_t until = 0;;) {
        struct thread_slot *slot = thread_enter();
        if (slot) {
            thread_wake(atomic_load(&slot->state) % THREAD_IN);
            thread_work(slot->loop);
            thread_leave(slot);
            until = thread_look();
        } else if (thread_now() < until) {
            sched_yield();
        } else {
            thread_sleep();
            thread_wake(atomic_load(&thread_awake) > 0);
            until = thread_look();
        }
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

static struct thread_slot *thread_slot_take(void)
{
    for (int i = 0; i < THREAD_MAX; i++) {
        bool taken = false;
        int top = atomic_load(&pool.top);
        if (!atomic_compare_exchange_strong(&pool.slots[i].taken, &taken, true))
            continue;
        while (top <= i && !atomic_compare_exchange_weak(&pool.top, &top, i + 1))
            ;
        return &pool.slots[i];
    }
    return NULL;
}

/* Loops that run at the same time share the threads: with many jobs each loop gets only a few, which come and go less
 * often. */
static struct thread_slot *thread_post(struct thread_loop *loop, int places)
{
    struct thread_slot *slot = thread_slot_take();
    if (!slot)
        return NULL;
    if (atomic_load(&pool.threads) < places) {
        pthread_mutex_lock(&pool.lock);
        thread_start(places);
        pthread_mutex_unlock(&pool.lock);
    }
    const int count = atomic_fetch_add(&pool.count, 1) + 1;
    slot->loop = loop;
    places = (places + count) / count - 1;
    atomic_store(&slot->state, (unsigned)places);
    thread_wake((unsigned)places);
    return slot;
}

/* Closes the loop to new helpers and waits for those in it. */
static void thread_close(struct thread_slot *slot)
{
    atomic_fetch_and(&slot->state, ~(THREAD_IN - 1));
    atomic_fetch_sub(&pool.count, 1);
    for (int64_t until = thread_look(); atomic_load(&slot->state) && thread_now() < until;)
        sched_yield();
    if (atomic_load(&slot->state)) {
        pthread_mutex_lock(&pool.lock);
        atomic_fetch_add(&pool.waiting, 1);
        while (atomic_load(&slot->state))
            pthread_cond_wait(&pool.left, &pool.lock);
        atomic_fetch_sub(&pool.waiting, 1);
        pthread_mutex_unlock(&pool.lock);
    }
    atomic_store(&slot->taken, false);
}

void thread_for(int count, thread_item_fn *fn, void *context)
{
    struct thread_loop loop = {.fn = fn, .context = context, .count = count};
    int threads = thread_count(), wanted = (threads < count ? threads : count) - 1; /* the caller is one of them */
    struct thread_slot *slot = wanted > 0 ? thread_post(&loop, wanted) : NULL;
    thread_work(&loop);
    if (slot)
        thread_close(slot);
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
