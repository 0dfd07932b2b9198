/* Loops whose items the cores share: rows of a picture, strips of a file. The threads stay for the loops to come; one
 * that sleeps wakes in some 20 µs, so a loop should take longer than that. A process that forks has them in the parent
 * alone.
 * Thread-safety: every function may be called from any thread; loops of several threads run beside each other. */
#ifndef RUNTIME_BASE_THREAD_H
#define RUNTIME_BASE_THREAD_H

typedef void thread_item_fn(void *context, int item);

/* How many threads a loop may have; 0, as at the start: the cores that this process may be scheduled on. */
void thread_set_count(int count);
int thread_count(void);

/* Calls fn for items 0 .. count-1, each once, in any order, on the caller's thread and others, and returns when all are
 * done. What the items wrote is visible to the caller. Where the system gives no threads the caller does it all. */
void thread_for(int count, thread_item_fn *fn, void *context);

/* Makes the calling thread, and those that it starts, give way to others of the machine: whoever answers requests must do
 * so at once while every core computes. The threads of loops do so always. */
void thread_give_way(void);

/* The items of a loop over `rows` rows in bands, and the rows [*begin, *end) of one. Bands depend on nothing but the
 * rows, so that what is summed over a band does not depend on the threads. */
#define THREAD_BAND 16
int thread_bands(int rows);
void thread_band(int rows, int item, int *begin, int *end);

#endif
