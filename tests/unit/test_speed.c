/* What is learned of a machine's speed, and how it is kept. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "server/job/speed.h"

static char folder[64], path[96];

static struct speed_table *open_table(const char *in)
{
    struct speed_table *table;
    struct error err = ERROR_INIT;
    assert_int_equal(speed_open(&table, in, &err), OK);
    return table;
}

static struct speed_term term_of(const char *name, double amount, double guess)
{
    struct speed_term term = {.amount = amount, .guess = guess};
    snprintf(term.name, sizeof term.name, "%s", name);
    return term;
}

static double rate_of(struct speed_table *table, const char *name)
{
    struct speed_term term = term_of(name, 1, -1);
    speed_read(table, &term, 1);
    assert_int_equal(term.known, term.rate >= 0);
    return term.rate;
}

static void learn(struct speed_table *table, const char *name, double amount, double seconds)
{
    struct speed_term term = term_of(name, amount, 1);
    speed_learn(table, &term, 1, seconds);
}

static void test_first(void **state)
{
    (void)state;
    struct speed_table *table = open_table(NULL);
    struct speed_term term = term_of("a", 4, 3);
    speed_read(table, &term, 1);
    assert_false(term.known);
    assert_true(term.rate == 3 && term.spread >= 2);
    speed_learn(table, &term, 1, 8);
    assert_true(term.known);
    assert_float_equal(term.rate, 2, 1e-9);
    assert_true(term.spread > 1 && term.spread < 2);
    speed_close(&table);
}

static void test_follows(void **state)
{
    (void)state;
    struct speed_table *table = open_table(NULL);
    for (int i = 0; i < 3; i++)
        learn(table, "a", 2, 2);
    assert_float_equal(rate_of(table, "a"), 1, 1e-9);
    learn(table, "a", 2, 1e6); /* one that was disturbed */
    assert_true(rate_of(table, "a") < 2);
    for (int i = 0; i < 20; i++)
        learn(table, "a", 2, 6);
    assert_float_equal(rate_of(table, "a"), 3, 0.05);
    learn(table, "a", 2, 0); /* nothing that was measured */
    learn(table, "a", 2, NAN);
    learn(table, "a", 0, 5);
    assert_float_equal(rate_of(table, "a"), 3, 0.05);
    speed_close(&table);
}

/* Of work of two kinds that were measured together. */
static void test_together(void **state)
{
    (void)state;
    struct speed_table *table = open_table(NULL);
    struct speed_term both[2] = {term_of("a", 1, 1), term_of("b", 1, 3)};
    speed_learn(table, both, 2, 8); /* shared as the guesses are */
    assert_float_equal(both[0].rate, 2, 1e-9);
    assert_float_equal(both[1].rate, 6, 1e-9);
    /* really a takes 5 and b 1: photos with more of the one or of the other tell */
    for (int i = 0; i < 60; i++) {
        struct speed_term work[2] = {term_of("a", 1 + i % 3, 1), term_of("b", 1 + (i + 1) % 4, 3)};
        speed_learn(table, work, 2, 5 * work[0].amount + work[1].amount);
    }
    assert_float_equal(rate_of(table, "a"), 5, 1.5);
    assert_float_equal(rate_of(table, "b"), 1, 0.8);
    struct speed_term more[2] = {term_of("a", 1, 1), term_of("c", 1, 1)};
    const double a = rate_of(table, "a");
    speed_learn(table, more, 2, 20); /* what is new takes what is left */
    assert_float_equal(rate_of(table, "a"), a, 1e-9);
    assert_float_equal(rate_of(table, "c"), 20 - a, 1e-9);
    speed_close(&table);
}

static void test_kept(void **state)
{
    (void)state;
    struct speed_table *table = open_table(folder);
    learn(table, "f0 face fp32 100 my model", 3, 6);
    speed_close(&table);
    table = open_table(folder);
    assert_float_equal(rate_of(table, "f0 face fp32 100 my model"), 2, 1e-4);
    assert_true(rate_of(table, "f0 face fp32 100") < 0);
    speed_close(&table);
}

static void write_file(const char *text, size_t size)
{
    struct error err = ERROR_INIT;
    assert_int_equal(file_write(path, text, size, &err), OK);
}

static void test_damaged(void **state)
{
    (void)state;
    static const char *const files[] = {"",
                                        "restored speed 1",
                                        "restored speed 2\n1 0.1 1 a\n",
                                        "restored speed 1\n1 0.1 1 a\nnonsense\n",
                                        "restored speed 1\n1 0.1 1 a\n1 0.1 1\n",
                                        "restored speed 1\nnan 0.1 1 a\n",
                                        "restored speed 1\n-1 0.1 1 a\n",
                                        "restored speed 1\n1e300 0.1 1 a\n",
                                        "restored speed 1\n1 10 1 a\n",
                                        "restored speed 1\n1 -0.1 1 a\n",
                                        "restored speed 1\n1 0.1 0 a\n"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        write_file(files[i], strlen(files[i]));
        struct speed_table *table = open_table(folder);
        assert_true(rate_of(table, "a") < 0);
        learn(table, "a", 1, 2);
        assert_float_equal(rate_of(table, "a"), 2, 1e-9);
        speed_close(&table);
    }
    char *large = malloc(1 << 20);
    memset(large, 'x', 1 << 20);
    memcpy(large, "restored speed 1\n", 17);
    write_file(large, 1 << 20);
    struct speed_table *table = open_table(folder);
    assert_true(rate_of(table, "a") < 0);
    speed_close(&table);
    free(large);
    write_file("restored speed 1\n1 0.1 1 a\n", 27);
    table = open_table(folder);
    assert_float_equal(rate_of(table, "a"), 1, 1e-9);
    speed_close(&table);
}

/* More kinds than there is room for: what is asked for stays. */
static void test_many(void **state)
{
    (void)state;
    struct speed_table *table = open_table(folder);
    char name[32];
    for (int i = 0; i < 600; i++) {
        snprintf(name, sizeof name, "kind %d", i);
        learn(table, name, 1, 1 + i);
        assert_float_equal(rate_of(table, "kind 0"), 1, 1e-9);
    }
    assert_float_equal(rate_of(table, "kind 599"), 600, 1e-9);
    assert_true(rate_of(table, "kind 100") < 0);
    speed_close(&table);
    table = open_table(folder);
    assert_float_equal(rate_of(table, "kind 599"), 600, 1e-3);
    speed_close(&table);
}

static int make_folder(void **state)
{
    (void)state;
    log_set_level(LOG_ERROR + 1);
    strcpy(folder, "/tmp/test_speed.XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/speed.txt", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first),
        cmocka_unit_test(test_follows),
        cmocka_unit_test(test_together),
        cmocka_unit_test_setup_teardown(test_kept, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_damaged, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_many, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
