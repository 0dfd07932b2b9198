/* Command buffers and their way through the device's one queue.
 * Thread-safety: as the device. */
#ifndef RUNTIME_VULKAN_VK_COMMAND_H
#define RUNTIME_VULKAN_VK_COMMAND_H

#include "runtime/vulkan/vk_device.h"

enum error_code vk_command_create(struct vk_device *device, struct error *err) MUST_CHECK;
void vk_command_destroy(struct vk_device *device);

/* A command buffer that can be submitted again and again, open for recording; begins with a barrier after everything
 * submitted before it. */
enum error_code vk_command_begin(struct vk_device *device, VkCommandBuffer *out, struct error *err) MUST_CHECK;
enum error_code vk_command_end(struct vk_device *device, VkCommandBuffer commands, struct error *err) MUST_CHECK;
void vk_command_free(struct vk_device *device, const VkCommandBuffer *commands, uint32_t count);

/* Makes all writes before it visible to all shaders and copies after it. */
void vk_command_barrier(VkCommandBuffer commands);
/* Makes them visible to the host, once the commands are done. */
void vk_command_to_host(VkCommandBuffer commands);

/* Submits them in order, each in a submit of its own so that none keeps the device long, with at most two in flight,
 * and waits for the last. cancel (may be NULL) is looked at before each submit: what was submitted is waited for. */
enum error_code vk_command_run(struct vk_device *device, const VkCommandBuffer *commands, uint32_t count,
                               const atomic_int *cancel, struct error *err) MUST_CHECK;

#endif
