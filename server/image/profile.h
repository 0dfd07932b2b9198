/* ICC profiles, read by lcms2. They come with strangers' files, so in a server all of this happens in the processes
 * that read pictures; what they hand on is a model of plain numbers (colour.h). Thread-safety: functions without state;
 * several threads may use one struct profile. */
#ifndef SERVER_IMAGE_PROFILE_H
#define SERVER_IMAGE_PROFILE_H

#include "server/image/image.h"

/* Whether this build reads profiles. */
bool profile_known(void);

/* Looks at a decoded picture's profile. One that means sRGB stays as it is; of one of curves and a matrix image->colour
 * gets the model; a picture with any other (tables) becomes sRGB; one that is damaged or for other channels is dropped.
 * The picture's notes say so. Without lcms2 nothing happens. */
enum error_code profile_apply(struct image *image, struct error *err) MUST_CHECK;

/* From CMYK, 8 or 16 bit with `extra` samples behind each pixel, to RGB in sRGB of the same depth; inverted: 0 is full
 * ink. NULL: the profile is not for CMYK or damaged, or there is no lcms2. */
struct profile;
struct profile *profile_cmyk(const void *icc, size_t size, int bits, int extra, bool inverted);
void profile_row(const struct profile *profile, const void *from, void *to, int pixels);
void profile_destroy(struct profile **profile);

/* Puts into the picture how its colours become CMYK again by that profile (cmyk.h), if the profile works both ways. */
enum error_code profile_cmyk_back(struct image *image, const void *icc, size_t size, struct error *err) MUST_CHECK;

/* For a picture of RGB without a profile whose file says its colours in numbers: gives it one, unless these are sRGB's.
 * xy: of white, red, green and blue; gamma 0: sRGB's curve. Numbers that make no sense give none. */
enum error_code profile_of_primaries(struct image *image, const double xy[8], double gamma,
                                     struct error *err) MUST_CHECK;
/* The same for the code points of H.273. High dynamic range counts as sRGB. */
enum error_code profile_of_codes(struct image *image, unsigned primaries, unsigned transfer,
                                 struct error *err) MUST_CHECK;

/* A small profile of sRGB. ERROR_UNSUPPORTED without lcms2. */
enum error_code profile_srgb(struct image_blob *out, struct error *err) MUST_CHECK;

#endif
