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

#endif
