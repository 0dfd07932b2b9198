/* Which tile of shaders/matrix/conv2d.comp is the fastest for a convolution on this device: measured on first use, when
 * a plan is made, remembered by the device and in a file beside the pipelines, under the device's UUID and driver.
 * Thread-safety: as the device. */
#ifndef RUNTIME_VULKAN_VK_TUNE_H
#define RUNTIME_VULKAN_VK_TUNE_H

#include "runtime/vulkan/vk_plan.h"

/* What a workgroup makes, in the order of the shader's constants. */
struct vk_tile {
    uint32_t subgroups, down, rows, blocks, steps, prefetch, split, phase;
};

/* Reads the file in cache_dir; NULL, or none there, is OK. A file that is damaged, or names tiles that are no longer
 * tried, is passed over. */
enum error_code vk_tune_create(struct vk_device *device, const char *cache_dir, struct error *err) MUST_CHECK;
void vk_tune_destroy(struct vk_device *device);

/* The best tile, if it was measured; else the best guess, and false. */
bool vk_tune_find(const struct vk_device *device, const struct vk_tune_key *key, struct vk_tile *out);

/* Measures the tiles that can do the dispatch, which is ready to run with these descriptors and may write its output.
 * Does nothing when that was done before, or when the device has no clock. */
enum error_code vk_tune_measure(struct vk_device *device, const struct vk_dispatch *dispatch, VkDescriptorSet set,
                                struct error *err) MUST_CHECK;

/* Writes the file, if something was measured since. A failure is logged, and else of no account. */
void vk_tune_save(struct vk_device *device);

#endif
