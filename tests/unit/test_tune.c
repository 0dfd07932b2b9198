/* Which tile a convolution gets (vk_tune.h): from the file of measured ones, the nearest size or a guess. No device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/file.h"
#include "runtime/vulkan/vk_device.h"
#include "runtime/vulkan/vk_plan.h"
#include "runtime/vulkan/vk_tune.h"

#define HEAD "restored-tiles 8\n"
#define SMALL "3 1 1 32 32 8 0  "
#define LARGE "3 1 1 4 4 18 0  "
#define TILED "3 1 1 16 16 18 2  "

/* The file of measured tiles: what fits is taken, what does not, or is damaged, is passed over. */
static void test_tiles_file(void **state)
{
    struct vk_device device = {.traits = {.info.uuid = "u",
                                          .driver_version = 0x12,
                                          .limits = {.maxComputeSharedMemorySize = 49152,
                                                     .maxComputeWorkGroupInvocations = 1024,
                                                     .maxComputeWorkGroupSize = {1024, 1024, 64},
                                                     .timestampComputeAndGraphics = VK_TRUE}}};
    const struct vk_tune_key small = {3, 1, 1, 32, 32, 8, VK_TUNE_MATRIX}, large = {3, 1, 1, 4, 4, 18, VK_TUNE_MATRIX},
                             near = {3, 1, 1, 32, 32, 10, VK_TUNE_MATRIX}, odd = {3, 1, 1, 3, 1, 18, VK_TUNE_MATRIX},
                             tiled = {3, 1, 1, 16, 16, 18, VK_TUNE_TILED_F32},
                             deep = {1, 1, 1, 128, 32, 12, VK_TUNE_DIRECT}, rgb = {1, 1, 1, 4, 1, 18, VK_TUNE_DIRECT};
    char dir[] = "/tmp/test_tiles_XXXXXX", file[64];
    union vk_tile guess, tile;
    struct error err = ERROR_INIT;
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(file, sizeof file, "%s/vulkan-u-00000012.tiles", dir);

    assert_int_equal(vk_tune_create(&device, dir, &err), OK); /* no file */
    assert_false(vk_tune_find(&device, &small, &guess));
    assert_true(guess.matrix.split > 1); /* few pixels, many channels: subgroups share the sum */
    assert_false(vk_tune_find(&device, &large, &tile));
    assert_int_equal(tile.matrix.split, 1);
    assert_false(vk_tune_find(&device, &odd, &tile));
    assert_int_equal(tile.matrix.steps, 1); /* 3 steps go in no larger chunk */
    const struct vk_tune_key narrow = {3, 1, 1, 1, 1, 16, VK_TUNE_MATRIX}, wide = {17, 1, 1, 1, 1, 16, VK_TUNE_MATRIX};
    assert_false(vk_tune_find(&device, &narrow, &tile));
    assert_int_equal(tile.matrix.down, 2);
    assert_false(vk_tune_find(&device, &wide, &tile)); /* its wide border is shared by more subgroups, in 48 KiB */
    assert_int_equal(tile.matrix.down, 4);
    assert_int_equal(tile.matrix.padding, 0);
    assert_false(vk_tune_find(&device, &tiled, &tile));
    assert_int_equal(tile.tiled.kind, 0); /* fp32 */
    assert_false(vk_tune_find(&device, &deep, &tile));
    assert_true(tile.direct.split > 1 && tile.direct.rows == 4);
    assert_false(vk_tune_find(&device, &rgb, &tile));
    assert_true(tile.direct.split == 1 && tile.direct.down == 4 && tile.direct.blocks == 2); /* one column of blocks */
    const struct vk_dispatch direct = {
        .tune = rgb, .push.conv2d = {.out_h = 30, .out_w = 67}, .groups = {0, 0, 1}, .key.spec_count = 16};
    struct vk_dispatch with = direct;
    vk_tune_apply(&tile, &with);
    assert_int_equal(with.key.spec[0], 128);
    assert_int_equal(with.push.conv2d.tiles_x, 1);
    assert_int_equal(with.groups[0], (30 * 67 + 127) / 128); /* pixels one after the other, whatever the rows */
    const struct vk_dispatch dispatches[] = {{.node = 1}, {.tune = small}, {.tune = large}};
    assert_false(vk_tune_wants(&device, dispatches, 1)); /* no convolution */
    assert_true(vk_tune_wants(&device, dispatches, 2));
    device.traits.limits.timestampComputeAndGraphics = VK_FALSE; /* no clock */
    assert_false(vk_tune_wants(&device, dispatches, 3));
    assert_int_equal(vk_tune_measure(&device, dispatches, NULL, 3, &err), OK);
    device.traits.limits.timestampComputeAndGraphics = VK_TRUE;
    vk_tune_destroy(&device);

    static const struct {
        const char *text;
        bool small, large, tiled;
    } files[] = {
        {HEAD SMALL "8 1 4 1 8 1 8 1 1\n" LARGE "4 2 4 2 1 0 1 4 1\n" TILED "0 16 1 8 8 2 0 0 0\n", true, true, true},
        {HEAD SMALL "8 1 4 1 8 1 8 1 1\n" LARGE "4 2 4 2 1 0 1 4", true, false, false},       /* cut short */
        {HEAD SMALL "7 1 4 1 8 1 8 1 1\n" LARGE "4 2 4 2 1 0 1 4 1\n", false, true, false},   /* no tile */
        {HEAD LARGE "8 1 4 1 8 1 8 1 1\n" TILED "1 16 1 8 8 2 0 0 0\n", false, false, false}, /* they cannot do it */
        {HEAD TILED "8 1 4 1 8 1 8 1 1\n3 1 1 32 32 8 9  8 1 4 1 8 1 8 1 1\n", false, false, false}, /* families */
        {"restored-tiles 6\n" SMALL "8 1 4 1 8 1 8 1 1\n", false, false, false},
        {"\x7f\x45 damaged", false, false, false},
        {"", false, false, false},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        assert_int_equal(file_write(file, files[i].text, strlen(files[i].text), &err), OK);
        assert_int_equal(vk_tune_create(&device, dir, &err), OK);
        assert_int_equal(vk_tune_find(&device, &small, &tile), files[i].small);
        assert_int_equal(vk_tune_find(&device, &large, &tile), files[i].large);
        assert_int_equal(vk_tune_find(&device, &tiled, &tile), files[i].tiled);
        assert_false(vk_tune_find(&device, &near, &tile)); /* as the nearest that is known */
        assert_int_equal(tile.matrix.split, files[i].small ? 8 : guess.matrix.split);
        assert_int_equal(vk_tune_wants(&device, dispatches, 2), !files[i].small);
        assert_int_equal(vk_tune_wants(&device, dispatches, 3), !(files[i].small && files[i].large));
        vk_tune_destroy(&device);
    }
    /* Of the nearest sizes, one has subgroups that share the sum, which only few pixels do; another is further away. */
    static const char apart[] = HEAD "3 1 1 32 32 14 0  8 1 4 1 8 1 8 1 1\n"
                                     "3 1 1 32 32 18 0  4 2 4 2 1 0 1 4 1\n"
                                     "3 1 1 32 32 6 0  2 2 4 1 1 0 1 4 0\n";
    struct vk_tune_key between = small;
    between.size = 16;
    assert_int_equal(file_write(file, apart, strlen(apart), &err), OK);
    assert_int_equal(vk_tune_create(&device, dir, &err), OK);
    assert_false(vk_tune_find(&device, &between, &tile));
    assert_true(tile.matrix.split == 1 && tile.matrix.subgroups == 4 && tile.matrix.down == 2);
    vk_tune_destroy(&device);
    unlink(file);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tiles_file)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
