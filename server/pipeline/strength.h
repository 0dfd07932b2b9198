/* How much of a face's restoration is used where (weight=auto), and how far the restoration moves from the picture.
 * Thread-safety: as step.h. */
#ifndef SERVER_PIPELINE_STRENGTH_H
#define SERVER_PIPELINE_STRENGTH_H

#include "server/pipeline/step.h"

/* A map over the part of the picture that a face's crop covers. One of its pixels is `step` px of the picture. */
struct strength {
    struct rect rect; /* in its own pixels; empty: the crop is not in the picture */
    double step;      /* 1 or more */
    float *used;      /* rect.height × rect.width, 0..1 */
};

/* Sets face->change, and with weight=auto face->used and the map; otherwise the map is empty. face: restored, before
 * its floats are freed. */
enum error_code strength_of(const struct restoration *r, struct face *face, struct strength *out,
                            struct error *err) MUST_CHECK;
void strength_free(struct strength *strength);

/* Multiplies a row of `count` RGBA by the map; x, y: the first one's place in a result that is sx and sy times as large
 * as the picture. */
void strength_apply(const struct strength *strength, int x, int y, int count, double sx, double sy, float *rgba);

#endif
