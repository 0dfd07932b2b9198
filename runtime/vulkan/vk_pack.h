/* Params as the shaders need them: packed in the order and precision of their use, uploaded to device memory once for
 * each use, and shared by all plans. Also the channel layouts that packing follows.
 * Thread-safety: as the device; layout functions are without state. */
#ifndef RUNTIME_VULKAN_VK_PACK_H
#define RUNTIME_VULKAN_VK_PACK_H

#include "runtime/vulkan/vk_memory.h"

#define VK_PACK_NO_CHANNEL UINT32_MAX

/* Where a view's channels lie: in runs, each padded to whole groups of 4 << group_log lanes. Segments that fill their
 * groups are joined with the next one, so equal placements have equal runs. */
struct vk_layout {
    int channels, blocks; /* blocks: quads of lanes, whole groups of them */
    int group_log;        /* logarithm of the number of quads that are side by side in a pixel: 0 to 2 */
    int run_count;
    int run[GRAPH_MAX_SEGMENTS];
    bool shuffled; /* a run for each of the pixels that a pixel shuffle makes of one; see vk_pack_layout_shuffled */
};

/* grouped: groups as large as the tensor's smallest segment can fill; otherwise groups of one quad. */
void vk_pack_layout(const struct graph *graph, struct view view, bool grouped, struct vk_layout *out);
void vk_pack_layout_dense(int channels, bool grouped, struct vk_layout *out); /* one run */
/* The channels that a pixel shuffle turns into `channels` of factor × factor pixels, with those of a pixel side by
 * side: the quads are then stored like those of the larger picture, whose groups have 1 << group_log of them, except
 * for their order. factor is at most 4. */
void vk_pack_layout_shuffled(int channels, int group_log, int factor, struct vk_layout *out);
/* Whether the same channels are in the same lanes, and as many lanes, whatever the groups. */
bool vk_pack_layout_same(const struct vk_layout *a, const struct vk_layout *b);

/* lanes[blocks*4]: the channel in each lane, or VK_PACK_NO_CHANNEL. */
void vk_pack_lanes(const struct vk_layout *layout, uint32_t *lanes);

enum vk_pack_kind {
    PACK_CONV,      /* [16 out lanes][in block][kernel*kernel][in lane][out lane] from [out][in][kernel][kernel] */
    PACK_WINOGRAD,  /* those of a 3×3 kernel, transformed; fp32: [16 out lanes][in lane][position][out lane] as F(4×4,
                     * 3×3)  does, or fp16: [16 out lanes][in block][position][out quad][in lane][out lane] as F(2×2,
                     * 3×3)
                     */
    PACK_MATRIX,    /* [out group][in matrix][kx][ky][out matrix of 1 or 2][256 in matrix_order], in lanes as rows;
                     * fp32: of each matrix SPLIT_WEIGHT times the numbers as fp16, then what that leaves of them */
    PACK_DIRECT,    /* as PACK_MATRIX, with in lanes as vk_direct_lanes orders them */
    PACK_DEPTHWISE, /* [out block][kernel*kernel][out lane] from [out][kernel][kernel] */
    PACK_LINEAR,    /* [out block][in block][h*w][in lane][out lane] from [out][in][h*w]; h*w is in `taps` */
    PACK_TENSOR     /* [out block][h*w][out lane] from [out][h*w]: constants, and with h*w = 1 biases and slopes */
};

/* What distinguishes one packing from another. Lanes that are padding become 0. The layouts are made by
 * shaders/upload.comp. */
struct vk_pack_key {
    const struct param *param;
    enum vk_pack_kind kind;
    bool fp16;
    int taps; /* kernel*kernel or h*w */
    struct vk_layout in, out;
};

enum error_code vk_pack_create(struct vk_device *device, struct error *err) MUST_CHECK;
void vk_pack_destroy(struct vk_device *device);

/* The packed param's place in device memory. Its upload waits until vk_pack_flush, which must be called even after an
 * error, or if the slice will not be used. */
enum error_code vk_pack_get(struct vk_device *device, const struct vk_pack_key *key, struct vk_slice *out,
                            struct error *err) MUST_CHECK;

/* Uploads what is waiting; what fails is dropped. */
enum error_code vk_pack_flush(struct vk_device *device, struct error *err) MUST_CHECK;

/* The backend's forget_params. */
void vk_pack_forget(struct device *device, const struct param *const *params, size_t count);

#endif
