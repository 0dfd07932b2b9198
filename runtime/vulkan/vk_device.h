/* Vulkan devices: what each physical device is and can do, and the open device whose parts the other
 * vk_* files own.
 * Thread-safety: vk_device_error and the functions that list devices may be called from any thread; an open device
 * belongs to one thread at a time, except for its memory counters. */
#ifndef RUNTIME_VULKAN_VK_DEVICE_H
#define RUNTIME_VULKAN_VK_DEVICE_H

#include <stdatomic.h>

#include "runtime/backend/backend.h"
#include "runtime/vulkan/vk_instance.h"

#ifndef VK_KHR_cooperative_matrix /* newer than Debian 12's headers */
#define VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME "VK_KHR_cooperative_matrix"
#define VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR ((VkStructureType)1000506000)
#define VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR ((VkStructureType)1000506001)
#define VK_COMPONENT_TYPE_FLOAT16_KHR 0
#define VK_COMPONENT_TYPE_FLOAT32_KHR 1
#define VK_SCOPE_SUBGROUP_KHR 3
typedef struct {
    VkStructureType sType;
    void *pNext;
    VkBool32 cooperativeMatrix, cooperativeMatrixRobustBufferAccess;
} VkPhysicalDeviceCooperativeMatrixFeaturesKHR;
typedef struct {
    VkStructureType sType;
    void *pNext;
    uint32_t MSize, NSize, KSize;
    uint32_t AType, BType, CType, ResultType; /* VkComponentTypeKHR */
    VkBool32 saturatingAccumulation;
    uint32_t scope; /* VkScopeKHR */
} VkCooperativeMatrixPropertiesKHR;
typedef VkResult(VKAPI_PTR *PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR)(VkPhysicalDevice, uint32_t *,
                                                                                   VkCooperativeMatrixPropertiesKHR *);
#endif

struct vk_traits {
    struct device_info info; /* except for what changes while it is used */
    VkPhysicalDevice physical;
    uint32_t family; /* a queue family with compute */
    VkPhysicalDeviceLimits limits;
    VkDeviceSize max_allocation;
    VkPhysicalDeviceMemoryProperties memory;
    uint32_t heap; /* the largest device-local heap */
    bool has_budget;
    bool has_half; /* arithmetic in fp16 */
    bool limited;  /* to less than it has */
    uint32_t vendor, device, driver_version;
    uint8_t cache_uuid[VK_UUID_SIZE];
};

/* Which part of the device's own memory the host writes to. */
enum vk_direct {
    DIRECT_NEVER,
    DIRECT_MAIN, /* that of its main heap, if the host sees it */
    DIRECT_ANY   /* any that the host sees */
};

/* A part of a picture with a number (raster.h) in the staging buffer that a run got it through, for later runs. */
struct vk_kept {
    uint64_t number, serial; /* 0: none; of the buffer's present contents */
    const struct vk_buffer *buffer;
    uint64_t offset;
    const void *data; /* only compared: another part may be as large */
    size_t stride;
    int form, column, columns, row, rows;
    int readers; /* runs that may not have copied it yet */
};

struct vk_device {
    struct device base;
    struct vk_traits traits;
    struct vk_instance *instance;
    VkDevice handle;
    VkQueue queue;
    atomic_bool lost;
    bool matrix;               /* convolutions of plans of fp16 use cooperative matrices */
    bool grouped;              /* channels are grouped even where no matrices need it: for tests */
    uint8_t matrix_order[256]; /* row * 16 + column of each invocation's 8 elements of a B matrix */
    bool matrix_direct;        /* an A matrix is held as vk_direct.h wants it */
    uint8_t
        matrix_row[16]; /* which of the 16 channels that invocations hold of an A matrix belongs to a B matrix's row */
    uint32_t matrix_half_bit;  /* which bit of an A element's number among its invocation's 8 gives its row */
    uint8_t matrix_column[16]; /* where among 16 channels, in the order of the sums, a B matrix's column is */
    uint32_t matrix_slot_bit;  /* which bit of a sum's number among its invocation's 8 gives its row */
    enum vk_direct direct;
    bool packed;                     /* shaders may use packed fp16 arithmetic */
    bool stage_convolution;          /* convolutions without matrices use shared memory: not on software devices */
    bool prepares;                   /* plan_prepare does something */
    size_t upload_bytes;             /* size of each of the two buffers that weights go through */
    struct backend_account *account; /* of device memory */
    struct vk_commands *commands;
    struct vk_pipelines *pipelines;
    struct vk_packs *packs;
    struct vk_tunes *tunes;
    struct vk_kept kept;
};

/* The names of the limits that our shaders need and the device lacks, into out; "" if it has all. */
void vk_device_lacking(const VkPhysicalDeviceLimits *limits, char *out, size_t size);

/* The error for a failed Vulkan call: DEVICE_LOST, NO_MEMORY or DEVICE; what: "create the buffer of the plan". */
enum error_code vk_device_error(struct vk_device *device, VkResult result, const char *what, struct error *err);

/* Bytes of the device's heap that this process may use in all, and that it uses now. */
void vk_device_memory(const struct vk_device *device, uint64_t *budget, uint64_t *used);

#endif
