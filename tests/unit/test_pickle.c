/* Hostile pickles inside an archive that is in order: nothing is run, nothing is believed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/common/checkpoint_writer.h"
#include "tests/common/refuse.h"

static const float numbers[6] = {1, 2, 3, 4, 5, 6};

/* The archive of that pickle and one storage "0" of 24 bytes. Frees the pickle. */
static struct checkpoint_buffer archive(struct checkpoint_buffer *pickle)
{
    struct checkpoint_buffer file = {0};
    struct checkpoint_zip zip = {0};
    checkpoint_zip_add(&zip, "x/data.pkl", pickle->data, pickle->size);
    checkpoint_zip_add(&zip, "x/data/0", numbers, sizeof numbers);
    checkpoint_zip_finish(&zip, &file);
    checkpoint_free(pickle);
    return file;
}

static void check_pickle(struct checkpoint_buffer *pickle, enum error_code code, const char *entry, const char *reason)
{
    struct checkpoint_buffer file = archive(pickle);
    bool refused = refuse(&file, code, entry, reason);
    checkpoint_free(&file);
    assert_true(refused);
}

static void check_bytes(const void *bytes, size_t size, enum error_code code, const char *reason)
{
    struct checkpoint_buffer pickle = {0};
    checkpoint_put(&pickle, bytes, size);
    check_pickle(&pickle, code, "x/data.pkl", reason);
}

/* For a literal: the size counts zero bytes, and leaves out the one behind it. */
#define CHECK_BYTES(literal, code, reason) check_bytes(literal, sizeof literal - 1, code, reason)

/* {"name": tensor} */
static void put_tensor(struct checkpoint_buffer *pickle, const struct checkpoint_view *view)
{
    checkpoint_pickle_start(pickle);
    checkpoint_pickle_op(pickle, '}');
    checkpoint_pickle_text(pickle, "name");
    checkpoint_pickle_tensor(pickle, view, false);
    checkpoint_put(pickle, "s.", 2);
}

static void check_view(struct checkpoint_view view, enum error_code code, const char *entry, const char *reason)
{
    struct checkpoint_buffer pickle = {0};
    if (!view.storage)
        view.storage = "FloatStorage";
    if (!view.key)
        view.key = "0";
    if (!view.numel)
        view.numel = 6;
    put_tensor(&pickle, &view);
    check_pickle(&pickle, code, entry, reason);
}

static bool view_is_good(const struct checkpoint_view *view)
{
    struct checkpoint_buffer pickle = {0};
    put_tensor(&pickle, view);
    struct checkpoint_buffer file = archive(&pickle);
    bool good = refuse_nothing(&file);
    checkpoint_free(&file);
    return good;
}

static void accepts_views(void **state)
{
    (void)state;
    assert_true(view_is_good(&(struct checkpoint_view){"FloatStorage", "0", 6, 0, 2, {2, 3}, {3, 1}}));
    assert_true(view_is_good(&(struct checkpoint_view){"FloatStorage", "0", 6, 0, 2, {3, 2}, {1, 3}}));
    assert_true(view_is_good(&(struct checkpoint_view){"FloatStorage", "0", 6, 5, 3, {4, 1, 4}, {0, 99, 0}}));
    assert_true(view_is_good(&(struct checkpoint_view){"FloatStorage", "0", 6, 5, 0, {0}, {0}}));
    assert_true(view_is_good(&(struct checkpoint_view){"FloatStorage", "0", 6, 6, 2, {0, INT64_MAX}, {INT64_MAX, 1}}));
    assert_true(view_is_good(&(struct checkpoint_view){"ByteStorage", "0", 24, 4, 1, {4}, {5}}));
    assert_true(view_is_good(
        &(struct checkpoint_view){"FloatStorage", "0", 6, 1, 8, {1, 1, 1, 5, 1, 1, 1, 1}, {7, 7, 7, 1, 7, 7, 7, 7}}));

    /* without what concerns training */
    static const char rest[] = "\x89"
                               "ccollections\nOrderedDict\n)RtRs.";
    struct checkpoint_buffer pickle = {0};
    put_tensor(&pickle, &(struct checkpoint_view){"FloatStorage", "0", 6, 0, 1, {6}, {1}});
    pickle.size -= sizeof rest - 1;
    assert_memory_equal(pickle.data + pickle.size, rest, sizeof rest - 1);
    checkpoint_put(&pickle, "tRs.", 4);
    struct checkpoint_buffer file = archive(&pickle);
    assert_true(refuse_nothing(&file));
    checkpoint_free(&file);
}

static void refuses_views_beyond_their_storage(void **state)
{
    (void)state;
    const char *outside = "reaches outside its storage of 6 elements";
    const int64_t billion = 1000000000, huge = INT64_MAX;
    check_view((struct checkpoint_view){.rank = 1, .shape = {7}, .stride = {1}}, ERROR_CORRUPT, "name", outside);
    check_view((struct checkpoint_view){.rank = 1, .shape = {6}, .stride = {1}, .offset = 1}, ERROR_CORRUPT, "name",
               outside);
    check_view((struct checkpoint_view){.offset = 6}, ERROR_CORRUPT, "name", outside);
    check_view((struct checkpoint_view){.rank = 1, .shape = {0}, .stride = {1}, .offset = 7}, ERROR_CORRUPT, "name",
               outside);
    check_view((struct checkpoint_view){.rank = 2, .shape = {2, 3}, .stride = {4, 1}}, ERROR_CORRUPT, "name", outside);
    check_view((struct checkpoint_view){.rank = 3, .shape = {1000, 1000, 1000}, .stride = {1000000, 1000, 1}},
               ERROR_CORRUPT, "name", "[1000, 1000, 1000] at offset 0 reaches outside");
    check_view((struct checkpoint_view){.rank = 1, .shape = {2}, .stride = {huge}}, ERROR_CORRUPT, "name", outside);
    check_view((struct checkpoint_view){.rank = 1, .shape = {2}, .stride = {huge}, .offset = huge}, ERROR_CORRUPT,
               "name", outside);
    check_view((struct checkpoint_view){.rank = 1, .shape = {huge}, .stride = {huge}}, ERROR_CORRUPT, "name", outside);
    /* 4 * 2^62, and 2 + 2 * (2^63 - 1), wrap to 0 */
    check_view((struct checkpoint_view){.rank = 1, .shape = {5}, .stride = {INT64_C(1) << 62}}, ERROR_CORRUPT, "name",
               outside);
    check_view((struct checkpoint_view){.rank = 2, .shape = {2, 2}, .stride = {huge, huge}, .offset = 2}, ERROR_CORRUPT,
               "name", outside);
    /* 2^62 * 2 * 2 wraps to 0, and so do 4 bytes times 2^62 */
    check_view((struct checkpoint_view){.rank = 3, .shape = {INT64_C(1) << 62, 2, 2}, .stride = {0, 0, 0}},
               ERROR_CORRUPT, "name", "more elements than can be counted");
    check_view((struct checkpoint_view){.numel = INT64_C(1) << 62}, ERROR_CORRUPT, "x/data/0", "24 bytes are too few");
    check_view((struct checkpoint_view){.numel = billion, .rank = 1, .shape = {billion}, .stride = {1}}, ERROR_CORRUPT,
               "x/data/0", "24 bytes are too few for 1000000000 elements of 4 bytes");
    /* Legal for torch, but whoever reads it would need 4 GB for a file of a kilobyte. */
    check_view((struct checkpoint_view){.rank = 2, .shape = {billion, 6}, .stride = {0, 1}}, ERROR_TOO_LARGE, "name",
               "[1000000000, 6] expands to more elements than the file has bytes");
    check_view((struct checkpoint_view){.rank = 2, .shape = {INT64_C(1) << 31, INT64_C(1) << 31}, .stride = {0, 0}},
               ERROR_TOO_LARGE, "name", "expands");
    check_view((struct checkpoint_view){.rank = 9, .shape = {1, 1, 1, 1, 1, 1, 1, 1, 1}}, ERROR_UNSUPPORTED,
               "x/data.pkl", "a tensor of 9 dimensions");
    check_view((struct checkpoint_view){.key = "1"}, ERROR_CORRUPT, "data/1", "the storage is missing");
    check_view((struct checkpoint_view){.key = "../data/0"}, ERROR_CORRUPT, "data/../data/0", "missing");
}

static void refuses_negative_numbers(void **state)
{
    (void)state;
    check_view((struct checkpoint_view){.rank = 1, .shape = {-1}, .stride = {1}}, ERROR_CORRUPT, "x/data.pkl",
               "not a size");
    check_view((struct checkpoint_view){.rank = 1, .shape = {2}, .stride = {-1}, .offset = 1}, ERROR_CORRUPT,
               "x/data.pkl", "not a size");
    check_view((struct checkpoint_view){.offset = -1}, ERROR_CORRUPT, "x/data.pkl", "not described as torch does");
    check_view((struct checkpoint_view){.numel = INT64_MIN}, ERROR_CORRUPT, "x/data.pkl", "not described as torch");
}

static void refuses_unknown_globals(void **state)
{
    (void)state;
    CHECK_BYTES("\x80\x02"
                "cos\nsystem\nX\x04\0\0\0true\x85R.",
                ERROR_UNSUPPORTED, "'os.system'");
    CHECK_BYTES("\x80\x02"
                "cposix\nsystem\n.",
                ERROR_UNSUPPORTED, "'posix.system'");
    CHECK_BYTES("\x80\x04\x95\x10\0\0\0\0\0\0\0\x8c\x08"
                "builtins\x8c\x04"
                "eval\x93.",
                ERROR_UNSUPPORTED, "'builtins.eval'");
    CHECK_BYTES("\x80\x02"
                "ctorch\nUntypedStorage\n.",
                ERROR_UNSUPPORTED, "'torch.UntypedStorage'");
    CHECK_BYTES("\x80\x02"
                "ctorch._utils\n_rebuild_tensor_v2 \n.",
                ERROR_UNSUPPORTED, "'torch._utils._rebuild_tensor_v2 '");
    CHECK_BYTES("\x80\x02KxKx\x93.", ERROR_CORRUPT, "name is not text");
    /* Opcodes that make or call classes by other ways. */
    CHECK_BYTES("\x80\x02(ios\nsystem\n.", ERROR_UNSUPPORTED, "opcode 0x69");
    CHECK_BYTES("\x80\x02)\x81.", ERROR_UNSUPPORTED, "opcode 0x81");
    CHECK_BYTES("\x80\x02\x82\x01.", ERROR_UNSUPPORTED, "opcode 0x82");
    CHECK_BYTES("\x80\x02P0\n.", ERROR_UNSUPPORTED, "opcode 0x50");
}

static void refuses_misused_globals(void **state)
{
    (void)state;
    CHECK_BYTES("\x80\x02"
                "ctorch\nFloatStorage\n)R.",
                ERROR_CORRUPT, "cannot be called");
    CHECK_BYTES("\x80\x02N)R.", ERROR_CORRUPT, "cannot be called");
    CHECK_BYTES("\x80\x02"
                "ccollections\nOrderedDict\nNR.",
                ERROR_CORRUPT, "cannot be called");
    CHECK_BYTES("\x80\x02"
                "ccollections\nOrderedDict\nK\x01\x85R.",
                ERROR_CORRUPT, "not a list");
    CHECK_BYTES("\x80\x02"
                "ccollections\nOrderedDict\n](Ne\x85R.",
                ERROR_CORRUPT, "not a pair");
    CHECK_BYTES("\x80\x02"
                "ctorch._utils\n_rebuild_parameter\n)R.",
                ERROR_CORRUPT, "a parameter without its tensor");
    CHECK_BYTES("\x80\x02"
                "ctorch._utils\n_rebuild_tensor_v2\n)R.",
                ERROR_CORRUPT, "not described as torch does");
    CHECK_BYTES("\x80\x02"
                "ctorch._utils\n_rebuild_tensor_v2\n(NK\0))tR.",
                ERROR_CORRUPT, "not described as torch does");
    CHECK_BYTES("\x80\x02NQ.", ERROR_CORRUPT, "not described as torch does");
    CHECK_BYTES("\x80\x02)Q.", ERROR_CORRUPT, "not described as torch does");
    CHECK_BYTES("\x80\x02(X\x07\0\0\0storage"
                "ccollections\nOrderedDict\nX\x01\0\0\0"
                "0X\x03\0\0\0cpuK\x06tQ.",
                ERROR_CORRUPT, "not described as torch does");
    CHECK_BYTES("\x80\x02(X\x07\0\0\0storagectorch\nFloatStorage\nK\0X\x03\0\0\0cpuK\x06tQ.", ERROR_CORRUPT,
                "not described as torch does");
    CHECK_BYTES("\x80\x02(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0"
                "0X\x03\0\0\0cpuK\x06K\0tQ.",
                ERROR_UNSUPPORTED, "before 0.4");
    CHECK_BYTES("\x80\x02)Nb.", ERROR_CORRUPT, "attributes are set");
}

static void refuses_a_broken_machine(void **state)
{
    (void)state;
    CHECK_BYTES("", ERROR_CORRUPT, "cut off");
    CHECK_BYTES("\x80\x09}.", ERROR_UNSUPPORTED, "protocol 9");
    CHECK_BYTES("\x80\x02.", ERROR_CORRUPT, "0 values instead of one");
    CHECK_BYTES("\x80\x02(.", ERROR_CORRUPT, "operand");
    CHECK_BYTES("\x80\x02NN.", ERROR_CORRUPT, "2 values instead of one");
    CHECK_BYTES("\x80\x02}.junk", ERROR_CORRUPT, "4 bytes follow the pickle");
    CHECK_BYTES("\x80\x02N.", ERROR_UNSUPPORTED, "no dictionary");
    CHECK_BYTES("\x80\x02]X\xff\xff\xff\xff"
                "a.",
                ERROR_CORRUPT, "cut off");
    CHECK_BYTES("\x80\x02\x8b\xff\xff\xff\x7f.", ERROR_CORRUPT, "cut off");
    CHECK_BYTES("\x80\x02"
                "cos",
                ERROR_CORRUPT, "cut off");
    CHECK_BYTES("\x80\x02h\x01.", ERROR_CORRUPT, "memo has no entry 1");
    CHECK_BYTES("\x80\x02Nq\x05h\x04.", ERROR_CORRUPT, "memo has no entry 4");
    CHECK_BYTES("\x80\x02Nr\xf0\xff\xff\xff.", ERROR_CORRUPT, "memo entry 4294967280 is out of order");
    CHECK_BYTES("\x80\x02q\x01.", ERROR_CORRUPT, "operand");
    CHECK_BYTES("\x80\x02t.", ERROR_CORRUPT, "mark");
    CHECK_BYTES("\x80\x02}u.", ERROR_CORRUPT, "mark");
    CHECK_BYTES("\x80\x02}(Nu.", ERROR_CORRUPT, "last key has no value");
    CHECK_BYTES("\x80\x02(Nd.", ERROR_CORRUPT, "last key has no value");
    CHECK_BYTES("\x80\x02}(NNNu.", ERROR_CORRUPT, "last key has no value");
    CHECK_BYTES("\x80\x02(NNNd.", ERROR_CORRUPT, "last key has no value");
    CHECK_BYTES("\x80\x02](NNu.", ERROR_CORRUPT, "not a dictionary");
    CHECK_BYTES("\x80\x02}Na.", ERROR_CORRUPT, "not a list");
    CHECK_BYTES("\x80\x02(a.", ERROR_CORRUPT, "operand");
    CHECK_BYTES("\x80\x02N(\x86.", ERROR_CORRUPT, "operand");
    CHECK_BYTES("\x80\x02(0.", ERROR_CORRUPT, "operand");
    CHECK_BYTES("\x80\x02R.", ERROR_CORRUPT, "operand");
    CHECK_BYTES("\x80\x02"
                "b.",
                ERROR_CORRUPT, "operand");
    CHECK_BYTES("\x80\x02\x93.", ERROR_CORRUPT, "operand");
    CHECK_BYTES("\x80\x02Kx\x93.", ERROR_CORRUPT, "operand");
}

/* The same bytes over and over: each construct that could grow without end meets a limit. */
static void check_repeated(const char *start, const char *part, size_t times, enum error_code code, const char *reason)
{
    struct checkpoint_buffer pickle = {0};
    checkpoint_pickle_start(&pickle);
    checkpoint_put(&pickle, start, strlen(start));
    for (size_t i = 0; i < times; i++)
        checkpoint_put(&pickle, part, strlen(part));
    checkpoint_pickle_op(&pickle, '.');
    check_pickle(&pickle, code, "x/data.pkl", reason);
}

static void bounds_growth(void **state)
{
    (void)state;
    check_repeated("", "(", 5000000, ERROR_TOO_LARGE, "stack or memo");
    check_repeated("N", "\x94", 5000000, ERROR_TOO_LARGE, "stack or memo");
    check_repeated("", "]0", 5000000, ERROR_TOO_LARGE, "the pickle needs more than 64 MiB");
    check_repeated("N", "20", 4500000, ERROR_TOO_LARGE, "longer than 8 MiB");
    check_repeated("N", "\x85", 400000, ERROR_UNSUPPORTED, "no dictionary"); /* nested as deep */
    check_repeated("]", "2a", 1000000, ERROR_UNSUPPORTED, "no dictionary");  /* a list that holds itself */
}

static void refuses_contradictions(void **state)
{
    (void)state;
    struct checkpoint_view view = {.storage = "FloatStorage", .key = "0", .numel = 6};
    for (int i = 0; i < 2; i++) {
        struct checkpoint_buffer pickle = {0};
        checkpoint_pickle_start(&pickle);
        checkpoint_put(&pickle, "}(", 2);
        checkpoint_pickle_text(&pickle, "first");
        checkpoint_pickle_tensor(&pickle, &view, false);
        checkpoint_pickle_text(&pickle, "second");
        struct checkpoint_view other = view;
        if (i == 0)
            other.storage = "IntStorage";
        else
            other.numel = 5;
        checkpoint_pickle_tensor(&pickle, &other, false);
        checkpoint_put(&pickle, "u.", 2);
        check_pickle(&pickle, ERROR_CORRUPT, "x/data.pkl", "storage '0' is described in two ways");
    }
    static const char *const names[][2] = {{"w", "w"}, {"module.w", "w"}};
    for (int i = 0; i < 2; i++) {
        struct checkpoint_buffer pickle = {0};
        checkpoint_pickle_start(&pickle);
        checkpoint_put(&pickle, "}(", 2);
        for (int k = 0; k < 2; k++) {
            checkpoint_pickle_text(&pickle, names[i][k]);
            checkpoint_pickle_tensor(&pickle, &view, false);
        }
        checkpoint_put(&pickle, "u.", 2);
        check_pickle(&pickle, ERROR_CORRUPT, "w", "two tensors have this name");
    }
    struct checkpoint_buffer pickle = {0};
    checkpoint_pickle_start(&pickle);
    checkpoint_put(&pickle, "}X\x03\0\0\0a\0b", 9);
    checkpoint_pickle_tensor(&pickle, &view, false);
    checkpoint_put(&pickle, "s.", 2);
    check_pickle(&pickle, ERROR_CORRUPT, "a?b", "zero byte");
}

static void passes_over_what_is_no_tensor(void **state)
{
    (void)state;
    struct checkpoint_buffer pickle = {0};
    checkpoint_pickle_start(&pickle);
    checkpoint_put(&pickle, "}(", 2);
    checkpoint_pickle_text(&pickle, "params_ema"); /* a wrapper's name with no dictionary behind it */
    checkpoint_pickle_op(&pickle, 'N');
    checkpoint_pickle_int(&pickle, 7); /* a key that is not text */
    checkpoint_pickle_tensor(&pickle, &(struct checkpoint_view){"FloatStorage", "0", 6, 0, 1, {6}, {1}}, false);
    checkpoint_put(&pickle, "X\x02\0\0\0lrG\0\0\0\0\0\0\0\0", 16);
    checkpoint_put(&pickle, "X\x01\0\0\0b", 6);
    checkpoint_put(&pickle, "C\x03\0\0\0", 5);
    checkpoint_pickle_text(&pickle, "list");
    checkpoint_put(&pickle, "(NK\x01l", 5);
    checkpoint_pickle_text(&pickle, "pairs"); /* as Python 2 wrote an OrderedDict */
    checkpoint_pickle_global(&pickle, "collections", "OrderedDict");
    checkpoint_put(&pickle, "](](NNe](NNee\x85RNb", 17);
    checkpoint_pickle_text(&pickle, "w");
    checkpoint_pickle_tensor(&pickle, &(struct checkpoint_view){"FloatStorage", "0", 6, 0, 1, {6}, {1}}, false);
    checkpoint_put(&pickle, "u.", 2);
    struct checkpoint_buffer file = archive(&pickle);
    bool accepted = refuse_nothing(&file);
    checkpoint_free(&file);
    assert_true(accepted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_views),
        cmocka_unit_test(refuses_views_beyond_their_storage),
        cmocka_unit_test(refuses_negative_numbers),
        cmocka_unit_test(refuses_unknown_globals),
        cmocka_unit_test(refuses_misused_globals),
        cmocka_unit_test(refuses_a_broken_machine),
        cmocka_unit_test(bounds_growth),
        cmocka_unit_test(refuses_contradictions),
        cmocka_unit_test(passes_over_what_is_no_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
