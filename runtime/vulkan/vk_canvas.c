#include "runtime/vulkan/vk_canvas.h"

#include <stdlib.h>

#include "runtime/base/mem.h"

enum error_code vk_canvas_create(struct canvas **out, struct device *base, const struct canvas_shape *shape,
                                 struct error *err)
{
    struct vk_device *device = (struct vk_device *)base;
    const uint64_t bytes = (uint64_t)shape->width * (uint64_t)shape->rows * 3 * sizeof(float);
    struct vk_canvas *canvas = mem_calloc(1, sizeof *canvas);
    *out = NULL;
    if (!canvas)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a canvas");
    *canvas = (struct vk_canvas){.base = {&vk_backend, *shape}, .device = device, .fresh = true};
    enum error_code code = bytes > device->traits.limits.maxStorageBufferRange
                               ? error_set(err, ERROR_TOO_LARGE, "a canvas of %d × %d is larger than %s takes",
                                           shape->width, shape->rows, device->traits.info.name)
                               : vk_memory_create(device, &canvas->sums, bytes, MEMORY_DEVICE, "a canvas", err);
    if (code == OK)
        *out = &canvas->base;
    else
        free(canvas);
    return code;
}

void vk_canvas_destroy(struct canvas *base)
{
    struct vk_canvas *canvas = (struct vk_canvas *)base;
    vk_memory_destroy(canvas->device, &canvas->sums);
    free(canvas);
}
