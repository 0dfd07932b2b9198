#include "runtime/vulkan/vk_record.h"

#include <stdlib.h>

#include "runtime/backend/switches.h"
#include "runtime/vulkan/vk_chain.h"
#include "runtime/vulkan/vk_command.h"

/* Multiply-accumulates a submit. A driver's watchdog acts after seconds, a cancelled job should not last much longer
 * than a submit, urgent work waits for two submits of others, and a submit costs some 10 µs. So: 1 s of software, at
 * most 0.1 s of a GPU that is slow for its kind: 100 G a second for one that shares the memory, 1 T for one that does
 * not, 5 T with matrices. */
static uint64_t record_submit_work(const struct vk_device *device, bool matrices)
{
    const enum device_type type = device->traits.info.type;
    return type == DEVICE_SOFTWARE   ? UINT64_C(1000000000)
           : matrices                ? UINT64_C(500000000000)
           : type == DEVICE_DISCRETE ? UINT64_C(100000000000)
                                     : UINT64_C(10000000000);
}

/* While a record is made. */
struct recorder {
    struct vk_device *device;
    struct vk_record *record;
    VkCommandBuffer commands; /* NULL: none open */
    uint64_t work, limit;     /* in the open command buffer */
    bool empty;               /* nothing is in it, or a barrier is the last */
};

/* For tests: whether each run is as one with a sum of fp32 on matrices that is not finite. */
static bool record_is_wild(void)
{
    return *switches_get(SWITCH_VULKAN_WILD) == '1';
}

/* What comes before all dispatches of a run. */
static void record_begin_run(struct recorder *r)
{
    struct vk_record *record = r->record;
    vk_timer_reset(&record->timer, r->commands);
    if (vk_timer_wants(&record->timer, -1, 0))
        vk_timer_stamp(&record->timer, r->commands, -1);
    if (record->counters.handle) { /* all but CHAIN_LATE */
        vkCmdFillBuffer(r->commands, record->counters.handle, sizeof(uint32_t), VK_WHOLE_SIZE, 0);
        vk_command_barrier(r->commands);
        if (record_is_wild())
            vkCmdFillBuffer(r->commands, record->counters.handle, CHAIN_WILD * sizeof(uint32_t), sizeof(uint32_t), 1);
    }
}

static enum error_code record_next_commands(struct recorder *r, struct error *err)
{
    struct vk_record *record = r->record;
    enum error_code code = OK;
    if (record->count == record->capacity) {
        const uint32_t capacity = record->capacity * 2 + 4;
        VkCommandBuffer *grown = realloc(record->commands, capacity * sizeof(VkCommandBuffer));
        if (!grown)
            return error_set(err, ERROR_NO_MEMORY, "out of memory for a plan");
        record->commands = grown;
        record->capacity = capacity;
    }
    if (r->commands)
        code = vk_command_end(r->device, r->commands, err);
    r->commands = VK_NULL_HANDLE;
    if (code == OK)
        code = vk_command_begin(r->device, &r->commands, err);
    if (code == OK) {
        if (record->count == 0)
            record_begin_run(r);
        record->commands[record->count++] = r->commands;
    }
    r->work = 0;
    r->empty = true;
    return code;
}

/* Records a dispatch, in parts where it is too wide for the device or too long for one submit. */
static enum error_code record_dispatch(struct recorder *r, struct vk_dispatch *dispatch, VkDescriptorSet set,
                                       struct error *err)
{
    const uint32_t widest = r->device->traits.limits.maxComputeWorkGroupCount[0];
    const uint64_t group_work = dispatch->work / dispatch->groups[0] + 1;
    const VkPipelineLayout layout = vk_pipeline_layout(r->device);
    VkPipeline pipeline;
    enum error_code code = vk_pipeline_get(r->device, &dispatch->key, &pipeline, err);
    for (uint32_t first = 0, count; code == OK && first < dispatch->groups[0]; first += count) {
        count = dispatch->groups[0] - first;
        if (!r->commands || (r->work > 0 && r->work + group_work * count > r->limit)) {
            if ((code = record_next_commands(r, err)) != OK)
                break;
        }
        if (count > widest)
            count = widest;
        if (group_work * count > r->limit)
            count = r->limit > group_work ? (uint32_t)(r->limit / group_work) : 1;
        if (first == 0 && dispatch->barrier && !r->empty)
            vk_command_barrier(r->commands);
        r->empty = false;
        dispatch->push.first_group = first;
        vkCmdBindPipeline(r->commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
        vkCmdBindDescriptorSets(r->commands, VK_PIPELINE_BIND_POINT_COMPUTE, layout, 0, 1, &set, 0, NULL);
        vkCmdPushConstants(r->commands, layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof dispatch->push, &dispatch->push);
        vkCmdDispatch(r->commands, count, dispatch->groups[1], dispatch->groups[2]);
        r->work += group_work * count;
    }
    return code;
}

enum error_code vk_record_make(struct vk_record *record, struct vk_device *device, struct vk_dispatch *dispatches,
                               const VkDescriptorSet *sets, uint32_t count, int node_count, bool profile,
                               struct error *err)
{
    const bool matrices = device->matrix && count > 0 && dispatches[count - 1].key.fp16;
    struct recorder r = {.device = device, .record = record, .limit = record_submit_work(device, matrices)};
    vk_command_free(device, record->commands, record->count);
    record->count = 0;
    vk_timer_destroy(&record->timer, device);
    enum error_code code = vk_timer_create(&record->timer, device, node_count, profile, err);
    for (uint32_t i = 0; i < count && code == OK; i++) {
        const int node = dispatches[i].node, next = i + 1 < count ? dispatches[i + 1].node : node_count;
        code = record_dispatch(&r, &dispatches[i], sets[i], err);
        if (code || !vk_timer_wants(&record->timer, node, next))
            continue;
        if (profile) {
            vk_command_barrier(r.commands);
            r.empty = true;
        }
        vk_timer_stamp(&record->timer, r.commands, node);
    }
    if (r.commands && record->counters.handle) {
        const VkBufferCopy late = {CHAIN_LATE * sizeof(uint32_t), 0, sizeof(uint32_t)};
        vk_command_barrier(r.commands);
        vkCmdCopyBuffer(r.commands, record->counters.handle, record->late.handle, 1, &late);
    }
    if (r.commands) {
        const enum error_code ended = vk_command_end(device, r.commands, err);
        code = code == OK ? ended : code;
    }
    return code;
}

/* Done once for all runs: the mark that somebody was late stays until the host has seen it. */
static enum error_code record_clear(struct vk_device *device, const struct vk_buffer *counters, struct error *err)
{
    VkCommandBuffer commands = VK_NULL_HANDLE;
    enum error_code code = vk_command_begin(device, &commands, err);
    if (code != OK)
        return code;
    vkCmdFillBuffer(commands, counters->handle, 0, VK_WHOLE_SIZE, 0);
    code = vk_command_end(device, commands, err);
    if (code == OK)
        code = vk_command_run(device, &commands, 1, NULL, err);
    vk_command_free(device, &commands, 1);
    return code;
}

enum error_code vk_record_counters(struct vk_record *record, struct vk_device *device, struct vk_dispatch *dispatches,
                                   uint32_t count, const char *what, struct error *err)
{
    const bool chains = vk_chain_wanted(device->matrix);
    bool watched = record_is_wild();
    uint32_t next = CHAIN_FIRST;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t own = chains ? vk_chain_counters(&dispatches[i]) : 0;
        dispatches[i].counter = own ? next : 0;
        next += own;
        watched |= dispatches[i].watched;
    }
    if (next == CHAIN_FIRST && !watched)
        return OK;
    enum error_code code =
        vk_memory_create(device, &record->counters, next * sizeof(uint32_t), MEMORY_DEVICE, what, err);
    if (code == OK)
        code = vk_memory_create(device, &record->late, sizeof(uint32_t), MEMORY_READBACK, what, err);
    if (code != OK)
        return code;
    *(uint32_t *)record->late.mapped = 0;
    for (uint32_t i = 0; i < count; i++)
        if (dispatches[i].counter || dispatches[i].watched)
            dispatches[i].bind[BIND_COUNTERS] = (struct vk_slice){&record->counters, 0, record->counters.size};
    return record_clear(device, &record->counters, err);
}

bool vk_record_late(const struct vk_record *record)
{
    return record->late.handle && *(const uint32_t *)record->late.mapped != 0;
}

void vk_record_destroy(struct vk_record *record, struct vk_device *device)
{
    vk_command_free(device, record->commands, record->count);
    free(record->commands);
    vk_timer_destroy(&record->timer, device);
    vk_memory_destroy(device, &record->counters);
    vk_memory_destroy(device, &record->late);
    *record = (struct vk_record){0};
}
