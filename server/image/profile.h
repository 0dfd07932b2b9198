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

/* How a file has its CMYK: 8 or 16 bits, with `extra` samples behind each pixel; inverted: 0 is full ink. */
struct profile_inks {
    int bits, extra;
    bool inverted, back; /* back: its way back is wanted */
};

/* What a profile of CMYK makes of a picture: RGB in sRGB of the same depth; or, if its way back is wanted and known, 16
 * bits of an RGB that holds all colours of inks (wide), with that RGB's profile (image->icc) and the way back to the
 * inks (image->cmyk). */
struct profile_cmyk {
    struct profile *profile; /* NULL: it is not for CMYK or damaged, or there is no lcms2 */
    bool wide;
    struct image_blob icc, cmyk;
};
enum error_code profile_cmyk_open(struct profile_cmyk *out, const void *icc, size_t size,
                                  const struct profile_inks *inks, struct error *err) MUST_CHECK;
void profile_cmyk_row(const struct profile_cmyk *cmyk, const void *from, void *to, int pixels);
/* Moves what it knows into the picture, and notes what was done. */
void profile_cmyk_apply(struct profile_cmyk *cmyk, struct image *image);
void profile_cmyk_close(struct profile_cmyk *cmyk);
/* For fuzzers: the way back is made at every apart-th R and G only, since all of it takes most of a second. To be
 * called before any other. */
void profile_cmyk_sparse(int apart);

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
