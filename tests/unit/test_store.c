/* The store of jobs: who goes first, leases and fences, lists, and files that are damaged, foreign or on a full disk.
 * Long because each of its functions has its cases here. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/store/published.h"
#include "server/store/store.h"
#include "tests/common/postgres.h"

static char folder[64], path[96];
static char url[256]; /* of a database; "": the engine is SQLite */
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

static enum error_code open_again(void)
{
    return *url ? store_open_shared(&store, url, NULL, &err) : store_open(&store, path, &err);
}

/* For what both engines do alike. */
static int setup_postgres(void **state)
{
    (void)state;
    err = (struct error)ERROR_INIT;
    return postgres_make(url) && !open_again() ? 0 : -1;
}

static int teardown_postgres(void **state)
{
    (void)state;
    store_close(&store);
    postgres_remove();
    *url = 0;
    return 0;
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

/* A text of so many bytes; free(). */
static char *text_of(char letter, size_t bytes)
{
    char *text = malloc(bytes + 1);
    assert_non_null(text);
    memset(text, letter, bytes);
    text[bytes] = 0;
    return text;
}

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
    FINE(store_claim(store, "me", now, now + 100, now + 1000, 3, out, &found, NULL, NULL, &err));
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
    FINE(store_waiting(store, "t", "[]", &ahead, &err));
    assert_true(ahead == 2);
    FINE(store_waiting(store, "nobody", "[]", &ahead, &err));
    assert_true(ahead == 0);
    FINE(store_position(store, "j3", &ahead, &seconds, &found, 0, NULL, NULL, &err));
    assert_true(found && ahead == 0 && seconds == 0);
    FINE(store_position(store, "j2", &ahead, &seconds, &found, 0, NULL, NULL,
                        &err)); /* t has had its turn: u goes before it */
    assert_true(found && ahead == 1 && seconds == 2);
    FINE(store_position(store, "j4", &ahead, &seconds, &found, 0, NULL, NULL, &err));
    assert_true(found && ahead == 2 && seconds == 4);
    FINE(store_position(store, "j1", &ahead, &seconds, &found, 0, NULL, NULL, &err));
    assert_false(found);
}

/* --- leases --------------------------------------------------------------------------------------------------------
 */

static enum error_code finish_as(const char *id, const char *owner, int attempts, bool *held)
{
    struct store_job job = {.state = STORE_DONE, .finished = 3000, .expires = 4000, .attempts = attempts};
    snprintf(job.id, sizeof job.id, "%s", id);
    job.report = "{}";
    err = (struct error)ERROR_INIT;
    return store_finish(store, &job, owner, held, &err);
}

static void test_fence(void **state)
{
    (void)state;
    struct store_job job;
    bool held, cancel, found;
    put("a1", "a");
    FINE(store_claim(store, "first", 1000, 1100, 9000, 3, &job, &found, NULL, NULL, &err));
    assert_true(found && job.attempts == 1);
    store_job_clear(&job);
    FINE(store_claim(store, "second", 1099, 1200, 9000, 3, &job, &found, NULL, NULL, &err));
    assert_false(found);
    assert_string_equal(job.id, "");
    FINE(store_claim(store, "second", 1100, 1200, 9000, 3, &job, &found, NULL, NULL, &err));
    assert_true(found && job.attempts == 2 && job.started == 1100);
    store_job_clear(&job);
    FINE(store_renew(store, "a1", "first", 1, 5000, &held, &cancel, &err));
    assert_false(held);
    assert_int_equal(finish_as("a1", "first", 1, &held), OK);
    assert_false(held);
    assert_int_equal(finish_as("a1", "second", 1, &held), OK); /* an attempt of its own that was given up */
    assert_false(held);
    assert_int_equal(state_of("a1"), STORE_RUNNING);
    job = get("a1");
    assert_null(job.report);
    assert_true(job.lease == 1200);
    store_job_clear(&job);
    assert_int_equal(finish_as("a1", "second", 2, &held), OK);
    assert_true(held);
    assert_int_equal(finish_as("a1", "second", 2, &held), OK);
    assert_false(held);
    assert_int_equal(finish_as("b1", "second", 2, &held), OK);
    assert_false(held);
    job = (struct store_job){.id = "a1", .state = STORE_RUNNING};
    assert_int_equal(store_finish(store, &job, "second", &held, &err), ERROR_INTERNAL);
}

static void test_attempts(void **state)
{
    (void)state;
    struct store_job job;
    put("a1", "a");
    put("a2", "a");
    for (int attempt = 1; attempt <= 3; attempt++) { /* the same one, in its place before the other */
        assert_true(claim_at(&job, attempt * 1000));
        assert_string_equal(job.id, "a1");
        assert_int_equal(job.attempts, attempt);
        store_job_clear(&job);
    }
    assert_true(claim_at(&job, 4000));
    assert_string_equal(job.id, "a2");
    store_job_clear(&job);
    job = get("a1");
    assert_true(job.state == STORE_FAILED && job.finished == 4000 && job.expires == 5000 && job.attempts == 3);
    assert_non_null(strstr(job.error, "\"code\": \"internal\""));
    assert_non_null(strstr(job.error, "3 times"));
    store_job_clear(&job);
}

static void test_recover(void **state)
{
    (void)state;
    enum store_state before;
    struct store_job job;
    bool found;
    put("a1", "a");
    put("a2", "a");
    put("a3", "a");
    put("b1", "b");
    for (int i = 0; i < 3; i++) { /* a1, b1, a2 */
        assert_true(claim_at(&job, 2000));
        store_job_clear(&job);
    }
    FINE(store_cancel(store, "b1", 2000, 9000, &before, &found, &err));
    assert_true(found && before == STORE_RUNNING);
    store_close(&store);
    FINE(open_again());
    FINE(store_recover(store, 2050, 7000, 3, &err)); /* leases that are not over count no more */
    job = get("b1");
    assert_true(job.state == STORE_CANCELLED && job.finished == 2050 && job.expires == 7000 && !job.cancel);
    assert_null(job.error);
    store_job_clear(&job);
    job = get("a2");
    assert_true(job.state == STORE_QUEUED && job.started == 0 && job.attempts == 1 && job.lease == 0);
    store_job_clear(&job);
    put("b2", "b");
    expect_order("a1 b2 a2 a3");
    FINE(store_recover(store, 6000, 7000, 2, &err));
    job = get("a1");
    assert_true(job.state == STORE_FAILED && job.attempts == 2 && job.finished == 6000 && job.expires == 7000);
    assert_non_null(strstr(job.error, "2 times"));
    store_job_clear(&job);
    expect_order("b2 a3");
}

/* Where nothing waits, a new job does not get in front of those at work, should they have to wait again. */
static void test_give_back(void **state)
{
    (void)state;
    static const char *const ids[] = {"a1", "a2", "a3"};
    enum store_state before;
    struct store_job job;
    bool found;
    for (int i = 0; i < 3; i++)
        put(ids[i], "a");
    for (int i = 0; i < 3; i++) {
        assert_true(claim_at(&job, 2000));
        store_job_clear(&job);
    }
    put("b1", "b");
    FINE(store_give_back(store, "a3", "me", 2, &err)); /* another attempt's */
    assert_int_equal(state_of("a3"), STORE_RUNNING);
    FINE(store_give_back(store, "a3", "me", 1, &err));
    job = get("a3");
    assert_true(job.state == STORE_QUEUED && job.attempts == 0 && job.started == 0 && job.lease == 0);
    store_job_clear(&job);
    FINE(store_cancel(store, "a1", 2000, 9000, &before, &found, &err));
    FINE(store_give_back(store, "a1", "me", 1, &err));
    assert_true(claim_at(&job, 2050)); /* the leases of the others go on */
    assert_string_equal(job.id, "a3");
    store_job_clear(&job);
    assert_int_equal(state_of("a1"), STORE_CANCELLED);
    assert_int_equal(state_of("a2"), STORE_RUNNING);
    assert_true(claim_at(&job, 2050));
    assert_string_equal(job.id, "b1");
    store_job_clear(&job);
}

static void test_cancel(void **state)
{
    (void)state;
    enum store_state before;
    struct store_job job;
    bool found, held, cancel;
    put("a1", "a");
    put("a2", "a");
    assert_true(claim_at(&job, 2000));
    store_job_clear(&job);
    FINE(store_cancel(store, "a2", 2001, 9000, &before, &found, &err));
    assert_true(found && before == STORE_QUEUED);
    job = get("a2");
    assert_true(job.state == STORE_CANCELLED && job.finished == 2001 && job.expires == 9000 && !job.cancel);
    store_job_clear(&job);
    FINE(store_cancel(store, "a2", 2002, 9999, &before, &found, &err));
    assert_true(found && before == STORE_CANCELLED);
    job = get("a2");
    assert_true(job.expires == 9000);
    store_job_clear(&job);
    FINE(store_forget(store, "a1", &found, &err)); /* it has not ended */
    assert_false(found);
    FINE(store_cancel(store, "a1", 2002, 9000, &before, &found, &err));
    assert_true(found && before == STORE_RUNNING);
    job = get("a1");
    assert_true(job.state == STORE_RUNNING && job.cancel);
    store_job_clear(&job);
    FINE(store_renew(store, "a1", "me", 1, 3000, &held, &cancel, &err));
    assert_true(held && cancel);
    FINE(store_cancel(store, "b1", 2002, 9000, &before, &found, &err));
    assert_false(found);
}

/* --- keys, groups, the end ----------------------------------------------------------------------------------------
 */

static enum store_inserted put_with_key(const char *id, const char *client, const char *key, uint8_t body,
                                        const char *expected)
{
    const struct store_job job = job_of(id, client);
    uint8_t hash[32] = {body};
    enum store_inserted what;
    char existing[33];
    FINE(store_insert(store, &job, key, hash, &what, existing, &err));
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
    FINE(store_get(store, "a1", &job, &found, &err));
    store_job_clear(&job);
    expect_order("a1 b1 a2");
    assert_int_equal(put_with_key("a3", "a", "k", 1, "a1"), STORE_SAME);
    assert_int_equal(finish_as("a1", "me", 1, &held), OK);
    assert_int_equal(put_with_key("a3", "a", "k", 1, "a1"), STORE_SAME);
    FINE(store_forget(store, "a1", &found, &err));
    assert_true(found);
    assert_int_equal(put_with_key("a3", "a", "k", 2, ""), STORE_NEW);
}

static void expect_queued(uint64_t expected)
{
    struct store_counts counts;
    FINE(store_count(store, NULL, NULL, &counts, &err));
    assert_int_equal(counts.jobs[STORE_QUEUED], expected);
}

static void put_hundred(int first)
{
    char id[16];
    for (int i = first; i < first + 100; i++) {
        snprintf(id, sizeof id, "g%d", i);
        put(id, "a");
    }
}

static void test_groups(void **state)
{
    (void)state;
    struct store_job job = job_of("g7", "a");
    enum store_inserted what;
    char existing[33];
    FINE(store_begin(store, &err));
    put_hundred(0);
    FINE(store_insert(store, &job, NULL, NULL, &what, existing, &err)); /* the same id: it is there already */
    assert_int_equal(what, STORE_NEW);
    expect_queued(0); /* others see what is committed */
    FINE(store_commit(store, &err));
    expect_queued(100);
    FINE(store_begin(store, &err));
    put_hundred(100);
    store_rollback(store);
    store_rollback(store); /* nothing is left to undo */
    expect_queued(100);
    strcpy(job.id, "../x");
    err = (struct error)ERROR_INIT;
    assert_int_equal(store_insert(store, &job, NULL, NULL, &what, existing, &err), ERROR_INTERNAL);
    *job.id = 0;
    err = (struct error)ERROR_INIT;
    assert_int_equal(store_insert(store, &job, NULL, NULL, &what, existing, &err), ERROR_INTERNAL);
}

/* SQL on the file or the database, past the store; the first value of its last row. */
static int64_t sql(const char *text)
{
    sqlite3 *db;
    sqlite3_stmt *s;
    int64_t value = -1;
    if (*url)
        return postgres_sql(text);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, text, -1, &s, NULL), SQLITE_OK);
    int rc;
    while ((rc = sqlite3_step(s)) == SQLITE_ROW)
        value = sqlite3_column_int64(s, 0);
    assert_int_equal(rc, SQLITE_DONE);
    sqlite3_finalize(s);
    sqlite3_close(db);
    return value;
}

/* The second statement of a finish fails: the first is undone, and the transaction goes on. */
static void test_parts(void **state)
{
    (void)state;
    struct store_job job;
    bool held;
    put("a1", "a");
    assert_true(claim_at(&job, 2000));
    store_job_clear(&job);
    sql("INSERT INTO results (job) SELECT number FROM jobs");
    FINE(store_begin(store, &err));
    put("a2", "a");
    assert_int_equal(finish_as("a1", "me", 1, &held), ERROR_INTERNAL);
    assert_false(held);
    put("a3", "a");
    FINE(store_commit(store, &err));
    assert_int_equal(state_of("a1"), STORE_RUNNING);
    expect_queued(2);
    sql("DELETE FROM results");
    assert_int_equal(finish_as("a1", "me", 1, &held), OK);
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
    FINE(store_expire(store, now, most, add_id, NULL, &err));
    assert_string_equal(listed, expected);
}

static bool gone(const char *id)
{
    bool is;
    FINE(store_gone(store, id, &is, &err));
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
        put(id, "a");
        if (i == 6)
            break;
        assert_true(claim_at(&job, 2000));
        job.state = i == 2 ? STORE_FAILED : STORE_DONE;
        job.expires = i == 4 ? 0 : 9000 - i; /* a4 stays for ever */
        job.output_bytes = i == 3 ? 0 : 10;  /* a3 made no picture */
        job.report = strdup("{}");
        if (i < 5)
            FINE(store_finish(store, &job, "me", &held, &err));
        store_job_clear(&job);
    }
    *listed = 0;
    FINE(store_files(store, add_file, NULL, &err));
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
    assert_int_equal(sql("SELECT count(*) FROM results"), 1);
    assert_int_equal(sql("SELECT count(*) FROM jobs"), 3);
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
    put("a1", "a");
    put("a2", "a");
    put("a3", "a");
    FINE(store_cancel(store, "a3", 2000, 9000, &before, &found, &err));
    assert_true(claim_at(&out, 2000));
    assert_string_equal(out.id, "a1");
    store_job_clear(&out);
    FINE(store_known(store, "[\"a1\", \"none\", \"a3\"]", add_known, text, &err));
    assert_true(strstr(text, "a1+1 ") && strstr(text, "a3-0 "));
    assert_int_equal(strlen(text), 10);
    *text = 0;
    FINE(store_known(store, "[]", add_known, text, &err));
    assert_string_equal(text, "");
}

static uint8_t *read_whole(const char *name, size_t *size)
{
    FILE *f = fopen(name, "rb");
    assert_non_null(f);
    uint8_t *data = malloc(1 << 20);
    assert_non_null(data);
    *size = fread(data, 1, 1 << 20, f);
    assert_true(*size < 1 << 20);
    fclose(f);
    return data;
}

static void write_whole(const char *name, const void *data, size_t size)
{
    FILE *f = fopen(name, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

/* The store does not open, says so, and leaves the file as it is. */
static void expect_refused(enum error_code code, const char *text)
{
    size_t size, after;
    uint8_t *data = read_whole(path, &size);
    err = (struct error)ERROR_INIT;
    assert_int_equal(store_open(&store, path, &err), code);
    assert_null(store);
    assert_non_null(strstr(err.text, text));
    assert_non_null(strstr(err.text, path));
    uint8_t *now = read_whole(path, &after);
    assert_int_equal(after, size);
    assert_memory_equal(now, data, size);
    free(data);
    free(now);
}

/* open() of the process comes here, by the name of its symbol: the headers may have made a macro of the function's. */
static int open_fails_with;
int open_of_tests(const char *name, int flags, int mode) __asm__("open");
int open_of_tests(const char *name, int flags, int mode)
{
    if (open_fails_with && flags & O_CREAT && strstr(name, ".new")) {
        errno = open_fails_with;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, name, flags, mode);
}

/* A disk that is full, or the user's share of it, is told from one that is broken. */
static void test_no_room_to_make(void **state)
{
    static const int causes[] = {ENOSPC, EDQUOT, EIO};
    (void)state;
    store_close(&store);
    remove_files();
    for (int i = 0; i < 3; i++) {
        err = (struct error)ERROR_INIT;
        open_fails_with = causes[i];
        const enum error_code code = store_open(&store, path, &err);
        open_fails_with = 0;
        assert_int_equal(code, causes[i] == EIO ? ERROR_IO : ERROR_FULL);
        assert_null(store);
    }
}

static void test_foreign(void **state)
{
    (void)state;
    char journal[128];
    put("a1", "a");
    store_close(&store);
    sql("PRAGMA user_version = 3");
    expect_refused(ERROR_UNSUPPORTED, "newer version");
    sql("ALTER TABLE jobs DROP COLUMN progress"); /* what the first version had is brought up to date */
    sql("ALTER TABLE jobs DROP COLUMN needs");
    sql("DROP TABLE workers");
    sql("PRAGMA user_version = 1");
    FINE(store_open(&store, path, &err));
    expect_queued(1);
    store_close(&store);
    assert_int_equal(sql("PRAGMA user_version"), 2);
    sql("PRAGMA application_id = 0");
    expect_refused(ERROR_CORRUPT, "another program's file");
    sql("PRAGMA application_id = 1920169060");
    sql("CREATE TABLE more (x)");
    expect_refused(ERROR_CORRUPT, "damaged");
    sql("DROP TABLE more");
    sql("DROP INDEX jobs_expires");
    expect_refused(ERROR_CORRUPT, "damaged");
    remove_files();
    write_whole(path, "", 0);
    expect_refused(ERROR_CORRUPT, "another program's file");
    write_whole(path, "This is a letter, and no database of any kind.\n", 47);
    expect_refused(ERROR_CORRUPT, "damaged");
    remove_files();
    snprintf(journal, sizeof journal, "%s-wal", path);
    write_whole(journal, "some frames", 11);
    err = (struct error)ERROR_INIT;
    assert_int_equal(store_open(&store, path, &err), ERROR_CORRUPT);
    assert_non_null(strstr(err.text, "journal"));
    remove_files();
    assert_int_equal(mkdir(path, 0700), 0);
    err = (struct error)ERROR_INIT;
    assert_int_equal(store_open(&store, path, &err), ERROR_IO);
    assert_int_equal(rmdir(path), 0);
}

/* What was committed is there after the process has died: the files as they lie, copied. A start that was cut off while
 * it made the file is made again. */
static void test_killed(void **state)
{
    (void)state;
    size_t size, journal_size;
    char name[128];
    put("a1", "a");
    FINE(store_begin(store, &err));
    put("a2", "a"); /* not committed */
    uint8_t *data = read_whole(path, &size);
    snprintf(name, sizeof name, "%s-wal", path);
    uint8_t *journal = read_whole(name, &journal_size);
    assert_true(journal_size > 0);
    store_close(&store);
    remove_files();
    write_whole(path, data, size);
    write_whole(name, journal, journal_size);
    FINE(store_open(&store, path, &err));
    expect_order("a1");
    store_close(&store);
    remove_files();
    snprintf(name, sizeof name, "%s.new", path);
    write_whole(name, data, size / 2);
    FINE(store_open(&store, path, &err));
    expect_queued(0);
    struct stat stat_of;
    assert_int_equal(stat(path, &stat_of), 0);
    assert_int_equal(stat_of.st_mode & 0777, 0600);
    assert_int_equal(access(name, F_OK), -1);
    free(data);
    free(journal);
}

static void test_read_only(void **state)
{
    (void)state;
    int status;
    store_close(&store);
    assert_int_equal(chmod(path, 0444), 0);
    assert_int_equal(chmod(folder, 0555), 0);
    const pid_t child = fork(); /* root may write anywhere */
    if (child == 0) {
        if (geteuid() == 0 && setuid(65534))
            _exit(9);
        enum error_code code = store_open(&store, path, &err);
        _exit(code == ERROR_IO && !store && strstr(err.text, path) ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(chmod(folder, 0700), 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* Everything that reads and writes, whatever the answer. What it finds must be sane. */
static void ignore_job(void *context, const struct store_job *job)
{
    (void)context;
    assert_true(job->state < STORE_STATES && strlen(job->id) > 0 && !strchr(job->id, '/'));
}

static void ignore_id(void *context, const char *id)
{
    (void)context;
    assert_true(*id && !strchr(id, '/'));
}

static void ignore_file(void *context, const char *id, bool input, bool output)
{
    assert_false(input && output);
    if (*id) /* else the row is damaged */
        ignore_id(context, id);
}

#define TRY(call) (failed += ((err = (struct error)ERROR_INIT, (call)) != OK), assert_true(!err.code || *err.text))

static int use_everything(void)
{
    struct store_filter filter = {.limit = 100};
    struct store_counts counts;
    struct store_job job = job_of("new1", "a");
    enum store_inserted what;
    enum store_state before;
    bool more, found, held, cancel;
    char existing[33], id[16];
    uint64_t number;
    double seconds;
    int failed = 0;
    TRY(store_list(store, &filter, ignore_job, NULL, &more, &err));
    filter = (struct store_filter){.limit = 5, .token = "t", .batch = "b", .states = 5, .after = "d3"};
    TRY(store_list(store, &filter, ignore_job, NULL, &more, &err));
    TRY(store_count(store, NULL, NULL, &counts, &err));
    TRY(store_count(store, "b", "t", &counts, &err));
    TRY(store_waiting(store, "a", "[]", &number, &err));
    TRY(store_position(store, "d19", &number, &seconds, &found, 0, NULL, NULL, &err));
    TRY(store_files(store, ignore_file, NULL, &err));
    for (int i = 0; i < 20; i++) {
        snprintf(id, sizeof id, "d%d", i);
        TRY(store_get(store, id, &job, &found, &err));
        store_job_clear(&job);
    }
    TRY(store_begin(store, &err));
    job = job_of("new1", "a");
    TRY(store_insert(store, &job, "k1", (const uint8_t[32]){0}, &what, existing, &err));
    TRY(store_cancel(store, "d17", 1, 2, &before, &found, &err));
    TRY(store_renew(store, "d18", "me", 1, 9, &held, &cancel, &err));
    TRY(store_give_back(store, "d16", "me", 1, &err));
    TRY(store_recover(store, 1, 2, 3, &err));
    TRY(store_claim(store, "me", 5000, 6000, 9000, 3, &job, &found, NULL, NULL, &err));
    if (!err.code && found) {
        job.state = STORE_DONE;
        TRY(store_finish(store, &job, "me", &held, &err));
    }
    store_job_clear(&job);
    TRY(store_forget(store, "d2", &found, &err));
    TRY(store_expire(store, INT64_MAX / 2, 100, ignore_id, NULL, &err));
    store_rollback(store);
    return failed;
}

/* Jobs in every state, with keys, batches and results. */
static void put_many(void)
{
    struct store_job job;
    bool held;
    char key[16];
    FINE(store_begin(store, &err));
    for (int i = 0; i < 20; i++) {
        job = job_of("", i % 3 ? "a" : "b");
        snprintf(job.id, sizeof job.id, "d%d", i);
        snprintf(job.token, sizeof job.token, "%s", i % 2 ? "t" : "");
        snprintf(job.batch, sizeof job.batch, "%s", i % 3 ? "b" : "");
        snprintf(key, sizeof key, "k%d", i);
        FINE(store_insert(store, &job, key, (const uint8_t[32]){0}, &(enum store_inserted){0}, (char[33]){0}, &err));
    }
    for (int i = 0; i < 15; i++) {
        assert_true(claim_at(&job, 2000));
        job.state = (enum store_state)(STORE_DONE + i % 3);
        job.expires = 3000 + i;
        job.report = text_of('r', 3000);
        job.error = strdup("{}");
        if (i < 12)
            FINE(store_finish(store, &job, "me", &held, &err));
        store_job_clear(&job);
    }
    FINE(store_commit(store, &err));
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
                FINE(store_begin(store, &err));
            begun = true;
            break;
        case 1:
            if (begun)
                FINE(store_commit(store, &err));
            begun = false;
            break;
        case 2:
            if (begun)
                store_rollback(store);
            begun = false;
            break;
        case 3:
        case 4:
        case 5:
        case 6:
            snprintf(id, sizeof id, "j%d", number++);
            put(id, "a");
            break;
        case 7:
            FINE(store_cancel(store, id, now, now + 300, &before, &found, &err));
            break;
        case 8:
            FINE(store_forget(store, id, &found, &err));
            break;
        case 9:
            FINE(store_expire(store, now, 3, ignore_id, NULL, &err));
            break;
        case 10:
            FINE(store_recover(store, now, now + 300, 2, &err));
            break;
        default:
            FINE(store_claim(store, "me", now, now + 5, now + 300, 2, &job, &found, NULL, NULL, &err));
            if (found && random % 16 < 14) {
                job.state = random >> 40 & 1 ? STORE_DONE : STORE_FAILED;
                job.finished = now;
                job.expires = now + 300;
                FINE(store_finish(store, &job, "me", &held, &err));
                FINE(store_finish(store, &job, "me", &held, &err)); /* it has ended already */
                assert_false(held);
            }
            store_job_clear(&job);
        }
        FINE(store_count(store, NULL, NULL, &counts, &err));
        for (unsigned i = 0; i < STORE_STATES; i++) {
            const struct store_filter filter = {.limit = 1000, .states = 1u << i};
            uint64_t rows = 0;
            FINE(store_list(store, &filter, count_one, &rows, &more, &err));
            assert_false(more);
            assert_int_equal(counts.jobs[i], rows);
            seen |= (uint64_t)(rows > 0) << i;
        }
    }
    assert_int_equal(seen, (1 << STORE_STATES) - 1);
}

/* Bytes changed at many places: it opens and answers, with errors where it must, or it is refused. */
static void test_damaged(void **state)
{
    (void)state;
    const bool full = getenv("RESTORED_FULL") != NULL;
    int opened = 0, refused = 0, failed = 0;
    size_t size;
    uint64_t random = 88172645463325252u;
    put_many();
    store_close(&store);
    uint8_t *data = read_whole(path, &size);
    for (int i = 0; i < (full ? 20000 : 400); i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        /* half of them where a page begins: its kind, its number of cells, where they lie */
        const size_t at = i % 2 ? random % size : random % (size / 4096) * 4096 + (random >> 32) % 24;
        const uint8_t old = data[at];
        data[at] ^= (uint8_t)(1 + (random >> 40) % 255);
        remove_files();
        write_whole(path, data, size);
        data[at] = old;
        err = (struct error)ERROR_INIT;
        const enum error_code code = store_open(&store, path, &err);
        if (code) {
            assert_true(code == ERROR_CORRUPT || code == ERROR_UNSUPPORTED || code == ERROR_IO);
            assert_non_null(strstr(err.text, path));
            refused++;
            continue;
        }
        opened++;
        failed += use_everything() > 0;
        store_close(&store);
    }
    printf("of %d damaged stores %d opened, %d of them with errors later; %d were refused\n", opened + refused, opened,
           failed, refused);
    assert_true(refused > opened / 10 && opened > 0);
    remove_files();
    for (size_t cut = 0; cut < size; cut += 4096 + 1000) { /* and the end is missing */
        write_whole(path, data, cut);
        err = (struct error)ERROR_INIT;
        if (!store_open(&store, path, &err))
            use_everything();
        store_close(&store);
        remove_files();
    }
    free(data);
}

/* The file may not grow: as on a full disk, but for the number of the error. */
static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* Inserts jobs with options of this size in one group until one fails or all are in; then commits. */
static enum error_code put_large(int count, size_t bytes)
{
    struct store_job job = job_of("", "a");
    enum store_inserted what;
    enum error_code code = OK, again;
    char existing[33];
    job.options = text_of('o', bytes);
    FINE(store_begin(store, &err));
    for (int i = 0; i < count && !code; i++) {
        snprintf(job.id, sizeof job.id, "large%d", i);
        code = store_insert(store, &job, NULL, NULL, &what, existing, &err);
    }
    if (code) { /* what comes behind does not pretend */
        struct error second = ERROR_INIT;
        strcpy(job.id, "small");
        again = store_insert(store, &job, NULL, NULL, &what, existing, &second);
        assert_int_equal(again, code);
    }
    err = (struct error)ERROR_INIT;
    again = store_commit(store, &err);
    if (code)
        assert_int_equal(again, code);
    free(job.options);
    return again;
}

static void test_full(void **state)
{
    (void)state;
    put("a1", "a");
    put("a2", "a");
    signal(SIGXFSZ, SIG_IGN);
    limit_files(200000);
    assert_int_equal(put_large(1, 300000), ERROR_FULL); /* found out by the commit */
    assert_non_null(strstr(err.text, "no room"));
    expect_queued(2);
    assert_int_equal(put_large(100, 300000), ERROR_FULL); /* and while the group is being made */
    expect_queued(2);
    put("a3", "a"); /* there is room for a small one */
    limit_files(RLIM_INFINITY);
    assert_int_equal(put_large(3, 300000), OK);
    expect_queued(6);
    store_close(&store);
    FINE(store_open(&store, path, &err));
    expect_queued(6);
    store_close(&store);
    remove_files();
    limit_files(5000);
    err = (struct error)ERROR_INIT;
    assert_int_equal(store_open(&store, path, &err), ERROR_FULL);
    limit_files(RLIM_INFINITY);
    assert_int_equal(access(path, F_OK), -1);
    signal(SIGXFSZ, SIG_DFL);
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
        *broken += store_count(store, NULL, NULL, &counts, &own) != OK;
        *broken += counts.jobs[STORE_QUEUED] % 10 != 0 || counts.jobs[STORE_QUEUED] < last;
        last = counts.jobs[STORE_QUEUED];
        *broken += store_list(store, &filter, ignore_job, NULL, &more, &own) != OK;
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
        FINE(store_begin(store, &err));
        for (int i = 0; i < 10; i++) {
            snprintf(id, sizeof id, "t%d", group * 10 + i);
            put(id, "a");
        }
        FINE(store_commit(store, &err));
    }
    atomic_store(&stop_reading, true);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 3; i++)
        assert_int_equal(broken[i], 0);
    expect_queued(200);
}

/* --- PostgreSQL ----------------------------------------------------------------------------------------------------
 */

struct rival {
    pthread_t thread;
    const char *owner;
    int claimed;
    char ids[50][33];
};

/* Claims with a store of its own until nothing is left. */
static void *rival_claims(void *argument)
{
    struct rival *rival = argument;
    struct store *own;
    struct error local = ERROR_INIT;
    bool found = true;
    assert_int_equal(store_open_shared(&own, url, NULL, &local), OK);
    while (found) {
        struct store_job job;
        assert_int_equal(store_claim(own, rival->owner, 2000, 9000, 9000, 3, &job, &found, NULL, NULL, &local), OK);
        if (found)
            strcpy(rival->ids[rival->claimed++], job.id);
        store_job_clear(&job);
    }
    store_close(&own);
    return NULL;
}

/* Servers that claim at the same time never get the same job, and leave none. */
static void test_threads_shared(void **state)
{
    struct rival rivals[3] = {{.owner = "r0"}, {.owner = "r1"}, {.owner = "r2"}};
    char id[33];
    int claimed = 0;
    (void)state;
    for (int i = 0; i < 50; i++) {
        snprintf(id, sizeof id, "job%d", i);
        put(id, i & 1 ? "a" : "b");
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&rivals[i].thread, NULL, rival_claims, &rivals[i]), 0);
    for (int i = 0; i < 3; i++) {
        pthread_join(rivals[i].thread, NULL);
        claimed += rivals[i].claimed;
        for (int k = 0; k < rivals[i].claimed; k++) {
            struct store_job job = get(rivals[i].ids[k]);
            assert_string_equal(job.owner, rivals[i].owner);
            assert_int_equal(job.attempts, 1);
            store_job_clear(&job);
        }
    }
    assert_int_equal(claimed, 50);
}

static char seen_workers[256];

static void add_worker(void *context, const char *owner, int64_t seen, const char *about)
{
    (void)context;
    const size_t used = strlen(seen_workers);
    snprintf(seen_workers + used, sizeof seen_workers - used, "%s %lld %s;", owner, (long long)seen, about);
}

static void count_id(void *context, const char *id)
{
    (void)id;
    ++*(int *)context;
}

/* Two servers that expire jobs at the same time share them: neither waits, and nothing of a job stays. */
static void test_expire_two(void **state)
{
    struct store *other = NULL;
    int mine = 0, theirs = 0;
    (void)state;
    assert_int_equal(
        sql("WITH ended AS (INSERT INTO jobs OVERRIDING SYSTEM VALUE SELECT n, 'e' || n, 2, 0, 0, 1, 1, 1, 1, 1, n, 0, "
            "0, 0, 0, 0, '', 'a', '',"
            " '', '' FROM generate_series(1, 150) AS n RETURNING number)"
            ", reports AS (INSERT INTO results SELECT number, '{}', '[]' FROM ended) SELECT count(*) FROM ended"),
        150);
    FINE(store_open_shared(&other, url, NULL, &err));
    FINE(store_begin(store, &err));
    FINE(store_begin(other, &err));
    FINE(store_expire(store, 9000, 100, count_id, &mine, &err));
    FINE(store_expire(other, 9000, 100, count_id, &theirs, &err));
    FINE(store_commit(store, &err));
    FINE(store_commit(other, &err));
    store_close(&other);
    assert_int_equal(mine, 100);
    assert_int_equal(theirs, 50);
    assert_int_equal(sql("SELECT count(*) FROM jobs"), 0);
    assert_int_equal(sql("SELECT count(*) FROM results"), 0);
    assert_int_equal(sql("SELECT count(*) FROM gone"), 150);
}

/* A job goes only where its models are; beats; who is there. */
static void test_shared(void **state)
{
    struct store_job job = job_of("needy", "a"), out;
    bool held, cancel, found;
    enum store_state before;
    (void)state;
    job.needs = "[\"one\", \"two\"]";
    insert(&job);
    assert_false(claim_at(&out, 2000));
    FINE(store_offer(store, "[\"two\", \"three\"]", &err));
    assert_false(claim_at(&out, 2000));
    put("plain", "b");
    assert_true(claim_at(&out, 2000));
    assert_string_equal(out.id, "plain");
    store_job_clear(&out);
    FINE(store_offer(store, "[\"two\", \"three\", \"one\"]", &err));
    assert_true(claim_at(&out, 2000));
    assert_string_equal(out.id, "needy");
    store_job_clear(&out);

    FINE(store_beat(store, "needy", "me", 1, 5000, "{\"progress\": 0.5}", &held, &cancel, &err));
    assert_true(held && !cancel);
    FINE(store_cancel(store, "needy", 3000, 9000, &before, &found, &err));
    assert_int_equal(before, STORE_RUNNING);
    FINE(store_beat(store, "needy", "me", 1, 5000, "{\"progress\": 0.75}", &held, &cancel, &err));
    assert_true(held && cancel);
    out = get("needy");
    assert_string_equal(out.progress, "{\"progress\": 0.75}");
    store_job_clear(&out);
    FINE(store_beat(store, "needy", "you", 1, 5000, "", &held, &cancel, &err));
    assert_false(held);

    FINE(store_worker(store, "me", 1000, "{}", &err));
    FINE(store_worker(store, "you", 90000, "{}", &err));
    FINE(store_worker(store, "you", 90001, "{1}", &err));
    FINE(store_workers(store, 0, add_worker, NULL, &err));
    assert_string_equal(seen_workers, "me 1000 {};you 90001 {1};");
    FINE(store_worker_gone(store, "nobody", 90001, &err));
    *seen_workers = 0;
    FINE(store_workers(store, 0, add_worker, NULL, &err));
    assert_string_equal(seen_workers, "you 90001 {1};");
    assert_true(store_shared(store) && store_reachable(store));
    struct timespec clock; /* the database's is this machine's */
    for (int i = 0; i < 2; i++) {
        clock_gettime(CLOCK_REALTIME, &clock);
        assert_true(llabs(store_clock(store) - (int64_t)clock.tv_sec * 1000) < 300000);
        FINE(store_sync_clock(store, &err));
    }
    /* a text that is not UTF-8 does not spoil what it comes with */
    job = job_of("odd", "a");
    strcpy(job.name, "\xff.jpg");
    insert(&job);
    out = get("odd");
    assert_string_equal(out.name, "?.jpg");
    store_job_clear(&out);
}

static void count_published(void *context, const struct published *model)
{
    ++*(int *)context;
    assert_string_equal(model->name, "m");
}

/* A roll-out: servers whose tables are one step older or newer work on one store together; two steps are refused. */
static void expect_too_new(void)
{
    assert_non_null(strstr(err.text, "by a newer version of this program"));
    err = (struct error)ERROR_INIT;
}

static const char end_connections[] = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname ="
                                      " current_database() AND pid <> pg_backend_pid()";

static void test_versions(void **state)
{
    struct store *other = NULL;
    struct store_job out;
    bool found;
    const struct published model = {.name = "m", .sha256 = "00", .bytes = 1, .about = "{}"};
    int count = 0;
    (void)state;
    const long long version = sql("SELECT version FROM schema_version");
    /* an older server's tables, with that server at work */
    sql("DROP TABLE models");
    sql("UPDATE schema_version SET version = version - 1");
    put("old", "a");
    FINE(store_open_shared(&other, url, NULL, &err)); /* brings them up to date */
    assert_int_equal(sql("SELECT version FROM schema_version"), version);
    FINE(published_put(other, &model, &err));
    FINE(published_each(other, count_published, &count, &err));
    assert_int_equal(count, 1);
    put("older", "b"); /* the older one goes on */
    assert_true(claim_at(&out, 2000));
    assert_string_equal(out.id, "old");
    store_job_clear(&out);
    store_close(&other);
    /* a newer server's tables, which have something more */
    sql("ALTER TABLE jobs ADD COLUMN later TEXT");
    sql("UPDATE schema_version SET version = version + 1");
    FINE(store_open_shared(&other, url, NULL, &err));
    assert_int_equal(sql("SELECT version FROM schema_version"), version + 1);
    store_close(&store);
    store = other;
    put("newer", "c");
    assert_true(claim_at(&out, 2000));
    assert_string_equal(out.id, "older");
    store_job_clear(&out);
    /* two steps: a server cannot begin, and one at work sees it when it compares the clocks, or connects again */
    FINE(store_open_shared(&other, url, NULL, &err));
    FINE(store_get(store, "newer", &out, &found, &err)); /* connects, to read */
    store_job_clear(&out);
    sql("UPDATE schema_version SET version = version + 1");
    assert_int_equal(store_sync_clock(store, &err), ERROR_IO);
    expect_too_new();
    assert_false(store_reachable(store));
    assert_int_equal(store_get(store, "newer", &out, &found, &err), ERROR_IO);
    expect_too_new();
    assert_int_equal(store_begin(store, &err), ERROR_IO);
    expect_too_new();
    sql(end_connections);
    for (int i = 0; i < 600 && !strstr(err.text, "newer version"); i++, usleep(100000)) {
        err = (struct error)ERROR_INIT;
        if (!store_begin(other, &err)) /* until the end of the connection has come here */
            store_rollback(other);
    }
    expect_too_new();
    store_close(&other);
    assert_int_equal(store_open_shared(&other, url, NULL, &err), ERROR_UNSUPPORTED);
    expect_too_new();
}

/* Connections that the server ends: the transaction fails as a whole, and the next one works. */
static void test_lost(void **state)
{
    enum store_inserted what;
    char existing[33];
    struct store_job job = job_of("a2", "a");
    bool found;
    (void)state;
    put("a1", "a");
    expect_queued(1);
    FINE(store_begin(store, &err));
    put("a3", "a");
    sql(end_connections);
    err = (struct error)ERROR_INIT;
    assert_int_equal(store_insert(store, &job, NULL, NULL, &what, existing, &err), ERROR_IO);
    err = (struct error)ERROR_INIT;
    assert_int_equal(store_commit(store, &err), ERROR_IO);
    for (int i = 0; i < 600; i++) { /* the next connection is made after a second */
        err = (struct error)ERROR_INIT;
        if (!store_begin(store, &err))
            break;
        usleep(100000);
    }
    assert_int_equal(err.code, OK);
    put("a2", "a");
    FINE(store_commit(store, &err));
    for (int i = 0; i < 600; i++) {
        err = (struct error)ERROR_INIT;
        if (!store_get(store, "a3", &job, &found, &err))
            break;
        usleep(100000);
    }
    assert_int_equal(err.code, OK);
    assert_false(found);
    expect_queued(2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_turns, setup, teardown),
        cmocka_unit_test_setup_teardown(test_life, setup, teardown),
        cmocka_unit_test_setup_teardown(test_list, setup, teardown),
        cmocka_unit_test_setup_teardown(test_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fence, setup, teardown),
        cmocka_unit_test_setup_teardown(test_attempts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_recover, setup, teardown),
        cmocka_unit_test_setup_teardown(test_give_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cancel, setup, teardown),
        cmocka_unit_test_setup_teardown(test_keys, setup, teardown),
        cmocka_unit_test_setup_teardown(test_groups, setup, teardown),
        cmocka_unit_test_setup_teardown(test_parts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_expire, setup, teardown),
        cmocka_unit_test_setup_teardown(test_known, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_room_to_make, setup, teardown),
        cmocka_unit_test_setup_teardown(test_foreign, setup, teardown),
        cmocka_unit_test_setup_teardown(test_killed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_read_only, setup, teardown),
        cmocka_unit_test_setup_teardown(test_counted, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full, setup, teardown),
        cmocka_unit_test_setup_teardown(test_threads, setup, teardown),
    };
    const struct CMUnitTest shared[] = {
        cmocka_unit_test_setup_teardown(test_turns, setup_postgres, teardown_postgres),
        cmocka_unit_test_setup_teardown(test_life, setup_postgres, teardown_postgres),
        cmocka_unit_test_setup_teardown(test_list, setup_postgres, teardown_postgres),
        cmocka_unit_test_setup_teardown(test_counts, setup_postgres, teardown_postgres),
        cmocka_unit_test_setup_teardown(test_fence, setup_postgres, teardown_postgres),
        cmocka_unit_test_setup_teardown(test_attempts, setup_postgres, teardown_postgres),
        cmocka_unit_test_setup_teardown(test_recover, setup_postgres, teardown_postgres),
        cmocka_unit_test_setup_teardown(test_give_back, setup_postgres, teardown_postgres),
        cmocka_unit_test_setup_teardown(test_cancel, setup_postgres, teardown_postgres),
        cmocka_unit_test_setup_teardown(test_keys, setup_postgres, teardown_postgres),
        cmocka_unit_test_setup_teardown(test_groups, setup_postgres, teardown_postgres),
        cmocka_unit_test_setup_teardown(test_parts, setup_postgres, teardown_postgres),
        cmocka_unit_test_setup_teardown(test_expire, setup_postgres, teardown_postgres),
        cmocka_unit_test_setup_teardown(test_known, setup_postgres, teardown_postgres),
        cmocka_unit_test_setup_teardown(test_expire_two, setup_postgres, teardown_postgres),
        cmocka_unit_test_setup_teardown(test_shared, setup_postgres, teardown_postgres),
        cmocka_unit_test_setup_teardown(test_versions, setup_postgres, teardown_postgres),
        cmocka_unit_test_setup_teardown(test_lost, setup_postgres, teardown_postgres),
        cmocka_unit_test_setup_teardown(test_threads_shared, setup_postgres, teardown_postgres),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    const char *server = getenv("RESTORED_TEST_POSTGRES");
    if (!server || !*server) {
        printf("skipped: the same on PostgreSQL, because none is running (tests/postgres.sh starts one)\n");
        return failed;
    }
    return failed + cmocka_run_group_tests_name("postgresql", shared, NULL, NULL);
}
