/* Tokens: what their file may say, who is who, and how much a client takes a minute. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/http/auth.h"
#include "server/http/rate.h"

#define FIRST "0123456789abcdef"
#define SECOND "fedcba9876543210"

static struct auth_table parse(const char *text)
{
    struct auth_table table;
    struct error err = ERROR_INIT;
    if (auth_parse(&table, text, strlen(text), "tokens", &err))
        fail_msg("%s: %s", text, err.text);
    return table;
}

static const struct auth_identity *find(const struct auth_table *table, const char *token)
{
    const struct auth_entry *entry = auth_table_find(table, token, strlen(token));
    return entry ? &entry->identity : NULL;
}

static void test_lines(void **state)
{
    (void)state;
    struct auth_table table = parse("# who\n\n  anna\t" FIRST " jobs=3 megapixels=12.5 # hers\r\n" SECOND
                                    "\nops aaaabbbbccccdddd admin\nanna " FIRST "new= megapixels=12.5 jobs=3\n"
                                    "-._~+/-._~+/abcd==");
    assert_int_equal(table.count, 5);
    const struct auth_identity *anna = find(&table, FIRST), *again = find(&table, FIRST "new=");
    assert_string_equal(anna->name, "anna");
    assert_false(anna->admin || anna->anonymous);
    assert_int_equal(anna->jobs, 3);
    assert_true(anna->megapixels > 12.49 && anna->megapixels < 12.51);
    assert_ptr_not_equal(anna, again); /* rotation: one name, two tokens */
    assert_string_equal(again->name, "anna");
    assert_string_equal(find(&table, SECOND)->name, "token1");
    assert_string_equal(find(&table, "-._~+/-._~+/abcd==")->name, "token2");
    assert_true(find(&table, "aaaabbbbccccdddd")->admin);
    assert_int_equal(find(&table, SECOND)->jobs, 0);
    auth_table_free(&table);
}

/* A token is found by all of its characters, wherever another one differs from it. */
static void test_find(void **state)
{
    (void)state;
    struct auth_table table = parse("a " FIRST "\nb " SECOND "\nc " FIRST SECOND "\n");
    assert_null(find(&table, ""));
    assert_null(find(&table, FIRST SECOND "0"));
    for (size_t i = 0; i < strlen(FIRST SECOND); i++) {
        char other[] = FIRST SECOND;
        other[i] = other[i] == 'x' ? 'y' : 'x';
        assert_null(find(&table, other));
        other[i] = 0;
        const struct auth_identity *begin = find(&table, other);
        assert_true(i == 16 ? begin && !strcmp(begin->name, "a") : !begin);
    }
    assert_string_equal(find(&table, FIRST SECOND)->name, "c");
    assert_null(auth_table_find(&table, FIRST "\0", 17));
    auth_table_free(&table);
}

static void test_bad_lines(void **state)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "tokens: there is no token"},
        {"# nothing\n", "tokens: there is no token"},
        {"anna " FIRST "\n\nshort\n", "tokens:3: the token has 5 characters; 16 to 256"},
        {"anna 0123456789abcde\n", "tokens:1: the token has 15 characters"},
        {"anna 0123456789abcde\xc3\xa4\n", "tokens:1: the token holds other characters"},
        {"anna ================\n", "tokens:1: the token holds other characters"},
        {"a=b " FIRST "\n", "tokens:1: a token's name has"},
        {"token7 " FIRST "\n", "tokens:1: token1, token2"},
        {"anna " FIRST " root\n", "tokens:1: word 3 is none of"},
        {"anna " FIRST " admin admin\n", "tokens:1: word 4 is none of"},
        {"anna " FIRST " jobs=0\n", "word 3"},
        {"anna " FIRST " jobs=-1\n", "word 3"},
        {"anna " FIRST " jobs=1.5\n", "word 3"},
        {"anna " FIRST " jobs=\n", "word 3"},
        {"anna " FIRST " jobs=1 jobs=1\n", "word 4"},
        {"anna " FIRST " megapixels=0.0\n", "word 3"},
        {"anna " FIRST " megapixels=1.2.3\n", "word 3"},
        {"anna " FIRST " megapixels=1e3\n", "word 3"},
        {"anna " FIRST " megapixels=inf\n", "word 3"},
        {"anna " FIRST " admin jobs=1 megapixels=1 more\n", "tokens:1: there are too many words"},
        {"anna " FIRST "\nbert " FIRST "\n", "tokens:2: the same token stands in line 1"},
        {FIRST "\n" FIRST "\n", "tokens:2: the same token stands in line 1"},
        {"anna " FIRST "\n#\nanna " SECOND " admin\n", "tokens:3: this name has other rights or limits in line 1"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct auth_table table;
        struct error err = ERROR_INIT;
        assert_int_equal(auth_parse(&table, bad[i].text, strlen(bad[i].text), "tokens", &err), ERROR_INVALID);
        if (!strstr(err.text, bad[i].says) || strstr(err.text, FIRST) || strstr(err.text, "short"))
            fail_msg("%s: %s", bad[i].text, err.text);
        assert_null(table.entries);
    }
    struct auth_table table;
    struct error err = ERROR_INIT;
    assert_int_equal(auth_parse(&table, "anna " FIRST "\0x", 23, "tokens", &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "zero byte"));
}

static void write_file(const char *path, const char *text, mode_t mode)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static void test_file(void **state)
{
    char path[] = "/tmp/restored-auth-XXXXXX";
    struct auth *auth;
    struct error err = ERROR_INIT;
    struct auth_identity who;
    (void)state;
    close(mkstemp(path));
    write_file(path, "anna " FIRST "\n", 0604);
    assert_int_equal(auth_create(&auth, path, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "chmod o="));
    assert_null(auth);
    write_file(path, "anna " FIRST "\n", 0640);
    assert_int_equal(auth_create(&auth, path, NULL), OK);
    assert_int_equal(auth_count(auth), 1);
    assert_int_equal(auth_check(auth, NULL, &who), AUTH_MISSING);
    assert_int_equal(auth_check(auth, "Basic " FIRST, &who), AUTH_MISSING);
    assert_int_equal(auth_check(auth, "Bearer", &who), AUTH_MISSING);
    assert_int_equal(auth_check(auth, "Bearer ", &who), AUTH_WRONG);
    assert_int_equal(auth_check(auth, "Bearer " SECOND, &who), AUTH_WRONG);
    assert_int_equal(auth_check(auth, "bearer   " FIRST " ", &who), AUTH_GOOD);
    assert_string_equal(who.name, "anna");
    write_file(path, "anna\n", 0640); /* what is wrong changes nothing */
    assert_int_equal(auth_reload(auth, NULL), ERROR_INVALID);
    assert_int_equal(auth_check(auth, "Bearer " FIRST, &who), AUTH_GOOD);
    write_file(path, "bert " SECOND " admin\n", 0600);
    assert_int_equal(auth_reload(auth, NULL), OK);
    assert_string_equal(who.name, "anna"); /* a copy */
    assert_int_equal(auth_check(auth, "Bearer " FIRST, &who), AUTH_WRONG);
    assert_int_equal(auth_check(auth, "Bearer " SECOND, &who), AUTH_GOOD);
    assert_true(who.admin);
    auth_destroy(&auth);
    unlink(path);
    assert_int_equal(auth_create(&auth, path, NULL), ERROR_NOT_FOUND);
    assert_int_equal(auth_create(&auth, "/tmp", NULL), ERROR_IO);
    assert_int_equal(auth_create(&auth, "", NULL), OK);
    assert_int_equal(auth_check(auth, NULL, &who), AUTH_GOOD);
    assert_true(who.anonymous && who.admin && !*who.name);
    auth_destroy(&auth);
}

#define SECOND_NS INT64_C(1000000000)

static void test_rate(void **state)
{
    struct rate *rate;
    int64_t now = 5 * SECOND_NS;
    (void)state;
    assert_int_equal(rate_create(&rate, NULL), OK);
    for (int i = 0; i < 10; i++)
        assert_true(rate_take(rate, "a", 1, 10, now) <= 0);
    const double wait = rate_take(rate, "a", 1, 10, now);
    assert_true(wait > 5.9 && wait < 6.1); /* one of ten a minute */
    assert_true(rate_take(rate, "b", 1, 10, now) <= 0);
    assert_true(rate_take(rate, "a", 1, 10, now + 5 * SECOND_NS) > 0);
    assert_true(rate_take(rate, "a", 1, 10, now + 7 * SECOND_NS) <= 0);
    /* more than it holds: from a full bucket, which is in debt then */
    assert_true(rate_take(rate, "a", 25, 10, now + 8 * SECOND_NS) > 0);
    now += 600 * SECOND_NS;
    assert_true(rate_take(rate, "a", 25, 10, now) <= 0);
    assert_true(rate_take(rate, "a", 0, 10, now + 80 * SECOND_NS) > 0);
    assert_true(rate_take(rate, "a", 0, 10, now + 91 * SECOND_NS) <= 0);
    assert_true(rate_take(rate, "a", 0.5, 10, now + 91 * SECOND_NS) > 0);
    /* many clients: whoever takes much is not forgotten for those that take little */
    for (int i = 0; i < 20000; i++) {
        char key[32];
        snprintf(key, sizeof key, "client %d", i);
        rate_take(rate, key, 1, 10, now + 91 * SECOND_NS);
    }
    assert_true(rate_take(rate, "a", 5, 10, now + 91 * SECOND_NS) > 0);
    rate_destroy(&rate);
}

static void test_rate_key(void **state)
{
    char key[RATE_KEY_MAX], other[RATE_KEY_MAX];
    (void)state;
    assert_false(rate_key("127.0.0.1", key) || rate_key("127.9.9.9", key) || rate_key("::1", key) || rate_key("", key));
    assert_true(rate_key("198.51.100.7", key));
    assert_string_equal(key, "198.51.100.7");
    assert_true(rate_key("2001:db8:1:2:3::4", key) && rate_key("2001:db8:1:2:ffff::9", other));
    assert_string_equal(key, other);
    assert_true(rate_key("2001:db8:1:3::4", other));
    assert_string_not_equal(key, other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines), cmocka_unit_test(test_find), cmocka_unit_test(test_bad_lines),
        cmocka_unit_test(test_file),  cmocka_unit_test(test_rate), cmocka_unit_test(test_rate_key),
    };
    return cmocka_run_group_tests_name("auth", tests, NULL, NULL);
}
