/* RetinaFace's raw maps -> faces (Deng et al. 2020; anchors, variances and thresholds as facexlib uses them).
 * Thread-safety: functions without state. */
#ifndef RUNTIME_MODELS_RETINAFACE_DECODE_H
#define RUNTIME_MODELS_RETINAFACE_DECODE_H

#include <stddef.h>

#include "runtime/base/error.h"

struct face_box {
    float box[4]; /* x0, y0, x1, y1 in px of the picture that went in */
    float score;
    float landmarks[5][2]; /* left eye, right eye, nose, left and right mouth corner (of the picture), px */
};

/* So many anchors, the surest, are looked at: a detector that fires everywhere costs no more than that squared. */
#define RETINAFACE_CANDIDATES 5000

/* maps[k]: model.h's detector output k for an h × w picture; faces with score > threshold, sorted by score descending,
 * after non-maximum suppression at IoU nms. *faces is the caller's to free(); may be NULL with *count 0. */
enum error_code retinaface_decode(const float *const maps[3], int h, int w, const float min_sizes[3][2],
                                  float threshold, float nms, struct face_box **faces, size_t *count,
                                  struct error *err) MUST_CHECK;

#endif
