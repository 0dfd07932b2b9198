#include "runtime/base/thread.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define THREAD_MAX 64

static atomic_int thread_wanted;

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

struct thread_loop {
    thread_item_fn *fn;
    void *context;
    int count;
    atomic_int next;
};

static void *thread_work(void *data)
{
    struct thread_loop *loop = data;
    int item;
    while ((item = atomic_fetch_add_explicit(&loop->next, 1, memory_order_relaxed)) < loop->count)
        loop->fn(loop->context, item);
    return NULL;
}

void thread_for(int count, thread_item_fn *fn, void *context)
{
    struct thread_loop loop = {.fn = fn, .context = context, .count = count};
    pthread_t threads[THREAD_MAX];
    int wanted = thread_count(), started = 0;
    wanted = (wanted < count ? wanted : count) - 1; /* the caller is one of them */
    while (started < wanted && pthread_create(&threads[started], NULL, thread_work, &loop) == 0)
        started++;
    thread_work(&loop);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
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
