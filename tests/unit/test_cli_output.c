/* What the command line says of what it writes: sizes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "server/cli/cli_output.h"

static void test_sizes(void **state)
{
    static const struct {
        double bytes;
        const char *text;
    } sizes[] = {{0, "0 kB"},       {1, "1 kB"},       {40960, "41 kB"},  {999000, "999 kB"},
                 {1000000, "1 MB"}, {1499999, "1 MB"}, {2600000, "3 MB"}, {2e12, "2000000 MB"}};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char text[CLI_OUTPUT_SIZE];
        cli_output_size(text, sizes[i].bytes);
        assert_string_equal(text, sizes[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
