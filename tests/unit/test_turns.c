/* Among the jobs of several clients in the queue: who gets a place, whose turn is next, and how much goes before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/common/queued.h"

/* A queue for 32 jobs, and those that tests put into it. */
static struct queue *turns;
static struct job *pushed[32];
static int pushed_count;

static int setup(void **state)
{
    struct error err = ERROR_INIT;
    (void)state;
    return queue_create(&turns, 32, 32, &err);
}

static int teardown(void **state)
{
    (void)state;
    while (pushed_count)
        job_release(&pushed[--pushed_count]);
    queue_destroy(&turns);
    return 0;
}

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
static struct job *push_of(const char *client, bool low)
{
    struct error err = ERROR_INIT;
    struct job *job = pushed[pushed_count++] = queued_make(client);
    snprintf(job->client, sizeof job->client, "%s", client);
    job->low = low;
    job->estimate.device_seconds = 1;
    assert_int_equal(queue_push(turns, job, &err), OK);
    queued_carry(turns, job);
    return job;
}

/* The letters of the jobs in the order in which a worker gets them. */
static void expect_order(const char *want)
{
    char got[64] = "";
    struct job *job;
    while (strlen(got) + 1 < sizeof got && (job = queue_pop(turns, 0, true, 0))) {
        strcat(got, job->id);
        job_release(&job);
    }
    assert_string_equal(got, want);
}

/* Clients take turns, whoever has sent more or came first; each one's jobs keep their order. */
static void test_turns(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        push_of("a", false);
    struct job *got = queue_pop(turns, 0, true, 0);
    assert_ptr_equal(got, pushed[0]);
    job_release(&got);
    push_of("b", false); /* behind one of a, which was there before */
    push_of("b", false);
    push_of("c", false);
    push_of("a", false);
    got = queue_pop(turns, 0, true, 0);
    assert_ptr_equal(got, pushed[1]);
    queue_return(turns, got); /* it keeps its place */
    expect_order("abcabaaa");
    /* what was served long ago gives nobody an advantage */
    push_of("a", false);
    push_of("d", false);
    expect_order("ad");
}

/* Low ones wait for all others, and take turns among themselves. */
static void test_low(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        push_of("a", true);
    push_of("b", true);
    push_of("C", false);
    push_of("C", false);
    push_of("A", false);
    expect_order("CACabaa");
}

/* How much goes before a job, which is what a client is told to wait. */
static void test_ahead_of(void **state)
{
    (void)state;
    struct queue_ahead ahead;
    struct job *other = queued_make("other");
    for (int i = 0; i < 3; i++)
        push_of("a", false);
    push_of("b", false);
    push_of("b", true);
    const struct {
        const char *client;
        bool low;
        size_t jobs;
    } wants[] = {{"a", false, 4}, {"b", false, 3}, {"c", false, 2}, {"b", true, 5}, {"c", true, 5}, {NULL, false, 5}};
    for (size_t i = 0; i < sizeof wants / sizeof *wants; i++) {
        queue_ahead_of_new(turns, 1, wants[i].client, wants[i].low, &ahead);
        assert_int_equal(ahead.jobs, wants[i].jobs);
        assert_true(ahead.seconds == (double)wants[i].jobs);
        queue_ahead_of_new(turns, 2, wants[i].client, wants[i].low, &ahead); /* on another device none of it */
        assert_true(ahead.seconds == 0);
    }
    static const size_t places[] = {0, 2, 3, 1, 4};
    for (int i = 0; i < pushed_count; i++) {
        assert_true(queue_ahead_of(turns, pushed[i], &ahead));
        assert_int_equal(ahead.jobs, places[i]);
        assert_true(ahead.seconds == (double)places[i]);
    }
    assert_false(queue_ahead_of(turns, other, &ahead));
    expect_order("abaab");
    job_release(&other);
}

/* The oldest are found wherever they stand. */
static void test_older_behind_younger(void **state)
{
    (void)state;
    struct job *low = push_of("a", true), *young = push_of("b", false);
    young->created_ns = low->created_ns + 10;
    struct job *old = queue_take_older(turns, low->created_ns + 5);
    assert_ptr_equal(old, low);
    assert_null(queue_take_older(turns, low->created_ns + 5));
    expect_order("b");
    job_release(&old);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_share),
        cmocka_unit_test_setup_teardown(test_turns, setup, teardown),
        cmocka_unit_test_setup_teardown(test_low, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ahead_of, setup, teardown),
        cmocka_unit_test_setup_teardown(test_older_behind_younger, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
