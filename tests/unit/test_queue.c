/* The bounded queue and the references of jobs, with threads on both ends. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/job/queue.h"

static struct job *make(const char *id)
{
    struct restoration *r;
    struct job *job;
    struct error err = ERROR_INIT;
    uint8_t *body = malloc(4);
    assert_int_equal(restoration_create(&r, &err), OK);
    assert_int_equal(job_create(&job, id, &r, &body, 4, NULL, NULL, &err), OK);
    assert_null(r);
    assert_null(body);
    return job;
}

static void test_order_and_limit(void **state)
{
    (void)state;
    struct queue *queue;
    struct error err = ERROR_INIT;
    assert_int_equal(queue_create(&queue, 2, &err), OK);
    struct job *a = make("a"), *b = make("b"), *c = make("c");
    assert_int_equal(queue_push(queue, a, &err), OK);
    assert_int_equal(queue_push(queue, b, &err), OK);
    assert_int_equal(queue_push(queue, c, &err), ERROR_BUSY);
    assert_non_null(strstr(err.text, "the queue is full: 2 jobs wait"));
    assert_int_equal(queue_depth(queue), 2);
    struct job *got = queue_pop(queue, -1);
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

    /* by age: b is the first, and young */
    assert_null(queue_take_older(queue, b->created_ns));
    struct job *old = queue_take_older(queue, b->created_ns + 1);
    assert_ptr_equal(old, b);
    job_release(&old);

    queue_close(queue);
    assert_true(queue_closed(queue));
    assert_int_equal(queue_push(queue, c, &err), ERROR_BUSY);
    assert_non_null(strstr(err.text, "shutting down"));
    got = queue_pop(queue, -1); /* what is in it still comes out */
    assert_ptr_equal(got, a);
    job_release(&got);
    assert_null(queue_pop(queue, -1));
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
    assert_int_equal(queue_create(&queue, 1, &err), OK);
    int64_t before = job_now();
    assert_null(queue_pop(queue, 30));
    assert_true(job_now() - before >= 29000000);
    queue_destroy(&queue);
}

static void test_stop(void **state)
{
    (void)state;
    struct job *job = make("a");
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
    while ((job = queue_pop(queue, -1))) {
        atomic_fetch_add(&taken, 1);
        job_release(&job);
    }
    return NULL;
}

static void *produce(void *queue)
{
    for (int i = 0; i < JOBS; i++) {
        struct job *job = make("x");
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
    pthread_t producers[2], consumers[3];
    assert_int_equal(queue_create(&queue, 3, &err), OK);
    atomic_store(&taken, 0);
    for (int i = 0; i < 3; i++)
        pthread_create(&consumers[i], NULL, consume, queue);
    for (int i = 0; i < 2; i++)
        pthread_create(&producers[i], NULL, produce, queue);
    for (int i = 0; i < 2; i++)
        pthread_join(producers[i], NULL);
    queue_close(queue);
    for (int i = 0; i < 3; i++)
        pthread_join(consumers[i], NULL);
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
        cmocka_unit_test(test_order_and_limit), cmocka_unit_test(test_timeout), cmocka_unit_test(test_stop),
        cmocka_unit_test(test_threads),         cmocka_unit_test(test_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
