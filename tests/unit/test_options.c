/* The options table: what each option takes and refuses, and what its message says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/pipeline/options.h"

static void accept(const char *name, const char *value, const char *shown)
{
    struct options options;
    struct error err = ERROR_INIT;
    char text[512];
    options_init(&options);
    if (options_set(&options, name, value, &err))
        fail_msg("%s=%s was refused: %s", name, value, err.text);
    options_text(&options, name, text, sizeof text);
    assert_string_equal(text, shown);
}

/* Refused with INVALID, and the message names the field, what was sent and what is allowed; nothing is changed. */
static void refuse(const char *name, const char *value)
{
    struct options options, before;
    struct error err = ERROR_INIT;
    options_init(&options);
    before = options;
    if (options_set(&options, name, value, &err) != ERROR_INVALID)
        fail_msg("%s=%s was taken", name, value);
    assert_ptr_equal(strstr(err.text, options_find(name)->name), err.text);
    assert_non_null(strstr(err.text, options_find(name)->allowed));
    if (*value && strlen(value) < 40 && !strpbrk(value, "\n\x01\x7f"))
        assert_non_null(strstr(err.text, value));
    assert_memory_equal(&options, &before, sizeof options);
}

static void test_numbers(void **state)
{
    (void)state;
    accept("upscale", "1", "1");
    accept("upscale", "8", "8");
    accept("upscale", "1.5", "1.5");
    accept("upscale", "02.50", "2.5");
    accept("weight", "0", "0");
    accept("weight", "1", "1");
    accept("weight", ".25", "0.25");
    accept("weight", "auto", "auto");
    static const char *const bad[] = {"",      "0",
                                      "0.999", "8.0001",
                                      "9",     "-1",
                                      "+2",    "nan",
                                      "NaN",   "inf",
                                      "0x2",   "1e0",
                                      " 2",    "2 ",
                                      "2,5",   "2x",
                                      "2.5.1", ".",
                                      "two",   "1e400",
                                      "2\n",   "99999999999999999999999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        refuse("upscale", bad[i]);
    refuse("weight", "1.01");
    refuse("weight", "-0.1");
    refuse("weight", "nan");
    refuse("weight", "-1");
    refuse("weight", "automatic");
    accept("min_score", "0.5", "0.5");
    accept("min_score", "1", "1");
    refuse("min_score", "0.49");
    refuse("min_score", "1.01");
}

static void test_integers(void **state)
{
    (void)state;
    accept("bg_tile", "auto", "auto");
    accept("bg_tile", "0", "0");
    accept("bg_tile", "32", "32");
    accept("bg_tile", "4096", "4096");
    accept("bg-tile", "400", "400");
    static const char *const tiles[] = {"", "1", "31", "4097", "-1", "AUTO", "400.0", "0x40", "99999999999999999999"};
    for (size_t i = 0; i < sizeof tiles / sizeof tiles[0]; i++)
        refuse("bg_tile", tiles[i]);
    accept("seed", "none", "none");
    accept("seed", "0", "0");
    accept("seed", "18446744073709551615", "18446744073709551615");
    refuse("seed", "18446744073709551616");
    refuse("seed", "-1");
    refuse("seed", "1.0");
    refuse("seed", "");
    accept("quality", "1", "1");
    accept("quality", "100", "100");
    refuse("quality", "0");
    refuse("quality", "101");
    accept("png_level", "0", "0");
    accept("png_level", "9", "9");
    refuse("png_level", "10");
    refuse("png_level", "-1");
}

static void test_words(void **state)
{
    (void)state;
    static const char *const yes[] = {"true", "1", "on", "yes", "True"}, *const no[] = {"false", "0", "off", "no",
                                                                                        "NO"};
    static const char *const flags[] = {"only_center_face", "aligned", "compat", "only-center-face"};
    for (size_t f = 0; f < sizeof flags / sizeof flags[0]; f++) {
        for (size_t i = 0; i < 5; i++) {
            accept(flags[f], yes[i], "true");
            accept(flags[f], no[i], "false");
        }
        refuse(flags[f], "");
        refuse(flags[f], "2");
        refuse(flags[f], "maybe");
    }
    accept("ext", "auto", "auto");
    accept("ext", "png", "png");
    accept("ext", "jpg", "jpg");
    accept("ext", "jpeg", "jpg");
    refuse("ext", "gif");
    refuse("ext", "PNG");
    accept("precision", "fp16", "fp16");
    accept("precision", "fp32", "fp32");
    refuse("precision", "int8");
    accept("parse", "auto", "auto");
    accept("parse", "on", "true");
    accept("parse", "false", "false");
    refuse("parse", "maybe");
}

static void test_names(void **state)
{
    (void)state;
    char longest[OPTION_NAME_MAX + 1];
    memset(longest, 'a', sizeof longest);
    longest[OPTION_NAME_MAX] = '\0';
    refuse("version", longest);
    longest[OPTION_NAME_MAX - 1] = '\0';
    accept("version", longest, longest);
    accept("version", "1.3", "1.3");
    accept("version", "none", "none");
    refuse("version", "");
    refuse("version", "../GFPGANv1.3");
    refuse("detector", "a\nb");
    refuse("bg_upsampler", "");
    accept("device", "NVIDIA H200 / 0", "NVIDIA H200 / 0");
    refuse("device", "");
    accept("suffix", "", "");
    accept("suffix", "restaur\xc3\xa9", "restaur\xc3\xa9");
    refuse("suffix", "a/b");
    refuse("suffix", "a\\b");
    char suffix[OPTION_NAME_MAX + 1];
    memset(suffix, 'a', sizeof suffix - 1);
    suffix[OPTION_NAME_MAX - 1] = 0;
    accept("suffix", suffix, suffix);
    suffix[OPTION_NAME_MAX - 1] = 'a';
    suffix[OPTION_NAME_MAX] = 0;
    refuse("suffix", suffix);
    struct options options;
    struct error err = ERROR_INIT;
    options_init(&options);
    assert_int_equal(options_set(&options, "suffix", suffix, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "suffix: the value has 128 bytes"));
    refuse("suffix", "a\x01");
    refuse("suffix", "a\x7f");
}

static void test_faces(void **state)
{
    (void)state;
    char many[OPTION_MAX_FACES * 4] = "0";
    accept("faces", "all", "all");
    accept("faces", "none", "none");
    accept("faces", "0", "0");
    accept("faces", "2,0,17", "2,0,17");
    static const char *const bad[] = {"", ",", "0,", ",0", "0,,1", "a", "0 1", "-1", "0,0", "100000", "1.5", "all,0"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        refuse("faces", bad[i]);
    for (int i = 1; i < OPTION_MAX_FACES; i++)
        snprintf(many + strlen(many), sizeof many - strlen(many), ",%d", i);
    accept("faces", many, many);
    strcat(many, ",64");
    refuse("faces", many);
}

static void test_kinds(void **state)
{
    (void)state;
    accept("repair_kinds", "all", "all");
    accept("repair_kinds", "none", "none");
    accept("repair_kinds", "stain,thin", "thin,stain");
    accept("repair_kinds", "Dust,dust,THIN", "thin,dust");
    accept("repair_kinds", "thin,crack,dust,stain", "all");
    static const char *const bad[] = {"", ",", "thin,", ",thin", "thin,,dust", "thi", "thinn", "all,thin"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        refuse("repair_kinds", bad[i]);
}

static void test_weights(void **state)
{
    (void)state;
    accept("weight", "0:0.5,2:1", "auto,0:0.5,2:1");
    accept("weight", "auto,7:0", "auto,7:0");
    accept("weight", "0.333333,7:0.000051,8:0.00004", "0.3333,7:0.0001,8:0");
    accept("weight", "0:0.50000000000000000000000000000000000000000000000000000000000000000000", "auto,0:0.5");
    accept("weight", "0.25,0:auto,99999:1", "0.25,0:auto,99999:1");
    static const char *const bad[] = {
        "0:",      ":1",      "0:2",       "0:-1",     "0:nan",           "0:1,", ",0:1",  "0:1,0.5",
        "0:1,0:1", "0.5,0.5", "auto,auto", "100000:1", "0.5,0:1,0.6,1:1", "-1:1", "0:0:1", "0.5,"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refuse("weight", bad[i]);
    char many[16 * OPTION_MAX_FACES + 16] = "";
    for (int i = 0; i < OPTION_MAX_FACES; i++)
        sprintf(many + strlen(many), "%s%d:0.5", i ? "," : "", i);
    struct options options;
    struct error err = ERROR_INIT;
    options_init(&options);
    assert_int_equal(options_set(&options, "weight", many, &err), OK);
    assert_float_equal(options_weight(&options, 0), 0.5, 0);
    assert_float_equal(options_weight(&options, OPTION_MAX_FACES - 1), 0.5, 0);
    assert_float_equal(options_weight(&options, OPTION_MAX_FACES), -1, 0);
    strcat(many, ",99:1");
    refuse("weight", many);
    assert_int_equal(options_set(&options, "weight", "0.75,3:auto,1:0", &err), OK); /* nothing is left of the others */
    static const double wanted[] = {0.75, 0, 0.75, -1, 0.75};
    for (int i = 0; i < 5; i++)
        assert_float_equal(options_weight(&options, i), wanted[i], 0);
    char longest[OPTION_TEXT_MAX] = "", text[OPTION_TEXT_MAX];
    strcpy(longest, "0.0123");
    for (int i = 0; i < OPTION_MAX_FACES; i++)
        sprintf(longest + strlen(longest), ",%d:0.0123", 99999 - i);
    assert_int_equal(options_set(&options, "weight", longest, &err), OK);
    options_text(&options, "weight", text, sizeof text);
    assert_string_equal(text, longest);
}

static void test_unknown(void **state)
{
    (void)state;
    struct options options;
    struct error err = ERROR_INIT;
    options_init(&options);
    assert_int_equal(options_set(&options, "up\nscale", "2", &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "up?scale"));
    assert_non_null(strstr(err.text, "bg_upsampler")); /* the list of those there are */
    assert_null(options_find("upscal"));
    assert_null(options_find("upscale2"));
    assert_null(options_find(""));
}

static void check_together(const char *const *pairs, const char *named)
{
    struct options options;
    struct error err = ERROR_INIT;
    options_init(&options);
    for (; *pairs; pairs += 2)
        if (options_set(&options, pairs[0], pairs[1], &err))
            fail_msg("%s", err.text);
    assert_int_equal(options_check(&options, &err), named ? ERROR_INVALID : OK);
    if (named)
        assert_non_null(strstr(err.text, named));
}

static void test_together(void **state)
{
    (void)state;
    check_together((const char *const[]){NULL}, NULL);
    check_together((const char *const[]){"ext", "jpg", "lossless", "true", NULL}, "cannot be without loss");
    check_together((const char *const[]){"faces", "1", "only_center_face", "true", NULL}, "faces");
    check_together((const char *const[]){"faces", "all", "only_center_face", "true", NULL}, NULL);
    check_together((const char *const[]){"aligned", "true", "version", "none", NULL}, "aligned");
    check_together((const char *const[]){"aligned", "true", "faces", "0", NULL}, "aligned");
    check_together((const char *const[]){"aligned", "true", NULL}, NULL);
}

/* A table's default is what options_init gives, and every row can be shown. */
static void test_defaults(void **state)
{
    (void)state;
    struct options options;
    char text[512];
    options_init(&options);
    for (int i = 0; i < option_row_count; i++) {
        options_text(&options, option_rows[i].name, text, sizeof text);
        assert_string_equal(text, option_rows[i].initial);
        assert_true(strlen(option_rows[i].help) > 0 && strlen(option_rows[i].allowed) > 0);
    }
}

/* Bounds for programs: the words of each kind, and no others. */
static void test_bounds(void **state)
{
    (void)state;
    static const struct {
        const char *name, *words;
    } wanted[] = {{"bg_tile", "0 auto "}, {"device", "auto "},           {"seed", "none "},
                  {"faces", "all none "}, {"repair_kinds", "all none "}, {"upscale", "auto "},
                  {"width", "auto "},     {"repair_strength", ""},       {"suffix", ""},
                  {"quality", ""}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        for (int row = 0; row < option_row_count; row++) {
            char words[200] = "";
            struct option_bounds bounds;
            if (strcmp(option_rows[row].name, wanted[i].name) != 0)
                continue;
            options_bounds(&option_rows[row], &bounds);
            for (int k = 0; bounds.words[k]; k++)
                snprintf(words + strlen(words), sizeof words - strlen(words), "%s ", bounds.words[k]);
            assert_string_equal(words, wanted[i].words);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),  cmocka_unit_test(test_integers), cmocka_unit_test(test_words),
        cmocka_unit_test(test_bounds),   cmocka_unit_test(test_names),    cmocka_unit_test(test_faces),
        cmocka_unit_test(test_kinds),    cmocka_unit_test(test_weights),  cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_together), cmocka_unit_test(test_defaults),
    };
    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
