/* Layers over a target (raster.h) as shaders/raster_out.comp reads them: a list of pairs of uvec4 (params_raster.layers
 * of params.h), followed by the samples that lie over the target.
 * Thread-safety: functions without state. */
#ifndef RUNTIME_VULKAN_VK_LAYERS_H
#define RUNTIME_VULKAN_VK_LAYERS_H

#include "runtime/backend/raster.h"
#include "shaders/include/params.h"

/* Bytes of the list and the samples. */
uint64_t vk_layers_bytes(const struct raster_target *target);

/* Writes them to part[*used], counted in uvec4, advances *used, and sets push's layers and layer_count. */
void vk_layers_write(const struct raster_target *target, void *part, uint32_t *used, struct params_raster *push);

#endif
