#include "server/image/bleed.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"

/* What a pixel is: seen, or filled in this ring or one before it; 0: to be filled, or nobody's business. */
enum { BLEED_OPEN, BLEED_DONE, BLEED_NEW };

static unsigned bleed_get(const void *plane, int bits, size_t at)
{
    return bits == 16 ? ((const uint16_t *)plane)[at] : ((const uint8_t *)plane)[at];
}

static void bleed_put(void *plane, int bits, size_t at, unsigned value)
{
    if (bits == 16)
        ((uint16_t *)plane)[at] = (uint16_t)value;
    else
        ((uint8_t *)plane)[at] = (uint8_t)value;
}

/* The mean of the done ones of eight neighbours. false: there is none. */
static bool bleed_pixel(struct image *image, const uint8_t *state, int x, int y)
{
    const size_t width = (size_t)image->width, channels = (size_t)image->channels;
    unsigned sum[3] = {0}, count = 0;
    for (int v = y > 0 ? y - 1 : 0; v <= y + 1 && v < image->height; v++)
        for (int u = x > 0 ? x - 1 : 0; u <= x + 1 && u < image->width; u++) {
            const size_t at = (size_t)v * width + (size_t)u;
            if (state[at] != BLEED_DONE)
                continue;
            count++;
            for (size_t c = 0; c < channels; c++)
                sum[c] += bleed_get(image->pixels, image->bits, at * channels + c);
        }
    for (size_t c = 0; c < channels && count; c++)
        bleed_put(image->pixels, image->bits, ((size_t)y * width + (size_t)x) * channels + c,
                  (sum[c] + count / 2) / count);
    return count > 0;
}

enum error_code bleed_colours(struct image *image, struct error *err)
{
    const size_t width = (size_t)image->width, pixels = width * (size_t)image->height;
    if (!image->alpha)
        return OK;
    uint8_t *state = mem_alloc(pixels, 1);
    if (!state)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a picture of %d×%d pixels", image->width,
                         image->height);
    bool more = false;
    for (size_t i = 0; i < pixels; i++) {
        state[i] = bleed_get(image->alpha, image->bits, i) ? BLEED_DONE : BLEED_OPEN;
        more = more || state[i] == BLEED_OPEN;
    }
    for (int ring = 0; more && ring < BLEED_REACH; ring++) {
        more = false;
        for (size_t i = 0; i < pixels; i++)
            if (state[i] == BLEED_OPEN && bleed_pixel(image, state, (int)(i % width), (int)(i / width))) {
                state[i] = BLEED_NEW;
                more = true;
            }
        for (size_t i = 0; i < pixels; i++)
            state[i] = state[i] == BLEED_NEW ? BLEED_DONE : state[i];
    }
    free(state);
    return OK;
}
