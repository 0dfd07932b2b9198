/* Among the jobs of several clients in the queue: who gets a place, whose turn is next, and how much goes before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/common/queued.h"

/* One more job of that client; NULL: it is refused, as queue_full has said. */
static struct job *push_client(struct queue *queue, const char *client)
{
    struct error err = ERROR_INIT;
    struct job *job = queued_make("j");
    snprintf(job->client, sizeof job->client, "%s", client);
    const bool full = queue_full(queue, client);
    const enum error_code code = queue_push(queue, job, &err);
    assert_int_equal(code, full ? ERROR_BUSY : OK);
    if (code)
        job_release(&job);
    return job;
}

/* Who fills all places does not keep others out: each gets an eighth, until there are twice as many jobs. */
static void test_share(void **state)
{
    (void)state;
    static const struct {
        size_t capacity, share;
    } cases[] = {{1, 1}, {16, 2}, {64, 8}};
    for (size_t i = 0; i < 3; i++) {
        struct queue *queue;
        struct error err = ERROR_INIT;
        struct job *jobs[128], *more;
        const size_t capacity = cases[i].capacity, share = cases[i].share;
        size_t count = 0;
        assert_int_equal(queue_create(&queue, capacity, 1, &err), OK);
        while ((more = push_client(queue, "greedy")))
            jobs[count++] = more;
        assert_int_equal(count, capacity);
        for (int other = 0; count < 2 * capacity; other++) {
            char client[32];
            snprintf(client, sizeof client, "other %d", other);
            const size_t before = count;
            while (count < 2 * capacity && (more = push_client(queue, client)))
                jobs[count++] = more;
            assert_int_equal(count - before, share);
            assert_null(push_client(queue, client));
        }
        assert_null(push_client(queue, "late"));
        assert_null(push_client(queue, "greedy"));
        while (count-- > 0) {
            struct job *job = jobs[count];
            assert_true(queue_remove(queue, job));
            job_release(&job);
            job_release(&jobs[count]);
            assert_int_equal(queue_full(queue, "greedy"), count >= capacity); /* or an eighth of it, but it has more */
        }
        queue_destroy(&queue);
    }
}

/* Pushes a job of this client, whose picture is read at once. */
static struct job *push_of(struct queue *queue, const char *client, bool low)
{
    struct error err = ERROR_INIT;
    struct job *job = queued_make(client), *got;
    snprintf(job->client, sizeof job->client, "%s", client);
    job->low = low;
    job->estimate.device_seconds = 1;
    assert_int_equal(queue_push(queue, job, &err), OK);
    got = queue_carry(queue);
    assert_ptr_equal(got, job);
    queue_ready(queue, got);
    job_release(&got);
    return job;
}

/* The letters of the jobs in the order in which a worker gets them. */
static void expect_order(struct queue *queue, const char *want)
{
    char got[64] = "";
    struct job *job;
    while (strlen(got) + 1 < sizeof got && (job = queue_pop(queue, 0, true, 0))) {
        strcat(got, job->id);
        job_release(&job);
    }
    assert_string_equal(got, want);
}

/* Clients take turns, whoever has sent more or came first; each one's jobs keep their order. */
static void test_turns(void **state)
{
    (void)state;
    struct queue *queue;
    struct error err = ERROR_INIT;
    struct job *jobs[16];
    int n = 0;
    assert_int_equal(queue_create(&queue, 32, 32, &err), OK);
    for (int i = 0; i < 5; i++)
        jobs[n++] = push_of(queue, "a", false);
    struct job *got = queue_pop(queue, 0, true, 0);
    assert_ptr_equal(got, jobs[0]);
    job_release(&got);
    jobs[n++] = push_of(queue, "b", false); /* behind one of a, which was there before */
    jobs[n++] = push_of(queue, "b", false);
    jobs[n++] = push_of(queue, "c", false);
    jobs[n++] = push_of(queue, "a", false);
    got = queue_pop(queue, 0, true, 0);
    assert_ptr_equal(got, jobs[1]);
    queue_return(queue, got); /* it keeps its place */
    expect_order(queue, "abcabaaa");
    /* what was served long ago gives nobody an advantage */
    jobs[n++] = push_of(queue, "a", false);
    jobs[n++] = push_of(queue, "d", false);
    expect_order(queue, "ad");
    while (n)
        job_release(&jobs[--n]);
    queue_destroy(&queue);
}

/* Low ones wait for all others, and take turns among themselves. */
static void test_low(void **state)
{
    (void)state;
    struct queue *queue;
    struct error err = ERROR_INIT;
    struct job *jobs[16];
    int n = 0;
    assert_int_equal(queue_create(&queue, 32, 32, &err), OK);
    for (int i = 0; i < 3; i++)
        jobs[n++] = push_of(queue, "a", true);
    jobs[n++] = push_of(queue, "b", true);
    jobs[n++] = push_of(queue, "C", false);
    jobs[n++] = push_of(queue, "C", false);
    jobs[n++] = push_of(queue, "A", false);
    expect_order(queue, "CACabaa");
    while (n)
        job_release(&jobs[--n]);
    queue_destroy(&queue);
}

/* How much goes before a job, which is what a client is told to wait. */
static void test_ahead_of(void **state)
{
    (void)state;
    struct queue *queue;
    struct queue_ahead ahead;
    struct error err = ERROR_INIT;
    struct job *jobs[8], *other = queued_make("other");
    int n = 0;
    assert_int_equal(queue_create(&queue, 32, 32, &err), OK);
    for (int i = 0; i < 3; i++)
        jobs[n++] = push_of(queue, "a", false);
    jobs[n++] = push_of(queue, "b", false);
    jobs[n++] = push_of(queue, "b", true);
    const struct {
        const char *client;
        bool low;
        size_t jobs;
    } wants[] = {{"a", false, 4}, {"b", false, 3}, {"c", false, 2}, {"b", true, 5}, {"c", true, 5}, {NULL, false, 5}};
    for (size_t i = 0; i < sizeof wants / sizeof *wants; i++) {
        queue_ahead_of_new(queue, 1, wants[i].client, wants[i].low, &ahead);
        assert_int_equal(ahead.jobs, wants[i].jobs);
        assert_true(ahead.seconds == (double)wants[i].jobs);
        queue_ahead_of_new(queue, 2, wants[i].client, wants[i].low, &ahead); /* on another device none of it */
        assert_true(ahead.seconds == 0);
    }
    static const size_t places[] = {0, 2, 3, 1, 4};
    for (int i = 0; i < n; i++) {
        assert_true(queue_ahead_of(queue, jobs[i], &ahead));
        assert_int_equal(ahead.jobs, places[i]);
        assert_true(ahead.seconds == (double)places[i]);
    }
    assert_false(queue_ahead_of(queue, other, &ahead));
    expect_order(queue, "abaab");
    job_release(&other);
    while (n)
        job_release(&jobs[--n]);
    queue_destroy(&queue);
}

/* The oldest are found wherever they stand. */
static void test_older_behind_younger(void **state)
{
    (void)state;
    struct queue *queue;
    struct error err = ERROR_INIT;
    assert_int_equal(queue_create(&queue, 8, 8, &err), OK);
    struct job *low = push_of(queue, "a", true), *young = push_of(queue, "b", false);
    young->created_ns = low->created_ns + 10;
    struct job *old = queue_take_older(queue, low->created_ns + 5);
    assert_ptr_equal(old, low);
    assert_null(queue_take_older(queue, low->created_ns + 5));
    queued_expect(queue, 0, true, young);
    job_release(&old);
    job_release(&low);
    queue_destroy(&queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_share),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_low),
        cmocka_unit_test(test_ahead_of),
        cmocka_unit_test(test_older_behind_younger),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
