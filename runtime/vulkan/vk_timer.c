#include "runtime/vulkan/vk_timer.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"

enum error_code vk_timer_create(struct vk_timer *timer, struct vk_device *device, int node_count, bool nodes,
                                struct error *err)
{
    *timer = (struct vk_timer){.nodes = nodes, .node_count = node_count};
    if (!device->traits.limits.timestampComputeAndGraphics)
        return OK;
    timer->capacity = nodes ? (uint32_t)node_count + 1 : 2;
    timer->node = mem_calloc(timer->capacity, sizeof *timer->node);
    if (!timer->node)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a plan");
    const VkQueryPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                        .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                        .queryCount = timer->capacity};
    VkResult result = vkCreateQueryPool(device->handle, &info, NULL, &timer->pool);
    return result == VK_SUCCESS ? OK : vk_device_error(device, result, "create a query pool", err);
}

void vk_timer_destroy(struct vk_timer *timer, struct vk_device *device)
{
    if (timer->pool)
        vkDestroyQueryPool(device->handle, timer->pool, NULL);
    free(timer->node);
    *timer = (struct vk_timer){0};
}

void vk_timer_reset(const struct vk_timer *timer, VkCommandBuffer commands)
{
    if (timer->pool)
        vkCmdResetQueryPool(commands, timer->pool, 0, timer->capacity);
}

bool vk_timer_wants(const struct vk_timer *timer, int node, int next)
{
    return timer->pool && node != next &&
           (timer->nodes ? node < timer->node_count : node < 0 || next >= timer->node_count);
}

void vk_timer_stamp(struct vk_timer *timer, VkCommandBuffer commands, int node)
{
    if (timer->count == timer->capacity)
        return;
    vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, timer->pool, timer->count);
    timer->node[timer->count++] = node;
}

double vk_timer_read(const struct vk_timer *timer, const struct vk_device *device, double *node_ms)
{
    if (node_ms)
        memset(node_ms, 0, (size_t)timer->node_count * sizeof *node_ms);
    uint64_t *stamps = timer->count > 1 ? mem_calloc(timer->count, sizeof *stamps) : NULL;
    if (!stamps)
        return -1;
    double ms = -1, period = (double)device->traits.limits.timestampPeriod / 1e6;
    VkResult result = vkGetQueryPoolResults(device->handle, timer->pool, 0, timer->count, timer->count * sizeof *stamps,
                                            stamps, sizeof *stamps, VK_QUERY_RESULT_64_BIT);
    if (result == VK_SUCCESS && stamps[timer->count - 1] >= stamps[0]) { /* else the counter wrapped around */
        ms = (double)(stamps[timer->count - 1] - stamps[0]) * period;
        for (uint32_t i = 1; i < timer->count && node_ms && timer->nodes; i++)
            node_ms[timer->node[i]] += (double)(stamps[i] - stamps[i - 1]) * period;
    }
    free(stamps);
    return ms;
}
