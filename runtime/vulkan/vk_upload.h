/* Moves params from the host, mostly from a mapped checkpoint, into their packings in device memory: their bytes go
 * unchanged through two small buffers in turn, and shaders/upload.comp converts and orders them. Thread-safety: as the
 * device. */
#ifndef RUNTIME_VULKAN_VK_UPLOAD_H
#define RUNTIME_VULKAN_VK_UPLOAD_H

#include "runtime/vulkan/vk_pack.h"

struct vk_upload_item {
    struct vk_pack_key key;
    struct vk_slice slice; /* the destination: a whole packing */
};

/* Packs the items and waits once, until all are done. Meanwhile it uses two buffers of device->upload_bytes (more if a
 * block of output channels has more weights than that). After an error the contents of the slices are undefined.
 * NO_MEMORY, TOO_LARGE, DEVICE_LOST, DEVICE. */
enum error_code vk_upload_run(struct vk_device *device, const struct vk_upload_item *items, size_t count,
                              struct error *err) MUST_CHECK;

#endif
