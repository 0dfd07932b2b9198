/* Any bytes as the store's file. It opens and answers, with errors where it must, or it is refused and stays as it
 * is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/store/store.h"
#include "tests/fuzz/exercise.h"

static char path[64];

static void remove_files(void)
{
    static const char *const ends[] = {"", "-wal", "-shm", "-journal"};
    char name[80];
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        snprintf(name, sizeof name, "%s%s", path, ends[i]);
        unlink(name);
    }
}

/* In memory, where there is such a folder: nothing has to last. */
static void name_file(void)
{
    snprintf(path, sizeof path, "%s/restored_fuzz_store_%d", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp",
             (int)getpid());
    atexit(remove_files);
}

static void write_file(const uint8_t *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f))
        abort();
}

/* Whether the file still has these bytes and no others. */
static bool unchanged(const uint8_t *data, size_t size)
{
    FILE *f = fopen(path, "rb");
    uint8_t *now = malloc(size + 1);
    if (!f || !now)
        abort();
    const bool same = fread(now, 1, size + 1, f) == size && (!size || memcmp(now, data, size) == 0);
    free(now);
    fclose(f);
    return same;
}

/* A failure has a sentence. */
static void told(struct error *err, enum error_code code)
{
    if (code != err->code || (code && !*err->text))
        abort();
    *err = (struct error)ERROR_INIT;
}

/* Ids name files, states are numbers of tables. */
static void check_id(void *context, const char *id)
{
    (void)context;
    if (!*id || strlen(id) > 32 || strpbrk(id, "/."))
        abort();
}

static void check_job(void *context, const struct store_job *job)
{
    if (job->state >= STORE_STATES || job->attempts < 0)
        abort();
    check_id(context, job->id);
}

static void check_file(void *context, const char *id, bool input, bool output)
{
    (void)input, (void)output;
    if (*id) /* else the row is damaged */
        check_id(context, id);
}

static void read_all(struct store *store)
{
    const struct store_filter filters[] = {{.limit = 50},
                                           {.limit = 2, .token = "t", .after = "d3"},
                                           {.limit = 50, .batch = "b", .states = 1u << STORE_DONE},
                                           {.limit = 50, .token = "t", .batch = "b", .since = 1000}};
    struct error err = ERROR_INIT;
    struct store_counts counts;
    struct store_job job;
    uint64_t number;
    double seconds;
    bool found;
    char id[16];
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++) {
        told(&err, store_list(store, &filters[i], check_job, NULL, &found, &err));
        told(&err, store_count(store, filters[i].batch, filters[i].token, &counts, &err));
    }
    for (int i = 0; i < 8; i++) {
        snprintf(id, sizeof id, "d%d", i);
        told(&err, store_get(store, id, &job, &found, &err));
        store_job_clear(&job);
        told(&err, store_position(store, id, &number, &seconds, &found, 0, NULL, NULL, &err));
        told(&err, store_gone(store, id, &found, &err));
    }
    told(&err, store_waiting(store, "a", "[]", &number, &err));
    told(&err, store_files(store, check_file, NULL, &err));
}

static void write_all(struct store *store)
{
    struct error err = ERROR_INIT;
    struct store_job job = {.id = "new", .client = "a", .created = 1000};
    enum store_inserted what;
    enum store_state before;
    char existing[33];
    bool found = false, held, cancel;
    told(&err, store_begin(store, &err));
    told(&err, store_insert(store, &job, "k1", (const uint8_t[32]){0}, &what, existing, &err));
    told(&err, store_cancel(store, "d6", 1, 2, &before, &found, &err));
    told(&err, store_renew(store, "d4", "me", 1, 9, &held, &cancel, &err));
    told(&err, store_give_back(store, "d5", "me", 1, &err));
    told(&err, store_recover(store, 1, 2, 3, &err));
    told(&err, store_claim(store, "me", 5000, 6000, 9000, 3, &job, &found, NULL, NULL, &err));
    if (found) {
        check_job(NULL, &job);
        job.state = STORE_DONE;
        job.report = strdup("{}");
        told(&err, store_finish(store, &job, "me", &held, &err));
    }
    store_job_clear(&job);
    told(&err, store_forget(store, "d0", &found, &err));
    told(&err, store_expire(store, INT64_MAX / 2, 100, check_id, NULL, &err));
    told(&err, store_commit(store, &err));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct store *store;
    struct error err = ERROR_INIT;
    if (!*path)
        name_file();
    remove_files();
    write_file(data, size);
    const enum error_code code = store_open(&store, path, &err);
    if (code) {
        if (store || !strstr(err.text, path) || !unchanged(data, size))
            abort();
        told(&err, code);
        return 0;
    }
    exercise_opened++;
    read_all(store);
    write_all(store);
    read_all(store);
    store_close(&store);
    return 0;
}
