/* Command buffers and their way through the device's one queue. A thread owned by the device sends them, a few at a
 * time, so that others may go in between and that what was not sent yet can be given up. Thread-safety: as the device,
 * except for vk_command_busy_ms. */
#ifndef RUNTIME_VULKAN_VK_COMMAND_H
#define RUNTIME_VULKAN_VK_COMMAND_H

#include "runtime/vulkan/vk_device.h"

enum error_code vk_command_create(struct vk_device *device, struct error *err) MUST_CHECK;
void vk_command_destroy(struct vk_device *device);

/* A command buffer that is open for recording and can be submitted again and again, even while it is in flight; it
 * begins with a barrier after everything submitted before it. *out: NULL for a new one, or one to be recorded again. */
enum error_code vk_command_begin(struct vk_device *device, VkCommandBuffer *out, struct error *err) MUST_CHECK;
enum error_code vk_command_end(struct vk_device *device, VkCommandBuffer commands, struct error *err) MUST_CHECK;
void vk_command_free(struct vk_device *device, const VkCommandBuffer *commands, uint32_t count);

/* Makes all earlier writes visible to all later shaders and copies. */
void vk_command_barrier(VkCommandBuffer commands);
/* Makes them visible to the host, once the commands are done. */
void vk_command_to_host(VkCommandBuffer commands);

/* Command buffers to be submitted in order, none of them long, with few in flight. It belongs to the caller, until
 * vk_command_finish. */
struct vk_work {
    const VkCommandBuffer *commands;
    uint32_t count;
    uint32_t ways;            /* so many of the first only move data: that does not count as the device's work */
    const atomic_int *cancel; /* checked before each submit; NULL: none */
    atomic_uint *progress;    /* grows with each one that is done; NULL: none */
    bool background;          /* other work goes first */
    struct vk_work *behind;   /* NULL, or earlier work that is not finished: all its commands go first */
    /* vk_command's own: */
    struct vk_work *next;
    uint32_t sent, done;
    bool dropped;
    atomic_bool over; /* what else the work has is to be read under the lock even then */
    enum error_code code;
    struct error error;
};

/* Hands the work over. */
void vk_command_start(struct vk_device *device, struct vk_work *work);
bool vk_command_over(struct vk_device *device, const struct vk_work *work);
/* Waits for the end of the work; if it is to be dropped or was cancelled, only for what was already submitted. Errors
 * are the work's; CANCELLED, DEVICE_LOST, DEVICE, NO_MEMORY. */
enum error_code vk_command_finish(struct vk_device *device, struct vk_work *work, bool drop,
                                  struct error *err) MUST_CHECK;

/* Waits until all work that was handed over is over. */
void vk_command_wait_all(struct vk_device *device);

/* vk_command_start and vk_command_finish. */
enum error_code vk_command_run(struct vk_device *device, const VkCommandBuffer *commands, uint32_t count,
                               const atomic_int *cancel, struct error *err) MUST_CHECK;

/* vkQueueSubmit of one command buffer, for callers that wait for fences themselves; and vkDeviceWaitIdle. */
VkResult vk_command_submit(struct vk_device *device, VkCommandBuffer commands, VkFence fence);
void vk_command_wait_idle(struct vk_device *device);

/* How long the device has worked since it was opened; moving data does not count. */
double vk_command_busy_ms(struct vk_device *device);

#endif
