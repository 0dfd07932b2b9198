/* The command buffers of a plan: its dispatches, with barriers or waits (vk_chain.h) between them and time stamps, cut
 * into submits.
 * Thread-safety: as the device. */
#ifndef RUNTIME_VULKAN_VK_RECORD_H
#define RUNTIME_VULKAN_VK_RECORD_H

#include "runtime/vulkan/vk_plan.h"
#include "runtime/vulkan/vk_timer.h"

/* All zeros is a record without commands. */
struct vk_record {
    VkCommandBuffer *commands; /* a submit each */
    uint32_t count, capacity;
    struct vk_buffer counters; /* of chains, and CHAIN_WILD of each run */
    struct vk_buffer late;     /* the host's copy of the counter that must stay 0 */
    struct vk_timer timer;
};

/* Gives counters to the dispatches that others may wait for or that are watched, if there are any, and binds them.
 * what: for errors. */
enum error_code vk_record_counters(struct vk_record *record, struct vk_device *device, struct vk_dispatch *dispatches,
                                   uint32_t count, const char *what, struct error *err) MUST_CHECK;

/* Records dispatches that vk_chain_link has processed, replacing what was recorded. profile: each node by itself,
 * followed by a time stamp, instead of one stamp before and one after all of them. */
enum error_code vk_record_make(struct vk_record *record, struct vk_device *device, struct vk_dispatch *dispatches,
                               const VkDescriptorSet *sets, uint32_t count, int node_count, bool profile,
                               struct error *err) MUST_CHECK;

/* Whether a workgroup of a finished run waited in vain; once true it stays true. */
bool vk_record_late(const struct vk_record *record);

/* No run may be under way. */
void vk_record_destroy(struct vk_record *record, struct vk_device *device);

#endif
