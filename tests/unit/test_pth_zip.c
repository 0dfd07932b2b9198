/* Hostile archives: each is refused with one error that names file, entry and reason. */
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
static const struct checkpoint_tensor tensors[] = {{"a", 2, {2, 3}, numbers}, {"b", 1, {40}, numbers}};

/* Where parts of an archive lie; for tests that change a few bytes of a good one. */
static size_t find_header(const struct checkpoint_buffer *file, const char *signature, size_t name_at, const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i + name_at + n <= file->size; i++)
        if (memcmp(file->data + i, signature, 4) == 0 && memcmp(file->data + i + name_at, name, n) == 0)
            return i;
    fail_msg("no entry %s", name);
    return 0;
}

static size_t local_at(const struct checkpoint_buffer *file, const char *name)
{
    return find_header(file, "PK\3\4", 30, name);
}

static size_t central_at(const struct checkpoint_buffer *file, const char *name)
{
    return find_header(file, "PK\1\2", 46, name);
}

static void patch(struct checkpoint_buffer *file, size_t at, uint64_t value, int bytes)
{
    assert_true(at + (size_t)bytes <= file->size);
    for (int i = 0; i < bytes; i++)
        file->data[at + (size_t)i] = (uint8_t)(value >> 8 * i);
}

static struct checkpoint_buffer good_file(void)
{
    struct checkpoint_buffer file = {0};
    checkpoint_torch_zip(&file, tensors, 2, CHECKPOINT_F32, "params");
    return file;
}

/* An archive of one tensor "w" of 6 floats with the given entries besides. */
struct extra {
    const char *name, *data;
};

static struct checkpoint_buffer build(bool wide, size_t storage_bytes, const struct extra *extra, size_t count)
{
    struct checkpoint_buffer file = {0}, pickle = {0};
    struct checkpoint_zip zip = {.wide = wide};
    checkpoint_pickle_start(&pickle);
    checkpoint_pickle_op(&pickle, '}');
    checkpoint_pickle_text(&pickle, "w");
    checkpoint_pickle_tensor(
        &pickle,
        &(struct checkpoint_view){
            .storage = "FloatStorage", .key = "0", .numel = 6, .rank = 2, .shape = {2, 3}, .stride = {3, 1}},
        false);
    checkpoint_put(&pickle, "s.", 2);
    checkpoint_zip_add(&zip, "any name/data.pkl", pickle.data, pickle.size);
    checkpoint_zip_add(&zip, "any name/data/0", numbers, storage_bytes);
    for (size_t i = 0; i < count; i++)
        checkpoint_zip_add(&zip, extra[i].name, extra[i].data, strlen(extra[i].data));
    checkpoint_zip_finish(&zip, &file);
    checkpoint_free(&pickle);
    return file;
}

static void check(struct checkpoint_buffer file, enum error_code code, const char *entry, const char *reason)
{
    bool refused = refuse(&file, code, entry, reason);
    checkpoint_free(&file);
    assert_true(refused);
}

static void check_good(struct checkpoint_buffer file)
{
    bool accepted = refuse_nothing(&file);
    checkpoint_free(&file);
    assert_true(accepted);
}

/* good_file() with one number changed in the central ('c') or local ('l') header of an entry. */
static void check_patch(char where, const char *name, size_t at, uint64_t value, int bytes, enum error_code code,
                        const char *entry, const char *reason)
{
    struct checkpoint_buffer file = good_file();
    size_t base = where == 'c' ? central_at(&file, name) : local_at(&file, name);
    patch(&file, base + at, value, bytes);
    check(file, code, entry, reason);
}

static void accepts_what_is_in_order(void **state)
{
    (void)state;
    check_good(good_file());
    check_good(build(true, 24, NULL, 0));
    check_good(build(false, 200, NULL, 0)); /* an entry may be larger than its storage */
    check_good(build(false, 24, (struct extra[]){{"any name/byteorder", "little"}, {"any name/.format", "1"}}, 2));
}

static void refuses_every_beginning(void **state)
{
    (void)state;
    struct checkpoint_buffer file = good_file();
    assert_true(refuse_beginnings(&file, 4));
    checkpoint_free(&file);
    file = build(true, 24, NULL, 0);
    assert_true(refuse_beginnings(&file, 4));
    checkpoint_free(&file);
}

static void refuses_other_zip_files(void **state)
{
    (void)state;
    struct checkpoint_buffer file = {0};
    struct checkpoint_zip zip = {0};
    checkpoint_zip_add(&zip, "word/document.xml", "<xml/>", 6);
    checkpoint_zip_finish(&zip, &file);
    check(file, ERROR_UNSUPPORTED, "data.pkl", "no such entry");
    check(build(false, 24, (struct extra[]){{"other/data.pkl", "N."}}, 1), ERROR_CORRUPT, "other/data.pkl",
          "a second data.pkl");
    check(build(false, 24, (struct extra[]){{"any name/byteorder", "big"}}, 1), ERROR_UNSUPPORTED, "any name/byteorder",
          "big-endian");
    check(build(false, 24, (struct extra[]){{"any name/byteorder", "middle"}}, 1), ERROR_CORRUPT, "any name/byteorder",
          "neither");
    check(build(false, 24, (struct extra[]){{"any name/data/0", "x"}}, 1), ERROR_CORRUPT, "any name/data/0",
          "two entries have this name");
}

static void refuses_compressed_and_encrypted(void **state)
{
    (void)state;
    check_patch('c', "archive/data/0", 10, 8, 2, ERROR_UNSUPPORTED, "archive/data/0", "compressed (method 8)");
    check_patch('c', "archive/version", 10, 93, 2, ERROR_UNSUPPORTED, "archive/version", "compressed (method 93)");
    check_patch('c', "archive/data/1", 8, 0x0809, 2, ERROR_UNSUPPORTED, "archive/data/1", "encrypted");
    check_patch('l', "archive/data/1", 8, 8, 2, ERROR_CORRUPT, "archive/data/1", "another entry or method");
}

static void refuses_lying_sizes(void **state)
{
    (void)state;
    static const char name[] = "archive/data/1";
    struct checkpoint_buffer file = good_file();
    size_t central = central_at(&file, name);
    patch(&file, central + 20, 159, 4);
    patch(&file, central + 24, 159, 4);
    check(file, ERROR_CORRUPT, name, "159 bytes are too few for 40 elements of 4 bytes");

    file = good_file();
    patch(&file, central + 20, 0xfffffff0, 4);
    patch(&file, central + 24, 0xfffffff0, 4);
    check(file, ERROR_CORRUPT, name, "4294967280 bytes reach outside");

    file = good_file();
    patch(&file, central + 20, 260, 4);
    patch(&file, central + 24, 260, 4);
    check(file, ERROR_CORRUPT, "archive/version", "overlaps the entry archive/data/1");

    check_patch('c', name, 24, 161, 4, ERROR_CORRUPT, name, "two sizes, 160 and 161");
    check_patch('l', name, 22, 12, 4, ERROR_CORRUPT, name, "local header gives another size");
    check_patch('l', name, 6, 0, 2, ERROR_CORRUPT, name, "local header gives another size"); /* no descriptor */
    check_patch('l', name, 18, UINT32_MAX, 4, ERROR_CORRUPT, name, "local header gives another size");
    check_patch('l', name, 30, 'X', 1, ERROR_CORRUPT, name, "names another entry");
    check_patch('l', name, 26, 0xffff, 2, ERROR_CORRUPT, name, "reach outside");
    check_patch('l', name, 0, 0, 4, ERROR_CORRUPT, name, "no local header");
    check_patch('c', name, 42, 0xfffffff0, 4, ERROR_CORRUPT, name, "no local header");
    check_patch('c', name, 42, 0, 4, ERROR_CORRUPT, name, "names another entry");
}

static void refuses_missing_storages(void **state)
{
    (void)state;
    struct checkpoint_buffer file = good_file();
    size_t central = central_at(&file, "archive/data/0"), local = local_at(&file, "archive/data/0");
    patch(&file, central + 46 + 13, '7', 1);
    patch(&file, local + 30 + 13, '7', 1);
    check(file, ERROR_CORRUPT, "data/0", "the storage is missing");
    check(build(false, 23, NULL, 0), ERROR_CORRUPT, "any name/data/0", "23 bytes are too few for 6 elements");
}

/* The end of good_file(): 56 bytes of zip64 end record, 20 of its locator, 22 of end record. */
static void check_end(size_t from_end, uint64_t value, int bytes, const char *reason)
{
    struct checkpoint_buffer file = good_file();
    patch(&file, file.size - from_end, value, bytes);
    check(file, ERROR_CORRUPT, "zip directory", reason);
}

static void refuses_inconsistent_directories(void **state)
{
    (void)state;
    check_end(22, 0, 4, "end record is missing");
    check_end(2, 1, 2, "end record is missing"); /* a comment that is not there */
    check_end(12, 3, 2, "contradicts");          /* entries */
    check_end(10, 9999, 4, "contradicts");       /* size of the directory */
    check_end(6, 9999, 4, "contradicts");        /* its offset */
    check_end(18, 1, 2, "contradicts");          /* disk */
    check_end(38, 1, 4, "another disk");         /* the locator's disk */
    check_end(26, 2, 4, "another disk");         /* and count of disks */
    check_end(34, UINT64_MAX, 8, "points outside");
    check_end(34, 0, 8, "not where its locator says");
    check_end(94, 45, 8, "of another size");
    check_end(66, 3, 8, "contradicts"); /* zip64 entries */
    check_end(58, 9999, 8, "contradicts");
    check_end(50, 9999, 8, "contradicts");
    for (int shift = -1; shift <= 1; shift += 2) { /* both records agree on something that is not so */
        struct checkpoint_buffer file = good_file();
        uint64_t start = 0;
        memcpy(&start, file.data + file.size - 50, 8);
        patch(&file, file.size - 50, start + (uint64_t)shift, 8);
        patch(&file, file.size - 6, start + (uint64_t)shift, 4);
        check(file, ERROR_CORRUPT, "zip directory", "do not lead to its end record");
    }
    struct checkpoint_buffer file = good_file();
    patch(&file, file.size - 6, UINT32_MAX, 4);
    patch(&file, file.size - 10, UINT32_MAX, 4);
    patch(&file, file.size - 50, UINT64_MAX, 8);
    patch(&file, file.size - 58, UINT64_MAX, 8);
    check(file, ERROR_CORRUPT, "zip directory", "do not lead to its end record");
    static const struct {
        size_t narrow, wide;
        uint64_t value;
    } parts[] = {{18, 82, 1}, {16, 78, 1}, {14, 74, 3}}; /* this disk, the directory's, entries on this one */
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        file = good_file();
        patch(&file, file.size - parts[i].narrow, parts[i].value, 2);
        patch(&file, file.size - parts[i].wide, parts[i].value, i < 2 ? 4 : 8);
        check(file, ERROR_CORRUPT, "zip directory", "one part of several");
    }
    static const struct {
        uint64_t count;
        const char *reason;
    } counts[] = {{65535, "more entries than it has room for"}, {5, "damaged"}, {3, "longer than its entries"}};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        file = good_file();
        patch(&file, file.size - 14, counts[i].count, 2);
        patch(&file, file.size - 12, counts[i].count, 2);
        patch(&file, file.size - 74, counts[i].count, 8);
        patch(&file, file.size - 66, counts[i].count, 8);
        check(file, ERROR_CORRUPT, "zip directory", counts[i].reason);
    }
}

/* The zip64 field of an entry of build(true, ...): behind its name come id, length, two sizes, offset. */
static void check_wide(size_t at, uint64_t value, int bytes, const char *reason)
{
    static const char name[] = "any name/data/0";
    struct checkpoint_buffer file = build(true, 24, NULL, 0);
    patch(&file, central_at(&file, name) + 46 + strlen(name) + at, value, bytes);
    check(file, ERROR_CORRUPT, name, reason);
}

static void refuses_inconsistent_zip64_entries(void **state)
{
    (void)state;
    check_wide(0, 9, 2, "zip64 fields are inconsistent"); /* no such field at all */
    check_wide(2, 8, 2, "zip64 fields are inconsistent"); /* too short for what it should hold */
    check_wide(2, 99, 2, "zip64 fields are inconsistent");
    check_wide(4, UINT64_MAX, 8, "two sizes");
    check_wide(12, 25, 8, "two sizes");
    check_wide(20, UINT64_MAX, 8, "no local header");
    static const char name[] = "any name/data/0";
    struct checkpoint_buffer file = build(true, 24, NULL, 0);
    size_t central = central_at(&file, name);
    patch(&file, central + 24, 25, 4); /* all three fields are there, and one says otherwise */
    check(file, ERROR_CORRUPT, name, "zip64 fields are inconsistent");
    file = build(true, 24, NULL, 0);
    patch(&file, central + 24, 24, 4);
    check_good(file);
    file = build(true, 24, NULL, 0);
    patch(&file, central + 46 + strlen(name) + 4, UINT64_C(1) << 62, 8);
    patch(&file, central + 46 + strlen(name) + 12, UINT64_C(1) << 62, 8);
    check(file, ERROR_CORRUPT, name, "reach outside");
    file = build(true, 24, NULL, 0);
    patch(&file, central + 34, 3, 2);
    check(file, ERROR_CORRUPT, name, "zip64 fields are inconsistent"); /* another disk */
    file = build(true, 24, NULL, 0);
    patch(&file, central + 30, 0xffff, 2);
    check(file, ERROR_CORRUPT, "zip directory", "outside the directory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_what_is_in_order),
        cmocka_unit_test(refuses_every_beginning),
        cmocka_unit_test(refuses_other_zip_files),
        cmocka_unit_test(refuses_compressed_and_encrypted),
        cmocka_unit_test(refuses_lying_sizes),
        cmocka_unit_test(refuses_missing_storages),
        cmocka_unit_test(refuses_inconsistent_directories),
        cmocka_unit_test(refuses_inconsistent_zip64_entries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
