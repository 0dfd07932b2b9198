/* What the routes of other programs' clients are made of: sizes and passes of A1111, base64 in both directions, files
 * in JSON, whose a path is, tokens in HTTP Basic. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <nettle/base64.h>

#include "server/compat/a1111.h"
#include "server/compat/compat.h"
#include "server/compat/hooks.h"
#include "server/compat/intake.h"
#include "server/compat/reach.h"
#include "server/http/auth.h"

/* From modules/upscaler.py, by hand: int(side * by // 8 * 8), and the runs of its loop. */
static void test_sizes_and_runs(void **state)
{
    static const struct {
        struct a1111_size size;
        int width, height, scale, wanted_width, wanted_height, runs; /* runs 0: refused */
    } rows[] = {
        {{false, 2, 0, 0}, 100, 51, 4, 200, 96, 1},      {{false, 4, 0, 0}, 100, 51, 4, 400, 200, 1},
        {{false, 4, 0, 0}, 100, 51, 2, 400, 200, 2},     {{false, 8, 0, 0}, 100, 51, 2, 800, 408, 3},
        {{false, 40, 0, 0}, 100, 51, 2, 4000, 2040, 3},  {{false, 3, 0, 0}, 100, 51, 1, 296, 152, 1},
        {{false, 0.5, 0, 0}, 100, 51, 4, 48, 24, 1},     {{false, 0.1, 0, 0}, 100, 51, 4, 0, 0, 0},
        {{true, 0, 300, 300}, 100, 50, 4, 600, 296, 2},  {{true, 0, 512, 512}, 1024, 768, 4, 680, 512, 1},
        {{false, 1000, 0, 0}, 65000, 65000, 4, 0, 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int width = 0, height = 0, runs = 0;
        const bool fine =
            a1111_plan(&rows[i].size, rows[i].width, rows[i].height, rows[i].scale, &width, &height, &runs);
        assert_int_equal(fine, rows[i].runs > 0);
        if (!fine)
            continue;
        assert_int_equal(width, rows[i].wanted_width);
        assert_int_equal(height, rows[i].wanted_height);
        assert_int_equal(runs, rows[i].runs);
    }
}

static void test_base64_from_any_place(void **state)
{
    uint8_t bytes[23];
    char whole[BASE64_ENCODE_RAW_LENGTH(sizeof bytes)], out[64];
    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 37 + 5);
    for (size_t size = 0; size <= sizeof bytes; size++) {
        const size_t all = BASE64_ENCODE_RAW_LENGTH(size);
        base64_encode_raw(whole, size, bytes);
        for (size_t at = 0; at <= all; at++)
            for (size_t most = 1; most <= all + 1; most++) {
                const size_t got = compat_encode(bytes, size, at, out, most);
                assert_int_equal(got, most < all - at ? most : all - at);
                assert_memory_equal(out, whole + at, got);
            }
    }
}

/* The file of `key` in a JSON body that comes a byte at a time; its size, or the error's code negated. */
static long read_file(const char *body, const char *key, uint8_t *out, size_t room)
{
    struct intake *intake;
    struct error err = ERROR_INIT;
    json_t *json = NULL;
    struct body file = {0};
    assert_int_equal(intake_create(&intake, NULL, 1 << 20, &err), OK);
    enum error_code code = OK;
    for (const char *at = body; *at && !code; at++)
        code = intake_feed(intake, at, 1, &err);
    if (!code)
        code = intake_finish(intake, &json, &err);
    if (!code)
        code = intake_file(intake, json_object_get(json, key), key, &file, &err);
    const long size = code ? -(long)code : (long)file.size;
    assert_true(file.size <= room);
    if (file.size)
        memcpy(out, file.data, file.size);
    body_clear(&file);
    json_decref(json);
    intake_destroy(&intake);
    return size;
}

static void test_files_in_json(void **state)
{
    enum { BYTES = 600 };
    uint8_t bytes[BYTES], out[BYTES];
    char base64[BASE64_ENCODE_RAW_LENGTH(BYTES) + 1] = "", escaped[2 * sizeof base64] = "", body[3 * sizeof base64];
    (void)state;
    for (size_t i = 0; i < BYTES; i++)
        bytes[i] = (uint8_t)(i * i + 255 - i % 3);
    for (size_t size = 1; size <= BYTES; size += size < 380 ? 53 : 1) { /* some are too long for a text */
        memset(base64, 0, sizeof base64);
        base64_encode_raw(base64, size, bytes);
        char *to = escaped;
        for (const char *at = base64; *at; at++) {
            if (*at == '/')
                *to++ = '\\';
            *to++ = *at;
        }
        *to = 0;
        static const char *const before[] = {"", "data:image/png;base64,", "DATA:;x=y;Base64,", "data:a\\/b;base64,"};
        for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
            snprintf(body, sizeof body, " {\"a\": [1, {}], \"image\" : \"%s%s\"}\n", before[i], i ? escaped : base64);
            if (i == 2) /* too short a beginning for a type is fine */
                memset(out, 0, sizeof out);
            assert_int_equal(read_file(body, "image", out, sizeof out), (long)size);
            assert_memory_equal(out, bytes, size);
        }
    }
    assert_int_equal(read_file("{\"image\": \"data:image/png,AAAA\"}", "image", out, sizeof out), -ERROR_INVALID);
    assert_int_equal(read_file("{\"image\": \"AAA\"}", "image", out, sizeof out), -ERROR_INVALID);
    assert_int_equal(read_file("{\"image\": \"https://example.com/a.png\"}", "image", out, sizeof out), -ERROR_INVALID);
    assert_int_equal(read_file("{\"image\": \"AAAA\", \"image\": 1}", "image", out, sizeof out), -ERROR_INVALID);
    assert_int_equal(read_file("{\"image\": \"AAAA\"", "image", out, sizeof out), -ERROR_INVALID);
    assert_int_equal(read_file("{\"image\": [1]}", "image", out, sizeof out), -ERROR_INVALID);
}

static void test_limits_of_json(void **state)
{
    struct error err = ERROR_INIT;
    struct intake *intake;
    char text[4096];
    (void)state;
    memset(text, '1', sizeof text);
    assert_int_equal(intake_create(&intake, NULL, 1 << 20, &err), OK);
    enum error_code code = intake_feed(intake, "[", 1, &err);
    for (int i = 0; i < 32 && !code; i++)
        code = intake_feed(intake, text, sizeof text, &err);
    assert_int_equal(code, ERROR_TOO_LARGE);
    intake_destroy(&intake);
    error_clear(&err);
    assert_int_equal(intake_create(&intake, NULL, 8, &err), OK);
    assert_int_equal(intake_feed(intake, text, 9, &err), ERROR_TOO_LARGE);
    intake_destroy(&intake);
    error_clear(&err);
    assert_int_equal(intake_create(&intake, NULL, 1 << 20, &err), OK);
    code = OK;
    for (int i = 0; i < INTAKE_DEPTH; i++)
        assert_int_equal(intake_feed(intake, "[", 1, &err), OK);
    assert_int_equal(intake_feed(intake, "[", 1, &err), ERROR_INVALID);
    intake_destroy(&intake);
}

static void test_whose_path_it_is(void **state)
{
    struct error err = ERROR_INIT;
    (void)state;
    assert_ptr_equal(dialect_of("/v1/images/edits", "a1111, openai"), &openai_dialect);
    assert_ptr_equal(dialect_of("/v1/images/other", "openai"), &openai_dialect);
    assert_null(dialect_of("/v1/images/edits", "a1111"));
    assert_null(dialect_of("/v1/images/edits", "none"));
    assert_null(dialect_of("/v1/restore", "openai,a1111"));
    assert_ptr_equal(dialect_of("/sdapi/v1/x", "openai,a1111"), &a1111_dialect);
    assert_int_equal(dialect_check("openai", &err), OK);
    assert_int_equal(dialect_check("none", &err), OK);
    assert_int_equal(dialect_check("openai,none", &err), ERROR_INVALID);
    assert_int_equal(dialect_check("", &err), ERROR_INVALID);
    assert_int_equal(dialect_check("open", &err), ERROR_INVALID);
}

static void test_public_addresses(void **state)
{
    static const struct {
        const char *address, *listed;
        bool may;
    } rows[] = {
        {"93.184.216.34", "", true},
        {"127.0.0.1", "", false},
        {"10.1.2.3", "", false},
        {"172.31.255.255", "", false},
        {"172.32.0.1", "", true},
        {"192.168.1.1", "", false},
        {"169.254.169.254", "", false},
        {"100.64.0.1", "", false},
        {"0.0.0.0", "", false},
        {"224.0.0.1", "", false},
        {"255.255.255.255", "", false},
        {"2606:4700::1111", "", true},
        {"::1", "", false},
        {"fd00::1", "", false},
        {"fe80::1", "", false},
        {"::ffff:127.0.0.1", "", false},
        {"64:ff9b::7f00:1", "", false},
        {"2002:7f00:1::", "", false},
        {"::127.0.0.1", "", false},
        {"3fff:0fff::1", "", false},
        {"5f00::1", "", false},
        {"10.1.2.3", "10.0.0.0/8, ::1", true},
        {"10.1.2.3", "10.2.0.0/16", false},
        {"::1", "10.0.0.0/8, ::1", true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sockaddr_in four = {.sin_family = AF_INET};
        struct sockaddr_in6 six = {.sin6_family = AF_INET6};
        const bool old = inet_pton(AF_INET, rows[i].address, &four.sin_addr) == 1;
        assert_true(old || inet_pton(AF_INET6, rows[i].address, &six.sin6_addr) == 1);
        if (reach_may_connect(old ? (struct sockaddr *)&four : (struct sockaddr *)&six, rows[i].listed) != rows[i].may)
            fail_msg("%s with \"%s\"", rows[i].address, rows[i].listed);
    }
}

static void test_tokens_in_basic(void **state)
{
    char out[AUTH_TOKEN_MAX + 16];
    (void)state;
    assert_true(auth_from_basic("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", out)); /* RFC 7617, 2 */
    assert_string_equal(out, "Bearer open sesame");
    assert_false(auth_from_basic("Basic QWxhZGRpbg==", out)); /* no colon */
    assert_false(auth_from_basic("Basic QWx*", out));
    assert_false(auth_from_basic("Bearer QWxhZGRpbjpvcGVuIHNlc2FtZQ==", out));
    assert_false(auth_from_basic(NULL, out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_and_runs),   cmocka_unit_test(test_base64_from_any_place),
        cmocka_unit_test(test_files_in_json),    cmocka_unit_test(test_limits_of_json),
        cmocka_unit_test(test_whose_path_it_is), cmocka_unit_test(test_tokens_in_basic),
        cmocka_unit_test(test_public_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
