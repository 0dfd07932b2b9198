#include "tests/common/store_case.h"

#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/common/postgres.h"

char case_folder[64], case_path[96], case_url[256];
struct store *case_store;
struct error case_err;

void case_remove_files(void)
{
    static const char *const ends[] = {"", "-wal", "-shm", ".new", "-journal"};
    char name[128];
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        snprintf(name, sizeof name, "%s%s", case_path, ends[i]);
        unlink(name);
    }
}

int case_setup(void **state)
{
    (void)state;
    strcpy(case_folder, "/tmp/restored_store_XXXXXX");
    if (!mkdtemp(case_folder))
        return -1;
    snprintf(case_path, sizeof case_path, "%s/jobs.db", case_folder);
    case_err = (struct error)ERROR_INIT;
    return store_open(&case_store, case_path, &case_err) ? -1 : 0;
}

enum error_code case_open(void)
{
    return *case_url ? store_open_shared(&case_store, case_url, NULL, &case_err)
                     : store_open(&case_store, case_path, &case_err);
}

/* For what both engines do alike. */
int case_setup_postgres(void **state)
{
    (void)state;
    case_err = (struct error)ERROR_INIT;
    return postgres_make(case_url) && !case_open() ? 0 : -1;
}

int case_teardown_postgres(void **state)
{
    (void)state;
    store_close(&case_store);
    postgres_remove();
    *case_url = 0;
    return 0;
}

int case_teardown(void **state)
{
    (void)state;
    store_close(&case_store);
    case_remove_files();
    return rmdir(case_folder);
}

struct store_job case_job(const char *id, const char *client)
{
    struct store_job job = {.created = 1000, .seconds = 2, .megapixels = 1.5, .input_bytes = 77};
    snprintf(job.id, sizeof job.id, "%s", id);
    snprintf(job.client, sizeof job.client, "%s", client);
    job.options = "{\"upscale\": 2}";
    return job;
}

void case_insert(const struct store_job *job)
{
    enum store_inserted what;
    char existing[33];
    FINE(store_insert(case_store, job, NULL, NULL, &what, existing, &case_err));
    assert_int_equal(what, STORE_NEW);
}

void case_put(const char *id, const char *client)
{
    const struct store_job job = case_job(id, client);
    case_insert(&job);
}

bool case_claim(struct store_job *out, int64_t now)
{
    bool found;
    FINE(store_claim(case_store, "me", now, now + 100, now + 1000, 3, out, &found, NULL, NULL, &case_err));
    return found;
}

struct store_job case_get(const char *id)
{
    struct store_job job;
    bool found;
    FINE(store_get(case_store, id, &job, &found, &case_err));
    assert_true(found);
    return job;
}

enum store_state case_state(const char *id)
{
    struct store_job job = case_get(id);
    const enum store_state state = job.state;
    store_job_clear(&job);
    return state;
}

/* --- fairness and the life of a job -------------------------------------------------------------------------------
 */

/* Claims everything and compares the order, "a1 b1 …". */
void case_expect_order(const char *expected)
{
    char order[1024] = "";
    struct store_job job;
    while (case_claim(&job, 5000)) {
        snprintf(order + strlen(order), sizeof order - strlen(order), "%s%s", *order ? " " : "", job.id);
        store_job_clear(&job);
    }
    assert_string_equal(order, expected);
}

/* --- leases --------------------------------------------------------------------------------------------------------
 */

enum error_code case_finish(const char *id, const char *owner, int attempts, bool *held)
{
    struct store_job job = {.state = STORE_DONE, .finished = 3000, .expires = 4000, .attempts = attempts};
    snprintf(job.id, sizeof job.id, "%s", id);
    job.report = "{}";
    case_err = (struct error)ERROR_INIT;
    return store_finish(case_store, &job, owner, held, &case_err);
}

void case_expect_queued(uint64_t expected)
{
    struct store_counts counts;
    FINE(store_count(case_store, NULL, NULL, &counts, &case_err));
    assert_int_equal(counts.jobs[STORE_QUEUED], expected);
}

/* SQL on the file or the database, past the store; the first value of its last row. */
int64_t case_sql(const char *text)
{
    sqlite3 *db;
    sqlite3_stmt *s;
    int64_t value = -1;
    if (*case_url)
        return postgres_sql(text);
    assert_int_equal(sqlite3_open(case_path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, text, -1, &s, NULL), SQLITE_OK);
    int rc;
    while ((rc = sqlite3_step(s)) == SQLITE_ROW)
        value = sqlite3_column_int64(s, 0);
    assert_int_equal(rc, SQLITE_DONE);
    sqlite3_finalize(s);
    sqlite3_close(db);
    return value;
}

/* Everything that reads and writes, whatever the answer. What it finds must be sane. */
void case_ignore_job(void *context, const struct store_job *job)
{
    (void)context;
    assert_true(job->state < STORE_STATES && strlen(job->id) > 0 && !strchr(job->id, '/'));
}

void case_ignore_id(void *context, const char *id)
{
    (void)context;
    assert_true(*id && !strchr(id, '/'));
}

static int case_run_with(const char *name, const struct CMUnitTest *tests, size_t count, CMFixtureFunction setup,
                         CMFixtureFunction teardown)
{
    struct CMUnitTest *own = calloc(count, sizeof *own);
    assert_non_null(own);
    for (size_t i = 0; i < count; i++) {
        own[i] = tests[i];
        own[i].setup_func = setup;
        own[i].teardown_func = teardown;
    }
    const int failed = _cmocka_run_group_tests(name, own, count, NULL, NULL);
    free(own);
    return failed;
}

int case_run(const struct CMUnitTest *tests, size_t count, bool both)
{
    const char *server = getenv("RESTORED_TEST_POSTGRES");
    int failed = case_run_with("sqlite", tests, count, case_setup, case_teardown);
    if (both && server && *server)
        failed += case_run_with("postgresql", tests, count, case_setup_postgres, case_teardown_postgres);
    else if (both)
        printf("skipped: the same on PostgreSQL, because none is running (tests/postgres.sh starts one)\n");
    return failed;
}
