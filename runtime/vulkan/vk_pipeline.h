/* Compute pipelines, made once for each shader, precision and set of specialisation constants, and Vulkan's cache of
 * compiled ones in a file. All have one layout: BIND_COUNT storage buffers and 128 bytes of push constants.
 * Thread-safety: as the device. */
#ifndef RUNTIME_VULKAN_VK_PIPELINE_H
#define RUNTIME_VULKAN_VK_PIPELINE_H

#include "runtime/vulkan/vk_device.h"

#define VK_PIPELINE_MAX_SPEC 20

/* What distinguishes one pipeline from another. Specialisation constant i has the id i. */
struct vk_pipeline_key {
    const char *shader; /* the stem, "conv2d": string constant */
    bool fp16;
    uint32_t spec_count, spec[VK_PIPELINE_MAX_SPEC];
};

/* cache_dir: as device_open. A cache file that is damaged or from another device or driver is ignored. */
enum error_code vk_pipeline_create(struct vk_device *device, const char *cache_dir, struct error *err) MUST_CHECK;
void vk_pipeline_destroy(struct vk_device *device);

/* The pipeline, compiled if it is new. It lives as long as the device. */
enum error_code vk_pipeline_get(struct vk_device *device, const struct vk_pipeline_key *key, VkPipeline *out,
                                struct error *err) MUST_CHECK;

/* Compiles those that are new, on all cores at once. */
enum error_code vk_pipeline_make(struct vk_device *device, const struct vk_pipeline_key *keys, size_t count,
                                 struct error *err) MUST_CHECK;

/* The same for pipelines that are only tried out: they are not kept in the file, and live until vk_pipeline_end_trials.
 * One that does not compile is left out. ERROR_DEVICE_LOST, NO_MEMORY. */
enum error_code vk_pipeline_make_trials(struct vk_device *device, const struct vk_pipeline_key *keys, size_t count,
                                        struct error *err) MUST_CHECK;
VkPipeline vk_pipeline_trial(const struct vk_device *device, const struct vk_pipeline_key *key); /* NULL if left out */
void vk_pipeline_end_trials(struct vk_device *device);

/* Writes the cache file if pipelines were made that it lacks. A failure is only logged. */
void vk_pipeline_save(struct vk_device *device);

VkPipelineLayout vk_pipeline_layout(const struct vk_device *device);
VkDescriptorSetLayout vk_pipeline_set_layout(const struct vk_device *device);

/* The number of pipelines made since the device was opened, without trials. */
uint32_t vk_pipeline_count(const struct vk_device *device);

#endif
