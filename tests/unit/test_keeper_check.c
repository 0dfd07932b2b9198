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
    char *id = ids[digit - 'a'];
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_belongs_together_stays)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
