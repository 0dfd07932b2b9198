/* Operators that a convolution on matrices does as it writes its output, in place of dispatches of their own.
 * Thread-safety: functions without state. */
#ifndef RUNTIME_VULKAN_VK_JOIN_H
#define RUNTIME_VULKAN_VK_JOIN_H

#include "runtime/vulkan/vk_plan.h"

/* Nodes of the graph as the backend does them, for the caller to free, or NULL where that is as they are. Joined are:
 * - a pixel shuffle right behind a convolution, which then has the shuffle's output and residual;
 * - SCALE_SHIFT of the second half of a convolution's channels, in place: the convolution then has the scale and the
 *   shift as residuals.
 * Nothing is left to do of the joined node: it has neither inputs nor an output. */
enum error_code vk_join(const struct vk_build *build, struct node **out, struct error *err) MUST_CHECK;

/* Whether the node is a shuffle that was joined to the convolution before it. */
bool vk_join_shuffles(const struct node *node);

/* Whether a SCALE_SHIFT was joined to the convolution. */
bool vk_join_transforms(const struct graph *graph, const struct node *conv);

#endif
