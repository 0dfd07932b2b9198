/* The log's lines, as text and as JSON: what comes out of stderr. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "runtime/base/log.h"
#include "runtime/base/utf8.h"

static char caught[65536];

/* Takes what statement writes to stderr into caught. */
#define CATCH(statement)                                                                                               \
    do {                                                                                                               \
        int ends[2], old = dup(STDERR_FILENO);                                                                         \
        assert_int_equal(pipe(ends), 0);                                                                               \
        dup2(ends[1], STDERR_FILENO);                                                                                  \
        statement;                                                                                                     \
        dup2(old, STDERR_FILENO);                                                                                      \
        close(old);                                                                                                    \
        close(ends[1]);                                                                                                \
        ssize_t got = read(ends[0], caught, sizeof caught - 1);                                                        \
        caught[got > 0 ? got : 0] = 0;                                                                                 \
        close(ends[0]);                                                                                                \
    } while (0)

/* caught without its time. */
static const char *after_time(void)
{
    int year, millisecond, end = 0;
    assert_int_equal(sscanf(caught, "%4d-%*2d-%*2dT%*2d:%*2d:%*2d.%3dZ %n", &year, &millisecond, &end), 2);
    assert_true(year >= 2024);
    return caught + end;
}

/* The line as JSON, which it has to be, in one line and without any key twice. */
static json_t *parsed(void)
{
    assert_int_equal(strcspn(caught, "\n"), strlen(caught) - 1);
    assert_true(utf8_valid(caught));
    json_error_t error;
    json_t *line = json_loads(caught, JSON_REJECT_DUPLICATES, &error);
    if (!line)
        fail_msg("%s in %s", error.text, caught);
    return line;
}

static int setup(void **state)
{
    (void)state;
    log_set_level(LOG_INFO);
    log_set_format(LOG_TEXT);
    return 0;
}

static void text_lines(void **state)
{
    (void)state;
    CATCH(log_event(LOG_WARN, "an-event", "a=%d b=\"%s and %s\" c=%.1f%% d=%s", 3, "x", "y", 1.25, "z"));
    assert_string_equal(after_time(), "warn an-event a=3 b=\"x and y\" c=1.2% d=z\n");
    CATCH(log_event(LOG_INFO, "hostile", "path=%s text=\"%s\" name=%s end=1", "two words", "a\"b\nc\x01\xff\x7fz",
                    "q\"r"));
    assert_string_equal(after_time(), "info hostile path=\"two words\" text=\"a'b?c???z\" name=\"q'r\" end=1\n");
    CATCH(log_event(LOG_INFO, "plain", "a=\xc3\xa4\\ b="));
    assert_string_equal(after_time(), "info plain a=\xc3\xa4\\ b=\n");
}

static void levels(void **state)
{
    (void)state;
    CATCH(log_event(LOG_DEBUG, "quiet", "a=1"));
    assert_string_equal(caught, "");
    log_set_level(LOG_ERROR + 1);
    CATCH(log_event(LOG_ERROR, "quiet", "a=1"));
    assert_string_equal(caught, "");
    CATCH(log_event(LOG_ALWAYS, "asked", "a=1"));
    assert_string_equal(after_time(), "info asked a=1\n");
}

/* Every conversion, length, width and precision that events use gives what printf gives. */
static void conversions(void **state)
{
    (void)state;
    static const char format[] =
        "%d %i %u %x %lu %ld %llu %lld %zu %jd %5d|%-5d|%05d %.3s|%*d|%.*s|%c|%g|%.2e|%+d %p %%";
    char wanted[512];
#define VALUES                                                                                                         \
    -1, -2, 3u, 0xabcu, 4ul, -5l, 6ull, -7ll, (size_t)8, (intmax_t)-9, 10, 11, 12, "abcdef", 4, 13, 2, "xyz", 'c',     \
        0.5, 1234.5, 7, (void *)0x10
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(wanted, sizeof wanted, format, VALUES);
    char whole[600] = "v=\"";
    strcat(strcat(whole, format), "\"");
    CATCH(log_event(LOG_INFO, "all", whole, VALUES));
    char shown[600];
    snprintf(shown, sizeof shown, "info all v=\"%s\"\n", wanted);
    assert_string_equal(after_time(), shown);
}

static void json_lines(void **state)
{
    (void)state;
    log_set_format(LOG_JSON);
    CATCH(log_event(LOG_INFO, "typed",
                    "n=%d big=%llu f=%.1f s=%s digits=%s size=%dx%d q=\"%d\" bad=%f fixed=7 none= on=true off=false "
                    "says=%s told=\"true\"",
                    -3, (unsigned long long)LLONG_MAX, 2.5, "word", "123", 640, 480, 5, -1.0 / 0.0, "true"));
    json_t *line = parsed();
    assert_string_equal(json_string_value(json_object_get(line, "event")), "typed");
    assert_string_equal(json_string_value(json_object_get(line, "level")), "info");
    assert_int_equal(strlen(json_string_value(json_object_get(line, "time"))), 24);
    assert_int_equal(json_integer_value(json_object_get(line, "n")), -3);
    assert_non_null(strstr(caught, "\"big\":9223372036854775807,"));
    assert_true(json_real_value(json_object_get(line, "f")) == 2.5);
    static const char *const texts[][2] = {{"s", "word"}, {"digits", "123"}, {"size", "640x480"},
                                           {"q", "5"},    {"bad", "-inf"},   {"fixed", "7"},
                                           {"none", ""},  {"says", "true"},  {"told", "true"}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_string_equal(json_string_value(json_object_get(line, texts[i][0])), texts[i][1]);
    assert_true(json_is_true(json_object_get(line, "on")));
    assert_true(json_is_false(json_object_get(line, "off")));
    assert_int_equal(json_object_size(line), 3 + 3 + 2 + sizeof texts / sizeof *texts);
    json_decref(line);

    CATCH(log_event(LOG_ERROR, "hostile", "text=\"%s\" path=%s", "a\"b\\c\nd\x01\x7f\xff\xed\xa0\x80\xc3\xa4z",
                    "x\" y=1"));
    line = parsed();
    assert_string_equal(json_string_value(json_object_get(line, "text")),
                        "a\"b\\c\nd\x01\x7f\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xc3\xa4z");
    assert_string_equal(json_string_value(json_object_get(line, "path")), "x\" y=1");
    json_decref(line);
}

static void lines_in_parts(void **state)
{
    (void)state;
    for (int format = LOG_TEXT; format <= LOG_JSON; format++) {
        struct log_line line;
        log_set_format((enum log_format)format);
        log_begin(&line, LOG_INFO, "parts");
        log_add(&line, "a=%d", 1);
        for (int i = 0; i < 3; i++)
            log_add(&line, "%s_%d_ms=%.1f", "stage", i, 0.5 * i);
        log_add(&line, "b=\"%s\"", "two words");
        CATCH(log_end(&line));
        if (format == LOG_TEXT)
            assert_string_equal(after_time(),
                                "info parts a=1 stage_0_ms=0.0 stage_1_ms=0.5 stage_2_ms=1.0 b=\"two words\"\n");
        else
            assert_non_null(strstr(
                caught, ",\"a\":1,\"stage_0_ms\":0.0,\"stage_1_ms\":0.5,\"stage_2_ms\":1.0,\"b\":\"two words\"}\n"));
    }
    struct log_line line;
    log_begin(&line, LOG_DEBUG, "quiet");
    log_add(&line, "a=%d", 1);
    CATCH(log_end(&line));
    assert_string_equal(caught, "");
}

/* Whatever its length and its bytes, a line is whole, valid, and no longer than a pipe takes at once. */
static void long_lines(void **state)
{
    (void)state;
    static const char *const units[] = {"a", "\"", "\xc3\xa4", "\xff", "\x01", "\xf0\x9f\x98\x80"};
    char value[6000];
    for (int format = LOG_TEXT; format <= LOG_JSON; format++)
        for (size_t unit = 0; unit < sizeof units / sizeof *units; unit++)
            for (size_t count = 0; count < 2100; count = count < 600 ? count + 97 : count + 1 + count / 61) {
                size_t used = 0;
                for (size_t i = 0; i < count && used + 4 < sizeof value; i++)
                    used += strlen(strcpy(value + used, units[unit]));
                value[used] = 0;
                log_set_format((enum log_format)format);
                CATCH(log_event(LOG_INFO, "long", "a=\"%s\" b=\"%s\" c=%s d=%d", value, value, value, 5));
                const size_t size = strlen(caught);
                assert_true(size <= 4096 && caught[size - 1] == '\n');
                assert_true(utf8_valid(caught));
                if (format == LOG_JSON)
                    json_decref(parsed());
                else
                    assert_int_equal(strcspn(after_time(), "\n"), strlen(after_time()) - 1);
                if (count == 97)
                    assert_non_null(strstr(caught, format == LOG_JSON ? "\"d\":5}" : " d=5\n"));
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(text_lines, setup),     cmocka_unit_test_setup(levels, setup),
        cmocka_unit_test_setup(conversions, setup),    cmocka_unit_test_setup(json_lines, setup),
        cmocka_unit_test_setup(lines_in_parts, setup), cmocka_unit_test_setup(long_lines, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
