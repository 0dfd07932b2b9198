/* Colours of pictures whose profile is not sRGB, as a plain model: a curve for each channel and a matrix. profile.c
 * makes it of an ICC profile. sRGB's values are unbounded here: a colour that sRGB lacks has samples below 0 or above
 * 255. Thread-safety: functions without state. */
#ifndef SERVER_IMAGE_COLOUR_H
#define SERVER_IMAGE_COLOUR_H

#include <stdbool.h>
#include <stddef.h>

#include "server/image/image.h"

#define COLOUR_STEPS 4081 /* 16 for each step of 8 bits, and one */

struct colour {
    int channels;                 /* 1 or 3 */
    float matrix[9], inverse[9];  /* the channels' light -> sRGB's, row by row, and back; of 3 channels */
    float curve[3][COLOUR_STEPS]; /* a sample, 0 .. 1 in equal steps -> light, rising */
};

/* XYZ of D50 to sRGB's light, row by row: the inverse of sRGB's own colorants, adapted to D50 (ICC.1:2022, annex E). */
extern const double colour_of_xyz[9];

/* What X, Y and Z, as parts of those of white, are in sRGB's light, row by row. white: its chromaticities x and y (D65
 * is 0.3127, 0.3290), adapted by Bradford's method (ICC.1:2022, annex E); NULL, or one that no white has: D50. */
void colour_of_white(const float *white, double out[9]);

/* n pixels of L*a*b* (0..100, -128..127) to RGB in sRGB, 0..255 and beyond. rgb may be lab. */
void colour_of_lab(const double of_white[9], const float *lab, float *rgb, size_t n);

/* Completes a model of which channels, matrix and curves are set: makes the curves rise and the matrix's inverse.
 * false: it makes no sense. Its bytes may come from another process. */
bool colour_complete(struct colour *colour);
/* Whether its samples mean what sRGB's mean. */
bool colour_is_srgb(const struct colour *colour);

/* n pixels of the model's samples, 0..255, to RGB in sRGB on the same scale, and back; what lies outside of the model
 * is cut off. Back, to may be from. */
void colour_to_srgb(const struct colour *colour, const float *from, float *to, size_t n);
void colour_from_srgb(const struct colour *colour, const float *from, float *to, size_t n);

#endif
