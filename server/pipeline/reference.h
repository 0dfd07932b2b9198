/* What Real-ESRGAN's own command makes of pictures that GFPGAN's reads as 8-bit RGB: gray, 16 bits and transparency
 * stay (compat, where no faces are restored). Thread-safety: as step.h. */
#ifndef SERVER_PIPELINE_REFERENCE_H
#define SERVER_PIPELINE_REFERENCE_H

#include "server/pipeline/tile.h"

/* r->picture, with r->deep, at outscale times its size. Transparency by the upscaler, or if so by bilinear
 * interpolation, as its option alpha_upsampler has it. */
enum error_code reference_upscale(struct step *step, const struct tile_compat *cut, double outscale, bool by_network,
                                  struct image **out, struct error *err) MUST_CHECK;

/* The picture's transparency as a gray picture of RGB, of 16 bits if r->deep has it so. */
enum error_code reference_mask(const struct restoration *r, struct image **out, struct error *err) MUST_CHECK;

/* n pixels of RGB to one channel, by the weights of OpenCV's cvtColor; to may be from. */
void reference_gray(const float *from, float *to, size_t n);

#endif
