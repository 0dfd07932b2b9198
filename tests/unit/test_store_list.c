/* The store of jobs: lists, counts, keys, groups and what expires, alike in both engines; and, of SQLite, numbers that
 * are kept beside the rows, and reading while another thread writes. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "tests/common/store_case.h"

/* --- reading -------------------------------------------------------------------------------------------------------
 */

static char listed[4096];

static void add_listed(void *context, const struct store_job *job)
{
    (void)context;
    assert_null(job->report);
    assert_null(job->parts);
    snprintf(listed + strlen(listed), sizeof listed - strlen(listed), "%s%s", *listed ? " " : "", job->id);
}

/* Lists with a filter and compares: ids, and at last "…" if there is more. */
static void expect_list(const struct store_filter *filter, const char *expected)
{
    bool more;
    *listed = 0;
    FINE(store_list(case_store, filter, add_listed, NULL, &more, &case_err));
    strcat(listed, more ? " …" : "");
    assert_string_equal(listed, expected);
}

static void put_as(const char *id, const char *token, const char *batch, int64_t created)
{
    struct store_job job = case_job(id, token);
    snprintf(job.token, sizeof job.token, "%s", token);
    snprintf(job.batch, sizeof job.batch, "%s", batch);
    job.created = created;
    case_insert(&job);
}

static void test_list(void **state)
{
    (void)state;
    struct store_filter filter = {.limit = 3};
    struct store_job job;
    bool more;
    put_as("j1", "t", "", 10);
    put_as("j2", "t", "b", 20);
    put_as("j3", "u", "b", 20);
    put_as("j4", "u", "", 30);
    put_as("j5", "t", "b", 25); /* the clock was set back */
    assert_true(case_claim(&job, 100));
    store_job_clear(&job);
    expect_list(&filter, "j4 j5 j3 …");
    strcpy(filter.after, "j3");
    put_as("j6", "t", "b", 40); /* pages that were begun stay as they are */
    expect_list(&filter, "j2 j1");
    filter = (struct store_filter){.limit = 10, .token = "t"};
    expect_list(&filter, "j6 j5 j2 j1");
    filter.batch = "b";
    expect_list(&filter, "j6 j5 j2");
    filter.since = 25;
    expect_list(&filter, "j6 j5");
    filter = (struct store_filter){.limit = 10, .batch = "b"};
    expect_list(&filter, "j6 j5 j3 j2");
    filter.states = 1u << STORE_RUNNING;
    expect_list(&filter, "");
    filter.batch = NULL;
    expect_list(&filter, "j1");
    filter.states = 1u << STORE_RUNNING | 1u << STORE_QUEUED | 1u << STORE_DONE;
    expect_list(&filter, "j6 j4 j5 j3 j2 j1");
    filter.limit = 0;
    expect_list(&filter, " …");
    strcpy(filter.after, "j7");
    case_err = (struct error)ERROR_INIT;
    assert_int_equal(store_list(case_store, &filter, add_listed, NULL, &more, &case_err), ERROR_INVALID);
    assert_non_null(strstr(case_err.text, "j7"));
}

static void test_counts(void **state)
{
    (void)state;
    struct store_counts counts;
    struct store_job job;
    uint64_t ahead;
    double seconds;
    bool found;
    FINE(store_count(case_store, NULL, NULL, &counts, &case_err));
    assert_true(!counts.jobs[STORE_QUEUED] && !counts.oldest_queued && counts.seconds_queued == 0);
    put_as("j1", "t", "", 10);
    put_as("j2", "t", "b", 20);
    put_as("j3", "u", "b", 30);
    put_as("j4", "t", "b", 40);
    assert_true(case_claim(&job, 100));
    assert_string_equal(job.id, "j1");
    store_job_clear(&job);
    FINE(store_count(case_store, NULL, NULL, &counts, &case_err));
    assert_true(counts.jobs[STORE_QUEUED] == 3 && counts.jobs[STORE_RUNNING] == 1 && !counts.jobs[STORE_DONE]);
    assert_true(counts.oldest_queued == 20 && counts.seconds_queued == 6);
    FINE(store_count(case_store, "b", NULL, &counts, &case_err));
    assert_true(counts.jobs[STORE_QUEUED] == 3 && counts.jobs[STORE_RUNNING] == 0);
    FINE(store_count(case_store, "b", "u", &counts, &case_err));
    assert_true(counts.jobs[STORE_QUEUED] == 1 && counts.oldest_queued == 30 && counts.seconds_queued == 2);
    FINE(store_count(case_store, NULL, "t", &counts, &case_err));
    assert_true(counts.jobs[STORE_QUEUED] == 2 && counts.jobs[STORE_RUNNING] == 1);
    FINE(store_waiting(case_store, "t", "[]", &ahead, &case_err));
    assert_true(ahead == 2);
    FINE(store_waiting(case_store, "nobody", "[]", &ahead, &case_err));
    assert_true(ahead == 0);
    FINE(store_position(case_store, "j3", &ahead, &seconds, &found, 0, NULL, NULL, &case_err));
    assert_true(found && ahead == 0 && seconds == 0);
    FINE(store_position(case_store, "j2", &ahead, &seconds, &found, 0, NULL, NULL,
                        &case_err)); /* t has had its turn: u goes before it */
    assert_true(found && ahead == 1 && seconds == 2);
    FINE(store_position(case_store, "j4", &ahead, &seconds, &found, 0, NULL, NULL, &case_err));
    assert_true(found && ahead == 2 && seconds == 4);
    FINE(store_position(case_store, "j1", &ahead, &seconds, &found, 0, NULL, NULL, &case_err));
    assert_false(found);
}

/* --- keys, groups, the end ----------------------------------------------------------------------------------------
 */

static enum store_inserted put_with_key(const char *id, const char *client, const char *key, uint8_t body,
                                        const char *expected)
{
    const struct store_job job = case_job(id, client);
    uint8_t hash[32] = {body};
    enum store_inserted what;
    char existing[33];
    FINE(store_insert(case_store, &job, key, hash, &what, existing, &case_err));
    assert_string_equal(existing, expected);
    return what;
}

static void test_keys(void **state)
{
    (void)state;
    struct store_job job;
    bool held, found;
    assert_int_equal(put_with_key("a1", "a", "k", 1, ""), STORE_NEW);
    assert_int_equal(put_with_key("a2", "a", "k", 1, "a1"), STORE_SAME);
    assert_int_equal(put_with_key("a2", "a", "k", 2, "a1"), STORE_OTHER);
    assert_int_equal(put_with_key("b1", "b", "k", 2, ""), STORE_NEW);
    assert_int_equal(put_with_key("a2", "a", "l", 1, ""), STORE_NEW);
    FINE(store_get(case_store, "a1", &job, &found, &case_err));
    store_job_clear(&job);
    case_expect_order("a1 b1 a2");
    assert_int_equal(put_with_key("a3", "a", "k", 1, "a1"), STORE_SAME);
    assert_int_equal(case_finish("a1", "me", 1, &held), OK);
    assert_int_equal(put_with_key("a3", "a", "k", 1, "a1"), STORE_SAME);
    FINE(store_forget(case_store, "a1", &found, &case_err));
    assert_true(found);
    assert_int_equal(put_with_key("a3", "a", "k", 2, ""), STORE_NEW);
}

static void put_hundred(int first)
{
    char id[16];
    for (int i = first; i < first + 100; i++) {
        snprintf(id, sizeof id, "g%d", i);
        case_put(id, "a");
    }
}

static void test_groups(void **state)
{
    (void)state;
    struct store_job job = case_job("g7", "a");
    enum store_inserted what;
    char existing[33];
    FINE(store_begin(case_store, &case_err));
    put_hundred(0);
    FINE(store_insert(case_store, &job, NULL, NULL, &what, existing, &case_err)); /* the same id: it is there already */
    assert_int_equal(what, STORE_NEW);
    case_expect_queued(0); /* others see what is committed */
    FINE(store_commit(case_store, &case_err));
    case_expect_queued(100);
    FINE(store_begin(case_store, &case_err));
    put_hundred(100);
    store_rollback(case_store);
    store_rollback(case_store); /* nothing is left to undo */
    case_expect_queued(100);
    strcpy(job.id, "../x");
    case_err = (struct error)ERROR_INIT;
    assert_int_equal(store_insert(case_store, &job, NULL, NULL, &what, existing, &case_err), ERROR_INTERNAL);
    *job.id = 0;
    case_err = (struct error)ERROR_INIT;
    assert_int_equal(store_insert(case_store, &job, NULL, NULL, &what, existing, &case_err), ERROR_INTERNAL);
}

/* The second statement of a finish fails: the first is undone, and the transaction goes on. */
static void test_parts(void **state)
{
    (void)state;
    struct store_job job;
    bool held;
    case_put("a1", "a");
    assert_true(case_claim(&job, 2000));
    store_job_clear(&job);
    case_sql("INSERT INTO results (job) SELECT number FROM jobs");
    FINE(store_begin(case_store, &case_err));
    case_put("a2", "a");
    assert_int_equal(case_finish("a1", "me", 1, &held), ERROR_INTERNAL);
    assert_false(held);
    case_put("a3", "a");
    FINE(store_commit(case_store, &case_err));
    assert_int_equal(case_state("a1"), STORE_RUNNING);
    case_expect_queued(2);
    case_sql("DELETE FROM results");
    assert_int_equal(case_finish("a1", "me", 1, &held), OK);
    assert_true(held);
}

static void add_id(void *context, const char *id)
{
    (void)context;
    snprintf(listed + strlen(listed), sizeof listed - strlen(listed), "%s%s", *listed ? " " : "", id);
}

static void add_file(void *context, const char *id, bool input, bool output)
{
    add_id(context, id);
    strcat(listed, input ? output ? "!" : "<" : output ? ">" : "");
}

static void expect_expired(int64_t now, int most, const char *expected)
{
    *listed = 0;
    FINE(store_expire(case_store, now, most, add_id, NULL, &case_err));
    assert_string_equal(listed, expected);
}

static bool gone(const char *id)
{
    bool is;
    FINE(store_gone(case_store, id, &is, &case_err));
    return is;
}

static void test_expire(void **state)
{
    (void)state;
    struct store_job job;
    bool held;
    for (int i = 1; i <= 6; i++) {
        char id[16];
        snprintf(id, sizeof id, "a%d", i);
        case_put(id, "a");
        if (i == 6)
            break;
        assert_true(case_claim(&job, 2000));
        job.state = i == 2 ? STORE_FAILED : STORE_DONE;
        job.expires = i == 4 ? 0 : 9000 - i; /* a4 stays for ever */
        job.output_bytes = i == 3 ? 0 : 10;  /* a3 made no picture */
        job.report = strdup("{}");
        if (i < 5)
            FINE(store_finish(case_store, &job, "me", &held, &case_err));
        store_job_clear(&job);
    }
    *listed = 0;
    FINE(store_files(case_store, add_file, NULL, &case_err));
    assert_true(strstr(listed, "a1>") && !strstr(listed, "a3>") && strstr(listed, "a4>") && strstr(listed, "a5<") &&
                strstr(listed, "a6<")); /* in any order */
    expect_expired(8997, 10, "");
    expect_expired(8998, 10, "a3");
    assert_true(gone("a3") && !gone("a2") && !gone("b1"));
    expect_expired(9999, 1, "a2");
    expect_expired(9999, 10, "a1");
    assert_true(gone("a1") && gone("a2") && gone("a3"));
    expect_expired(8998 + STORE_GONE_MS + 1, 10, "");
    assert_true(gone("a1") && gone("a2") && !gone("a3"));
    expect_expired(9999 + STORE_GONE_MS + 1, 1, ""); /* as few at a time as jobs */
    assert_true(gone("a1") != gone("a2"));
    expect_expired(INT64_MAX / 2, 10, "");
    assert_int_equal(case_sql("SELECT count(*) FROM results"), 1);
    assert_int_equal(case_sql("SELECT count(*) FROM jobs"), 3);
}

/* --- files ---------------------------------------------------------------------------------------------------------
 */

/* A store_known_fn. */
static void add_known(void *context, const char *id, bool open, int attempts)
{
    snprintf((char *)context + strlen(context), 64, "%s%s%d ", id, open ? "+" : "-", attempts);
}

/* Several jobs at once; the waiting order does not matter. */
static void test_known(void **state)
{
    struct store_job out;
    char text[256] = "";
    bool found;
    enum store_state before;
    (void)state;
    case_put("a1", "a");
    case_put("a2", "a");
    case_put("a3", "a");
    FINE(store_cancel(case_store, "a3", 2000, 9000, &before, &found, &case_err));
    assert_true(case_claim(&out, 2000));
    assert_string_equal(out.id, "a1");
    store_job_clear(&out);
    FINE(store_known(case_store, "[\"a1\", \"none\", \"a3\"]", add_known, text, &case_err));
    assert_true(strstr(text, "a1+1 ") && strstr(text, "a3-0 "));
    assert_int_equal(strlen(text), 10);
    *text = 0;
    FINE(store_known(case_store, "[]", add_known, text, &case_err));
    assert_string_equal(text, "");
}

static void count_one(void *context, const struct store_job *job)
{
    (void)job;
    ++*(uint64_t *)context;
}

/* Those that have ended are counted as they come and go: the numbers are those of the rows, whatever is done in
 * transactions that are committed, or not, or in none. */
static void test_counted(void **state)
{
    (void)state;
    uint64_t random = 88172645463325252u, seen = 0;
    bool begun = false;
    int number = 0;
    for (int step = 0; step < 600; step++) {
        struct store_job job = {0};
        struct store_counts counts;
        enum store_state before;
        bool found, held, more;
        char id[16];
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        const int64_t now = 1000 + step;
        snprintf(id, sizeof id, "j%d", number ? (int)(random >> 20) % number : 0);
        switch (random % 16) {
        case 0:
            if (!begun)
                FINE(store_begin(case_store, &case_err));
            begun = true;
            break;
        case 1:
            if (begun)
                FINE(store_commit(case_store, &case_err));
            begun = false;
            break;
        case 2:
            if (begun)
                store_rollback(case_store);
            begun = false;
            break;
        case 3:
        case 4:
        case 5:
        case 6:
            snprintf(id, sizeof id, "j%d", number++);
            case_put(id, "a");
            break;
        case 7:
            FINE(store_cancel(case_store, id, now, now + 300, &before, &found, &case_err));
            break;
        case 8:
            FINE(store_forget(case_store, id, &found, &case_err));
            break;
        case 9:
            FINE(store_expire(case_store, now, 3, case_ignore_id, NULL, &case_err));
            break;
        case 10:
            FINE(store_recover(case_store, now, now + 300, 2, &case_err));
            break;
        default:
            FINE(store_claim(case_store, "me", now, now + 5, now + 300, 2, &job, &found, NULL, NULL, &case_err));
            if (found && random % 16 < 14) {
                job.state = random >> 40 & 1 ? STORE_DONE : STORE_FAILED;
                job.finished = now;
                job.expires = now + 300;
                FINE(store_finish(case_store, &job, "me", &held, &case_err));
                FINE(store_finish(case_store, &job, "me", &held, &case_err)); /* it has ended already */
                assert_false(held);
            }
            store_job_clear(&job);
        }
        FINE(store_count(case_store, NULL, NULL, &counts, &case_err));
        for (unsigned i = 0; i < STORE_STATES; i++) {
            const struct store_filter filter = {.limit = 1000, .states = 1u << i};
            uint64_t rows = 0;
            FINE(store_list(case_store, &filter, count_one, &rows, &more, &case_err));
            assert_false(more);
            assert_int_equal(counts.jobs[i], rows);
            seen |= (uint64_t)(rows > 0) << i;
        }
    }
    assert_int_equal(seen, (1 << STORE_STATES) - 1);
}

/* --- threads -------------------------------------------------------------------------------------------------------
 */

static atomic_bool stop_reading;

/* Groups are seen whole or not at all. */
static void *read_along(void *context)
{
    struct store_filter filter = {.limit = 1000};
    struct store_counts counts;
    struct error own = ERROR_INIT;
    bool more;
    uint64_t last = 0, *broken = context;
    while (!atomic_load(&stop_reading)) {
        *broken += store_count(case_store, NULL, NULL, &counts, &own) != OK;
        *broken += counts.jobs[STORE_QUEUED] % 10 != 0 || counts.jobs[STORE_QUEUED] < last;
        last = counts.jobs[STORE_QUEUED];
        *broken += store_list(case_store, &filter, case_ignore_job, NULL, &more, &own) != OK;
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    pthread_t threads[3];
    uint64_t broken[3] = {0};
    char id[16];
    atomic_store(&stop_reading, false);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_along, &broken[i]), 0);
    for (int group = 0; group < 20; group++) {
        FINE(store_begin(case_store, &case_err));
        for (int i = 0; i < 10; i++) {
            snprintf(id, sizeof id, "t%d", group * 10 + i);
            case_put(id, "a");
        }
        FINE(store_commit(case_store, &case_err));
    }
    atomic_store(&stop_reading, true);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 3; i++)
        assert_int_equal(broken[i], 0);
    case_expect_queued(200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list),   cmocka_unit_test(test_counts), cmocka_unit_test(test_keys),
        cmocka_unit_test(test_groups), cmocka_unit_test(test_parts),  cmocka_unit_test(test_expire),
        cmocka_unit_test(test_known),
    };
    const struct CMUnitTest alone[] = {
        cmocka_unit_test(test_counted),
        cmocka_unit_test(test_threads),
    };
    return case_run(tests, sizeof tests / sizeof *tests, true) + case_run(alone, sizeof alone / sizeof *alone, false);
}
