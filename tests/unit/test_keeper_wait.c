/* The keeper of asynchronous jobs with nothing to do: it sleeps until something is due, to the millisecond. */
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "runtime/base/log.h"
#include "server/job/job.h"
#include "server/job/keeper.h"

#define EXPIRE_MS 5000 /* how often the keeper looks for what has expired, the first time at once */

/* The first two waits of the keeper's thread. */
static struct {
    atomic_bool known, taken;
    pthread_t thread;
    struct timespec until; /* of the second one */
    int64_t first, second; /* when they began */
    sem_t seen;
} waits;

/* Every wait with an end comes here first. Nobody but the keeper, for whom everything is due at first, waits until
 * 1970. */
int pthread_cond_timedwait(pthread_cond_t *changed, pthread_mutex_t *lock, const struct timespec *until)
{
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    if (!until->tv_sec && !atomic_load(&waits.known)) {
        waits.thread = pthread_self();
        waits.first = job_clock();
        atomic_store(&waits.known, true);
    } else if (atomic_load(&waits.known) && pthread_equal(waits.thread, pthread_self()) &&
               !atomic_exchange(&waits.taken, true)) {
        waits.until = *until;
        waits.second = job_clock();
        sem_post(&waits.seen);
    }
    return real(changed, lock, until);
}

static void sleeps_until_something_is_due(void **state)
{
    (void)state;
    const struct model_defaults defaults = {.name = {""}};
    const struct worker_settings workers = {.device = "cpu", .workers = 1, .queue = 8, .keep_seconds = 300};
    struct error err = ERROR_INIT;
    struct model_store *models;
    struct worker_pool *pool;
    struct spool *spool;
    struct keeper *keeper;
    char folder[] = "/tmp/restored_keeper_XXXXXX", path[64], spool_folder[64], command[96];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/jobs.db", folder);
    snprintf(spool_folder, sizeof spool_folder, "%s/spool", folder);
    const struct keeper_settings settings = {.path = path, .queue = 1000, .result_seconds = 3600};
    sem_init(&waits.seen, 0, 0);
    log_set_level(LOG_ERROR + 1);
    if (model_store_create(&models, folder, &defaults, &err) || worker_pool_create(&pool, &workers, models, &err) ||
        spool_open(&spool, spool_folder, UINT64_C(1) << 30, &err) ||
        keeper_create(&keeper, &settings, pool, models, spool, &err))
        fail_msg("%s", err.text);
    while (sem_wait(&waits.seen))
        ;
    assert_in_range(waits.until.tv_nsec, 0, 999999999);
    const int64_t until = (int64_t)waits.until.tv_sec * 1000 + waits.until.tv_nsec / 1000000;
    assert_in_range(until, waits.first + EXPIRE_MS, waits.second + EXPIRE_MS);
    keeper_drain(keeper);
    keeper_destroy(&keeper);
    spool_close(&spool);
    worker_pool_destroy(&pool);
    model_store_destroy(&models);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sleeps_until_something_is_due)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
