/* One axis of a resize: which source px each destination px is made of, and by which weights.
 * Thread-safety: functions without state. */
#ifndef SERVER_IMAGE_RESIZE_AXIS_H
#define SERVER_IMAGE_RESIZE_AXIS_H

#include <stdbool.h>

#include "server/image/resize.h"

struct resize_axis {
    int taps;      /* room for each px */
    int *first;    /* first source px, within the picture */
    int *count;    /* source px used */
    float *weight; /* taps for each px, summing to 1 */
};

/* From src to dst px. False: out of memory; to be freed in any case. */
bool resize_axis_create(struct resize_axis *axis, int dst, int src, enum resize_kernel kernel);
void resize_axis_free(struct resize_axis *axis);

#endif
