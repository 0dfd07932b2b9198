#include "server/store/move.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/base/mem.h"
#include "server/store/store_copy.h"

#define MOVE_PIECE ((size_t)1 << 20)
#define MOVE_GROUP_BYTES (UINT64_C(64) << 20) /* of a group's pictures: its rows are locked meanwhile */

/* ---- pictures ---- */

static bool move_has_input(const struct store_job *job)
{
    return job->state <= STORE_RUNNING;
}

static bool move_has_output(const struct store_job *job)
{
    return job->state == STORE_DONE && job->output_bytes > 0;
}

static void move_name(char out[PAYLOAD_NAME_MAX], const struct store_job *job, enum spool_kind kind)
{
    if (kind == SPOOL_INPUT)
        payload_input_name(out, job->id);
    else
        payload_output_name(out, job->id, job->attempts);
}

static enum error_code move_to_file(void *context, const void *data, size_t size, struct error *err)
{
    return fwrite(data, 1, size, context) == size ? OK : error_set(err, ERROR_FULL, "a temporary file: %m");
}

/* A picture as a file of the caller's to close. ERROR_NOT_FOUND: there is none. */
static enum error_code move_open(const struct move_place *from, const struct store_job *job, enum spool_kind kind,
                                 FILE **out, uint64_t *size, struct error *err)
{
    char name[PAYLOAD_NAME_MAX];
    enum error_code code;
    *out = NULL;
    if (from->spool) {
        int fd;
        code = spool_read(from->spool, job->id, kind, &fd, size, err);
        if (!code && !(*out = fdopen(fd, "r"))) {
            close(fd);
            code = error_set(err, ERROR_NO_MEMORY, "no memory to read a picture");
        }
        return code;
    }
    FILE *file = tmpfile();
    if (!file)
        return error_set(err, ERROR_IO, "no temporary file can be made: %m");
    move_name(name, job, kind);
    code = from->payload->engine->get(from->payload, name, move_to_file, file, err);
    if (!code && fflush(file))
        code = error_set(err, ERROR_FULL, "a temporary file: %m");
    *size = code ? 0 : (uint64_t)ftello(file);
    if (code)
        fclose(file);
    else
        *out = file;
    return code;
}

static enum error_code move_into_spool(struct spool *spool, const struct store_job *job, enum spool_kind kind, int fd,
                                       uint64_t size, struct error *err)
{
    struct spool_file *file;
    enum error_code code = spool_create(spool, &file, err);
    char *piece = code ? NULL : mem_alloc(MOVE_PIECE, 1);
    if (!code && !piece)
        code = error_set(err, ERROR_NO_MEMORY, "no memory to copy a picture");
    for (uint64_t at = 0; !code && at < size;) {
        const ssize_t n = pread(fd, piece, MOVE_PIECE, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        code = n > 0 ? spool_write(file, piece, (size_t)n, err)
                     : error_set(err, ERROR_IO, "a picture cannot be read whole");
        at += n > 0 ? (uint64_t)n : 0;
    }
    free(piece);
    if (!code)
        code = spool_keep(spool, &file, job->id, kind, err);
    spool_discard(&file);
    return code;
}

static enum error_code move_picture(const struct move_place *from, const struct move_place *to,
                                    const struct store_job *job, enum spool_kind kind, struct move_counts *counts,
                                    struct error *err)
{
    char name[PAYLOAD_NAME_MAX];
    struct error why = ERROR_INIT;
    uint64_t size = 0;
    FILE *file;
    enum error_code code = move_open(from, job, kind, &file, &size, &why);
    if (code == ERROR_NOT_FOUND) {
        counts->missing++;
        return OK; /* as at the old place: who wants it is told so */
    }
    if (code)
        return error_copy(err, code, &why);
    move_name(name, job, kind);
    if (to->spool)
        code = move_into_spool(to->spool, job, kind, fileno(file), size, err);
    else
        code = to->payload->engine->put(to->payload, name, fileno(file), size, err);
    fclose(file);
    counts->pictures++;
    counts->bytes += size;
    return code;
}

static enum error_code move_remove(const struct move_place *from, const struct store_job *job, enum spool_kind kind,
                                   struct error *err)
{
    char name[PAYLOAD_NAME_MAX];
    move_name(name, job, kind);
    if (!from->spool)
        return from->payload->engine->remove(from->payload, name, err);
    spool_remove(from->spool, job->id, kind);
    return OK;
}

/* ---- rows ---- */

/* As it waits at the new place, if somebody is at work on it. */
static void move_give_back(struct store_job *job, int64_t now)
{
    if (job->state != STORE_RUNNING || job->cancel || job->lease <= now)
        return; /* a lease that is over: the next claim or start sees to it */
    job->state = STORE_QUEUED;
    job->attempts -= job->attempts > 0;
    job->started = job->lease = 0;
    *job->owner = *job->progress = 0;
}

/* Jobs that move together. */
struct move_group {
    struct store_row *rows;
    uint8_t *missing; /* of each row: its pictures that were not there */
    int count;
    int64_t last; /* number of the last row that was read */
    bool end;     /* there are no more */
};

static enum error_code move_read(const struct move_place *from, const struct move_place *to, struct move_group *group,
                                 int most, struct move_counts *counts, struct error *err)
{
    const uint64_t before = counts->bytes;
    enum error_code code = OK;
    while (!code && group->count < most && counts->bytes - before < MOVE_GROUP_BYTES) {
        struct store_row *row = &group->rows[group->count];
        bool found;
        code = store_copy_read(from->store, group->last, row, &found, err);
        group->end = !code && !found;
        if (code || !found)
            break;
        group->last = row->number;
        if (!*row->job.id) {
            counts->damaged++;
            store_copy_clear(row);
            continue;
        }
        const uint64_t missing = counts->missing;
        counts->jobs[row->job.state]++;
        if (move_has_input(&row->job))
            code = move_picture(from, to, &row->job, SPOOL_INPUT, counts, err);
        if (!code && move_has_output(&row->job))
            code = move_picture(from, to, &row->job, SPOOL_OUTPUT, counts, err);
        group->missing[group->count++] = (uint8_t)(counts->missing - missing);
    }
    return code;
}

static enum error_code move_write(const struct move_place *to, struct move_group *group, struct move_counts *counts,
                                  struct error *err)
{
    const int64_t now = store_clock(to->store);
    enum error_code code = store_begin(to->store, err);
    for (int i = 0; !code && i < group->count; i++) {
        struct store_row row = group->rows[i]; /* its state is that of the old place still, for its pictures */
        enum store_copied what;
        move_give_back(&row.job, now);
        code = store_copy_write(to->store, &row, &what, err);
        counts->before += what == STORE_COPIED_BEFORE;
        counts->missing -= what == STORE_COPIED_BEFORE ? group->missing[i] : 0; /* they had gone there already */
        counts->keyless += what == STORE_COPIED_KEYLESS;
    }
    if (code)
        store_rollback(to->store);
    else
        code = store_commit(to->store, err);
    return code;
}

/* It is there; now it goes here: the pictures first, because nothing tells of those that have no row any more. */
static enum error_code move_drop(const struct move_place *from, struct move_group *group, struct error *err)
{
    enum error_code code = OK;
    for (int i = 0; !code && i < group->count; i++) {
        code = move_remove(from, &group->rows[i].job, SPOOL_INPUT, err);
        if (!code)
            code = move_remove(from, &group->rows[i].job, SPOOL_OUTPUT, err);
        if (!code)
            code = store_copy_drop(from->store, group->rows[i].number, err);
    }
    return code ? code : store_commit(from->store, err);
}

static enum error_code move_one_group(const struct move_place *from, const struct move_place *to,
                                      struct move_group *group, int most, struct move_counts *counts, struct error *err)
{
    group->count = 0;
    enum error_code code = store_begin(from->store, err);
    if (code)
        return code;
    code = move_read(from, to, group, most, counts, err);
    if (!code && group->count)
        code = move_write(to, group, counts, err);
    if (!code && group->count)
        code = move_drop(from, group, err);
    if (code || !group->count)
        store_rollback(from->store);
    for (int i = 0; i < group->count; i++)
        store_copy_clear(&group->rows[i]);
    return code;
}

enum error_code move_jobs(const struct move_place *from, const struct move_place *to, int most, move_told_fn *told,
                          void *context, struct move_counts *out, struct error *err)
{
    struct move_group group = {.rows = mem_calloc((size_t)most, sizeof *group.rows),
                               .missing = mem_calloc((size_t)most, sizeof *group.missing)};
    *out = (struct move_counts){0};
    enum error_code code =
        group.rows && group.missing ? OK : error_set(err, ERROR_NO_MEMORY, "no memory for a group of jobs");
    while (!code && !group.end) {
        code = move_one_group(from, to, &group, most, out, err);
        if (!code && told)
            told(context, out);
    }
    free(group.missing);
    free(group.rows);
    return code;
}

/* ---- is it sound? ---- */

/* The first bytes of a payload are enough to know that it is there. */
static enum error_code move_stop(void *context, const void *data, size_t size, struct error *err)
{
    (void)data;
    *(uint64_t *)context = size;
    return error_set(err, ERROR_CANCELLED, "enough");
}

static enum error_code move_check_picture(const struct move_place *place, const struct store_job *job,
                                          enum spool_kind kind, struct move_counts *counts, struct error *err)
{
    char name[PAYLOAD_NAME_MAX];
    struct error why = ERROR_INIT;
    uint64_t size = 0;
    enum error_code code;
    if (place->spool) {
        int fd;
        code = spool_read(place->spool, job->id, kind, &fd, &size, &why);
        if (!code)
            close(fd);
    } else {
        move_name(name, job, kind);
        code = place->payload->engine->get(place->payload, name, move_stop, &size, &why);
    }
    if (code == ERROR_NOT_FOUND || code == ERROR_CORRUPT) {
        counts->missing++;
        return OK;
    }
    if (code && code != ERROR_CANCELLED)
        return error_copy(err, code, &why);
    counts->pictures++;
    counts->bytes += kind == SPOOL_INPUT ? job->input_bytes : job->output_bytes;
    return OK;
}

enum error_code move_check(const struct move_place *place, struct move_counts *out, struct error *err)
{
    *out = (struct move_counts){0};
    enum error_code code = OK;
    bool found = true;
    for (int64_t last = 0; !code && found;) {
        struct store_row row;
        code = store_begin(place->store, err); /* one row each, so that none is locked for long */
        if (!code)
            code = store_copy_read(place->store, last, &row, &found, err);
        else
            break;
        store_rollback(place->store);
        if (code || !found)
            break;
        last = row.number;
        out->damaged += !*row.job.id;
        if (*row.job.id) {
            out->jobs[row.job.state]++;
            if (move_has_input(&row.job))
                code = move_check_picture(place, &row.job, SPOOL_INPUT, out, err);
            if (!code && move_has_output(&row.job))
                code = move_check_picture(place, &row.job, SPOOL_OUTPUT, out, err);
        }
        store_copy_clear(&row);
    }
    return code;
}
