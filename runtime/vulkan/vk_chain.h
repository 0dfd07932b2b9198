/* Convolutions that follow each other without a barrier. At a barrier a GPU runs empty before it starts again, which
 * takes as long as a sixth of a convolution. Instead each workgroup waits only for the rows of the convolution before
 * that it needs (shaders/matrix/chain.glsl). That relies on a queue that starts workgroups in the order of their
 * dispatches, as GPUs do, though Vulkan does not promise it. So no workgroup waits for ever: one that has waited too
 * long says so and goes on, the run fails as if the device had been lost, and chains are not used again in this
 * process.
 * Thread-safety: the decisions are without state; vk_chain_late is for any thread. */
#ifndef RUNTIME_VULKAN_VK_CHAIN_H
#define RUNTIME_VULKAN_VK_CHAIN_H

#include "runtime/vulkan/vk_plan.h"

/* Whether new plans chain convolutions: those on matrices; SWITCH_VULKAN_CHAIN "0": none. */
bool vk_chain_wanted(bool matrix);

/* The number of counters that the dispatch has for others to wait on, one for each CHAIN_BAND rows of its output; 0:
 * others cannot wait for it. */
uint32_t vk_chain_counters(const struct vk_dispatch *dispatch);

/* Decides which of the successive dispatches need a barrier before them, and sets in the push constants of the others
 * what they wait for. */
void vk_chain_link(struct vk_dispatch *dispatches, uint32_t count);

/* The error of a run in which a workgroup waited in vain: DEVICE_LOST. From now on nothing is chained. */
enum error_code vk_chain_late(const char *device, struct error *err);

#endif
