/* The process's Vulkan instance, shared by all lists and all open devices: making one loads the drivers, which is a
 * large part of the program's start-up time.
 * Thread-safety: every function may be called from any thread. */
#ifndef RUNTIME_VULKAN_VK_INSTANCE_H
#define RUNTIME_VULKAN_VK_INSTANCE_H

#include "runtime/vulkan/vk_loader.h"

struct vk_instance;

/* The instance, made if there is none. Without a loader, or with a driver that is too old or does not work, returns a
 * VkResult that says so, and *out is NULL. */
VkResult vk_instance_hold(struct vk_instance **out);

/* The last holder's release destroys it, unless it is kept. NULL-safe. */
void vk_instance_release(struct vk_instance **instance);

/* Lets it outlive its last holder, because devices will be needed again. */
void vk_instance_keep(struct vk_instance *instance);

/* Later holders get a new one, in which a lost device may be found again. */
void vk_instance_abandon(struct vk_instance *instance);

VkInstance vk_instance_handle(const struct vk_instance *instance);

/* Messages of the validation layer since the process began. SWITCH_VULKAN_VALIDATION switches the layer on; if it is
 * not installed then, that counts as one message. */
int vk_validation_count(void);

#endif
