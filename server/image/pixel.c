#include "server/image/pixel.h"

#include <string.h>

void pixel_clamp(float *samples, size_t n)
{
    for (size_t i = 0; i < n; i++)
        samples[i] = samples[i] < 0 ? 0 : samples[i] > 255 ? 255 : samples[i];
}

/* A float of 2^23 to 2^24 has no fraction, so adding 1.5*2^23 rounds, and leaves the integer in the low bits; unlike
 * lrintf this vectorises. */
void pixel_round(uint8_t *to, const float *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float shifted = from[i] + 0x1.8p23f;
        uint32_t bits;
        memcpy(&bits, &shifted, sizeof bits);
        to[i] = (uint8_t)bits;
    }
}
