/* What the U-Nets of models/training/networks_damage.py and networks_fill.py are made of: convolutions with a leaky
 * activation, residual blocks, and the way up beside what the way down had there. Thread-safety: as model_build.h. */
#ifndef RUNTIME_MODELS_UNET_H
#define RUNTIME_MODELS_UNET_H

#include "runtime/models/model_build.h"

/* conv(x) of ceil(side/stride), with a new temporary as *out; the caller may change the node's args. */
struct node *unet_conv(struct model_build *b, const char *name, struct view x, int kernel, int stride,
                       struct view *out);

/* act(conv(x) + residual), 3×3. */
struct view unet_act(struct model_build *b, const char *name, struct view x, int stride, struct view residual);

/* The blocks NAME.0, NAME.1, …: act(x + conv2(act(conv1(x)))). */
struct view unet_blocks(struct model_build *b, const char *name, struct view x);

/* act(conv(x), enlarged by nearest neighbour to skip's size, + skip); conv is 1×1. */
struct view unet_lateral(struct model_build *b, const char *name, struct view x, struct view skip);

/* The blocks NAME.body after NAME.lateral. */
struct view unet_up(struct model_build *b, const char *name, struct view x, struct view skip);

#endif
