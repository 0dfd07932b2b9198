/* Convolutions on cooperative matrices (VK_KHR_cooperative_matrix): whether the device has them in the form that
 * shaders/matrix/ needs, in which order its invocations hold a matrix, and how a convolution is cut into tiles.
 * Thread-safety: as the device. */
#ifndef RUNTIME_VULKAN_VK_MATRIX_H
#define RUNTIME_VULKAN_VK_MATRIX_H

#include "runtime/vulkan/vk_tune.h"

#define VK_MATRIX_SIZE 16    /* rows and columns of a matrix */
#define VK_MATRIX_KERNEL 7   /* the largest kernel whose columns of taps are multiplied in one turn */
#define VK_MATRIX_LARGEST 31 /* the largest kernel, if its tile fits in shared memory */

extern const struct vk_tune_family vk_matrix_family, vk_matrix_fp32_family;

/* Whether the device has 16×16×16 matrices of fp16 with fp32 sums, spread over subgroups of 32 invocations. */
bool vk_matrix_present(VkInstance instance, VkPhysicalDevice physical, const struct device_info *info);

/* Finds out how the device orders matrices among its invocations, and sets device->matrix. If it cannot tell, or
 * weights cannot be packed or sums not written in that order, device->matrix is false, the reason is logged and the
 * device works without matrices. ERROR_DEVICE_LOST. */
enum error_code vk_matrix_create(struct vk_device *device, struct error *err) MUST_CHECK;

/* Whether the convolution is done with matrices. One in fp32 with a kernel of up to VK_MATRIX_KERNEL is, if its plan's
 * precision is fp16: then numbers are made of two in fp16, and products of three (shaders/matrix/conv2d.comp). Matrix
 * units cut sums off, and those of a larger kernel are too long for that (17×17: off by 1.1e-5 of the range on an H200).
 * In a plan of fp32 none is, for that is what results beyond fp16's range are computed with again. */
bool vk_matrix_takes(const struct vk_build *build, const struct node *conv);

/* FLAG_WARM where the convolution's weights are so many that the first workgroups ask for all of them at once. */
uint32_t vk_matrix_warm_flag(const struct op_conv2d *args, const struct vk_operand *x, const struct vk_operand *y);

/* The tensor's channel for column `column` (0..15) of the out matrix that begins with channel `first`, for weights with
 * out_blocks quads of out channels: chosen so that each invocation holds channels that are side by side. */
int vk_matrix_unit(int out_blocks); /* how many channels are ordered among themselves: 16 or 32 */
int vk_matrix_channel(const struct vk_device *device, int out_blocks, int first, int column);

/* Sets the dispatch's shader, constants, groups, tiles_x and tuning key. push.conv2d.out_h is set already. residuals: n
 * is 0 where there is none. flags: FLAG_ bits. shuffle: the factor of the pixel shuffle that follows, for which y is
 * laid out (vk_pack_layout_shuffled), or 1. */
void vk_matrix_conv2d(const struct vk_device *device, const struct op_conv2d *args, const struct vk_operand *x,
                      const struct vk_operand *y, const struct vk_operand *residual1,
                      const struct vk_operand *residual2, uint32_t flags, int shuffle, struct vk_dispatch *dispatch);

#endif
