/* What headers may hold, and what becomes of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "server/http/framing.h"
#include "server/http/header.h"

static void disposition(const char *name, const char *suffix, const char *extension, const char *want)
{
    char out[1024];
    header_disposition(name, suffix, extension, out, sizeof out);
    assert_string_equal(out, want);
}

static void test_disposition(void **state)
{
    (void)state;
    disposition("photo.jpeg", "", "jpg", "attachment; filename=\"photo.jpg\"");
    disposition("photo", "x2", "png", "attachment; filename=\"photo_x2.png\"");
    disposition(NULL, NULL, "png", "attachment; filename=\"restored.png\"");
    disposition("../../etc/passwd", "", "png", "attachment; filename=\"passwd.png\"");
    disposition("C:\\dir\\a b.tar.png", "", "png", "attachment; filename=\"a b.tar.png\"");
    disposition("..", "", "png", "attachment; filename=\"restored.png\"");
    disposition(".png", "", "png", "attachment; filename=\"png.png\"");
    disposition("a\"b\r\nSet-Cookie: x=1;\x7f.png", "", "png", "attachment; filename=\"abSet-Cookie x=1.png\"");
    disposition("\xc3\xa4 \xe2\x82\xac.jpg", "", "jpg",
                "attachment; filename=\"_ _.jpg\"; filename*=UTF-8''%C3%A4%20%E2%82%AC.jpg");
    disposition("a\xff\xc0\x80z\xed\xa0\x80.png", "", "png", "attachment; filename=\"az.png\""); /* not UTF-8 */
    disposition("x\xc2\x85y.png", "", "png", "attachment; filename=\"xy.png\"");                 /* a C1 control */
    char name[2000], out[1024];
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = 0;
    header_disposition(name, name, "png", out, sizeof out);
    assert_true(strlen(out) < 300);
    /* the longest stem beside the longest suffix: both are cut there, and the extension stays */
    char *stem = out + strlen("attachment; filename=\"");
    assert_int_equal(strspn(stem, "a"), 120);
    assert_int_equal(stem[120], '_');
    assert_int_equal(strspn(stem + 121, "a"), 127);
    assert_string_equal(stem + 121 + 127, ".png\"");
    for (size_t i = 0; i + 1 < sizeof name; i += 2)
        memcpy(name + i, "\xc3\xa4", 2);
    name[1998] = 0;
    memset(out, '!', sizeof out);
    header_disposition(name, name, "jpeg", out, sizeof out);
    assert_int_equal(strspn(stem, "_"), 60 + 1 + 63); /* characters of two bytes, and the one between */
    assert_int_equal(strncmp(stem + 124, ".jpeg\"; filename*=UTF-8''%C3%A4", 31), 0);
    assert_string_equal(out + strlen(out) - 17, "%C3%A4%C3%A4.jpeg");
    memset(name, 'a', sizeof name);
    name[127] = 0; /* as long as a suffix may be: nothing of it is lost */
    header_disposition("a", name, "png", out, sizeof out);
    assert_int_equal(strlen(out), strlen("attachment; filename=\"a_.png\"") + 127);
    char most[2000];
    memset(most, 'b', sizeof most - 1);
    most[sizeof most - 1] = 0;
    header_disposition(most, name, "jpeg", out, sizeof out); /* as long as both may be: the extension is there */
    assert_non_null(strstr(out, "b_aaa"));
    assert_string_equal(out + strlen(out) - 6, ".jpeg\"");
    for (size_t i = 0; i + 2 < sizeof most; i += 2) /* a long name leaves nothing to a short one after it */
        memcpy(most + i, "\xc3\xa4", 2);
    most[sizeof most - 2] = 0;
    header_disposition(most, name, "png", out, sizeof out);
    disposition("\xc3\xa4.jpg", "", "jpg", "attachment; filename=\"_.jpg\"; filename*=UTF-8''%C3%A4.jpg");
}

static void test_accept(void **state)
{
    (void)state;
    bool named;
    assert_int_equal(header_accept(NULL, "image/png", NULL), 1000);
    assert_int_equal(header_accept("", "image/png", NULL), 1000);
    assert_int_equal(header_accept("*/*", "image/png", &named), 1000);
    assert_false(named);
    assert_int_equal(header_accept("image/*;q=0.8", "image/png", &named), 800);
    assert_true(named);
    assert_int_equal(header_accept("text/html, image/PNG ; q=0.25, */*;q=0.1", "image/png", NULL), 250);
    assert_int_equal(header_accept("text/html, */*;q=0.1", "image/png", NULL), 100);
    assert_int_equal(header_accept("image/webp;q=.1", "image/webp", NULL), 100); /* no 0 */
    assert_int_equal(header_accept("image/webp;q=.,image/png", "image/webp", NULL), 1000);
    assert_int_equal(header_accept("image/jpeg", "image/png", NULL), 0);
    assert_int_equal(header_accept("image/*;q=0, */*", "image/png", NULL), 0);
    assert_int_equal(header_accept("application/json;version=1;q=0.5", "application/json", NULL), 500);
    assert_int_equal(header_accept("image/p", "image/png", NULL), 0);
    assert_int_equal(header_accept(",,, ;q", "image/png", NULL), 0);
    assert_int_equal(header_accept_coding(NULL, "gzip"), 0);
    assert_int_equal(header_accept_coding("br, GZIP", "gzip"), 1000);
    assert_int_equal(header_accept_coding("gzip;q=0.5", "gzip"), 500);
    assert_int_equal(header_accept_coding("gzip; q=0, *", "gzip"), 0);
    assert_int_equal(header_accept_coding("*;q=0.1, br, x-gzip", "gzip"), 100);
    assert_int_equal(header_accept_coding("br;q=1.0, x-gzip", "gzip"), 0);
}

static void test_tokens(void **state)
{
    (void)state;
    assert_true(header_is_request_id("a-Z_09"));
    assert_false(header_is_request_id(""));
    assert_false(header_is_request_id("a b"));
    assert_false(header_is_request_id("a\r\nb"));
    char id[66];
    memset(id, 'a', 65);
    id[65] = 0;
    assert_false(header_is_request_id(id));
    id[64] = 0;
    assert_true(header_is_request_id(id));
    assert_true(header_is_token("Content-Length", 14));
    assert_false(header_is_token("Content-Length ", 15));
    assert_false(header_is_token("", 0));
    assert_false(header_is_token("a\0b", 3));
    assert_true(header_is_length("0123", 4));
    assert_false(header_is_length("+1", 2));
    assert_false(header_is_length("1,1", 3));
    assert_false(header_is_length("", 0));
    assert_false(header_is_length("00000000000000000001", 20));
}

static bool is_host(const char *text)
{
    return header_is_host(text, strlen(text));
}

static void test_hosts(void **state)
{
    (void)state;
    static const char *const good[] = {"a",     "a.example:80", "127.0.0.1:8080", "[::1]", "[::ffff:1.2.3.4]:80",
                                       "a_b-c", "localhost:",   "a%20b"};
    static const char *const bad[] = {"",   ":80", "a/b", "a b", "a:b", "a:80:80", "user@a", "[::1",
                                      "[]", "[g]", "a\\", "a\"", "a\t", "[::1]a",  "a,b c",  "\xc3\xa4"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!is_host(good[i]))
            fail_msg("\"%s\" is a host", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (is_host(bad[i]))
            fail_msg("\"%s\" is no host", bad[i]);
    assert_true(header_is_host("a/path", 1));
    assert_false(header_is_host("a/path", 6));
    assert_true(header_is_value("a\tb \xff", 5));
    assert_true(header_is_value("", 0));
    assert_false(header_is_value("a\rb", 3));
    assert_false(header_is_value("a\0b", 3));
    assert_false(header_is_value("\x7f", 1));
    assert_true(header_is_target("/%20?a=\xff", 8));
    assert_false(header_is_target("/a b", 4));
    assert_false(header_is_target("/\t", 2));
    assert_false(header_is_target("", 0));
    char host[FRAMING_HOST_MAX];
    assert_string_equal(framing_path("HTTP://a:80/healthz", host), "/healthz");
    assert_string_equal(host, "a:80");
    assert_string_equal(framing_path("/healthz", host), "/healthz");
    assert_string_equal(host, "");
    assert_string_equal(framing_path("https://[::1]", host), "/");
    assert_string_equal(host, "[::1]");
    assert_null(framing_path("http:///healthz", host));
    assert_null(framing_path("http://user@a/healthz", host));
    assert_string_equal(framing_path("ftp://a/", host), "ftp://a/");
    assert_string_equal(host, "");
}

static void notes(const char *const *list, int count, const char *want)
{
    char out[HEADER_NOTES_MAX + 1];
    header_notes(list, count, out);
    assert_string_equal(out, want);
}

static void test_notes(void **state)
{
    (void)state;
    notes((const char *const[]){"one"}, 1, "[\"one\"]");
    notes((const char *const[]){"a \"b\" \\", "5 \xe2\x82\xac", "\xff\n"}, 3,
          "[\"a \\\"b\\\" \\\\\", \"5 \\u20AC\", \"?\\n\"]");
    /* sixteen of every length that a note may have, escaped and not */
    for (size_t size = 1; size < 200; size++) {
        char text[200], out[HEADER_NOTES_MAX + 1];
        const char *list[16];
        for (size_t at = 0; at < size; at++)
            text[at] = size % 2 ? 'x' : '\1';
        text[size] = 0;
        for (int i = 0; i < 16; i++)
            list[i] = text;
        memset(out, '!', sizeof out);
        header_notes(list, 16, out);
        size_t length = strlen(out), one = (size % 2 ? size : 6 * size) + 4; /* quotes, comma and blank */
        assert_true(length <= HEADER_NOTES_MAX);
        assert_int_equal(out[0], '[');
        assert_int_equal(out[length - 1], ']');
        const char *rest = strstr(out, "\"... and ");
        if (rest) { /* no more would have fitted */
            int left = 0;
            assert_int_equal(sscanf(rest, "\"... and %d more\"]", &left), 1);
            assert_int_equal((size_t)(rest - out - 1), (size_t)(16 - left) * one);
            assert_true((size_t)(rest - out) + one + 64 > HEADER_NOTES_MAX);
        } else {
            assert_int_equal(length, 16 * one);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_disposition), cmocka_unit_test(test_accept), cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_hosts),       cmocka_unit_test(test_notes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
