#include "runtime/vulkan/vk_memory.h"

#include <stdio.h>

#include "runtime/backend/fault.h"

static uint32_t memory_find_type(const struct vk_device *device, uint32_t allowed, VkMemoryPropertyFlags wanted,
                                 bool main)
{
    const VkPhysicalDeviceMemoryProperties *memory = &device->traits.memory;
    for (uint32_t i = 0; i < memory->memoryTypeCount; i++)
        if ((allowed >> i & 1) && (memory->memoryTypes[i].propertyFlags & wanted) == wanted &&
            (!main || memory->memoryTypes[i].heapIndex == device->traits.heap))
            return i;
    return UINT32_MAX;
}

/* The memory type that the kind wants among those that the buffer allows; UINT32_MAX if none. Coherent memory, of which
 * Vulkan promises a type, saves flushing. Uploads are best written straight into the device's own memory, if the host
 * sees all of it; a device that shows only a small window (256 MiB) needs that for other things. */
static uint32_t memory_choose_type(const struct vk_device *device, uint32_t allowed, enum vk_memory_kind kind)
{
    const VkMemoryPropertyFlags mapped = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    const VkMemoryPropertyFlags own = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, cached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
    uint32_t type = UINT32_MAX;
    if (kind == MEMORY_DEVICE)
        type = memory_find_type(device, allowed, own, true);
    if (kind == MEMORY_UPLOAD && device->direct != DIRECT_NEVER)
        type = memory_find_type(device, allowed, mapped | own, device->direct == DIRECT_MAIN);
    if (kind == MEMORY_READBACK)
        type = memory_find_type(device, allowed, mapped | cached, false);
    if (type != UINT32_MAX)
        return type;
    return memory_find_type(device, allowed, kind == MEMORY_DEVICE ? 0 : mapped, false);
}

static enum error_code memory_no_room(const struct vk_device *device, VkDeviceSize size, uint64_t left,
                                      const char *what, struct error *err)
{
    return error_set(err, ERROR_TOO_LARGE,
                     "%s needs %.0f MiB on %s, which has %.0f MiB free and gives at most %.0f MiB at once", what,
                     (double)size / 0x1p20, device->traits.info.name, (double)left / 0x1p20,
                     (double)device->traits.max_allocation / 0x1p20);
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
    if (size > device->traits.max_allocation)
        return memory_no_room(device, size, left, what, err);
    snprintf(doing, sizeof doing, "allocate %.1f MiB for %s", (double)size / 0x1p20, what);

    VkResult result = vkCreateBuffer(device->handle, &create, NULL, &buffer.handle);
    if (result != VK_SUCCESS)
        return vk_device_error(device, result, doing, err);
    VkMemoryRequirements needs;
    vkGetBufferMemoryRequirements(device->handle, buffer.handle, &needs);
    const uint32_t type = memory_choose_type(device, needs.memoryTypeBits, kind);
    buffer.counted = type != UINT32_MAX && device->traits.memory.memoryTypes[type].heapIndex == device->traits.heap;
    if (buffer.counted && size > left) {
        vkDestroyBuffer(device->handle, buffer.handle, NULL);
        return memory_no_room(device, size, left, what, err);
    }
    const VkMemoryAllocateInfo allocate = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, .allocationSize = needs.size, .memoryTypeIndex = type};
    if (type == UINT32_MAX || fault_allocation(device->traits.info.id))
        result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
    if (result == VK_SUCCESS)
        result = vkAllocateMemory(device->handle, &allocate, NULL, &buffer.memory);
    if (result != VK_SUCCESS) {
        vkDestroyBuffer(device->handle, buffer.handle, NULL);
        return vk_device_error(device, result, doing, err);
    }
    if (buffer.counted) {
        device->base.held += size;
        backend_account_add(device->account, size);
    } else {
        device->base.staged += size;
    }
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
        if (buffer->counted) {
            device->base.held -= buffer->size;
            backend_account_remove(device->account, buffer->size);
        } else {
            device->base.staged -= buffer->size;
        }
    }
    *buffer = (struct vk_buffer){0};
}
