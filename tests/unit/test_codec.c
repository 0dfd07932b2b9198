/* Picture files: every kind that libjpeg and libpng can write for us, what is kept and noted, limits, and damage. */
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

#include "runtime/base/file.h"
#include "server/image/codec.h"
#include "server/image/exif.h"
#include "tests/common/checkpoint_writer.h"
#include "tests/common/picture.h"
#include "tests/common/picture_writer.h"
#include "tests/common/shared.h"

static enum error_code decode(const void *data, size_t size, struct image **out, struct codec_info *info,
                              struct error *err)
{
    uint8_t *copy = malloc(size + !size); /* its exact size, so that the sanitizers see a read beyond */
    memcpy(copy, data, size);
    enum error_code code = codec_decode(copy, size, 4000000, out, info, err);
    free(copy);
    assert_true((code == OK) == (*out != NULL));
    assert_true((code == OK) == (err->code == OK));
    return code;
}

static struct image *must_decode(const struct checkpoint_buffer *file, struct codec_info *info)
{
    struct image *image;
    struct error err = ERROR_INIT;
    if (decode(file->data, file->size, &image, info, &err) != OK)
        fail_msg("%s", err.text);
    return image;
}

/* ---- JPEG ---- */

static void fill_flat(struct view_u8 view, const uint8_t colour[])
{
    for (int y = 0; y < view.height; y++)
        for (int x = 0; x < view.width * view.channels; x++)
            view.data[(size_t)y * view.stride + (size_t)x] = colour[x % view.channels];
}

static struct checkpoint_buffer small_jpeg(size_t kind, int width, int height)
{
    static uint8_t pixels[64 * 64 * 4];
    int channels = picture_jpeg_kinds[kind].channels;
    const struct view_u8 view = {pixels, width, height, channels, (size_t)(width * channels)};
    picture_fill(view, 9);
    return picture_writer_jpeg(&picture_jpeg_kinds[kind], view, NULL, 0);
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
        struct image *image = must_decode(&file, &info);
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

static size_t orientation_block(uint8_t out[26], int orientation)
{
    static const uint8_t tiff[26] = {'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1};
    memcpy(out, tiff, 26);
    out[19] = (uint8_t)orientation;
    return 26;
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
        struct checkpoint_buffer file =
            picture_writer_jpeg(&picture_jpeg_kinds[3], image_view(stored), tiff, orientation_block(tiff, orientation));
        struct codec_info info;
        image = must_decode(&file, &info);
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
    struct image *image = must_decode(&file, &info);
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

static struct image *with_metadata(bool alpha, int bits)
{
    struct image *image = NULL;
    struct error err = ERROR_INIT;
    uint8_t tiff[26];
    assert_int_equal(image_create(&image, 40, 30, 3, bits, alpha, &err), OK);
    unsigned seed = 1;
    for (int i = 0; i < 40 * 30 * 3 * bits / 8; i++)
        ((uint8_t *)image->pixels)[i] = (uint8_t)picture_random(&seed);
    for (int i = 0; alpha && i < 40 * 30 * bits / 8; i++)
        ((uint8_t *)image->alpha)[i] = (uint8_t)picture_random(&seed);
    assert_int_equal(image_blob_set(&image->exif, tiff, orientation_block(tiff, 1), &err), OK);
    assert_int_equal(image_blob_set(&image->xmp, "<x:xmpmeta>\xc3\xa4</x:xmpmeta>", 25, &err), OK);
    return image;
}

/* A header and one tag. Its text does not pack: libpng calls a chunk under 92 bytes too short. */
static void add_profile(struct image *image, const char *space)
{
    uint8_t icc[300] = {0};
    struct error err = ERROR_INIT;
    unsigned seed = 8;
    icc[2] = 300 >> 8;
    icc[3] = 300 & 255;
    icc[8] = 2;
    memcpy(icc + 12, "mntr", 4);
    memcpy(icc + 16, space, 4);
    memcpy(icc + 20, "XYZ ", 4);
    memcpy(icc + 36, "acsp", 4);
    memcpy(icc + 68, "\0\0\xf6\xd6\0\1\0\0\0\0\xd3\x2d", 12); /* D50 */
    icc[131] = 1;
    memcpy(icc + 132, "desc", 4);
    icc[139] = 144;
    icc[143] = 156;
    for (int i = 144; i < 300; i++)
        icc[i] = (uint8_t)picture_random(&seed);
    memcpy(icc + 156, "sRGB", 4);
    assert_int_equal(image_blob_set(&image->icc, icc, sizeof icc, &err), OK);
}

static struct checkpoint_buffer must_encode(const struct image *image, enum image_format format, unsigned *notes)
{
    struct codec_output out;
    struct error err = ERROR_INIT;
    struct checkpoint_buffer file = {0};
    if (codec_encode(image, format, (struct codec_options)CODEC_OPTIONS_INIT, &out, &err) != OK)
        fail_msg("%s", err.text);
    checkpoint_put(&file, out.bytes, out.size);
    free(out.bytes);
    *notes = out.notes;
    return file;
}

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
        struct image *image = with_metadata(false, 8);
        unsigned notes;
        add_profile(image, "RGB ");
        struct checkpoint_buffer file = must_encode(image, format, &notes);
        struct image *again = must_decode(&file, NULL);
        assert_int_equal(notes, 0);
        assert_same_blob(&image->icc, &again->icc);
        assert_same_blob(&image->exif, &again->exif);
        assert_same_blob(&image->xmp, &again->xmp);
        image_destroy(&again);
        checkpoint_free(&file);
        free(image->icc.data);
        image->icc = (struct image_blob){0};
        add_profile(image, "GRAY"); /* says nothing about RGB */
        file = must_encode(image, format, &notes);
        again = must_decode(&file, NULL);
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
    struct image *image = with_metadata(false, 8);
    struct error err = ERROR_INIT;
    static uint8_t large[70000];
    unsigned notes;
    free(image->xmp.data);
    free(image->exif.data);
    image->xmp = image->exif = (struct image_blob){0};
    memset(large, 'x', sizeof large);
    assert_int_equal(image_blob_set(&image->xmp, large, sizeof large, &err), OK);
    assert_int_equal(image_blob_set(&image->exif, large, sizeof large, &err), OK);
    struct checkpoint_buffer file = must_encode(image, IMAGE_JPEG, &notes);
    struct image *again = must_decode(&file, NULL);
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
        picture_writer_chunk(&file, "eXIf", tiff, orientation_block(tiff, orientation));
        picture_writer_chunk(&file, "IEND", "", 0);
        struct image *image = must_decode(&file, &info);
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
        struct checkpoint_buffer file = must_encode(image, IMAGE_PNG, &notes);
        struct image *again = must_decode(&file, NULL);
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
        struct checkpoint_buffer file = must_encode(image, IMAGE_JPEG, &notes);
        struct image *again = must_decode(&file, NULL);
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

/* ---- limits and damage ---- */

static void expect(const void *data, size_t size, enum error_code code, const char *words)
{
    struct image *image;
    struct error err = ERROR_INIT;
    assert_int_equal(decode(data, size, &image, NULL, &err), code);
    if (!strstr(err.text, words))
        fail_msg("\"%s\" lacks \"%s\"", err.text, words);
}

static void what_is_no_picture_is_said(void **state)
{
    (void)state;
    expect("", 0, ERROR_UNSUPPORTED, "empty");
    expect("hello, I am a text", 18, ERROR_UNSUPPORTED, "this is text");
    expect("\1\2\3\4\5", 5, ERROR_UNSUPPORTED, "not a picture that can be read; use a JPEG or PNG");
    /* words for the command line as well as for HTTP */
    expect("PK\3\4abcdefgh", 12, ERROR_UNSUPPORTED, "this is a ZIP archive; unpack it and use the pictures in it");
    expect("GIF89a", 6, ERROR_UNSUPPORTED, "this is a GIF, which cannot be read yet; export it as JPEG or PNG");
    expect("\xff\xd8\xff", 3, ERROR_CORRUPT, "cut short");
    expect("\x89PNG\r\n\x1a\n", 8, ERROR_CORRUPT, "cut short");
}

static void limits_hold_before_decoding(void **state)
{
    (void)state;
    struct checkpoint_buffer file = picture_writer_header(60000, 60000);
    struct codec_info info;
    struct error err = ERROR_INIT;
    assert_int_equal(codec_probe(file.data, file.size, &info, &err), OK);
    assert_int_equal(info.width, 60000);
    expect(file.data, file.size, ERROR_TOO_LARGE, "60000×60000");
    checkpoint_free(&file);
    file = picture_writer_header(0, 5);
    expect(file.data, file.size, ERROR_CORRUPT, "header");
    checkpoint_free(&file);
    file = picture_writer_header(0x80000000u, 5);
    expect(file.data, file.size, ERROR_CORRUPT, "header");
    checkpoint_free(&file);
    file = small_jpeg(0, 16, 16);
    for (size_t i = 0; i + 9 < file.size; i++)
        if (file.data[i] == 0xff && file.data[i + 1] == 0xc0) {
            memcpy(file.data + i + 5, "\xea\x60\xea\x60", 4); /* 60000×60000 */
            expect(file.data, file.size, ERROR_TOO_LARGE, "60000×60000");
            memcpy(file.data + i + 5, "\xff\xff\xff\xff", 4); /* over libjpeg's own */
            expect(file.data, file.size, ERROR_TOO_LARGE, "65500");
            memcpy(file.data + i + 4, "\x0c\0\x10\0\x10", 5); /* 12 bit, 16×16 */
            expect(file.data, file.size, ERROR_UNSUPPORTED, "not supported");
        }
    checkpoint_free(&file);
}

/* Every shorter file is an error; a file with a byte changed is an error or a picture of some size, never a crash. */
/* What is left of a damaged file: some of its rows, or none and an error. */
static void salvage(const uint8_t *bytes, size_t size)
{
    struct image *image;
    struct error err = ERROR_INIT;
    struct codec_damage left;
    uint8_t *copy = malloc(size ? size : 1); /* of its size, for ASan */
    memcpy(copy, bytes, size);
    enum error_code code = codec_decode_page(copy, size, 1, 4000000, &image, NULL, &left, &err);
    free(copy);
    if (code) {
        assert_null(image);
        assert_true(err.text[0]);
        return;
    }
    assert_true(left.good <= left.rows && (left.rows == 0 || left.good > 0));
    unsigned sum = 0; /* all of it is there, for ASan and valgrind */
    for (size_t i = 0; i < (size_t)image->width * (size_t)image->height * (size_t)image->channels; i++)
        sum += ((const uint8_t *)image->pixels)[i];
    assert_true(sum + 1 > 0);
    image_destroy(&image);
}

static void damage(const struct checkpoint_buffer *file)
{
    for (size_t cut = 0; cut < file->size; cut++) {
        struct image *image;
        struct error err = ERROR_INIT;
        enum error_code code = decode(file->data, cut, &image, NULL, &err);
        if (code != ERROR_CORRUPT && !(code == ERROR_UNSUPPORTED && cut < 8))
            fail_msg("cut at %zu of %zu: %d %s", cut, file->size, code, err.text);
        image_destroy(&image);
        salvage(file->data, cut);
    }
    uint8_t *copy = malloc(file->size);
    for (size_t i = 0; i < file->size; i++)
        for (int k = 0; k < 3; k++) {
            struct image *image;
            struct error err = ERROR_INIT;
            memcpy(copy, file->data, file->size);
            copy[i] = (uint8_t)(k == 0 ? copy[i] ^ 1 : k == 1 ? 0xff : 0);
            enum error_code code = decode(copy, file->size, &image, NULL, &err);
            assert_true(code == OK || err.text[0]);
            image_destroy(&image);
            salvage(copy, file->size);
        }
    free(copy);
}

static void damaged_jpegs_are_errors(void **state)
{
    (void)state;
    for (size_t k = 0; k < PICTURE_JPEG_KINDS; k++) {
        struct checkpoint_buffer file = small_jpeg(k, 19, 11);
        damage(&file);
        checkpoint_free(&file);
    }
}

static void damaged_pngs_are_errors(void **state)
{
    (void)state;
    static const struct picture_png kinds[] = {{PNG_COLOR_TYPE_RGB, 8, false, false},
                                               {PNG_COLOR_TYPE_PALETTE, 4, true, true},
                                               {PNG_COLOR_TYPE_RGB_ALPHA, 16, false, true},
                                               {PNG_COLOR_TYPE_GRAY, 1, true, false}};
    uint8_t rows[64 * 40];
    unsigned seed = 2;
    for (size_t i = 0; i < sizeof rows; i++)
        rows[i] = (uint8_t)(picture_random(&seed) & 0x33);
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        struct checkpoint_buffer file = picture_writer_png(&kinds[k], 5, 7, rows, 40);
        damage(&file);
        file.data[file.size - 20] ^= 1; /* within IDAT: its CRC tells */
        expect(file.data, file.size, ERROR_CORRUPT, "damaged");
        checkpoint_free(&file);
    }
    unsigned notes;
    struct image *image = with_metadata(true, 8);
    add_profile(image, "RGB ");
    struct checkpoint_buffer file = must_encode(image, IMAGE_PNG, &notes);
    for (size_t cut = 0; cut < file.size; cut += 3)
        expect(file.data, cut, cut < 8 ? ERROR_UNSUPPORTED : ERROR_CORRUPT, "");
    checkpoint_free(&file);
    image_destroy(&image);
}

static void harmless_oddities_pass(void **state)
{
    (void)state;
    struct checkpoint_buffer file = small_jpeg(0, 24, 24), odd = {0};
    checkpoint_put(&odd, file.data, file.size - 2);
    checkpoint_put(&odd, "\0\0\0\0\0", 5); /* some cameras pad so, before the end marker */
    checkpoint_put(&odd, "\xff\xd9trailing bytes", 16);
    struct image *image = must_decode(&odd, NULL);
    image_destroy(&image);
    checkpoint_free(&file);
    checkpoint_free(&odd);
}

/* A small file with very many scans keeps a decoder busy for long. */
static void a_scan_bomb_is_refused(void **state)
{
    (void)state;
    struct checkpoint_buffer file = small_jpeg(8, 64, 64), bomb = {0};
    size_t start = 0, end = 0;
    for (size_t i = 0; i + 1 < file.size; i++)
        if (file.data[i] == 0xff && file.data[i + 1] == 0xda) {
            end = start ? i : 0;
            if (end)
                break;
            start = i;
        }
    assert_true(start && end);
    checkpoint_put(&bomb, file.data, start);
    for (int i = 0; i < 600; i++)
        checkpoint_put(&bomb, file.data + start, end - start);
    checkpoint_put(&bomb, file.data + end, file.size - end);
    expect(bomb.data, bomb.size, ERROR_CORRUPT, "");
    checkpoint_free(&file);
    checkpoint_free(&bomb);
}

/* Chunks that unpack to far more than they are cost nothing: skipped, or refused by their size. */
static void chunk_bombs_are_harmless(void **state)
{
    (void)state;
    uLongf size = compressBound(100 << 20);
    uint8_t *zeros = calloc(100 << 20, 1), *packed = malloc(size);
    assert_int_equal(compress2(packed, &size, zeros, 100 << 20, 9), Z_OK);
    free(zeros);
    static const struct {
        const char *name, *head;
        size_t head_size;
    } bombs[] = {{"zTXt", "Comment\0", 9}, {"iTXt", "XML:com.adobe.xmp\0\1\0\0", 22}, {"iCCP", "profile\0", 9}};
    for (size_t k = 0; k < 3; k++) {
        struct checkpoint_buffer file = picture_writer_header(2, 1), body = {0};
        checkpoint_put(&body, bombs[k].head, bombs[k].head_size);
        checkpoint_put(&body, packed, size);
        for (int i = 0; i < 20; i++)
            picture_writer_chunk(&file, bombs[k].name, body.data, body.size);
        uint8_t idat[40];
        uLongf idat_size = sizeof idat;
        assert_int_equal(compress(idat, &idat_size, (const uint8_t *)"\0abcdef", 7), Z_OK);
        picture_writer_chunk(&file, "IDAT", idat, idat_size);
        picture_writer_chunk(&file, "IEND", "", 0);
        struct image *image = must_decode(&file, NULL);
        assert_memory_equal(image->pixels, "abcdef", 6);
        assert_null(image->xmp.data);
        assert_null(image->icc.data);
        image_destroy(&image);
        checkpoint_free(&file);
        checkpoint_free(&body);
    }
    free(packed);
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
    struct image *image = must_decode(&file, &info);
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
        cmocka_unit_test(what_is_no_picture_is_said),
        cmocka_unit_test(limits_hold_before_decoding),
        cmocka_unit_test(damaged_jpegs_are_errors),
        cmocka_unit_test(damaged_pngs_are_errors),
        cmocka_unit_test(harmless_oddities_pass),
        cmocka_unit_test(a_scan_bomb_is_refused),
        cmocka_unit_test(chunk_bombs_are_harmless),
        cmocka_unit_test(the_photos_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
