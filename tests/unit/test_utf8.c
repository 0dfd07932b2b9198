/* Text that may not be UTF-8. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"

static void test_utf8(void **state)
{
    (void)state;
    char out[8];
    assert_true(utf8_valid(""));
    assert_true(utf8_valid("a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"));
    static const char *const bad[] = {"\xff\xfe", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "a\xc3", "\x80"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(utf8_valid(bad[i]));
    assert_string_equal(utf8_copy(out, sizeof out, "a\xff\xc3\xa4\xc3"), "a?\xc3\xa4?");
    assert_string_equal(utf8_copy(out, sizeof out, "123456\xc3\xa4"), "123456"); /* not half of it */
    assert_string_equal(utf8_copy(out, sizeof out, "12345\xc3\xa4"), "12345\xc3\xa4");
    char escaped[32], text[] = "a\033[2J\xc3\xa4\xff\xc2\x9b\x7f";
    assert_string_equal(utf8_escape(escaped, sizeof escaped, text), "a\\x1B[2J\xc3\xa4\\xFF\\xC2\\x9B\\x7F");
    assert_string_equal(utf8_escape(escaped, 7, "abc\033d"), "abc"); /* not half of an escape */
    utf8_clean(text);
    assert_string_equal(text, "a?[2J\xc3\xa4????");
    struct error err = ERROR_INIT;
    assert_int_equal(error_set(&err, ERROR_IO, "%s: gone", "\033]0;x\a"), ERROR_IO);
    assert_string_equal(err.text, "?]0;x?: gone");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
