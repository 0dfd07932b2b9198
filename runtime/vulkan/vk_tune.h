/* Which tile of which kernel is the fastest for a convolution on this device: measured on first use, when a plan is
 * made, and remembered by the device and in a file beside the pipelines, under the device's UUID and driver.
 * Thread-safety: as the device. */
#ifndef RUNTIME_VULKAN_VK_TUNE_H
#define RUNTIME_VULKAN_VK_TUNE_H

#include "runtime/vulkan/vk_plan.h"

/* What a workgroup makes: constants of the shaders, in their order. */
union vk_tile {
    uint32_t number[9]; /* unused ones are 0 */
    struct {            /* matrix/conv2d.comp */
        uint32_t subgroups, down, rows, blocks, steps, prefetch, split, phase, padding;
    } matrix;
    struct { /* matrix/direct.comp */
        uint32_t subgroups, down, rows, blocks, ahead, split, phase;
    } direct;
    struct { /* include/tiled.glsl, but for the kind, which vk_tiled.c explains */
        uint32_t kind, columns, down, across, rows, quads;
    } tiled;
    struct { /* winograd.comp */
        uint32_t kind, across, down, shares, per, steps, ahead;
    } winograd;
    struct { /* winograd_packed.comp */
        uint32_t kind, across, down, shares, per, quads, steps, ahead;
    } pairs;
};

/* Kernels that work in tiles: those on matrices, and those without, by how activations are stored. */
enum vk_tune_kind {
    VK_TUNE_MATRIX,
    VK_TUNE_TILED_F16,
    VK_TUNE_TILED_F32,
    VK_TUNE_DIRECT,
    VK_TUNE_MATRIX_F32,
    VK_TUNE_KIND_COUNT
};

/* vk_matrix.c, vk_direct.c and vk_tiled.c have one each. */
struct vk_tune_family {
    const union vk_tile *tiles; /* each was the best for some convolution somewhere; the first that fits is the guess */
    size_t count;               /* the last one always fits, for want of a better one */
    /* Whether the tile can do the convolution without being mostly idle. */
    bool (*fits)(const struct vk_device *device, const struct vk_tune_key *key, const union vk_tile *tile);
    /* Sets the shader, the constants and the groups that follow from the tile. */
    void (*apply)(const union vk_tile *tile, struct vk_dispatch *dispatch);
};

/* The operand's size for a key: log2 of the pixels of the whole batch, rounded up; even above 14, at most 18. */
uint32_t vk_tune_size(const struct vk_operand *y);

/* Reads the file in cache_dir; NULL or a missing file is OK. A file that is damaged, or names tiles that are no longer
 * tried, is ignored. */
enum error_code vk_tune_create(struct vk_device *device, const char *cache_dir, struct error *err) MUST_CHECK;
void vk_tune_destroy(struct vk_device *device);

/* The best tile, if it was measured; else false, with the best for the nearest size, or a guess. */
bool vk_tune_find(const struct vk_device *device, const struct vk_tune_key *key, union vk_tile *out);

/* Gives the tile to a dispatch whose tune.kernel is not 0. */
void vk_tune_apply(const union vk_tile *tile, struct vk_dispatch *dispatch);

/* Whether tiles are measured on this device: it has a clock and is not a software device. */
bool vk_tune_measures(const struct vk_device *device);

/* Whether vk_tune_measure would measure anything: new convolutions, on a device that measures. */
bool vk_tune_wants(const struct vk_device *device, const struct vk_dispatch *dispatches, uint32_t count);

/* Measures them, most work first, and writes the file; what does not fit into device_set_patience's time is left to the
 * next call. The dispatches must be ready to run with these descriptors and may write their outputs. One handle of a
 * device measures at a time, and the others read its results from the file. A failure to write the file is only
 * logged. */
enum error_code vk_tune_measure(struct vk_device *device, const struct vk_dispatch *dispatches,
                                const VkDescriptorSet *sets, uint32_t count, struct error *err) MUST_CHECK;

#endif
