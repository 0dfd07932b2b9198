/* Operators that another one performs as it reads its input or writes its output, instead of separate dispatches.
 * Thread-safety: functions without state. */
#ifndef RUNTIME_VULKAN_VK_JOIN_H
#define RUNTIME_VULKAN_VK_JOIN_H

#include "runtime/vulkan/vk_plan.h"

/* The graph's nodes as the backend computes them, for the caller to free, or NULL when nothing changes. These are
 * joined:
 * - a pixel shuffle right behind a convolution, which then has the shuffle's output and residual;
 * - RESIZE of one value a channel, or ADD of one to a picture, where a convolution adds the result as residual 2: the
 *   values are then its map of noise, one pixel large, and are added with the residuals, times residual 2's scale;
 * - SCALE_SHIFT of the second half of a convolution's channels, in place: the convolution then has the scale and the
 *   shift as residuals. These three want convolutions on matrices;
 * - RESIZE to twice the size by nearest neighbour in front of ADD, whose x then has half the sides of its output.
 * The joined node has nothing left to do: it has neither inputs nor an output. */
enum error_code vk_join(const struct vk_build *build, struct node **out, struct error *err) MUST_CHECK;

/* Whether the node is a shuffle that has been joined to the convolution before it. */
bool vk_join_shuffles(const struct node *node);

/* Whether a SCALE_SHIFT was joined to the convolution. */
bool vk_join_transforms(const struct graph *graph, const struct node *conv);

#endif
