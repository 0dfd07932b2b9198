/* "Did you mean": which name a mistyped one stands for, and that nothing is suggested for what is like none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "server/suggest.h"

static const char *nearest(const char *word)
{
    static const char *const names[] = {"upscale", "bg_upsampler", "bg_tile", "faces",  "face_id",
                                        "listen",  "queue",        "json",    "models", "weight"};
    struct suggest suggest = suggest_for(word);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        suggest_offer(&suggest, names[i]);
    return suggest.best;
}

static void test_near(void **state)
{
    (void)state;
    assert_string_equal(nearest("upscal"), "upscale");
    assert_string_equal(nearest("upsclae"), "upscale"); /* two letters swapped are one edit */
    assert_string_equal(nearest("bg-upsampeler"), "bg_upsampler");
    assert_string_equal(nearest("UPSCALE"), "upscale");
    assert_string_equal(nearest("facs"), "faces");
    assert_string_equal(nearest("jsno"), "json");
    assert_string_equal(nearest("wieght"), "weight");
    struct suggest equal = suggest_for("face");
    suggest_offer(&equal, "faces");
    suggest_offer(&equal, "faced"); /* as near: the first stays */
    assert_string_equal(equal.best, "faces");
    assert_int_equal(equal.distance, 1);
    suggest_offer(&equal, "face");
    assert_string_equal(equal.best, "face");
    assert_int_equal(equal.distance, 0);
}

static void test_far(void **state)
{
    (void)state;
    char text[64], huge[200];
    assert_null(nearest("colour"));
    assert_null(nearest(""));
    assert_null(nearest("q"));
    memset(huge, 'u', sizeof huge);
    huge[sizeof huge - 1] = 0;
    assert_null(nearest(huge));
    struct suggest none = suggest_for("colour"), some = suggest_for("quee");
    suggest_offer(&none, "queue");
    suggest_offer(&some, "queue");
    assert_string_equal(suggest_text(&none, "--", text, sizeof text), "");
    assert_string_equal(suggest_text(&some, "--", text, sizeof text), "; did you mean --queue?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_near),
        cmocka_unit_test(test_far),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
