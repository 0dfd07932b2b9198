/* Convolutions that follow each other without a barrier. A barrier lets a GPU run empty before it starts anew, which
 * takes as long as a sixth of a convolution; instead the workgroups of a convolution wait, each for the rows of the one
 * before that it needs (shaders/matrix/chain.glsl). That relies on a queue that starts workgroups in the order of their
 * dispatches, which GPUs do and Vulkan does not promise. So no workgroup waits for ever: one that has waited too long
 * says so and goes on, the run fails as if the device had been lost, and chains are not used again in this process.
 * Thread-safety: the decisions are without state; vk_chain_late is for any thread. */
#ifndef RUNTIME_VULKAN_VK_CHAIN_H
#define RUNTIME_VULKAN_VK_CHAIN_H

#include "runtime/vulkan/vk_plan.h"

/* Whether new plans chain convolutions: those on matrices; RESTORED_VULKAN_CHAIN=0: none. */
bool vk_chain_wanted(bool matrix);

/* Counters that the dispatch has for others to wait on, one for CHAIN_BAND rows of its output; 0: it cannot be waited
 * for. */
uint32_t vk_chain_counters(const struct vk_dispatch *dispatch);

/* Decides, for dispatches that follow each other, which come behind a barrier, and what the push constants of the
 * others say that they wait for. */
void vk_chain_link(struct vk_dispatch *dispatches, uint32_t count);

/* What is to be said of a run in which a workgroup waited in vain: DEVICE_LOST. From now on nothing is chained. */
enum error_code vk_chain_late(const char *device, struct error *err);

#endif
