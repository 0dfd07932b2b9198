/* Turns nodes into dispatches: which shader, specialisation constants, push constants and packed params. This is the
 * place to choose another tile, packing or kernel for an operator.
 * Thread-safety: as the device. */
#ifndef RUNTIME_VULKAN_VK_OPS_H
#define RUNTIME_VULKAN_VK_OPS_H

#include "runtime/vulkan/vk_plan.h"

/* Appends the node's dispatches to the plan. UNSUPPORTED names an operator without a shader. */
enum error_code vk_ops_node(struct vk_build *build, const struct node *node, struct error *err) MUST_CHECK;

#endif
