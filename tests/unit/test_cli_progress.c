/* The progress line of the command line: one whole over all steps, that never runs backwards; never wider than the
 * terminal; the time left of one picture and of a batch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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

static const char *line(int columns, const char *name, size_t number, size_t count)
{
    static char text[1024];
    const struct cli_progress_view view = {.name = name,
                                           .number = number,
                                           .count = count,
                                           .stage = "background",
                                           .part = 0.5,
                                           .faces = {3, 3},
                                           .tiles = {10, 15},
                                           .seconds = 37,
                                           .all_left = 4000};
    return cli_progress_line(text, sizeof text, columns, &view);
}

static void test_width(void **state)
{
    (void)state;
    assert_int_equal(cli_progress_width("abc"), 3);
    assert_int_equal(cli_progress_width("gr\xc3\xbc\xc3\x9f"), 4);
    assert_int_equal(cli_progress_width("u\xcc\x88"), 1);                /* a combining mark */
    assert_int_equal(cli_progress_width("\xe5\x86\x99\xe7\x9c\x9f"), 4); /* two wide characters */
    assert_int_equal(cli_progress_width("\xf0\x9f\x98\x80"), 2);         /* an emoji */
    assert_int_equal(cli_progress_width("a\xff\xc3z\033[31m\xe5\x86"),
                     11); /* what is no UTF-8 or a control: one '?' each */
}

/* However wide the terminal and the name, a line never has more columns, and what matters most is the last to go. */
static void test_lines(void **state)
{
    (void)state;
    char wide[400] = "", long_name[] = "A very long file name of the year 1957, scanned 0042.jpg";
    for (int i = 0; i < 40; i++)
        strcat(wide, "\xe5\x86\x99u\xcc\x88");
    const char *const names[] = {"a.jpg", long_name, wide, "", "\xff\xfe\033]0;x\007.png"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        for (int columns = 0; columns <= 200; columns++)
            for (size_t count = 1; count < 100000; count *= 12) {
                const char *text = line(columns, names[n], count / 2 + 1, count);
                assert_true(cli_progress_width(text) <= columns);
                assert_null(strpbrk(text, "\033\007\n\r"));
            }
    assert_string_equal(line(120, "a.jpg", 1, 1),
                        "a.jpg [############............] background  faces 3/3  tiles 10/15  0:37 left");
    assert_string_equal(line(120, "a.jpg", 3, 12), "3 of 12  a.jpg [############............] background  faces 3/3  "
                                                   "tiles 10/15  all 1:06:40 left");
    assert_string_equal(line(79, long_name, 3, 12),
                        "3 of 12  A very lon... 0042.jpg [########........] background  all 1:06:40 left");
    assert_string_equal(line(39, long_name, 3, 12), "3 of 12  A v...pg 50%  all 1:06:40 left");
    assert_string_equal(line(39, long_name, 1, 1), "A ver...2.jpg 50% background  0:37 left");
    assert_string_equal(line(19, long_name, 1, 1), "A v...jpg 50%  0:37");
    assert_string_equal(line(21, long_name, 3, 12), "3 of 12  50%  1:06:40");
}

static void test_batch(void **state)
{
    (void)state;
    struct cli_batch batch = {.number = 1, .count = 3, .megapixels = 2, .left = 6};
    assert_true(cli_progress_left(&batch, 5, 0) < 0); /* nothing is known */
    /* a quarter of 2 megapixels in 5 s: 15 s for the rest of it, 10 s for each megapixel after it */
    assert_true(cli_progress_left(&batch, 5, 0.25) == 75);
    batch = (struct cli_batch){.number = 2, .count = 3, .megapixels = 4, .left = 2, .done = 2, .seconds = 6};
    assert_true(cli_progress_left(&batch, 0, 0) == 18); /* 3 s a megapixel */
    assert_true(cli_progress_left(&batch, 8, 0) == 10);
    assert_true(cli_progress_left(&batch, 100, 0) == 6); /* longer than thought: at least what comes after it */
    assert_true(cli_progress_left(&batch, 8, 0.5) == 14);
    assert_true(cli_progress_left(&batch, 16, 1) == 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faces_then_tiles),
        cmocka_unit_test(test_faces_alone),
        cmocka_unit_test(test_width),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
