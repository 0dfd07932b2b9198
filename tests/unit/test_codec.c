/* Picture files: every kind that libjpeg and libpng can write for us, what is kept, and what is noted. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <png.h>
#include <zlib.h>

#include "server/image/codec.h"
#include "server/image/exif.h"
#include "tests/common/checkpoint_writer.h"
#include "tests/common/picture.h"
#include "tests/common/picture_file.h"
#include "tests/common/picture_writer.h"
#include "tests/common/shared.h"

/* ---- JPEG ---- */

static void fill_flat(struct view_u8 view, const uint8_t colour[])
{
    for (int y = 0; y < view.height; y++)
        for (int x = 0; x < view.width * view.channels; x++)
            view.data[(size_t)y * view.stride + (size_t)x] = colour[x % view.channels];
}

static void jpegs_of_every_kind_are_read(void **state)
{
    (void)state;
    static const uint8_t colour[4] = {200, 120, 60, 240};
    uint8_t pixels[21 * 13 * 4];
    for (size_t k = 0; k < PICTURE_JPEG_KINDS; k++) {
        int channels = picture_jpeg_kinds[k].channels;
        bool cmyk = channels == 4, gray = channels == 1;
        const struct view_u8 view = {pixels, 21, 13, channels, (size_t)(21 * channels)};
        fill_flat(view, colour);
        struct checkpoint_buffer file = picture_writer_jpeg(&picture_jpeg_kinds[k], view, NULL, 0);
        struct codec_info info;
        struct image *image = picture_must_decode(&file, &info);
        assert_int_equal(info.format, IMAGE_JPEG);
        assert_int_equal(info.width, 21);
        assert_int_equal(info.height, 13);
        assert_int_equal(info.bits, 8);
        assert_int_equal(info.channels, channels);
        assert_false(info.alpha);
        assert_int_equal(info.orientation, 1);
        assert_int_equal(image->width, 21);
        assert_int_equal(image->height, 13);
        assert_int_equal(image->channels, gray ? 1 : 3);
        assert_int_equal(image->format, IMAGE_JPEG);
        assert_int_equal(image->notes, cmyk ? IMAGE_NOTE_CMYK : 0);
        for (int c = 0; c < image->channels; c++) {
            int v = !cmyk                            ? colour[c]
                    : picture_jpeg_kinds[k].no_adobe ? (255 - colour[c]) * (255 - colour[3]) / 255
                                                     : colour[c] * colour[3] / 255;
            assert_true(abs(image_view(image).data[3 * image->channels + c] - v) <= 2);
        }
        image_destroy(&image);
        checkpoint_free(&file);
    }
}

/* Four blocks of 16 px: the corners tell how a picture was turned. Gray levels, top left first. */
static void jpegs_are_turned_upright(void **state)
{
    (void)state;
    static const int back[9] = {0, 1, 2, 3, 4, 5, 8, 7, 6}; /* the orientation that undoes one */
    static const int levels[3][2] = {{20, 80}, {140, 200}, {240, 110}};
    for (int orientation = 1; orientation <= 8; orientation++) {
        struct image *stored = NULL, *image;
        struct error err = ERROR_INIT;
        uint8_t tiff[26];
        assert_int_equal(image_create(&stored, 32, 48, 1, 8, false, &err), OK);
        for (int i = 0; i < 32 * 48; i++)
            ((uint8_t *)stored->pixels)[i] = (uint8_t)levels[i / 32 / 16][i % 32 / 16];
        assert_int_equal(image_orient(stored, back[orientation], &err), OK);
        struct checkpoint_buffer file = picture_writer_jpeg(&picture_jpeg_kinds[3], image_view(stored), tiff,
                                                            picture_orientation_block(tiff, orientation));
        struct codec_info info;
        image = picture_must_decode(&file, &info);
        assert_int_equal(info.orientation, orientation);
        assert_int_equal(info.width, 32);
        assert_int_equal(info.height, 48);
        assert_int_equal(image->width, 32);
        assert_int_equal(image->height, 48);
        for (int y = 8; y < 48; y += 16)
            for (int x = 8; x < 32; x += 16)
                assert_true(abs(image_view(image).data[y * 32 + x] - levels[y / 16][x / 16]) < 4);
        assert_int_equal(image->exif.size, 26);
        assert_int_equal(exif_orientation(image->exif.data, image->exif.size), 1);
        image_destroy(&image);
        image_destroy(&stored);
        checkpoint_free(&file);
    }
}

/* ---- PNG ---- */

static unsigned stored_sample(const uint8_t *row, int depth, int index)
{
    if (depth == 16)
        return row[index * 2] * 256u + row[index * 2 + 1];
    int bit = index * depth;
    return (unsigned)(row[bit / 8] >> (8 - depth - bit % 8)) & ((1u << depth) - 1);
}

/* Sample c (3 is alpha) of a pixel as it should come out, in the range of the depth it comes out in. */
static unsigned expected_sample(const struct picture_png *kind, const uint8_t *row, int x, int c)
{
    int colours = kind->type & PNG_COLOR_MASK_COLOR ? 3 : 1, channels = colours + !!(kind->type & PNG_COLOR_MASK_ALPHA);
    unsigned full = kind->depth == 16 ? 65535 : 255;
    if (kind->type == PNG_COLOR_TYPE_PALETTE) {
        unsigned i = stored_sample(row, kind->depth, x);
        return c < 3 ? picture_palette[i][c] : kind->transparent && i < 2 ? picture_palette_alpha[i] : 255;
    }
    if (c < 3)
        return stored_sample(row, kind->depth, x * channels + c % colours) * full / ((1u << kind->depth) - 1);
    if (kind->type & PNG_COLOR_MASK_ALPHA)
        return stored_sample(row, kind->depth, x * channels + colours);
    for (int k = 0; k < colours; k++)
        if (stored_sample(row, kind->depth, x * channels + k) != (unsigned)(k + 1))
            return full;
    return 0; /* the colour that tRNS names: gray 1, or 1 2 3 */
}

static void check_png(const struct picture_png *kind, int width, int height)
{
    uint8_t rows[64 * 40];
    unsigned seed = (unsigned)(kind->type * 40 + kind->depth);
    size_t stride = 40;
    int colours = kind->type & PNG_COLOR_MASK_COLOR ? 3 : 1;
    for (size_t i = 0; i < sizeof rows; i++)
        rows[i] = (uint8_t)picture_random(&seed);
    if (kind->type == PNG_COLOR_TYPE_PALETTE) /* indices that the palette has */
        for (size_t i = 0; i < sizeof rows; i++)
            rows[i] &= kind->depth == 8 ? 3 : kind->depth == 4 ? 0x33 : 0xff;
    if (kind->transparent && kind->depth >= 8) /* one pixel of the named colour */
        for (int k = 0; k < colours; k++)
            rows[kind->depth == 16 ? 2 * k + 1 : k] = (uint8_t)(kind->type == PNG_COLOR_TYPE_PALETTE ? 0 : k + 1);
    if (kind->transparent && kind->depth == 16)
        rows[0] = rows[2] = rows[4] = 0;
    struct checkpoint_buffer file = picture_writer_png(kind, width, height, rows, stride);
    struct codec_info info;
    struct image *image = picture_must_decode(&file, &info);
    bool alpha = kind->transparent || (kind->type & PNG_COLOR_MASK_ALPHA);
    assert_int_equal(info.format, IMAGE_PNG);
    assert_int_equal(info.bits, kind->depth == 16 ? 16 : 8);
    assert_int_equal(info.channels, colours + alpha);
    assert_int_equal(info.alpha, alpha);
    assert_int_equal(image->width, width);
    assert_int_equal(image->height, height);
    assert_int_equal(image->bits, info.bits);
    assert_int_equal(image->channels, colours);
    assert_int_equal(image->alpha != NULL, alpha);
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < 4; c++) {
                if ((c == 3 && !alpha) || (c < 3 && c >= colours))
                    continue;
                const void *plane = c == 3 ? image->alpha : image->pixels;
                int at = c == 3 ? y * width + x : (y * width + x) * colours + c;
                unsigned v = image->bits == 16 ? ((const uint16_t *)plane)[at] : ((const uint8_t *)plane)[at];
                assert_int_equal(v, expected_sample(kind, rows + (size_t)y * stride, x, c));
            }
    image_destroy(&image);
    checkpoint_free(&file);
}

static void pngs_of_every_kind_are_read(void **state)
{
    (void)state;
    static const struct {
        int type, depth[5];
    } kinds[] = {{PNG_COLOR_TYPE_GRAY, {1, 2, 4, 8, 16}},
                 {PNG_COLOR_TYPE_RGB, {8, 16}},
                 {PNG_COLOR_TYPE_PALETTE, {1, 2, 4, 8}},
                 {PNG_COLOR_TYPE_GRAY_ALPHA, {8, 16}},
                 {PNG_COLOR_TYPE_RGB_ALPHA, {8, 16}}};
    int seen = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        for (int d = 0; d < 5 && kinds[i].depth[d]; d++)
            for (int flags = 0; flags < 4; flags++) {
                struct picture_png kind = {kinds[i].type, kinds[i].depth[d], flags & 1, flags & 2};
                if (kind.transparent && (kind.type & PNG_COLOR_MASK_ALPHA))
                    continue;
                check_png(&kind, 5, 11);
                check_png(&kind, 1, 1);
                check_png(&kind, 3, 2);
                seen++;
            }
    assert_int_equal(seen, 4 * 11 + 2 * 4);
}

/* ---- metadata ---- */

static void assert_same_blob(const struct image_blob *a, const struct image_blob *b)
{
    assert_int_equal(a->size, b->size);
    if (a->size)
        assert_memory_equal(a->data, b->data, a->size);
}

static void metadata_survives_both_formats(void **state)
{
    (void)state;
    for (enum image_format format = IMAGE_JPEG; format <= IMAGE_PNG; format++) {
        struct image *image = picture_with_metadata(false, 8);
        unsigned notes;
        picture_add_profile(image, "RGB ");
        struct checkpoint_buffer file = picture_must_encode(image, format, &notes);
        struct image *again = picture_must_decode(&file, NULL);
        assert_int_equal(notes, 0);
        assert_same_blob(&image->icc, &again->icc);
        assert_same_blob(&image->exif, &again->exif);
        assert_same_blob(&image->xmp, &again->xmp);
        image_destroy(&again);
        checkpoint_free(&file);
        free(image->icc.data);
        image->icc = (struct image_blob){0};
        picture_add_profile(image, "GRAY"); /* says nothing about RGB */
        file = picture_must_encode(image, format, &notes);
        again = picture_must_decode(&file, NULL);
        assert_int_equal(notes, IMAGE_NOTE_ICC_DROPPED);
        assert_null(again->icc.data);
        image_destroy(&again);
        image_destroy(&image);
        checkpoint_free(&file);
    }
}

static void metadata_too_large_for_jpeg_is_noted(void **state)
{
    (void)state;
    struct image *image = picture_with_metadata(false, 8);
    struct error err = ERROR_INIT;
    static uint8_t large[70000];
    unsigned notes;
    free(image->xmp.data);
    free(image->exif.data);
    image->xmp = image->exif = (struct image_blob){0};
    memset(large, 'x', sizeof large);
    assert_int_equal(image_blob_set(&image->xmp, large, sizeof large, &err), OK);
    assert_int_equal(image_blob_set(&image->exif, large, sizeof large, &err), OK);
    struct checkpoint_buffer file = picture_must_encode(image, IMAGE_JPEG, &notes);
    struct image *again = picture_must_decode(&file, NULL);
    assert_int_equal(notes, IMAGE_NOTE_EXIF_DROPPED | IMAGE_NOTE_XMP_DROPPED);
    assert_null(again->xmp.data);
    image_destroy(&again);
    image_destroy(&image);
    checkpoint_free(&file);
}

/* eXIf may stand behind the pixels. */
static void pngs_are_turned_upright(void **state)
{
    (void)state;
    uint8_t rows[40] = {0}, tiff[26];
    const struct picture_png kind = {PNG_COLOR_TYPE_GRAY, 8, false, false};
    rows[0] = 10;
    rows[1] = 20;
    rows[2] = 30;
    for (int orientation = 1; orientation <= 8; orientation++) {
        struct checkpoint_buffer file = picture_writer_png(&kind, 3, 1, rows, 40);
        struct codec_info info;
        file.size -= 12; /* the end */
        picture_writer_chunk(&file, "eXIf", tiff, picture_orientation_block(tiff, orientation));
        picture_writer_chunk(&file, "IEND", "", 0);
        struct image *image = picture_must_decode(&file, &info);
        bool back = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
        assert_int_equal(info.orientation, orientation);
        assert_int_equal(info.width, orientation >= 5 ? 1 : 3);
        assert_int_equal(image->width, orientation >= 5 ? 1 : 3);
        assert_int_equal(image->height, orientation >= 5 ? 3 : 1);
        assert_int_equal(image_view(image).data[0], back ? 30 : 10);
        assert_int_equal(exif_orientation(image->exif.data, image->exif.size), 1);
        image_destroy(&image);
        checkpoint_free(&file);
    }
}

/* ---- writing ---- */

static void png_is_lossless(void **state)
{
    (void)state;
    for (int kind = 0; kind < 8; kind++) {
        bool alpha = kind & 1;
        int bits = kind & 2 ? 16 : 8, channels = kind & 4 ? 1 : 3;
        struct image *image = NULL;
        struct error err = ERROR_INIT;
        unsigned seed = 4, notes;
        assert_int_equal(image_create(&image, 17, 9, channels, bits, alpha, &err), OK);
        size_t sample = (size_t)bits / 8;
        for (size_t i = 0; i < 17 * 9 * (size_t)channels * sample; i++)
            ((uint8_t *)image->pixels)[i] = (uint8_t)picture_random(&seed);
        for (size_t i = 0; alpha && i < 17 * 9 * sample; i++)
            ((uint8_t *)image->alpha)[i] = (uint8_t)picture_random(&seed);
        struct checkpoint_buffer file = picture_must_encode(image, IMAGE_PNG, &notes);
        struct image *again = picture_must_decode(&file, NULL);
        assert_int_equal(notes, 0);
        assert_int_equal(again->bits, bits);
        assert_int_equal(again->channels, channels);
        assert_memory_equal(again->pixels, image->pixels, 17 * 9 * (size_t)channels * sample);
        if (alpha)
            assert_memory_equal(again->alpha, image->alpha, 17 * 9 * sample);
        else
            assert_null(again->alpha);
        image_destroy(&image);
        image_destroy(&again);
        checkpoint_free(&file);
    }
}

static void jpeg_is_close_flattens_and_says_so(void **state)
{
    (void)state;
    for (int kind = 0; kind < 8; kind++) {
        bool alpha = kind & 1;
        int bits = kind & 2 ? 16 : 8, channels = kind & 4 ? 1 : 3, full = bits == 16 ? 65535 : 255;
        struct image *image = NULL;
        struct error err = ERROR_INIT;
        unsigned notes;
        assert_int_equal(image_create(&image, 48, 32, channels, bits, alpha, &err), OK);
        for (int i = 0; i < 48 * 32; i++) {
            int v = full / 4, a = i % 48 < 16 ? 0 : i % 48 < 32 ? full / 2 : full;
            for (int c = 0; c < channels; c++)
                bits == 16 ? (((uint16_t *)image->pixels)[i * channels + c] = (uint16_t)v)
                           : (((uint8_t *)image->pixels)[i * channels + c] = (uint8_t)v);
            if (alpha)
                bits == 16 ? (((uint16_t *)image->alpha)[i] = (uint16_t)a)
                           : (((uint8_t *)image->alpha)[i] = (uint8_t)a);
        }
        struct checkpoint_buffer file = picture_must_encode(image, IMAGE_JPEG, &notes);
        struct image *again = picture_must_decode(&file, NULL);
        assert_int_equal(notes, (alpha ? IMAGE_NOTE_FLATTENED : 0) | (bits == 16 ? IMAGE_NOTE_BITS_REDUCED : 0));
        assert_int_equal(again->channels, channels);
        const uint8_t *row = image_view(again).data + 10 * 48 * channels;
        assert_true(abs(row[8 * channels] - (alpha ? 255 : 64)) <= 2);
        assert_true(abs(row[24 * channels] - (alpha ? 160 : 64)) <= 2);
        assert_true(abs(row[40 * channels] - 64) <= 2);
        image_destroy(&image);
        image_destroy(&again);
        checkpoint_free(&file);
    }
}

static void quality_and_level_count(void **state)
{
    (void)state;
    struct image *image = NULL;
    struct error err = ERROR_INIT;
    struct codec_output low, high, zero;
    assert_int_equal(image_create(&image, 120, 90, 3, 8, false, &err), OK);
    picture_fill(image_view(image), 3);
    assert_int_equal(
        codec_encode(image, IMAGE_JPEG, (struct codec_options){.quality = 10, .png_level = -1}, &low, &err), OK);
    assert_int_equal(
        codec_encode(image, IMAGE_JPEG, (struct codec_options){.quality = 100, .png_level = -1}, &high, &err), OK);
    assert_int_equal(
        codec_encode(image, IMAGE_JPEG, (struct codec_options){.quality = 0, .png_level = -1}, &zero, &err), OK);
    assert_true(low.size < zero.size && zero.size < high.size);
    free(low.bytes);
    free(high.bytes);
    free(zero.bytes);
    assert_int_equal(codec_encode(image, IMAGE_PNG, (struct codec_options){.quality = 95, .png_level = 0}, &zero, &err),
                     OK);
    assert_int_equal(codec_encode(image, IMAGE_PNG, (struct codec_options){.quality = 95, .png_level = 9}, &high, &err),
                     OK);
    assert_true(high.size < zero.size && zero.size > 120 * 90 * 3);
    free(zero.bytes);
    free(high.bytes);
    assert_int_equal(
        codec_encode(image, IMAGE_JPEG, (struct codec_options){.quality = 101, .png_level = -1}, &zero, &err),
        ERROR_INVALID);
    error_clear(&err);
    assert_int_equal(
        codec_encode(image, IMAGE_HEIC, (struct codec_options){.quality = 95, .png_level = -1}, &zero, &err),
        ERROR_UNSUPPORTED);
    assert_null(zero.bytes);
    image_destroy(&image);
    error_clear(&err);
    assert_int_equal(image_create(&image, codec_max_side(IMAGE_JPEG) + 1, 1, 3, 8, false, &err), OK);
    assert_int_equal(
        codec_encode(image, IMAGE_JPEG, (struct codec_options){.quality = 95, .png_level = -1}, &zero, &err),
        ERROR_TOO_LARGE);
    image_destroy(&image);
    assert_int_equal(codec_max_side(IMAGE_HEIC), 0);
    assert_string_equal(codec_extension(IMAGE_JPEG), "jpg");
    assert_string_equal(codec_media_type(IMAGE_PNG), "image/png");
}

static void the_photos_are_read(void **state)
{
    (void)state;
    picture_need_shared();
    DIR *folder = opendir(shared_path("photos"));
    assert_non_null(folder);
    int read = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        const char *dot = strrchr(entry->d_name, '.');
        if (!dot || (strcmp(dot, ".jpg") && strcmp(dot, ".png")))
            continue;
        struct image *image = picture_load(shared_path("photos/%s", entry->d_name));
        struct error err = ERROR_INIT;
        int bits = image->bits, channels = image->channels;
        bool alpha = image->alpha != NULL;
        assert_int_equal(alpha, strstr(entry->d_name, "alpha") != NULL);
        assert_int_equal(bits, strstr(entry->d_name, "16bit") ? 16 : 8);
        assert_int_equal(channels, strstr(entry->d_name, "gray") ? 1 : 3);
        assert_int_equal(image_reduce(image, false, &err), OK);
        image_destroy(&image);
        read++;
    }
    closedir(folder);
    assert_true(read >= 12);
}

/* One pixel of value 55 (0.216 of linear light) with the given gAMA, and an sRGB chunk or none. */
static int png_with_gamma(uint32_t gamma, bool srgb, unsigned *notes)
{
    static const uint8_t row[4] = {0, 55, 55, 55};
    uint8_t packed[64],
        value[4] = {(uint8_t)(gamma >> 24), (uint8_t)(gamma >> 16), (uint8_t)(gamma >> 8), (uint8_t)gamma};
    uLongf size = sizeof packed;
    struct checkpoint_buffer file = picture_writer_header(1, 1);
    struct codec_info info;
    assert_int_equal(compress(packed, &size, row, sizeof row), Z_OK);
    if (srgb)
        picture_writer_chunk(&file, "sRGB", "\0", 1);
    picture_writer_chunk(&file, "gAMA", value, sizeof value);
    picture_writer_chunk(&file, "IDAT", packed, size);
    picture_writer_chunk(&file, "IEND", "", 0);
    struct image *image = picture_must_decode(&file, &info);
    int got = *(const uint8_t *)image->pixels;
    *notes = image->notes;
    image_destroy(&image);
    checkpoint_free(&file);
    return got;
}

static void a_png_in_linear_light_is_converted(void **state)
{
    (void)state;
    unsigned notes;
    assert_in_range(png_with_gamma(100000, false, &notes), 126, 128); /* 0.216^(1/2.2) = 0.498 */
    assert_int_equal(notes, IMAGE_NOTE_GAMMA);
    assert_int_equal(png_with_gamma(45455, false, &notes), 55);
    assert_int_equal(notes, 0);
    assert_int_equal(png_with_gamma(100000, true, &notes), 55); /* sRGB overrules */
    assert_int_equal(png_with_gamma(1, false, &notes), 55);     /* nonsense */
    assert_int_equal(png_with_gamma(0, false, &notes), 55);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jpegs_of_every_kind_are_read),
        cmocka_unit_test(jpegs_are_turned_upright),
        cmocka_unit_test(pngs_of_every_kind_are_read),
        cmocka_unit_test(pngs_are_turned_upright),
        cmocka_unit_test(metadata_survives_both_formats),
        cmocka_unit_test(metadata_too_large_for_jpeg_is_noted),
        cmocka_unit_test(a_png_in_linear_light_is_converted),
        cmocka_unit_test(png_is_lossless),
        cmocka_unit_test(jpeg_is_close_flattens_and_says_so),
        cmocka_unit_test(quality_and_level_count),
        cmocka_unit_test(the_photos_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
