/* Conversions of samples between the networks' floats and bytes.
 * Thread-safety: functions without state. */
#ifndef SERVER_IMAGE_PIXEL_H
#define SERVER_IMAGE_PIXEL_H

#include <stddef.h>
#include <stdint.h>

/* Clamps n samples to 0..255. */
void pixel_clamp(float *samples, size_t n);

/* Rounds n samples, each within 0..255, to the nearest, halves to even. */
void pixel_round(uint8_t *to, const float *from, size_t n);

#endif
