#include "runtime/backend/switches.h"

#include <stdio.h>
#include <stdlib.h>

#include "runtime/backend/fault.h" /* test programs compile this file again with it */

static char switches_value[SWITCH_COUNT][32];

void switches_set(enum device_switch which, const char *value)
{
    snprintf(switches_value[which], sizeof switches_value[which], "%s", value);
}

const char *switches_get(enum device_switch which)
{
#ifdef RESTORED_FAULTS
    static const char *const variables[SWITCH_COUNT] = {
        [SWITCH_CPU_ISA] = "RESTORED_CPU_ISA",
        [SWITCH_VULKAN_MEMORY] = "RESTORED_VULKAN_MEMORY",
        [SWITCH_VULKAN_DIRECT] = "RESTORED_VULKAN_DIRECT",
        [SWITCH_VULKAN_MATRIX] = "RESTORED_VULKAN_MATRIX",
        [SWITCH_VULKAN_CHAIN] = "RESTORED_VULKAN_CHAIN",
        [SWITCH_VULKAN_VALIDATION] = "RESTORED_VULKAN_VALIDATION",
        [SWITCH_VULKAN_STAGE] = "RESTORED_VULKAN_STAGE",
        [SWITCH_VULKAN_PREPARE] = "RESTORED_VULKAN_PREPARE",
        [SWITCH_VULKAN_GROUPED] = "RESTORED_VULKAN_GROUPED",
        [SWITCH_VULKAN_PACKED] = "RESTORED_VULKAN_PACKED",
        [SWITCH_VULKAN_TILE] = "RESTORED_VULKAN_TILE",
        [SWITCH_VULKAN_WILD] = "RESTORED_VULKAN_WILD",
        [SWITCH_VULKAN_LOW_LIMITS] = "RESTORED_VULKAN_LOW_LIMITS",
        [SWITCH_VULKAN_LEAST] = "RESTORED_VULKAN_LEAST",
    };
    if (!*switches_value[which]) {
        const char *value = getenv(variables[which]);
        return value ? value : "";
    }
#endif
    return switches_value[which];
}
