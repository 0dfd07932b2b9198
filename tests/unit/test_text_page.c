/* A page of text is told from a photo in pictures of 8 and 16 bits, of one channel and of three. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "server/image/text_page.h"
#include "tests/common/picture.h"

enum { WIDTH = 200, HEIGHT = 180 };

static void put(struct image *image, int x, int y, int value)
{
    for (int c = 0; c < image->channels; c++) {
        const size_t at = ((size_t)y * WIDTH + (size_t)x) * (size_t)image->channels + (size_t)c;
        if (image->bits == 16)
            ((uint16_t *)image->pixels)[at] = (uint16_t)(257 * value);
        else
            ((uint8_t *)image->pixels)[at] = (uint8_t)value;
    }
}

/* Strokes of 2 px on paper. */
static void write_text(struct image *image)
{
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++)
            put(image, x, y, y % 14 >= 4 && y % 14 < 10 && x % 5 < 2 ? 40 : 220);
}

static void test_forms(void **state)
{
    (void)state;
    uint8_t *level = calloc(WIDTH, HEIGHT); /* nothing is damaged */
    assert_non_null(level);
    for (int bits = 8; bits <= 16; bits += 8)
        for (int channels = 1; channels <= 3; channels += 2) {
            struct image *image = picture_waves(WIDTH, HEIGHT, channels, bits);
            assert_false(text_page(image, level, 128));
            write_text(image);
            assert_true(text_page(image, level, 128));
            image_destroy(&image);
        }
    free(level);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forms)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
