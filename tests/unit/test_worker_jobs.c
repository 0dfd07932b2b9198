/* Jobs on their way through the workers: read ahead, cancelled anywhere, their results sent while the next is at work.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/backend/fault.h"
#include "tests/common/pool.h"

/* While the device works on one job the next ones' pictures are read; and what comes out is what comes out of jobs one
 * by one. */
static void test_read_ahead(void **state)
{
    (void)state;
    enum { JOBS = 5 };
    struct job *jobs[JOBS];
    struct error err = ERROR_INIT;
    pool_start("cpu", 1, "slow@run:2,repeat,device=cpu,plan=srvgg");
    assert_int_equal(pool_settle(&err), OK);
    struct job *alone = pool_finish(pool_submit("auto"), JOB_DONE);
    for (int i = 0; i < JOBS; i++)
        jobs[i] = pool_submit("auto");
    for (int i = 0; i < JOBS; i++)
        pool_wait_end();
    int64_t running = INT64_MAX; /* since when the device has the first */
    for (int i = 0; i < JOBS; i++) {
        const struct restoration *r = jobs[i]->restoration;
        assert_int_equal(atomic_load(&jobs[i]->state), JOB_DONE);
        assert_int_equal(r->output_bytes, alone->restoration->output_bytes);
        assert_memory_equal(r->output, alone->restoration->output, r->output_bytes);
        assert_null(r->picture); /* what waits for its client holds no pixels */
        assert_null(r->result);
        const int64_t here = atomic_load(&jobs[i]->running_ns);
        running = here < running ? here : running;
    }
    int read = 0; /* before the device was done with the first */
    double waited = 0;
    for (int i = 0; i < JOBS; i++) {
        const double *ms = jobs[i]->restoration->stage_ms;
        read += (double)(jobs[i]->started_ns - running) / 1e6 + ms[STAGE_DECODE] < FAULT_SLOW_MS;
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
    pool_start("cpu", 1, NULL);
    assert_int_equal(pool_settle(&err), OK);
    struct job *job = pool_make_of("two.png", "auto", OPTIONS("version", "face_64"));
    job->restoration->keep_faces = job->restoration->encode_faces = true;
    pool_finish(pool_submit_it(job), JOB_DONE);
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
    pool_start("cpu", 1, NULL);
    assert_int_equal(pool_settle(&err), OK);
    struct job *first = pool_make("auto");
    atomic_store(&pool_held, first);
    pool_submit_it(first);
    for (int i = 0; i < 2 * CARRIERS; i++) {
        struct job *other = pool_finish(pool_submit("auto"), JOB_DONE);
        assert_ptr_equal(atomic_load(&pool_held), first);
        job_release(&other);
    }
    sem_post(&pool_let_go);
    pool_finish(first, JOB_DONE);
    job_release(&first);
}

/* Cancelled wherever they are, at work, read ahead or waiting, jobs end once and the others are done. */
static void check_cancel(const char *device, int workers)
{
    enum { JOBS = 7 };
    struct error err = ERROR_INIT;
    pool_start(device, workers, NULL);
    assert_int_equal(pool_settle(&err), OK);
    for (int first = 0; first < 3; first++) {
        struct job *jobs[JOBS];
        for (int i = 0; i < JOBS; i++)
            jobs[i] = pool_submit_it(pool_make_with("auto", OPTIONS("upscale", "8", "bg_tile", "32")));
        for (int i = JOBS - 1; i >= 0; i--)
            if (i % 3 == first)
                worker_pool_cancel(pool, jobs[i], ERROR_CANCELLED);
        for (int i = 0; i < JOBS; i++)
            pool_wait_end();
        assert_int_equal(sem_trywait(&pool_ended), -1);
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
    struct job *job = pool_finish(pool_submit("auto"), JOB_DONE);
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
        pool_start(GPU, 1, NULL);
        assert_int_equal(pool_settle(&err), OK);
        assert_int_equal(fault_set(faults[i], &err), OK);
        for (int k = 0; k < 4; k++)
            jobs[k] = pool_submit_it(pool_make_with("auto", OPTIONS("bg_tile", "32")));
        for (int k = 0; k < 4; k++)
            pool_wait_end();
        for (int k = 0; k < 4; k++) {
            if (atomic_load(&jobs[k]->state) != JOB_DONE)
                fail_msg("%s: %s", faults[i], jobs[k]->error.text);
            job_release(&jobs[k]);
        }
        assert_int_equal(pool_stop(NULL), 0);
    }
}

/* A picture that cannot be read never gets to a device, and is no failure of it. */
static void test_broken(void **state)
{
    (void)state;
    pool_start("cpu", 1, NULL);
    struct job *job = pool_make("auto");
    memset(job->body.data + job->body.size / 2, 0, job->body.size / 2);
    pool_finish(pool_submit_it(job), JOB_FAILED);
    assert_int_equal(job->error.code, ERROR_CORRUPT);
    assert_false(job->restoration->decoded);
    assert_int_equal(pool_status("cpu").jobs_failed, 0);
    job_release(&job);
}

/* The end with jobs everywhere. */
static void test_end(void **state)
{
    enum { JOBS = 7 };
    struct job *jobs[JOBS];
    struct error err = ERROR_INIT;
    for (int n = 0; n < 3; n++) {
        pool_start("cpu", 1, NULL);
        if (n)
            assert_int_equal(pool_settle(&err), OK);
        for (int i = 0; i < JOBS; i++)
            jobs[i] = pool_submit_it(pool_make_with("auto", OPTIONS("upscale", "8")));
        if (n == 2)
            pool_wait_end();
        assert_int_equal(pool_stop(state), OK);
        for (int i = 0; i < JOBS; i++) {
            if (n < 2 || i)
                pool_wait_end();
            const enum job_state end = atomic_load(&jobs[i]->state);
            assert_true(end == JOB_DONE || end == JOB_CANCELLED);
            job_release(&jobs[i]);
        }
        assert_int_equal(sem_trywait(&pool_ended), -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_read_ahead, pool_stop),
        cmocka_unit_test_teardown(test_results_count, pool_stop),
        cmocka_unit_test_teardown(test_write_behind, pool_stop),
        cmocka_unit_test_teardown(test_cancel, pool_stop),
        cmocka_unit_test_teardown(test_cancel_ahead, pool_stop),
        cmocka_unit_test_teardown(test_turns, pool_stop),
        cmocka_unit_test_teardown(test_lost_ahead, pool_stop),
        cmocka_unit_test_teardown(test_broken, pool_stop),
        cmocka_unit_test_teardown(test_end, pool_stop),
    };
    return cmocka_run_group_tests(tests, pool_open, pool_close);
}
