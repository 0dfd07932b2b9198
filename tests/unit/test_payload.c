/* Payloads that no job has any more are swept: rows of the database, and files of a folder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/store/payload.h"
#include "server/store/pg.h"
#include "server/store/store.h"
#include "tests/common/postgres.h"

/* How often it was asked, and for how many. */
struct asked {
    int calls;
    size_t count;
};

/* A payload_wanted_fn: job "a" waits, job "b" has had two attempts. */
static void wanted(void *context, struct payload_asked *list, size_t count)
{
    struct asked *asked = context;
    asked->calls++;
    asked->count += count;
    for (size_t i = 0; i < count; i++)
        list[i].wanted = (!strcmp(list[i].id, "a") && !list[i].attempts) ||
                         (!strcmp(list[i].id, "b") && list[i].attempts == 2) || *list[i].id == 'w';
}

static char folder[64];

static void make_file(const char *name, bool old)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    const int fd = open(path, O_CREAT | O_WRONLY, 0600);
    const struct timespec times[2] = {{1000, 0}, {1000, 0}};
    assert_true(fd >= 0);
    if (old)
        assert_int_equal(futimens(fd, times), 0);
    close(fd);
}

static bool is_there(const char *name)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static void test_folder(void **state)
{
    static const char *const stay[] = {"in-a", "out-b-2", "in-c.txt", "notes", "out-b"}, *const go[] = {
                                                                                             "in-b", "out-a-1",
                                                                                             "out-b-1", "out-c-3",
                                                                                             ".part-in-a-12-7"};
    struct error err = ERROR_INIT;
    struct payload *payload;
    char command[96];
    struct asked asked = {0};
    bool more;
    (void)state;
    strcpy(folder, "/tmp/restored_payload_XXXXXX");
    assert_non_null(mkdtemp(folder));
    const struct payload_settings settings = {.where = folder, .store = "postgresql://nowhere"};
    assert_int_equal(payload_open(&payload, &settings, &err), OK);
    for (size_t i = 0; i < sizeof stay / sizeof *stay; i++)
        make_file(stay[i], true);
    for (size_t i = 0; i < sizeof go / sizeof *go; i++)
        make_file(go[i], true);
    make_file("in-d", false);
    make_file(".part-in-d-1-1", false);
    assert_int_equal(payload->engine->sweep(payload, 3600, 1000, wanted, &asked, &more, &err), OK);
    assert_false(more);
    for (size_t i = 0; i < sizeof stay / sizeof *stay; i++)
        assert_true(is_there(stay[i]));
    for (size_t i = 0; i < sizeof go / sizeof *go; i++)
        assert_false(is_there(go[i]));
    assert_true(is_there("in-d") && is_there(".part-in-d-1-1"));
    assert_int_equal(asked.count, 7); /* those that are named as payloads are */
    for (int i = 0; i < 2 * PAYLOAD_ASK_MOST; i++) {
        char name[32];
        snprintf(name, sizeof name, i % 2 ? "in-w%d" : "out-x%d-1", i);
        make_file(name, true);
    }
    asked = (struct asked){0};
    int rounds = 1; /* of 300 names; it goes on where it was */
    for (; payload->engine->sweep(payload, 3600, 300, wanted, &asked, &more, &err) == OK && more; rounds++)
        ;
    assert_int_equal(err.code, OK);
    assert_true(rounds >= 4 && asked.calls <= rounds && asked.count >= 2 * PAYLOAD_ASK_MOST);
    assert_true(is_there("in-w1") && is_there("in-w999") && !is_there("out-x0-1") && !is_there("out-x998-1"));
    payload_close(&payload);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}

/* More than one statement takes; what is wanted, new, or not ours stays. */
static void test_rows(void **state)
{
    struct error err = ERROR_INIT;
    struct payload *payload;
    struct store *store;
    char url[256];
    bool more;
    (void)state;
    if (!postgres_make(url))
        return;
    const struct payload_settings settings = {.where = "rows", .store = url};
    assert_int_equal(store_open_shared(&store, url, NULL, &err), OK); /* which makes the tables */
    assert_int_equal(payload_open(&payload, &settings, &err), OK);
    postgres_sql("INSERT INTO jobs (id, state, low, cancel, attempts, turn, created, started, finished, expires, lease,"
                 " seconds, megapixels, input_bytes, output_bytes, owner, client, token, batch, name)"
                 " VALUES ('a', 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '', '', '', '', '')");
    postgres_sql("INSERT INTO payloads SELECT 'in/x' || n, 0, 1 FROM generate_series(1, 250) AS n");
    postgres_sql("INSERT INTO payloads VALUES ('in/a', 0, 1), ('out/a/2', 0, 1), ('out/a/1', 0, 1), ('other', 0, 1),"
                 " ('in/new', extract(epoch FROM now()) * 1000, 1)");
    postgres_sql("INSERT INTO chunks SELECT name, 0, '\\x00' FROM payloads");
    assert_int_equal(payload->engine->sweep(payload, 3600, 100, wanted, NULL, &more, &err), OK);
    assert_true(more);
    assert_int_equal(payload->engine->sweep(payload, 3600, 1000, wanted, NULL, &more, &err), OK);
    assert_false(more);
    assert_int_equal(postgres_sql("SELECT count(*) FROM payloads"), 4);
    assert_int_equal(postgres_sql("SELECT count(*) FROM chunks"), 4);
    assert_int_equal(postgres_sql("SELECT count(*) FROM payloads WHERE name IN ('in/a', 'out/a/2', 'other', 'in/new')"),
                     4);
    static const char links[] = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                                " AND pid <> pg_backend_pid() AND query NOT LIKE '%schema_version%'";
    const long long kept = postgres_sql(links);
    assert_true(kept > 0);
    for (int i = 1; i < PAYLOAD_RESTS; i++)
        payload->engine->rest(payload);
    assert_int_equal(payload->engine->sweep(payload, 3600, 1000, wanted, NULL, &more, &err), OK); /* it is used */
    payload->engine->rest(payload);
    assert_int_equal(postgres_sql(links), kept);
    for (int i = 1; i < PAYLOAD_RESTS; i++)
        payload->engine->rest(payload);
    while (postgres_sql(links) >= kept) /* the database needs a moment */
        usleep(20000);
    payload_close(&payload);
    store_close(&store);
    postgres_remove();
}

#ifdef RESTORED_LIBPQ
/* What is said of a URI that is none, for the log, tells nothing of its password. */
static void test_secret(void **state)
{
    static const char *const urls[] = {"postgresql://u:secret@[::1/db", "postgresql://u:sec%zzret@h/db",
                                       "postgresql://u:secret/x@h/db", "postgresql://u:x@secret@h/db"};
    (void)state;
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        struct error err = ERROR_INIT;
        PGconn *db;
        assert_int_equal(pg_connect(&db, urls[i], NULL, &err), ERROR_INVALID);
        assert_null(strstr(err.text, "sec"));
        assert_null(strstr(err.detail, "sec"));
    }
}

/* Who disappears in a transaction holds no job for long. */
static void test_connection(void **state)
{
    struct error err = ERROR_INIT;
    PGresult *result = NULL;
    PGconn *db;
    char url[256];
    (void)state;
    if (!postgres_make(url))
        return;
    assert_int_equal(pg_connect(&db, url, NULL, &err), OK);
    assert_int_equal(pg_do(db, "SHOW idle_in_transaction_session_timeout", 0, NULL, &result, &err), OK);
    assert_string_equal(PQgetvalue(result, 0, 0), "30s");
    PQclear(result);
    PQfinish(db);
    postgres_remove();
}
#else
static void test_secret(void **state)
{
    (void)state;
}

static void test_connection(void **state)
{
    (void)state;
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_folder), cmocka_unit_test(test_rows),
                                       cmocka_unit_test(test_secret), cmocka_unit_test(test_connection)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
