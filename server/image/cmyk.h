/* Back to the CMYK of a picture's profile from the wide RGB that it was read as, by a table of plain numbers:
 * profile_cmyk.c makes it where the picture is read, because only there may a stranger's profile be used. image->cmyk
 * is such a table with the profile behind it. Nodes may have less than no ink and more than all of it, so that what
 * lies between them is right up to where inks end. Thread-safety: functions without state. */
#ifndef SERVER_IMAGE_CMYK_H
#define SERVER_IMAGE_CMYK_H

#include "server/image/image.h"

#define CMYK_GRID 49    /* nodes a side: of R, the slowest, G and B */
#define CMYK_FULL 16384 /* all ink */

struct cmyk_table {
    int32_t bits; /* of the file that the picture is from, 8 or 16 */
    int16_t ink[CMYK_GRID * CMYK_GRID * CMYK_GRID][4];
};

/* Whether the picture has a table, for three channels without alpha; its bytes may come from another process. */
bool cmyk_known(const struct image *image);

/* Bits a sample of the file that it is from. */
int cmyk_bits(const struct image *image);

/* The profile behind the table. */
struct image_blob cmyk_profile(const struct image *image);

/* Row y of such a picture as C, M, Y and K in so many bits, 8 or 16. inverted: 0 is full ink. */
void cmyk_row(const struct image *image, int y, int bits, bool inverted, void *to);

#endif
