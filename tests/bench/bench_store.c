/* How long the store of jobs takes with many jobs in it: bench_store FILE [JOBS [keep]]. Makes the file with that many
 * ended jobs (100,000 unless told), 1,000 waiting ones and reports of 3 KB, and prints a table in Markdown: the median
 * and the longest of several calls. The file is removed; with keep it stays as it was made, and nothing is measured. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "server/store/store.h"

#define WAITING 1000
#define GROUP 1000
#define CALLS 21

static struct store *store;
static struct error err;
static const char *path;
static int jobs = 100000, number;
static int64_t now = 1700000000000;

static void must(enum error_code code)
{
    if (!code)
        return;
    fprintf(stderr, "bench_store: %s\n", err.text);
    exit(1);
}

static double clock_ms(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e3 + (double)at.tv_nsec / 1e6;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const char *what, void (*call)(int), int calls)
{
    double ms[GROUP];
    for (int i = 0; i < calls; i++) {
        const double start = clock_ms();
        call(i);
        ms[i] = clock_ms() - start;
    }
    qsort(ms, (size_t)calls, sizeof *ms, compare);
    printf("| %s | %.2f | %.2f |\n", what, ms[calls / 2], ms[calls - 1]);
    fflush(stdout);
}

/* --- what is in it ------------------------------------------------------------------------------------------------
 */

static void make_id(char id[33], int n)
{
    uint64_t mixed = ((uint64_t)n + 1) * 0x9e3779b97f4a7c15u; /* ids are random, so their index is filled everywhere */
    snprintf(id, 33, "%016llx%016llx", (unsigned long long)mixed, (unsigned long long)n);
}

/* Batch "one" has a third of the jobs, the others ten each; one token in a hundred is "rare". */
static void put(int64_t created)
{
    struct store_job job = {.created = created, .seconds = 1.5, .megapixels = 12, .input_bytes = 3000000};
    enum store_inserted what;
    char existing[33], key[32];
    make_id(job.id, number);
    snprintf(job.token, sizeof job.token, number % 100 == 7 ? "rare" : "shop%d", number % 5);
    snprintf(job.client, sizeof job.client, "token %s", job.token);
    if (number % 3 == 0)
        strcpy(job.batch, "one");
    else
        snprintf(job.batch, sizeof job.batch, "batch%d", number / 10);
    snprintf(job.name, sizeof job.name, "DSC_%06d.jpg", number);
    snprintf(key, sizeof key, "key-%d", number);
    job.options = "{\"upscale\": 2, \"face_upsample\": true, \"weight\": 0.5, \"bg_upsampler\": \"realesrgan\", \"v\": "
                  "\"1.4\", \"quality\": 95, \"precision\": \"auto\", \"device\": \"auto\"}";
    must(store_insert(store, &job, key, (const uint8_t[32]){1}, &what, existing, &err));
    number++;
}

static void finish(struct store_job *job, int64_t expires, char *report)
{
    bool held;
    job->state = expires % 50 == 0 ? STORE_FAILED : STORE_DONE;
    job->finished = job->created + 3000;
    job->expires = expires;
    job->output_bytes = 1;
    job->report = report;
    job->parts =
        "[{\"kind\": \"result\", \"type\": \"image/jpeg\", \"extension\": \"jpg\", \"offset\": 0, \"size\": 1}]";
    must(store_finish(store, job, "bench", &held, &err));
    job->report = job->parts = NULL;
    store_job_clear(job);
}

static void fill(void)
{
    static char report[3001];
    memset(report, 'r', sizeof report - 1);
    for (int done = 0; done < jobs; done += GROUP) {
        const int group = jobs - done < GROUP ? jobs - done : GROUP;
        must(store_begin(store, &err));
        for (int i = 0; i < group; i++)
            put(now + number * 100);
        for (int i = 0; i < group; i++) {
            struct store_job job;
            bool found;
            must(store_claim(store, "bench", now, now + 1000, now, 3, &job, &found, NULL, NULL, &err));
            if (found)
                finish(&job, now + done + i, report);
        }
        must(store_commit(store, &err));
    }
    must(store_begin(store, &err));
    for (int i = 0; i < WAITING; i++)
        put(now + number * 100);
    must(store_commit(store, &err));
}

/* --- the calls -----------------------------------------------------------------------------------------------------
 */

static char last[33];

static void keep_last(void *context, const struct store_job *job)
{
    (void)context;
    memcpy(last, job->id, sizeof last);
}

static void list(const struct store_filter *filter)
{
    bool more;
    must(store_list(store, filter, keep_last, NULL, &more, &err));
}

static void list_first(int i)
{
    (void)i;
    list(&(struct store_filter){.limit = 100});
}

static void list_deep(int i)
{
    struct store_filter filter = {.limit = 100};
    make_id(filter.after, 1000 + i * jobs / CALLS / 2);
    list(&filter);
}

static void list_state(int i)
{
    list(&(struct store_filter){.limit = 100, .states = 1u << (i % STORE_STATES)});
}

static void list_token(int i)
{
    list(&(struct store_filter){.limit = 100, .token = i % 2 ? "rare" : "shop1", .states = 1u << STORE_CANCELLED | 8});
}

static void list_batch(int i)
{
    list(&(struct store_filter){.limit = 100, .token = i % 2 ? "rare" : NULL, .batch = "one"});
}

static void list_since(int i)
{
    list(&(struct store_filter){.limit = 100, .since = now + (int64_t)(number - i) * 100, .token = "rare"});
}

static struct store_counts counts;

static void count_all(int i)
{
    (void)i;
    must(store_count(store, NULL, NULL, &counts, &err));
}

static void count_batch(int i)
{
    must(store_count(store, "one", i % 2 ? "shop1" : NULL, &counts, &err));
}

static void position(int i)
{
    uint64_t ahead;
    double seconds;
    bool found;
    char id[33];
    make_id(id, number - 1 - i);
    must(store_position(store, id, &ahead, &seconds, &found, 0, NULL, NULL, &err));
}

static void get(int i)
{
    struct store_job job;
    bool found;
    char id[33];
    make_id(id, i * 997 % jobs);
    must(store_get(store, id, &job, &found, &err));
    store_job_clear(&job);
}

static void put_one(int i)
{
    (void)i;
    must(store_begin(store, &err));
    put(now + number * 100);
    must(store_commit(store, &err));
}

static void put_hundred(int i)
{
    (void)i;
    must(store_begin(store, &err));
    for (int j = 0; j < 100; j++)
        put(now + number * 100);
    must(store_commit(store, &err));
}

static void turn(int i)
{
    struct store_job job;
    bool found;
    (void)i;
    must(store_begin(store, &err));
    must(store_claim(store, "bench", now, now + 1000, now, 3, &job, &found, NULL, NULL, &err));
    must(store_commit(store, &err));
    store_job_clear(&job);
}

static int expired;

static void count_id(void *context, const char *id)
{
    (void)context;
    expired += *id != 0;
}

static double expire_ms;
static int expire_most;

static void expire(int i)
{
    (void)i;
    must(store_begin(store, &err));
    const double start = clock_ms();
    must(store_expire(store, now + jobs, expire_most, count_id, NULL, &err));
    expire_ms += clock_ms() - start;
    must(store_commit(store, &err));
}

static void count_files(void *context, const char *id, bool input, bool output)
{
    (void)context;
    expired += *id != 0 && (input || output);
}

static void files(int i)
{
    (void)i;
    must(store_files(store, count_files, NULL, &err));
}

static void start(int i)
{
    (void)i;
    store_close(&store);
    must(store_open(&store, path, &err));
}

static void remove_files(void)
{
    static const char *const ends[] = {"", "-wal", "-shm"};
    char name[4096];
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        snprintf(name, sizeof name, "%s%s", path, ends[i]);
        unlink(name);
    }
}

int main(int argc, char **argv)
{
    struct stat stat_of;
    path = argc > 1 ? argv[1] : NULL;
    jobs = argc > 2 ? atoi(argv[2]) : jobs;
    if (!path || jobs < CALLS || access(path, F_OK) == 0) {
        fprintf(stderr, "usage: %s FILE [JOBS], the file must not be there\n", argv[0]);
        return 2;
    }
    must(store_open(&store, path, &err));
    const double begin = clock_ms();
    fill();
    const double filled = clock_ms() - begin;
    stat(path, &stat_of);
    printf("%d ended jobs, %d waiting; %.0f MB; made in %.1f s, in groups of %d\n\n", jobs, WAITING,
           (double)stat_of.st_size / 1e6, filled / 1e3, GROUP);
    if (argc > 3) {
        store_close(&store);
        return 0;
    }
    printf("| | median ms | longest ms |\n|---|---|---|\n");
    measure("open, with its check", start, 5);
    measure("list, first page of 100", list_first, CALLS);
    measure("list, a page far behind", list_deep, CALLS);
    measure("list, one state", list_state, CALLS);
    measure("list, a token and two states", list_token, CALLS);
    measure("list, a batch (and token)", list_batch, CALLS);
    measure("list, a token since", list_since, CALLS);
    measure("count, all", count_all, CALLS);
    measure("count, a batch of a third (and token)", count_batch, CALLS);
    measure("position behind 1,000", position, CALLS);
    measure("get one with its report", get, CALLS);
    measure("insert one, commit", put_one, CALLS);
    measure("insert 100, commit", put_hundred, CALLS);
    measure("claim one, commit", turn, CALLS);
    measure("all files", files, 5);
    static const int steps[] = {50, 100, 200, 1000};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        char what[32];
        expire_ms = 0;
        expire_most = steps[i];
        snprintf(what, sizeof what, "expire %d, commit", steps[i]);
        measure(what, expire, CALLS);
        printf("| … without the commit | %.2f | |\n", expire_ms / CALLS);
    }
    store_close(&store);
    remove_files();
    return 0;
}
