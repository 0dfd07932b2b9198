/* What a job's row tells of its options, to servers of this version and of an older one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "server/job/record.h"

static json_t *options_of(const struct restoration *r)
{
    char *text = record_options(r);
    json_t *json = json_loads(text, 0, NULL), *options = json_incref(json_object_get(json, "options"));
    assert_non_null(options);
    json_decref(json);
    free(text);
    return options;
}

/* An option that came after servers began to share stores is told only where it was chosen; then it is read back. */
static void test_newer_options(void **state)
{
    struct restoration *r = NULL, *again = NULL;
    struct error err = ERROR_INIT;
    (void)state;
    assert_int_equal(restoration_create(&r, &err), OK);
    json_t *options = options_of(r);
    assert_null(json_object_get(options, "progressive"));
    assert_non_null(json_object_get(options, "quality")); /* an old one, whatever its value */
    json_decref(options);
    r->options.progressive = true;
    options = options_of(r);
    assert_true(json_is_true(json_object_get(options, "progressive")));
    json_decref(options);
    char *text = record_options(r);
    assert_int_equal(record_restoration(text, &r->limits, &again, &err), OK);
    assert_true(again->options.progressive);
    free(text);
    restoration_destroy(&again);
    restoration_destroy(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_newer_options)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
