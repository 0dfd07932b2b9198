/* The command buffers of a plan: its dispatches with the barriers or the waiting between them (vk_chain.h) and time
 * stamps, cut into submits.
 * Thread-safety: as the device. */
#ifndef RUNTIME_VULKAN_VK_RECORD_H
#define RUNTIME_VULKAN_VK_RECORD_H

#include "runtime/vulkan/vk_plan.h"
#include "runtime/vulkan/vk_timer.h"

/* Zeroes are one without commands. */
struct vk_record {
    VkCommandBuffer *commands; /* a submit each */
    uint32_t count, capacity;
    struct vk_buffer counters, late; /* of chains; late: the host's copy of the one that must stay 0 */
    struct vk_timer timer;
};

/* Gives the dispatches that others may wait for their counters, where there are any, and binds those. what: for errors.
 */
enum error_code vk_record_counters(struct vk_record *record, struct vk_device *device, struct vk_dispatch *dispatches,
                                   uint32_t count, const char *what, struct error *err) MUST_CHECK;

/* Records dispatches that vk_chain_link has looked at, in place of what was recorded. profile: each node by itself,
 * with a time stamp behind it, in place of stamps before and behind all. */
enum error_code vk_record_make(struct vk_record *record, struct vk_device *device, struct vk_dispatch *dispatches,
                               const VkDescriptorSet *sets, uint32_t count, int node_count, bool profile,
                               struct error *err) MUST_CHECK;

/* Whether a workgroup of a run that is over waited in vain; so it stays. */
bool vk_record_late(const struct vk_record *record);

/* No run may be under way. */
void vk_record_destroy(struct vk_record *record, struct vk_device *device);

#endif
