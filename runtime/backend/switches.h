/* Named switches of the backends, which override how a device chooses to work. None of them changes what a network
 * computes. Test programs and build/tests/restored take a switch that is not set from the environment variable
 * RESTORED_NAME; other programs ignore the environment.
 * Thread-safety: switches_set before the first device is listed or opened; switches_get from any thread. */
#ifndef RUNTIME_BACKEND_SWITCHES_H
#define RUNTIME_BACKEND_SWITCHES_H

enum device_switch {
    SWITCH_CPU_ISA,           /* the instruction set of the device cpu: base, avx2 or avx512; else the best available */
    SWITCH_VULKAN_MEMORY,     /* bytes of a device's memory that may be used; else all */
    SWITCH_VULKAN_DIRECT,     /* pictures go straight into device memory that the host sees: 0 never, 1 into any such
                                 memory; else where it is the device's main memory */
    SWITCH_VULKAN_MATRIX,     /* 0: no cooperative matrices */
    SWITCH_VULKAN_CHAIN,      /* 0: barriers between convolutions on matrices */
    SWITCH_VULKAN_VALIDATION, /* 1: the validation layer, whose messages are logged as errors */
    /* Only for tests: */
    SWITCH_VULKAN_STAGE,      /* 0, 1: compute convolutions as a software device or as a GPU does */
    SWITCH_VULKAN_PREPARE,    /* 0, 1: make pipelines when models are loaded */
    SWITCH_VULKAN_GROUPED,    /* 1: group channels as if there were matrices */
    SWITCH_VULKAN_PACKED,     /* 0: no packed fp16 */
    SWITCH_VULKAN_TILE,       /* the number of a convolution's tile, where it fits */
    SWITCH_VULKAN_WILD,       /* 1: each run as if a sum of fp32 on matrices had not been finite */
    SWITCH_VULKAN_LOW_LIMITS, /* 1: a device without the limits that we need */
    SWITCH_VULKAN_LEAST,      /* 1: a device with only what every device has */
    SWITCH_COUNT
};

/* value is copied; "", the default: not set. */
void switches_set(enum device_switch which, const char *value);

/* "" when it is not set. */
const char *switches_get(enum device_switch which);

#endif
