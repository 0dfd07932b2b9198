/* Fills holes smoothly from what is around them: the known pixels are averaged into ever smaller pictures, which fill
 * the holes on the way back (pull-push, Gortler et al. 1996). The filler network gets holes filled so. Thread-safety:
 * functions without state. */
#ifndef SERVER_PIPELINE_PULL_PUSH_H
#define SERVER_PIPELINE_PULL_PUSH_H

#include <stddef.h>

/* rgb: 3 planes of h × w values; mask: a plane, 1 in holes and 0 elsewhere, which may have values between. Values where
 * the mask is 0 stay as they are; without any such all become 0. scratch: pull_push_scratch(h, w) floats. */
void pull_push(float *rgb, const float *mask, int h, int w, float *scratch);
size_t pull_push_scratch(int h, int w);

/* ---- the same for a picture that is read once, in bands that threads share --------------------------------------- */

#define PULL_LEVELS 32 /* halvings of any side */
#define PULL_BAND 16   /* rows of the picture */
#define PULL_TILE 8    /* px */

/* A smaller picture: three planes of colour and one of weights. */
struct pull_level {
    int h, w;
    float *rgb, *weight;
};

struct pull {
    struct pull_level levels[PULL_LEVELS + 1]; /* the first is the picture, which is not kept */
    int last;
};

/* room: pull_room(h, w) floats; more than one pixel. */
size_t pull_room(int h, int w);
void pull_begin(struct pull *pull, int h, int w, float *room);
/* Two rows from y on, or the last alone: three planes of two rows, and 1 where a pixel is known and 0 elsewhere; of
 * them the columns from `from` to before `to`. These begin and end at tiles or at the picture's edge. */
void pull_two_rows(const struct pull *pull, int y, const float *rgb, const float *weight, int from, int to);
/* Then, when all eight rows from y on, or the last, have been read so there. */
void pull_tiles(const struct pull *pull, int y, int from, int to);
/* Or instead, for tiles that are known as a whole, as are up to 4 px beside them: the first three smaller pictures are
 * not needed there, but of the third each pixel is to be set, which is the mean of one tile. */
void pull_known(const struct pull *pull, int y, int from, int to);
float *pull_tile(const struct pull *pull, int x, int y, int channel);
/* When all rows of the band that begins at y have been read. */
void pull_band(const struct pull *pull, int y);
/* After all bands; and then, for each of them, with the levels from PULL_PUSHED down to 1, each after all bands of the
 * one before, */
#define PULL_PUSHED 2
void pull_rest(const struct pull *pull);
void pull_push_band(const struct pull *pull, int level, int y);
/* after all of which any pixel that is not known can be had. */
void pull_hole(const struct pull *pull, int x, int y, float rgb[3]);

#endif
