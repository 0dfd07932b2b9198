/* The context of a tile for the damage detector (model.h).
 * Thread-safety: functions without state. */
#ifndef RUNTIME_MODELS_DAMAGE_CUT_H
#define RUNTIME_MODELS_DAMAGE_CUT_H

#include <stdbool.h>

/* The whole picture's context, channels × height × width, enlarged (or reduced) to rows × columns cells as torch's
 * bilinear interpolation without align_corners does; of it the h × w cells from (x, y) on, channels × h × w. */
struct damage_cut {
    const float *context;
    int channels, height, width;
    int rows, columns;
    int x, y, w, h;
};

/* false: no memory. */
bool damage_cut(const struct damage_cut *cut, float *out);

#endif
