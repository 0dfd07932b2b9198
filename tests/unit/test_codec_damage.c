/* Picture files that are none, too large, cut short or damaged: errors, or what is left of them, and never a crash. */
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
#include "tests/common/picture.h"
#include "tests/common/picture_file.h"
#include "tests/common/picture_writer.h"

static void expect(const void *data, size_t size, enum error_code code, const char *words)
{
    struct image *image;
    struct error err = ERROR_INIT;
    assert_int_equal(picture_decode(data, size, &image, NULL, &err), code);
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
    file = picture_small_jpeg(0, 16, 16);
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

/* Every shorter file is an error; a file with a byte changed is an error or a picture of some size, never a crash. */
static void damage(const struct checkpoint_buffer *file)
{
    for (size_t cut = 0; cut < file->size; cut++) {
        struct image *image;
        struct error err = ERROR_INIT;
        enum error_code code = picture_decode(file->data, cut, &image, NULL, &err);
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
            enum error_code code = picture_decode(copy, file->size, &image, NULL, &err);
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
        struct checkpoint_buffer file = picture_small_jpeg(k, 19, 11);
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
    struct image *image = picture_with_metadata(true, 8);
    picture_add_profile(image, "RGB ");
    struct checkpoint_buffer file = picture_must_encode(image, IMAGE_PNG, &notes);
    for (size_t cut = 0; cut < file.size; cut += 3)
        expect(file.data, cut, cut < 8 ? ERROR_UNSUPPORTED : ERROR_CORRUPT, "");
    checkpoint_free(&file);
    image_destroy(&image);
}

static void harmless_oddities_pass(void **state)
{
    (void)state;
    struct checkpoint_buffer file = picture_small_jpeg(0, 24, 24), odd = {0};
    checkpoint_put(&odd, file.data, file.size - 2);
    checkpoint_put(&odd, "\0\0\0\0\0", 5); /* some cameras pad so, before the end marker */
    checkpoint_put(&odd, "\xff\xd9trailing bytes", 16);
    struct image *image = picture_must_decode(&odd, NULL);
    image_destroy(&image);
    checkpoint_free(&file);
    checkpoint_free(&odd);
}

/* A small file with very many scans keeps a decoder busy for long. */
static void a_scan_bomb_is_refused(void **state)
{
    (void)state;
    struct checkpoint_buffer file = picture_small_jpeg(8, 64, 64), bomb = {0};
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
        struct image *image = picture_must_decode(&file, NULL);
        assert_memory_equal(image->pixels, "abcdef", 6);
        assert_null(image->xmp.data);
        assert_null(image->icc.data);
        image_destroy(&image);
        checkpoint_free(&file);
        checkpoint_free(&body);
    }
    free(packed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_picture_is_said), cmocka_unit_test(limits_hold_before_decoding),
        cmocka_unit_test(damaged_jpegs_are_errors),   cmocka_unit_test(damaged_pngs_are_errors),
        cmocka_unit_test(harmless_oddities_pass),     cmocka_unit_test(a_scan_bomb_is_refused),
        cmocka_unit_test(chunk_bombs_are_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
