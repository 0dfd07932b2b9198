/* What a request may carry, and what its headers become. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/http/framing.h"
#include "server/http/header.h"
#include "server/http/upload.h"
#include "server/http/utf8.h"

static struct upload *make(bool detect, size_t limit)
{
    struct upload *upload;
    struct error err = ERROR_INIT;
    assert_int_equal(upload_create(&upload, detect, limit, &err), OK);
    return upload;
}

static enum error_code field(struct upload *upload, const char *name, const char *value, struct error *err)
{
    error_clear(err);
    return upload_field(upload, name, value, strlen(value), err);
}

static enum error_code part(struct upload *upload, const char *name, uint64_t offset, const char *data,
                            struct error *err)
{
    error_clear(err);
    return upload_part(upload, name, NULL, NULL, data, offset, strlen(data), err);
}

static void says(const struct error *err, const char *text)
{
    if (!strstr(err->text, text))
        fail_msg("\"%s\" does not say \"%s\"", err->text, text);
}

static void test_fields(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct upload *upload = make(false, 1000);
    assert_int_equal(field(upload, "upscale", "1.5", &err), OK);
    assert_true(upload_options(upload)->upscale == 1.5);
    assert_int_equal(field(upload, "upscale", "2", &err), ERROR_INVALID);
    says(&err, "upscale: sent more than once");
    assert_int_equal(field(upload, "suffix", "", &err), OK);
    assert_int_equal(field(upload, "version", "", &err), ERROR_INVALID);
    says(&err, "version: the value is empty; allowed is");
    assert_int_equal(field(upload, "scale", "2", &err), ERROR_INVALID);
    says(&err, "scale: there is no such field; known are: version, upscale");
    assert_int_equal(field(upload, "ima\x1bge\xff", "2", &err), ERROR_INVALID);
    says(&err, "ima?ge?: there is no such field");
    assert_int_equal(field(upload, "async", "false", &err), OK);
    assert_int_equal(field(upload, "async", "false", &err), ERROR_INVALID);
    error_clear(&err);
    assert_int_equal(upload_field(upload, "weight", "0\0001", 3, &err), ERROR_INVALID);
    says(&err, "zero byte");
    assert_int_equal(field(upload, "bg_tile", "\xff\xfe", &err), ERROR_INVALID);
    says(&err, "bg_tile: \"??\" is not UTF-8; allowed is auto, 0, or 32 to 4096");
    upload_destroy(&upload);

    static const char *const bad[][2] = {
        {"upscale", "0"},   {"upscale", "nan"},   {"upscale", "9"},     {"upscale", "2x"},
        {"weight", "1.01"}, {"bg_tile", "31"},    {"aligned", "maybe"}, {"quality", "0"},
        {"async", "true"},  {"async", "perhaps"}, {"precision", "fp8"}, {"seed", "-1"},
        {"faces", "a"},     {"ext", "gif"},       {"suffix", "a/b"},    {"suffix", "a\\b"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        upload = make(false, 1000);
        if (field(upload, bad[i][0], bad[i][1], &err) != ERROR_INVALID)
            fail_msg("%s=%s was taken", bad[i][0], bad[i][1]);
        says(&err, bad[i][0]);
        says(&err, bad[i][1]);
        upload_destroy(&upload);
    }

    upload = make(true, 1000); /* a detection knows three fields */
    assert_int_equal(field(upload, "precision", "fp32", &err), OK);
    assert_int_equal(field(upload, "upscale", "2", &err), ERROR_INVALID);
    says(&err, "known are: detector, device, precision");
    assert_int_equal(field(upload, "async", "false", &err), ERROR_INVALID);
    upload_destroy(&upload);
}

static void test_form(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct upload *upload = make(false, 1000);
    size_t size;
    assert_int_equal(upload_part(upload, "image", "a.png", "binary", "", 0, 0, &err), OK);
    assert_int_equal(part(upload, "image", 0, "abc", &err), OK); /* the same part: libmicrohttpd may begin twice */
    assert_int_equal(part(upload, "image", 3, "def", &err), OK);
    assert_int_equal(part(upload, "upscale", 0, "", &err), OK);
    assert_int_equal(part(upload, "upscale", 0, "1", &err), OK);
    assert_int_equal(part(upload, "upscale", 1, ".5", &err), OK);
    assert_int_equal(part(upload, "suffix", 0, "", &err), OK);
    assert_int_equal(upload_finish(upload, &err), OK);
    assert_true(upload_options(upload)->upscale == 1.5);
    assert_string_equal(upload_file_name(upload), "a.png");
    uint8_t *bytes = upload_take(upload, &size);
    assert_int_equal(size, 6);
    assert_memory_equal(bytes, "abcdef", 6);
    free(bytes);
    upload_destroy(&upload);

    upload = make(false, 1000);
    assert_int_equal(part(upload, "image", 0, "abc", &err), OK);
    assert_int_equal(part(upload, "image", 0, "abc", &err), ERROR_INVALID);
    says(&err, "image: sent more than once");
    upload_destroy(&upload);

    upload = make(false, 1000);
    assert_int_equal(field(upload, "weight", "1", &err), OK); /* from the query, and then from the body */
    assert_int_equal(part(upload, "weight", 0, "1", &err), OK);
    assert_int_equal(part(upload, "image", 0, "abc", &err), ERROR_INVALID);
    says(&err, "weight: sent more than once");
    upload_destroy(&upload);

    upload = make(false, 1000);
    assert_int_equal(part(upload, "weight", 0, "0.5", &err), OK);
    assert_int_equal(upload_finish(upload, &err), ERROR_INVALID);
    says(&err, "image: there is no picture in the form");
    upload_destroy(&upload);

    upload = make(false, 1000);
    error_clear(&err);
    assert_int_equal(part(upload, "image", 0, "", &err), OK);
    assert_int_equal(upload_finish(upload, &err), ERROR_INVALID);
    says(&err, "image: the picture is empty");
    upload_destroy(&upload);

    upload = make(false, 5);
    assert_int_equal(part(upload, "image", 0, "abc", &err), OK);
    assert_int_equal(part(upload, "image", 3, "def", &err), ERROR_TOO_LARGE);
    upload_destroy(&upload);

    upload = make(false, 1000);
    assert_int_equal(part(upload, NULL, 0, "abc", &err), ERROR_INVALID);
    says(&err, "has no name");
    error_clear(&err);
    assert_int_equal(upload_part(upload, "image", "a.png", "base64", "abc", 0, 3, &err), ERROR_INVALID);
    says(&err, "Content-Transfer-Encoding");
    upload_destroy(&upload);

    char longer[UPLOAD_VALUE_MAX + 1];
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    upload = make(false, 1000);
    assert_int_equal(part(upload, "suffix", 0, longer, &err), ERROR_INVALID);
    says(&err, "suffix: the value is longer than 511 bytes");
    assert_int_equal(part(upload, longer, 0, "1", &err), ERROR_INVALID);
    says(&err, "there is no such field");
    assert_int_equal(part(upload, "scale", 0, longer, &err), ERROR_INVALID);
    says(&err, "scale: there is no such field; known are:");
    error_clear(&err);
    assert_int_equal(upload_part(upload, "file", "a.png", NULL, longer, 0, strlen(longer), &err), ERROR_INVALID);
    says(&err, "file: there is no such field; the picture goes in \"image\"");
    upload_destroy(&upload);
}

static void test_raw(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct upload *upload = make(false, 8);
    assert_int_equal(upload_begin(upload, NULL, "application/x-www-form-urlencoded", 6, &err), OK);
    assert_int_equal(upload_feed(upload, "a=b&c", 5, &err), OK);
    assert_int_equal(upload_finish(upload, &err), OK);
    assert_int_equal(upload_feed(upload, "1234", 4, &err), ERROR_TOO_LARGE);
    says(&err, "over the limit of 8 bytes");
    upload_destroy(&upload);

    upload = make(false, 8);
    error_clear(&err);
    assert_int_equal(upload_begin(upload, NULL, NULL, 0, &err), ERROR_INVALID);
    says(&err, "the body is empty");
    error_clear(&err);
    assert_int_equal(upload_begin(upload, NULL, "multipart/mixed; boundary=x", 5, &err), ERROR_UNSUPPORTED);
    upload_destroy(&upload);
    upload_destroy(&upload);
}

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
    name[127] = 0; /* as long as a suffix may be: nothing of it is lost */
    header_disposition("a", name, "png", out, sizeof out);
    assert_int_equal(strlen(out), strlen("attachment; filename=\"a_.png\"") + 127);
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
    assert_int_equal(header_accept("image/jpeg", "image/png", NULL), 0);
    assert_int_equal(header_accept("image/*;q=0, */*", "image/png", NULL), 0);
    assert_int_equal(header_accept("application/json;version=1;q=0.5", "application/json", NULL), 500);
    assert_int_equal(header_accept("image/p", "image/png", NULL), 0);
    assert_int_equal(header_accept(",,, ;q", "image/png", NULL), 0);
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
    assert_string_equal(framing_path("/healthz"), "/healthz");
    assert_string_equal(framing_path("HTTP://a:80/healthz"), "/healthz");
    assert_string_equal(framing_path("https://[::1]"), "/");
    assert_null(framing_path("http:///healthz"));
    assert_null(framing_path("http://user@a/healthz"));
    assert_string_equal(framing_path("ftp://a/"), "ftp://a/");
}

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
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields),      cmocka_unit_test(test_form),   cmocka_unit_test(test_raw),
        cmocka_unit_test(test_disposition), cmocka_unit_test(test_accept), cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_hosts),       cmocka_unit_test(test_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
