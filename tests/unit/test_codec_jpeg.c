/* A large JPEG is read in two parts at a time: the pixels and errors of reading it in one, whatever kind it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jpeglib.h>

#include "runtime/base/thread.h"
#include "server/image/codec.h"
#include "tests/common/picture.h"

struct kind {
    int channels, across, down; /* of 3 and 4 channels the first and last are sampled so, the others by 1 */
    bool progressive;
    int restart; /* MCUs */
};

struct file {
    unsigned char *bytes;
    unsigned long size;
};

/* libjpeg's file of a made picture; it ends the program where it cannot. */
static struct file written(const struct kind *kind, int width, int height)
{
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct file out = {0};
    size_t stride = (size_t)(width * kind->channels);
    uint8_t *pixels = malloc(stride * (size_t)height);
    for (size_t i = 0; i < stride * (size_t)height; i++)
        pixels[i] = (uint8_t)(i % stride * (i % stride) / 4096 + i / stride * (3 + i % 3));
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_mem_dest(&jpeg, &out.bytes, &out.size);
    jpeg.image_width = (JDIMENSION)width;
    jpeg.image_height = (JDIMENSION)height;
    jpeg.input_components = kind->channels;
    jpeg.in_color_space = kind->channels == 1 ? JCS_GRAYSCALE : kind->channels == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&jpeg);
    for (int c = 0; c < kind->channels; c++) {
        bool full = c % 3 == 0;
        jpeg.comp_info[c].h_samp_factor = full ? kind->across : 1;
        jpeg.comp_info[c].v_samp_factor = full ? kind->down : 1;
    }
    jpeg_set_quality(&jpeg, 80, TRUE);
    jpeg.restart_interval = (unsigned)kind->restart;
    if (kind->progressive)
        jpeg_simple_progression(&jpeg);
    jpeg_start_compress(&jpeg, TRUE);
    for (int y = 0; y < height; y++) {
        JSAMPROW row = pixels + (size_t)y * stride;
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    free(pixels);
    return out;
}

static enum error_code read_with(int threads, const struct file *file, struct image **image, struct error *err)
{
    thread_set_count(threads);
    enum error_code code = codec_decode(file->bytes, file->size, 0, image, NULL, err);
    thread_set_count(0);
    return code;
}

static void parts_give_the_pixels_of_one(void **state)
{
    (void)state;
    static const struct kind kinds[] = {
        {1, 1, 1, false, 0}, {3, 1, 1, false, 0}, {3, 2, 1, false, 0}, {3, 2, 2, false, 0}, {3, 1, 2, false, 0},
        {3, 4, 1, false, 0}, {3, 2, 2, true, 0},  {3, 2, 2, false, 7}, {4, 1, 1, false, 0}, {4, 2, 2, false, 0},
    };
    static const int sizes[][2] = {{1001, 803}, {799, 1003}, {40, 20000}, {30000, 21}};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            struct file file = written(&kinds[k], sizes[i][0], sizes[i][1]);
            struct image *one, *two;
            struct error err = ERROR_INIT;
            size_t differing;
            assert_int_equal(read_with(1, &file, &one, &err), OK);
            assert_int_equal(read_with(4 + 2 * (int)(i % 3), &file, &two, &err), OK); /* 2, 3, 4 parts */
            assert_int_equal(one->notes, two->notes);
            picture_difference(image_view(one), image_view(two), &differing);
            if (differing)
                fail_msg("%d channels, sampled %d by %d, %d×%d px: %zu samples differ", kinds[k].channels,
                         kinds[k].across, kinds[k].down, sizes[i][0], sizes[i][1], differing);
            image_destroy(&one);
            image_destroy(&two);
            free(file.bytes);
        }
}

static void damage_is_found_in_either_part(void **state)
{
    (void)state;
    static const struct kind kind = {3, 2, 2, false, 0};
    struct file whole = written(&kind, 1000, 800);
    for (unsigned long part = 1; part < 20; part++)
        for (int cut = 0; cut < 2; cut++) {
            struct file file = {malloc(whole.size), whole.size};
            struct image *image[2];
            struct error err[2] = {ERROR_INIT, ERROR_INIT};
            memcpy(file.bytes, whole.bytes, whole.size);
            if (cut)
                file.size = whole.size * part / 20;
            else
                memcpy(file.bytes + whole.size * part / 20, "\xff\xd9", 2); /* an end in the middle */
            for (int t = 0; t < 2; t++) {
                assert_int_equal(read_with(t ? 8 : 1, &file, &image[t], &err[t]), ERROR_CORRUPT);
                assert_null(image[t]);
            }
            assert_string_equal(err[0].text, err[1].text);
            free(file.bytes);
        }
    free(whole.bytes);
}

/* A file that is cut short, read as far as it goes: its rows as in the whole one, and gray below. */
static void what_is_left_is_read(void **state)
{
    (void)state;
    static const struct kind kinds[] = {
        {3, 2, 2, false, 0}, {1, 1, 1, false, 0}, {3, 1, 1, false, 7}, {3, 2, 2, true, 0}};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        struct file whole = written(&kinds[k], 1000, 800);
        struct image *all, *image;
        struct codec_damage damage;
        struct error err = ERROR_INIT;
        assert_int_equal(codec_decode_page(whole.bytes, whole.size, 1, 0, &all, NULL, &damage, &err), OK);
        assert_int_equal(damage.rows, 0);
        int last = 0;
        for (unsigned long part = 2; part < 20; part++) {
            error_clear(&err);
            assert_int_equal(codec_decode_page(whole.bytes, whole.size * part / 20, 1, 0, &image, NULL, &damage, &err),
                             OK);
            assert_int_equal(damage.rows, 800);
            assert_true(damage.cut && damage.good >= last && damage.good > 0);
            last = damage.good;
            const size_t stride = (size_t)image->width * (size_t)image->channels;
            if (kinds[k].progressive) { /* from its first scan on all rows are there, coarse */
                assert_true(part < 10 || damage.good == 800);
            } else {
                assert_true(damage.good < 800 && damage.good > (int)(800 * (part - 2) / 20));
                /* the last row's colours are mixed with those of the next */
                assert_memory_equal(image->pixels, all->pixels, stride * (size_t)(damage.good - 1));
                const uint8_t *below = (const uint8_t *)image->pixels + stride * (size_t)damage.good;
                for (size_t i = 0; i < stride * (size_t)(800 - damage.good); i++)
                    assert_int_equal(below[i], 128);
            }
            image_destroy(&image);
        }
        image_destroy(&all);
        /* damage within the codes: what comes after it may be wrong, and is said to be */
        memcpy(whole.bytes + whole.size / 2, "\xff\xd9", 2);
        assert_int_equal(codec_decode_page(whole.bytes, whole.size, 1, 0, &image, NULL, &damage, &err), OK);
        assert_int_equal(damage.rows, 800);
        image_destroy(&image);
        assert_int_equal(codec_decode_page(whole.bytes, 100, 1, 0, &image, NULL, &damage, &err), ERROR_CORRUPT);
        assert_null(image);
        free(whole.bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_give_the_pixels_of_one),
        cmocka_unit_test(damage_is_found_in_either_part),
        cmocka_unit_test(what_is_left_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
