/* The process's Vulkan instance, which all lists and all open devices share: making one loads the drivers, which takes
 * a good part of the time that the program takes to start.
 * Thread-safety: every function may be called from any thread. */
#ifndef RUNTIME_VULKAN_VK_INSTANCE_H
#define RUNTIME_VULKAN_VK_INSTANCE_H

#include "runtime/vulkan/vk_loader.h"

struct vk_instance;

/* The instance, made if there is none. Without a loader, or with a driver that is too old or does not work, a VkResult
 * that says so, and *out is NULL. */
VkResult vk_instance_hold(struct vk_instance **out);

/* When nobody holds it any more it ends, unless it is kept. NULL-safe. */
void vk_instance_release(struct vk_instance **instance);

/* It outlives its last holder, since devices will be wanted of it again. */
void vk_instance_keep(struct vk_instance *instance);

/* Later holders get a new one, in which a device that was lost may be found again. */
void vk_instance_abandon(struct vk_instance *instance);

VkInstance vk_instance_handle(const struct vk_instance *instance);

/* Messages of the validation layer since the process began. It is switched on by RESTORED_VULKAN_VALIDATION=1; that
 * the layer is asked for and not installed counts as one. */
int vk_validation_count(void);

#endif
