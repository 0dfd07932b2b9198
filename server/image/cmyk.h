/* From sRGB back to the CMYK of a picture's profile, by a table of plain numbers: profile.c makes it where the picture
 * is read, because only there may a stranger's profile be used. image->cmyk is such a table with the profile behind it.
 * Thread-safety: functions without state. */
#ifndef SERVER_IMAGE_CMYK_H
#define SERVER_IMAGE_CMYK_H

#include "server/image/image.h"

#define CMYK_GRID 33 /* nodes a side: of R, the slowest, G and B */

struct cmyk_table {
    uint16_t ink[CMYK_GRID * CMYK_GRID * CMYK_GRID][4]; /* 65535: full */
};

/* Whether the picture has a table, for three channels without alpha; its bytes may come from another process. */
bool cmyk_known(const struct image *image);

/* The profile behind the table. */
struct image_blob cmyk_profile(const struct image *image);

/* Row y of such a picture as C, M, Y and K in so many bits, 8 or 16. inverted: 0 is full ink. */
void cmyk_row(const struct image *image, int y, int bits, bool inverted, void *to);

#endif
