/* A node while vk_ops turns it into a dispatch, and what most operators need for that: lanes that fit, packed params,
 * bindings.
 * Thread-safety: as the device. */
#ifndef RUNTIME_VULKAN_VK_FRAME_H
#define RUNTIME_VULKAN_VK_FRAME_H

#include "runtime/vulkan/vk_plan.h"

struct vk_frame {
    struct vk_build *build;
    const struct node *node;
    struct vk_operand y, in[OP_MAX_INPUTS]; /* n = 0: absent */
    struct vk_operand result;               /* where to copy y to, if it is scratch; n = 0: nowhere */
    struct vk_dispatch dispatch;
};

uint32_t vk_frame_div_up(uint32_t a, uint32_t b);

/* Appends a specialisation constant. */
void vk_frame_spec(struct vk_dispatch *dispatch, uint32_t value);

/* Memory traffic counted as work: what a slow device computes in that time. */
uint64_t vk_frame_quad_work(const struct vk_operand *y);

/* The shape of a dispatch that makes a quad of y an invocation. */
void vk_frame_pixel_groups(struct vk_dispatch *dispatch, const struct vk_operand *y);

/* Adds to the plan's words the channel of each lane of the layout, or VK_PACK_NO_CHANNEL. */
enum error_code vk_frame_lanes(struct vk_build *build, const struct vk_layout *layout, struct vk_slice *out,
                               struct error *err) MUST_CHECK;

/* Gives the input the wanted lanes: through a copy in scratch, if it has others. */
enum error_code vk_frame_fit(struct vk_frame *frame, int slot, const struct vk_layout *layout,
                             struct error *err) MUST_CHECK;

/* Gives inputs in fp32 of a node in fp16 a copy in fp16. No node in fp32 reads fp16. */
enum error_code vk_frame_narrow(struct vk_frame *frame, struct error *err) MUST_CHECK;

/* For shaders that count channels across the whole of y: if y has padding inside, they write a copy without. */
enum error_code vk_frame_fit_result(struct vk_frame *frame, struct error *err) MUST_CHECK;

/* Copies a result out of scratch, if it is there. */
enum error_code vk_frame_copy_result(struct vk_frame *frame, struct error *err) MUST_CHECK;

/* Packs a param of the node, if there is one, and binds it. taps: of its kernel; fp32: in any precision. */
enum error_code vk_frame_pack(struct vk_frame *frame, int param, enum vk_pack_kind kind, uint32_t taps, bool fp32,
                              uint32_t slot, struct error *err) MUST_CHECK;

/* Bias and slopes, which are fp32. */
enum error_code vk_frame_pack_vectors(struct vk_frame *frame, struct error *err) MUST_CHECK;

/* FLAG_BIAS if the node has one. */
uint32_t vk_frame_bias_flag(const struct vk_frame *frame);

/* Binds what all pixel shaders share, appends, and copies a result out of scratch. */
enum error_code vk_frame_add_pixel(struct vk_frame *frame, struct error *err) MUST_CHECK;

#endif
