/* The layers of GFPGAN's two forms. The clean one (1.2 and later) has plain convolutions and bilinear resizes. The
 * original one (1) has those of StyleGAN2 (Karras et al. 2020; tensors as in GFPGAN's gfpganv1_arch.py and BasicSR's
 * stylegan2_arch.py): a weight counts 1/sqrt(inputs of a sum) of its stored value, every LeakyReLU is multiplied by
 * sqrt(2), and a filter (1, 3, 3, 1) comes with each halving and, in the decoder, each doubling.
 * Thread-safety: as model_build.h. */
#ifndef RUNTIME_MODELS_GFPGAN_LAYERS_H
#define RUNTIME_MODELS_GFPGAN_LAYERS_H

#include "runtime/models/model_build.h"

bool gfpgan_is_original(const struct weights *weights);

/* conv_body_first and final_conv: a convolution with bias and LeakyReLU. */
struct view gfpgan_activated(struct model_build *b, const char *name, struct view x, int kernel);

/* ResBlock and ResUpBlock: two convolutions around a change of size to side × side, and a 1×1 convolution of the input
 * at the new size. */
struct view gfpgan_block(struct model_build *b, const char *name, struct view x, int side);

/* One of the two convolutions of condition_scale.N or condition_shift.N; the first is activated. */
struct view gfpgan_condition(struct model_build *b, const char *name, struct view x, bool first);

/* Linear "name.weight", "name.bias". */
void gfpgan_linear(struct model_build *b, const char *name, struct view x, struct view out);

/* What ModulatedConv2d gets from the latent code: the factors of the input's and of the output's channels (none of the
 * latter where it makes RGB). */
struct modulation {
    struct build_text layer;
    struct view style, demodulation;
};

/* The params of m's demodulation: in·out values. */
const struct param *gfpgan_squares(struct model_build *b, const char *layer, size_t count);

/* StyleConv: a modulated convolution, noise, bias and LeakyReLU. doubles: of x at twice its size; y has that size. */
void gfpgan_style_conv(struct model_build *b, const struct modulation *m, struct view x, struct view out,
                       struct view noise, bool doubles);

/* ToRGB: a modulated 1×1 convolution without demodulation, plus the smaller picture `up`, already enlarged. */
struct view gfpgan_rgb(struct model_build *b, const struct modulation *m, struct view x, struct view up,
                       enum tensor_role role);

/* The smaller picture at side × side. */
struct view gfpgan_enlarge(struct model_build *b, struct view picture, int side);

#endif
