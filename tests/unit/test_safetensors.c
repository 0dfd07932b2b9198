/* Hostile safetensors files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/common/checkpoint_writer.h"
#include "tests/common/refuse.h"

static const float numbers[64] = {1, 2, 3};

static struct checkpoint_buffer with_header(const char *json, size_t data_bytes)
{
    struct checkpoint_buffer file = {0};
    checkpoint_put_le(&file, strlen(json), 8);
    checkpoint_put(&file, json, strlen(json));
    checkpoint_put(&file, numbers, data_bytes);
    return file;
}

static void check_file(struct checkpoint_buffer file, enum error_code code, const char *entry, const char *reason)
{
    bool refused = refuse(&file, code, entry, reason);
    checkpoint_free(&file);
    assert_true(refused);
}

static void check(const char *json, size_t data_bytes, enum error_code code, const char *entry, const char *reason)
{
    check_file(with_header(json, data_bytes), code, entry, reason);
}

static void accepts_what_is_in_order(void **state)
{
    static const char *const headers[] = {
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}",
        "{\"b\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[16,24]},"
        "\"a\":{\"dtype\":\"BF16\",\"shape\":[8],\"data_offsets\":[0,16]}}    ",
        "{\"e\":{\"dtype\":\"F64\",\"shape\":[0,7],\"data_offsets\":[8,8]},"
        "\"a\":{\"dtype\":\"BOOL\",\"shape\":[8],\"data_offsets\":[0,8]},"
        "\"b\":{\"dtype\":\"I32\",\"shape\":[4,1],\"data_offsets\":[8,24],\"note\":null}}",
        "{\"a\":{\"dtype\":\"I16\",\"shape\":[12],\"data_offsets\":[0,24]},"
        "\"s\":{\"dtype\":\"I8\",\"shape\":[0],\"data_offsets\":[24,24]}}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        struct checkpoint_buffer file = with_header(headers[i], 24);
        assert_true(refuse_nothing(&file));
        checkpoint_free(&file);
    }
    struct checkpoint_buffer file = with_header("{}", 0);
    assert_true(refuse_nothing(&file));
    checkpoint_free(&file);
}

static void refuses_every_beginning(void **state)
{
    (void)state;
    const struct checkpoint_tensor tensors[] = {{"a", 2, {2, 3}, numbers}, {"b", 1, {40}, numbers}};
    struct checkpoint_buffer file = {0};
    checkpoint_safetensors(&file, tensors, 2, CHECKPOINT_F32);
    assert_true(refuse_beginnings(&file, 9));
    checkpoint_free(&file);
}

static void refuses_bad_headers(void **state)
{
    (void)state;
    struct checkpoint_buffer file = with_header("{}", 0);
    file.data[7] = 0xff; /* a length of 2^63 and more */
    check_file(file, ERROR_CORRUPT, "header", "outside the file");
    file = with_header("{}", 0);
    file.data[0] = 3;
    check_file(file, ERROR_CORRUPT, "header", "outside the file");
    file = with_header("{}", 8);
    file.data[0] = 4;
    check_file(file, ERROR_CORRUPT, "header", "not valid JSON");
    check("{\"a\":", 0, ERROR_CORRUPT, "header", "not valid JSON");
    check("{}x", 0, ERROR_CORRUPT, "header", "not valid JSON");
    check("{\"a\":1,\"a\":2}", 0, ERROR_CORRUPT, "header", "duplicate");
    check("{\"a\\u0000b\":1}", 0, ERROR_CORRUPT, "header", "not valid JSON");
    check("{\"\xff\":1}", 0, ERROR_CORRUPT, "header", "not valid JSON");
    check("{\"__metadata__\":[]}", 0, ERROR_CORRUPT, "__metadata__", "not an object");
    check("{\"__metadata__\":{\"k\":1}}", 0, ERROR_CORRUPT, "__metadata__", "not text");

    const size_t deep = 1000000;
    struct checkpoint_buffer json = {0};
    checkpoint_put(&json, "{\"a\":", 5);
    for (size_t i = 0; i < deep; i++)
        checkpoint_put(&json, "[", 1);
    checkpoint_put(&json, "", 1);
    check((const char *)json.data, 0, ERROR_CORRUPT, "header", "not valid JSON: maximum parsing depth");
    json.size = 0;
    checkpoint_put(&json, "{", 1);
    for (size_t i = 0; i < ((size_t)1 << 20); i++)
        checkpoint_put(&json, " ", 1);
    checkpoint_put(&json, "}", 2);
    check((const char *)json.data, 0, ERROR_TOO_LARGE, "header", "1048578 bytes, at most 1048576");
    checkpoint_free(&json);
}

static void refuses_bad_entries(void **state)
{
    (void)state;
    const char *needs = "needs dtype, shape and two data_offsets";
    check("{\"a\":1}", 0, ERROR_CORRUPT, "a", needs);
    check("{\"a\":{}}", 0, ERROR_CORRUPT, "a", needs);
    check("{\"a\":{\"dtype\":4,\"shape\":[],\"data_offsets\":[0,4]}}", 4, ERROR_CORRUPT, "a", needs);
    check("{\"a\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", 4, ERROR_CORRUPT, "a", needs);
    check("{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[4]}}", 4, ERROR_CORRUPT, "a", needs);
    check("{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4,4]}}", 4, ERROR_CORRUPT, "a", needs);
    check("{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[-4,0]}}", 4, ERROR_CORRUPT, "a", needs);
    check("{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4.0]}}", 4, ERROR_CORRUPT, "a", needs);
    check("{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, ERROR_UNSUPPORTED, "a",
          "dtype F8_E4M3");
    check("{\"a\":{\"dtype\":\"U64\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8, ERROR_UNSUPPORTED, "a", "dtype U64");
    check("{\"a\":{\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, ERROR_UNSUPPORTED, "a", "dtype f32");
    check("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, ERROR_CORRUPT, "a", "not a size");
    check("{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4, ERROR_CORRUPT, "a", "not a size");
    check("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4, ERROR_UNSUPPORTED, "a",
          "9 dimensions");
    check("{\"a\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,4]}}", 4, ERROR_CORRUPT,
          "header", "not valid JSON");
}

static void refuses_lying_sizes(void **state)
{
    (void)state;
    check("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 4, ERROR_CORRUPT, "a", "reach outside");
    check("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, ERROR_CORRUPT, "a", "reach outside");
    check("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,9223372036854775807]}}", 4, ERROR_CORRUPT, "a",
          "reach outside");
    check("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, ERROR_CORRUPT, "a",
          "outside its storage of 1 elements");
    check("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8, ERROR_CORRUPT, "a", "different sizes");
    check("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,7]}}", 7, ERROR_CORRUPT, "a", "different sizes");
    check("{\"a\":{\"dtype\":\"F32\",\"shape\":[1000,1000,1000],\"data_offsets\":[0,4]}}", 4, ERROR_CORRUPT, "a",
          "outside its storage");
    check("{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296,4294967296],\"data_offsets\":[0,4]}}", 4,
          ERROR_CORRUPT, "a", "more elements than can be counted");
    check("{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387905],\"data_offsets\":[0,4]}}", 4, ERROR_CORRUPT, "a",
          "outside its storage"); /* times 4 bytes that is 4 */
    check("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
          "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
          4, ERROR_CORRUPT, "b", "overlaps");
    check("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
          "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[6,10]}}",
          10, ERROR_CORRUPT, "b", "overlaps");
    check("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, ERROR_CORRUPT, "a", "hole");
    check("{\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]},"
          "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
          12, ERROR_CORRUPT, "b", "hole");
    check("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 7, ERROR_CORRUPT, "header",
          "3 bytes of data belong to no tensor");
    check("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
          "\"module.a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
          2, ERROR_CORRUPT, "a", "two tensors have this name");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_what_is_in_order), cmocka_unit_test(refuses_every_beginning),
        cmocka_unit_test(refuses_bad_headers),      cmocka_unit_test(refuses_bad_entries),
        cmocka_unit_test(refuses_lying_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
