/* Loops whose items the cores share: rows of a picture, strips of a file. The threads are kept for later loops; a
 * sleeping one wakes in some 20 µs, so a loop should take longer than that. After a fork only the parent has them.
 * Thread-safety: every function may be called from any thread; loops of different threads run at the same time. */
#ifndef RUNTIME_BASE_THREAD_H
#define RUNTIME_BASE_THREAD_H

#include <stdbool.h>
#include <stdint.h>

typedef void thread_item_fn(void *context, int item);

/* How many threads a loop may have. 0, the default: as many as the cores that this process may be scheduled on. */
void thread_set_count(int count);
int thread_count(void);

/* Calls fn once for each item 0 .. count-1, in any order, on the caller's thread and others, and returns when all are
 * done. What the items wrote is visible to the caller. If the system gives no threads the caller does all of it. */
void thread_for(int count, thread_item_fn *fn, void *context);

/* Lowers the priority of the calling thread and of those that it starts, so that requests are answered at once while
 * every core computes. The threads of loops always have this priority. */
void thread_give_way(void);

/* From true until the same caller's false, threads of loops look for the next one for up to 2 ms before they sleep: for
 * short loops with waits for a GPU in between. All that sleep begin to wake at once, so that the first loop finds them
 * awake if something else comes before it. */
void thread_keep_awake(bool awake);
/* For who waits for the GPU, and wakes as slowly: whether to look once more, and not to sleep yet, for up to 2 ms while
 * threads are kept awake, if there are 8 or more. *until: 0 at first. */
bool thread_look_again(int64_t *until);

/* The number of items of a loop over `rows` rows in bands, and the rows [*begin, *end) of one band. Bands depend only
 * on the number of rows, so that sums over a band do not depend on the number of threads. */
#define THREAD_BAND 16
int thread_bands(int rows);
void thread_band(int rows, int item, int *begin, int *end);

#endif
