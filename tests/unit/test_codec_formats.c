/* Pictures in every format, made by programs that are not ours (tests/fixtures/make_formats.sh), beside what each
 * format's own reader makes of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/file.h"
#include "server/image/codec.h"
#include "server/image/exif.h"
#include "tests/common/shared.h"

/* What libraries lose when they refuse a part of a file, see fuzz/fuzz_formats.c. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libheif\nleak:libdav1d\nleak:libde265\nleak:libaom\nleak:libstdc++\n";
}

#define MEGAPIXELS 4000000

/* Tolerances in levels of 255. One level: other programs round YCbCr or CMYK differently. A half: the
 * other one kept all 16 bits of a palette. */
static const struct row {
    const char *name;
    int page, pages, bits, channels;
    double tolerance;
    bool salvaged; /* libde265 and dav1d make something of a part of a file */
} rows[] = {
    {"lossy.webp", 1, 1, 8, 3, 0, false},   {"alpha.webp", 1, 1, 8, 4, 0, false},
    {"turned.webp", 1, 1, 8, 3, 0, false},  {"moves.webp", 1, 2, 8, 3, 0, false},
    {"moves.webp", 2, 2, 8, 3, 0, false},   {"plain.tif", 1, 1, 8, 3, 0, false},
    {"lzw.tif", 1, 1, 8, 3, 0, false},      {"jpeg.tif", 1, 1, 8, 3, 1, false},
    {"alpha.tif", 1, 1, 8, 4, 0, false},    {"gray.tif", 1, 1, 8, 1, 0, false},
    {"fax.tif", 1, 1, 8, 1, 0, false},      {"palette.tif", 1, 1, 8, 3, 0.5, false},
    {"deep.tif", 1, 1, 16, 3, 0, false},    {"cmyk.tif", 1, 1, 8, 4, 1, false},
    {"pages.tif", 1, 2, 8, 3, 0, false},    {"pages.tif", 2, 2, 8, 3, 0, false},
    {"tiles.tif", 1, 1, 8, 3, 0, false},    {"planes.tif", 1, 1, 8, 3, 0, false},
    {"big.tif", 1, 1, 8, 3, 0, false},      {"deepplanes.tif", 1, 1, 16, 3, 0, false},
    {"twelve.tif", 1, 1, 16, 3, 0, false},  {"twelvetiles.tif", 1, 1, 16, 3, 0, false},
    {"four.tif", 1, 1, 8, 3, 0, false},     {"turned.tif", 1, 1, 8, 3, 0, false},
    {"lossy.heic", 1, 1, 8, 3, 0, true},    {"alpha.heic", 1, 1, 8, 4, 0, true},
    {"deep.heic", 1, 1, 16, 3, 1, true},    {"pages.heic", 1, 2, 8, 3, 0, true},
    {"pages.heic", 2, 2, 8, 3, 0, true},    {"turned.heic", 1, 1, 8, 3, 0, true},
    {"noted.heic", 1, 1, 8, 3, 0, true},    {"lossy.avif", 1, 1, 8, 3, 0, true},
    {"lossless.jxl", 1, 1, 8, 3, 0, false}, {"lossy.jxl", 1, 1, 8, 3, 0, false},
    {"alpha.jxl", 1, 1, 8, 4, 0, false},    {"gray.jxl", 1, 1, 8, 1, 0, false},
    {"deep.jxl", 1, 1, 16, 3, 0, false},    {"turned.jxl", 1, 1, 8, 3, 0, false},
    {"moves.jxl", 1, 0, 8, 4, 0, false},    {"moves.jxl", 2, 0, 8, 4, 0, false},
    {"lossless.jp2", 1, 1, 8, 3, 0, false}, {"lossy.j2k", 1, 1, 8, 3, 0, false},
    {"deep.jp2", 1, 1, 16, 3, 0, false},    {"gray.jp2", 1, 1, 8, 1, 0, false},
    {"alpha.jp2", 1, 1, 8, 4, 0, false},    {"noted.jp2", 1, 1, 8, 3, 0, false},
};
#define ROWS (sizeof rows / sizeof *rows)

static struct file opened(const char *name)
{
    char path[600];
    struct file file;
    struct error err = ERROR_INIT;
    snprintf(path, sizeof path, "%s/formats/%s", shared_fixtures(), name);
    if (file_map(&file, path, &err))
        fail_msg("%s", err.text);
    return file;
}

/* Whether this build reads it; the others are tested to say so. */
static bool readable(const char *name)
{
    const enum image_format format = codec_of_extension(strrchr(name, '.') + 1);
    assert_int_not_equal(format, IMAGE_NONE);
    return codec_reads(format);
}

static struct image *decoded(const struct row *row, const struct file *file, struct codec_info *info)
{
    struct image *image;
    struct error err = ERROR_INIT;
    if (codec_decode_page(file->data, file->size, row->page, MEGAPIXELS, &image, info, NULL, &err))
        fail_msg("%s: %s (%s)", row->name, err.text, err.detail);
    return image;
}

static struct image *reference(const struct row *row)
{
    char name[64];
    struct image *image;
    struct error err = ERROR_INIT;
    if (row->page > 1)
        snprintf(name, sizeof name, "%s.%d.png", row->name, row->page);
    else
        snprintf(name, sizeof name, "%s.png", row->name);
    struct file file = opened(name);
    if (codec_decode(file.data, file.size, 0, &image, NULL, &err))
        fail_msg("%s: %s", name, err.text);
    file_unmap(&file);
    return image;
}

static double sample(const struct image *image, const void *plane, size_t at)
{
    return image->bits == 16 ? ((const uint16_t *)plane)[at] / 257.0 : ((const uint8_t *)plane)[at];
}

/* The largest difference in levels of 255; colours under no alpha do not count. A gray one may be RGB in the other. */
static double difference(const struct image *a, const struct image *b)
{
    double worst = 0;
    for (size_t i = 0; i < (size_t)a->width * (size_t)a->height; i++) {
        const double alpha[2] = {a->alpha ? sample(a, a->alpha, i) : 255, b->alpha ? sample(b, b->alpha, i) : 255};
        const double apart = alpha[0] > alpha[1] ? alpha[0] - alpha[1] : alpha[1] - alpha[0];
        worst = apart > worst ? apart : worst;
        for (int c = 0; c < 3 && alpha[0] > 0; c++) {
            const double d = sample(a, a->pixels, i * (size_t)a->channels + (size_t)(c % a->channels)) -
                             sample(b, b->pixels, i * (size_t)b->channels + (size_t)(c % b->channels));
            worst = d > worst ? d : -d > worst ? -d : worst;
        }
    }
    return worst;
}

static void pixels_are_those_of_the_formats_own_reader(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        const struct row *row = &rows[i];
        struct codec_info info;
        if (!readable(row->name))
            continue;
        struct file file = opened(row->name);
        struct image *image = decoded(row, &file, &info), *expected = reference(row);
        const bool turned = strncmp(row->name, "turned", 6) == 0;
        if (info.bits != row->bits || info.channels != row->channels || info.pages != row->pages ||
            info.width != (turned ? 43 : 61) || info.height != (turned ? 61 : 43))
            fail_msg("%s: %d bits, %d channels, %d pages, %dx%d", row->name, info.bits, info.channels, info.pages,
                     info.width, info.height);
        if (image->width != expected->width)
            fail_msg("%s: %d, not %d", row->name, image->width, expected->width);
        assert_int_equal(image->height, expected->height);
        assert_int_equal(image->bits, row->bits);
        assert_int_equal(image->alpha != NULL, info.alpha);
        const double apart = difference(image, expected);
        if (apart > row->tolerance)
            fail_msg("%s, page %d: %.2f levels apart", row->name, row->page, apart);
        image_destroy(&image);
        image_destroy(&expected);
        file_unmap(&file);
    }
}

static bool holds(const struct image_blob *blob, const char *text)
{
    return blob->data && memmem(blob->data, blob->size, text, strlen(text));
}

static void metadata_are_kept_and_say_upright(void **state)
{
    (void)state;
    static const char *const names[] = {"turned.webp", "turned.tif", "turned.heic", "turned.jxl", "noted.jp2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct row row = {.name = names[i], .page = 1};
        if (!readable(row.name))
            continue;
        struct file file = opened(row.name);
        struct image *image = decoded(&row, &file, NULL);
        if (!holds(&image->exif, "Anna"))
            fail_msg("%s: its EXIF is lost", row.name);
        assert_int_equal(exif_orientation(image->exif.data, image->exif.size), 1);
        if (strcmp(row.name, "turned.heic") != 0 && !holds(&image->xmp, "Hello")) /* heif-enc writes none */
            fail_msg("%s: its XMP is lost", row.name);
        image_destroy(&image);
        file_unmap(&file);
    }
}

/* Some writers of WebP put JPEG's name before the EXIF block. */
static void exif_of_a_webp_may_have_a_name_before_it(void **state)
{
    (void)state;
    const struct row row = {.name = "turned.webp", .page = 1};
    if (!readable(row.name))
        skip();
    struct file file = opened(row.name);
    const uint8_t *chunk = memmem(file.data, file.size, "EXIF", 4);
    assert_non_null(chunk);
    const size_t at = (size_t)(chunk - (const uint8_t *)file.data);
    uint8_t *named = malloc(file.size + 6);
    assert_non_null(named);
    memcpy(named, file.data, at + 8);
    memcpy(named + at + 8, "Exif\0", 6);
    memcpy(named + at + 14, chunk + 8, file.size - at - 8);
    const size_t sizes[] = {4, at + 4};
    for (int i = 0; i < 2; i++) { /* of the file, and of the chunk */
        uint32_t size;
        memcpy(&size, named + sizes[i], 4);
        size += 6;
        memcpy(named + sizes[i], &size, 4);
    }
    const struct file longer = {.data = named, .size = file.size + 6};
    struct image *plain = decoded(&row, &file, NULL), *image = decoded(&row, &longer, NULL);
    assert_int_equal(image->exif.size, plain->exif.size);
    assert_memory_equal(image->exif.data, plain->exif.data, plain->exif.size);
    image_destroy(&plain);
    image_destroy(&image);
    file_unmap(&file);
    free(named);
}

/* Of a TIFF, EXIF is a copy of directories that lie anywhere in the file. */
static void exif_of_a_tiff_is_a_block_by_itself(void **state)
{
    (void)state;
    const struct row row = {.name = "turned.tif", .page = 1};
    static const uint8_t exposure[8] = {1, 0, 0, 0, 50, 0, 0, 0}, tag[2] = {0x9a, 0x82}, gps[2] = {0x25, 0x88};
    if (!readable(row.name))
        skip();
    struct file file = opened(row.name);
    struct image *image = decoded(&row, &file, NULL);
    assert_in_range(image->exif.size, 100, 2000);
    assert_memory_equal(image->exif.data, "II*\0\x08\0\0\0", 8);
    assert_non_null(memmem(image->exif.data, image->exif.size, exposure, sizeof exposure));
    assert_non_null(memmem(image->exif.data, image->exif.size, tag, sizeof tag));
    assert_non_null(memmem(image->exif.data, image->exif.size, gps, sizeof gps));
    image_destroy(&image);
    file_unmap(&file);
}

static void parts_of_files_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        if (!readable(rows[i].name) || rows[i].page > 1)
            continue;
        struct file file = opened(rows[i].name);
        for (int part = 0; part <= 16; part++) {
            struct image *image = NULL;
            struct error err = ERROR_INIT;
            const size_t size = part == 16 ? file.size - 1 : file.size * (size_t)part / 16;
            uint8_t *copy = malloc(size + 1); /* its exact size, so that the sanitizers see a read beyond */
            memcpy(copy, file.data, size);
            const enum error_code code = codec_decode(copy, size, MEGAPIXELS, &image, NULL, &err);
            assert_int_equal(code == OK, image != NULL);
            if (code == OK && part < 9 && !rows[i].salvaged && rows[i].pages == 1)
                fail_msg("%s: %d sixteenths were read", rows[i].name, part);
            if (code != OK && code != ERROR_CORRUPT && code != ERROR_UNSUPPORTED)
                fail_msg("%s: %d sixteenths: %s", rows[i].name, part, err.text);
            image_destroy(&image);
            free(copy);
        }
        file_unmap(&file);
    }
}

static void limits_hold_before_anything_is_decoded(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        struct image *image;
        struct error err = ERROR_INIT;
        if (!readable(rows[i].name))
            continue;
        struct file file = opened(rows[i].name);
        assert_int_equal(codec_decode_page(file.data, file.size, rows[i].page, 61 * 43 - 1, &image, NULL, NULL, &err),
                         ERROR_TOO_LARGE);
        file_unmap(&file);
    }
}

static void pages_that_are_not_there(void **state)
{
    (void)state;
    static const char *const names[] = {"lossy.webp", "moves.webp", "pages.tif", "pages.heic", "moves.jxl", "gray.jp2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct image *image;
        struct error err = ERROR_INIT;
        if (!readable(names[i]))
            continue;
        struct file file = opened(names[i]);
        assert_int_equal(codec_decode_page(file.data, file.size, 3, 0, &image, NULL, NULL, &err), ERROR_INVALID);
        assert_non_null(strstr(err.text, "page"));
        file_unmap(&file);
    }
}

/* A build without a library knows the format all the same. */
static void builds_without_a_library_say_so(void **state)
{
    (void)state;
    for (enum image_format format = IMAGE_JPEG; format < IMAGE_FORMAT_COUNT; format++)
        assert_int_equal(codec_reads(format), codec_missing(format) == NULL);
    for (size_t i = 0; i < ROWS; i++) {
        struct codec_info info;
        struct error err = ERROR_INIT;
        if (readable(rows[i].name))
            continue;
        struct file file = opened(rows[i].name);
        assert_int_equal(codec_probe(file.data, file.size, &info, &err), ERROR_UNSUPPORTED);
        assert_non_null(strstr(err.text, "this build cannot read it"));
        file_unmap(&file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pixels_are_those_of_the_formats_own_reader),
        cmocka_unit_test(metadata_are_kept_and_say_upright),
        cmocka_unit_test(exif_of_a_webp_may_have_a_name_before_it),
        cmocka_unit_test(exif_of_a_tiff_is_a_block_by_itself),
        cmocka_unit_test(parts_of_files_are_refused),
        cmocka_unit_test(limits_hold_before_anything_is_decoded),
        cmocka_unit_test(pages_that_are_not_there),
        cmocka_unit_test(builds_without_a_library_say_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
