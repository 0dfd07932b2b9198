/* Who asks: names of the server, and pages of other sites. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/http/site.h"

#define LOOPBACK "127.0.0.1:8080"

static void check(const char *host, const char *allowed, const char *listen, bool want)
{
    bool is = site_host_is_ours(host, allowed, listen, false);
    if (is != want)
        fail_msg("Host %s with allowed_hosts \"%s\" on %s: %d", host, allowed, listen, is);
}

static void test_loopback(void **state)
{
    static const char *const ours[] = {"localhost",           "LOCALHOST:1", "localhost.", "a.localhost:8080",
                                       "127.0.0.1:8080",      "127.9.8.7",   "[::1]",      "[::1]:8080",
                                       "[::ffff:127.0.0.1]:1"};
    static const char *const others[] = {"evil.example",
                                         "localhost.evil.example",
                                         "evil.localhost.example",
                                         "127.0.0.1.evil.example",
                                         "xlocalhost",
                                         "192.168.1.5:8080",
                                         "[::2]:8080",
                                         "128.0.0.1",
                                         "restored",
                                         "restored.local",
                                         "localhost..",
                                         ".",
                                         "[::1",
                                         ":80"};
    (void)state;
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        check(ours[i], "", LOOPBACK, true);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        check(others[i], "", LOOPBACK, false);
    assert_true(site_host_is_ours(NULL, "", LOOPBACK, false));
    assert_true(site_host_is_ours("10.1.2.3:8080", "", LOOPBACK, true));
    assert_true(site_host_is_ours("[fd00::5]:8080", "", LOOPBACK, true));
    assert_false(site_host_is_ours("evil.example", "", LOOPBACK, true));
}

static void test_elsewhere(void **state)
{
    char own[256] = "";
    (void)state;
    for (int i = 0; i < 3; i++) {
        const char *listen = (const char *const[]){"0.0.0.0:8080", "[::]:8080", "photos.example.com:80"}[i];
        check("192.168.1.5:8080", "", listen, true);
        check("[fe80::1]:8080", "", listen, true);
        check("restored:8080", "", listen, true);
        check("nas.local", "", listen, true);
        check("photos.internal", "", listen, true);
        check("localhost", "", listen, true);
        check("evil.example", "", listen, false);
        check("local", "", listen, true);
        check("evil.locals", "", listen, false);
        check("1.2.3.4.evil.example", "", listen, false);
        check("photos.example.com", "", listen, i == 2);
    }
    assert_int_equal(gethostname(own, sizeof own - 1), 0);
    check(own, "", "0.0.0.0:80", true);
}

static void test_listed(void **state)
{
    (void)state;
    check("photos.example.com:443", "a.example, Photos.example.com", LOOPBACK, true);
    check("a.example", "a.example, photos.example.com ", LOOPBACK, true);
    check("xphotos.example.com", "a.example, photos.example.com", LOOPBACK, false);
    check("b.example", "*.example", LOOPBACK, true);
    check("example", "*.example", LOOPBACK, false);
    check("evilexample", "*.example", LOOPBACK, false);
    check("anything.example", "*", LOOPBACK, true);
    check("[fd00::5]:1", "[fd00::5]", LOOPBACK, true);
    check("192.168.1.5", "192.168.1.5", LOOPBACK, true);
    check("192.168.1.6", "192.168.1.5", LOOPBACK, false);
}

static void test_list(void **state)
{
    static const char *const good[] = {"", "*", "a", "a, b.example", "*.example.com", "[::1],127.0.0.1", " a , b ,"};
    static const char *const bad[] = {"http://a", "a:80", "a/b", "a b", "**", "*.", "*a", "[a]", "a,b:1", "\xc3\xa4"};
    struct error err = ERROR_INIT;
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(site_check_list(good[i], &err), OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        error_clear(&err);
        if (site_check_list(bad[i], &err) != ERROR_INVALID)
            fail_msg("\"%s\" was taken", bad[i]);
        assert_non_null(strstr(err.text, "allowed_hosts: \""));
    }
}

static bool foreign(const char *origin, const char *fetch_site, const char *host, const char *forwarded)
{
    return site_is_foreign(
        &(struct site_request){.origin = origin, .fetch_site = fetch_site, .host = host, .forwarded_host = forwarded});
}

static void test_pages(void **state)
{
    (void)state;
    assert_false(foreign(NULL, NULL, "localhost:8080", NULL)); /* curl */
    assert_false(foreign("http://localhost:8080", NULL, "localhost:8080", NULL));
    assert_false(foreign("http://LocalHost:8080", NULL, "localhost:8080", NULL));
    assert_true(foreign("http://localhost:8081", NULL, "localhost:8080", NULL));
    assert_true(foreign("http://localhost", NULL, "localhost:8080", NULL));
    assert_true(foreign("http://evil.example", NULL, "localhost:8080", NULL));
    assert_true(foreign("http://localhost:8080.evil.example", NULL, "localhost:8080", NULL));
    assert_true(foreign("file://", NULL, "localhost:8080", NULL));
    assert_true(foreign("", NULL, "localhost:8080", NULL));
    assert_true(foreign("http://", NULL, "", NULL));
    assert_true(foreign("http://a", NULL, NULL, NULL));
    assert_true(foreign("null", NULL, "null", NULL));
    assert_true(foreign("null", "same-origin", "localhost", NULL));
    /* behind a proxy, with or without the name passed on */
    assert_false(foreign("https://photos.example.com", NULL, "photos.example.com", NULL));
    assert_false(foreign("https://photos.example.com", NULL, "photos.example.com:443", NULL));
    assert_false(foreign("http://photos.example.com:80", NULL, "photos.example.com", NULL));
    assert_true(foreign("https://photos.example.com", NULL, "photos.example.com:80", NULL));
    assert_true(foreign("https://photos.example.com", NULL, "127.0.0.1:8080", NULL));
    assert_false(foreign("https://photos.example.com", NULL, "127.0.0.1:8080", "photos.example.com"));
    assert_false(foreign("https://photos.example.com", NULL, "127.0.0.1:8080", "photos.example.com, inner"));
    assert_true(foreign("https://evil.example", NULL, "127.0.0.1:8080", "photos.example.com"));
    assert_false(foreign("https://photos.example.com", "same-origin", "127.0.0.1:8080", NULL));
    /* what the browser says counts for more than the names */
    assert_true(foreign("http://localhost:8080", "same-site", "localhost:8080", NULL));
    assert_true(foreign(NULL, "cross-site", "localhost:8080", NULL));
    assert_true(foreign(NULL, "odd", "localhost:8080", NULL));
    assert_false(foreign(NULL, "none", "localhost:8080", NULL));
}

static void test_visits(void **state)
{
    (void)state;
    struct site_request visit = {
        .fetch_site = "cross-site", .fetch_mode = "navigate", .fetch_dest = "document", .host = "localhost"};
    assert_false(site_is_foreign_read(&visit));
    assert_true(site_is_foreign(&visit));
    visit.fetch_dest = "iframe";
    assert_true(site_is_foreign_read(&visit));
    visit.fetch_dest = "document";
    visit.fetch_mode = "no-cors";
    assert_true(site_is_foreign_read(&visit));
    visit.fetch_mode = visit.fetch_dest = NULL;
    assert_true(site_is_foreign_read(&visit));
    visit.fetch_site = "same-origin";
    assert_false(site_is_foreign_read(&visit));
}

static void test_local(void **state)
{
    (void)state;
    assert_true(site_is_local("127.0.0.1:80"));
    assert_true(site_is_local("[::1]:80"));
    assert_true(site_is_local("localhost:80"));
    assert_false(site_is_local("0.0.0.0:80"));
    assert_false(site_is_local("[::]:80"));
    assert_false(site_is_local("127.example.com:80"));
}

static void test_origins(void **state)
{
    static const char *const good[] = {"",
                                       "https://a.example",
                                       "http://nas:8080",
                                       "https://a.example, http://[::1]:81",
                                       "http://[fd00::1]",
                                       " https://a_b.example:8443 "};
    static const char *const bad[] = {"*",
                                      "null",
                                      "a.example",
                                      "https://",
                                      "https://a.example/",
                                      "https://A.example",
                                      "https://a.example:",
                                      "https://a.example:443",
                                      "http://a.example:80",
                                      "http://a.example:0",
                                      "http://a.example:123456",
                                      "http://a.example:8x",
                                      "http://[::1",
                                      "http://[::1]x",
                                      "http://user@a.example",
                                      "https://*.example",
                                      "ftp://a.example",
                                      "https://a.example, b"};
    static const char list[] = "https://a.example,http://nas:8080";
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (site_check_origins(good[i], NULL))
            fail_msg("%s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (!site_check_origins(bad[i], NULL))
            fail_msg("%s", bad[i]);
    assert_true(site_is_listed_origin("https://a.example", list) && site_is_listed_origin("http://nas:8080", list));
    assert_false(site_is_listed_origin(NULL, list) || site_is_listed_origin("", list) ||
                 site_is_listed_origin("https://a.example", "") || site_is_listed_origin("https://a.exampl", list) ||
                 site_is_listed_origin("https://a.example.evil", list) || site_is_listed_origin(list, list) ||
                 site_is_listed_origin("http://a.example", list) || site_is_listed_origin("http://nas", list));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_loopback), cmocka_unit_test(test_elsewhere),
                                       cmocka_unit_test(test_listed),   cmocka_unit_test(test_list),
                                       cmocka_unit_test(test_pages),    cmocka_unit_test(test_visits),
                                       cmocka_unit_test(test_origins),  cmocka_unit_test(test_local)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
