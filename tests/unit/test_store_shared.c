/* The store of jobs in PostgreSQL: several servers at once, of several versions, and connections that are lost. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/store/pg.h"
#include "server/store/published.h"
#include "tests/common/store_case.h"

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
    assert_int_equal(store_open_shared(&own, case_url, NULL, &local), OK);
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
        case_put(id, i & 1 ? "a" : "b");
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&rivals[i].thread, NULL, rival_claims, &rivals[i]), 0);
    for (int i = 0; i < 3; i++) {
        pthread_join(rivals[i].thread, NULL);
        claimed += rivals[i].claimed;
        for (int k = 0; k < rivals[i].claimed; k++) {
            struct store_job job = case_get(rivals[i].ids[k]);
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
        case_sql(
            "WITH ended AS (INSERT INTO jobs OVERRIDING SYSTEM VALUE SELECT n, 'e' || n, 2, 0, 0, 1, 1, 1, 1, 1, n, 0, "
            "0, 0, 0, 0, '', 'a', '',"
            " '', '' FROM generate_series(1, 150) AS n RETURNING number)"
            ", reports AS (INSERT INTO results SELECT number, '{}', '[]' FROM ended) SELECT count(*) FROM ended"),
        150);
    FINE(store_open_shared(&other, case_url, NULL, &case_err));
    FINE(store_begin(case_store, &case_err));
    FINE(store_begin(other, &case_err));
    FINE(store_expire(case_store, 9000, 100, count_id, &mine, &case_err));
    FINE(store_expire(other, 9000, 100, count_id, &theirs, &case_err));
    FINE(store_commit(case_store, &case_err));
    FINE(store_commit(other, &case_err));
    store_close(&other);
    assert_int_equal(mine, 100);
    assert_int_equal(theirs, 50);
    assert_int_equal(case_sql("SELECT count(*) FROM jobs"), 0);
    assert_int_equal(case_sql("SELECT count(*) FROM results"), 0);
    assert_int_equal(case_sql("SELECT count(*) FROM gone"), 150);
}

/* A job goes only where its models are; beats; who is there. */
static void test_shared(void **state)
{
    struct store_job job = case_job("needy", "a"), out;
    bool held, cancel, found;
    enum store_state before;
    (void)state;
    job.needs = "[\"one\", \"two\"]";
    case_insert(&job);
    assert_false(case_claim(&out, 2000));
    FINE(store_offer(case_store, "[\"two\", \"three\"]", &case_err));
    assert_false(case_claim(&out, 2000));
    case_put("plain", "b");
    assert_true(case_claim(&out, 2000));
    assert_string_equal(out.id, "plain");
    store_job_clear(&out);
    FINE(store_offer(case_store, "[\"two\", \"three\", \"one\"]", &case_err));
    assert_true(case_claim(&out, 2000));
    assert_string_equal(out.id, "needy");
    store_job_clear(&out);

    FINE(store_beat(case_store, "needy", "me", 1, 5000, "{\"progress\": 0.5}", &held, &cancel, &case_err));
    assert_true(held && !cancel);
    FINE(store_cancel(case_store, "needy", 3000, 9000, &before, &found, &case_err));
    assert_int_equal(before, STORE_RUNNING);
    FINE(store_beat(case_store, "needy", "me", 1, 5000, "{\"progress\": 0.75}", &held, &cancel, &case_err));
    assert_true(held && cancel);
    out = case_get("needy");
    assert_string_equal(out.progress, "{\"progress\": 0.75}");
    store_job_clear(&out);
    FINE(store_beat(case_store, "needy", "you", 1, 5000, "", &held, &cancel, &case_err));
    assert_false(held);

    FINE(store_worker(case_store, "me", 1000, "{}", &case_err));
    FINE(store_worker(case_store, "you", 90000, "{}", &case_err));
    FINE(store_worker(case_store, "you", 90001, "{1}", &case_err));
    FINE(store_workers(case_store, 0, add_worker, NULL, &case_err));
    assert_string_equal(seen_workers, "me 1000 {};you 90001 {1};");
    FINE(store_worker_gone(case_store, "nobody", 90001, &case_err));
    *seen_workers = 0;
    FINE(store_workers(case_store, 0, add_worker, NULL, &case_err));
    assert_string_equal(seen_workers, "you 90001 {1};");
    assert_true(store_shared(case_store) && store_reachable(case_store));
    struct timespec clock; /* the database's is this machine's */
    for (int i = 0; i < 2; i++) {
        clock_gettime(CLOCK_REALTIME, &clock);
        assert_true(llabs(store_clock(case_store) - (int64_t)clock.tv_sec * 1000) < 300000);
        FINE(store_sync_clock(case_store, &case_err));
    }
    /* a text that is not UTF-8 does not spoil what it comes with */
    job = case_job("odd", "a");
    strcpy(job.name, "\xff.jpg");
    case_insert(&job);
    out = case_get("odd");
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
    assert_non_null(strstr(case_err.text, "by a newer version of this program"));
    case_err = (struct error)ERROR_INIT;
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
    const long long version = case_sql("SELECT version FROM schema_version");
    /* an older server's tables, with that server at work */
    case_sql("DROP TABLE hooks");
    case_sql("UPDATE schema_version SET version = version - 1");
    case_put("old", "a");
    FINE(store_open_shared(&other, case_url, NULL, &case_err)); /* brings them up to date */
    assert_int_equal(case_sql("SELECT version FROM schema_version"), version);
    FINE(published_put(other, &model, &case_err));
    FINE(published_each(other, count_published, &count, &case_err));
    assert_int_equal(count, 1);
    case_put("older", "b"); /* the older one goes on */
    assert_true(case_claim(&out, 2000));
    assert_string_equal(out.id, "old");
    store_job_clear(&out);
    store_close(&other);
    /* a newer server's tables, which have something more */
    case_sql("ALTER TABLE jobs ADD COLUMN later TEXT");
    case_sql("UPDATE schema_version SET version = version + 1");
    FINE(store_open_shared(&other, case_url, NULL, &case_err));
    assert_int_equal(case_sql("SELECT version FROM schema_version"), version + 1);
    store_close(&case_store);
    case_store = other;
    case_put("newer", "c");
    assert_true(case_claim(&out, 2000));
    assert_string_equal(out.id, "older");
    store_job_clear(&out);
    /* two steps: a server cannot begin, and one at work sees it when it compares the clocks, or connects again */
    FINE(store_open_shared(&other, case_url, NULL, &case_err));
    FINE(store_get(case_store, "newer", &out, &found, &case_err)); /* connects, to read */
    store_job_clear(&out);
    case_sql("UPDATE schema_version SET version = version + 1");
    assert_int_equal(store_sync_clock(case_store, &case_err), ERROR_IO);
    expect_too_new();
    assert_false(store_reachable(case_store));
    assert_int_equal(store_get(case_store, "newer", &out, &found, &case_err), ERROR_IO);
    expect_too_new();
    assert_int_equal(store_begin(case_store, &case_err), ERROR_IO);
    expect_too_new();
    case_sql(end_connections);
    for (int i = 0; i < 600 && !strstr(case_err.text, "newer version"); i++, usleep(100000)) {
        case_err = (struct error)ERROR_INIT;
        if (!store_begin(other, &case_err)) /* until the end of the connection has come here */
            store_rollback(other);
    }
    expect_too_new();
    store_close(&other);
    assert_int_equal(store_open_shared(&other, case_url, NULL, &case_err), ERROR_UNSUPPORTED);
    expect_too_new();
}

/* Connections that the server ends: the transaction fails as a whole, and the next one works. */
static void test_lost(void **state)
{
    enum store_inserted what;
    char existing[33];
    struct store_job job = case_job("a2", "a");
    bool found;
    (void)state;
    case_put("a1", "a");
    case_expect_queued(1);
    FINE(store_begin(case_store, &case_err));
    case_put("a3", "a");
    case_sql(end_connections);
    case_err = (struct error)ERROR_INIT;
    assert_int_equal(store_insert(case_store, &job, NULL, NULL, &what, existing, &case_err), ERROR_IO);
    case_err = (struct error)ERROR_INIT;
    assert_int_equal(store_commit(case_store, &case_err), ERROR_IO);
    for (int i = 0; i < 600; i++) { /* the next connection is made after a second */
        case_err = (struct error)ERROR_INIT;
        if (!store_begin(case_store, &case_err))
            break;
        usleep(100000);
    }
    assert_int_equal(case_err.code, OK);
    case_put("a2", "a");
    FINE(store_commit(case_store, &case_err));
    for (int i = 0; i < 600; i++) {
        case_err = (struct error)ERROR_INIT;
        if (!store_get(case_store, "a3", &job, &found, &case_err))
            break;
        usleep(100000);
    }
    assert_int_equal(case_err.code, OK);
    assert_false(found);
    case_expect_queued(2);
}

#ifdef RESTORED_LIBPQ
static void *read_slowly(void *context)
{
    struct error ignored = ERROR_INIT;
    struct store_job out;
    bool found;
    (void)context;
    (void)!store_get(case_store, "a1", &out, &found, &ignored);
    store_job_clear(&out);
    return NULL;
}

/* While the database does not answer somebody, others are told so soon, and hold no thread. */
static void test_slow(void **state)
{
    struct store_job out;
    pthread_t thread;
    PGconn *db;
    bool found;
    (void)state;
    case_put("a1", "a");
    FINE(pg_connect(&db, case_url, NULL, &case_err));
    FINE(pg_do(db, "BEGIN", 0, NULL, NULL, &case_err));
    FINE(pg_do(db, "LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE", 0, NULL, NULL, &case_err));
    assert_int_equal(pthread_create(&thread, NULL, read_slowly, NULL), 0);
    while (case_sql("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                    " AND wait_event_type = 'Lock'") < 1)
        usleep(5000);
    assert_int_equal(store_get(case_store, "a1", &out, &found, &case_err), ERROR_IO);
    assert_non_null(strstr(case_err.text, "takes long"));
    assert_false(found);
    FINE(pg_do(db, "COMMIT", 0, NULL, NULL, &case_err));
    PQfinish(db);
    pthread_join(thread, NULL);
    FINE(store_get(case_store, "a1", &out, &found, &case_err));
    assert_true(found);
    store_job_clear(&out);
}
#else
static void test_slow(void **state)
{
    (void)state;
}
#endif

int main(void)
{
    const struct CMUnitTest shared[] = {
        cmocka_unit_test_setup_teardown(test_slow, case_setup_postgres, case_teardown_postgres),
        cmocka_unit_test_setup_teardown(test_expire_two, case_setup_postgres, case_teardown_postgres),
        cmocka_unit_test_setup_teardown(test_shared, case_setup_postgres, case_teardown_postgres),
        cmocka_unit_test_setup_teardown(test_versions, case_setup_postgres, case_teardown_postgres),
        cmocka_unit_test_setup_teardown(test_lost, case_setup_postgres, case_teardown_postgres),
        cmocka_unit_test_setup_teardown(test_threads_shared, case_setup_postgres, case_teardown_postgres),
    };
    const char *server = getenv("RESTORED_TEST_POSTGRES");
    if (!server || !*server) {
        printf("skipped: the cases of PostgreSQL, because none is running (tests/postgres.sh starts one)\n");
        return 0;
    }
    return cmocka_run_group_tests_name("postgresql", shared, NULL, NULL);
}
