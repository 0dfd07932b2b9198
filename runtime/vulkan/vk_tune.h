/* Which tile of shaders/matrix/conv2d.comp is the fastest for a convolution on this device: measured on first use, when
 * a plan is made, remembered by the device and in a file beside the pipelines, under the device's UUID and driver.
 * Thread-safety: as the device. */
#ifndef RUNTIME_VULKAN_VK_TUNE_H
#define RUNTIME_VULKAN_VK_TUNE_H

#include "runtime/vulkan/vk_plan.h"

/* What a workgroup makes, in the order of the shader's constants. */
struct vk_tile {
    uint32_t subgroups, down, rows, blocks, steps, prefetch, split, phase, padding;
};

/* Reads the file in cache_dir; NULL, or none there, is OK. A file that is damaged, or names tiles that are no longer
 * tried, is passed over. */
enum error_code vk_tune_create(struct vk_device *device, const char *cache_dir, struct error *err) MUST_CHECK;
void vk_tune_destroy(struct vk_device *device);

/* The best tile, if it was measured; else the best guess, and false. */
bool vk_tune_find(const struct vk_device *device, const struct vk_tune_key *key, struct vk_tile *out);

/* Whether vk_tune_measure would measure anything: convolutions that were not yet, on a device that has a clock. */
bool vk_tune_wants(const struct vk_device *device, const struct vk_dispatch *dispatches, uint32_t count);

/* Measures those, and writes the file. The dispatches are ready to run with these descriptors and may write their
 * outputs. One handle of a device measures at a time, and the others take what it found from the file. A failure to
 * write that is logged, and else of no account. */
enum error_code vk_tune_measure(struct vk_device *device, const struct vk_dispatch *dispatches,
                                const VkDescriptorSet *sets, uint32_t count, struct error *err) MUST_CHECK;

#endif
