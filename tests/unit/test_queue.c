/* The bounded queue and the references of jobs, with threads on both ends. Whose turn it is: test_turns.c. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/common/queued.h"

static void test_order_and_limit(void **state)
{
    (void)state;
    struct queue *queue;
    struct error err = ERROR_INIT;
    assert_int_equal(queue_create(&queue, 2, 9, &err), OK);
    struct job *a = queued_make("a"), *b = queued_make("b"), *c = queued_make("c");
    assert_int_equal(queue_push(queue, a, &err), OK);
    assert_int_equal(queue_push(queue, b, &err), OK);
    assert_int_equal(queue_push(queue, c, &err), ERROR_BUSY);
    assert_non_null(strstr(err.text, "the queue is full: 2 jobs wait"));
    assert_int_equal(queue_depth(queue), 2);
    struct job *kept = c; /* one that was accepted before is not refused */
    c->accepted = true;
    error_clear(&err);
    assert_int_equal(queue_push(queue, c, &err), OK);
    assert_true(queue_remove(queue, c));
    job_release(&kept);
    c->accepted = false;
    queued_carry(queue, a);
    struct job *got = queue_pop(queue, 0, true, -1);
    assert_ptr_equal(got, a);
    job_release(&got);
    error_clear(&err);
    assert_int_equal(queue_push(queue, c, &err), OK);

    /* from the middle, the end and not at all */
    struct job *removed = c;
    assert_true(queue_remove(queue, c));
    job_release(&removed);
    assert_false(queue_remove(queue, c));
    assert_false(queue_remove(queue, a));
    assert_int_equal(queue_push(queue, a, &err), OK);
    assert_int_equal(queue_depth(queue), 2);

    /* by age: a is the oldest, b the first */
    assert_null(queue_take_older(queue, a->created_ns));
    struct job *old = queue_take_older(queue, b->created_ns + 1);
    assert_ptr_equal(old, b);
    job_release(&old);

    queue_close(queue);
    assert_true(queue_closed(queue));
    assert_int_equal(queue_push(queue, c, &err), ERROR_BUSY);
    assert_non_null(strstr(err.text, "shutting down"));
    got = queue_pop(queue, 0, true, -1); /* what is in it still comes out */
    assert_ptr_equal(got, a);
    job_release(&got);
    assert_false(queue_ended(queue));
    queue_end(queue);
    assert_true(queue_ended(queue));
    assert_null(queue_pop(queue, 0, true, -1));
    job_release(&a);
    job_release(&b);
    job_release(&c);
    assert_null(c);
    queue_destroy(&queue);
}

static void test_timeout(void **state)
{
    (void)state;
    struct queue *queue;
    struct error err = ERROR_INIT;
    assert_int_equal(queue_create(&queue, 1, 1, &err), OK);
    int64_t before = job_now();
    assert_null(queue_pop(queue, 0, true, 30));
    assert_true(job_now() - before >= 29000000);
    queue_destroy(&queue);
}

/* Every device takes the oldest job that it may run. */
static void test_devices(void **state)
{
    (void)state;
    struct queue *queue;
    struct error err = ERROR_INIT;
    assert_int_equal(queue_create(&queue, 8, 9, &err), OK);
    struct job *named = queued_push_read(queue, "named", 1u << 1),
               *any = queued_push_read(queue, "any", 1u << 0 | 1u << 1);
    struct job *last = queued_push_read(queue, "last", 1u << 31),
               *other = queued_push_read(queue, "other", 1u << 0 | 1u << 1);
    queued_expect(queue, 2, true, NULL);
    queued_expect(queue, 0, true, any); /* not the oldest, which names device 1 */
    queued_expect(queue, 1, true, named);
    queued_expect(queue, 31, true, last);
    queued_expect(queue, 1, true, other);
    assert_int_equal(queue_depth(queue), 0);
    queue_destroy(&queue);
}

/* An idle worker of a preferred device gets what it may run, though it comes later than the others to take it. */
static void test_preference(void **state)
{
    (void)state;
    struct queue *queue;
    struct error err = ERROR_INIT;
    assert_int_equal(queue_create(&queue, 8, 9, &err), OK);
    const uint32_t both = 1u << 0 | 1u << 1;
    struct job *first = queued_push_read(queue, "first", both), *second = queued_push_read(queue, "second", both);
    struct job *third = queued_push_read(queue, "third", both), *named = queued_push_read(queue, "named", 1u << 1);
    queue_idle(queue, 0);
    queue_idle(queue, 1);
    queued_expect(queue, 1, true, named); /* device 0 may not run it; the rest is left to that */
    queue_idle(queue, 1);
    queued_expect(queue, 1, true, NULL);
    queued_expect(queue, 0, true, first);
    queued_expect(queue, 1, true, second); /* device 0 is at work */
    queue_idle(queue, 0);
    queue_idle(queue, 0); /* two workers */
    queue_idle(queue, 1);
    queued_expect(queue, 1, true, NULL);
    queued_expect(queue, 0, true, third);
    struct job *fourth = queued_push_read(queue, "fourth", both);
    queued_expect(queue, 1, true, NULL); /* its other one is still there */
    queued_expect(queue, 0, true, fourth);
    struct job *fifth = queued_push_read(queue, "fifth", both);
    queued_expect(queue, 1, true, fifth);
    /* ahead of its turn a job is only taken where nobody is idle who may run it */
    struct job *sixth = queued_push_read(queue, "sixth", both), *seventh = queued_push_read(queue, "seventh", 1u << 1);
    queue_idle(queue, 0);
    struct job *got = queue_pop_ahead(queue, 1);
    assert_ptr_equal(got, seventh);
    assert_null(queue_pop_ahead(queue, 0));
    queued_expect(queue, 0, true, sixth);
    job_release(&got);
    job_release(&seventh);
    struct job *eighth = queued_push_read(queue, "eighth", both);
    got = queue_pop_ahead(queue, 0);
    assert_ptr_equal(got, eighth);
    assert_null(queue_pop_ahead(queue, 0));
    job_release(&got);
    job_release(&eighth);
    queue_destroy(&queue);
}

struct sleeper {
    pthread_t thread;
    struct queue *queue;
    int device;
    unsigned calls;
    struct job *got;
};

static void *sleep_for_one(void *argument)
{
    struct sleeper *sleeper = argument;
    queue_idle(sleeper->queue, sleeper->device);
    sleeper->got = queue_pop(sleeper->queue, sleeper->device, true, 600000);
    return NULL;
}

/* Who has left a job to a better device wakes when that has taken another one. */
static void test_preference_wakes(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    const struct timespec pause = {0, 50000000};
    struct sleeper sleeper = {.device = 1};
    assert_int_equal(queue_create(&sleeper.queue, 8, 9, &err), OK);
    queue_idle(sleeper.queue, 0);
    assert_int_equal(pthread_create(&sleeper.thread, NULL, sleep_for_one, &sleeper), 0);
    struct job *best = queued_push_read(sleeper.queue, "best", 3), *left = queued_push_read(sleeper.queue, "left", 3);
    nanosleep(&pause, NULL); /* it has seen both, and sleeps again */
    queued_expect(sleeper.queue, 0, true, best);
    const int64_t began = job_now();
    pthread_join(sleeper.thread, NULL);
    assert_true(job_now() - began < INT64_C(300000000000));
    assert_ptr_equal(sleeper.got, left);
    job_release(&sleeper.got);
    job_release(&left);
    queue_destroy(&sleeper.queue);
}

static void *sleep_for_a_call(void *argument)
{
    struct sleeper *sleeper = argument;
    sleeper->got = queue_await(sleeper->queue, 0, true, 600000, &sleeper->calls);
    return NULL;
}

/* Whoever waits returns when it is called, also if that was just before; and waits again after that. */
static void test_call(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    const struct timespec pause = {0, 50000000};
    struct sleeper sleeper = {0};
    assert_int_equal(queue_create(&sleeper.queue, 8, 9, &err), OK);
    for (int early = 0; early < 2; early++) {
        const int64_t began = job_now();
        if (early)
            queue_call(sleeper.queue);
        assert_int_equal(pthread_create(&sleeper.thread, NULL, sleep_for_a_call, &sleeper), 0);
        nanosleep(&pause, NULL);
        if (!early)
            queue_call(sleeper.queue);
        pthread_join(sleeper.thread, NULL);
        assert_true(job_now() - began < INT64_C(300000000000));
        assert_null(sleeper.got);
    }
    const int64_t began = job_now();
    assert_null(queue_await(sleeper.queue, 0, true, 30, &sleeper.calls));
    assert_true(job_now() - began >= 29000000);
    queue_destroy(&sleeper.queue);
}

/* A worker without its device takes only what no worker can do that has one. */
static void test_down(void **state)
{
    (void)state;
    struct queue *queue;
    struct error err = ERROR_INIT;
    assert_int_equal(queue_create(&queue, 8, 9, &err), OK);
    struct job *any = queued_push_read(queue, "any", 1u << 0 | 1u << 1),
               *named = queued_push_read(queue, "named", 1u << 1);
    queue_worker(queue, 0, true);
    queue_worker(queue, 0, true);
    queue_worker(queue, 0, false); /* of its two workers one still is up */
    queued_expect(queue, 1, false, named);
    queued_expect(queue, 1, false, NULL);
    queue_worker(queue, 0, false);
    queued_expect(queue, 1, false, any);
    queue_destroy(&queue);
}

/* Jobs are read in their order, so many ahead of each device, which one device's jobs cannot use up for another's; and
 * no worker has them before. */
static void test_ahead(void **state)
{
    (void)state;
    struct queue *queue;
    struct error err = ERROR_INIT;
    assert_int_equal(queue_create(&queue, 8, 1, &err), OK);
    struct job *first = queued_push(queue, "first", 1u << 0), *second = queued_push(queue, "second", 1u << 0);
    struct job *both = queued_push(queue, "both", 1u << 0 | 1u << 1), *other = queued_push(queue, "other", 1u << 2);
    struct job *got = queue_carry(queue);
    assert_ptr_equal(got, first);
    assert_null(queue_pop(queue, 0, true, 0)); /* it is just being read */
    queued_carry(queue, both); /* not the second: one is ahead of device 0; of 0 and 1 there may be two */
    queued_carry(queue, other);
    queued_expect(queue, 0, true, both); /* though a younger one */
    queue_ready(queue, got);
    job_release(&got);
    queued_expect(queue, 0, true, first);
    queued_carry(queue, second);
    assert_int_equal(queue_depth(queue), 2);
    queued_expect(queue, 0, true, second);
    queued_expect(queue, 2, true, other);
    queue_destroy(&queue);
}

/* Nobody takes a job away whose picture is being read, but its carrier, which may find that it cannot be. */
static void test_carried(void **state)
{
    (void)state;
    struct queue *queue;
    struct error err = ERROR_INIT;
    assert_int_equal(queue_create(&queue, 8, 2, &err), OK);
    struct job *broken = queued_push(queue, "broken", 1), *second = queued_push(queue, "second", 1),
               *got = queue_carry(queue);
    assert_ptr_equal(got, broken);
    assert_false(queue_remove(queue, broken));
    struct job *old = queue_take_older(queue, INT64_MAX);
    assert_ptr_equal(old, second);
    assert_false(old->ready);
    job_release(&old);
    assert_null(queue_take_older(queue, INT64_MAX));
    queue_drop(queue, got);
    job_release(&got);
    assert_int_equal(queue_depth(queue), 0);
    assert_int_equal(atomic_load(&broken->references), 1);
    job_release(&broken);
    job_release(&second);

    struct job *ready = queued_push_read(queue, "ready", 1), *held = ready;
    assert_true(queue_remove(queue, ready));
    assert_true(ready->ready); /* so that who took it out tells the carrier */
    job_release(&held);
    job_release(&ready);
    queue_end(queue);
    assert_null(queue_carry(queue));
    queue_destroy(&queue);
}

/* What an idle worker is about to take does not wait, and takes nobody's place. */
static void test_places(void **state)
{
    (void)state;
    struct queue *queue;
    struct error err = ERROR_INIT;
    assert_int_equal(queue_create(&queue, 1, 2, &err), OK);
    queue_idle(queue, 1);
    struct job *first = queued_push(queue, "first", 1u << 1);
    assert_int_equal(queue_depth(queue), 0);
    struct job *second = queued_push(queue, "second", 1u << 1), *third = queued_make("third");
    assert_int_equal(queue_depth(queue), 1);
    third->devices = 1u << 1;
    assert_int_equal(queue_push(queue, third, &err), ERROR_BUSY);
    queued_carry(queue, first);
    queued_carry(queue, second);
    assert_int_equal(queue_depth(queue), 1);
    queued_expect(queue, 1, true, first);
    assert_int_equal(queue_depth(queue), 1); /* the worker is idle no longer */
    queued_expect(queue, 1, true, second);
    error_clear(&err);
    assert_int_equal(queue_push(queue, third, &err), OK);
    assert_int_equal(queue_depth(queue), 1);
    struct job *held = third;
    assert_true(queue_remove(queue, third));
    job_release(&held);
    job_release(&third);
    queue_destroy(&queue);
}

/* A job that comes back stands before all younger ones, whatever the capacity, also in a queue that is closed. */
static void test_return(void **state)
{
    (void)state;
    struct queue *queue;
    struct error err = ERROR_INIT;
    assert_int_equal(queue_create(&queue, 3, 9, &err), OK);
    struct job *jobs[4];
    for (int i = 0; i < 3; i++)
        jobs[i] = queued_push_read(queue, "job", 1);
    struct job *taken = queue_pop(queue, 0, true, -1), *second = queue_pop(queue, 0, true, -1);
    jobs[3] = queued_push_read(queue, "young", 1);
    queue_close(queue);
    queue_return(queue, second);
    taken->devices = 1u << 1;
    queue_return(queue, taken);
    assert_int_equal(queue_depth(queue), 4);
    queued_expect(queue, 0, true, jobs[1]);
    queued_expect(queue, 1, true, jobs[0]);
    queued_expect(queue, 0, true, jobs[2]);
    queued_expect(queue, 0, true, jobs[3]);
    queue_destroy(&queue);
}

static void test_stop(void **state)
{
    (void)state;
    struct job *job = queued_make("a");
    job_stop(job, ERROR_TIMEOUT);
    job_stop(job, ERROR_CANCELLED);
    assert_int_equal(atomic_load(&job->stop), ERROR_TIMEOUT); /* the first reason stays */
    assert_int_equal(atomic_load(&job->restoration->cancel), 1);
    job_release(&job);
}

#define JOBS 400
static atomic_int taken;

static void *consume(void *queue)
{
    struct job *job;
    while ((job = queue_pop(queue, 0, true, -1))) {
        atomic_fetch_add(&taken, 1);
        job_release(&job);
    }
    return NULL;
}

static void *read_ahead(void *queue)
{
    struct job *job;
    while ((job = queue_carry(queue))) {
        queue_ready(queue, job);
        job_release(&job);
    }
    return NULL;
}

static void *produce(void *queue)
{
    for (int i = 0; i < JOBS; i++) {
        struct job *job = queued_make("x");
        while (queue_push(queue, job, NULL))
            sched_yield();
        if (i % 7 == 0 && queue_remove(queue, job)) {
            struct job *removed = job;
            job_release(&removed);
            atomic_fetch_add(&taken, 1);
        }
        job_release(&job);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    struct queue *queue;
    struct error err = ERROR_INIT;
    pthread_t producers[2], carriers[2], consumers[3];
    assert_int_equal(queue_create(&queue, 3, 2, &err), OK);
    atomic_store(&taken, 0);
    for (int i = 0; i < 2; i++)
        pthread_create(&carriers[i], NULL, read_ahead, queue);
    for (int i = 0; i < 3; i++)
        pthread_create(&consumers[i], NULL, consume, queue);
    for (int i = 0; i < 2; i++)
        pthread_create(&producers[i], NULL, produce, queue);
    for (int i = 0; i < 2; i++)
        pthread_join(producers[i], NULL);
    queue_close(queue);
    queue_end(queue);
    for (int i = 0; i < 3; i++)
        pthread_join(consumers[i], NULL);
    for (int i = 0; i < 2; i++)
        pthread_join(carriers[i], NULL);
    assert_int_equal(atomic_load(&taken), 2 * JOBS);
    assert_int_equal(queue_depth(queue), 0);
    queue_destroy(&queue);
}

static void test_ids(void **state)
{
    (void)state;
    char a[33], b[33];
    job_make_id(a);
    job_make_id(b);
    assert_int_equal(strlen(a), 32);
    assert_int_equal(strspn(a, "0123456789abcdef"), 32);
    assert_string_not_equal(a, b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_and_limit),
        cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_preference),
        cmocka_unit_test(test_preference_wakes),
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_call),
        cmocka_unit_test(test_down),
        cmocka_unit_test(test_ahead),
        cmocka_unit_test(test_carried),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_return),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
