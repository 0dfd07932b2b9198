/* torch's ConvTranspose2d as what the devices have: each of the stride × stride pixels that an input pixel becomes is a
 * sum over a few neighbours, so that all of them are one convolution's channels, which a pixel shuffle takes apart.
 * Thread-safety: as model_build.h. */
#ifndef RUNTIME_MODELS_TRANSPOSED_H
#define RUNTIME_MODELS_TRANSPOSED_H

#include "runtime/models/model_build.h"

/* Which transposed convolution it is: kernel, stride, pad. */
enum transposed_kind {
    TRANSPOSED_2_2_0, /* y: 2h */
    TRANSPOSED_4_2_3, /* y: 2h - 4 */
    TRANSPOSED_5_3_2  /* y: 3h - 2 */
};

/* "name.weight" [channels of x][channels][kernel][kernel] and, where the file has it, "name.bias". The convolution is
 * returned in *conv (not NULL): for its input's factors and an activation. */
struct view build_transposed(struct model_build *b, const char *name, enum transposed_kind kind, struct view x,
                             struct node **conv);

#endif
