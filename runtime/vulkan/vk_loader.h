/* The Vulkan loader library, opened when it is first needed and never closed; without it the program runs on the CPU.
 * Vulkan's functions are pointers here, under their own names; NULL until vk_loader_open was OK.
 * Thread-safety: every function may be called from any thread. */
#ifndef RUNTIME_VULKAN_VK_LOADER_H
#define RUNTIME_VULKAN_VK_LOADER_H

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

#include "runtime/base/error.h"

/* Every function that runtime/vulkan calls. The library exports those of Vulkan 1.1, which work for all devices. */
#define VK_LOADER_FUNCTIONS(X)                                                                                         \
    X(vkAllocateCommandBuffers)                                                                                        \
    X(vkAllocateDescriptorSets)                                                                                        \
    X(vkAllocateMemory)                                                                                                \
    X(vkBeginCommandBuffer)                                                                                            \
    X(vkBindBufferMemory)                                                                                              \
    X(vkCmdBindDescriptorSets)                                                                                         \
    X(vkCmdBindPipeline)                                                                                               \
    X(vkCmdCopyBuffer)                                                                                                 \
    X(vkCmdDispatch)                                                                                                   \
    X(vkCmdFillBuffer)                                                                                                 \
    X(vkCmdPipelineBarrier)                                                                                            \
    X(vkCmdPushConstants)                                                                                              \
    X(vkCmdResetQueryPool)                                                                                             \
    X(vkCmdUpdateBuffer)                                                                                               \
    X(vkCmdWriteTimestamp)                                                                                             \
    X(vkCreateBuffer)                                                                                                  \
    X(vkCreateCommandPool)                                                                                             \
    X(vkCreateComputePipelines)                                                                                        \
    X(vkCreateDescriptorPool)                                                                                          \
    X(vkCreateDescriptorSetLayout)                                                                                     \
    X(vkCreateDevice)                                                                                                  \
    X(vkCreateFence)                                                                                                   \
    X(vkCreateInstance)                                                                                                \
    X(vkCreatePipelineCache)                                                                                           \
    X(vkCreatePipelineLayout)                                                                                          \
    X(vkCreateQueryPool)                                                                                               \
    X(vkCreateShaderModule)                                                                                            \
    X(vkDestroyBuffer)                                                                                                 \
    X(vkDestroyCommandPool)                                                                                            \
    X(vkDestroyDescriptorPool)                                                                                         \
    X(vkDestroyDescriptorSetLayout)                                                                                    \
    X(vkDestroyDevice)                                                                                                 \
    X(vkDestroyFence)                                                                                                  \
    X(vkDestroyInstance)                                                                                               \
    X(vkDestroyPipeline)                                                                                               \
    X(vkDestroyPipelineCache)                                                                                          \
    X(vkDestroyPipelineLayout)                                                                                         \
    X(vkDestroyQueryPool)                                                                                              \
    X(vkDestroyShaderModule)                                                                                           \
    X(vkDeviceWaitIdle)                                                                                                \
    X(vkEndCommandBuffer)                                                                                              \
    X(vkEnumerateDeviceExtensionProperties)                                                                            \
    X(vkEnumerateInstanceLayerProperties)                                                                              \
    X(vkEnumerateInstanceVersion)                                                                                      \
    X(vkEnumeratePhysicalDevices)                                                                                      \
    X(vkFreeCommandBuffers)                                                                                            \
    X(vkFreeMemory)                                                                                                    \
    X(vkGetBufferMemoryRequirements)                                                                                   \
    X(vkGetDeviceQueue)                                                                                                \
    X(vkGetFenceStatus)                                                                                                \
    X(vkGetInstanceProcAddr)                                                                                           \
    X(vkGetPhysicalDeviceFeatures2)                                                                                    \
    X(vkGetPhysicalDeviceMemoryProperties)                                                                             \
    X(vkGetPhysicalDeviceMemoryProperties2)                                                                            \
    X(vkGetPhysicalDeviceProperties)                                                                                   \
    X(vkGetPhysicalDeviceProperties2)                                                                                  \
    X(vkGetPhysicalDeviceQueueFamilyProperties)                                                                        \
    X(vkGetPipelineCacheData)                                                                                          \
    X(vkGetQueryPoolResults)                                                                                           \
    X(vkMapMemory)                                                                                                     \
    X(vkQueueSubmit)                                                                                                   \
    X(vkResetDescriptorPool)                                                                                           \
    X(vkResetFences)                                                                                                   \
    X(vkUpdateDescriptorSets)                                                                                          \
    X(vkWaitForFences)

#define VK_LOADER_DECLARE(name) extern PFN_##name name;
VK_LOADER_FUNCTIONS(VK_LOADER_DECLARE)
#undef VK_LOADER_DECLARE

#define VK_LOADER_LIBRARY "libvulkan.so.1"

/* Opens the library on the first call; later calls give the same answer. ERROR_NOT_FOUND when it is not there, cannot
 * be opened, or is too old (Vulkan 1.0). */
enum error_code vk_loader_open(struct error *err) MUST_CHECK;

#endif
