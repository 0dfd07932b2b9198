/* The canvas of the backend: a picture's sums in the device's memory.
 * Thread-safety: as the device. */
#ifndef RUNTIME_VULKAN_VK_CANVAS_H
#define RUNTIME_VULKAN_VK_CANVAS_H

#include "runtime/vulkan/vk_memory.h"

struct vk_canvas {
    struct canvas base;
    struct vk_device *device;
    struct vk_buffer sums; /* [rows][width][3] float */
    bool fresh;            /* nothing has been written yet */
};

/* The backend's. */
enum error_code vk_canvas_create(struct canvas **out, struct device *device, const struct canvas_shape *shape,
                                 struct error *err) MUST_CHECK;
void vk_canvas_destroy(struct canvas *canvas);

#endif
