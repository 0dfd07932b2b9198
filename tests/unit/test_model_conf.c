/* What config/models.conf and a user's own say of models. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/pipeline/model_conf.h"
#include "server/pipeline/model_store.h"

static void test_conf(void **state)
{
    (void)state;
    struct model_section *sections;
    size_t count;
    struct error err = ERROR_INIT;
    if (model_conf_load(&sections, &count, &err))
        fail_msg("%s", err.text);
    int defaults = 0;
    for (size_t i = 0; i < count; i++) {
        defaults += sections[i].is_default;
        assert_true(sections[i].file[0] && sections[i].licence[0]);
        assert_true(strncmp(sections[i].file, sections[i].name, strlen(sections[i].name)) == 0);
        /* the other mobilenet weights: their settings, bound to their bytes */
        if (strcmp(sections[i].name, "detection_mobilenet0.25_biubug6") == 0) {
            assert_true(sections[i].has_settings && sections[i].settings.has_slope && sections[i].bytes);
            assert_true(sections[i].settings.slope == 0 && sections[i].settings.min_sizes[0][0] == 10 &&
                        sections[i].settings.min_sizes[2][1] == 256);
        }
    }
    assert_int_equal(defaults, ROLE_UPSCALER + 1); /* there is no official detector of damage */
    free(sections);

    static const char good[] = "# c\n\n[a]\nfile = a.pth\nalias = x  y\nslope = 0.25\nactivation = leakyrelu\n"
                               "noise_level = 40\njpeg_quality = 60";
    assert_int_equal(model_conf_parse(good, sizeof good - 1, &sections, &count, &err), OK);
    assert_int_equal(count, 1);
    assert_true(model_conf_called(sections, "a") && model_conf_called(sections, "x") &&
                model_conf_called(sections, "y"));
    assert_false(model_conf_called(sections, "") || model_conf_called(sections, "x  y"));
    assert_true(sections->settings.slope == 0.25f && sections->settings.activation == ACTIVATION_LEAKY);
    assert_true(sections->settings.has_noise_level && sections->settings.noise_level == 40 &&
                sections->settings.has_jpeg_quality && sections->settings.jpeg_quality == 60);
    free(sections);
    static const char *const bad[] = {"file = a\n",
                                      "[a\n",
                                      "[]\n",
                                      "[a]\nrole = eye\n",
                                      "[a]\nslope = x\n",
                                      "[a]\nbytes = \n",
                                      "[a]\nwho = b\n",
                                      "[a]\nmin_sizes = 1 2 3\n",
                                      "[a]\nsha256 = 12\n",
                                      "[a]\nslope = nan\n",
                                      "[a]\nnoise_level = 256\n",
                                      "[a]\njpeg_quality = 101\n",
                                      "[a]\njpeg_quality = -1\n",
                                      "[a]\nfile\n"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        error_clear(&err);
        assert_int_equal(model_conf_parse(bad[i], strlen(bad[i]), &sections, &count, &err), ERROR_INVALID);
        assert_null(sections);
        assert_non_null(strstr(err.text, "line"));
    }
}

/* What is written of settings is read as the same. */
static void test_lines(void **state)
{
    (void)state;
    char names[512];
    struct model_section *own;
    size_t count;
    static const char conf[] = "[x]\nslope = 0.25\nmin_sizes = 1 2 3 4 5 6.5\nactivation = leakyrelu:0.3\n"
                               "noise_level = 7\njpeg_quality = 33\n";
    assert_int_equal(model_conf_own(conf, sizeof conf - 1, &own, &count, NULL), OK);
    const struct model_settings settings = own->settings;
    char *lines = model_conf_lines(&settings);
    free(own);
    snprintf(names, sizeof names, "[x]\n%s", lines);
    free(lines);
    assert_int_equal(model_conf_own(names, strlen(names), &own, &count, NULL), OK);
    assert_true(model_conf_same(&own->settings, &settings));
    free(own);
}

/* Of a user's models.conf, sections with lines that are not understood are left out, and no others. */
static void test_own(void **state)
{
    (void)state;
    static const struct {
        const char *text, *names, *lines; /* names: of what has a licence, as that is called */
    } rows[] = {
        {"[a]\nlicence = A\n[b]\nwho = b\nlicence = B\n[c]\nlicence = C\n", "ABC", "line 4: "},
        {"who = b\nlicence = B\n[a]\nlicence = A\n", "A", "line 1: "},
        {"[a]\nlicence = A\n[b\nlicence = B\nwho = b\n[c]\n", "Ac", "line 3: "},
        {"[a]\nlicence = A\n\xff[b]\nlicence = B\n", "A", "line 3: "},
        {"[a]\nwho = b\n[b]\nwho = b\n[c]\nlicence = C", "abC", "; nor line 4"},
        {"[a]\nlicence = A\n[x%0600d]\nlicence = B\n[c]", "Ac", "line 3: "},
        {"[a]\nlicence = A\n[x%064d]\nlicence = B\n[c]", "Ac", "line 3: "},
        {"[a]\nlicence = A\nsource = %0600d\n[c]", "Ac", "line 3: "},
        {"[a]\nlicence = A\n[c]\n[a]\nwho = b\n[b]\nLicense = B\n", "AcB", "line 5: "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[1024], names[8] = "";
        struct model_section *own;
        size_t count;
        struct error err = ERROR_INIT;
        const char *zeros = strchr(rows[i].text, '%');
        if (zeros)
            snprintf(text, sizeof text, "%.*s%0*d%s", (int)(zeros - rows[i].text), rows[i].text, atoi(zeros + 2), 0,
                     strchr(zeros, 'd') + 1);
        else
            snprintf(text, sizeof text, "%s", rows[i].text);
        assert_int_equal(model_conf_own(text, strlen(text), &own, &count, &err), ERROR_INVALID);
        for (size_t k = 0; k < count && k < sizeof names - 1; k++)
            names[k] = *own[k].licence ? *own[k].licence : *own[k].name;
        assert_string_equal(names, rows[i].names);
        assert_non_null(strstr(err.text, rows[i].lines));
        free(own);
    }
    /* What some editors begin a file with; the English of others; one name twice; half a number is none. */
    static const char good[] = "\xef\xbb\xbf[a]\nlicense = A\n[b]\n[a]\nnoise_level = 3\n",
                      half[] = "[a]\nslope = x\nlicence = A\n";
    struct model_section *own;
    size_t count;
    struct error err = ERROR_INIT;
    assert_int_equal(model_conf_own(good, sizeof good - 1, &own, &count, &err), OK);
    assert_int_equal(count, 2);
    assert_string_equal(own[0].licence, "A");
    assert_true(own[0].settings.has_noise_level);
    free(own);
    assert_int_equal(model_conf_own(half, sizeof half - 1, &own, &count, &err), ERROR_INVALID);
    assert_true(!own[0].settings.has_slope && !own[0].has_settings && !strcmp(own[0].licence, "A"));
    free(own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conf),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
