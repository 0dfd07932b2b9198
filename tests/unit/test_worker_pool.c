/* The workers of several devices: who does a job, what becomes of it when its device fails, and what the table of
 * devices says then. The devices are the machine's own, "cpu" and a Vulkan one, with faults on demand. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
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
#include "server/job/worker.h"
#include "tests/common/shared.h"

#define GPU "vulkan:0" /* software or not, it is one more device */

static struct model_store *store;
static struct worker_pool *pool;
static sem_t ended;
static bool has_gpu;

/* A job whose carrier is kept at its end until somebody lets it go. */
static _Atomic(struct job *) held;
static sem_t let_go;

/* Somebody who looks at the devices all the time, as GET /v1/devices, /metrics and /readyz do. */
static pthread_t watcher;
static atomic_bool watching;

static void *watch(void *unused)
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

/* Waits until it holds; what never does fails the test, on the slowest machine, too. */
#define WAIT_UNTIL(condition)                                                                                          \
    for (const int64_t began_ns = job_now(); !(condition); wait_more(began_ns, #condition)) {                          \
    }

static void wait_more(int64_t began_ns, const char *condition)
{
    const struct timespec pause = {0, 5000000};
    if (job_now() - began_ns > INT64_C(600000000000))
        fail_msg("not in ten minutes: %s", condition);
    nanosleep(&pause, NULL);
}

static int open_store(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    const struct model_defaults defaults = {.name = {"detector", "face_64", "parser", "srvgg_x2"}};
    struct device_info *list;
    size_t count = 0;
    log_set_level(LOG_ERROR + 1); /* faults are errors */
    sem_init(&ended, 0, 0);
    sem_init(&let_go, 0, 0);
    if (model_store_create(&store, shared_fixtures(), &defaults, &err) || device_list(&list, &count, &err))
        fail_msg("%s", err.text);
    for (size_t i = 0; i < count; i++)
        has_gpu = has_gpu || (!strcmp(list[i].id, GPU) && list[i].usable);
    free(list);
    return 0;
}

static int close_store(void **state)
{
    (void)state;
    model_store_destroy(&store);
    return 0;
}

/* Of the next pools; start() sets the device and the workers. */
static struct worker_settings settings = {.queue = 8, .job_seconds = 300, .keep_seconds = 300};

/* Every pool begins with devices that nothing is known of. */
static int stop(void **state)
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
    settings.reopen_seconds = 0;
    return fault_set(NULL, &err);
}

static void start(const char *device, int workers, const char *faults)
{
    struct error err = ERROR_INIT;
    settings.device = device;
    settings.workers = workers;
    if (strstr(device, "vulkan") && !has_gpu) {
        printf("skip: there is no device " GPU "\n");
        skip();
    }
    if (fault_set(faults, &err) || worker_pool_create(&pool, &settings, store, &err))
        fail_msg("%s", err.text);
    atomic_store(&watching, true);
    assert_int_equal(pthread_create(&watcher, NULL, watch, NULL), 0);
}

/* Waits until it is ready or cannot be. */
static enum error_code settle(struct error *err)
{
    enum error_code code;
    WAIT_UNTIL((error_clear(err), (code = worker_pool_ready(pool, err)) != ERROR_BUSY));
    return code;
}

static void on_end(struct job *job, void *context)
{
    (void)context;
    if (atomic_load(&held) == job) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 60;
        while (sem_timedwait(&let_go, &until) && errno == EINTR)
            ;
        atomic_store(&held, NULL);
    }
    sem_post(&ended);
}

/* A job that doubles a small picture by the network srvgg_x2, which is where the faults are. options: more of them,
 * name, value, ..., NULL. */
static struct job *make_of(const char *picture, const char *device, const char *const *options)
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
    assert_int_equal(job_create(&job, id, &r, &body, on_end, NULL, &err), OK);
    file_unmap(&file);
    return job;
}

static struct job *make_with(const char *device, const char *const *options)
{
    return make_of("none.png", device, options);
}

#define OPTIONS(...) ((const char *const[]){__VA_ARGS__, NULL})

static struct job *make(const char *device)
{
    return make_with(device, (const char *const[]){NULL});
}

static struct job *submit_it(struct job *job)
{
    struct error err = ERROR_INIT;
    if (worker_pool_submit(pool, job, &err))
        fail_msg("%s", err.text);
    return job;
}

/* One that the pool took; NULL: it is busy. */
static struct job *taken(void)
{
    struct error err = ERROR_INIT;
    struct job *job = make("auto");
    if (worker_pool_submit(pool, job, &err)) {
        assert_int_equal(err.code, ERROR_BUSY);
        job_release(&job);
    }
    return job;
}

static struct job *submit(const char *device)
{
    return submit_it(make(device));
}

static void wait_end(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 600; /* a job that never ends fails the test, on the slowest machine, too */
    while (sem_timedwait(&ended, &until))
        if (errno != EINTR)
            fail_msg("no job has ended for ten minutes");
}

static struct job *finish(struct job *job, enum job_state state)
{
    wait_end();
    if (atomic_load(&job->state) != state)
        fail_msg("the job's state is %d: %s", (int)atomic_load(&job->state), job->error.text);
    return job;
}

static bool noted(const struct job *job, const char *text)
{
    for (int i = 0; i < job->restoration->note_count; i++)
        if (!strcmp(job->restoration->notes[i], text))
            return true;
    return false;
}

static struct device_status status_of(const char *id)
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

static uint64_t handed_over(void)
{
    struct stats_totals totals;
    stats_read(worker_pool_stats(pool), &totals);
    return totals.handed_over;
}

static void test_lost_once(void **state)
{
    (void)state;
    start("cpu", 1,
          "lost@run:1,device=cpu,plan=trial ; lost@run:1,device=cpu,plan=srvgg"); /* the trial is none of a job */
    struct job *job = finish(submit("auto"), JOB_DONE);
    assert_string_equal(job->restoration->device, "cpu");
    assert_true(noted(job, "cpu was lost while it worked on this picture, and was opened again"));
    const struct device_status cpu = status_of("cpu");
    assert_int_equal(cpu.lost, 1);
    assert_int_equal(cpu.jobs_done, 1);
    assert_int_equal(cpu.jobs_failed, 0);
    assert_int_equal(cpu.state, DEVICE_IDLE);
    assert_int_equal(handed_over(), 0);
    job_release(&job);
}

static void test_handed_over(void **state)
{
    (void)state;
    start(GPU, 1, "lost@run:1,until=2,device=" GPU ",plan=srvgg");
    struct job *job = finish(submit("auto"), JOB_DONE);
    assert_string_equal(job->restoration->device, "cpu");
    assert_true(noted(job, GPU " was lost again, so another device restored this picture"));
    assert_true(job->restoration->output_bytes > 0);
    assert_int_equal(handed_over(), 1);
    struct device_status gpu = status_of(GPU), cpu = status_of("cpu");
    assert_int_equal(gpu.lost, 2);
    assert_int_equal(gpu.jobs_failed, 1);
    assert_int_equal(gpu.jobs_done, 0);
    assert_int_equal(gpu.state, DEVICE_LOST);
    assert_non_null(strstr(gpu.reason, "the device was lost"));
    assert_string_equal(gpu.current_job, "");
    assert_int_equal(gpu.info.memory_used, 0);
    assert_int_equal(cpu.jobs_done, 1);
    assert_true(cpu.is_default);
    assert_string_equal(cpu.reason, "");
    job_release(&job);

    /* the other one goes on, without being told by a failure each time */
    struct error err = ERROR_INIT;
    assert_int_equal(settle(&err), OK);
    job = finish(submit("auto"), JOB_DONE);
    assert_string_equal(job->restoration->device, "cpu");
    assert_int_equal(job->restoration->note_count, 0);
    assert_int_equal(handed_over(), 1);
    job_release(&job);

    /* whoever names it makes it try again */
    job = finish(submit(GPU), JOB_DONE);
    assert_string_equal(job->restoration->device, GPU);
    gpu = status_of(GPU);
    assert_int_equal(gpu.state, DEVICE_IDLE);
    assert_string_equal(gpu.reason, "");
    assert_true(gpu.is_default);
    job_release(&job);
}

static void test_named_is_not_handed_over(void **state)
{
    (void)state;
    start(GPU, 1, "lost@run:1,until=2,device=" GPU ",plan=srvgg");
    struct job *job = finish(submit(GPU), JOB_FAILED);
    assert_int_equal(job->error.code, ERROR_DEVICE_LOST);
    assert_non_null(strstr(job->error.text, "the device was lost"));
    assert_int_equal(handed_over(), 0);
    assert_int_equal(status_of("cpu").jobs_done, 0);
    job_release(&job);
}

/* Software Vulkan is no way out for a job that did not name it. */
static void test_nowhere_to_go(void **state)
{
    (void)state;
    settings.reopen_seconds = 3600; /* so that only a job opens it again */
    start("cpu", 1, "lost@run:1,until=2,device=cpu,plan=srvgg");
    struct device_info *list;
    size_t count = 0;
    struct error err = ERROR_INIT;
    assert_int_equal(device_list(&list, &count, &err), OK);
    const bool others = count > 1 && list[0].type < DEVICE_CPU;
    free(list);
    if (others) {
        printf("skip: this machine has a GPU, too\n");
        skip();
    }
    struct job *job = finish(submit("auto"), JOB_FAILED);
    assert_int_equal(job->error.code, ERROR_DEVICE_LOST);
    assert_int_equal(handed_over(), 0);
    job_release(&job);
    /* who asks is not told of that picture; the next job may come, and opens it again */
    assert_int_equal(worker_pool_ready(pool, &err), ERROR_DEVICE_LOST);
    assert_non_null(strstr(err.text, "cpu: it was lost (cpu could not run: the device was lost (injected)), and is "
                                     "opened again every 3600 seconds and for the next job"));
    job = finish(submit("auto"), JOB_DONE);
    assert_string_equal(job->restoration->device, "cpu");
    job_release(&job);
    error_clear(&err);
    assert_int_equal(settle(&err), OK);
}

/* Without a job it comes back by itself. */
static void test_comes_back(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    settings.reopen_seconds = 1;
    start("cpu", 1, "lost@run:1,until=2,device=cpu,plan=srvgg");
    struct job *job = finish(submit("cpu"), JOB_FAILED);
    assert_int_equal(job->error.code, ERROR_DEVICE_LOST);
    job_release(&job);
    WAIT_UNTIL(status_of("cpu").state == DEVICE_IDLE);
    assert_int_equal(status_of("cpu").lost, 2);
    assert_int_equal(settle(&err), OK);
}

/* One job after the other: all by the first of the list, whichever that is; two at once: one by each. */
static void test_preference(void **state)
{
    const char *const lists[][3] = {{"cpu," GPU, "cpu", GPU}, {GPU ",cpu", GPU, "cpu"}};
    for (int i = 0; i < 2; i++) {
        start(lists[i][0], 1, NULL);
        WAIT_UNTIL(status_of(GPU).open && status_of("cpu").open);
        for (int n = 0; n < 13; n++) { /* the first names it: then it waits for jobs, which `open` does not say */
            struct job *job = finish(submit(n ? "auto" : lists[i][1]), JOB_DONE);
            assert_string_equal(job->restoration->device, lists[i][1]);
            job_release(&job);
        }
        assert_true(status_of(lists[i][1]).is_default);
        bool both = false; /* the first may be done before the second is there */
        for (int n = 0; n < 50 && !both; n++) {
            struct job *one = submit("auto"), *two = submit("auto");
            wait_end();
            wait_end();
            const char *ran[] = {one->restoration->device, two->restoration->device};
            const bool second = !strcmp(ran[1], lists[i][2]); /* whichever picture was read first */
            assert_string_equal(ran[!second], lists[i][1]);
            both = strcmp(ran[0], ran[1]) != 0;
            job_release(&one);
            job_release(&two);
        }
        assert_true(both);
        assert_int_equal(stop(state), OK);
    }
}

/* A server that drains still hands on what it has. */
static void test_drain(void **state)
{
    (void)state;
    start(GPU, 1, "lost@run:1,until=2,device=" GPU ",plan=srvgg");
    struct job *job = submit("auto");
    worker_pool_drain(pool);
    finish(job, JOB_DONE);
    assert_string_equal(job->restoration->device, "cpu");
    job_release(&job);
}

/* A device that computes wrongly takes no job, and says why; the others go on. */
static void test_disabled(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    start("cpu," GPU, 2, "nan@run:1,repeat,device=cpu,plan=selftest");
    assert_int_equal(settle(&err), OK);
    struct job *job = finish(submit("auto"), JOB_DONE);
    assert_string_equal(job->restoration->device, GPU);
    job_release(&job);
    const struct device_status cpu = status_of("cpu"), gpu = status_of(GPU);
    assert_int_equal(cpu.state, DEVICE_DISABLED);
    assert_int_equal(cpu.test.fp32.state, SELFTEST_FAILED);
    assert_true(*cpu.reason);
    assert_false(cpu.open);
    assert_false(cpu.is_default);
    assert_int_equal(cpu.jobs_failed, 0);
    assert_int_equal(gpu.test.fp32.state, SELFTEST_PASSED);
    assert_true(gpu.is_default);
    job = make("cpu");
    assert_int_equal(worker_pool_submit(pool, job, &err), ERROR_DEVICE_DISABLED);
    assert_non_null(strstr(err.text, "device: \"cpu\" cannot be used: "));
    job_release(&job);
}

/* The only one that was chosen is disabled: the next in the order takes its place. */
static void test_disabled_chosen(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    start(GPU, 1, "nan@run:1,repeat,device=" GPU ",plan=selftest");
    struct job *job = finish(submit("auto"), JOB_DONE); /* it was queued for the other */
    assert_string_equal(job->restoration->device, "cpu");
    job_release(&job);
    assert_int_equal(settle(&err), OK);
    assert_true(status_of("cpu").is_default);
    assert_int_equal(status_of(GPU).state, DEVICE_DISABLED);
}

static void test_all_disabled(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    start("cpu", 1, "lost@open:1,repeat,device=cpu");
    if (settle(&err) == OK) {
        printf("skip: this machine has a GPU, too\n");
        skip();
    }
    assert_int_equal(err.code, ERROR_DEVICE_DISABLED);
    assert_non_null(strstr(err.text, "cpu: "));
    error_clear(&err);
    struct job *job = make("auto");
    assert_int_equal(worker_pool_submit(pool, job, &err), ERROR_DEVICE_DISABLED);
    assert_non_null(strstr(err.text, "there is no usable device"));
    job_release(&job);
}

/* A device that only a job names gets its workers then, and keeps them; nobody else's jobs go there. */
static void test_on_demand(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    if (!has_gpu) {
        printf("skip: there is no device " GPU "\n");
        skip();
    }
    start("cpu", 1, NULL);
    assert_int_equal(settle(&err), OK);
    assert_false(status_of(GPU).open);
    assert_int_equal(status_of(GPU).test.fp32.state, SELFTEST_NOT_RUN);
    struct job *job = finish(submit(GPU), JOB_DONE);
    assert_string_equal(job->restoration->device, GPU);
    job_release(&job);
    const struct device_status gpu = status_of(GPU);
    assert_true(gpu.open);
    assert_true(gpu.info.memory_used > 0);
    assert_int_equal(gpu.test.fp32.state, SELFTEST_PASSED);
    assert_true(*gpu.reason);
    for (int i = 0; i < 3; i++) {
        job = finish(submit("auto"), JOB_DONE);
        assert_string_equal(job->restoration->device, "cpu");
        job_release(&job);
    }
}

/* A worker without a job gives back what it need not keep, by itself. */
static void test_keep(void **state)
{
    struct error err = ERROR_INIT;
    (void)state;
    start("cpu", 1, NULL);
    assert_int_equal(settle(&err), OK);
    struct job *job = finish(submit("auto"), JOB_DONE);
    job_release(&job);
    const uint64_t kept = status_of("cpu").info.memory_used;
    assert_int_equal(stop(state), OK);
    settings.keep_seconds = 0;
    start("cpu", 1, NULL);
    settings.keep_seconds = 300;
    assert_int_equal(settle(&err), OK);
    job = finish(submit("auto"), JOB_DONE);
    job_release(&job);
    WAIT_UNTIL(status_of("cpu").info.memory_used < kept);
    assert_true(status_of("cpu").info.memory_used > 0); /* the default models' weights */
}

/* Several workers of one device: one self-test, one row that adds up. */
static void test_workers(void **state)
{
    enum { WORKERS = 3, JOBS = 9 };
    struct error err = ERROR_INIT;
    struct job *jobs[JOBS];
    start("cpu", 1, "lost@open:100000,device=cpu");
    assert_int_equal(settle(&err), OK);
    assert_int_equal(fault_seen(0), 1); /* by the test, and the worker keeps it */
    const uint64_t alone = status_of("cpu").info.memory_used;
    assert_int_equal(stop(state), OK);

    start("cpu", WORKERS, "lost@open:100000,device=cpu");
    for (int i = 0; i < JOBS; i++)
        WAIT_UNTIL((jobs[i] = taken()) != NULL);
    for (int i = 0; i < JOBS; i++)
        wait_end();
    for (int i = 0; i < JOBS; i++)
        assert_int_equal(atomic_load(&jobs[i]->state), JOB_DONE);
    WAIT_UNTIL(fault_seen(0) >= WORKERS); /* the last worker may still be starting */
    const struct device_status cpu = status_of("cpu");
    assert_int_equal(fault_seen(0), WORKERS);
    assert_int_equal(cpu.jobs_done, JOBS);
    assert_int_equal(cpu.state, DEVICE_IDLE);
    assert_true(cpu.info.memory_used > alone);
    assert_true(cpu.info.memory_peak >= cpu.info.memory_used);
    double work = 0, first = 1e30, last = 0;
    for (int i = 0; i < JOBS; i++) {
        work += (double)(jobs[i]->finished_ns - jobs[i]->started_ns) / 1e9;
        first = jobs[i]->started_ns < first ? (double)jobs[i]->started_ns : first;
        last = jobs[i]->finished_ns > last ? (double)jobs[i]->finished_ns : last;
        job_release(&jobs[i]);
    }
    assert_true(cpu.busy_seconds <= (last - first) / 1e9 + 1e-6); /* work that was done at once counts once */
    assert_true(cpu.busy_seconds <= work + 1e-6);
    assert_true(cpu.busy_seconds > 0);
}

/* While the device works on one job the next ones' pictures are read; and what comes out is what comes out of jobs one
 * by one. */
static void test_read_ahead(void **state)
{
    (void)state;
    enum { JOBS = 5 };
    struct job *jobs[JOBS];
    struct error err = ERROR_INIT;
    start("cpu", 1, "slow@run:2,repeat,device=cpu,plan=srvgg");
    assert_int_equal(settle(&err), OK);
    struct job *alone = finish(submit("auto"), JOB_DONE);
    for (int i = 0; i < JOBS; i++)
        jobs[i] = submit("auto");
    for (int i = 0; i < JOBS; i++)
        wait_end();
    int64_t began = INT64_MAX;
    for (int i = 0; i < JOBS; i++) {
        const struct restoration *r = jobs[i]->restoration;
        assert_int_equal(atomic_load(&jobs[i]->state), JOB_DONE);
        assert_int_equal(r->output_bytes, alone->restoration->output_bytes);
        assert_memory_equal(r->output, alone->restoration->output, r->output_bytes);
        assert_null(r->picture); /* what waits for its client holds no pixels */
        assert_null(r->result);
        began = jobs[i]->started_ns < began ? jobs[i]->started_ns : began;
    }
    int read = 0; /* before the device was done with the first */
    double waited = 0;
    for (int i = 0; i < JOBS; i++) {
        const double *ms = jobs[i]->restoration->stage_ms;
        read += (double)(jobs[i]->started_ns - began) / 1e6 + ms[STAGE_DECODE] < FAULT_SLOW_MS;
        waited = ms[STAGE_QUEUE] > waited ? ms[STAGE_QUEUE] : waited;
    }
    assert_int_equal(read, 1 + CARRIERS_AHEAD);
    assert_true(waited > 0.9 * (JOBS - 1) * FAULT_SLOW_MS); /* for the device, and the last one for all others */
    for (int i = 0; i < JOBS; i++)
        job_release(&jobs[i]);
    job_release(&alone);
}

/* A result counts as memory of requests until it is sent, and the files of its faces do, too. */
static void test_results_count(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    start("cpu", 1, NULL);
    assert_int_equal(settle(&err), OK);
    struct job *job = make_of("two.png", "auto", OPTIONS("version", "face_64"));
    job->restoration->keep_faces = job->restoration->encode_faces = true;
    finish(submit_it(job), JOB_DONE);
    assert_int_equal(job->restoration->face_count, 2);
    size_t bytes = job->restoration->output_bytes;
    for (int i = 0; i < 2; i++) {
        assert_true(job->restoration->faces[i].crop_file.size > 0);
        bytes += job->restoration->faces[i].crop_file.size + job->restoration->faces[i].restoration_file.size;
    }
    assert_int_equal(inflight_used(worker_pool_inflight(pool)), bytes);
    job_release(&job);
    WAIT_UNTIL(inflight_used(worker_pool_inflight(pool)) == 0); /* its carrier may still hold it */
}

/* While one job's carrier is still busy with its result, the device does the next. */
static void test_write_behind(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    start("cpu", 1, NULL);
    assert_int_equal(settle(&err), OK);
    struct job *first = make("auto");
    atomic_store(&held, first);
    submit_it(first);
    for (int i = 0; i < 2 * CARRIERS; i++) {
        struct job *other = finish(submit("auto"), JOB_DONE);
        assert_ptr_equal(atomic_load(&held), first);
        job_release(&other);
    }
    sem_post(&let_go);
    finish(first, JOB_DONE);
    job_release(&first);
}

/* Cancelled wherever they are, at work, read ahead or waiting, jobs end once and the others are done. */
static void check_cancel(const char *device, int workers)
{
    enum { JOBS = 7 };
    struct error err = ERROR_INIT;
    start(device, workers, NULL);
    assert_int_equal(settle(&err), OK);
    for (int first = 0; first < 3; first++) {
        struct job *jobs[JOBS];
        for (int i = 0; i < JOBS; i++)
            jobs[i] = submit_it(make_with("auto", OPTIONS("upscale", "8", "bg_tile", "32")));
        for (int i = JOBS - 1; i >= 0; i--)
            if (i % 3 == first)
                worker_pool_cancel(pool, jobs[i], ERROR_CANCELLED);
        for (int i = 0; i < JOBS; i++)
            wait_end();
        assert_int_equal(sem_trywait(&ended), -1);
        for (int i = 0; i < JOBS; i++) {
            const enum job_state end = atomic_load(&jobs[i]->state);
            assert_true(end == JOB_DONE || (end == JOB_CANCELLED && i % 3 == first));
            if (end == JOB_CANCELLED)
                assert_string_equal(jobs[i]->error.text, "the job was cancelled");
            job_release(&jobs[i]);
        }
        WAIT_UNTIL(worker_pool_idle(pool)); /* the end is told before it is counted */
        assert_int_equal(queue_depth(worker_pool_queue(pool)), 0);
    }
    struct job *job = finish(submit("auto"), JOB_DONE);
    job_release(&job);
}

static void test_cancel(void **state)
{
    (void)state;
    check_cancel("cpu", 1);
}

/* There the device is at work on the next job before the last one is over. */
static void test_cancel_ahead(void **state)
{
    (void)state;
    check_cancel(GPU, 1);
}

static void test_turns(void **state)
{
    (void)state;
    check_cancel(GPU, 2);
}

static void test_lost_ahead(void **state)
{
    (void)state;
    static const char *const faults[] = {"lost@run:2,plan=srvgg", "lost@run:3,plan=srvgg", "lost@submit:9"};
    for (int i = 0; i < 3; i++) {
        struct job *jobs[4];
        struct error err = ERROR_INIT;
        start(GPU, 1, NULL);
        assert_int_equal(settle(&err), OK);
        assert_int_equal(fault_set(faults[i], &err), OK);
        for (int k = 0; k < 4; k++)
            jobs[k] = submit_it(make_with("auto", OPTIONS("bg_tile", "32")));
        for (int k = 0; k < 4; k++)
            wait_end();
        for (int k = 0; k < 4; k++) {
            if (atomic_load(&jobs[k]->state) != JOB_DONE)
                fail_msg("%s: %s", faults[i], jobs[k]->error.text);
            job_release(&jobs[k]);
        }
        assert_int_equal(stop(NULL), 0);
    }
}

/* A picture that cannot be read never gets to a device, and is no failure of it. */
static void test_broken(void **state)
{
    (void)state;
    start("cpu", 1, NULL);
    struct job *job = make("auto");
    memset(job->body.data + job->body.size / 2, 0, job->body.size / 2);
    finish(submit_it(job), JOB_FAILED);
    assert_int_equal(job->error.code, ERROR_CORRUPT);
    assert_false(job->restoration->decoded);
    assert_int_equal(status_of("cpu").jobs_failed, 0);
    job_release(&job);
}

/* The end with jobs everywhere. */
static void test_end(void **state)
{
    enum { JOBS = 7 };
    struct job *jobs[JOBS];
    struct error err = ERROR_INIT;
    for (int n = 0; n < 3; n++) {
        start("cpu", 1, NULL);
        if (n)
            assert_int_equal(settle(&err), OK);
        for (int i = 0; i < JOBS; i++)
            jobs[i] = submit_it(make_with("auto", OPTIONS("upscale", "8")));
        if (n == 2)
            wait_end();
        assert_int_equal(stop(state), OK);
        for (int i = 0; i < JOBS; i++) {
            if (n < 2 || i)
                wait_end();
            const enum job_state end = atomic_load(&jobs[i]->state);
            assert_true(end == JOB_DONE || end == JOB_CANCELLED);
            job_release(&jobs[i]);
        }
        assert_int_equal(sem_trywait(&ended), -1);
    }
}

/* Workers on the CPU divide its cores, unless the configuration says how many threads each has. */
static void test_cpu_threads(void **state)
{
    (void)state;
    const struct {
        int threads, handles;
        const char *end;
    } cases[] = {{0, 4096, ", 1 thread"}, {3, 4096, ", 3 threads"}, {3, 1, ", 3 threads"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        device_set_cpu_threads(cases[i].threads);
        device_set_cpu_handles(cases[i].handles);
        start("cpu", 1, NULL);
        assert_non_null(strstr(status_of("cpu").info.driver, cases[i].end));
        assert_int_equal(stop(state), OK);
    }
    device_set_cpu_threads(0);
    device_set_cpu_handles(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_lost_once, stop),
        cmocka_unit_test_teardown(test_handed_over, stop),
        cmocka_unit_test_teardown(test_named_is_not_handed_over, stop),
        cmocka_unit_test_teardown(test_nowhere_to_go, stop),
        cmocka_unit_test_teardown(test_comes_back, stop),
        cmocka_unit_test_teardown(test_preference, stop),
        cmocka_unit_test_teardown(test_drain, stop),
        cmocka_unit_test_teardown(test_disabled, stop),
        cmocka_unit_test_teardown(test_disabled_chosen, stop),
        cmocka_unit_test_teardown(test_all_disabled, stop),
        cmocka_unit_test_teardown(test_on_demand, stop),
        cmocka_unit_test_teardown(test_workers, stop),
        cmocka_unit_test_teardown(test_keep, stop),
        cmocka_unit_test_teardown(test_read_ahead, stop),
        cmocka_unit_test_teardown(test_results_count, stop),
        cmocka_unit_test_teardown(test_write_behind, stop),
        cmocka_unit_test_teardown(test_cancel, stop),
        cmocka_unit_test_teardown(test_cancel_ahead, stop),
        cmocka_unit_test_teardown(test_turns, stop),
        cmocka_unit_test_teardown(test_lost_ahead, stop),
        cmocka_unit_test_teardown(test_broken, stop),
        cmocka_unit_test_teardown(test_end, stop),
        cmocka_unit_test_teardown(test_cpu_threads, stop),
    };
    return cmocka_run_group_tests(tests, open_store, close_store);
}
