/* Where a stored job will stand among those that begin. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "server/job/place.h"

/* Clients are letters, small ones of low priority; jobs in the queue have the turns that its rules give them. */
static size_t jobs_of(const char *text, struct place_job *out)
{
    size_t count = strlen(text);
    for (size_t i = 0; i < count; i++) {
        out[i] = (struct place_job){.low = text[i] >= 'a', .stored = true, .seconds = 1};
        snprintf(out[i].client, sizeof out[i].client, "%c", text[i] & ~0x20);
        for (size_t k = 0; k < i; k++)
            if (!strcmp(out[k].client, out[i].client) && out[k].low == out[i].low)
                out[i].turn = out[k].turn + 1;
    }
    return count;
}

static void expect(const char *queue, const char *coming, int room, size_t begun, size_t jobs)
{
    struct place_job waiting[32], next[16];
    const size_t count = jobs_of(queue, waiting), more = jobs_of(coming, next);
    const struct place place = place_of(waiting, count, next, more, room, begun);
    assert_int_equal(place.jobs, jobs);
    assert_true(place.seconds == (double)jobs);
}

static void stored_jobs_take_their_turns_in_the_queue(void **state)
{
    (void)state;
    expect("", "B", 1, 0, 0);
    expect("", "AB", 2, 0, 1);
    expect("AAAAA", "AB", 0, 1, 3); /* two begin until it comes, and one has the same turn */
    expect("AAAAA", "AB", 2, 1, 1); /* it comes at once */
    expect("AAAAA", "A", 0, 1, 5);  /* of the same client: behind all */
    expect("ABABA", "C", 0, 1, 2);  /* one begins until it comes; then B's and A's next stand first */
    expect("aaaaa", "B", 0, 1, 1);  /* none of low priority goes before it but the one that begins first */
    expect("AAAAA", "b", 0, 1, 5);
    expect("AAa", "b", 0, 1, 3);
    expect("AA", "AAAB", -1, 1, 5); /* more are out than may be: all that there is begins first */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(stored_jobs_take_their_turns_in_the_queue)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
