/* TIFFs of L*a*b*, whose white is that of D50 or what their tag says: what colours they become. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "server/image/codec.h"
#include "tests/common/checkpoint_writer.h"
#include "tests/common/picture_file.h"

/* sRGB's corners and grays in L*a*b* of D50 (its colorants adapted by Bradford's method, as ICC.1:2022 does), and of
 * D65, which is its own white (CIE 15). */
static const struct {
    double lab[3], of_d65[3];
    uint8_t rgb[3];
} known[] = {{{100, 0, 0}, {100, 0, 0}, {255, 255, 255}},
             {{0, 0, 0}, {0, 0, 0}, {0, 0, 0}},
             {{53.585, 0, 0}, {53.585, 0, 0}, {128, 128, 128}},
             {{54.29, 80.80, 69.89}, {53.24, 80.09, 67.20}, {255, 0, 0}},
             {{87.82, -79.27, 80.99}, {87.73, -86.18, 83.18}, {0, 255, 0}},
             {{29.57, 68.30, -112.03}, {32.30, 79.19, -107.86}, {0, 0, 255}}};
enum { KNOWN = sizeof known / sizeof *known };

static void put(struct checkpoint_buffer *file, uint32_t value, int bytes)
{
    const uint8_t all[4] = {(uint8_t)value, (uint8_t)(value >> 8), (uint8_t)(value >> 16), (uint8_t)(value >> 24)};
    checkpoint_put(file, all, (size_t)bytes);
}

static void put_tag(struct checkpoint_buffer *file, uint32_t tag, uint32_t type, uint32_t count, uint32_t value)
{
    put(file, tag, 2);
    put(file, type, 2);
    put(file, count, 4);
    put(file, value, 4);
}

/* TIFF 6.0, section 23 (photometric 8: a and b signed), and ICC's form of it, TIFF technical note 4 (9). */
static uint32_t encoded(double value, int c, int bits, int photometric)
{
    const bool own = photometric == 8;
    const double most = bits == 8 ? 255 : own ? 65535 : 65280, step = bits == 8 ? 1 : 256;
    return (uint32_t)(int32_t)lrint(c == 0 ? value / 100 * most : step * (value + (own ? 0 : 128)));
}

/* white: its chromaticities x and y in ten thousandths; NULL: without that tag */
static struct checkpoint_buffer lab_tiff(int bits, int photometric, const uint32_t *white, bool d65)
{
    enum { TAGS = 10, BITS = 8 + 2 + 12 * TAGS + 4, WHITE = BITS + 6, DATA = WHITE + 16 };
    struct checkpoint_buffer file = {0};
    checkpoint_put(&file, "II*\0\10\0\0\0", 8);
    put(&file, TAGS, 2);
    put_tag(&file, 256, 4, 1, KNOWN);
    put_tag(&file, 257, 4, 1, 1);
    put_tag(&file, 258, 3, 3, BITS);
    put_tag(&file, 259, 3, 1, 1);
    put_tag(&file, 262, 3, 1, (uint32_t)photometric);
    put_tag(&file, 273, 4, 1, DATA);
    put_tag(&file, 277, 3, 1, 3);
    put_tag(&file, 278, 4, 1, 1);
    put_tag(&file, 279, 4, 1, (uint32_t)(KNOWN * 3 * bits / 8));
    put_tag(&file, white ? 318 : 315, white ? 5 : 2, white ? 2 : 4, white ? WHITE : 'A'); /* 315: the artist */
    put(&file, 0, 4);
    for (int c = 0; c < 3; c++)
        put(&file, (uint32_t)bits, 2);
    for (int i = 0; i < 2; i++) {
        put(&file, white ? white[i] : 0, 4);
        put(&file, 10000, 4);
    }
    for (int i = 0; i < KNOWN; i++)
        for (int c = 0; c < 3; c++)
            put(&file, encoded((d65 ? known[i].of_d65 : known[i].lab)[c], c, bits, photometric), bits / 8);
    return file;
}

static void check_colours(int bits, int photometric, const uint32_t *white, bool d65)
{
    struct checkpoint_buffer file = lab_tiff(bits, photometric, white, d65);
    struct codec_info info;
    struct image *image = picture_must_decode(&file, &info);
    assert_int_equal(info.bits, bits);
    assert_int_equal(image->bits, bits);
    assert_int_equal(image->channels, 3);
    for (int i = 0; i < 3 * KNOWN; i++) {
        const double got =
                         bits == 8 ? ((const uint8_t *)image->pixels)[i] : ((const uint16_t *)image->pixels)[i] / 257.0,
                     wanted = known[i / 3].rgb[i % 3];
        /* of 8 bits, half a step of a or b is up to 10 levels of a channel that has no light */
        if (fabs(got - wanted) > (bits == 8 ? 12 : 1))
            fail_msg("%d bits, photometric %d, %s: colour %d is %.1f, not %.0f", bits, photometric,
                     white ? "with a white" : "without", i, got, wanted);
    }
    image_destroy(&image);
    checkpoint_free(&file);
}

static void colours_are_those_of_d50(void **state)
{
    (void)state;
    if (!codec_reads(IMAGE_TIFF))
        skip();
    for (int bits = 8; bits <= 16; bits += 8)
        for (int photometric = 8; photometric <= 9; photometric++)
            check_colours(bits, photometric, NULL, false);
}

/* Where none can be, and in ICC's form, whose white is always D50, the tag says nothing. */
static void colours_are_those_of_the_white_that_is_told(void **state)
{
    (void)state;
    static const uint32_t d65[2] = {3127, 3290}, d50[2] = {3457, 3585}, none[2] = {0, 0}, dark[2] = {9000, 9000},
                          unseen[2] = {4999, 2001};
    if (!codec_reads(IMAGE_TIFF))
        skip();
    check_colours(8, 8, d65, true);
    check_colours(16, 8, d65, true);
    check_colours(16, 8, d50, false);
    check_colours(16, 8, none, false);
    check_colours(16, 8, dark, false);
    check_colours(16, 8, unseen, false);
    check_colours(16, 9, d65, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(colours_are_those_of_d50),
                                       cmocka_unit_test(colours_are_those_of_the_white_that_is_told)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
