/* Pictures made to cost much or to mislead: what they hold is bounded before a library sees it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zlib.h>

#include "server/image/codec.h"
#include "server/image/exif.h"
#include "server/image/icc.h"
#include "server/image/jpeg_header.h"
#include "tests/common/picture.h"
#include "tests/common/picture_writer.h"

static struct checkpoint_buffer small_jpeg(void)
{
    static uint8_t pixels[16 * 16 * 3];
    const struct view_u8 view = {pixels, 16, 16, 3, 16 * 3};
    picture_fill(view, 9);
    return picture_writer_jpeg(&picture_jpeg_kinds[0], view, NULL, 0);
}

static struct image *must_decode(const struct checkpoint_buffer *file)
{
    struct image *image;
    struct error err = ERROR_INIT;
    if (codec_decode(file->data, file->size, 0, &image, NULL, &err))
        fail_msg("%s", err.text);
    return image;
}

/* Both the probe, which runs on an HTTP thread, and the decoder refuse it. */
static void refused(const struct checkpoint_buffer *file, const char *words)
{
    struct image *image;
    struct codec_info info;
    struct error err = ERROR_INIT;
    assert_int_equal(codec_probe(file->data, file->size, &info, &err), ERROR_CORRUPT);
    if (!strstr(err.text, words))
        fail_msg("\"%s\" lacks \"%s\"", err.text, words);
    error_clear(&err);
    assert_int_equal(codec_decode(file->data, file->size, 0, &image, NULL, &err), ERROR_CORRUPT);
}

/* libjpeg's list of saved segments takes time quadratic in their number: it gets no file with so many. */
static void a_crowd_of_segments_is_refused(void **state)
{
    (void)state;
    static const int counts[] = {4000, 5000, 60000, 1 << 20};
    struct checkpoint_buffer file = small_jpeg();
    for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
        struct checkpoint_buffer crowd = {0};
        checkpoint_put(&crowd, file.data, 2);
        for (int i = 0; i < counts[k]; i++)
            checkpoint_put(&crowd, k % 2 ? "\xff\xe1\0\2" : "\xff\xe2\0\2", 4);
        checkpoint_put(&crowd, file.data + 2, file.size - 2);
        if (k) {
            refused(&crowd, "more than 4096 segments");
        } else {
            struct image *image = must_decode(&crowd);
            image_destroy(&image);
        }
        checkpoint_free(&crowd);
    }
    struct checkpoint_buffer padded = {0};
    uint8_t *zeros = calloc(1, 2 << 20);
    checkpoint_put(&padded, file.data, 2);
    checkpoint_put(&padded, "\xff\xe1\0\2", 4);
    checkpoint_put(&padded, zeros, 2 << 20);
    checkpoint_put(&padded, file.data + 2, file.size - 2);
    refused(&padded, "belong to nothing");
    checkpoint_free(&padded);
    for (size_t more = 0; more < 2; more++) { /* the most that there may be, and one more */
        checkpoint_put(&padded, file.data, 2);
        checkpoint_put(&padded, "\xff\xe1\0\2", 4);
        checkpoint_put(&padded, zeros, JPEG_HEADER_STRAY + more);
        checkpoint_put(&padded, file.data + 2, file.size - 2);
        if (more) {
            refused(&padded, "belong to nothing");
        } else {
            struct image *image = must_decode(&padded);
            image_destroy(&image);
        }
        checkpoint_free(&padded);
    }
    free(zeros);
    checkpoint_free(&file);
}

/* A profile in parts, in any order; parts that do not fit together are no profile. */
static void a_profile_comes_in_parts(void **state)
{
    (void)state;
    static const struct {
        const char *parts[3]; /* number, count, bytes */
        const char *profile;
    } cases[] = {
        {{"\1\2ab", "\2\2cd"}, "abcd"},
        {{"\2\2cd", "\1\2ab"}, "abcd"},
        {{"\1\1abcd"}, "abcd"},
        {{"\1\2ab"}, NULL},
        {{"\1\2ab", "\1\2cd"}, NULL},
        {{"\1\2ab", "\2\3cd"}, NULL},
        {{"\3\2ab"}, NULL},
        {{"\1\2ab", "\2\2cd", "\2\2ef"}, NULL},
    };
    struct checkpoint_buffer file = small_jpeg();
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        struct checkpoint_buffer whole = {0};
        checkpoint_put(&whole, file.data, 2);
        for (int i = 0; i < 3 && cases[k].parts[i]; i++) {
            const size_t size = strlen(cases[k].parts[i]);
            const uint8_t head[4] = {0xff, 0xe2, 0, (uint8_t)(2 + 12 + size)};
            checkpoint_put(&whole, head, sizeof head);
            checkpoint_put(&whole, "ICC_PROFILE", 12);
            checkpoint_put(&whole, cases[k].parts[i], size);
        }
        checkpoint_put(&whole, file.data + 2, file.size - 2);
        struct image *image = must_decode(&whole);
        struct jpeg_header header;
        struct error err = ERROR_INIT;
        uint8_t *profile = NULL;
        size_t size = 0;
        assert_int_equal(jpeg_header_read(whole.data, whole.size, &header, &err), OK);
        assert_int_equal(jpeg_header_icc(&header, &profile, &size, &err), OK);
        assert_int_equal(size, cases[k].profile ? strlen(cases[k].profile) : 0);
        if (size)
            assert_memory_equal(profile, cases[k].profile, size);
        free(profile);
        assert_null(image->icc.data); /* none of them is one that can be read */
        image_destroy(&image);
        checkpoint_free(&whole);
    }
    checkpoint_free(&file);
}

/* An RGB picture of one pixel with what stands before and behind its pixels. */
static struct checkpoint_buffer small_png(const struct checkpoint_buffer *before,
                                          const struct checkpoint_buffer *behind)
{
    struct checkpoint_buffer file = picture_writer_header(1, 1);
    uint8_t packed[40];
    uLongf size = sizeof packed;
    assert_int_equal(compress(packed, &size, (const uint8_t *)"\0abc", 4), Z_OK);
    checkpoint_put(&file, before->data, before->size);
    picture_writer_chunk(&file, "IDAT", packed, size);
    checkpoint_put(&file, behind->data, behind->size);
    picture_writer_chunk(&file, "IEND", "", 0);
    return file;
}

static void a_crowd_of_chunks_is_refused(void **state)
{
    (void)state;
    for (int count = 60000; count <= 70000; count += 10000) {
        struct checkpoint_buffer crowd = {0}, none = {0};
        for (int i = 0; i < count; i++)
            picture_writer_chunk(&crowd, "prIv", "", 0);
        struct checkpoint_buffer file = small_png(&crowd, &none);
        if (count > 65536) {
            refused(&file, "more than 65536 chunks");
        } else {
            struct image *image = must_decode(&file);
            image_destroy(&image);
        }
        checkpoint_free(&crowd);
        checkpoint_free(&file);
    }
}

static void xmp_is_found_in_every_form(void **state)
{
    (void)state;
    static const char text[] = "<x:xmpmeta/>";
    uint8_t packed[64];
    uLongf packed_size = sizeof packed;
    assert_int_equal(compress(packed, &packed_size, (const uint8_t *)text, sizeof text - 1), Z_OK);
    static const struct {
        const char *head;
        size_t head_size;
        bool packed, found, noted;
    } cases[] = {
        {"XML:com.adobe.xmp\0\0\0\0\0", 22, false, true, false},
        {"XML:com.adobe.xmp\0\0\0en\0k\0", 25, false, true, false},
        {"XML:com.adobe.xmp\0\1\0\0\0", 22, true, true, false},
        {"XML:com.adobe.xmp\0\1\0\0\0", 22, false, false, true},
        {"XML:com.adobe.xmp\0\1\1\0\0", 22, true, false, false},
        {"XML:com.adobe.xmp\0\0", 19, false, false, false},
        {"XML:com.adobe.xm\0\0\0\0\0", 21, false, false, false},
        {"Comment\0\0\0\0\0", 12, false, false, false},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
        for (int behind = 0; behind < 2; behind++) {
            struct checkpoint_buffer body = {0}, chunk = {0}, none = {0};
            checkpoint_put(&body, cases[k].head, cases[k].head_size);
            checkpoint_put(&body, cases[k].packed ? (const void *)packed : text,
                           cases[k].packed ? packed_size : sizeof text - 1);
            picture_writer_chunk(&chunk, "iTXt", body.data, k == 5 ? cases[k].head_size : body.size);
            struct checkpoint_buffer file = behind ? small_png(&none, &chunk) : small_png(&chunk, &none);
            struct image *image = must_decode(&file);
            if (cases[k].found != (image->xmp.data != NULL))
                fail_msg("case %zu: %s", k, image->xmp.data ? "found" : "not found");
            if (cases[k].found) {
                assert_int_equal(image->xmp.size, sizeof text - 1);
                assert_memory_equal(image->xmp.data, text, sizeof text - 1);
            }
            assert_int_equal(image->notes, cases[k].noted ? IMAGE_NOTE_XMP_DROPPED : 0);
            image_destroy(&image);
            checkpoint_free(&body);
            checkpoint_free(&chunk);
            checkpoint_free(&file);
        }
}

/* A byte of EXIF is changed where there is an orientation, and nowhere else. */
static void exif_without_orientation_is_left_alone(void **state)
{
    (void)state;
    uint8_t tiff[] = {'I',  'I',  42, 0, 8, 0, 0, 0, 2, 0,       /* two entries */
                      0x0f, 0x01, 3,  0, 1, 0, 0, 0, 6, 0, 0, 0, /* another tag */
                      0x12, 0x01, 3,  0, 1, 0, 0, 0, 6, 0, 0, 0};
    uint8_t copy[sizeof tiff];
    assert_int_equal(exif_orientation(tiff, sizeof tiff), 6);
    memcpy(copy, tiff, sizeof tiff);
    exif_reset_orientation(copy, sizeof copy);
    assert_int_equal(copy[sizeof copy - 4], 1);
    copy[sizeof copy - 4] = 6;
    assert_memory_equal(copy, tiff, sizeof tiff);
    static const struct {
        size_t at;
        uint8_t value;
    } changes[] = {{0, 'M'}, {0, 'X'}, {2, 43}, {4, 7}, {5, 1}, {22, 0x13}, {24, 4}, {26, 2}, {8, 1}, {30, 9}};
    for (size_t k = 0; k < sizeof changes / sizeof changes[0]; k++) {
        uint8_t other[sizeof tiff];
        memcpy(other, tiff, sizeof tiff);
        other[changes[k].at] = changes[k].value;
        memcpy(copy, other, sizeof other);
        assert_int_equal(exif_orientation(other, sizeof other), 1);
        if (changes[k].at != 30) { /* that one has the tag, with a value out of range */
            exif_reset_orientation(copy, sizeof copy);
            assert_memory_equal(copy, other, sizeof other);
        }
    }
    for (size_t size = 0; size < sizeof tiff; size++) { /* cut short: under ASan nothing past the end is read */
        uint8_t *cut = malloc(size ? size : 1);
        memcpy(cut, tiff, size);
        assert_int_equal(exif_orientation(cut, size), 1);
        exif_reset_orientation(cut, size);
        assert_memory_equal(cut, tiff, size);
        free(cut);
    }
}

/* Four bytes of each number count: the description lies beyond 64 KiB here. */
static void a_profile_of_any_size_is_looked_through(void **state)
{
    (void)state;
    static const size_t offsets[] = {200, 300, 70000, 0x1010000};
    for (size_t k = 0; k < sizeof offsets / sizeof offsets[0]; k++) {
        const size_t at = offsets[k], size = at + 20;
        uint8_t *profile = calloc(size, 1);
        memcpy(profile + 16, "RGB ", 4);
        memcpy(profile + 36, "acsp", 4);
        profile[131] = 1; /* one tag */
        const uint8_t tag[12] = {
            'd', 'e', 's', 'c', (uint8_t)(at >> 24), (uint8_t)(at >> 16), (uint8_t)(at >> 8), (uint8_t)at, 0, 0, 0, 20};
        memcpy(profile + 132, tag, sizeof tag);
        assert_false(icc_is_srgb(profile, size));
        memcpy(profile + at + 8, "sRGB", 4);
        assert_true(icc_is_srgb(profile, size));
        assert_false(icc_is_srgb(profile, size - 1)); /* the tag reaches past the end */
        memcpy(profile + 16, "GRAY", 4);
        assert_false(icc_is_srgb(profile, size));
        free(profile);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_crowd_of_segments_is_refused),
        cmocka_unit_test(a_profile_comes_in_parts),
        cmocka_unit_test(a_crowd_of_chunks_is_refused),
        cmocka_unit_test(xmp_is_found_in_every_form),
        cmocka_unit_test(exif_without_orientation_is_left_alone),
        cmocka_unit_test(a_profile_of_any_size_is_looked_through),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
