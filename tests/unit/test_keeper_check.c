/* What the start of a server does with files and jobs that do not belong together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/job/keeper_check.h"

static struct error err;

/* A job's id: so many times the same digit. */
static const char *id_of(char digit)
{
    static char ids[16][33];
    char *id = ids[digit & 15];
    memset(id, digit, 32);
    return id;
}

static void put_file(struct spool *spool, char digit, enum spool_kind kind)
{
    struct spool_file *file;
    assert_int_equal(spool_create(spool, &file, &err), OK);
    assert_int_equal(spool_write(file, "picture", 7, &err), OK);
    assert_int_equal(spool_keep(spool, &file, id_of(digit), kind, &err), OK);
}

static bool has_file(struct spool *spool, char digit, enum spool_kind kind)
{
    int fd;
    uint64_t size;
    struct error local = ERROR_INIT;
    const bool there = !spool_read(spool, id_of(digit), kind, &fd, &size, &local);
    if (there)
        close(fd);
    return there;
}

static void put_job(struct store *store, char digit)
{
    struct store_job job = {.created = 1000, .input_bytes = 7, .options = "{}"};
    enum store_inserted what;
    char existing[33];
    snprintf(job.id, sizeof job.id, "%s", id_of(digit));
    assert_int_equal(store_insert(store, &job, NULL, NULL, &what, existing, &err), OK);
}

/* The job is done, with a picture. */
static void finish_job(struct store *store, char digit)
{
    struct store_job job;
    bool found, held;
    put_job(store, digit);
    assert_int_equal(store_claim(store, "me", 2000, 3000, 9000, 3, &job, &found, NULL, NULL, &err), OK);
    assert_true(found && !strcmp(job.id, id_of(digit)));
    job.state = STORE_DONE;
    job.finished = 2500;
    job.expires = 9000;
    job.output_bytes = 7;
    job.report = strdup("{}");
    job.parts = strdup("[]");
    assert_int_equal(store_finish(store, &job, "me", &held, &err), OK);
    assert_true(held);
    store_job_clear(&job);
}

/* A job that is done and whose picture is gone has failed, and says why; others are as they were. */
static void what_is_lost_is_told(struct store *store, struct spool *spool)
{
    struct store_counts counts;
    struct store_job job;
    bool found;
    finish_job(store, '7');
    finish_job(store, '8');
    put_file(spool, '8', SPOOL_OUTPUT);
    assert_int_equal(keeper_check(store, spool, &err), OK);
    assert_int_equal(store_get(store, id_of('7'), &job, &found, &err), OK);
    assert_int_equal(job.state, STORE_FAILED);
    assert_non_null(strstr(job.error, "is lost"));
    assert_true(!job.report && !job.parts && !job.output_bytes && job.expires == 9000);
    store_job_clear(&job);
    assert_int_equal(store_get(store, id_of('8'), &job, &found, &err), OK);
    assert_true(job.state == STORE_DONE && job.report && job.parts);
    store_job_clear(&job);
    assert_int_equal(store_count(store, NULL, NULL, &counts, &err), OK);
    assert_true(counts.jobs[STORE_DONE] == 1 && counts.jobs[STORE_FAILED] == 1);
}

/* Files of jobs stay, whatever else there is; others go. A job without its file stays, too. */
static void what_belongs_together_stays(void **state)
{
    (void)state;
    char folder[] = "/tmp/restored_check_XXXXXX", path[64], command[64];
    struct spool *spool;
    struct store *store;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/spool", folder);
    assert_int_equal(spool_open(&spool, path, 1 << 20, &err), OK);
    snprintf(path, sizeof path, "%s/jobs.db", folder);
    assert_int_equal(store_open(&store, path, &err), OK);
    assert_int_equal(keeper_check(store, spool, &err), OK); /* nothing at all */
    what_is_lost_is_told(store, spool);
    for (char digit = 'f'; digit >= 'a'; digit--) {
        if (digit != 'c')
            put_job(store, digit);
        if (digit != 'd')
            put_file(spool, digit, SPOOL_INPUT);
    }
    put_file(spool, 'b', SPOOL_OUTPUT); /* it is not done */
    assert_int_equal(keeper_check(store, spool, &err), OK);
    for (char digit = 'a'; digit <= 'f'; digit++) {
        struct store_job job;
        bool found;
        assert_int_equal(has_file(spool, digit, SPOOL_INPUT), digit != 'c' && digit != 'd');
        assert_int_equal(store_get(store, id_of(digit), &job, &found, &err), OK);
        assert_int_equal(found, digit != 'c');
        if (found)
            store_job_clear(&job);
    }
    assert_false(has_file(spool, 'b', SPOOL_OUTPUT));
    store_close(&store);
    spool_close(&spool);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}

/* Results of a shared store's jobs that wait for their delivery are none of a store that is gone. */
static void what_is_undelivered_is_of_no_store(void **state)
{
    (void)state;
    char folder[] = "/tmp/restored_check_XXXXXX", path[64], command[64];
    struct spool *spool;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/spool", folder);
    assert_int_equal(spool_open(&spool, path, 1 << 20, &err), OK);
    snprintf(path, sizeof path, "%s/jobs.db", folder);
    put_file(spool, '1', SPOOL_OUTPUT);
    put_file(spool, '1', SPOOL_RECORD);
    assert_int_equal(keeper_check_gone(path, spool, &err), OK);
    put_file(spool, '2', SPOOL_OUTPUT);
    assert_int_equal(keeper_check_gone(path, spool, &err), ERROR_CORRUPT);
    error_clear(&err);
    spool_close(&spool);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_belongs_together_stays),
                                       cmocka_unit_test(what_is_undelivered_is_of_no_store)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
