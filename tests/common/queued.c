#include "tests/common/queued.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

struct job *queued_make(const char *id)
{
    struct restoration *r;
    struct job *job;
    struct error err = ERROR_INIT;
    struct body body = {.data = malloc(4), .size = 4};
    assert_int_equal(restoration_create(&r, &err), OK);
    assert_int_equal(job_create(&job, id, &r, &body, NULL, NULL, &err), OK);
    assert_null(r);
    assert_null(body.data);
    job->devices = 1;
    return job;
}

void queued_carry(struct queue *queue, struct job *want)
{
    struct job *job = queue_carry(queue);
    assert_ptr_equal(job, want);
    queue_ready(queue, job);
    job_release(&job);
}

struct job *queued_push(struct queue *queue, const char *id, uint32_t devices)
{
    struct error err = ERROR_INIT;
    struct job *job = queued_make(id);
    job->devices = devices;
    assert_int_equal(queue_push(queue, job, &err), OK);
    return job;
}

struct job *queued_push_read(struct queue *queue, const char *id, uint32_t devices)
{
    struct job *job = queued_push(queue, id, devices);
    queued_carry(queue, job);
    return job;
}

void queued_expect(struct queue *queue, int device, bool up, struct job *want)
{
    struct job *got = queue_pop(queue, device, up, 0);
    assert_ptr_equal(got, want);
    job_release(&got);
    job_release(&want);
}
