#include "tests/common/pool.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "runtime/backend/fault.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "tests/common/shared.h"

static struct model_store *store;
struct worker_pool *pool;
sem_t pool_ended;
bool pool_has_gpu;

_Atomic(struct job *) pool_held;
sem_t pool_let_go;

/* Somebody who looks at the devices all the time, as GET /v1/devices, /metrics and /readyz do. */
static pthread_t watcher;
static atomic_bool watching;

static void *pool_watch(void *unused)
{
    const struct timespec pause = {0, 2000000};
    for (; atomic_load(&watching); nanosleep(&pause, NULL)) {
        struct device_status *list;
        struct error err = ERROR_INIT;
        size_t count;
        char loaded[ROLE_COUNT][128];
        if (devices_read(worker_pool_devices(pool), &list, &count, &err))
            continue;
        free(list);
        worker_pool_loaded(pool, loaded);
        (void)!worker_pool_ready(pool, &err);
        worker_pool_expire(pool);
    }
    return unused;
}

void pool_wait_more(int64_t began_ns, const char *condition)
{
    const struct timespec pause = {0, 5000000};
    if (job_now() - began_ns > INT64_C(600000000000))
        fail_msg("not in ten minutes: %s", condition);
    nanosleep(&pause, NULL);
}

int pool_open(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    const struct model_defaults defaults = {.name = {"detector", "face_64", "parser", "srvgg_x2"}};
    struct device_info *list;
    size_t count = 0;
    log_set_level(LOG_ERROR + 1); /* faults are errors */
    sem_init(&pool_ended, 0, 0);
    sem_init(&pool_let_go, 0, 0);
    if (model_store_create(&store, shared_fixtures(), &defaults, &err) || device_list(&list, &count, &err))
        fail_msg("%s", err.text);
    for (size_t i = 0; i < count; i++)
        pool_has_gpu = pool_has_gpu || (!strcmp(list[i].id, GPU) && list[i].usable);
    free(list);
    return 0;
}

int pool_close(void **state)
{
    (void)state;
    model_store_destroy(&store);
    return 0;
}

struct worker_settings pool_settings = {.queue = 8, .job_seconds = 300, .keep_seconds = 300};

int pool_stop(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    if (pool) {
        atomic_store(&watching, false);
        pthread_join(watcher, NULL);
    }
    worker_pool_destroy(&pool);
    device_judge("cpu", NULL, NULL);
    device_judge(GPU, NULL, NULL);
    pool_settings.reopen_seconds = 0;
    pool_settings.shares = false;
    return fault_set(NULL, &err);
}

void pool_start(const char *device, int workers, const char *faults)
{
    struct error err = ERROR_INIT;
    pool_settings.device = device;
    pool_settings.workers = workers;
    if (strstr(device, "vulkan") && !pool_has_gpu) {
        printf("skip: there is no device " GPU "\n");
        skip();
    }
    if (fault_set(faults, &err) || worker_pool_create(&pool, &pool_settings, store, &err))
        fail_msg("%s", err.text);
    atomic_store(&watching, true);
    assert_int_equal(pthread_create(&watcher, NULL, pool_watch, NULL), 0);
}

enum error_code pool_settle(struct error *err)
{
    enum error_code code;
    WAIT_UNTIL((error_clear(err), (code = worker_pool_ready(pool, err)) != ERROR_BUSY));
    return code;
}

static void pool_on_end(struct job *job, void *context)
{
    (void)context;
    if (atomic_load(&pool_held) == job) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 60;
        while (sem_timedwait(&pool_let_go, &until) && errno == EINTR)
            ;
        atomic_store(&pool_held, NULL);
    }
    sem_post(&pool_ended);
}

struct job *pool_make_of(const char *picture, const char *device, const char *const *options)
{
    struct error err = ERROR_INIT;
    struct restoration *r;
    struct job *job;
    struct file file;
    char path[512], id[33];
    snprintf(path, sizeof path, "%s/%s", shared_fixtures(), picture);
    if (restoration_create(&r, &err) || file_map(&file, path, &err) ||
        options_set(&r->options, "version", "none", &err) || options_set(&r->options, "device", device, &err))
        fail_msg("%s", err.text);
    for (; *options; options += 2)
        if (options_set(&r->options, options[0], options[1], &err))
            fail_msg("%s", err.text);
    struct body body = {0};
    assert_int_equal(body_append(&body, file.data, file.size, &err), OK);
    job_make_id(id);
    assert_int_equal(job_create(&job, id, &r, &body, pool_on_end, NULL, &err), OK);
    file_unmap(&file);
    return job;
}

struct job *pool_make_with(const char *device, const char *const *options)
{
    return pool_make_of("none.png", device, options);
}

struct job *pool_make(const char *device)
{
    return pool_make_with(device, (const char *const[]){NULL});
}

struct job *pool_submit_it(struct job *job)
{
    struct error err = ERROR_INIT;
    if (worker_pool_submit(pool, job, &err))
        fail_msg("%s", err.text);
    return job;
}

struct job *pool_taken(void)
{
    struct error err = ERROR_INIT;
    struct job *job = pool_make("auto");
    if (worker_pool_submit(pool, job, &err)) {
        assert_int_equal(err.code, ERROR_BUSY);
        job_release(&job);
    }
    return job;
}

struct job *pool_submit(const char *device)
{
    return pool_submit_it(pool_make(device));
}

void pool_wait_end(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 600; /* a job that never ends fails the test, on the slowest machine, too */
    while (sem_timedwait(&pool_ended, &until))
        if (errno != EINTR)
            fail_msg("no job has ended for ten minutes");
}

struct job *pool_finish(struct job *job, enum job_state state)
{
    pool_wait_end();
    if (atomic_load(&job->state) != state)
        fail_msg("the job's state is %d: %s", (int)atomic_load(&job->state), job->error.text);
    return job;
}

struct device_status pool_status(const char *id)
{
    struct device_status *list, found = {.utilisation = -1};
    struct error err = ERROR_INIT;
    size_t count = 0;
    assert_int_equal(devices_read(worker_pool_devices(pool), &list, &count, &err), OK);
    for (size_t i = 0; i < count; i++)
        if (!strcmp(list[i].info.id, id))
            found = list[i];
    free(list);
    assert_true(found.utilisation >= 0);
    return found;
}
