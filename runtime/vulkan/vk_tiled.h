/* Convolutions without matrices on GPUs: by conv2d_tiled.comp or, after Winograd, by winograd.comp, or in packed fp16
 * by conv2d_packed.comp and winograd_packed.comp. Which one, and with which tiles, is measured (vk_tune.h).
 * Thread-safety: as the device. */
#ifndef RUNTIME_VULKAN_VK_TILED_H
#define RUNTIME_VULKAN_VK_TILED_H

#include "runtime/vulkan/vk_tune.h"

extern const struct vk_tune_family vk_tiled_family;

/* Whether the device should do the convolution in tiles: it is not a software device, and a tile fits its shared
 * memory. */
bool vk_tiled_takes(const struct vk_build *build, const struct op_conv2d *args);

/* Sets the dispatch's shader, constants, groups, tiles_x and tuning key. push.conv2d.out_h is set already. flags: FLAG_
 * bits. */
void vk_tiled_conv2d(const struct vk_build *build, const struct op_conv2d *args, const struct vk_operand *x,
                     const struct vk_operand *y, uint32_t flags, struct vk_dispatch *dispatch);

/* Whether it may use packed fp16; then, of the two transformed packings, only the one for winograd_packed.comp is
 * needed. */
bool vk_tiled_packed(const struct vk_device *device, const struct vk_tune_key *key);

/* Which packings of its weights such a dispatch needs: perhaps both until its tile is measured. */
bool vk_tiled_wants(const struct vk_device *device, const struct vk_dispatch *dispatch, enum vk_pack_kind kind);

#endif
