#include "runtime/vulkan/vk_memory.h"

#include <stdio.h>

#include "runtime/backend/fault.h"

/* The memory type that the kind wants among those that the buffer allows; UINT32_MAX if none. Coherent memory, of which
 * Vulkan promises a type, saves flushing. */
static uint32_t choose_type(const struct vk_device *device, uint32_t allowed, enum vk_memory_kind kind)
{
    const VkMemoryPropertyFlags mapped = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    const VkMemoryPropertyFlags wishes[][2] = {
        [MEMORY_DEVICE] = {VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0},
        [MEMORY_UPLOAD] = {mapped, mapped},
        [MEMORY_READBACK] = {mapped | VK_MEMORY_PROPERTY_HOST_CACHED_BIT, mapped},
    };
    const VkPhysicalDeviceMemoryProperties *memory = &device->traits.memory;
    for (int wish = 0; wish < 2; wish++)
        for (uint32_t i = 0; i < memory->memoryTypeCount; i++)
            if ((allowed >> i & 1) && (memory->memoryTypes[i].propertyFlags & wishes[kind][wish]) == wishes[kind][wish])
                return i;
    return UINT32_MAX;
}

enum error_code vk_memory_create(struct vk_device *device, struct vk_buffer *out, VkDeviceSize size,
                                 enum vk_memory_kind kind, const char *what, struct error *err)
{
    const VkBufferCreateInfo create = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                       .size = size,
                                       .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                                                VK_BUFFER_USAGE_TRANSFER_DST_BIT};
    uint64_t budget, used;
    char doing[128];
    struct vk_buffer buffer = {.size = size};

    *out = (struct vk_buffer){0};
    vk_device_memory(device, &budget, &used);
    const uint64_t left = budget > used ? budget - used : 0;
    if (size > device->traits.max_allocation || (kind == MEMORY_DEVICE && size > left))
        return error_set(err, ERROR_TOO_LARGE,
                         "%s needs %.0f MiB on %s, which has %.0f MiB free and gives at most %.0f MiB at once", what,
                         (double)size / 0x1p20, device->traits.info.name, (double)left / 0x1p20,
                         (double)device->traits.max_allocation / 0x1p20);
    snprintf(doing, sizeof doing, "allocate %.1f MiB for %s", (double)size / 0x1p20, what);

    VkResult result = vkCreateBuffer(device->handle, &create, NULL, &buffer.handle);
    if (result != VK_SUCCESS)
        return vk_device_error(device, result, doing, err);
    VkMemoryRequirements needs;
    vkGetBufferMemoryRequirements(device->handle, buffer.handle, &needs);
    const VkMemoryAllocateInfo allocate = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                           .allocationSize = needs.size,
                                           .memoryTypeIndex = choose_type(device, needs.memoryTypeBits, kind)};
    if (allocate.memoryTypeIndex == UINT32_MAX || fault_allocation(device->traits.info.id))
        result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
    if (result == VK_SUCCESS)
        result = vkAllocateMemory(device->handle, &allocate, NULL, &buffer.memory);
    if (result != VK_SUCCESS) {
        vkDestroyBuffer(device->handle, buffer.handle, NULL);
        return vk_device_error(device, result, doing, err);
    }
    backend_account_add(device->account, size);
    result = vkBindBufferMemory(device->handle, buffer.handle, buffer.memory, 0);
    if (result == VK_SUCCESS && kind != MEMORY_DEVICE)
        result = vkMapMemory(device->handle, buffer.memory, 0, VK_WHOLE_SIZE, 0, &buffer.mapped);
    if (result != VK_SUCCESS) {
        vk_memory_destroy(device, &buffer);
        return vk_device_error(device, result, doing, err);
    }
    *out = buffer;
    return OK;
}

void vk_memory_destroy(struct vk_device *device, struct vk_buffer *buffer)
{
    if (buffer->handle) {
        vkDestroyBuffer(device->handle, buffer->handle, NULL);
        vkFreeMemory(device->handle, buffer->memory, NULL);
        backend_account_remove(device->account, buffer->size);
    }
    *buffer = (struct vk_buffer){0};
}
