#include "tests/common/picture_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/common/picture.h"
#include "tests/common/picture_writer.h"

enum error_code picture_decode(const void *data, size_t size, struct image **out, struct codec_info *info,
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

struct image *picture_must_decode(const struct checkpoint_buffer *file, struct codec_info *info)
{
    struct image *image;
    struct error err = ERROR_INIT;
    if (picture_decode(file->data, file->size, &image, info, &err) != OK)
        fail_msg("%s", err.text);
    return image;
}

struct checkpoint_buffer picture_small_jpeg(size_t kind, int width, int height)
{
    static uint8_t pixels[64 * 64 * 4];
    int channels = picture_jpeg_kinds[kind].channels;
    const struct view_u8 view = {pixels, width, height, channels, (size_t)(width * channels)};
    picture_fill(view, 9);
    return picture_writer_jpeg(&picture_jpeg_kinds[kind], view, NULL, 0);
}

size_t picture_orientation_block(uint8_t out[26], int orientation)
{
    static const uint8_t tiff[26] = {'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1};
    memcpy(out, tiff, 26);
    out[19] = (uint8_t)orientation;
    return 26;
}

struct image *picture_with_metadata(bool alpha, int bits)
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
    assert_int_equal(image_blob_set(&image->exif, tiff, picture_orientation_block(tiff, 1), &err), OK);
    assert_int_equal(image_blob_set(&image->xmp, "<x:xmpmeta>\xc3\xa4</x:xmpmeta>", 25, &err), OK);
    return image;
}

/* A header and one tag. Its text does not pack: libpng calls a chunk under 92 bytes too short. */
void picture_add_profile(struct image *image, const char *space)
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

struct checkpoint_buffer picture_must_encode(const struct image *image, enum image_format format, unsigned *notes)
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
