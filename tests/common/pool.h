/* A pool of workers over the fixtures' models, the small jobs that it does, and somebody who looks at its devices all
 * the time, as GET /v1/devices, /metrics and /readyz do. What goes wrong fails the test. Thread-safety: the test's own
 * thread. */
#ifndef TESTS_COMMON_POOL_H
#define TESTS_COMMON_POOL_H

#include <semaphore.h>

#include "server/job/worker.h"

#define GPU "vulkan:0" /* software or not, it is one more device */

extern struct worker_pool *pool;
extern bool pool_has_gpu;
extern sem_t pool_ended; /* posted at the end of each job */

/* A job whose carrier is kept at its end until somebody lets it go. */
extern _Atomic(struct job *) pool_held;
extern sem_t pool_let_go;

/* Of the next pools; pool_start() sets the device and the workers. */
extern struct worker_settings pool_settings;

/* Waits until it holds; what never does fails the test, on the slowest machine, too. */
#define WAIT_UNTIL(condition)                                                                                          \
    for (const int64_t began_ns = job_now(); !(condition); pool_wait_more(began_ns, #condition)) {                     \
    }
void pool_wait_more(int64_t began_ns, const char *condition);

/* For cmocka: the group's setup and teardown, and each test's teardown, for every pool begins with devices that nothing
 * is known of. */
int pool_open(void **state);
int pool_close(void **state);
int pool_stop(void **state);

/* Skips the test where the device is a GPU and there is none. faults: as fault_set takes them. */
void pool_start(const char *device, int workers, const char *faults);

/* Waits until it is ready or cannot be. */
enum error_code pool_settle(struct error *err);

/* A job that doubles a small picture by the network srvgg_x2, which is where the faults are. options: more of them,
 * name, value, ..., NULL. */
struct job *pool_make_of(const char *picture, const char *device, const char *const *options);

/* The same of a picture without faces. */
struct job *pool_make_with(const char *device, const char *const *options);
struct job *pool_make(const char *device);
#define OPTIONS(...) ((const char *const[]){__VA_ARGS__, NULL})

struct job *pool_submit_it(struct job *job);
struct job *pool_submit(const char *device);

/* One that the pool took; NULL: it is busy. */
struct job *pool_taken(void);

/* Waits until one more job has ended. */
void pool_wait_end(void);

/* The same, and its state must be this. */
struct job *pool_finish(struct job *job, enum job_state state);

struct device_status pool_status(const char *id);

#endif
