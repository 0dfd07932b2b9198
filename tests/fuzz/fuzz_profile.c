/* Any bytes as the ICC profile of a small picture: the first byte chooses its channels, its depth, or CMYK. What is
 * made of the profile must be a model that can be computed with, or a picture in sRGB with a note. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/image/cmyk.h"
#include "server/image/colour.h"
#include "server/image/profile.h"
#include "tests/fuzz/exercise.h"

#define WIDTH 6
#define HEIGHT 2

static void expect(bool condition)
{
    if (!condition)
        abort();
}

static void look_at_model(const struct colour *colour)
{
    float pixels[3 * WIDTH], rgb[3 * WIDTH];
    for (int i = 0; i < 3 * WIDTH; i++)
        pixels[i] = (float)i * 15 - 3;
    colour_to_srgb(colour, pixels, rgb, WIDTH);
    for (int i = 0; i < 3 * WIDTH; i++)
        expect(isfinite(rgb[i]));
    colour_from_srgb(colour, rgb, pixels, WIDTH);
    for (int i = 0; i < colour->channels * WIDTH; i++)
        expect(pixels[i] >= 0 && pixels[i] <= 255);
}

/* Inks to RGB, and back by the table, if there is one. */
static void cmyk(const uint8_t *data, size_t size, const struct profile_inks *inks)
{
    struct profile_cmyk opened;
    struct image *image;
    struct error err = ERROR_INIT;
    uint16_t from[5 * WIDTH], ink[4 * WIDTH + 1];
    for (int i = 0; i < 5 * WIDTH; i++)
        from[i] = (uint16_t)(i * 2180);
    ink[4 * WIDTH] = 12345;
    if (profile_cmyk_open(&opened, data, size, inks, &err))
        abort();
    expect(!opened.wide || (opened.profile && inks->back));
    if (!opened.profile)
        return;
    exercise_opened++;
    if (image_create(&image, WIDTH, 1, 3, opened.wide ? 16 : inks->bits, false, &err))
        abort();
    profile_cmyk_row(&opened, from, image->pixels, WIDTH);
    profile_cmyk_apply(&opened, image);
    profile_cmyk_close(&opened);
    expect(cmyk_known(image) == (image->cmyk.data != NULL));
    if (cmyk_known(image)) {
        cmyk_row(image, 0, 16, false, ink);
        expect(ink[4 * WIDTH] == 12345 && cmyk_profile(image).size == size && cmyk_bits(image) == inks->bits);
        expect(!profile_apply(image, &err) && image->colour.size == sizeof(struct colour));
        look_at_model((const struct colour *)image->colour.data);
    }
    image_destroy(&image);
}

static void picture(const uint8_t *data, size_t size, int channels, int bits)
{
    const unsigned gone = IMAGE_NOTE_ICC_DAMAGED | IMAGE_NOTE_ICC_DROPPED | IMAGE_NOTE_ICC_CONVERTED;
    struct image *image;
    struct error err = ERROR_INIT;
    if (image_create(&image, WIDTH, HEIGHT, channels, bits, false, &err))
        abort();
    const size_t bytes = WIDTH * HEIGHT * (size_t)channels * (size_t)bits / 8;
    for (size_t i = 0; i < bytes; i++)
        ((uint8_t *)image->pixels)[i] = (uint8_t)(i * 7);
    if (image_blob_set(&image->icc, data, size, &err) || profile_apply(image, &err))
        abort();
    expect(!image->icc.data == (!size || (image->notes & gone)));
    if (image->icc.data || (image->notes & IMAGE_NOTE_ICC_CONVERTED))
        exercise_opened++;
    if (image->colour.data) {
        expect(image->icc.data && image->colour.size == sizeof(struct colour));
        look_at_model((const struct colour *)image->colour.data);
    }
    image_destroy(&image);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size || !profile_known())
        return 0;
    profile_cmyk_sparse(16);
    const uint8_t kind = *data++;
    const int bits = kind & 1 ? 16 : 8;
    size--;
    const struct profile_inks inks = {bits, kind >> 3 & 1, kind >> 4 & 1, kind >> 5 & 1};
    if (kind & (4 | 32))
        cmyk(data, size, &inks);
    else
        picture(data, size, kind & 2 ? 3 : 1, bits);
    return 0;
}
