/* GROUP_NORM and MEAN of pictures that one workgroup would be long at: many workgroups take the moments of parts, which
 * a second dispatch joins; for GROUP_NORM, a third one applies them. Moments are fp32 in any precision. Thread-safety:
 * as the device. */
#ifndef RUNTIME_VULKAN_VK_MOMENTS_H
#define RUNTIME_VULKAN_VK_MOMENTS_H

#include "runtime/vulkan/vk_plan.h"

/* Whether parts are faster than one workgroup for each norm's group of that many quads of channels. */
bool vk_moments_wanted_norm(uint32_t quads, uint32_t pixels);
bool vk_moments_wanted_mean(uint32_t pixels);

/* Appends the dispatches that do the same as `whole`, one of group_norm.comp with all but y, x and like bound. like:
 * n = 0 if absent. The three have the same lanes, and blocks below the last channel's. */
enum error_code vk_moments_norm(struct vk_build *build, const struct vk_dispatch *whole, const struct vk_operand *y,
                                const struct vk_operand *x, const struct vk_operand *like,
                                struct error *err) MUST_CHECK;

/* Appends the dispatches of MEAN. noise: n = 0 if absent. */
enum error_code vk_moments_mean(struct vk_build *build, const struct vk_operand *y, const struct vk_operand *x,
                                const struct vk_operand *noise, struct error *err) MUST_CHECK;

#endif
