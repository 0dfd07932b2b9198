#include "server/job/keeper_check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "server/job/record.h"

/* The files that should be there, sorted, each as "I" or "O" and its id. */
struct check_names {
    char (*names)[34];
    size_t count, room;
    size_t damaged; /* rows: what files they have is unknown */
    bool failed;
};

static void check_add_name(struct check_names *names, char kind, const char *id)
{
    if (names->count == names->room) {
        const size_t room = names->room ? 2 * names->room : 1024;
        void *grown = realloc(names->names, room * sizeof *names->names);
        names->failed |= !grown;
        if (!grown)
            return;
        names->names = grown;
        names->room = room;
    }
    snprintf(names->names[names->count++], sizeof *names->names, "%c%s", kind, id);
}

static void check_expect(void *context, const char *id, bool input, bool output)
{
    struct check_names *names = context;
    names->damaged += !*id;
    if (*id && input)
        check_add_name(names, 'I', id);
    if (*id && output)
        check_add_name(names, 'O', id);
}

static int check_compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

struct check {
    struct spool *spool;
    struct check_names expected;
    size_t found, removed, unknown, lost;
};

bool keeper_check_noted(struct spool *spool, const char *id, enum spool_kind kind)
{
    return kind == SPOOL_RECORD || (kind == SPOOL_OUTPUT && spool_has(spool, id, SPOOL_RECORD));
}

static void check_file(void *context, const char *id, enum spool_kind kind)
{
    struct check *check = context;
    char name[34];
    if (keeper_check_noted(check->spool, id, kind))
        return;
    snprintf(name, sizeof name, "%c%s", kind == SPOOL_INPUT ? 'I' : 'O', id);
    if (bsearch(name, check->expected.names, check->expected.count, sizeof name, check_compare)) {
        check->found++;
        return;
    }
    if (check->expected.damaged) { /* perhaps its picture: whoever mends the store may want it */
        check->unknown++;
        return;
    }
    spool_remove(check->spool, id, kind);
    check->removed++;
}

static void check_count(void *context, const char *id, enum spool_kind kind)
{
    struct check *check = context;
    check->found += !keeper_check_noted(check->spool, id, kind);
}

enum error_code keeper_check_gone(const char *path, struct spool *spool, struct error *err)
{
    struct stat stat;
    struct check check = {.spool = spool};
    if (lstat(path, &stat) == 0 || errno != ENOENT)
        return OK;
    spool_each(spool, check_count, &check);
    if (!check.found)
        return OK;
    error_set(err, ERROR_CORRUPT, "the store of jobs is gone, but files of its jobs are there (%zu)", check.found);
    error_local(err, ": put %s back; or, to start with an empty one, move the folder spool beside it away, too", path);
    return ERROR_CORRUPT;
}

/* In a transaction: jobs that are done have failed where their results are not there. */
static enum error_code check_lose(struct store *store, struct check *check, const char *reason, struct error *err)
{
    enum error_code code = OK;
    for (size_t i = 0; i < check->expected.count && !code; i++) {
        const char *name = check->expected.names[i];
        struct error local = ERROR_INIT;
        uint64_t size;
        int fd;
        if (*name != 'O')
            continue;
        const enum error_code read = spool_read(check->spool, name + 1, SPOOL_OUTPUT, &fd, &size, &local);
        if (!read)
            close(fd);
        if (read != ERROR_NOT_FOUND) /* it cannot be read now, perhaps; it is there */
            continue;
        code = store_lose(store, name + 1, reason, err);
        check->lost += !code;
    }
    return code;
}

static enum error_code check_missing(struct store *store, struct check *check, struct error *err)
{
    struct error lost = ERROR_INIT;
    error_set(&lost, ERROR_INTERNAL,
              "the result of this job is lost: its file was not in the spool any more when the "
              "server started; send the picture again");
    char *reason = record_error(&lost, true);
    if (!reason)
        return error_set(err, ERROR_NO_MEMORY, "no memory to check the spool");
    enum error_code code = store_begin(store, err);
    if (!code) {
        code = check_lose(store, check, reason, err);
        if (!code)
            code = store_commit(store, err);
        if (code)
            store_rollback(store);
    }
    free(reason);
    return code;
}

enum error_code keeper_check(struct store *store, struct spool *spool, struct error *err)
{
    struct check check = {.spool = spool};
    enum error_code code = store_files(store, check_expect, &check.expected, err);
    if (!code && check.expected.failed)
        code = error_set(err, ERROR_NO_MEMORY, "no memory to check the spool");
    if (!code) {
        if (check.expected.count)
            qsort(check.expected.names, check.expected.count, sizeof *check.expected.names, check_compare);
        spool_each(spool, check_file, &check);
        if (check.found < check.expected.count)
            code = check_missing(store, &check, err);
        if (check.removed || check.expected.damaged || check.found < check.expected.count)
            log_event(LOG_WARN, "spool-check", "removed=%zu missing=%zu lost=%zu damaged=%zu unknown=%zu",
                      check.removed, check.expected.count - check.found, check.lost, check.expected.damaged,
                      check.unknown);
    }
    free(check.expected.names);
    return code;
}
