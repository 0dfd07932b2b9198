/* A plan of a Vulkan device: shared by vk_plan.c, which makes it, and vk_plan_run.c.
 * Thread-safety: as the device. */
#ifndef RUNTIME_VULKAN_VK_PLAN_PRIVATE_H
#define RUNTIME_VULKAN_VK_PLAN_PRIVATE_H

#include "runtime/vulkan/vk_command.h"
#include "runtime/vulkan/vk_io.h"
#include "runtime/vulkan/vk_plan.h"
#include "runtime/vulkan/vk_record.h"

/* A run: the commands that vk_io records to bring the inputs, then the plan's, then those that vk_io records for the
 * outputs once these are named. */
struct plan_slot {
    bool busy, shown;
    VkCommandBuffer before, after, *commands;
    struct vk_work work, ending;
};

struct vk_plan {
    struct plan base;
    char name[64];
    struct vk_buffer arena, words;
    bool guessed;                               /* not all of its convolutions' tiles were measured */
    uint64_t arena_bytes, scratch, scratch_top; /* scratch begins where the tensors end */
    uint32_t *host_words;                       /* what `words` is filled with; first struct params_run */
    size_t word_count, word_capacity;
    struct vk_dispatch *dispatches;
    uint32_t dispatch_count, dispatch_capacity;
    VkDescriptorPool pool;
    VkDescriptorSet *sets;
    struct vk_record record;
    struct vk_io *io;
    struct plan_slot slots[PLAN_RUNS];
    int flying[PLAN_RUNS], flying_count; /* the slots of the runs under way */
};

#endif
