/* The orientation tag (0x0112) of IFD0 in a TIFF block from an untrusted file: read and reset, every offset checked.
 * Thread-safety: functions without state. */
#ifndef SERVER_IMAGE_EXIF_H
#define SERVER_IMAGE_EXIF_H

#include <stddef.h>
#include <stdint.h>

#include "server/image/image.h"

/* 1..8; 1 when the block is broken, has no such tag or a value out of range. */
int exif_orientation(const uint8_t *tiff, size_t size);

/* Sets the tag to 1 if it is there; a block without it is left unchanged. */
void exif_reset_orientation(uint8_t *tiff, size_t size);

/* What changes in the EXIF block of a picture that was restored. */
struct exif_change {
    int width, height;    /* of the result, px */
    double scale[2];      /* how much larger than the picture it is: the resolution grows by that, so that a print keeps
                          its size */
    double density[2];    /* px an inch, for a block without; 0: none */
    const char *software; /* who made it; NULL: not told */
    bool no_gps;          /* without the place */
};

/* Makes these changes in a TIFF block from malloc, which may grow: sizes, resolution, software; the thumbnail, which
 * shows the picture as it was, goes. All else stays where it is, since maker notes count on that. A block that makes no
 * sense stays as it is, but with no_gps it is emptied. ERROR_NO_MEMORY. */
enum error_code exif_change(struct image_blob *exif, const struct exif_change *change, struct error *err) MUST_CHECK;

/* A block without entries in place of none. ERROR_NO_MEMORY. */
enum error_code exif_create(struct image_blob *exif, struct error *err) MUST_CHECK;

/* The value of a tag of one number in the first directory, such as where another directory is; 0: there is none. */
#define EXIF_TAG_DIRECTORY 0x8769
#define EXIF_TAG_GPS 0x8825
uint32_t exif_number(const uint8_t *tiff, size_t size, unsigned tag);

/* The resolution in px an inch; 0: none. */
double exif_density(const uint8_t *tiff, size_t size);

#endif
