/* A plan's inputs and outputs: staging buffers, two of each, so that those of one run can be filled and emptied while
 * another run is on the device, and the commands between them and the tensors. Inputs go straight into device memory
 * where the host sees all of it; results are copied into memory that the host caches, unless that is the device's own.
 * Thread-safety: as the device. */
#ifndef RUNTIME_VULKAN_VK_IO_H
#define RUNTIME_VULKAN_VK_IO_H

#include "runtime/vulkan/vk_plan.h"

struct vk_io;

/* For the graph's inputs and outputs; their lane maps join the plan's words. */
enum error_code vk_io_create(struct vk_io **out, struct vk_build *build, struct error *err) MUST_CHECK;
/* Compiles the pipelines for pictures now, rather than in the middle of a request. */
enum error_code vk_io_pipelines(const struct vk_io *io, struct error *err) MUST_CHECK;
/* Before the first run. counters: the plan's, which may be empty. */
enum error_code vk_io_prepare(struct vk_io *io, const struct vk_buffer *counters, struct error *err) MUST_CHECK;
void vk_io_destroy(struct vk_io **io);

/* Bytes of the staging buffers. */
uint64_t vk_io_bytes(const struct vk_io *io);

/* Puts the run's inputs into the buffers of slot 0 .. PLAN_RUNS-1, none of whose commands may be in flight, and records
 * what goes before the plan's commands. */
enum error_code vk_io_in(struct vk_io *io, int slot, const struct run_io *run, VkCommandBuffer *before,
                         struct error *err) MUST_CHECK;
/* Records what goes after them. The commands of the slot's vk_io_in may be in flight. */
enum error_code vk_io_out(struct vk_io *io, int slot, const struct run_io *run, VkCommandBuffer *after,
                          struct error *err) MUST_CHECK;

/* Hands over the results of a slot whose commands are done. */
void vk_io_deliver(struct vk_io *io, int slot, struct run_result *result);

#endif
