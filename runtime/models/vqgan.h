/* The auto-encoder of VQGAN (Esser et al. 2021, "Taming Transformers for High-Resolution Image Synthesis"), as the face
 * networks around a codebook have it: residual blocks with GroupNorm and SiLU, attention, halvings, doublings, and the
 * nearest entry of the codebook. Names are those of its tensors without ".weight".
 * Thread-safety: as model_build.h. */
#ifndef RUNTIME_MODELS_VQGAN_H
#define RUNTIME_MODELS_VQGAN_H

#include "runtime/models/model_build.h"

/* GroupNorm of 32 groups; silu: and x/(1 + e^-x). */
struct view vqgan_norm(struct model_build *b, const char *name, struct view x, bool silu);

/* norm1, conv1, norm2, conv2, and the input, through the 1×1 convolution `shortcut` where channels change. */
struct view vqgan_residual(struct model_build *b, const char *name, const char *shortcut, struct view x);

/* q, k, v, proj_out. Queries are of the normalised `from`, keys and values of the normalised x, to which the result is
 * added. from: VIEW_NONE: x. norm, from_norm: what the norms are called. */
struct view vqgan_attention(struct model_build *b, const char *name, const char *norm, const char *from_norm,
                            struct view x, struct view from, int heads);

/* The convolution of every other pixel, padded to the right and below alone. */
struct view vqgan_halve(struct model_build *b, const char *name, struct view x);

/* The convolution of x with each pixel doubled. */
struct view vqgan_double(struct model_build *b, const char *name, struct view x);

/* A convolution to as many channels as its weight has rows. */
struct view vqgan_conv(struct model_build *b, const char *name, struct view x, int kernel);

/* The entry of the codebook `name` that is nearest to each pixel of x. */
struct view vqgan_nearest(struct model_build *b, const char *name, struct view x);

/* The entry whose channel of `scores` is the largest. */
struct view vqgan_entry(struct model_build *b, const char *name, struct view scores);

#endif
