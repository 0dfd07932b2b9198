/* EXIF, XMP and IPTC from strangers: what is changed in them stays within bounds, whatever they hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/image/codec.h"
#include "server/image/exif.h"
#include "server/image/iptc.h"
#include "server/image/xmp.h"
#include "tests/common/picture.h"

/* Make, Orientation, XResolution, the EXIF and GPS directories with a number each, and a thumbnail. */
static const uint8_t block[] = "II*\0\10\0\0\0"
                               "\5\0"
                               "\x0f\1\2\0\4\0\0\0Cam\0"
                               "\x12\1\3\0\1\0\0\0\6\0\0\0"
                               "\x1a\1\5\0\1\0\0\0\x7e\0\0\0"
                               "\x69\x87\4\0\1\0\0\0\x4a\0\0\0"
                               "\x25\x88\4\0\1\0\0\0\x5c\0\0\0"
                               "\x86\0\0\0" /* at 70 */
                               "\1\0\2\xa0\3\0\1\0\0\0\x5a\0\0\0\0\0\0\0"
                               "\1\0\2\0\5\0\1\0\0\0\x6e\0\0\0\0\0\0\0"                         /* at 92 */
                               "\x2f\0\0\0\1\0\0\0PADDPADD"                                     /* at 110 */
                               "\x2c\1\0\0\1\0\0\0"                                             /* at 126 */
                               "\2\0\1\2\4\0\1\0\0\0\xa4\0\0\0\2\2\4\0\1\0\0\0\5\0\0\0\0\0\0\0" /* at 134 */
                               "THUMB";

static void blob(struct image_blob *out, const void *data, size_t size)
{
    struct error err = ERROR_INIT;
    *out = (struct image_blob){0};
    assert_int_equal(image_blob_set(out, data, size, &err), OK);
}

static void exif_gets_what_changed(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct image_blob exif;
    const struct exif_change change = {
        .width = 70000, .height = 9, .scale = {2, 2}, .software = "restored", .no_gps = true};
    blob(&exif, block, sizeof block - 1);
    assert_int_equal(exif_number(exif.data, exif.size, EXIF_TAG_GPS), 92);
    assert_true(exif_density(exif.data, exif.size) == 300);
    assert_int_equal(exif_change(&exif, &change, &err), OK);
    assert_true(exif_density(exif.data, exif.size) == 600);
    assert_int_equal(exif_number(exif.data, exif.size, EXIF_TAG_DIRECTORY), 74);
    assert_int_equal(exif_number(exif.data, exif.size, EXIF_TAG_GPS), 0);
    assert_memory_equal(exif.data + 74, "\1\0\2\xa0\4\0\1\0\0\0\x70\x11\1\0", 14); /* 70000 as a long number */
    assert_memory_equal(exif.data + 110, "\0\0\0\0\0\0\0\0PADD", 12);
    assert_non_null(memmem(exif.data, exif.size, "restored", 9));
    assert_null(memmem(exif.data, exif.size, "THUMB", 5));
    free(exif.data);
}

/* Formats without a place for the resolution get a block with it. */
static void exif_is_made_for_a_resolution(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    for (int i = 0; i < 3; i++) {
        struct image_blob exif = {0};
        const struct exif_change change = {
            .scale = {2, 2}, .density = {i == 2 ? 5e7 : 300.25, 150}, .software = i ? "restored" : NULL};
        assert_int_equal(exif_create(&exif, &err), OK);
        assert_true(exif_density(exif.data, exif.size) == 0);
        assert_int_equal(exif_change(&exif, &change, &err), OK);
        assert_true(exif_density(exif.data, exif.size) == (i == 2 ? 0 : 300.25)); /* what is too much is left out */
        assert_int_equal(memmem(exif.data, exif.size, "restored", 9) != NULL, i > 0);
        const size_t size = exif.size;
        assert_int_equal(exif_change(&exif, &change, &err), OK); /* it is there, so it is scaled */
        assert_true(exif_density(exif.data, exif.size) == (i == 2 ? 0 : 600.5));
        assert_true(exif.size < size + 100);
        free(exif.data);
    }
}

/* 4294967295/1 px an inch is in no picture: it counts as unknown, and no writer is given it. */
static void damaged_density_is_dropped(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct image *image, *back;
    uint8_t bytes[sizeof block - 1];
    struct codec_output file;
    for (int damaged = 0; damaged < 2; damaged++) {
        memcpy(bytes, block, sizeof bytes);
        if (damaged)
            memcpy(bytes + 126, "\xff\xff\xff\xff\1\0\0\0", 8);
        assert_int_equal(image_create(&image, 4, 4, 3, 8, false, &err), OK);
        blob(&image->exif, bytes, sizeof bytes);
        assert_int_equal(codec_encode(image, IMAGE_PNG, (struct codec_options){0}, &file, &err), OK);
        assert_int_equal(codec_decode(file.bytes, file.size, 0, &back, NULL, &err), OK);
        assert_true(back->density[0] == (damaged ? 0 : 300));
        free(file.bytes);
        image_destroy(&image);
        image_destroy(&back);
    }
}

static void damaged_exif_does_no_harm(void **state)
{
    (void)state;
    unsigned seed = 1;
    for (int round = 0; round < 20000; round++) {
        uint8_t bytes[sizeof block - 1];
        struct error err = ERROR_INIT;
        struct image_blob exif;
        const struct exif_change change = {.width = 90,
                                           .height = 60,
                                           .scale = {1.7, 1.7},
                                           .density = {round % 5 * 1e7, 300},
                                           .software = "restored",
                                           .no_gps = round % 2};
        memcpy(bytes, block, sizeof bytes);
        for (int i = 0; i < 1 + round % 4; i++)
            bytes[picture_random(&seed) % sizeof bytes] = (uint8_t)picture_random(&seed);
        blob(&exif, bytes, round % 3 ? sizeof bytes : picture_random(&seed) % sizeof bytes + 1);
        exif_density(exif.data, exif.size);
        assert_int_equal(exif_change(&exif, &change, &err), OK);
        free(exif.data);
    }
}

static void xmp_is_changed_in_both_forms(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct image_blob xmp;
    static const char text[] =
        "<r tiff:Orientation=\"6\" exif:GPSLatitude='47' x:y='z'><tiff:Orientation>8</tiff:Orientation>"
        "<exif:GPSVersionID><a/></exif:GPSVersionID><exif:GPSx/><x:tiff>Orientation</x:tiff></r>";
    static const char wanted[] = "<r tiff:Orientation=\"10\" x:y='z'><tiff:Orientation>10</tiff:Orientation>"
                                 "<x:tiff>Orientation</x:tiff></r>";
    blob(&xmp, text, sizeof text - 1);
    assert_int_equal(xmp_set(&xmp, "tiff:Orientation", "10", &err), OK);
    xmp_remove(&xmp, "exif:GPS");
    assert_int_equal(xmp.size, sizeof wanted - 1);
    assert_memory_equal(xmp.data, wanted, xmp.size);
    free(xmp.data);
    unsigned seed = 2;
    for (int round = 0; round < 20000; round++) {
        char bytes[sizeof text - 1];
        memcpy(bytes, text, sizeof bytes);
        for (int i = 0; i < 1 + round % 5; i++)
            bytes[picture_random(&seed) % sizeof bytes] = "<>/=\"' :a"[picture_random(&seed) % 9];
        blob(&xmp, bytes, round % 3 ? sizeof bytes : picture_random(&seed) % sizeof bytes + 1);
        assert_int_equal(xmp_set(&xmp, "tiff:Orientation", "1", &err), OK);
        xmp_remove(&xmp, "exif:GPS");
        free(xmp.data);
    }
}

static void iptc_is_found_among_resources(void **state)
{
    (void)state;
    static const uint8_t list[] = "8BIM\3\xed\3abc\0\0\0\3xyz\0"
                                  "8BIM\4\4\0\0\0\0\0\5hello";
    struct error err = ERROR_INIT;
    struct image_blob iptc = {(uint8_t *)(uintptr_t) "hello", 5}, wrapped;
    size_t size = 0;
    const uint8_t *found = iptc_find(list, sizeof list - 1, &size);
    assert_non_null(found);
    assert_int_equal(size, 5);
    assert_memory_equal(found, "hello", 5);
    for (size_t cut = 0; cut < sizeof list - 1; cut++) {
        uint8_t *part = malloc(cut + 1);
        memcpy(part, list, cut);
        assert_null(iptc_find(part, cut, &size));
        free(part);
    }
    assert_int_equal(iptc_wrap(&iptc, &wrapped, &err), OK);
    found = iptc_find(wrapped.data, wrapped.size, &size);
    assert_non_null(found);
    assert_memory_equal(found, "hello", 5);
    free(wrapped.data);
}

static struct image_blob iptc_of(const char *text, size_t size)
{
    struct error err = ERROR_INIT;
    struct image_blob out = {0};
    uint8_t *exact = malloc(size + !size); /* so that a sanitizer sees what reads beyond */
    memcpy(exact, text, size);
    assert_int_equal(iptc_parse(exact, size, &out, &err), OK);
    free(exact);
    return out;
}

/* As a text of a PNG: what ExifTool wrote, and what is written is read again. */
static void iptc_is_read_from_a_text(void **state)
{
    (void)state;
    static const char text[] = "\nIPTC profile\n      36\n3842494d04040000000000171c02190003616c741c025a0003556c6d1c\n"
                               "02000002000400\n";
    struct error err = ERROR_INIT;
    struct image_blob iptc = iptc_of(text, sizeof text - 1), again;
    char *printed;
    assert_int_equal(iptc.size, 23);
    assert_memory_equal(iptc.data, "\x1c\2\x19\0\3alt", 8);
    assert_int_equal(iptc_print(&iptc, &printed, &err), OK);
    again = iptc_of(printed, strlen(printed));
    assert_int_equal(again.size, 23);
    assert_memory_equal(again.data, iptc.data, 23);
    free(again.data);
    free(printed);
    free(iptc.data);
    static const char alone[] = "\niptc\n       8\n1c0219000361\n6c74\n"; /* as ImageMagick 6 has it */
    iptc = iptc_of(alone, sizeof alone - 1);
    assert_int_equal(iptc.size, 8);
    assert_memory_equal(iptc.data, "\x1c\2\x19\0\3alt", 8);
    free(iptc.data);
    for (size_t cut = 0; cut < sizeof text - 4; cut++) /* before the last digits */
        assert_null(iptc_of(text, cut).data);
    static const char huge[] = "\niptc\n99999999999999999999999\n00";
    assert_null(iptc_of(huge, sizeof huge - 1).data);
}

static void iptc_ends_before_its_padding(void **state)
{
    (void)state;
    const uint8_t padded[] = {0x1c, 2, 0, 0, 2, 0, 4, 0x1c, 2, 5, 0x80, 2, 0, 1, 'x', 0, 0, 0};
    static const uint8_t segment[] = "Photoshop 3.0\0008BIM\4\4\0\0\0\0\0\2\x1c\2";
    size_t size = 0;
    bool cut;
    assert_ptr_equal(iptc_records(padded, sizeof padded, &size, &cut), padded);
    assert_true(size == 15 && !cut);
    assert_ptr_equal(iptc_records(padded, 15, &size, &cut), padded);
    assert_true(size == 15 && !cut);
    for (size_t left = 8; left < 15; left++) { /* a record that is cut off stays */
        assert_ptr_equal(iptc_records(padded, left, &size, &cut), padded);
        assert_true(size == left && cut);
    }
    assert_ptr_equal(iptc_records(segment, sizeof segment - 1, &size, &cut), segment + 26);
    assert_int_equal(size, 2);
    assert_ptr_equal(iptc_records(segment + 14, sizeof segment - 15, &size, &cut), segment + 26);
    assert_null(iptc_records((const uint8_t *)"other", 5, &size, &cut));
    assert_null(iptc_records((const uint8_t *)"other", 0, &size, &cut));
}

/* The IPTC data of a TIFF of one pixel whose tag says that it is `count` values of this type. */
static struct image_blob iptc_of_tiff(uint8_t type, uint8_t count, const uint8_t *tag, size_t size, bool resources)
{
    uint8_t file[256] = {'I', 'I', 42, 0, 8, 0, 0, 0, (uint8_t)(9 + resources)};
    const uint8_t rows[10][4] = {{0, 1, 3, 1}, /* tag, type, count, value: 1 × 1 */
                                 {1, 1, 3, 1},
                                 {2, 1, 3, 8},  /* bits */
                                 {3, 1, 3, 1},  /* compression: none */
                                 {6, 1, 3, 1},  /* photometric: black is 0 */
                                 {17, 1, 4, 8}, /* its pixel may be any byte */
                                 {21, 1, 3, 1}, /* samples a pixel */
                                 {23, 1, 4, 1}, /* bytes */
                                 {0xbb, 0x83, type, 150},
                                 {0x49, 0x86, 1, 180}};
    struct codec_info info;
    struct image *image = NULL;
    struct image_blob iptc;
    struct error err = ERROR_INIT;
    uint8_t *entry = file + 10;
    for (int i = 0; i < 9 + resources; i++, entry += 12) {
        const uint8_t *row = rows[i];
        memcpy(entry, row, 3);
        entry[4] = i < 8 ? 1 : i == 8 ? count : 20;
        entry[8] = row[3];
    }
    memcpy(file + 150, tag, size);
    memcpy(file + 180, "8BIM\4\4\0\0\0\0\0\10\x1c\2\x19\0\3alt", 20);
    if (codec_decode(file, sizeof file, 100, &image, &info, &err) != OK)
        fail_msg("%s", err.text);
    iptc = image->iptc;
    image->iptc = (struct image_blob){0};
    image_destroy(&image);
    return iptc;
}

/* Its tag is one of bytes or of numbers of 4 bytes, and may be cut off, as ImageMagick 6 does. */
static void iptc_of_a_tiff_is_that_of_its_tag(void **state)
{
    (void)state;
    static const uint8_t own[] = "\x1c\2\x19\0\3own", old[] = "\x1c\2\x19\0\2ol";
    if (!codec_reads(IMAGE_TIFF))
        skip();
    struct image_blob iptc[4] = {iptc_of_tiff(7, 8, own, 8, false), iptc_of_tiff(4, 2, own, 8, true),
                                 iptc_of_tiff(4, 2, old, 7, false), iptc_of_tiff(7, 6, own, 6, true)};
    static const char *const wanted[] = {"own", "own", "ol", "alt"};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(iptc[i].size, 5 + strlen(wanted[i]));
        assert_memory_equal(iptc[i].data + 5, wanted[i], strlen(wanted[i]));
        free(iptc[i].data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exif_gets_what_changed),
        cmocka_unit_test(exif_is_made_for_a_resolution),
        cmocka_unit_test(damaged_exif_does_no_harm),
        cmocka_unit_test(damaged_density_is_dropped),
        cmocka_unit_test(xmp_is_changed_in_both_forms),
        cmocka_unit_test(iptc_is_found_among_resources),
        cmocka_unit_test(iptc_is_read_from_a_text),
        cmocka_unit_test(iptc_ends_before_its_padding),
        cmocka_unit_test(iptc_of_a_tiff_is_that_of_its_tag),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
