#include "runtime/vulkan/vk_device.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backend/fault.h" /* compiled again for tests, with RESTORED_FAULTS */
#include "runtime/backend/switches.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/vulkan/vk_canvas.h"
#include "runtime/vulkan/vk_command.h"
#include "runtime/vulkan/vk_instance.h"
#include "runtime/vulkan/vk_matrix.h"
#include "runtime/vulkan/vk_pack.h"
#include "runtime/vulkan/vk_pipeline.h"
#include "runtime/vulkan/vk_plan.h"
#include "shaders/include/params.h"

#define UPLOAD_BYTES ((size_t)16 << 20)

static const char *vk_device_result_name(VkResult result)
{
    switch (result) {
    case VK_ERROR_OUT_OF_HOST_MEMORY:
        return "out of host memory";
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
        return "out of device memory";
    case VK_ERROR_INITIALIZATION_FAILED:
        return "initialization failed";
    case VK_ERROR_DEVICE_LOST:
        return "device lost";
    case VK_ERROR_MEMORY_MAP_FAILED:
        return "mapping memory failed";
    case VK_ERROR_LAYER_NOT_PRESENT:
        return "layer not present";
    case VK_ERROR_EXTENSION_NOT_PRESENT:
        return "extension not present";
    case VK_ERROR_FEATURE_NOT_PRESENT:
        return "feature not present";
    case VK_ERROR_INCOMPATIBLE_DRIVER:
        return "incompatible driver";
    case VK_ERROR_TOO_MANY_OBJECTS:
        return "too many objects";
    case VK_ERROR_FRAGMENTED_POOL:
    case VK_ERROR_OUT_OF_POOL_MEMORY:
        return "descriptor pool exhausted";
    default:
        return "failed";
    }
}

enum error_code vk_device_error(struct vk_device *device, VkResult result, const char *what, struct error *err)
{
    enum error_code code = ERROR_DEVICE;
    if (result == VK_ERROR_DEVICE_LOST) {
        code = ERROR_DEVICE_LOST;
        if (device)
            device->lost = true;
    } else if (result == VK_ERROR_OUT_OF_HOST_MEMORY || result == VK_ERROR_OUT_OF_DEVICE_MEMORY ||
               result == VK_ERROR_TOO_MANY_OBJECTS || result == VK_ERROR_OUT_OF_POOL_MEMORY) {
        code = ERROR_NO_MEMORY;
    }
    return error_set(err, code, "%s could not %s: %s (VkResult %d)", device ? device->traits.info.name : "Vulkan", what,
                     vk_device_result_name(result), (int)result);
}

/* --- what a physical device is -------------------------------------------------------------------------------------
 */

struct extensions {
    VkExtensionProperties *list;
    uint32_t count;
};

static void vk_device_read_extensions(VkPhysicalDevice physical, struct extensions *out)
{
    *out = (struct extensions){0};
    uint32_t count = 0;
    if (vkEnumerateDeviceExtensionProperties(physical, NULL, &count, NULL) != VK_SUCCESS || count == 0)
        return;
    out->list = mem_calloc(count, sizeof *out->list);
    if (out->list && vkEnumerateDeviceExtensionProperties(physical, NULL, &count, out->list) >= 0)
        out->count = count;
}

static bool vk_device_has_extension(const struct extensions *extensions, const char *name)
{
    for (uint32_t i = 0; i < extensions->count; i++)
        if (strcmp(extensions->list[i].extensionName, name) == 0)
            return true;
    return false;
}

static enum device_type vk_device_type_of(VkPhysicalDeviceType type)
{
    switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
        return DEVICE_DISCRETE;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
        return DEVICE_INTEGRATED;
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
        return DEVICE_SOFTWARE;
    default:
        return DEVICE_VIRTUAL;
    }
}

static void vk_device_format_uuid(const uint8_t bytes[VK_UUID_SIZE], char out[40])
{
    for (int i = 0, at = 0; i < (int)VK_UUID_SIZE; i++)
        at += snprintf(out + at, (size_t)(40 - at), i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", bytes[i]);
}

static bool vk_device_find_queue(VkPhysicalDevice physical, uint32_t *family)
{
    VkQueueFamilyProperties families[32];
    uint32_t count = 32;
    vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, families);
    for (*family = 0; *family < count; ++*family)
        if (families[*family].queueFlags & VK_QUEUE_COMPUTE_BIT)
            return true;
    return false;
}

/* Features and properties that Vulkan 1.1 can tell. */
static void vk_device_describe_1_1(struct vk_traits *traits, const struct extensions *extensions)
{
    struct device_info *info = &traits->info;
    VkPhysicalDeviceDriverPropertiesKHR driver = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES_KHR};
    VkPhysicalDeviceSubgroupProperties subgroup = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES};
    VkPhysicalDeviceIDProperties id = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES, .pNext = &subgroup};
    VkPhysicalDeviceMaintenance3Properties maintenance = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES, .pNext = &id};
    VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                              .pNext = &maintenance};
    if (vk_device_has_extension(extensions, VK_KHR_DRIVER_PROPERTIES_EXTENSION_NAME))
        subgroup.pNext = &driver;
    vkGetPhysicalDeviceProperties2(traits->physical, &properties);
    traits->max_allocation = maintenance.maxMemoryAllocationSize;
    info->subgroup_size = subgroup.subgroupSize;
    vk_device_format_uuid(id.deviceUUID, info->uuid);
    if (driver.driverName[0])
        snprintf(info->driver, sizeof info->driver, "%.120s %.120s", driver.driverName, driver.driverInfo);

    VkPhysicalDeviceShaderFloat16Int8FeaturesKHR int8 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES_KHR};
    VkPhysicalDevice16BitStorageFeatures storage = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &storage};
    if (vk_device_has_extension(extensions, VK_KHR_SHADER_FLOAT16_INT8_EXTENSION_NAME))
        storage.pNext = &int8;
    vkGetPhysicalDeviceFeatures2(traits->physical, &features);
    info->fp16 = storage.storageBuffer16BitAccess;
    info->int8 = int8.shaderInt8;
    traits->has_half = info->fp16 && int8.shaderFloat16;
    info->cooperative_matrix = vk_device_has_extension(extensions, VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME);
    traits->has_budget = vk_device_has_extension(extensions, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
}

void vk_device_lacking(const VkPhysicalDeviceLimits *limits, char *out, size_t size)
{
#define LIMIT(name) #name, offsetof(VkPhysicalDeviceLimits, name)
    static const struct {
        const char *name;
        size_t offset; /* of a uint32_t; of an array, its first */
        uint32_t least;
    } needs[] = {
        {LIMIT(maxPerStageDescriptorStorageBuffers), BIND_COUNT},
        {LIMIT(maxDescriptorSetStorageBuffers), BIND_COUNT},
        {LIMIT(maxPerStageResources), BIND_COUNT},
        {LIMIT(maxStorageBufferRange), 1u << 27},
        {LIMIT(maxComputeSharedMemorySize), 16384},
        {LIMIT(maxComputeWorkGroupInvocations), 128},
        {LIMIT(maxComputeWorkGroupSize), 128},
        {LIMIT(maxPushConstantsSize), 128},
    };
#undef LIMIT
    size_t used = 0;
    *out = 0;
    for (size_t i = 0; i < sizeof needs / sizeof *needs && used < size; i++) {
        uint32_t value;
        memcpy(&value, (const char *)limits + needs[i].offset, sizeof value);
        if (value < needs[i].least) {
            int n = snprintf(out + used, size - used, "%s%s %u (%u needed)", used ? "; " : "", needs[i].name, value,
                             needs[i].least);
            used += n > 0 ? (size_t)n : 0;
        }
    }
}

/* Why the device cannot be used, or "". */
static void vk_device_shortcoming(const struct vk_traits *traits, uint32_t version, char *out, size_t size)
{
    char lacking[480];
    vk_device_lacking(&traits->limits, lacking, sizeof lacking);
    if (version < VK_API_VERSION_1_1)
        snprintf(out, size, "it has Vulkan 1.0 only; 1.1 is needed");
    else if (traits->family == UINT32_MAX)
        snprintf(out, size, "it has no compute queue");
    else if (*lacking)
        snprintf(out, size, "its limits are too low: %s", lacking);
    else
        *out = 0;
}

static void vk_device_describe(VkPhysicalDevice physical, uint32_t index, struct vk_traits *traits)
{
    struct device_info *info = &traits->info;
    VkPhysicalDeviceProperties properties;
    struct extensions extensions;

    *traits = (struct vk_traits){.physical = physical, .max_allocation = UINT64_MAX};
    vkGetPhysicalDeviceProperties(physical, &properties);
    vkGetPhysicalDeviceMemoryProperties(physical, &traits->memory);
    traits->limits = properties.limits;
    if (*switches_get(SWITCH_VULKAN_LOW_LIMITS))
        traits->limits = (VkPhysicalDeviceLimits){.maxPushConstantsSize = 64, .maxPerStageResources = 128};
    if (*switches_get(SWITCH_VULKAN_LEAST)) {
        traits->limits.maxComputeSharedMemorySize = 16384;
        traits->limits.maxComputeWorkGroupInvocations = 128;
        for (int i = 0; i < 3; i++)
            traits->limits.maxComputeWorkGroupSize[i] = i < 2 ? 128 : 64;
    }
    traits->vendor = properties.vendorID;
    traits->device = properties.deviceID;
    traits->driver_version = properties.driverVersion;
    memcpy(traits->cache_uuid, properties.pipelineCacheUUID, VK_UUID_SIZE);
    if (!vk_device_find_queue(physical, &traits->family))
        traits->family = UINT32_MAX;

    snprintf(info->id, sizeof info->id, "vulkan:%u", index);
    snprintf(info->name, sizeof info->name, "%s", properties.deviceName);
    snprintf(info->backend, sizeof info->backend, "vulkan");
    snprintf(info->api_version, sizeof info->api_version, "%u.%u.%u", VK_API_VERSION_MAJOR(properties.apiVersion),
             VK_API_VERSION_MINOR(properties.apiVersion), VK_API_VERSION_PATCH(properties.apiVersion));
    snprintf(info->driver, sizeof info->driver, "version 0x%08x", properties.driverVersion);
    info->type = vk_device_type_of(properties.deviceType);

    vk_device_read_extensions(physical, &extensions);
    if (properties.apiVersion >= VK_API_VERSION_1_1)
        vk_device_describe_1_1(traits, &extensions);
    free(extensions.list);

    for (uint32_t i = 0; i < traits->memory.memoryHeapCount; i++) {
        const VkMemoryHeap *heap = &traits->memory.memoryHeaps[i];
        if ((heap->flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) && heap->size > info->memory_total) {
            info->memory_total = heap->size;
            traits->heap = i;
        }
    }
    const uint64_t limit_bytes = strtoull(switches_get(SWITCH_VULKAN_MEMORY), NULL, 10);
    if (limit_bytes && limit_bytes < info->memory_total) {
        info->memory_total = limit_bytes;
        traits->limited = true;
    }
    info->memory_budget = info->memory_total;
    info->asynchronous = true;
    info->max_buffer_bytes = properties.limits.maxStorageBufferRange;
    if (info->max_buffer_bytes > traits->max_allocation)
        info->max_buffer_bytes = traits->max_allocation;

    const bool software = info->type == DEVICE_SOFTWARE;
    vk_device_shortcoming(traits, properties.apiVersion, info->reason, sizeof info->reason);
    info->usable = *info->reason == 0;
    if (info->usable && software)
        snprintf(info->reason, sizeof info->reason, "a software device: it computes on the CPU, correctly but slowly");
    info->preferred = info->fp16 && !software ? PRECISION_FP16 : PRECISION_FP32;
    snprintf(info->precision_reason, sizeof info->precision_reason, "%s",
             !info->fp16 ? "the device has no 16-bit storage"
             : software  ? "software devices convert fp16 slowly, so it would cost time"
                         : "fp16 storage halves memory and traffic; sums are fp32");
}

/* All physical devices; *devices is the caller's to free(). A failure means no devices. */
static uint32_t vk_device_enumerate(VkInstance instance, VkPhysicalDevice **devices)
{
    uint32_t count = 0;
    *devices = NULL;
    if (vkEnumeratePhysicalDevices(instance, &count, NULL) != VK_SUCCESS || count == 0)
        return 0;
    *devices = mem_calloc(count, sizeof **devices);
    if (!*devices || vkEnumeratePhysicalDevices(instance, &count, *devices) < 0)
        return 0;
    return count;
}

static enum error_code vk_device_loader(char *out, size_t size, struct error *err)
{
    uint32_t version = 0;
    enum error_code code = vk_loader_open(err);
    if (code != OK)
        return code;
    vkEnumerateInstanceVersion(&version);
    snprintf(out, size, VK_LOADER_LIBRARY " for Vulkan %u.%u.%u", VK_API_VERSION_MAJOR(version),
             VK_API_VERSION_MINOR(version), VK_API_VERSION_PATCH(version));
    return OK;
}

static enum error_code vk_device_probe(struct error *err)
{
    struct vk_instance *instance;
    enum error_code code = vk_loader_open(err);
    if (code != OK)
        return code;
    VkResult result = vk_instance_hold(&instance);
    vk_instance_release(&instance);
    return result == VK_SUCCESS ? OK : vk_device_error(NULL, result, "find a driver that works", err);
}

static enum error_code vk_device_list(struct device_info **list, size_t *count, struct error *err)
{
    struct vk_instance *instance;
    VkPhysicalDevice *physical = NULL;
    enum error_code code = OK;

    VkResult result = vk_instance_hold(&instance);
    if (result != VK_SUCCESS) {
        log_event(LOG_DEBUG, "vulkan-absent", "result=%d", (int)result);
        return OK;
    }
    const uint32_t found = vk_device_enumerate(vk_instance_handle(instance), &physical);
    struct device_info *grown = found ? realloc(*list, (*count + found) * sizeof **list) : NULL;
    if (grown) {
        *list = grown;
        for (uint32_t i = 0; i < found; i++) {
            struct vk_traits traits;
            vk_device_describe(physical[i], i, &traits);
            if (traits.info.usable && traits.info.type != DEVICE_SOFTWARE) /* a GPU will be opened */
                vk_instance_keep(instance);
            grown[(*count)++] = traits.info;
        }
    } else if (found) {
        code = error_set(err, ERROR_NO_MEMORY, "out of memory for the list of Vulkan devices");
    }
    free(physical);
    vk_instance_release(&instance);
    return code;
}

/* --- the open device -----------------------------------------------------------------------------------------------
 */

void vk_device_memory(const struct vk_device *device, uint64_t *budget, uint64_t *used)
{
    const struct vk_traits *traits = &device->traits;
    *used = atomic_load(&device->account->used);
    *budget = traits->info.memory_total;
    if (traits->has_budget && !traits->limited) {
        VkPhysicalDeviceMemoryBudgetPropertiesEXT heaps = {
            .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
        VkPhysicalDeviceMemoryProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
                                                        .pNext = &heaps};
        vkGetPhysicalDeviceMemoryProperties2(traits->physical, &properties);
        *budget = heaps.heapBudget[traits->heap];
        *used = heaps.heapUsage[traits->heap];
    }
}

static void vk_device_info(const struct device *base, struct device_info *out)
{
    const struct vk_device *device = (const struct vk_device *)base;
    *out = device->traits.info;
    vk_device_memory(device, &out->memory_budget, &out->memory_driver);
    out->memory_used = atomic_load(&device->account->used);
    out->memory_peak = atomic_load(&device->account->peak);
}

static double vk_device_busy_ms(const struct device *base)
{
    return vk_command_busy_ms((struct vk_device *)(uintptr_t)base); /* which locks it */
}

static void vk_device_close(struct device *base)
{
    struct vk_device *device = (struct vk_device *)base;
    if (device->handle) {
        if (device->commands)
            vk_command_wait_idle(device);
        vk_tune_destroy(device);
        vk_pack_destroy(device);
        vk_pipeline_destroy(device);
        vk_command_destroy(device);
        vkDestroyDevice(device->handle, NULL);
    }
    if (device->lost)
        vk_instance_abandon(device->instance);
    vk_instance_release(&device->instance);
    backend_account_close(device->account);
    free(device);
}

static VkResult vk_device_create_logical(struct vk_device *device)
{
    const struct vk_traits *traits = &device->traits;
    const float priority = 1.0f;
    const char *extensions[4];
    uint32_t extension_count = 0;
    if (traits->has_budget)
        extensions[extension_count++] = VK_EXT_MEMORY_BUDGET_EXTENSION_NAME;
    const VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                           .queueFamilyIndex = traits->family,
                                           .queueCount = 1,
                                           .pQueuePriorities = &priority};
    VkPhysicalDevice16BitStorageFeatures storage = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES,
                                                    .storageBuffer16BitAccess = traits->info.fp16};
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrix = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR, .cooperativeMatrix = VK_TRUE};
    VkPhysicalDeviceVulkanMemoryModelFeaturesKHR model = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES_KHR,
        .pNext = &matrix,
        .vulkanMemoryModel = VK_TRUE};
    VkPhysicalDeviceShaderFloat16Int8FeaturesKHR halves = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES_KHR, .shaderFloat16 = VK_TRUE};
    if (device->packed || device->matrix) {
        storage.pNext = &halves;
        extensions[extension_count++] = VK_KHR_SHADER_FLOAT16_INT8_EXTENSION_NAME;
    }
    if (device->matrix) {
        halves.pNext = &model;
        extensions[extension_count++] = VK_KHR_VULKAN_MEMORY_MODEL_EXTENSION_NAME;
        extensions[extension_count++] = VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME;
    }
    const VkDeviceCreateInfo create = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                       .pNext = &storage,
                                       .queueCreateInfoCount = 1,
                                       .pQueueCreateInfos = &queue,
                                       .enabledExtensionCount = extension_count,
                                       .ppEnabledExtensionNames = extensions};
    VkResult result = vkCreateDevice(traits->physical, &create, NULL, &device->handle);
    if (result == VK_SUCCESS)
        vkGetDeviceQueue(device->handle, traits->family, 0, &device->queue);
    else
        device->handle = VK_NULL_HANDLE;
    return result;
}

static enum error_code vk_device_open(struct device **out, const struct device_info *wanted, const char *cache_dir,
                                      struct error *err)
{
    const double start = log_clock_ms();
    VkPhysicalDevice *physical = NULL;
    enum error_code code = OK;
    struct vk_device *device = mem_calloc(1, sizeof *device);
    if (!device)
        return error_set(err, ERROR_NO_MEMORY, "out of memory to open %s", wanted->name);
    device->base.backend = &vk_backend;
    device->account = backend_account_open(wanted->id);
    device->upload_bytes = UPLOAD_BYTES;

    VkResult result = vk_instance_hold(&device->instance);
    if (result != VK_SUCCESS) {
        code = vk_device_error(NULL, result, "create an instance", err);
        goto out;
    }
    const VkInstance instance = vk_instance_handle(device->instance);
    const uint32_t found = vk_device_enumerate(instance, &physical);
    uint32_t index = 0;
    for (; index < found; index++) {
        vk_device_describe(physical[index], index, &device->traits);
        if (strcmp(device->traits.info.id, wanted->id) == 0 && strcmp(device->traits.info.uuid, wanted->uuid) == 0)
            break;
    }
    if (index == found) {
        code = error_set(err, ERROR_NOT_FOUND, "device %s (%s) is no longer there", wanted->id, wanted->name);
        goto out;
    }
    if (!device->traits.info.usable) {
        code = error_set(err, ERROR_UNSUPPORTED, "device %s (%s) cannot be used: %s", wanted->id, wanted->name,
                         device->traits.info.reason);
        goto out;
    }
    /* On a software device a barrier costs more than reading the input again. */
    const char *stage = switches_get(SWITCH_VULKAN_STAGE);
    device->stage_convolution = *stage ? *stage == '1' : device->traits.info.type != DEVICE_SOFTWARE;
    /* A software device compiles at its first run, and is only for trying things out. */
    const char *prepare = switches_get(SWITCH_VULKAN_PREPARE);
    device->prepares = *prepare ? *prepare == '1' : device->traits.info.type != DEVICE_SOFTWARE;
    const char *direct = switches_get(SWITCH_VULKAN_DIRECT);
    device->direct = !*direct ? DIRECT_MAIN : *direct == '0' ? DIRECT_NEVER : DIRECT_ANY;
    device->grouped = *switches_get(SWITCH_VULKAN_GROUPED) == '1';
    device->packed = *switches_get(SWITCH_VULKAN_PACKED) != '0' && device->traits.has_half;
    device->matrix = *switches_get(SWITCH_VULKAN_MATRIX) != '0' &&
                     vk_matrix_present(instance, device->traits.physical, &device->traits.info);
    result = vk_device_create_logical(device);
    if (result != VK_SUCCESS) {
        code = vk_device_error(device, result, "open the device", err);
        goto out;
    }
    if ((code = vk_command_create(device, err)) == OK && (code = vk_pipeline_create(device, cache_dir, err)) == OK)
        code = vk_pack_create(device, err);
    if (code == OK && device->matrix)
        code = vk_matrix_create(device, err);
    if (code == OK)
        code = vk_tune_create(device, cache_dir, err);
    log_event(LOG_DEBUG, "device-opened", "device=%s ms=%.1f", wanted->id, log_clock_ms() - start);
out:
    free(physical);
    if (code == OK)
        *out = &device->base;
    else
        vk_device_close(&device->base);
    return code;
}

const struct backend vk_backend = {
    .name = "vulkan",
    .list = vk_device_list,
    .loader = vk_device_loader,
    .probe = vk_device_probe,
    .open = vk_device_open,
    .close = vk_device_close,
    .info = vk_device_info,
    .plan_create = vk_plan_create,
    .plan_prepare = vk_plan_prepare,
    .plan_destroy = vk_plan_destroy,
    .plan_submit = vk_plan_submit,
    .plan_show = vk_plan_show,
    .plan_ready = vk_plan_ready,
    .plan_wait = vk_plan_wait,
    .canvas_create = vk_canvas_create,
    .canvas_destroy = vk_canvas_destroy,
    .busy_ms = vk_device_busy_ms,
    .plan_whole = vk_plan_whole,
    .plan_bytes = vk_plan_bytes,
    .plan_profile = vk_plan_profile,
    .plan_ms = vk_plan_ms,
    .forget_params = vk_pack_forget,
};
