/* A few threads that share one loop at a time.
 * Thread-safety: cpu_pool_run is for one thread at a time, the one that owns the device. */
#ifndef RUNTIME_CPU_CPU_POOL_H
#define RUNTIME_CPU_CPU_POOL_H

#include "runtime/base/error.h"

struct cpu_pool;

/* Does one item; thread: 0 .. cpu_pool_threads-1, for scratch memory of its own. */
typedef void cpu_pool_fn(void *context, int item, int thread);

/* The caller is one of the threads. If the system gives fewer, the pool is smaller. */
enum error_code cpu_pool_create(struct cpu_pool **out, int threads, struct error *err) MUST_CHECK;
void cpu_pool_destroy(struct cpu_pool **pool);
int cpu_pool_threads(const struct cpu_pool *pool);

/* Calls fn once for each item 0 .. count-1, in any order, on any thread, and returns when all are done. What the items
 * wrote is visible to the caller. */
void cpu_pool_run(struct cpu_pool *pool, int count, cpu_pool_fn *fn, void *context);

#endif
