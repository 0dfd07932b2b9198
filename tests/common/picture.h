/* What tests of pictures share: goldens decoded by our own codec, their meta.json, made-up pixels, comparisons.
 * Failures end the cmocka test that calls. Thread-safety: for one thread. */
#ifndef TESTS_COMMON_PICTURE_H
#define TESTS_COMMON_PICTURE_H

#include <jansson.h>

#include "server/image/image.h"

/* Skips the test, with the reason, when the shared material is absent. */
void picture_need_shared(void);

/* The file decoded as it is stored (16 bit and gray stay). */
struct image *picture_load(const char *path);
/* Reads shared golden/pipeline/CASE/NAME; needs the shared material. */
struct image *picture_golden(const char *golden_case, const char *name);
json_t *picture_meta(const char *golden_case);

/* meta[key][index] as a 2×3 matrix. */
void picture_matrix(const json_t *meta, const char *key, size_t index, double matrix[6]);

/* Smooth waves and some noise, the same each time. */
void picture_fill(struct view_u8 view, unsigned seed);

/* Smooth waves in gray or RGB, of 8 or 16 bits. */
struct image *picture_waves(int width, int height, int channels, int bits);

/* The next number of a small generator, 0..32767. */
unsigned picture_random(unsigned *state);

/* How far two views of equal size are apart, and how many samples differ. */
int picture_difference(struct view_u8 a, struct view_u8 b, size_t *differing);

#endif
