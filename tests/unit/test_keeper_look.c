/* How kept jobs are told to be: rows as this server, another one and one that is gone have left them. No model is
 * there, so that this server claims nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "runtime/base/log.h"
#include "server/job/keeper_look.h"

static char folder[64], path[96];
static struct model_store *models;
static struct worker_pool *pool;
static struct spool *spool;
static struct keeper *keeper;
static struct error err;

static int begin(void **state)
{
    char files[96];
    (void)state;
    const struct worker_settings settings = {.device = "cpu", .workers = 1, .queue = 8, .keep_seconds = 300};
    const struct model_defaults defaults = {.name = {"a", "b", "c", "d"}};
    strcpy(folder, "/tmp/restored_look_XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/jobs.db", folder);
    snprintf(files, sizeof files, "%s/spool", folder);
    log_set_level(LOG_ERROR + 1);
    const struct keeper_settings kept = {.path = path, .queue = 1000, .result_seconds = 3600};
    if (model_store_create(&models, folder, &defaults, &err) || worker_pool_create(&pool, &settings, models, &err) ||
        spool_open(&spool, files, 1 << 30, &err) || keeper_create(&keeper, &kept, pool, models, spool, &err))
        fail_msg("%s", err.text);
    return 0;
}

static int end(void **state)
{
    char command[128];
    (void)state;
    keeper_drain(keeper);
    keeper_destroy(&keeper);
    spool_close(&spool);
    worker_pool_destroy(&pool);
    model_store_destroy(&models);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

/* turn: also when it was created. lease: from now, in milliseconds. */
static void add_row(const char *id, enum store_state state, const char *owner, int turn, int64_t lease)
{
    sqlite3 *db;
    char text[800];
    snprintf(text, sizeof text,
             "INSERT INTO jobs (id, state, low, cancel, attempts, turn, created, started, finished, expires, lease, "
             "seconds, megapixels, input_bytes, output_bytes, owner, client, token, batch, name, options) VALUES "
             "('%s', %d, 0, 0, %d, %d, %d, %d, 0, 0, %lld, 2, 0, 0, 0, '%s', 'token x', 'x', 'b', '', '{}')",
             id, state, state > STORE_QUEUED, turn, 1000 + turn, state > STORE_QUEUED ? 5000 : 0,
             (long long)(job_clock() + lease), owner);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 60000);
    assert_int_equal(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

#define HOUR 3600000

static void add_rows(void)
{
    add_row("ours", STORE_RUNNING, keeper_owner(keeper), 0, HOUR); /* it has not begun on a device */
    add_row("gone", STORE_RUNNING, "gone", 1, -HOUR);
    add_row("theirs", STORE_RUNNING, "other", 2, HOUR);
    add_row("first", STORE_QUEUED, "", 3, 0);
    add_row("second", STORE_QUEUED, "", 4, 0);
    add_row("over", STORE_FAILED, "", 5, 0);
}

static void one_job(void **state)
{
    (void)state;
    static const struct {
        const char *id;
        enum store_state state;
        int attempts;
        int64_t started;
        uint64_t position;
    } wanted[] = {{"ours", STORE_QUEUED, 0, 0, 0},       {"gone", STORE_QUEUED, 0, 0, 0},
                  {"theirs", STORE_RUNNING, 1, 5000, 0}, {"first", STORE_QUEUED, 0, 0, 0},
                  {"second", STORE_QUEUED, 0, 0, 1},     {"over", STORE_FAILED, 1, 5000, 0}};
    struct keeper_view view;
    add_rows();
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        assert_int_equal(keeper_look(keeper, wanted[i].id, &view, &err), OK);
        assert_string_equal(view.job.id, wanted[i].id);
        assert_int_equal(view.job.state, wanted[i].state);
        assert_int_equal(view.job.attempts, wanted[i].attempts);
        assert_int_equal(view.job.started, wanted[i].started);
        assert_int_equal(view.position, wanted[i].position);
        assert_false(view.running); /* here */
        assert_true(view.job.state == STORE_QUEUED ? view.left >= 2 : view.left < 0);
        keeper_view_clear(&view);
    }
    assert_int_equal(keeper_look(keeper, "nobody", &view, &err), ERROR_NOT_FOUND);
}

static void add_id(void *context, const struct store_job *job)
{
    snprintf((char *)context + strlen(context), 200 - strlen(context), "%s%s", *(char *)context ? " " : "", job->id);
}

static void expect_list(unsigned states, int limit, const char *after, const char *ids, bool wanted)
{
    char list[200] = "";
    bool more;
    struct store_filter filter = {.states = states, .limit = limit};
    strcpy(filter.after, after);
    assert_int_equal(keeper_look_list(keeper, &filter, add_id, list, &more, &err), OK);
    assert_string_equal(list, ids);
    assert_int_equal(more, wanted);
}

static void lists_and_counts(void **state)
{
    (void)state;
    static const uint64_t wanted[STORE_STATES] = {[STORE_QUEUED] = 4, [STORE_RUNNING] = 1, [STORE_FAILED] = 1};
    const unsigned queued = 1u << STORE_QUEUED, running = 1u << STORE_RUNNING, failed = 1u << STORE_FAILED;
    struct store_counts counts;
    add_rows();
    expect_list(0, 100, "", "over second first theirs gone ours", false);
    expect_list(queued, 100, "", "second first gone ours", false);
    expect_list(running, 100, "", "theirs", false);
    expect_list(running | failed, 100, "", "over theirs", false);
    expect_list(queued, 2, "", "second first", true);
    expect_list(queued, 2, "first", "gone ours", false);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(keeper_look_count(keeper, i ? "b" : NULL, i ? "x" : NULL, &counts, &err), OK);
        for (int at = 0; at < STORE_STATES; at++)
            if (i || at <= STORE_RUNNING) /* those that have ended are counted as they end */
                assert_int_equal(counts.jobs[at], wanted[at]);
        assert_int_equal(counts.oldest_queued, 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(one_job, begin, end),
                                       cmocka_unit_test_setup_teardown(lists_and_counts, begin, end)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
