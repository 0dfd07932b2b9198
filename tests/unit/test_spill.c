/* Very large blocks in files: what was passed leaves the memory and is still there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/spill.h"

#define PAGE ((size_t)4096)
#define FOLDER "build"

static size_t resident(void)
{
    unsigned long whole = 0, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu %lu", &whole, &pages), 2);
    fclose(file);
    return pages * PAGE;
}

/* A number of its own in each page. */
static void fill(uint8_t *block, size_t first, size_t size)
{
    for (size_t at = first; at < size; at += PAGE)
        memcpy(block + at, &at, sizeof at);
}

static void assert_filled(const uint8_t *block, size_t size)
{
    for (size_t at = 0; at < size; at += PAGE)
        assert_memory_equal(block + at, &at, sizeof at);
}

static void files_hold_what_was_passed(void **state)
{
    (void)state;
    spill_into(FOLDER);
    uint8_t *block = spill_alloc(SPILL_LEAST, 1);
    assert_non_null(block);
    if (!spill_is(block)) { /* the folder's file system cannot do it */
        spill_free(block);
        skip();
    }
    fill(block, 0, SPILL_LEAST);
    const size_t before = resident();
    spill_passed(block, SPILL_LEAST);
    assert_true(before - resident() > SPILL_LEAST * 3 / 4);
    assert_filled(block, SPILL_LEAST);

    uint8_t *grown = spill_grow(block, SPILL_LEAST, SPILL_LEAST + 5 * PAGE);
    assert_non_null(grown);
    fill(grown, SPILL_LEAST, SPILL_LEAST + 5 * PAGE);
    assert_filled(grown, SPILL_LEAST + 5 * PAGE);
    assert_true(spill_is(grown) && spill_is(grown + SPILL_LEAST + 4 * PAGE));
    spill_free(grown);
    assert_false(spill_is(grown));
}

static void blocks_of_malloc_grow_into_files(void **state)
{
    (void)state;
    spill_into(FOLDER);
    uint8_t *small = spill_grow(NULL, 0, 2 * PAGE);
    assert_non_null(small);
    assert_false(spill_is(small));
    fill(small, 0, 2 * PAGE);
    spill_passed(small, 2 * PAGE); /* does nothing */
    uint8_t *large = spill_grow(small, 2 * PAGE, SPILL_LEAST);
    assert_non_null(large);
    assert_filled(large, 2 * PAGE);
    spill_free(large);
}

static void without_a_file_blocks_are_of_malloc(void **state)
{
    (void)state;
    struct statfs about;
    const char *folders[] = {"", "build/there-is-no-such-folder", "/dev/shm"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        if (i == 2 && (statfs(folders[i], &about) || about.f_type != 0x01021994))
            continue;
        spill_into(folders[i]);
        uint8_t *block = spill_alloc(SPILL_LEAST, 1);
        assert_non_null(block);
        assert_false(spill_is(block));
        assert_int_equal(spill_share(3 * SPILL_LEAST), 3 * SPILL_LEAST);
        spill_free(block);
    }
    spill_into(FOLDER);
    assert_int_equal(spill_share(SPILL_LEAST - 1), SPILL_LEAST - 1);
    uint8_t *small = spill_alloc(3, 100);
    assert_non_null(small);
    assert_false(spill_is(small));
    spill_free(small);
    spill_free(NULL);
    assert_null(spill_alloc(SIZE_MAX / 2, 3));
#ifndef __SANITIZE_ADDRESS__                      /* which ends the program where so much is asked for */
    assert_null(spill_alloc((size_t)1 << 46, 1)); /* neither disk nor memory has so much */
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_hold_what_was_passed),
        cmocka_unit_test(blocks_of_malloc_grow_into_files),
        cmocka_unit_test(without_a_file_blocks_are_of_malloc),
    };
    return cmocka_run_group_tests_name("spill", tests, NULL, NULL);
}
