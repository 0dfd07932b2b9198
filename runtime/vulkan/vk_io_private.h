/* Shared by the parts of vk_io: vk_io.c makes, measures and binds; vk_io_write.c writes the inputs; vk_io_read.c
 * records the outputs.
 * Thread-safety: as the device. */
#ifndef RUNTIME_VULKAN_VK_IO_PRIVATE_H
#define RUNTIME_VULKAN_VK_IO_PRIVATE_H

#include "runtime/vulkan/vk_canvas.h"
#include "runtime/vulkan/vk_io.h"
#include "runtime/vulkan/vk_rows.h"

#define VK_IO_MAX_OUTPUTS (sizeof((struct graph *)0)->outputs / sizeof(int))
#define VK_IO_MAX_PORTS (sizeof((struct graph *)0)->inputs / sizeof(int) + VK_IO_MAX_OUTPUTS)
#define VK_IO_MAX_LOOKED 32 /* images of an output that are checked one by one */
#define VK_IO_LOOKED (VK_IO_MAX_OUTPUTS * VK_IO_MAX_LOOKED)
#define VK_IO_FOUND_BYTES (sizeof(uint32_t) * (VK_IO_LOOKED + 1)) /* CHAIN_WILD is the last word */

/* An input or output. */
struct vk_io_port {
    struct vk_operand operand;
    struct vk_slice map; /* the channel of each lane */
    int n;
    bool rgb;     /* 3 channels in one quad */
    bool pointed; /* 4: a picture with points */
    bool plain;   /* channel k is lane k */
};

struct vk_io_slot {
    struct vk_buffer upload, weights, readback; /* weights: of outputs with a canvas, and layers over results */
    struct vk_buffer results; /* where they are assembled, if readback is not the device's own memory */
    VkDescriptorSet *sets;    /* of the ports */
    struct vk_rows *copies;   /* what the host copies before the run, and then after it */
    size_t copy_count, copy_capacity;
    uint64_t looked; /* outputs to check, one bit each */
    uint64_t reads;  /* the serial of what its run copies of another; 0: nothing */
};

struct vk_io {
    struct vk_device *device;
    const char *name;
    int input_count, output_count;
    struct vk_io_port *ports; /* the inputs, then the outputs */
    const struct vk_buffer *words, *counters;
    VkDescriptorPool pool;
    struct vk_io_slot slots[PLAN_RUNS];
};

/* A run is measured first, then written and recorded. Offsets and sizes are in bytes. */

struct vk_io_part {
    uint64_t offset, bytes;
};

struct vk_io_run {
    struct vk_io *io;
    struct vk_io_slot *slot;
    const struct run_io *run;
    struct vk_io_part up[VK_IO_MAX_PORTS];     /* of inputs: what they are; of outputs with a canvas: the weights */
    struct vk_io_part over[VK_IO_MAX_OUTPUTS]; /* of outputs: the layers that lie over their targets */
    struct vk_io_part down[VK_IO_MAX_OUTPUTS]; /* of outputs */
    uint64_t up_bytes, down_bytes;
    VkCommandBuffer commands; /* being recorded */
    enum error_code code;
    struct error *err;
};

/* --- of vk_io.c ----------------------------------------------------------------------------------------------------
 */

/* Bytes of all values of a port. */
uint64_t vk_io_plane_bytes(const struct vk_io_port *port);

/* Records a dispatch of one of the shaders of inputs and outputs, with the port's bindings. */
void vk_io_dispatch(struct vk_io_run *r, int index, const char *shader, uint32_t form, uint32_t from, const void *push,
                    size_t push_size, uint32_t columns, uint32_t rows, uint32_t images);
/* pack and unpack, which number all of a tensor's pixels consecutively. */
void vk_io_move_planes(struct vk_io_run *r, int index);
/* What the picture shaders are told about an image of a port; and the number of workgroups for so many pixels. */
struct params_raster vk_io_push(const struct vk_io_run *r, const struct vk_io_port *port, int image);
uint32_t vk_io_groups(uint32_t pixels);
/* Adds to what the host copies. */
void vk_io_copy_later(struct vk_io_run *r, struct vk_rows rows);
/* An invocation for each of so many points of all of a port's images. */
#define VK_IO_POINT_BYTES (sizeof(uint32_t) + 3 * sizeof(float)) /* in the buffer on its way into an input */
void vk_io_dispatch_points(struct vk_io_run *r, int index, struct params_raster *push, uint32_t count);

/* --- of vk_io_write.c ----------------------------------------------------------------------------------------------
 */

/* Bytes that a picture takes in the buffer on its way into an input. */
uint64_t vk_io_write_bytes(const struct raster_source *source, const struct vk_operand *tensor);
/* The earlier input that has all of a picture that is reduced for this one, which then takes no bytes; or -1. */
int vk_io_write_from(const struct vk_io *io, const struct run_io *run, int index);
/* The slot's run is over, or its buffer is to be written or freed: it copies nothing of others, nor they of it. */
void vk_io_write_over(struct vk_io *io, struct vk_io_slot *slot);
void vk_io_write_forget(struct vk_io *io, const struct vk_io_slot *slot);
/* Fills an input's part of the buffer and records the commands that turn it into a tensor. */
void vk_io_write(struct vk_io_run *r, int index);

/* --- of vk_io_read.c -----------------------------------------------------------------------------------------------
 */

/* Bytes that an image's targets take on their way out. */
uint64_t vk_io_read_bytes(const struct run_image *image);
/* Records what happens to an output, and what the host copies afterwards. */
void vk_io_read(struct vk_io_run *r, int index);

#endif
