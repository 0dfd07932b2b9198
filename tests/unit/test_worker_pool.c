/* The workers of several devices: who does a job, what becomes of it when its device fails, and what the table of
 * devices says then. The devices are the machine's own, "cpu" and a Vulkan one, with faults on demand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/backend/fault.h"
#include "tests/common/pool.h"

static bool noted(const struct job *job, const char *text)
{
    for (int i = 0; i < job->restoration->note_count; i++)
        if (!strcmp(job->restoration->notes[i], text))
            return true;
    return false;
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
    pool_start("cpu", 1,
               "lost@run:1,device=cpu,plan=trial ; lost@run:1,device=cpu,plan=srvgg"); /* the trial is none of a job */
    struct job *job = pool_finish(pool_submit("auto"), JOB_DONE);
    assert_string_equal(job->restoration->device, "cpu");
    assert_true(noted(job, "cpu was lost while it worked on this picture, and was opened again"));
    const struct device_status cpu = pool_status("cpu");
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
    pool_start(GPU, 1, "lost@run:1,until=2,device=" GPU ",plan=srvgg");
    struct job *job = pool_finish(pool_submit("auto"), JOB_DONE);
    assert_string_equal(job->restoration->device, "cpu");
    assert_true(noted(job, GPU " was lost again, so another device restored this picture"));
    assert_true(job->restoration->output_bytes > 0);
    assert_int_equal(handed_over(), 1);
    struct device_status gpu = pool_status(GPU), cpu = pool_status("cpu");
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
    assert_int_equal(pool_settle(&err), OK);
    job = pool_finish(pool_submit("auto"), JOB_DONE);
    assert_string_equal(job->restoration->device, "cpu");
    assert_int_equal(job->restoration->note_count, 0);
    assert_int_equal(handed_over(), 1);
    job_release(&job);

    /* whoever names it makes it try again */
    job = pool_finish(pool_submit(GPU), JOB_DONE);
    assert_string_equal(job->restoration->device, GPU);
    gpu = pool_status(GPU);
    assert_int_equal(gpu.state, DEVICE_IDLE);
    assert_string_equal(gpu.reason, "");
    assert_true(gpu.is_default);
    job_release(&job);
}

static void test_named_is_not_handed_over(void **state)
{
    (void)state;
    pool_start(GPU, 1, "lost@run:1,until=2,device=" GPU ",plan=srvgg");
    struct job *job = pool_finish(pool_submit(GPU), JOB_FAILED);
    assert_int_equal(job->error.code, ERROR_DEVICE_LOST);
    assert_non_null(strstr(job->error.text, "the device was lost"));
    assert_int_equal(handed_over(), 0);
    assert_int_equal(pool_status("cpu").jobs_done, 0);
    job_release(&job);
}

/* Software Vulkan is no way out for a job that did not name it. */
static void test_nowhere_to_go(void **state)
{
    (void)state;
    pool_settings.reopen_seconds = 3600; /* so that only a job opens it again */
    pool_start("cpu", 1, "lost@run:1,until=2,device=cpu,plan=srvgg");
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
    struct job *job = pool_finish(pool_submit("auto"), JOB_FAILED);
    assert_int_equal(job->error.code, ERROR_DEVICE_LOST);
    assert_int_equal(handed_over(), 0);
    job_release(&job);
    /* who asks is not told of that picture; the next job may come, and opens it again */
    assert_int_equal(worker_pool_ready(pool, &err), ERROR_DEVICE_LOST);
    assert_non_null(strstr(err.text, "cpu: it was lost (cpu could not run: the device was lost (injected)), and is "
                                     "opened again every 3600 seconds and for the next job"));
    job = pool_finish(pool_submit("auto"), JOB_DONE);
    assert_string_equal(job->restoration->device, "cpu");
    job_release(&job);
    error_clear(&err);
    assert_int_equal(pool_settle(&err), OK);
}

/* Without a job it comes back by itself. */
static void test_comes_back(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    pool_settings.reopen_seconds = 1;
    pool_start("cpu", 1, "lost@run:1,until=2,device=cpu,plan=srvgg");
    struct job *job = pool_finish(pool_submit("cpu"), JOB_FAILED);
    assert_int_equal(job->error.code, ERROR_DEVICE_LOST);
    job_release(&job);
    WAIT_UNTIL(pool_status("cpu").state == DEVICE_IDLE);
    assert_int_equal(pool_status("cpu").lost, 2);
    assert_int_equal(pool_settle(&err), OK);
}

/* A call for help wakes whoever may help another server, not a worker whose device is lost. */
static void test_call_while_lost(void **state)
{
    (void)state;
    pool_settings.reopen_seconds = 3600;
    pool_settings.shares = true;
    pool_start(GPU ",cpu", 1, "lost@run:1,until=2,device=" GPU ",plan=srvgg");
    struct job *job = pool_finish(pool_submit(GPU), JOB_FAILED);
    job_release(&job);
    for (int i = 0; i < 30; i++) { /* long enough to open it again */
        queue_call(worker_pool_queue(pool));
        nanosleep(&(const struct timespec){0, 100000000}, NULL);
        assert_int_equal(pool_status(GPU).state, DEVICE_LOST);
    }
    job = pool_finish(pool_submit(GPU), JOB_DONE);
    job_release(&job);
}

/* One job after the other: all by the first of the list, whichever that is; two at once: one by each. */
static void test_preference(void **state)
{
    const char *const lists[][3] = {{"cpu," GPU, "cpu", GPU}, {GPU ",cpu", GPU, "cpu"}};
    for (int i = 0; i < 2; i++) {
        pool_start(lists[i][0], 1, NULL);
        WAIT_UNTIL(pool_status(GPU).open && pool_status("cpu").open);
        for (int n = 0; n < 13; n++) { /* the first names it: then it waits for jobs, which `open` does not say */
            struct job *job = pool_finish(pool_submit(n ? "auto" : lists[i][1]), JOB_DONE);
            assert_string_equal(job->restoration->device, lists[i][1]);
            job_release(&job);
        }
        assert_true(pool_status(lists[i][1]).is_default);
        bool both = false; /* the first may be done before the second is there */
        for (int n = 0; n < 50 && !both; n++) {
            struct job *one = pool_submit("auto"), *two = pool_submit("auto");
            pool_wait_end();
            pool_wait_end();
            const char *ran[] = {one->restoration->device, two->restoration->device};
            const bool second = !strcmp(ran[1], lists[i][2]); /* whichever picture was read first */
            assert_string_equal(ran[!second], lists[i][1]);
            both = strcmp(ran[0], ran[1]) != 0;
            job_release(&one);
            job_release(&two);
        }
        assert_true(both);
        assert_int_equal(pool_stop(state), OK);
    }
}

/* A server that drains still hands on what it has. */
static void test_drain(void **state)
{
    (void)state;
    pool_start(GPU, 1, "lost@run:1,until=2,device=" GPU ",plan=srvgg");
    struct job *job = pool_submit("auto");
    worker_pool_drain(pool);
    pool_finish(job, JOB_DONE);
    assert_string_equal(job->restoration->device, "cpu");
    job_release(&job);
}

/* A device that computes wrongly takes no job, and says why; the others go on. */
static void test_disabled(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    pool_start("cpu," GPU, 2, "nan@run:1,repeat,device=cpu,plan=selftest");
    assert_int_equal(pool_settle(&err), OK);
    struct job *job = pool_finish(pool_submit("auto"), JOB_DONE);
    assert_string_equal(job->restoration->device, GPU);
    job_release(&job);
    const struct device_status cpu = pool_status("cpu"), gpu = pool_status(GPU);
    assert_int_equal(cpu.state, DEVICE_DISABLED);
    assert_int_equal(cpu.test.fp32.state, SELFTEST_FAILED);
    assert_true(*cpu.reason);
    assert_false(cpu.open);
    assert_false(cpu.is_default);
    assert_int_equal(cpu.jobs_failed, 0);
    assert_int_equal(gpu.test.fp32.state, SELFTEST_PASSED);
    assert_true(gpu.is_default);
    job = pool_make("cpu");
    assert_int_equal(worker_pool_submit(pool, job, &err), ERROR_DEVICE_DISABLED);
    assert_non_null(strstr(err.text, "device: \"cpu\" cannot be used: "));
    job_release(&job);
}

/* The only one that was chosen is disabled: the next in the order takes its place. */
static void test_disabled_chosen(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    pool_start(GPU, 1, "nan@run:1,repeat,device=" GPU ",plan=selftest");
    struct job *job = pool_finish(pool_submit("auto"), JOB_DONE); /* it was queued for the other */
    assert_string_equal(job->restoration->device, "cpu");
    job_release(&job);
    assert_int_equal(pool_settle(&err), OK);
    assert_true(pool_status("cpu").is_default);
    assert_int_equal(pool_status(GPU).state, DEVICE_DISABLED);
}

static void test_all_disabled(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    pool_start("cpu", 1, "lost@open:1,repeat,device=cpu");
    if (pool_settle(&err) == OK) {
        printf("skip: this machine has a GPU, too\n");
        skip();
    }
    assert_int_equal(err.code, ERROR_DEVICE_DISABLED);
    assert_non_null(strstr(err.text, "cpu: "));
    error_clear(&err);
    struct job *job = pool_make("auto");
    assert_int_equal(worker_pool_submit(pool, job, &err), ERROR_DEVICE_DISABLED);
    assert_non_null(strstr(err.text, "there is no usable device"));
    job_release(&job);
}

/* A device that only a job names gets its workers then, and keeps them; nobody else's jobs go there. */
static void test_on_demand(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    if (!pool_has_gpu) {
        printf("skip: there is no device " GPU "\n");
        skip();
    }
    pool_start("cpu", 1, NULL);
    assert_int_equal(pool_settle(&err), OK);
    assert_false(pool_status(GPU).open);
    assert_int_equal(pool_status(GPU).test.fp32.state, SELFTEST_NOT_RUN);
    struct job *job = pool_finish(pool_submit(GPU), JOB_DONE);
    assert_string_equal(job->restoration->device, GPU);
    job_release(&job);
    const struct device_status gpu = pool_status(GPU);
    assert_true(gpu.open);
    assert_true(gpu.info.memory_used > 0);
    assert_int_equal(gpu.test.fp32.state, SELFTEST_PASSED);
    assert_true(*gpu.reason);
    for (int i = 0; i < 3; i++) {
        job = pool_finish(pool_submit("auto"), JOB_DONE);
        assert_string_equal(job->restoration->device, "cpu");
        job_release(&job);
    }
}

/* A worker without a job gives back what it need not keep, by itself. */
static void test_keep(void **state)
{
    struct error err = ERROR_INIT;
    (void)state;
    pool_start("cpu", 1, NULL);
    assert_int_equal(pool_settle(&err), OK);
    struct job *job = pool_finish(pool_submit("auto"), JOB_DONE);
    job_release(&job);
    const uint64_t kept = pool_status("cpu").info.memory_used;
    assert_int_equal(pool_stop(state), OK);
    pool_settings.keep_seconds = 0;
    pool_start("cpu", 1, NULL);
    pool_settings.keep_seconds = 300;
    assert_int_equal(pool_settle(&err), OK);
    job = pool_finish(pool_submit("auto"), JOB_DONE);
    job_release(&job);
    WAIT_UNTIL(pool_status("cpu").info.memory_used < kept);
    assert_true(pool_status("cpu").info.memory_used > 0); /* the default models' weights */
}

/* Several workers of one device: one self-test, one row that adds up. */
static void test_workers(void **state)
{
    enum { WORKERS = 3, JOBS = 9 };
    struct error err = ERROR_INIT;
    struct job *jobs[JOBS];
    pool_start("cpu", 1, "lost@open:100000,device=cpu");
    assert_int_equal(pool_settle(&err), OK);
    assert_int_equal(fault_seen(0), 1); /* by the test, and the worker keeps it */
    const uint64_t alone = pool_status("cpu").info.memory_used;
    assert_int_equal(pool_stop(state), OK);

    pool_start("cpu", WORKERS, "lost@open:100000,device=cpu");
    for (int i = 0; i < JOBS; i++)
        WAIT_UNTIL((jobs[i] = pool_taken()) != NULL);
    for (int i = 0; i < JOBS; i++)
        pool_wait_end();
    for (int i = 0; i < JOBS; i++)
        assert_int_equal(atomic_load(&jobs[i]->state), JOB_DONE);
    WAIT_UNTIL(fault_seen(0) >= WORKERS); /* the last worker may still be starting */
    const struct device_status cpu = pool_status("cpu");
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
        pool_start("cpu", 1, NULL);
        assert_non_null(strstr(pool_status("cpu").info.driver, cases[i].end));
        assert_int_equal(pool_stop(state), OK);
    }
    device_set_cpu_threads(0);
    device_set_cpu_handles(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_lost_once, pool_stop),
        cmocka_unit_test_teardown(test_handed_over, pool_stop),
        cmocka_unit_test_teardown(test_named_is_not_handed_over, pool_stop),
        cmocka_unit_test_teardown(test_nowhere_to_go, pool_stop),
        cmocka_unit_test_teardown(test_comes_back, pool_stop),
        cmocka_unit_test_teardown(test_call_while_lost, pool_stop),
        cmocka_unit_test_teardown(test_preference, pool_stop),
        cmocka_unit_test_teardown(test_drain, pool_stop),
        cmocka_unit_test_teardown(test_disabled, pool_stop),
        cmocka_unit_test_teardown(test_disabled_chosen, pool_stop),
        cmocka_unit_test_teardown(test_all_disabled, pool_stop),
        cmocka_unit_test_teardown(test_on_demand, pool_stop),
        cmocka_unit_test_teardown(test_keep, pool_stop),
        cmocka_unit_test_teardown(test_workers, pool_stop),
        cmocka_unit_test_teardown(test_cpu_threads, pool_stop),
    };
    return cmocka_run_group_tests(tests, pool_open, pool_close);
}
