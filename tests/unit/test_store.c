/* The store of jobs: who goes first, leases and fences, lists, and files that are damaged, foreign or on a full disk.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/store/store.h"

static char folder[64], path[96];
static struct store *store;
static struct error err;

#define FINE(call) assert_int_equal((err = (struct error)ERROR_INIT, (call)), OK)

static void remove_files(void)
{
    static const char *const ends[] = {"", "-wal", "-shm", ".new", "-journal"};
    char name[128];
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        snprintf(name, sizeof name, "%s%s", path, ends[i]);
        unlink(name);
    }
}

static int setup(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/restored_store_XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/jobs.db", folder);
    err = (struct error)ERROR_INIT;
    return store_open(&store, path, &err) ? -1 : 0;
}

static int teardown(void **state)
{
    (void)state;
    store_close(&store);
    remove_files();
    return rmdir(folder);
}

/* --- small words for what the tests do -----------------------------------------------------------------------------
 */

static struct store_job job_of(const char *id, const char *client)
{
    struct store_job job = {.created = 1000, .seconds = 2, .megapixels = 1.5, .input_bytes = 77};
    snprintf(job.id, sizeof job.id, "%s", id);
    snprintf(job.client, sizeof job.client, "%s", client);
    job.options = "{\"upscale\": 2}";
    return job;
}

static void insert(const struct store_job *job)
{
    enum store_inserted what;
    char existing[33];
    FINE(store_insert(store, job, NULL, NULL, &what, existing, &err));
    assert_int_equal(what, STORE_NEW);
}

static void put(const char *id, const char *client)
{
    const struct store_job job = job_of(id, client);
    insert(&job);
}

static bool claim_at(struct store_job *out, int64_t now)
{
    bool found;
    FINE(store_claim(store, "me", now, now + 100, now + 1000, 3, out, &found, &err));
    return found;
}

static struct store_job get(const char *id)
{
    struct store_job job;
    bool found;
    FINE(store_get(store, id, &job, &found, &err));
    assert_true(found);
    return job;
}

static enum store_state state_of(const char *id)
{
    struct store_job job = get(id);
    const enum store_state state = job.state;
    store_job_clear(&job);
    return state;
}

/* --- fairness and the life of a job -------------------------------------------------------------------------------
 */

/* Claims everything and compares the order, "a1 b1 …". */
static void expect_order(const char *expected)
{
    char order[1024] = "";
    struct store_job job;
    while (claim_at(&job, 5000)) {
        snprintf(order + strlen(order), sizeof order - strlen(order), "%s%s", *order ? " " : "", job.id);
        store_job_clear(&job);
    }
    assert_string_equal(order, expected);
}

static void test_turns(void **state)
{
    (void)state;
    static const char *const first[] = {"a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9", "a10"};
    struct store_job low = job_of("z1", "c"), taken;
    low.low = true;
    insert(&low);
    for (size_t i = 0; i < 10; i++)
        put(first[i], "a");
    put("b1", "b");
    assert_true(claim_at(&taken, 5000));
    assert_string_equal(taken.id, "a1");
    store_job_clear(&taken);
    assert_true(claim_at(&taken, 5000));
    assert_string_equal(taken.id, "b1");
    store_job_clear(&taken);
    put("b2", "b"); /* its turn is the one that waits first */
    put("b3", "b");
    put("d1", "d");
    strcpy(low.id, "z2");
    strcpy(low.client, "a"); /* a's normal jobs do not delay its low ones among the low ones */
    insert(&low);
    expect_order("a2 b2 d1 a3 b3 a4 a5 a6 a7 a8 a9 a10 z1 z2");
}

static void test_life(void **state)
{
    (void)state;
    struct store_job job = job_of("a1", "token t"), other;
    bool held, cancel, found;
    strcpy(job.token, "t");
    strcpy(job.batch, "holiday");
    strcpy(job.name, "photo \"1\".jpg");
    insert(&job);
    assert_int_equal(state_of("a1"), STORE_QUEUED);
    assert_true(claim_at(&other, 2000));
    assert_false(claim_at(&job, 2000));
    assert_string_equal(other.name, "photo \"1\".jpg");
    assert_string_equal(other.batch, "holiday");
    assert_string_equal(other.options, "{\"upscale\": 2}");
    assert_true(other.state == STORE_RUNNING && other.attempts == 1 && other.started == 2000 && other.lease == 2100);
    assert_true(other.seconds == 2 && other.megapixels == 1.5 && other.input_bytes == 77 && !other.low);
    FINE(store_renew(store, "a1", "me", 1, 2500, &held, &cancel, &err));
    assert_true(held && !cancel);
    FINE(store_renew(store, "a1", "another", 1, 2500, &held, &cancel, &err));
    assert_false(held);
    other.state = STORE_DONE;
    other.finished = 2300;
    other.expires = 9000;
    other.output_bytes = 1234;
    other.report = strdup("{\"faces\": []}");
    other.parts = strdup("[]");
    FINE(store_finish(store, &other, "me", &held, &err));
    assert_true(held);
    store_job_clear(&other);
    other = get("a1");
    assert_string_equal(other.report, "{\"faces\": []}");
    assert_string_equal(other.parts, "[]");
    assert_null(other.error);
    assert_true(other.state == STORE_DONE && other.finished == 2300 && other.output_bytes == 1234);
    assert_true(other.expires == 9000 && other.lease == 0);
    store_job_clear(&other);
    FINE(store_forget(store, "a1", &found, &err));
    assert_true(found);
    FINE(store_get(store, "a1", &other, &found, &err));
    assert_false(found);
    FINE(store_forget(store, "a1", &found, &err));
    assert_false(found);
}

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
    FINE(store_list(store, filter, add_listed, NULL, &more, &err));
    strcat(listed, more ? " …" : "");
    assert_string_equal(listed, expected);
}

static void put_as(const char *id, const char *token, const char *batch, int64_t created)
{
    struct store_job job = job_of(id, token);
    snprintf(job.token, sizeof job.token, "%s", token);
    snprintf(job.batch, sizeof job.batch, "%s", batch);
    job.created = created;
    insert(&job);
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
    assert_true(claim_at(&job, 100));
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
    err = (struct error)ERROR_INIT;
    assert_int_equal(store_list(store, &filter, add_listed, NULL, &more, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "j7"));
}

static void test_counts(void **state)
{
    (void)state;
    struct store_counts counts;
    struct store_job job;
    uint64_t ahead;
    double seconds;
    bool found;
    FINE(store_count(store, NULL, NULL, &counts, &err));
    assert_true(!counts.jobs[STORE_QUEUED] && !counts.oldest_queued && counts.seconds_queued == 0);
    put_as("j1", "t", "", 10);
    put_as("j2", "t", "b", 20);
    put_as("j3", "u", "b", 30);
    put_as("j4", "t", "b", 40);
    assert_true(claim_at(&job, 100));
    assert_string_equal(job.id, "j1");
    store_job_clear(&job);
    FINE(store_count(store, NULL, NULL, &counts, &err));
    assert_true(counts.jobs[STORE_QUEUED] == 3 && counts.jobs[STORE_RUNNING] == 1 && !counts.jobs[STORE_DONE]);
    assert_true(counts.oldest_queued == 20 && counts.seconds_queued == 6);
    FINE(store_count(store, "b", NULL, &counts, &err));
    assert_true(counts.jobs[STORE_QUEUED] == 3 && counts.jobs[STORE_RUNNING] == 0);
    FINE(store_count(store, "b", "u", &counts, &err));
    assert_true(counts.jobs[STORE_QUEUED] == 1 && counts.oldest_queued == 30 && counts.seconds_queued == 2);
    FINE(store_count(store, NULL, "t", &counts, &err));
    assert_true(counts.jobs[STORE_QUEUED] == 2 && counts.jobs[STORE_RUNNING] == 1);
    FINE(store_waiting(store, "t", &ahead, &err));
    assert_true(ahead == 2);
    FINE(store_waiting(store, "nobody", &ahead, &err));
    assert_true(ahead == 0);
    FINE(store_position(store, "j3", &ahead, &seconds, &found, &err));
    assert_true(found && ahead == 0 && seconds == 0);
    FINE(store_position(store, "j2", &ahead, &seconds, &found, &err)); /* t has had its turn: u goes before it */
    assert_true(found && ahead == 1 && seconds == 2);
    FINE(store_position(store, "j4", &ahead, &seconds, &found, &err));
    assert_true(found && ahead == 2 && seconds == 4);
    FINE(store_position(store, "j1", &ahead, &seconds, &found, &err));
    assert_false(found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_turns, setup, teardown),
        cmocka_unit_test_setup_teardown(test_life, setup, teardown),
        cmocka_unit_test_setup_teardown(test_list, setup, teardown),
        cmocka_unit_test_setup_teardown(test_counts, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
