/* Time stamps among a plan's commands: how long the device worked on its nodes, in total or one by one.
 * Thread-safety: as the device. */
#ifndef RUNTIME_VULKAN_VK_TIMER_H
#define RUNTIME_VULKAN_VK_TIMER_H

#include "runtime/vulkan/vk_device.h"

struct vk_timer {
    VkQueryPool pool; /* NULL: the device has no clock, or nothing was asked for */
    uint32_t count, capacity;
    bool nodes;     /* one by one */
    int node_count; /* of the graph */
    int *node;      /* by stamp: the node that it ends; -1 for the first */
};

/* For a plan of that many nodes. OK without a clock: then no stamps are written. */
enum error_code vk_timer_create(struct vk_timer *timer, struct vk_device *device, int node_count, bool nodes,
                                struct error *err) MUST_CHECK;
void vk_timer_destroy(struct vk_timer *timer, struct vk_device *device);

/* Into the first commands of a run, before any stamp. */
void vk_timer_reset(const struct vk_timer *timer, VkCommandBuffer commands);

/* Whether a stamp belongs between the commands of two successive nodes: -1 stands for the transfer of inputs,
 * node_count for that of outputs. */
bool vk_timer_wants(const struct vk_timer *timer, int node, int next);

/* Writes the time at which all commands before it are done. */
void vk_timer_stamp(struct vk_timer *timer, VkCommandBuffer commands, int node);

/* After a run: ms from the first stamp to the last, negative when unknown; node_ms[node_count], unless NULL: the time
 * of each node, 0 where it was not measured. */
double vk_timer_read(const struct vk_timer *timer, const struct vk_device *device, double *node_ms);

#endif
