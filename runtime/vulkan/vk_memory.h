/* Buffers, each with device memory of its own, counted against the device's heap.
 * Thread-safety: as the device. */
#ifndef RUNTIME_VULKAN_VK_MEMORY_H
#define RUNTIME_VULKAN_VK_MEMORY_H

#include "runtime/vulkan/vk_device.h"

enum vk_memory_kind {
    MEMORY_DEVICE,  /* the device's own */
    MEMORY_UPLOAD,  /* mapped; written by the host, front to back; the device's own where that is best (vk_device.h) */
    MEMORY_READBACK /* mapped; read by the host, cached where there is such memory */
};

struct vk_buffer {
    VkBuffer handle;
    VkDeviceMemory memory;
    VkDeviceSize size;
    void *mapped; /* NULL for MEMORY_DEVICE */
    bool counted; /* lies in the device's heap */
};

/* A part of a buffer as bound to a shader. The buffer's handle may be made later. */
struct vk_slice {
    const struct vk_buffer *buffer;
    VkDeviceSize offset, range;
};

/* size bytes, at least 1, for use as storage and by copies. Errors: TOO_LARGE when the device has no room for it or
 * does not allow allocations of that size, NO_MEMORY when allocating fails. what: for the error, such as "the plan
 * 'x'". */
enum error_code vk_memory_create(struct vk_device *device, struct vk_buffer *out, VkDeviceSize size,
                                 enum vk_memory_kind kind, const char *what, struct error *err) MUST_CHECK;

/* Frees it and zeroes *buffer. Does nothing to an empty one. No command that uses it may be in flight. */
void vk_memory_destroy(struct vk_device *device, struct vk_buffer *buffer);

#endif
