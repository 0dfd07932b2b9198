/* From nodes to dispatches: which shader, which specialisation constants and push constants, which packed params. The
 * place to choose another tile, another packing or another kernel for an operator.
 * Thread-safety: as the device. */
#ifndef RUNTIME_VULKAN_VK_OPS_H
#define RUNTIME_VULKAN_VK_OPS_H

#include "runtime/vulkan/vk_plan.h"

/* Appends the node's dispatches to the plan. UNSUPPORTED names an operator without a shader. */
enum error_code vk_ops_node(struct vk_build *build, const struct node *node, struct error *err) MUST_CHECK;

/* Between float32 NCHW in a host buffer and a tensor. */
enum error_code vk_ops_input(struct vk_build *build, struct view tensor, const struct vk_slice *host,
                             struct error *err) MUST_CHECK;
enum error_code vk_ops_output(struct vk_build *build, struct view tensor, const struct vk_slice *host,
                              struct error *err) MUST_CHECK;

#endif
