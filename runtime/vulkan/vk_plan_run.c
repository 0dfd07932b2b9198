/* Runs a plan: up to PLAN_RUNS of its runs are under way at once, each in a slot of its own. */
#include <stdlib.h>
#include <string.h>

#include "runtime/vulkan/vk_chain.h"
#include "runtime/vulkan/vk_plan_private.h"

/* Names the outputs of a run, which follow its work. */
static enum error_code plan_slot_show(struct vk_plan *plan, int index, const struct run_io *run, struct error *err)
{
    struct plan_slot *slot = &plan->slots[index];
    enum error_code code = vk_io_out(plan->io, index, run, &slot->after, err);
    if (code != OK)
        return code;
    slot->shown = true;
    slot->ending = (struct vk_work){.commands = &slot->after,
                                    .count = 1,
                                    .ways = 1,
                                    .cancel = run->options.cancel,
                                    .progress = run->options.progress,
                                    .background = run->options.background,
                                    .behind = &slot->work};
    return OK;
}

/* A run is no longer under way: number `flight` of those that are. */
static void plan_slot_end(struct vk_plan *plan, int flight)
{
    plan->slots[plan->flying[flight]].busy = false;
    plan->flying_count--;
    memmove(plan->flying + flight, plan->flying + flight + 1,
            (size_t)(plan->flying_count - flight) * sizeof plan->flying[0]);
}

enum error_code vk_plan_submit(struct plan *base, const struct run_io *run, struct error *err)
{
    struct vk_plan *plan = (struct vk_plan *)base;
    struct vk_device *device = (struct vk_device *)base->device;
    int index = 0;
    while (plan->slots[index].busy)
        index++;
    struct plan_slot *slot = &plan->slots[index];
    VkCommandBuffer *commands = realloc(slot->commands, (plan->record.count + 1) * sizeof(VkCommandBuffer));
    if (!commands)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a run");
    slot->commands = commands;
    slot->shown = false;
    enum error_code code = vk_io_in(plan->io, index, run, &slot->before, err);
    vk_pipeline_save(device);
    if (code != OK)
        return code;
    commands[0] = slot->before;
    memcpy(commands + 1, plan->record.commands, plan->record.count * sizeof(VkCommandBuffer));
    slot->work = (struct vk_work){
        .commands = commands,
        .count = plan->record.count + 1,
        .ways = 1,
        .cancel = run->options.cancel,
        .progress = run->options.progress,
        .background = run->options.background,
        .behind = plan->flying_count ? &plan->slots[plan->flying[plan->flying_count - 1]].ending : NULL};
    slot->busy = true;
    plan->flying[plan->flying_count++] = index;
    vk_command_start(device, &slot->work);
    code = run->outputs ? vk_plan_show(base, run, err) : OK; /* the device has begun when that is recorded */
    if (code != OK) {
        struct error ignored = ERROR_INIT;
        if (vk_command_finish(device, &slot->work, true, &ignored) != OK)
            error_clear(&ignored);
        plan_slot_end(plan, plan->flying_count - 1);
    }
    return code;
}

enum error_code vk_plan_show(struct plan *base, const struct run_io *run, struct error *err)
{
    struct vk_plan *plan = (struct vk_plan *)base;
    struct vk_device *device = (struct vk_device *)base->device;
    const int index = plan->flying[plan->flying_count - 1];
    enum error_code code = plan_slot_show(plan, index, run, err);
    vk_pipeline_save(device);
    if (code == OK)
        vk_command_start(device, &plan->slots[index].ending);
    return code;
}

bool vk_plan_ready(struct plan *base)
{
    const struct vk_plan *plan = (const struct vk_plan *)base;
    return vk_command_over((struct vk_device *)base->device, &plan->slots[plan->flying[0]].ending);
}

enum error_code vk_plan_wait(struct plan *base, bool discard, struct run_result *result, struct error *err)
{
    struct vk_plan *plan = (struct vk_plan *)base;
    struct vk_device *device = (struct vk_device *)base->device;
    const int index = plan->flying[0];
    struct plan_slot *slot = &plan->slots[index];
    enum error_code code = vk_command_finish(device, &slot->work, discard, err);
    if (slot->shown) {
        struct error after = ERROR_INIT;
        const enum error_code ended = vk_command_finish(device, &slot->ending, discard || code != OK, &after);
        if (code == OK && ended != OK)
            code = error_set(err, ended, "%s", after.text);
    }
    if (code == OK && vk_record_late(&plan->record))
        code = vk_chain_late(device->traits.info.id, err);
    if (code == OK && !discard)
        vk_io_deliver(plan->io, index, result);
    plan_slot_end(plan, 0);
    return code;
}
