#include "server/job/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "runtime/base/mem.h"
#include "runtime/base/spill.h"

#define JOB_PIECE ((size_t)1 << 20) /* of the output */

enum error_code job_create(struct job **out, const char *id, struct restoration **restoration, struct body *body,
                           job_end_fn *end, void *context, struct error *err)
{
    struct job *job = mem_calloc(1, sizeof *job);
    if (!job)
        return error_set(err, ERROR_NO_MEMORY, "no memory for a job");
    snprintf(job->id, sizeof job->id, "%s", id);
    job->restoration = *restoration;
    job->body = *body;
    job->created_ns = job_now();
    job->device = -1;
    job->end = end;
    job->context = context;
    atomic_init(&job->references, 1);
    sem_init(&job->computed, 0, 0);
    *restoration = NULL;
    *body = (struct body){0};
    *out = job;
    return OK;
}

struct job *job_hold(struct job *job)
{
    atomic_fetch_add(&job->references, 1);
    return job;
}

void job_release(struct job **job)
{
    struct job *old = *job;
    *job = NULL;
    if (!old || atomic_fetch_sub(&old->references, 1) > 1)
        return;
    restoration_destroy(&old->restoration);
    if (old->inflight)
        inflight_sent(old->inflight, old->result);
    inflight_destroy(&old->inflight);
    sem_destroy(&old->computed);
    body_clear(&old->body);
    free(old);
}

void job_stop(struct job *job, enum error_code reason)
{
    int none = OK;
    atomic_compare_exchange_strong(&job->stop, &none, (int)reason);
    atomic_store(&job->restoration->cancel, 1);
}

void job_computed(struct job *job, enum error_code code, const struct error *err)
{
    job->outcome = code;
    if (code)
        job->error = *err;
    sem_post(&job->computed);
}

/* The output's bytes as a strong entity tag: 64-bit FNV-1a over eight bytes at a time, and the length. */
void job_make_etag(struct job *job)
{
    const struct restoration *r = job->restoration;
    if (!r->output)
        return;
    uint64_t hash = UINT64_C(0xcbf29ce484222325), word;
    size_t at = 0;
    for (; at + sizeof word <= r->output_bytes; at += sizeof word) {
        memcpy(&word, r->output + at, sizeof word);
        hash = (hash ^ word) * UINT64_C(0x100000001b3);
        if (at % JOB_PIECE == 0)
            spill_passed(r->output + at - (at ? JOB_PIECE : 0), at ? JOB_PIECE : 0);
        hash ^= hash >> 29; /* a product carries upwards only; this brings high bits back down */
    }
    for (; at < r->output_bytes; at++)
        hash = (hash ^ r->output[at]) * UINT64_C(0x100000001b3);
    snprintf(job->etag, sizeof job->etag, "\"%016llx-%zx\"", (unsigned long long)hash, r->output_bytes);
}

int64_t job_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t job_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

struct timespec job_deadline(int milliseconds)
{
    const int64_t at = job_now() + (int64_t)milliseconds * 1000000;
    return (struct timespec){at / 1000000000, at % 1000000000};
}

void job_condition(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

void job_make_id(char out[33])
{
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        memset(bytes, 0,
               sizeof bytes); /* once the kernel has started all 16 bytes arrive; ids only distinguish requests */
    for (int i = 0; i < 16; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}
