/* Hostile files of torch.save's legacy form. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/common/checkpoint_writer.h"
#include "tests/common/refuse.h"

static const float numbers[40] = {1, 2, 3};
static const struct checkpoint_tensor tensors[] = {{"a", 2, {2, 3}, numbers}, {"b", 1, {40}, numbers}};

static void check(struct checkpoint_buffer file, enum error_code code, const char *entry, const char *reason)
{
    bool refused = refuse(&file, code, entry, reason);
    checkpoint_free(&file);
    assert_true(refused);
}

/* A file whose object is {"a": tensor on storage "k" of 3 bytes}, up to the list of keys. */
static struct checkpoint_buffer start(const char *keys)
{
    struct checkpoint_buffer file = {0};
    checkpoint_legacy_start(&file, true);
    checkpoint_pickle_start(&file);
    checkpoint_pickle_op(&file, '}');
    checkpoint_pickle_text(&file, "a");
    checkpoint_pickle_tensor(&file, &(struct checkpoint_view){"ByteStorage", "k", 3, 0, 1, {3}, {1}}, true);
    checkpoint_put(&file, "s.", 2);
    checkpoint_pickle_start(&file);
    checkpoint_put(&file, "](", 2);
    for (; *keys; keys++)
        checkpoint_pickle_text(&file, (char[]){*keys, '\0'});
    checkpoint_put(&file, "e.", 2);
    return file;
}

static struct checkpoint_buffer with_storage(const char *keys, uint64_t count, const char *bytes)
{
    struct checkpoint_buffer file = start(keys);
    checkpoint_put_le(&file, count, 8);
    checkpoint_put(&file, bytes, strlen(bytes));
    return file;
}

static void refuses_every_beginning(void **state)
{
    (void)state;
    struct checkpoint_buffer file = {0};
    checkpoint_torch_legacy(&file, tensors, 2, CHECKPOINT_F16, "params_ema");
    assert_true(refuse_beginnings(&file, 2));
    checkpoint_free(&file);
}

static void refuses_lying_storages(void **state)
{
    (void)state;
    struct checkpoint_buffer good = with_storage("k", 3, "abc");
    assert_true(refuse_nothing(&good));
    checkpoint_free(&good);
    check(with_storage("k", 4, "abcd"), ERROR_CORRUPT, "storage k", "4 elements where its tensors expect 3");
    check(with_storage("k", UINT64_MAX, "abc"), ERROR_CORRUPT, "storage k", "18446744073709551615 elements");
    check(with_storage("k", 3, "ab"), ERROR_CORRUPT, "storage k", "too short for its 3 elements");
    check(with_storage("k", 3, "abcd"), ERROR_CORRUPT, "storages", "1 bytes follow the last one");
    check(with_storage("", 3, "abc"), ERROR_CORRUPT, "storage k", "missing");
    check(with_storage("x", 3, "abc"), ERROR_CORRUPT, "storage x", "no tensor refers to it");
    check(with_storage("kk", 3, "abc"), ERROR_CORRUPT, "storage k", "twice");
    check(start("k"), ERROR_CORRUPT, "storage k", "the file ends before it");

    struct checkpoint_buffer file = {0}; /* 2^61 doubles: times 8 bytes that is 0 again */
    checkpoint_legacy_start(&file, true);
    checkpoint_pickle_start(&file);
    checkpoint_pickle_op(&file, '}');
    checkpoint_pickle_text(&file, "a");
    checkpoint_pickle_tensor(&file, &(struct checkpoint_view){"DoubleStorage", "k", INT64_C(1) << 61, 0, 0, {0}, {0}},
                             true);
    static const char keys[] = "s.\x80\x02](X\x01\0\0\0ke.";
    checkpoint_put(&file, keys, sizeof keys - 1);
    checkpoint_put_le(&file, UINT64_C(1) << 61, 8);
    check(file, ERROR_CORRUPT, "storage k", "too short for its 2305843009213693952 elements");
}

static void refuses_other_pickles(void **state)
{
    (void)state;
    struct checkpoint_buffer file = {0};
    checkpoint_put(&file, "\x80\x02}.", 4);
    check(file, ERROR_UNSUPPORTED, "magic number", "not torch.save's");

    file = (struct checkpoint_buffer){0};
    checkpoint_put(&file, "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x18.", 15);
    check(file, ERROR_UNSUPPORTED, "magic number", "not torch.save's");

    file = start("k");
    file.data[15 + 3] ^= 1; /* the protocol's low byte */
    check(file, ERROR_UNSUPPORTED, "protocol", "not 1001");

    file = (struct checkpoint_buffer){0};
    checkpoint_legacy_start(&file, false);
    check(file, ERROR_UNSUPPORTED, "system", "big-endian");

    file = (struct checkpoint_buffer){0};
    checkpoint_put(&file, "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15);
    checkpoint_put(&file, "\x80\x02M\xe9\x03.\x80\x02}.", 10);
    check(file, ERROR_CORRUPT, "system", "byte order is not given");

    file = (struct checkpoint_buffer){0}; /* a number where a dictionary should be */
    checkpoint_put(&file, "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15);
    checkpoint_put(&file, "\x80\x02M\xe9\x03.\x80\x02K\x01.", 11);
    check(file, ERROR_CORRUPT, "system", "byte order is not given");

    file = (struct checkpoint_buffer){0};
    checkpoint_legacy_start(&file, true);
    checkpoint_put(&file,
                   "\x80\x02"
                   "cnt\nsystem\n)R.",
                   16);
    check(file, ERROR_UNSUPPORTED, "object", "'nt.system'");

    file = (struct checkpoint_buffer){0};
    checkpoint_legacy_start(&file, true);
    checkpoint_put(&file, "\x80\x02}.\x80\x02}.", 8);
    check(file, ERROR_CORRUPT, "storage keys", "not a list");

    file = (struct checkpoint_buffer){0};
    checkpoint_legacy_start(&file, true);
    checkpoint_put(&file, "\x80\x02}.\x80\x02]Na.", 10);
    check(file, ERROR_CORRUPT, "storage keys", "not text");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_every_beginning),
        cmocka_unit_test(refuses_lying_storages),
        cmocka_unit_test(refuses_other_pickles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
