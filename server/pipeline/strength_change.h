/* How far a face's restoration moves from the picture; and what the files of strength share. Thread-safety: functions
 * without state. */
#ifndef SERVER_PIPELINE_STRENGTH_CHANGE_H
#define SERVER_PIPELINE_STRENGTH_CHANGE_H

#include "server/image/similarity.h"
#include "server/pipeline/step.h"

/* 0..1, of landmarks, colour and structure, at 64 × 64 px of the crop. face: restored, before its floats are freed. */
enum error_code strength_change(const struct restoration *r, const struct face *face, double *change,
                                struct error *err) MUST_CHECK;

enum { STRENGTH_CELLS = 16 }; /* across and down */

/* Of the covered part of a picture: JPEG's blocks, how much larger second differences are where two columns (or rows)
 * of every eight meet; and the standard deviation of white noise that has the second differences of its quiet quarter.
 */
double strength_block(const struct image *picture, const struct rect *rect);
double strength_white(const struct image *picture, const struct rect *rect);

/* For qsort of doubles. */
int strength_order(const void *a, const void *b);

static inline float strength_luma(const float *rgb)
{
    return 0.299f * rgb[0] + 0.587f * rgb[1] + 0.114f * rgb[2];
}

/* Whether a place in the crop (0..1) is within the face itself. */
static inline bool strength_inside(double u, double v)
{
    return similarity_oval(512 * u, 512 * v) < 1;
}

static inline enum error_code strength_no_memory(struct error *err)
{
    return error_set(err, ERROR_NO_MEMORY, "out of memory to weigh a face");
}

#endif
