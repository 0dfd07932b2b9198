/* Convolutions on cooperative matrices whose input needs no copy in shared memory: shaders/matrix/direct.comp, for 1×1
 * kernels and for pictures of up to 4 channels. Thread-safety: as the device. */
#ifndef RUNTIME_VULKAN_VK_DIRECT_H
#define RUNTIME_VULKAN_VK_DIRECT_H

#include "runtime/vulkan/vk_tune.h"

extern const struct vk_tune_family vk_direct_family;

/* Whether the convolution is done this way; then its weights are packed as PACK_DIRECT. Call it only if vk_matrix_takes
 * was true. */
bool vk_direct_takes(const struct vk_build *build, const struct op_conv2d *args, const struct vk_operand *x);

/* Sets the dispatch's shader, constants, groups, tiles_x and tuning key. push.conv2d.out_h is set already. flags: FLAG_
 * bits. residual1: n is 0 if there is none. */
void vk_direct_conv2d(const struct vk_device *device, const struct op_conv2d *args, const struct vk_operand *x,
                      const struct vk_operand *y, const struct vk_operand *residual1, uint32_t flags,
                      struct vk_dispatch *dispatch);

/* The in lanes of weights packed this way, in whole matrices of 16 rows. lanes[16 * count] gets for each row the place
 * of its weight in a row of the param: channel * taps + tap if the input is a picture, else the channel; or
 * VK_PACK_NO_CHANNEL. vk_direct_steps counts the matrices, and says how many taps each of them covers. */
int vk_direct_steps(const struct vk_layout *in, int taps, int *taps_each);
void vk_direct_lanes(const struct vk_device *device, const struct vk_layout *in, int taps, uint32_t *lanes);

#endif
