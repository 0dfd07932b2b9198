/* A JPEG written in strips: the pixels, tables and metadata of one that libjpeg writes in one piece. */
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
#include "server/image/cmyk.h"
#include "server/image/codec.h"
#include "tests/common/picture.h"

struct piece {
    unsigned char *bytes;
    unsigned long size;
};

/* libjpeg's own file, halved: with its default sampling of chroma; it ends the program where it cannot. */
static struct piece one_piece(const struct image *image, int quality, bool halved)
{
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct piece out = {0};
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_mem_dest(&jpeg, &out.bytes, &out.size);
    jpeg.image_width = (JDIMENSION)image->width;
    jpeg.image_height = (JDIMENSION)image->height;
    jpeg.input_components = image->channels;
    jpeg.in_color_space = image->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, quality, TRUE);
    if (!halved)
        jpeg.comp_info[0].h_samp_factor = jpeg.comp_info[0].v_samp_factor = 1; /* the others' are */
    jpeg_start_compress(&jpeg, TRUE);
    for (int y = 0; y < image->height; y++) {
        JSAMPROW row = (JSAMPROW)image->pixels + (size_t)y * (size_t)image->width * (size_t)image->channels;
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    return out;
}

static struct image *made(int width, int height, int channels)
{
    struct image *image;
    struct error err = ERROR_INIT;
    assert_int_equal(image_create(&image, width, height, channels, 8, false, &err), OK);
    picture_fill(image_view(image), (unsigned)(width + height));
    return image;
}

static struct codec_output encoded(const struct image *image, int quality, bool halved)
{
    struct codec_output out;
    struct error err = ERROR_INIT;
    if (codec_encode(image, IMAGE_JPEG, (struct codec_options){.quality = quality, .png_level = -1, .halved = halved},
                     &out, &err))
        fail_msg("%s", err.text);
    return out;
}

static struct image *decoded(const uint8_t *bytes, size_t size)
{
    struct image *image;
    struct error err = ERROR_INIT;
    if (codec_decode(bytes, size, 0, &image, NULL, &err))
        fail_msg("%s", err.text);
    return image;
}

struct markers {
    int interval, restarts;
    size_t bytes; /* of the file without the zeros that stand after 0xff in data: by chance, more or fewer */
};

/* Segments up to the scan, then data in which 0xff stands before a zero or a restart marker, whose numbers count round
 * (ITU-T T.81, B.1). */
static struct markers read_markers(const uint8_t *file, size_t size)
{
    struct markers found = {.bytes = size};
    size_t at = 2;
    assert_true(size > 4 && file[0] == 0xff && file[1] == 0xd8);
    for (bool scan = false; !scan; at += 2 + (size_t)(file[at + 2] << 8 | file[at + 3])) {
        assert_true(at + 4 < size && file[at] == 0xff);
        scan = file[at + 1] == 0xda;
        if (file[at + 1] == 0xdd)
            found.interval = file[at + 4] << 8 | file[at + 5];
    }
    for (; at + 2 < size; at++) {
        if (file[at] != 0xff)
            continue;
        if (file[++at] == 0)
            found.bytes--;
        else
            assert_int_equal(file[at], 0xd0 + found.restarts++ % 8);
    }
    assert_true(at == size - 2 && file[at] == 0xff && file[at + 1] == 0xd9);
    return found;
}

/* Of chroma all is kept from quality 90 on, unless the reference's sampling is asked for. */
static void check_sampling(int width, int height, int channels, int quality, bool strips, bool reference)
{
    const bool halved = channels > 1 && (reference || quality < 90);
    struct image *image = made(width, height, channels), *a, *b;
    struct piece whole = one_piece(image, quality, halved);
    struct codec_output out[2];
    size_t differing;
    int block = halved ? 16 : 8;
    for (int t = 0; t < 2; t++) {
        thread_set_count(t ? 5 : 1);
        out[t] = encoded(image, quality, reference);
    }
    thread_set_count(0);
    assert_int_equal(out[0].size, out[1].size);
    assert_memory_equal(out[0].bytes, out[1].bytes, out[0].size);
    assert_int_equal(out[0].notes, 0);
    struct markers found = read_markers(out[0].bytes, out[0].size), expected = read_markers(whole.bytes, whole.size);
    int units = ((width + block - 1) / block) * ((height + block - 1) / block), restarts = found.restarts;
    assert_int_equal(restarts, found.interval ? (units - 1) / found.interval : 0);
    assert_int_equal(restarts > 0, strips);
    if (restarts == 0) {
        assert_int_equal(out[0].size, whole.size);
        assert_memory_equal(out[0].bytes, whole.bytes, whole.size);
    }
    /* The interval's segment; of each strip two bytes of marker, some bits to its end, and three predictions from 0. */
    assert_true(found.bytes <= expected.bytes + (restarts ? 6 : 0) + 10 * (size_t)restarts);
    a = decoded(out[0].bytes, out[0].size);
    b = decoded(whole.bytes, whole.size);
    assert_int_equal(a->width, width);
    assert_int_equal(a->height, height);
    assert_int_equal(a->channels, channels);
    picture_difference(image_view(a), image_view(b), &differing);
    assert_int_equal(differing, 0);
    image_destroy(&a);
    image_destroy(&b);
    image_destroy(&image);
    free(whole.bytes);
    free(out[0].bytes);
    free(out[1].bytes);
}

static void check_size(int width, int height, int channels, int quality, bool strips)
{
    check_sampling(width, height, channels, quality, strips, false);
}

static void strips_decode_as_one_piece_does(void **state)
{
    (void)state;
    check_size(1, 1, 3, 95, false);
    check_size(17, 9, 1, 95, false);
    check_size(300, 200, 3, 95, false);
    check_size(1000, 700, 3, 95, true);
    check_size(999, 701, 3, 30, true); /* no side a multiple of anything */
    check_size(1001, 699, 1, 95, true);
    check_size(2048, 1536, 3, 100, true);
    check_size(999, 701, 3, 90, true);
    check_size(999, 701, 3, 89, true);
    check_sampling(999, 701, 3, 95, true, true);
    check_size(65500, 33, 3, 75, true); /* a strip is one row of MCUs */
    check_size(65500, 17, 1, 75, true);
    check_size(16, 40000, 3, 75, true);  /* few MCUs a row */
    check_size(700, 13000, 3, 50, true); /* more strips than are in memory at once */
}

/* ICC, EXIF and XMP stand once, before the first strip; 16 bit and alpha are reduced in each. */
static void metadata_and_alpha_go_with_strips(void **state)
{
    (void)state;
    struct image *image, *back, *flat;
    struct error err = ERROR_INIT;
    size_t differing;
    enum { W = 800, H = 640 };
    uint8_t icc[200000] = {0};
    memcpy(icc + 16, "RGB ", 4);
    memcpy(icc + 36, "acsp", 4);
    icc[131] = 1; /* a tag: what it is called */
    memcpy(icc + 132, "desc", 4);
    icc[139] = 144;
    icc[143] = 16;
    memcpy(icc + 150, "sRGB", 4);
    icc[sizeof icc - 1] = 7;
    assert_int_equal(image_create(&image, W, H, 3, 16, true, &err), OK);
    assert_int_equal(image_create(&flat, W, H, 3, 8, false, &err), OK);
    for (int i = 0; i < W * H; i++) {
        ((uint16_t *)image->alpha)[i] = i % 5 ? 65535 : 0;
        for (int c = 0; c < 3; c++) {
            uint8_t v = (uint8_t)(i / W / 3 + i % W / 7 + 20 * c);
            ((uint16_t *)image->pixels)[3 * i + c] = (uint16_t)(v * 257);
            ((uint8_t *)flat->pixels)[3 * i + c] = i % 5 ? v : 255;
        }
    }
    assert_int_equal(image_blob_set(&image->icc, icc, sizeof icc, &err), OK);
    assert_int_equal(image_blob_set(&image->exif, "II*\0\10\0\0\0\0\0", 10, &err), OK);
    assert_int_equal(image_blob_set(&image->xmp, "<x/>", 4, &err), OK);
    struct codec_output out = encoded(image, 90, false);
    assert_int_equal(out.notes, IMAGE_NOTE_FLATTENED | IMAGE_NOTE_BITS_REDUCED);
    back = decoded(out.bytes, out.size);
    assert_int_equal(back->icc.size, sizeof icc);
    assert_memory_equal(back->icc.data, icc, sizeof icc);
    assert_int_equal(back->exif.size, 10);
    assert_int_equal(back->xmp.size, 4);
    struct piece whole = one_piece(flat, 90, false);
    struct image *expected = decoded(whole.bytes, whole.size);
    picture_difference(image_view(back), image_view(expected), &differing);
    assert_int_equal(differing, 0);
    image_destroy(&image);
    image_destroy(&flat);
    image_destroy(&back);
    image_destroy(&expected);
    free(whole.bytes);
    free(out.bytes);
}

/* The same pixels, in scans (SOF2; ITU-T T.81, table B.1) and fewer bytes. */
static void progressive_has_the_same_pixels(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    for (int channels = 1; channels <= 3; channels += 2) {
        struct image *image = made(999, 701, channels), *a, *b;
        struct codec_output scans, plain = encoded(image, 90, false);
        size_t differing;
        const struct codec_options options = {.quality = 90, .png_level = -1, .progressive = true};
        assert_int_equal(codec_encode(image, IMAGE_JPEG, options, &scans, &err), OK);
        assert_int_equal(scans.notes, 0);
        assert_true(scans.size < plain.size);
        assert_non_null(memmem(scans.bytes, 1000, "\xff\xc2\0", 3));
        assert_null(memmem(plain.bytes, 1000, "\xff\xc2\0", 3));
        a = decoded(scans.bytes, scans.size);
        b = decoded(plain.bytes, plain.size);
        picture_difference(image_view(a), image_view(b), &differing);
        assert_int_equal(differing, 0);
        image_destroy(&a);
        image_destroy(&b);
        image_destroy(&image);
        free(scans.bytes);
        free(plain.bytes);
    }
}

/* What Adobe's marker says of the components: 0: they are inks, 2: YCCK. */
static int adobe_transform(const struct codec_output *file)
{
    static const unsigned char marker[] = {0xff, 0xee, 0, 14, 'A', 'd', 'o', 'b', 'e'};
    const unsigned char *found = memmem(file->bytes, file->size, marker, sizeof marker);
    assert_non_null(found);
    return found[15];
}

/* With all chroma, inks go in as they are; else as YCCK. */
static void inks_are_ycck_where_chroma_is_halved(void **state)
{
    (void)state;
    struct image *image = made(999, 301, 3);
    image->cmyk.size = sizeof(struct cmyk_table) + 128; /* no ink, and a profile */
    image->cmyk.data = calloc(image->cmyk.size, 1);
    assert_non_null(image->cmyk.data);
    assert_true(cmyk_known(image));
    for (int quality = 89; quality <= 100; quality += quality < 91 ? 1 : 9) {
        const int block = quality < 90 ? 16 : 8;
        struct codec_output file = encoded(image, quality, false);
        const struct markers found = read_markers(file.bytes, file.size);
        assert_int_equal(adobe_transform(&file), quality < 90 ? 2 : 0);
        assert_int_equal(found.restarts,
                         ((999 + block - 1) / block * ((301 + block - 1) / block) - 1) / found.interval);
        free(file.bytes);
    }
    image_destroy(&image);
}

/* Its coefficients would take too much memory. */
static void a_large_one_stays_baseline(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct image *image;
    struct codec_output out;
    const struct codec_options options = {.quality = 10, .png_level = -1, .progressive = true};
    assert_int_equal(image_create(&image, 64000, CODEC_PROGRESSIVE_MOST / 64000 + 1, 1, 8, false, &err), OK);
    memset(image->pixels, 128, 64000 * (size_t)image->height);
    assert_int_equal(codec_encode(image, IMAGE_JPEG, options, &out, &err), OK);
    assert_int_equal(out.notes, IMAGE_NOTE_BASELINE);
    assert_null(memmem(out.bytes, 1000, "\xff\xc2\0", 3));
    image_destroy(&image);
    free(out.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strips_decode_as_one_piece_does), cmocka_unit_test(metadata_and_alpha_go_with_strips),
        cmocka_unit_test(progressive_has_the_same_pixels), cmocka_unit_test(inks_are_ycck_where_chroma_is_halved),
        cmocka_unit_test(a_large_one_stays_baseline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
