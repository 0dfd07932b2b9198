#include "runtime/vulkan/vk_instance.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backend/switches.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#define VALIDATION_LAYER "VK_LAYER_KHRONOS_validation"

struct vk_instance {
    VkInstance handle;
    VkDebugUtilsMessengerEXT messenger;
    int holders;
    bool kept;
};

static pthread_mutex_t instance_lock = PTHREAD_MUTEX_INITIALIZER;
static struct vk_instance *current; /* what holders get; NULL: a new one */

static atomic_int validation_messages;

int vk_validation_count(void)
{
    return atomic_load(&validation_messages);
}

static VKAPI_ATTR VkBool32 VKAPI_CALL instance_on_message(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
                                                          VkDebugUtilsMessageTypeFlagsEXT types,
                                                          const VkDebugUtilsMessengerCallbackDataEXT *data, void *user)
{
    (void)severity, (void)types, (void)user;
    atomic_fetch_add(&validation_messages, 1);
    log_event(LOG_ERROR, "vulkan-validation", "id=%s text=\"%s\"", data->pMessageIdName ? data->pMessageIdName : "-",
              data->pMessage);
    return VK_FALSE;
}

static bool instance_validation_wanted(void)
{
    return strcmp(switches_get(SWITCH_VULKAN_VALIDATION), "1") == 0;
}

static bool instance_layer_present(const char *name)
{
    uint32_t count = 0;
    bool found = false;
    if (vkEnumerateInstanceLayerProperties(&count, NULL) != VK_SUCCESS || count == 0)
        return false;
    VkLayerProperties *layers = mem_calloc(count, sizeof *layers);
    if (layers && vkEnumerateInstanceLayerProperties(&count, layers) >= 0)
        for (uint32_t i = 0; i < count; i++)
            found |= strcmp(layers[i].layerName, name) == 0;
    free(layers);
    return found;
}

/* A loader or driver that is missing or too old gives a VkResult, which the caller takes as "no devices". */
static VkResult instance_create(VkInstance *instance, VkDebugUtilsMessengerEXT *messenger)
{
    static const char *const layer = VALIDATION_LAYER, *const extension = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
    const VkDebugUtilsMessengerCreateInfoEXT messages = {
        .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
        .messageSeverity =
            VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
        .messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT,
        .pfnUserCallback = instance_on_message};
    const VkApplicationInfo application = {
        .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .pApplicationName = "restored", .apiVersion = VK_API_VERSION_1_1};
    VkInstanceCreateInfo create = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &application};
    uint32_t version = 0;
    bool validate = instance_validation_wanted();

    *messenger = VK_NULL_HANDLE;
    if (vk_loader_open(NULL) != OK)
        return VK_ERROR_INITIALIZATION_FAILED;
    if (vkEnumerateInstanceVersion(&version) != VK_SUCCESS || version < VK_API_VERSION_1_1)
        return VK_ERROR_INCOMPATIBLE_DRIVER;
    if (validate && !instance_layer_present(VALIDATION_LAYER)) {
        atomic_fetch_add(&validation_messages, 1);
        log_event(LOG_ERROR, "vulkan-validation", "text=\"%s is not installed\"", VALIDATION_LAYER);
        validate = false;
    }
    if (validate) {
        create.pNext = &messages;
        create.enabledLayerCount = create.enabledExtensionCount = 1;
        create.ppEnabledLayerNames = &layer;
        create.ppEnabledExtensionNames = &extension;
    }
    VkResult result = vkCreateInstance(&create, NULL, instance);
    if (result != VK_SUCCESS || !validate)
        return result;
    PFN_vkCreateDebugUtilsMessengerEXT create_messenger =
        (PFN_vkCreateDebugUtilsMessengerEXT)vkGetInstanceProcAddr(*instance, "vkCreateDebugUtilsMessengerEXT");
    if (create_messenger)
        result = create_messenger(*instance, &messages, NULL, messenger);
    if (result != VK_SUCCESS)
        vkDestroyInstance(*instance, NULL);
    return result;
}

static void instance_destroy(VkInstance instance, VkDebugUtilsMessengerEXT messenger)
{
    if (messenger) {
        PFN_vkDestroyDebugUtilsMessengerEXT destroy =
            (PFN_vkDestroyDebugUtilsMessengerEXT)vkGetInstanceProcAddr(instance, "vkDestroyDebugUtilsMessengerEXT");
        if (destroy)
            destroy(instance, messenger, NULL);
    }
    vkDestroyInstance(instance, NULL);
}

VkResult vk_instance_hold(struct vk_instance **out)
{
    VkResult result = VK_SUCCESS;
    pthread_mutex_lock(&instance_lock);
    if (!current) {
        const double start = log_clock_ms();
        struct vk_instance *made = mem_calloc(1, sizeof *made);
        result = made ? instance_create(&made->handle, &made->messenger) : VK_ERROR_OUT_OF_HOST_MEMORY;
        if (result == VK_SUCCESS)
            current = made;
        else
            free(made);
        log_event(LOG_DEBUG, "vulkan-instance", "result=%d ms=%.1f", (int)result, log_clock_ms() - start);
    }
    *out = current;
    if (current)
        current->holders++;
    pthread_mutex_unlock(&instance_lock);
    return result;
}

void vk_instance_release(struct vk_instance **instance)
{
    struct vk_instance *old = *instance;
    *instance = NULL;
    if (!old)
        return;
    pthread_mutex_lock(&instance_lock);
    if (--old->holders == 0 && !(old->kept && old == current)) {
        if (old == current)
            current = NULL;
        instance_destroy(old->handle, old->messenger);
        free(old);
    }
    pthread_mutex_unlock(&instance_lock);
}

void vk_instance_keep(struct vk_instance *instance)
{
    pthread_mutex_lock(&instance_lock);
    instance->kept = true;
    pthread_mutex_unlock(&instance_lock);
}

void vk_instance_abandon(struct vk_instance *instance)
{
    pthread_mutex_lock(&instance_lock);
    if (instance && current == instance)
        current = NULL;
    pthread_mutex_unlock(&instance_lock);
}

VkInstance vk_instance_handle(const struct vk_instance *instance)
{
    return instance->handle;
}
