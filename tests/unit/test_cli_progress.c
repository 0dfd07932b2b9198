/* The progress bar of the command line: one whole over all steps, that never runs backwards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/cli/cli_progress.h"

static double part(enum stage stage, bool background, int faces, int faces_total, int tiles, int tiles_total)
{
    return cli_progress_part(stage, background, (int[2]){faces, faces_total}, (int[2]){tiles, tiles_total});
}

static void test_faces_then_tiles(void **state)
{
    (void)state;
    for (int count = 0; count < 4; count++) {
        double last = part(STAGE_DETECT, true, 0, 0, 0, 0);
        assert_true(last == 0);
        for (int done = 0; done <= count; done++) {
            double now = part(STAGE_RESTORE, true, done, count, 0, 0);
            assert_true(now >= last && now < 0.5); /* the background is the larger part */
            last = now;
        }
        for (int done = 0; done <= 24; done++) {
            double now = part(STAGE_BACKGROUND, true, count, count, done, 24);
            assert_true(now >= last && now <= 1);
            last = now;
        }
        assert_true(last == 1);
        assert_true(part(STAGE_PASTE, true, count, count, 24, 24) == 1);
    }
}

static void test_faces_alone(void **state)
{
    (void)state;
    assert_true(part(STAGE_RESTORE, false, 1, 2, 0, 0) == 0.5);
    assert_true(part(STAGE_RESTORE, false, 2, 2, 0, 0) == 1);
    assert_true(part(STAGE_BACKGROUND, true, 2, 2, 0, 0) < 1); /* no upsampler was found: resized at once */
    assert_true(part(STAGE_ENCODE, true, 0, 0, 0, 0) == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faces_then_tiles),
        cmocka_unit_test(test_faces_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
