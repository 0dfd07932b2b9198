/* A graph on a Vulkan device: its tensors in one arena, the list of dispatches that vk_ops makes from its nodes, and
 * the command buffers recorded from them. A tensor is stored as [n][group][h][w][quad], its channels in quads of 4 and
 * these in groups, each segment beginning a new group. Lanes after a segment's last channel are padding; every operator
 * writes 0 there, so that nothing stale enters a sum.
 * Thread-safety: as the device. */
#ifndef RUNTIME_VULKAN_VK_PLAN_H
#define RUNTIME_VULKAN_VK_PLAN_H

#include "runtime/nn/order.h"
#include "runtime/vulkan/vk_pack.h"
#include "runtime/vulkan/vk_pipeline.h"
#include "shaders/include/params.h"

/* The functions of the backend. */
enum error_code vk_plan_create(struct plan **out, struct device *device, const struct graph *graph,
                               enum precision precision, const char *name, struct error *err) MUST_CHECK;
enum error_code vk_plan_prepare(struct device *device, const struct graph *graph, enum precision precision,
                                const char *name, bool measure, bool *whole, struct error *err) MUST_CHECK;
void vk_plan_destroy(struct plan *plan);
enum error_code vk_plan_submit(struct plan *plan, const struct run_io *run, struct error *err) MUST_CHECK;
enum error_code vk_plan_show(struct plan *plan, const struct run_io *run, struct error *err) MUST_CHECK;
bool vk_plan_ready(struct plan *plan);
enum error_code vk_plan_wait(struct plan *plan, bool discard, struct run_result *result, struct error *err) MUST_CHECK;
bool vk_plan_whole(const struct plan *plan);
uint64_t vk_plan_bytes(const struct plan *plan);
enum error_code vk_plan_profile(struct plan *plan, struct error *err) MUST_CHECK;
double vk_plan_ms(const struct plan *plan, double *node_ms);

/* Command buffers of the plan: one submit each. */
uint32_t vk_plan_submits(const struct plan *plan);

/* --- for vk_ops and vk_io -------------------------------------------------------------------------------------------
 */

/* A view as a shader sees it. */
struct vk_operand {
    struct vk_slice slice;    /* its tensor */
    struct params_operand at; /* its place there */
    struct vk_layout layout;
    uint32_t n, h, w; /* n is 1 where all images share it: then at.stride is 0 */
    bool fp16;
};

/* Bytes of the arena that a dispatch touches; end is 0 for memory that no dispatch writes. */
struct vk_span {
    uint64_t begin, end;
};

/* What distinguishes one convolution from another when tiles are measured: see vk_tune.h. */
struct vk_tune_key {
    uint32_t kernel, stride, upsample;
    uint32_t in_blocks, out_blocks; /* of 16 channels for matrices, else of 4 */
    uint32_t size;                  /* pixels of the whole batch: vk_tune_size */
    uint32_t family;                /* enum vk_tune_kind */
};

struct vk_dispatch {
    struct vk_pipeline_key key;
    struct vk_slice bind[BIND_COUNT]; /* buffer NULL: the shader does not use it */
    struct vk_span span[BIND_COUNT];  /* BIND_Y is written, the rest read */
    union {
        uint32_t first_group;
        struct params_conv2d conv2d;
        struct params_vector vector;
        struct params_pixel pixel;
        struct params_tokens tokens;
    } push;
    uint32_t groups[3];
    uint32_t tile_rows;      /* of a workgroup of shaders/matrix/conv2d.comp, which signals when it is done; else 0 */
    uint32_t counter;        /* the first counter that others may wait for (vk_chain.h); 0: it has none */
    bool barrier;            /* before it */
    bool watched;            /* it says when a sum is not finite (CHAIN_WILD) */
    bool shuffled;           /* it writes rows of a larger picture than its push constants say */
    struct vk_tune_key tune; /* kernel 0: nothing to measure */
    uint64_t work;           /* multiply-accumulates, or as many as take the same time */
    int node;                /* of the graph */
};

/* A plan while it is made. */
struct vk_build {
    struct vk_device *device;
    struct vk_plan *plan;
    const struct graph *graph;
    bool half;               /* the plan's precision is fp16: so is all that the graph does not want in fp32 */
    bool fp16, grouped;      /* fp16: of the dispatches that are being made; grouped: see vk_pack_layout */
    const uint64_t *offsets; /* of the tensors in the arena */
    const struct order *order;
    int node; /* of the dispatches that are being made */
};

/* Whether the tensor of the view is stored in fp16. */
bool vk_plan_halves(const struct vk_build *build, struct view view);

/* The view's operand. A constant tensor is packed and uploaded, in the precision of the dispatches. */
enum error_code vk_plan_operand(struct vk_build *build, struct view view, struct vk_operand *out,
                                struct error *err) MUST_CHECK;

/* An operand of that shape in the plan's scratch, in the precision of the dispatches, until the node is done. */
enum error_code vk_plan_scratch(struct vk_build *build, const struct vk_layout *layout, uint32_t n, uint32_t h,
                                uint32_t w, struct vk_operand *out, struct error *err) MUST_CHECK;

/* A copy of the words in memory that the plan's shaders can read. */
enum error_code vk_plan_words(struct vk_build *build, const uint32_t *words, size_t count, struct vk_slice *out,
                              struct error *err) MUST_CHECK;

const char *vk_plan_name(const struct vk_plan *plan);

/* Where each run's struct params_run is: the plan's first words. */
struct vk_slice vk_plan_run_params(const struct vk_build *build);

/* Binds the operand and returns its place for the push constants. */
struct params_operand vk_plan_bind(const struct vk_build *build, struct vk_dispatch *dispatch, uint32_t slot,
                                   const struct vk_operand *operand);

/* Appends a copy of the dispatch. */
enum error_code vk_plan_add(struct vk_build *build, const struct vk_dispatch *dispatch, struct error *err) MUST_CHECK;

#endif
