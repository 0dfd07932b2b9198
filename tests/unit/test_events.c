/* The ring of events: who sees what, what is lost, who is woken; and what a job tells on its way through the workers.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "server/job/events.h"
#include "server/job/worker_pool.h"
#include "tests/common/shared.h"

static struct events *hub;

static int open_hub(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    return (int)events_create(&hub, &err);
}

static int close_hub(void **state)
{
    (void)state;
    events_destroy(&hub);
    return 0;
}

static uint64_t publish(const char *job, const char *token, int tiles)
{
    struct event event = {.kind = EVENT_TILE, .tiles_done = tiles};
    snprintf(event.job, sizeof event.job, "%s", job);
    snprintf(event.token, sizeof event.token, "%s", token);
    return events_publish(hub, &event);
}

static void test_who_sees_what(void **state)
{
    (void)state;
    struct event got[8];
    uint64_t after = 0;
    bool lost;
    assert_int_equal(events_newest(hub), 0);
    assert_int_equal(events_read(hub, &after, NULL, NULL, got, 8, &lost), 0);
    assert_false(lost);
    assert_int_equal(publish("a", "ann", 1), 1);
    publish("b", "bob", 2);
    publish("a", "ann", 3);
    publish("c", "", 4);

    assert_int_equal(events_read(hub, &after, NULL, NULL, got, 3, &lost), 3); /* as much as there is room for */
    assert_int_equal(after, 3);
    assert_int_equal(events_read(hub, &after, NULL, NULL, got, 3, &lost), 1);
    assert_int_equal(after, 4);
    assert_int_equal(got[0].tiles_done, 4);
    assert_true(got[0].time_ms > INT64_C(1700000000000));

    after = 0;
    assert_int_equal(events_read(hub, &after, "a", NULL, got, 8, &lost), 2);
    assert_int_equal(after, 4); /* what is not for this one is not looked at again */
    assert_int_equal(got[0].sequence, 1);
    assert_int_equal(got[1].sequence, 3);
    after = 0;
    assert_int_equal(events_read(hub, &after, NULL, "bob", got, 8, &lost), 1);
    assert_string_equal(got[0].job, "b");
    after = 0;
    assert_int_equal(events_read(hub, &after, "a", "bob", got, 8, &lost), 0);
    assert_false(lost);
}

static void test_lost(void **state)
{
    (void)state;
    struct event got;
    bool lost;
    for (int i = 1; i <= EVENTS_KEPT + 1; i++)
        publish("a", "", i);
    uint64_t after = 1; /* the ring still has what follows */
    assert_int_equal(events_read(hub, &after, NULL, NULL, &got, 1, &lost), 1);
    assert_false(lost);
    assert_int_equal(got.tiles_done, 2);
    after = 0; /* but not the first */
    assert_int_equal(events_read(hub, &after, NULL, NULL, &got, 1, &lost), 0);
    assert_true(lost);
    assert_int_equal(after, EVENTS_KEPT + 1);
    after = EVENTS_KEPT + 2; /* there is no such event */
    assert_int_equal(events_read(hub, &after, NULL, NULL, &got, 1, &lost), 0);
    assert_true(lost);
    assert_int_equal(events_read(hub, &after, NULL, NULL, &got, 1, &lost), 0);
    assert_false(lost);
}

static void test_starts_differ(void **state)
{
    (void)state;
    struct events *other;
    struct error err = ERROR_INIT;
    assert_int_equal(events_create(&other, &err), OK);
    assert_string_not_equal(events_boot(hub), events_boot(other));
    events_destroy(&other);
    events_destroy(&other);
}

static void *publish_many(void *job)
{
    for (int i = 1; i <= 1000; i++)
        publish(job, "", i);
    return job;
}

/* A listener that waits gets each event of four publishers, in their order. */
static void test_waiting(void **state)
{
    (void)state;
    static char names[4][2] = {"a", "b", "c", "d"};
    pthread_t threads[4];
    struct event got[64];
    uint64_t after = 0;
    bool lost;
    int seen[4] = {0}, count = 0;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, publish_many, names[i]), 0);
    while (count < 4000) {
        assert_true(events_wait(hub, after, 600000) > after); /* else no event came in ten minutes */
        const size_t n = events_read(hub, &after, NULL, NULL, got, 64, &lost);
        assert_false(lost);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(got[i].tiles_done, ++seen[got[i].job[0] - 'a']);
        count += (int)n;
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(events_newest(hub), 4000);

    assert_int_equal(events_wait(hub, 4000, 10), 4000); /* the time is over */
    events_wake(hub);
    assert_int_equal(events_wait(hub, 4000, 600000), 4000); /* woken before it waited */
}

/* --- of jobs -------------------------------------------------------------------------------------------------------
 */

static void on_end(struct job *job, void *context)
{
    struct event event;
    events_describe(&event, job, EVENT_ENDED);
    events_publish(job->events, &event);
    (void)context;
}

static struct job *make(const char *const *options)
{
    struct error err = ERROR_INIT;
    struct restoration *r;
    struct job *job;
    struct file file;
    char path[512];
    snprintf(path, sizeof path, "%s/two.png", shared_fixtures());
    if (restoration_create(&r, &err) || file_map(&file, path, &err))
        fail_msg("%s", err.text);
    for (; *options; options += 2)
        if (options_set(&r->options, options[0], options[1], &err))
            fail_msg("%s", err.text);
    struct body body = {0};
    assert_int_equal(body_append(&body, file.data, file.size, &err), OK);
    assert_int_equal(job_create(&job, "job", &r, &body, on_end, NULL, &err), OK);
    file_unmap(&file);
    return job;
}

/* A picture with two faces and a background in tiles: one tells each stage, face and tile, in an order that makes
 * sense; one that is not followed tells nothing. */
static void test_a_job(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct model_store *store;
    struct worker_pool *pool = NULL;
    const struct model_defaults defaults = {.name = {"detector", "face_64", "parser", "srvgg_x2"}};
    const struct worker_settings settings = {.device = "cpu", .workers = 1, .queue = 8, .keep_seconds = 300};
    log_set_level(LOG_ERROR);
    if (model_store_create(&store, shared_fixtures(), &defaults, &err) ||
        worker_pool_create(&pool, &settings, store, &err))
        fail_msg("%s", err.text);
    struct events *events = worker_pool_events(pool);
    struct job *job = make((const char *const[]){"bg_tile", "64", "ext", "png", NULL});
    snprintf(job->token, sizeof job->token, "ann");
    events_follow(events, job);
    if (body_read(&job->body, job->restoration, pipeline_check, store, &err) || worker_pool_submit(pool, job, &err))
        fail_msg("%s", err.text);

    struct event all[512];
    size_t count = 0;
    uint64_t after = 0;
    while (!count || all[count - 1].kind != EVENT_ENDED) {
        bool lost;
        assert_true(events_wait(events, after, 600000) > after);
        count += events_read(events, &after, "job", "ann", all + count, 512 - count, &lost);
        assert_false(lost);
        assert_true(count < 512);
    }
    worker_pool_destroy(&pool);
    model_store_destroy(&store);
    assert_int_equal(atomic_load(&job->state), JOB_DONE);

    unsigned stages = 0;
    int tiles = 0, faces = 0;
    assert_int_equal(all[0].kind, EVENT_STARTED);
    for (size_t i = 0; i < count; i++) {
        const struct event *event = &all[i];
        stages |= event->kind == EVENT_STAGE ? 1u << event->stage : 0;
        tiles += event->kind == EVENT_TILE;
        faces += event->kind == EVENT_FACE;
        assert_true(event->progress >= (i ? all[i - 1].progress : 0) && event->progress <= 1);
        assert_true(event->tiles_done <= event->tiles_total && event->faces_done <= event->faces_total);
        assert_int_equal(event->state, i + 1 < count ? JOB_RUNNING : JOB_DONE);
    }
    assert_int_equal(stages, 1u << STAGE_REPAIR | 1u << STAGE_DETECT | 1u << STAGE_ALIGN | 1u << STAGE_RESTORE |
                                 1u << STAGE_PARSE | 1u << STAGE_BACKGROUND | 1u << STAGE_PASTE | 1u << STAGE_ENCODE);
    const struct event *last = &all[count - 1], *encoding = &all[count - 2];
    assert_int_equal(encoding->kind, EVENT_STAGE);
    assert_int_equal(encoding->stage, STAGE_ENCODE);
    assert_true(encoding->progress > 0 && encoding->progress < 1);
    assert_true(last->progress == 1 && last->seconds_left == 0);
    assert_int_equal(last->faces_done, 2);
    assert_int_equal(faces, 2); /* one at a time on this device */
    assert_true(tiles > 1);
    assert_int_equal(tiles, last->tiles_total);
    job_release(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_who_sees_what, open_hub, close_hub),
        cmocka_unit_test_setup_teardown(test_lost, open_hub, close_hub),
        cmocka_unit_test_setup_teardown(test_starts_differ, open_hub, close_hub),
        cmocka_unit_test_setup_teardown(test_waiting, open_hub, close_hub),
        cmocka_unit_test(test_a_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
