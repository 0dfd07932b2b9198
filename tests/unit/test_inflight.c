/* The bound on what all requests together have in memory. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/job/inflight.h"
#include "server/job/job.h"

#define FAR (INT64_C(1) << 62)

struct client {
    struct inflight_body body;
    int suspended, resumed;
    bool gone;
};

static void suspended(void *context)
{
    ((struct client *)context)->suspended++;
}

static void resumed(void *context)
{
    ((struct client *)context)->resumed++;
}

static bool gone(void *context)
{
    return ((struct client *)context)->gone;
}

static struct inflight *make(uint64_t capacity, size_t most_waiting)
{
    struct inflight *inflight;
    struct error err = ERROR_INIT;
    assert_int_equal(inflight_create(&inflight, capacity, most_waiting, &err), OK);
    return inflight;
}

static enum inflight_answer enter(struct inflight *inflight, struct client *client, uint64_t bytes)
{
    *client = (struct client){0};
    client->body = (struct inflight_body){.suspend = suspended, .resume = resumed, .gone = gone, .context = client};
    return inflight_enter(inflight, &client->body, bytes);
}

static void bodies_share_half_and_wait_in_order(void **state)
{
    (void)state;
    struct inflight *inflight = make(200, 3);
    struct client a, b, c, d, e, f;
    assert_int_equal(enter(inflight, &a, 60), INFLIGHT_ADMITTED);
    assert_int_equal(enter(inflight, &b, 40), INFLIGHT_ADMITTED); /* 100 of 200: exactly half */
    assert_int_equal(enter(inflight, &c, 50), INFLIGHT_WAITS);
    assert_int_equal(c.suspended, 1);
    assert_int_equal(enter(inflight, &d, 1),
                     INFLIGHT_WAITS); /* there would be none for it, and it has no right to pass */
    assert_int_equal(enter(inflight, &e, 50), INFLIGHT_WAITS);
    assert_int_equal(enter(inflight, &f, 1), INFLIGHT_FULL); /* three wait */
    assert_int_equal(f.suspended, 0);
    inflight_leave(inflight, &f.body);
    assert_int_equal(inflight_used(inflight), 100);
    inflight_leave(inflight, &b.body); /* 60: c does not fit yet, nor does who is behind it */
    assert_int_equal(c.resumed + d.resumed + e.resumed, 0);
    inflight_shrink(inflight, &a.body, 45);
    assert_int_equal(c.resumed, 1);
    assert_int_equal(d.resumed, 1);
    assert_int_equal(e.resumed, 0);
    assert_false(c.body.refused);
    assert_int_equal(inflight_used(inflight), 96);
    inflight_leave(inflight, &a.body);
    assert_int_equal(e.resumed, 0); /* 51 + 50 */
    inflight_leave(inflight, &d.body);
    assert_int_equal(e.resumed, 1);
    inflight_leave(inflight, &c.body);
    inflight_leave(inflight, &e.body);
    assert_int_equal(inflight_used(inflight), 0);
    inflight_destroy(&inflight);
}

static enum inflight_answer enter_of(struct inflight *inflight, struct client *client, const char *name)
{
    *client = (struct client){0};
    client->body = (struct inflight_body){.suspend = suspended, .resume = resumed, .gone = gone, .context = client};
    strcpy(client->body.client, name);
    return inflight_enter(inflight, &client->body, 40);
}

/* One client whose bodies have all places: another one's still wait, and are let in before most of its own. */
static void clients_take_turns(void **state)
{
    (void)state;
    struct inflight *inflight = make(100, 16);
    struct client first, many[17], few[3], third;
    int order = 0;
    assert_int_equal(enter_of(inflight, &first, "many"), INFLIGHT_ADMITTED);
    for (int i = 0; i < 16; i++)
        assert_int_equal(enter_of(inflight, &many[i], "many"), INFLIGHT_WAITS);
    assert_int_equal(enter_of(inflight, &many[16], "many"), INFLIGHT_FULL);
    for (int i = 0; i < 3; i++) /* an eighth of 16 */
        assert_int_equal(enter_of(inflight, &few[i], "few"), i < 2 ? INFLIGHT_WAITS : INFLIGHT_FULL);
    assert_int_equal(enter_of(inflight, &third, "third"), INFLIGHT_WAITS);
    struct client *wanted[] = {&many[0], &few[0], &third, &many[1], &few[1], &many[2], &many[3]};
    struct client *before = &first;
    for (; order < 7; order++) { /* one at a time has room */
        inflight_leave(inflight, &before->body);
        before = wanted[order];
        assert_int_equal(before->resumed, 1);
        assert_false(before->body.refused);
    }
    inflight_leave(inflight, &before->body);
    for (int i = 4; i < 16; i++)
        inflight_leave(inflight, &many[i].body);
    assert_int_equal(inflight_used(inflight), 0);
    inflight_destroy(&inflight);
}

static void one_alone_is_always_admitted(void **state)
{
    (void)state;
    struct inflight *inflight = make(100, 3);
    struct client a, b;
    atomic_int stop = 0;
    assert_int_equal(enter(inflight, &a, 1000), INFLIGHT_ADMITTED);
    assert_int_equal(enter(inflight, &b, 1), INFLIGHT_WAITS);
    assert_true(inflight_begin(inflight, 5000, &stop)); /* and so is its picture */
    inflight_end(inflight, 5000, 700);
    inflight_leave(inflight, &a.body);
    assert_int_equal(b.resumed, 0); /* the result is on its way */
    inflight_sent(inflight, 700);
    assert_int_equal(b.resumed, 1);
    inflight_leave(inflight, &b.body);
    assert_int_equal(inflight_used(inflight), 0);
    inflight_destroy(&inflight);

    inflight = make(0, 0); /* no bound */
    assert_int_equal(enter(inflight, &a, UINT64_C(1) << 50), INFLIGHT_ADMITTED);
    assert_int_equal(enter(inflight, &b, UINT64_C(1) << 50), INFLIGHT_ADMITTED);
    inflight_leave(inflight, &a.body);
    inflight_leave(inflight, &b.body);
    inflight_destroy(&inflight);
}

static void who_waits_too_long_or_is_gone_is_refused(void **state)
{
    (void)state;
    struct inflight *inflight = make(100, 9);
    struct client a, b, c, d;
    assert_int_equal(enter(inflight, &a, 50), INFLIGHT_ADMITTED);
    assert_int_equal(enter(inflight, &b, 50), INFLIGHT_WAITS);
    assert_int_equal(enter(inflight, &c, 50), INFLIGHT_WAITS);
    inflight_sweep(inflight, job_now());
    assert_int_equal(b.resumed + c.resumed, 0);
    b.gone = true;
    inflight_sweep(inflight, job_now());
    assert_int_equal(b.resumed, 1);
    assert_true(b.body.refused);
    assert_int_equal(c.resumed, 0);
    inflight_sweep(inflight, FAR);
    assert_int_equal(c.resumed, 1);
    assert_true(c.body.refused);
    inflight_leave(inflight, &b.body); /* they have nothing */
    inflight_leave(inflight, &c.body);
    assert_int_equal(inflight_used(inflight), 50);
    assert_int_equal(enter(inflight, &b, 50), INFLIGHT_WAITS);
    assert_int_equal(enter(inflight, &c, 50), INFLIGHT_WAITS);
    inflight_leave(inflight, &c.body); /* while it waits: the end of the list is where it was */
    inflight_close(inflight);
    assert_int_equal(b.resumed, 1);
    assert_true(b.body.refused);
    assert_int_equal(c.resumed, 0);
    assert_int_equal(enter(inflight, &d, 50), INFLIGHT_FULL);
    inflight_leave(inflight, &a.body);
    inflight_destroy(&inflight);
}

struct picture {
    struct inflight *inflight;
    pthread_t thread;
    uint64_t bytes;
    atomic_int stop, at_work;
    bool begun;
};

static void *work(void *argument)
{
    struct picture *picture = argument;
    picture->begun = inflight_begin(picture->inflight, picture->bytes, &picture->stop);
    atomic_store(&picture->at_work, 1);
    return NULL;
}

static void begin(struct inflight *inflight, struct picture *picture, uint64_t bytes)
{
    *picture = (struct picture){.inflight = inflight, .bytes = bytes};
    assert_int_equal(pthread_create(&picture->thread, NULL, work, picture), 0);
}

static void pictures_wait_for_room(void **state)
{
    (void)state;
    struct inflight *inflight = make(100, 9);
    struct picture first, second, third;
    struct client body;
    begin(inflight, &first, 60);
    pthread_join(first.thread, NULL);
    assert_true(first.begun);
    begin(inflight, &second, 60);
    while (!atomic_load(&second.at_work) && inflight_used(inflight) != 60)
        ;
    assert_int_equal(atomic_load(&second.at_work), 0);
    assert_int_equal(enter(inflight, &body, 45), INFLIGHT_WAITS); /* 105 */
    inflight_end(inflight, 60, 10);
    pthread_join(second.thread, NULL);
    assert_true(second.begun);
    begin(inflight, &third, 60);
    atomic_store(&third.stop, 1);
    pthread_join(third.thread, NULL);
    assert_false(third.begun);
    inflight_end(inflight, 60, 0);
    inflight_sent(inflight, 10);
    assert_int_equal(body.resumed, 1);
    inflight_leave(inflight, &body.body);
    assert_int_equal(inflight_used(inflight), 0);
    inflight_destroy(&inflight);
}

/* The picture and its copy, and two results of four bytes a pixel. */
static void a_picture_costs_what_it_has(void **state)
{
    (void)state;
    struct restoration r = {.in_info = {.width = 100, .height = 50, .channels = 3, .bits = 8},
                            .options = {.upscale = 2}};
    assert_int_equal(inflight_picture(&r), 2 * 5000 * 3 + 5000 * 4 * 8);
    r.in_info.channels = 1; /* becomes RGB */
    assert_int_equal(inflight_picture(&r), 2 * 5000 * 3 + 5000 * 4 * 8);
    r.in_info.channels = 4;
    r.in_info.bits = 16;
    r.options.aligned = true; /* the result is a face's square */
    assert_int_equal(inflight_picture(&r), 2 * 5000 * 10);
    r.options.aligned = false;
    r.detect_only = true;
    assert_int_equal(inflight_picture(&r), 2 * 5000 * 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_picture_costs_what_it_has),
        cmocka_unit_test(bodies_share_half_and_wait_in_order),
        cmocka_unit_test(clients_take_turns),
        cmocka_unit_test(one_alone_is_always_admitted),
        cmocka_unit_test(who_waits_too_long_or_is_gone_is_refused),
        cmocka_unit_test(pictures_wait_for_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
