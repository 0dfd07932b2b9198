/* Convolutions that follow each other without a barrier. A barrier lets a GPU run empty before it starts anew, which
 * takes as long as a sixth of a convolution; instead the workgroups of a convolution wait, each for the rows of the one
 * before that it needs (shaders/matrix/chain.glsl). That relies on a queue that starts workgroups in the order of their
 * dispatches, which GPUs do and Vulkan does not promise. So no workgroup waits for ever: one that has waited too long
 * says so and goes on, the run fails as if the device had been lost, and chains are not used again in this process.
 * Thread-safety: the decisions are without state; vk_chain_late is for any thread. */
#ifndef RUNTIME_VULKAN_VK_CHAIN_H
#define RUNTIME_VULKAN_VK_CHAIN_H

#include "runtime/vulkan/vk_plan.h"

#define VK_CHAIN_OPEN 64 /* dispatches since the last barrier that are remembered */

/* The dispatches since the last barrier, in their order, and which of them each waits for, or -1. */
struct vk_chain {
    const struct vk_dispatch *dispatch[VK_CHAIN_OPEN];
    int waits[VK_CHAIN_OPEN];
    int count;
};

/* Whether new plans chain convolutions: those on matrices; RESTORED_VULKAN_CHAIN=0: none. */
bool vk_chain_wanted(bool matrix);

/* Counters that the dispatch has for others to wait on, one for CHAIN_BAND rows of its output; 0: it cannot be waited
 * for. */
uint32_t vk_chain_counters(const struct vk_dispatch *dispatch);

/* Appends the dispatch. True: behind a barrier, as the first; or else its push constants say what it waits for. */
bool vk_chain_add(struct vk_chain *chain, struct vk_dispatch *dispatch);

/* What is to be said of a run in which a workgroup waited in vain: DEVICE_LOST. From now on nothing is chained. */
enum error_code vk_chain_late(const char *device, struct error *err);

#endif
