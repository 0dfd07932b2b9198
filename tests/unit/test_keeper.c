/* The keeper of asynchronous jobs: what happens to one row or one client leaves the others alone. Rows that no request
 * could make are written by a connection of our own. */
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "runtime/base/log.h"
#include "server/job/events.h"
#include "server/job/keeper.h"
#include "server/job/keeper_output.h"
#include "server/job/waiting.h"
#include "tests/common/shared.h"
#include "tests/common/ticket.h"

#define BAD "0123456789abcdef0123456789abcdef"

static char folder[64], path[96], spool_folder[96];
static struct model_store *models;
static struct worker_pool *pool;
static struct spool *spool;
static struct keeper *keeper;
static sem_t done;

/* Every fsync of the process comes here. */
static struct {
    atomic_bool watched;
    sem_t begun, go;
    atomic_int folder, files, at_once, most;
} syncs;

static void most_at_once(int now)
{
    int most = atomic_load(&syncs.most);
    while (now > most && !atomic_compare_exchange_weak(&syncs.most, &most, now))
        ;
}

int fsync(int fd)
{
    char link[64], name[256] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const bool known = atomic_load(&syncs.watched) && readlink(link, name, sizeof name - 1) > 0 &&
                       !strncmp(name, spool_folder, strlen(spool_folder));
    if (known && !strcmp(name, spool_folder))
        atomic_fetch_add(&syncs.folder, 1);
    if (known && strcmp(name, spool_folder) != 0) {
        most_at_once(atomic_fetch_add(&syncs.at_once, 1) + 1);
        if (!atomic_fetch_add(&syncs.files, 1)) { /* the first one waits, so that all others come together */
            sem_post(&syncs.begun);
            while (sem_wait(&syncs.go))
                ;
        }
        for (int i = 0; i < 2000 && atomic_load(&syncs.most) < 2 && atomic_load(&syncs.files) > 1; i++)
            nanosleep(&(struct timespec){0, 5000000}, NULL); /* for another one, ten seconds at most */
        atomic_fetch_sub(&syncs.at_once, 1);
    }
    return (int)syscall(SYS_fsync, fd);
}

/* Every fdatasync, with which SQLite commits: one that is awaited stands still until it may go on. */
static struct {
    atomic_bool awaited;
    sem_t begun, go;
    char ending[33];     /* while this job's output is in the spool: the first two that come then fail */
    int64_t tried_ms[3]; /* when they and the next one came */
    atomic_int tried;
} commits;

static bool commit_fails(void)
{
    struct error err = ERROR_INIT;
    uint64_t size;
    int fd;
    const int tried = atomic_load(&commits.tried);
    if (!*commits.ending || tried == 3 || spool_read(spool, commits.ending, SPOOL_OUTPUT, &fd, &size, &err))
        return false;
    close(fd);
    commits.tried_ms[tried] = job_now() / 1000000;
    atomic_store(&commits.tried, tried + 1);
    return tried < 2;
}

int fdatasync(int fd)
{
    if (commit_fails()) {
        errno = EIO;
        return -1;
    }
    if (atomic_exchange(&commits.awaited, false)) {
        sem_post(&commits.begun);
        while (sem_wait(&commits.go))
            ;
    }
    return (int)syscall(SYS_fdatasync, fd);
}

static uint64_t queue_most = 1000;

static void open_keeper(void)
{
    struct error err = ERROR_INIT;
    const struct keeper_settings settings = {.path = path, .queue = queue_most, .result_seconds = 3600};
    if (spool_open(&spool, spool_folder, UINT64_C(1) << 30, &err) ||
        keeper_create(&keeper, &settings, pool, models, spool, &err))
        fail_msg("%s", err.text);
}

static void close_keeper(void)
{
    keeper_destroy(&keeper);
    spool_close(&spool);
}

/* models_of: a folder; where there are no models no job begins. */
static void open_all(const char *models_of)
{
    struct error err = ERROR_INIT;
    const struct model_defaults defaults = {.name = {"detector", "face_64", "parser", "srvgg_x2"}};
    const struct worker_settings settings = {.device = "cpu", .workers = 1, .queue = 8, .keep_seconds = 300};
    strcpy(folder, "/tmp/restored_keeper_XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/jobs.db", folder);
    snprintf(spool_folder, sizeof spool_folder, "%s/spool", folder);
    log_set_level(LOG_ERROR + 1); /* damage is an error */
    sem_init(&done, 0, 0);
    if (model_store_create(&models, models_of ? models_of : folder, &defaults, &err) ||
        worker_pool_create(&pool, &settings, models, &err))
        fail_msg("%s", err.text);
    open_keeper();
}

static int close_all(void **state)
{
    char command[128];
    (void)state;
    const struct timespec pause = {0, 5000000};
    if (keeper)
        keeper_drain(keeper);
    worker_pool_drain(pool);
    worker_pool_cancel_all(pool);
    while (!worker_pool_idle(pool))
        nanosleep(&pause, NULL);
    close_keeper(); /* before the pool, which it uses, as in the server */
    worker_pool_destroy(&pool);
    model_store_destroy(&models);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static void settle(void)
{
    struct error err = ERROR_INIT;
    const struct timespec pause = {0, 5000000};
    enum error_code code;
    while ((error_clear(&err), (code = worker_pool_ready(pool, &err)) == ERROR_BUSY))
        nanosleep(&pause, NULL);
    assert_int_equal(code, OK);
}

static void say_done(void *context)
{
    (void)context;
    sem_post(&done);
}

static void wait_for(int count)
{
    while (count-- > 0)
        while (sem_wait(&done))
            ;
}

/* A wish for a job of this token. */
static struct keeper_ticket *ticket_of(const char *token, uint32_t most)
{
    struct keeper_ticket *ticket = ticket_make(most, say_done);
    snprintf(ticket->job.token, sizeof ticket->job.token, "%s", token);
    snprintf(ticket->job.client, sizeof ticket->job.client, "token %s", token);
    return ticket;
}

/* Carries out a statement beside the keeper; returns the first number that it gives. */
static int64_t sql(const char *text)
{
    sqlite3 *db;
    sqlite3_stmt *statement;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 60000);
    assert_int_equal(sqlite3_prepare_v2(db, text, -1, &statement, NULL), SQLITE_OK);
    const int rc = sqlite3_step(statement);
    assert_true(rc == SQLITE_ROW || rc == SQLITE_DONE);
    const int64_t number = rc == SQLITE_ROW ? sqlite3_column_int64(statement, 0) : 0;
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return number;
}

static void add_row(const char *id, int state, int attempts, int cancel)
{
    char text[800];
    snprintf(text, sizeof text,
             "INSERT INTO jobs (id, state, low, cancel, attempts, turn, created, started, finished, expires, lease, "
             "seconds, megapixels, input_bytes, output_bytes, owner, client, token, batch, name, options) VALUES "
             "('%s', %d, 0, %d, %d, 0, 1000, 0, 0, 0, 1, 0, 0, 0, 0, 'gone', 'token x', 'x', '', '', '{}')",
             id, state, cancel, attempts);
    sql(text);
}

static enum store_state state_of(const char *id)
{
    struct error err = ERROR_INIT;
    struct store_job job;
    bool found;
    assert_int_equal(store_get(keeper_store(keeper), id, &job, &found, &err), OK);
    assert_true(found);
    const enum store_state state = job.state;
    store_job_clear(&job);
    return state;
}

/* Waits until it is done, or fails. */
static void expect_done(const char *id)
{
    const struct timespec pause = {0, 5000000};
    while (state_of(id) <= STORE_RUNNING)
        nanosleep(&pause, NULL);
    assert_int_equal(state_of(id), STORE_DONE);
}

/* Requests that come at the same time are counted one after the other. */
static void test_most(void **state)
{
    (void)state;
    struct keeper_ticket *tickets[12];
    int accepted = 0, over = 0;
    open_all(NULL);
    for (int i = 0; i < 12; i++)
        tickets[i] = ticket_of(i < 10 ? "anna" : "bert", i < 10 ? 3 : 0);
    for (int i = 0; i < 12; i++)
        keeper_ask(keeper, tickets[i]);
    wait_for(12);
    for (int i = 0; i < 10; i++) {
        accepted += !tickets[i]->err.code;
        over += tickets[i]->over && tickets[i]->err.code == ERROR_BUSY;
    }
    assert_int_equal(accepted, 3);
    assert_int_equal(over, 7);
    assert_true(!tickets[10]->err.code && !tickets[11]->err.code);
    struct spool *files = keeper_spool(keeper); /* and what was refused leaves nothing there */
    const uint64_t bytes = spool_used(files);
    for (int i = 0; i < 12; i++)
        ticket_free(tickets[i]);
    assert_int_equal(spool_used(files), bytes);
    assert_int_equal(sql("SELECT count(*) FROM jobs"), 5);
    assert_int_equal(bytes, 5 * sql("SELECT max(input_bytes) FROM jobs"));
}

static uint64_t count_of(const char *token)
{
    struct error err = ERROR_INIT;
    struct waiting *waiting = worker_pool_waiting(pool);
    char client[72];
    uint64_t count;
    snprintf(client, sizeof client, "token %s", token);
    waiting_lock(waiting);
    assert_int_equal(waiting_count(waiting, keeper_store(keeper), worker_pool_queue(pool), client, token, &count, &err),
                     OK);
    waiting_unlock(waiting);
    return count;
}

/* A job is counted once while it is on its way into the store, which does not show it yet, and when it is there. */
static void test_on_its_way(void **state)
{
    (void)state;
    struct keeper_ticket *tickets[3];
    open_all(NULL);
    sem_init(&commits.begun, 0, 0);
    sem_init(&commits.go, 0, 0);
    for (int i = 0; i < 3; i++)
        tickets[i] = ticket_of("anna", i < 2 ? 2 : 0);
    for (int i = 0; i < 2; i++) {
        atomic_store(&commits.awaited, true);
        keeper_ask(keeper, tickets[i]);
        while (sem_wait(&commits.begun))
            ;
        assert_int_equal(sql("SELECT count(*) FROM jobs"), i);
        assert_int_equal(count_of("anna"), i + 1);
        assert_int_equal(count_of("bert"), 0);
        sem_post(&commits.go);
        wait_for(1);
        assert_int_equal(tickets[i]->err.code, OK);
        assert_int_equal(count_of("anna"), i + 1);
    }
    tickets[2]->most = 2;
    keeper_ask(keeper, tickets[2]);
    wait_for(1);
    assert_true(tickets[2]->over);
    assert_int_equal(count_of("anna"), 2);
    for (int i = 0; i < 3; i++)
        ticket_free(tickets[i]);
}

/* One that is being claimed is counted, too: the store does not have it among those that wait any more, and the queue
 * has it not yet. */
static void test_claimed(void **state)
{
    (void)state;
    struct keeper_ticket *ticket = ticket_of("anna", 2);
    open_all(shared_fixtures());
    settle();
    sem_init(&commits.begun, 0, 0);
    sem_init(&commits.go, 0, 0);
    atomic_store(&commits.awaited, true);
    keeper_ask(keeper, ticket); /* accepted and claimed in one transaction */
    while (sem_wait(&commits.begun))
        ;
    assert_int_equal(count_of("anna"), 1);
    sem_post(&commits.go);
    wait_for(1);
    assert_int_equal(ticket->err.code, OK);
    expect_done(ticket->job.id);
    for (uint64_t left = 1; left; left = count_of("anna")) /* the turn that began it may be going on */
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    ticket_free(ticket);
}

/* A commit that fails is tried again after a second, not without a pause, and a job's end is not lost. */
static void test_commit_again(void **state)
{
    (void)state;
    open_all(shared_fixtures());
    settle();
    struct keeper_ticket *ticket = ticket_of("anna", 0);
    strcpy(commits.ending, ticket->job.id);
    keeper_ask(keeper, ticket);
    wait_for(1);
    assert_int_equal(ticket->err.code, OK);
    expect_done(ticket->job.id);
    assert_int_equal(atomic_load(&commits.tried), 3);
    for (int i = 0; i < 2; i++)
        assert_true(commits.tried_ms[i + 1] - commits.tried_ms[i] >= 900);
    ticket_free(ticket);
}

/* Pictures that come while the disk is busy are put there together: several at once, and the folder once. */
static void test_together(void **state)
{
    (void)state;
    struct keeper_ticket *tickets[9];
    open_all(NULL);
    sem_init(&syncs.begun, 0, 0);
    sem_init(&syncs.go, 0, 0);
    atomic_store(&syncs.watched, true);
    for (int i = 0; i < 9; i++) {
        tickets[i] = ticket_of("anna", 0);
        keeper_ask(keeper, tickets[i]);
        while (i == 0 && sem_wait(&syncs.begun))
            ;
    }
    sem_post(&syncs.go);
    wait_for(9);
    atomic_store(&syncs.watched, false);
    for (int i = 0; i < 9; i++) {
        assert_int_equal(tickets[i]->err.code, OK);
        ticket_free(tickets[i]);
    }
    assert_int_equal(atomic_load(&syncs.files), 9);
    assert_int_equal(atomic_load(&syncs.folder), 2);
    assert_true(atomic_load(&syncs.most) > 1);
}

/* A job that ends in the claim, because it was begun too often or was to stop, is told at once. */
static void test_told(void **state)
{
    (void)state;
    static const struct {
        int cancel;
        enum job_state state;
    } cases[] = {{0, JOB_FAILED}, {1, JOB_CANCELLED}};
    open_all(shared_fixtures());
    settle();
    for (int i = 0; i < 2; i++) {
        struct event event;
        bool lost;
        char id[33];
        uint64_t after = events_newest(worker_pool_events(pool));
        job_make_id(id);
        add_row(id, STORE_RUNNING, KEEPER_ATTEMPTS, cases[i].cancel);
        struct keeper_ticket *ticket = ticket_of("anna", 0);
        keeper_ask(keeper, ticket);
        wait_for(1);
        assert_int_equal(ticket->err.code, OK);
        assert_int_equal(events_read(worker_pool_events(pool), &after, id, NULL, &event, 1, &lost), 1);
        assert_true(event.kind == EVENT_ENDED && event.state == cases[i].state && !strcmp(event.token, "x"));
        expect_done(ticket->job.id);
        ticket_free(ticket);
    }
}

static void count_row(void *context, const struct store_job *job)
{
    (void)job;
    ++*(int *)context;
}

/* A row that is damaged fails alone: jobs begin, lists are made, the next start does not refuse the store, and it does
 * not remove pictures that may be that row's. */
static void test_damaged(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    char file[160];
    int rows = 0;
    bool more;
    open_all(shared_fixtures());
    settle();
    add_row("../../etc/passwd", STORE_QUEUED, 0, 0); /* its turn is the first */
    add_row("", STORE_QUEUED, 0, 0);
    struct keeper_ticket *ticket = ticket_of("anna", 0);
    keeper_ask(keeper, ticket);
    wait_for(1);
    assert_int_equal(ticket->err.code, OK);
    expect_done(ticket->job.id);
    assert_int_equal(sql("SELECT count(*) FROM jobs WHERE client = 'token x' AND state = 3 AND error LIKE '%damaged%'"),
                     2);
    struct stats_totals totals;
    stats_read(worker_pool_stats(pool), &totals);
    assert_int_equal(totals.failed, 2);
    const struct store_filter all = {.limit = 100};
    assert_int_equal(store_list(keeper_store(keeper), &all, count_row, &rows, &more, &err), OK);
    assert_int_equal(rows, 1);

    close_keeper();
    snprintf(file, sizeof file, "%s/" BAD ".output", spool_folder);
    const int fd = open(file, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
    sql("UPDATE jobs SET state = 2, output_bytes = 1 WHERE client = 'token x'");
    open_keeper();
    assert_int_equal(access(file, F_OK), 0);
    assert_int_equal(state_of(ticket->job.id), STORE_DONE);
    close_keeper(); /* without such a row it is nobody's */
    sql("DELETE FROM jobs WHERE client = 'token x'");
    open_keeper();
    assert_int_not_equal(access(file, F_OK), 0);
    ticket_free(ticket);
}

/* The spool promises room to the results of jobs, also after a restart, until they end or are refused. */
static void test_promised(void **state)
{
    (void)state;
    open_all(NULL);
    struct keeper_ticket *accepted = ticket_of("a", 0), *refused = ticket_of("a", 0), *cancel = ticket_of("a", 0);
    accepted->job.output_bytes = 1000;
    refused->job.output_bytes = UINT64_C(1) << 40;
    keeper_ask(keeper, accepted);
    wait_for(1);
    assert_int_equal(accepted->err.code, OK);
    keeper_ask(keeper, refused);
    wait_for(1);
    assert_int_equal(refused->err.code, ERROR_FULL);
    assert_int_equal(spool_promised(spool), 1000);
    close_keeper();
    open_keeper();
    assert_int_equal(spool_promised(spool), 1000);
    cancel->wish = KEEPER_CANCEL;
    strcpy(cancel->job.id, accepted->job.id);
    keeper_ask(keeper, cancel);
    wait_for(1);
    assert_int_equal(cancel->before, STORE_QUEUED);
    assert_int_equal(spool_promised(spool), 0);
    ticket_free(accepted);
    ticket_free(refused);
    ticket_free(cancel);
}

/* As many jobs wait as may, also when many come while the disk is busy, and are one group. */
static void test_queue_is_exact(void **state)
{
    (void)state;
    struct keeper_ticket *tickets[10];
    int accepted = 0;
    queue_most = 5;
    open_all(NULL);
    queue_most = 1000;
    sem_init(&commits.begun, 0, 0);
    sem_init(&commits.go, 0, 0);
    atomic_store(&commits.awaited, true);
    for (int i = 0; i < 10; i++) {
        keeper_ask(keeper, tickets[i] = ticket_of("a", 0));
        if (i == 0)
            while (sem_wait(&commits.begun))
                ;
    }
    sem_post(&commits.go);
    wait_for(10);
    for (int i = 0; i < 10; i++) {
        accepted += !tickets[i]->err.code;
        assert_true(!tickets[i]->err.code || tickets[i]->err.code == ERROR_BUSY);
        ticket_free(tickets[i]);
    }
    assert_int_equal(accepted, 5);
}

/* Room is kept for a result as large as it will be: a PNG without compression has all its samples. */
static void test_room(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct restoration *r;
    assert_int_equal(restoration_create(&r, &err), OK);
    r->in_info.width = 300;
    r->in_info.height = 200;
    r->in_info.channels = 3;
    r->in_info.bits = 8;
    r->output_format = IMAGE_PNG;
    assert_int_equal(keeper_output_estimate(r), 600 * 400 * 2);
    assert_int_equal(options_set(&r->options, "png_level", "0", &err), OK);
    assert_int_equal(keeper_output_estimate(r), 600 * 400 * 3);
    r->output_format = IMAGE_JPEG;
    assert_int_equal(keeper_output_estimate(r), 600 * 400 / 2);
    restoration_destroy(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_most, close_all),
        cmocka_unit_test_teardown(test_together, close_all),
        cmocka_unit_test_teardown(test_told, close_all),
        cmocka_unit_test_teardown(test_on_its_way, close_all),
        cmocka_unit_test_teardown(test_claimed, close_all),
        cmocka_unit_test_teardown(test_commit_again, close_all),
        cmocka_unit_test_teardown(test_damaged, close_all),
        cmocka_unit_test_teardown(test_promised, close_all),
        cmocka_unit_test_teardown(test_queue_is_exact, close_all),
        cmocka_unit_test(test_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
