/* What a shared store of jobs does at most: threads that accept, claim and finish jobs with pictures as front ends and
 * workers do, without computing anything. bench_cluster STORE PAYLOAD BYTES JOBS THREADS prints jobs a second and MB a
 * second (in and out together). tests/bench/bench_cluster.mjs makes a table of it. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "server/store/payload.h"
#include "server/store/store.h"

struct bench {
    const char *store, *payload;
    uint64_t bytes;
    int jobs, picture; /* a descriptor */
    atomic_int next, done;
};

static enum error_code bench_take(void *context, const void *data, size_t size, struct error *err)
{
    (void)data, (void)err;
    *(uint64_t *)context += size;
    return OK;
}

static enum error_code bench_accept(const struct bench *bench, struct store *store, struct payload *payload, int number,
                                    struct error *err)
{
    char name[PAYLOAD_NAME_MAX], existing[33];
    enum store_inserted what;
    struct store_job job = {.created = store_clock(store), .input_bytes = bench->bytes, .options = "{}"};
    snprintf(job.id, sizeof job.id, "%032x", number + 1);
    snprintf(job.client, sizeof job.client, "address 127.0.0.1");
    payload_input_name(name, job.id);
    enum error_code code = payload->engine->put(payload, name, bench->picture, bench->bytes, err);
    if (!code)
        code = store_begin(store, err);
    if (!code)
        code = store_insert(store, &job, NULL, NULL, &what, existing, err);
    return code ? code : store_commit(store, err);
}

static enum error_code bench_work(const struct bench *bench, struct store *store, struct payload *payload,
                                  const char *owner, bool *found, struct error *err)
{
    char in[PAYLOAD_NAME_MAX], out[PAYLOAD_NAME_MAX];
    uint64_t came = 0;
    bool held;
    struct store_job job;
    const int64_t now = store_clock(store);
    enum error_code code = store_claim(store, owner, now, now + 30000, now + 60000, 3, &job, found, NULL, NULL, err);
    if (code || !*found)
        return code;
    payload_input_name(in, job.id);
    payload_output_name(out, job.id, job.attempts);
    code = payload->engine->get(payload, in, bench_take, &came, err);
    if (!code && came != bench->bytes)
        code = error_set(err, ERROR_CORRUPT, "%llu bytes came of %s", (unsigned long long)came, in);
    if (!code)
        code = payload->engine->put(payload, out, bench->picture, bench->bytes, err);
    job.state = STORE_DONE;
    job.finished = job.expires = store_clock(store);
    job.output_bytes = bench->bytes;
    if (!code)
        code = store_begin(store, err);
    if (!code)
        code = store_finish(store, &job, owner, &held, err);
    if (!code)
        code = store_commit(store, err);
    if (!code)
        code = payload->engine->remove(payload, in, err);
    store_job_clear(&job);
    return code;
}

static void *bench_run(void *argument)
{
    struct bench *bench = argument;
    struct error err = ERROR_INIT;
    struct store *store = NULL;
    struct payload *payload = NULL;
    char owner[33];
    snprintf(owner, sizeof owner, "%lx", (unsigned long)pthread_self());
    const struct payload_settings settings = {.where = bench->payload, .store = bench->store, .password_file = ""};
    enum error_code code = store_open_shared(&store, bench->store, NULL, &err);
    if (!code)
        code = payload_open(&payload, &settings, &err);
    for (int number; !code && (number = atomic_fetch_add(&bench->next, 1)) < bench->jobs;) {
        bool found;
        code = bench_accept(bench, store, payload, number, &err);
        if (!code)
            code = bench_work(bench, store, payload, owner, &found, &err);
        atomic_fetch_add(&bench->done, !code && found);
    }
    for (bool found = true; !code && found;) { /* what others have left */
        code = bench_work(bench, store, payload, owner, &found, &err);
        atomic_fetch_add(&bench->done, !code && found);
    }
    if (code)
        fprintf(stderr, "%s\n", err.text);
    payload_close(&payload);
    store_close(&store);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fprintf(stderr, "usage: bench_cluster STORE PAYLOAD BYTES JOBS THREADS\n");
        return 2;
    }
    struct bench bench = {.store = argv[1], .payload = argv[2], .bytes = strtoull(argv[3], NULL, 10)};
    const int threads = atoi(argv[5]) < 64 ? atoi(argv[5]) : 64;
    pthread_t thread[64];
    struct timespec begin, end;
    bench.jobs = atoi(argv[4]);
    bench.picture = memfd_create("picture", MFD_CLOEXEC);
    char block[4096];
    for (size_t i = 0; i < sizeof block; i++)
        block[i] = (char)(i * 2654435761u >> 13);
    for (uint64_t at = 0; at < bench.bytes; at += sizeof block)
        if (pwrite(bench.picture, block, sizeof block, (off_t)at) < 0)
            return 1;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < threads; i++)
        if (pthread_create(&thread[i], NULL, bench_run, &bench))
            return 1;
    for (int i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    clock_gettime(CLOCK_MONOTONIC, &end);
    const double seconds = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
    const double rate = atomic_load(&bench.done) / seconds;
    printf("%.1f %.1f\n", rate, rate * 2 * (double)bench.bytes / 1e6);
    return atomic_load(&bench.done) == bench.jobs ? 0 : 1;
}
