#include "runtime/vulkan/vk_command.h"

#include <stdlib.h>

#include "runtime/backend/fault.h"
#include "runtime/base/mem.h"

#define IN_FLIGHT 2

struct vk_commands {
    VkCommandPool pool;
    VkFence fences[IN_FLIGHT];
};

enum error_code vk_command_create(struct vk_device *device, struct error *err)
{
    const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                          .queueFamilyIndex = device->traits.family};
    const VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
    device->commands = mem_calloc(1, sizeof *device->commands);
    if (!device->commands)
        return error_set(err, ERROR_NO_MEMORY, "out of memory to open %s", device->traits.info.name);
    VkResult result = vkCreateCommandPool(device->handle, &pool, NULL, &device->commands->pool);
    for (int i = 0; i < IN_FLIGHT && result == VK_SUCCESS; i++)
        result = vkCreateFence(device->handle, &fence, NULL, &device->commands->fences[i]);
    return result == VK_SUCCESS ? OK : vk_device_error(device, result, "create a command pool", err);
}

void vk_command_destroy(struct vk_device *device)
{
    if (!device->commands)
        return;
    for (int i = 0; i < IN_FLIGHT; i++)
        vkDestroyFence(device->handle, device->commands->fences[i], NULL);
    vkDestroyCommandPool(device->handle, device->commands->pool, NULL);
    free(device->commands);
    device->commands = NULL;
}

enum error_code vk_command_begin(struct vk_device *device, VkCommandBuffer *out, struct error *err)
{
    const VkCommandBufferAllocateInfo allocate = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                                  .commandPool = device->commands->pool,
                                                  .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                                  .commandBufferCount = 1};
    const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    VkResult result = vkAllocateCommandBuffers(device->handle, &allocate, out);
    if (result != VK_SUCCESS) {
        *out = VK_NULL_HANDLE;
        return vk_device_error(device, result, "allocate a command buffer", err);
    }
    result = vkBeginCommandBuffer(*out, &begin);
    if (result != VK_SUCCESS) {
        vk_command_free(device, out, 1);
        *out = VK_NULL_HANDLE;
        return vk_device_error(device, result, "begin a command buffer", err);
    }
    vk_command_barrier(*out);
    return OK;
}

enum error_code vk_command_end(struct vk_device *device, VkCommandBuffer commands, struct error *err)
{
    VkResult result = vkEndCommandBuffer(commands);
    return result == VK_SUCCESS ? OK : vk_device_error(device, result, "record commands", err);
}

void vk_command_free(struct vk_device *device, const VkCommandBuffer *commands, uint32_t count)
{
    if (count)
        vkFreeCommandBuffers(device->handle, device->commands->pool, count, commands);
}

void vk_command_barrier(VkCommandBuffer commands)
{
    const VkPipelineStageFlags work = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
    const VkMemoryBarrier barrier = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                     .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
                                     .dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT |
                                                      VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT};
    vkCmdPipelineBarrier(commands, work, work, 0, 1, &barrier, 0, NULL, 0, NULL);
}

void vk_command_to_host(VkCommandBuffer commands)
{
    const VkPipelineStageFlags work = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
    const VkMemoryBarrier barrier = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                     .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
                                     .dstAccessMask = VK_ACCESS_HOST_READ_BIT};
    vkCmdPipelineBarrier(commands, work, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &barrier, 0, NULL, 0, NULL);
}

enum error_code vk_command_run(struct vk_device *device, const VkCommandBuffer *commands, uint32_t count,
                               const atomic_int *cancel, struct error *err)
{
    enum error_code code = OK;
    VkResult result = VK_SUCCESS;
    uint32_t submitted = 0, waited = 0;

    if (device->lost)
        return vk_device_error(device, VK_ERROR_DEVICE_LOST, "run", err);
    while (result == VK_SUCCESS && (waited < submitted || (submitted < count && code == OK))) {
        if (code == OK && submitted < count && cancel && atomic_load(cancel))
            code = error_set(err, ERROR_CANCELLED, "cancelled");
        if (code == OK && submitted < count && submitted - waited < IN_FLIGHT) {
            const VkSubmitInfo submit = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                                         .commandBufferCount = 1,
                                         .pCommandBuffers = &commands[submitted]};
            result = fault_submit(device->traits.info.id)
                         ? VK_ERROR_DEVICE_LOST
                         : vkQueueSubmit(device->queue, 1, &submit, device->commands->fences[submitted % IN_FLIGHT]);
            submitted += result == VK_SUCCESS;
        } else if (waited < submitted) {
            const VkFence *fence = &device->commands->fences[waited % IN_FLIGHT];
            result = vkWaitForFences(device->handle, 1, fence, VK_TRUE, UINT64_MAX);
            if (result == VK_SUCCESS)
                result = vkResetFences(device->handle, 1, fence);
            waited += result == VK_SUCCESS;
        }
    }
    if (result != VK_SUCCESS) {
        /* Nothing may be left in flight, and no fence signalled, for a run that comes after. */
        vkDeviceWaitIdle(device->handle);
        vkResetFences(device->handle, IN_FLIGHT, device->commands->fences);
        error_clear(err);
        return vk_device_error(device, result, "run the commands", err);
    }
    return code;
}
