/* The keeper on a PostgreSQL whose answers to commits get lost, or which ends a transaction: no job is lost, doubled,
 * refused without need, or left until its lease is over. Skipped where no PostgreSQL is running (tests/postgres.sh). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/common/postgres.h"

#ifndef RESTORED_LIBPQ

int main(void)
{
    printf("skipped: this was built without libpq\n");
    return 0;
}

#else

#include <dlfcn.h>
#include <libpq-fe.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "server/job/events.h"
#include "server/job/keeper.h"
#include "server/store/store_statement.h"
#include "tests/common/shared.h"
#include "tests/common/ticket.h"

static char folder[64], spool_folder[96], url[256];
static struct model_store *models;
static struct worker_pool *pool;
static struct spool *spool;
static struct payload *payload;
static struct keeper *keeper;
static sem_t done;

/* --- libpq: what is sent comes here first --------------------------------------------------------------------------
 */

/* The next `count` commits of transactions with this statement happen, and their answers get lost. */
static struct {
    atomic_int which, count;
    _Atomic(PGconn *) db; /* the connection of such a transaction */
} losing;

static void lose(enum store_statement which, int count)
{
    atomic_store(&losing.db, NULL);
    atomic_store(&losing.which, (int)which);
    atomic_store(&losing.count, count);
}

/* So many new rows are answered as where two transactions wait for each other and this one is ended. */
static atomic_int deadlocks;

int PQsendQueryPrepared(PGconn *db, const char *name, int count, const char *const *values, const int *lengths,
                        const int *formats, int format)
{
    int (*next)(PGconn *, const char *, int, const char *const *, const int *, const int *, int);
    *(void **)&next = dlsym(RTLD_NEXT, "PQsendQueryPrepared");
    if (atoi(name + 1) == STORE_INSERT && atomic_load(&deadlocks) > 0 && atomic_fetch_sub(&deadlocks, 1) > 0)
        return PQsendQuery(db, "DO $$ BEGIN RAISE EXCEPTION 'deadlock detected' USING ERRCODE = '40P01'; END $$");
    if (atomic_load(&losing.count) > 0 && atoi(name + 1) == atomic_load(&losing.which))
        atomic_store(&losing.db, db);
    return next(db, name, count, values, lengths, formats, format);
}

int PQsendQueryParams(PGconn *db, const char *sql, int count, const Oid *types, const char *const *values,
                      const int *lengths, const int *formats, int format)
{
    int (*next)(PGconn *, const char *, int, const Oid *, const char *const *, const int *, const int *, int);
    *(void **)&next = dlsym(RTLD_NEXT, "PQsendQueryParams");
    const int sent = next(db, sql, count, types, values, lengths, formats, format);
    if (strcmp(sql, "COMMIT") != 0 || atomic_load(&losing.db) != db || atomic_load(&losing.count) <= 0)
        return sent;
    char answer[4096];
    struct pollfd socket = {.fd = PQsocket(db), .events = POLLIN};
    while (poll(&socket, 1, -1) < 0)
        ;
    (void)!recv(socket.fd, answer, sizeof answer, 0); /* it has happened */
    shutdown(socket.fd, SHUT_RDWR);
    atomic_store(&losing.db, NULL);
    atomic_fetch_sub(&losing.count, 1);
    return sent;
}

/* --- the disk ------------------------------------------------------------------------------------------------------
 */

/* Files and folders of the spool that somebody has waited for. */
static atomic_int synced;

int fsync(int fd)
{
    char link[64], name[256] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, name, sizeof name - 1) > 0 && !strncmp(name, spool_folder, strlen(spool_folder)))
        atomic_fetch_add(&synced, 1);
    return (int)syscall(SYS_fsync, fd);
}

/* --- payloads: rows, where the first that begins so can be held ----------------------------------------------------
 */

static struct {
    struct payload payload;
    const char *_Atomic which; /* "in/": to be read, "out/", "put in/": to be put; NULL: none */
    atomic_bool reached, go;
    atomic_bool away; /* results cannot be put */
} held;

static void hold_payload(const char *which)
{
    atomic_store(&held.reached, false);
    atomic_store(&held.go, false);
    atomic_store(&held.which, which);
}

static void held_wait(const char *which)
{
    const char *wanted = which;
    if (!atomic_load(&held.which) || strcmp(atomic_load(&held.which), which) != 0)
        return;
    wanted = atomic_exchange(&held.which, NULL);
    if (!wanted)
        return;
    atomic_store(&held.reached, true);
    while (!atomic_load(&held.go))
        nanosleep(&(struct timespec){0, 5000000}, NULL);
}

static enum error_code held_put(struct payload *unused, const char *name, int fd, uint64_t size, struct error *err)
{
    (void)unused;
    held_wait(strncmp(name, "out/", 4) ? "put in/" : "out/");
    if (!strncmp(name, "out/", 4) && atomic_load(&held.away))
        return error_set(err, ERROR_IO, "the tests' payloads are away");
    return payload->engine->put(payload, name, fd, size, err);
}

static enum error_code held_get(struct payload *unused, const char *name, payload_take_fn *take, void *context,
                                struct error *err)
{
    (void)unused;
    if (!strncmp(name, "in/", 3))
        held_wait("in/");
    return payload->engine->get(payload, name, take, context, err);
}

static enum error_code held_remove(struct payload *unused, const char *name, struct error *err)
{
    (void)unused;
    return payload->engine->remove(payload, name, err);
}

static const struct payload_engine held_engine = {
    .name = "held", .put = held_put, .get = held_get, .remove = held_remove};

/* --- a server's part -----------------------------------------------------------------------------------------------
 */

/* A server's start and end. */
static void open_server(const char *role)
{
    struct error err = ERROR_INIT;
    const struct worker_settings settings = {.device = "cpu", .workers = 1, .queue = 8, .keep_seconds = 300};
    char path[96];
    snprintf(path, sizeof path, "%s/jobs.db", folder);
    const struct keeper_settings kept = {
        .path = path, .queue = 1000, .result_seconds = 3600, .store = url, .role = role, .payload = &held.payload};
    if (worker_pool_create(&pool, &settings, models, &err) || spool_open(&spool, spool_folder, UINT64_C(1) << 30, &err))
        fail_msg("%s", err.text);
    while (error_clear(&err), worker_pool_ready(pool, &err) == ERROR_BUSY)
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    if (keeper_create(&keeper, &kept, pool, models, spool, &err))
        fail_msg("%s", err.text);
}

static void close_server(void)
{
    keeper_drain(keeper);
    worker_pool_drain(pool);
    worker_pool_cancel_all(pool);
    while (!worker_pool_idle(pool))
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    keeper_destroy(&keeper);
    spool_close(&spool);
    worker_pool_destroy(&pool);
}

static int open_all(void **state)
{
    struct error err = ERROR_INIT;
    const struct model_defaults defaults = {.name = {"detector", "face_64", "parser", "srvgg_x2"}};
    (void)state;
    strcpy(folder, "/tmp/restored_keeper_XXXXXX");
    if (!mkdtemp(folder) || !postgres_make(url))
        return -1;
    snprintf(spool_folder, sizeof spool_folder, "%s/spool", folder);
    log_set_level(LOG_ERROR + 1);
    sem_init(&done, 0, 0);
    const struct payload_settings payloads = {.where = "auto", .store = url};
    if (payload_open(&payload, &payloads, &err))
        fail_msg("%s", err.text);
    held.payload.engine = &held_engine;
    if (model_store_create(&models, shared_fixtures(), &defaults, &err))
        fail_msg("%s", err.text);
    open_server("both");
    return 0;
}

static int close_all(void **state)
{
    char command[128];
    (void)state;
    lose(STORE_BEGIN, 0);
    atomic_store(&deadlocks, 0);
    atomic_store(&held.go, true);
    atomic_store(&held.away, false);
    close_server();
    model_store_destroy(&models);
    payload_close(&payload);
    postgres_remove();
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static void say_done(void *context)
{
    (void)context;
    sem_post(&done);
}

/* Asks for a job of a client that may have so many that wait (0: any number), and waits for the answer. */
static struct keeper_ticket *accept_job(const char *key, uint32_t most)
{
    struct keeper_ticket *ticket = ticket_make(most, say_done);
    strcpy(ticket->job.client, "token anna");
    strcpy(ticket->job.token, "anna");
    strcpy(ticket->key, key);
    keeper_ask(keeper, ticket);
    while (sem_wait(&done))
        ;
    return ticket;
}

static long long sql_of(const char *format, const char *id)
{
    char text[256];
    snprintf(text, sizeof text, format, id);
    return postgres_sql(text);
}

static void wait_until(const char *format, const char *id, long long wanted)
{
    while (sql_of(format, id) != wanted) /* the test's time limit is the limit */
        nanosleep(&(struct timespec){0, 20000000}, NULL);
}

/* A job that is accepted and claimed in such a transaction is there once, though its client may have no other; it
 * begins without waiting for a lease, and has had one attempt. */
static void test_accepted(void **state)
{
    (void)state;
    lose(STORE_INSERT, 1);
    struct keeper_ticket *ticket = accept_job("", 1);
    assert_int_equal(atomic_load(&losing.count), 0);
    assert_int_equal(ticket->err.code, OK);
    wait_until("SELECT state FROM jobs WHERE id = '%s'", ticket->job.id, STORE_DONE);
    assert_int_equal(sql_of("SELECT attempts FROM jobs WHERE id = '%s'", ticket->job.id), 1);
    assert_int_equal(postgres_sql("SELECT count(*) FROM jobs"), 1);
    ticket_free(ticket);
}

/* Its end, too, happens once: it is told, and its picture goes. */
static void test_ended(void **state)
{
    struct event event = {.state = JOB_QUEUED};
    uint64_t after = events_newest(worker_pool_events(pool));
    bool lost;
    (void)state;
    lose(STORE_FINISH, 1);
    struct keeper_ticket *ticket = accept_job("", 1);
    assert_int_equal(ticket->err.code, OK);
    while (event.state != JOB_DONE || event.kind != EVENT_ENDED) {
        events_wait(worker_pool_events(pool), after, 100);
        events_read(worker_pool_events(pool), &after, ticket->job.id, NULL, &event, 1, &lost);
    }
    assert_int_equal(atomic_load(&losing.count), 0);
    wait_until("SELECT count(*) FROM payloads WHERE name = 'in/%s'", ticket->job.id, 0);
    assert_int_equal(sql_of("SELECT attempts FROM jobs WHERE id = '%s'", ticket->job.id), 1);
    assert_int_equal(sql_of("SELECT count(*) FROM payloads WHERE name = 'out/%s/1'", ticket->job.id), 1);
    ticket_free(ticket);
}

/* A request that is told of a failure though its job is there gets that job when it is repeated, with its picture. */
static void test_refused(void **state)
{
    (void)state;
    lose(STORE_INSERT, 100);
    struct keeper_ticket *refused = accept_job("key", 1);
    lose(STORE_INSERT, 0);
    assert_int_equal(refused->err.code, ERROR_IO);
    while (!store_reachable(keeper_store(keeper))) /* the next connection is made after a second */
        nanosleep(&(struct timespec){0, 20000000}, NULL);
    struct keeper_ticket *again = accept_job("key", 0);
    assert_int_equal(again->err.code, OK);
    assert_int_equal(again->inserted, STORE_SAME);
    assert_string_equal(again->job.id, refused->job.id);
    wait_until("SELECT count(*) FROM jobs WHERE id = '%s' AND state >= 2", again->job.id, 1);
    assert_int_equal(sql_of("SELECT state FROM jobs WHERE id = '%s'", again->job.id), STORE_DONE);
    assert_int_equal(sql_of("SELECT attempts FROM jobs WHERE id = '%s'", again->job.id), 1);
    ticket_free(refused);
    ticket_free(again);
}

/* Two servers that insert keys in opposite orders may wait for each other, until the database ends one of the
 * transactions: its requests are tried again, and nobody is refused. */
static void test_deadlock(void **state)
{
    (void)state;
    atomic_store(&deadlocks, 1);
    struct keeper_ticket *ticket = accept_job("key", 1);
    assert_int_equal(atomic_load(&deadlocks), 0);
    assert_int_equal(ticket->err.code, OK);
    assert_int_equal(ticket->inserted, STORE_NEW);
    wait_until("SELECT state FROM jobs WHERE id = '%s'", ticket->job.id, STORE_DONE);
    assert_int_equal(postgres_sql("SELECT count(*) FROM jobs"), 1);
    ticket_free(ticket);
}

/* A picture that comes slowly, and a result that goes slowly: other jobs are accepted, done and forgotten meanwhile,
 * and the lease goes on. */
static void test_slow(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        hold_payload(i ? "out/" : "in/");
        struct keeper_ticket *slow = accept_job("", 0);
        while (!atomic_load(&held.reached))
            nanosleep(&(struct timespec){0, 5000000}, NULL);
        struct keeper_ticket *other = accept_job("", 0);
        wait_until("SELECT state FROM jobs WHERE id = '%s'", other->job.id, STORE_DONE);
        wait_until("SELECT count(*) FROM payloads WHERE name = 'in/%s'", other->job.id, 0);
        const long long lease = sql_of("SELECT lease FROM jobs WHERE id = '%s'", slow->job.id);
        while (sql_of("SELECT lease FROM jobs WHERE id = '%s' AND state = 1", slow->job.id) <= lease)
            nanosleep(&(struct timespec){0, 20000000}, NULL);
        atomic_store(&held.go, true);
        wait_until("SELECT state FROM jobs WHERE id = '%s'", slow->job.id, STORE_DONE);
        assert_int_equal(sql_of("SELECT attempts FROM jobs WHERE id = '%s'", slow->job.id), 1);
        ticket_free(slow);
        ticket_free(other);
    }
}

/* A picture that goes slowly into the payloads keeps nobody else from being accepted and done. Nothing that is done
 * waits for this machine's disk. */
static void test_slow_accept(void **state)
{
    (void)state;
    hold_payload("put in/");
    atomic_store(&synced, 0);
    struct keeper_ticket *slow = ticket_make(0, say_done);
    strcpy(slow->job.client, "token anna");
    keeper_ask(keeper, slow);
    while (!atomic_load(&held.reached))
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    struct keeper_ticket *other = accept_job("", 0);
    wait_until("SELECT state FROM jobs WHERE id = '%s'", other->job.id, STORE_DONE);
    assert_int_equal(sql_of("SELECT count(*) FROM jobs WHERE id = '%s'", slow->job.id), 0);
    atomic_store(&held.go, true);
    while (sem_wait(&done))
        ;
    assert_int_equal(slow->err.code, OK);
    wait_until("SELECT state FROM jobs WHERE id = '%s'", slow->job.id, STORE_DONE);
    assert_int_equal(atomic_load(&synced), 0);
    ticket_free(slow);
    ticket_free(other);
}

/* Whether the end of this job was told to whoever may see it. */
static bool end_was_told(const char *id)
{
    struct event event;
    uint64_t after = 0;
    bool lost, told = false;
    while (!told && events_read(worker_pool_events(pool), &after, id, "anna", &event, 1, &lost))
        told = event.kind == EVENT_ENDED;
    return told;
}

/* A result that could not be delivered before its server ended, and is on its disk, is delivered by the next start,
 * which computes nothing, if the job waits again (0), or is still that attempt's (1), however many starts cannot
 * deliver it either; if another server has it (2), the result is dropped. Whoever had no answer to the adoption asks
 * again. */
static void test_undelivered(void **state)
{
    static const char *const rows[] = {"state = 0, attempts = 1", "state = 1, attempts = 1, owner = '%s'",
                                       "state = 1, attempts = 1, owner = 'other'"};
    char owner[33], row[128], text[256];
    (void)state;
    for (int i = 0; i < 3; i++) {
        atomic_store(&held.away, true);
        atomic_store(&synced, 0);
        struct keeper_ticket *ticket = accept_job("", 0);
        const char *id = ticket->job.id;
        assert_int_equal(ticket->err.code, OK);
        while (!spool_has(spool, id, SPOOL_RECORD))
            nanosleep(&(struct timespec){0, 20000000}, NULL);
        assert_true(atomic_load(&synced) >= 3); /* the result, its folder, the record */
        for (int starts = i == 1 ? 2 : 1; starts > 0; starts--) {
            strcpy(owner, keeper_owner(keeper));
            close_server(); /* which gives the job back */
            assert_int_equal(sql_of("SELECT state FROM jobs WHERE id = '%s'", id), STORE_QUEUED);
            snprintf(row, sizeof row, rows[i], owner); /* as a server that was killed leaves it */
            snprintf(text, sizeof text, "UPDATE jobs SET %s, lease = 9000000000000 WHERE id = '%s'", row, id);
            postgres_sql(text);
            lose(STORE_ADOPT, i == 0);
            open_server("front");
            while (i < 2 && !keeper_roomless(keeper, id, &(struct error){0})) /* the payloads are still away */
                nanosleep(&(struct timespec){0, 20000000}, NULL);
        }
        if (i < 2) {
            atomic_store(&held.away, false);
            wait_until("SELECT state FROM jobs WHERE id = '%s'", id, STORE_DONE);
            assert_int_equal(sql_of("SELECT attempts FROM jobs WHERE id = '%s'", id), i == 0 ? 2 : 1);
            assert_int_equal(sql_of("SELECT count(*) FROM payloads, jobs WHERE id = '%s'"
                                    " AND payloads.name = 'out/' || id || '/' || attempts",
                                    id),
                             1);
            assert_int_equal(sql_of("SELECT count(*) FROM results, jobs WHERE job = number AND id = '%s'", id), 1);
        }
        while (spool_has(spool, id, SPOOL_RECORD) || spool_has(spool, id, SPOOL_OUTPUT))
            nanosleep(&(struct timespec){0, 20000000}, NULL);
        assert_int_equal(end_was_told(id), i < 2);
        if (i == 2)
            assert_int_equal(sql_of("SELECT count(*) FROM jobs WHERE id = '%s' AND state = 1 AND owner = 'other'", id),
                             1);
        ticket_free(ticket);
        close_server();
        open_server("both");
    }
}

/* Lets the result go on once it is noted. */
static void *go_when_noted(void *id)
{
    while (!spool_has(spool, id, SPOOL_RECORD))
        nanosleep(&(struct timespec){0, 20000000}, NULL);
    atomic_store(&held.go, true);
    return NULL;
}

/* A server that stops while a result is slowly on its way notes it before it waits for that. */
static void test_noted_at_end(void **state)
{
    pthread_t thread;
    (void)state;
    hold_payload("out/");
    struct keeper_ticket *ticket = accept_job("", 0);
    while (!atomic_load(&held.reached))
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    assert_int_equal(pthread_create(&thread, NULL, go_when_noted, ticket->job.id), 0);
    close_server();
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(sql_of("SELECT state FROM jobs WHERE id = '%s'", ticket->job.id), STORE_DONE);
    open_server("both");
    assert_false(spool_has(spool, ticket->job.id, SPOOL_RECORD));
    ticket_free(ticket);
}

/* The same is noted where it is the database that does not take the end; and no more, once it has. */
static void test_noted(void **state)
{
    (void)state;
    lose(STORE_FINISH, 1000);
    struct keeper_ticket *ticket = accept_job("", 0);
    assert_int_equal(ticket->err.code, OK);
    while (!spool_has(spool, ticket->job.id, SPOOL_RECORD))
        nanosleep(&(struct timespec){0, 20000000}, NULL);
    assert_true(spool_has(spool, ticket->job.id, SPOOL_OUTPUT));
    lose(STORE_FINISH, 0);
    while (spool_has(spool, ticket->job.id, SPOOL_RECORD) || spool_has(spool, ticket->job.id, SPOOL_OUTPUT))
        nanosleep(&(struct timespec){0, 20000000}, NULL);
    assert_int_equal(sql_of("SELECT state FROM jobs WHERE id = '%s'", ticket->job.id), STORE_DONE);
    assert_int_equal(sql_of("SELECT attempts FROM jobs WHERE id = '%s'", ticket->job.id), 1);
    ticket_free(ticket);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_noted, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_undelivered, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_noted_at_end, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_slow_accept, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_slow, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_accepted, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_deadlock, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_ended, open_all, close_all),
        cmocka_unit_test_setup_teardown(test_refused, open_all, close_all),
    };
    const char *server = getenv("RESTORED_TEST_POSTGRES");
    if (!server || !*server) {
        printf("skipped: no PostgreSQL is running (tests/postgres.sh starts one)\n");
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
