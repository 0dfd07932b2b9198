#include "runtime/vulkan/vk_command.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/backend/fault.h"
#include "runtime/base/mem.h"
#include "runtime/base/thread.h"

#define IN_FLIGHT 2

/* Of one submit. */
struct flight {
    struct vk_work *work;
    bool counts; /* as the device's work */
    VkFence fence;
    double sent_ms;
};

struct vk_commands {
    VkCommandPool pool;
    pthread_t thread;
    bool started, quit;
    pthread_mutex_t lock;  /* for all that follows, and the queue */
    pthread_cond_t sent;   /* something is in flight, or the thread must quit */
    pthread_cond_t over;   /* some work is */
    struct vk_work *first; /* in order of arrival; finished ones are removed */
    struct flight flights[IN_FLIGHT];
    int flying;
    double busy_ms, idle_since_ms; /* until the last submit that is done; when that was */
};

static double command_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void *command_feed(void *context);

enum error_code vk_command_create(struct vk_device *device, struct error *err)
{
    const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                          .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                          .queueFamilyIndex = device->traits.family};
    const VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
    struct vk_commands *commands = device->commands = mem_calloc(1, sizeof *commands);
    if (!commands)
        return error_set(err, ERROR_NO_MEMORY, "out of memory to open %s", device->traits.info.name);
    pthread_mutex_init(&commands->lock, NULL);
    pthread_cond_init(&commands->sent, NULL);
    pthread_cond_init(&commands->over, NULL);
    VkResult result = vkCreateCommandPool(device->handle, &pool, NULL, &commands->pool);
    for (int i = 0; i < IN_FLIGHT && result == VK_SUCCESS; i++)
        result = vkCreateFence(device->handle, &fence, NULL, &commands->flights[i].fence);
    if (result != VK_SUCCESS)
        return vk_device_error(device, result, "create a command pool", err);
    commands->started = pthread_create(&commands->thread, NULL, command_feed, device) == 0;
    return commands->started ? OK : error_set(err, ERROR_NO_MEMORY, "no thread for %s", device->traits.info.name);
}

void vk_command_destroy(struct vk_device *device)
{
    struct vk_commands *commands = device->commands;
    if (!commands)
        return;
    if (commands->started) {
        pthread_mutex_lock(&commands->lock);
        commands->quit = true;
        pthread_cond_signal(&commands->sent);
        pthread_mutex_unlock(&commands->lock);
        pthread_join(commands->thread, NULL);
    }
    for (int i = 0; i < IN_FLIGHT; i++)
        vkDestroyFence(device->handle, commands->flights[i].fence, NULL);
    vkDestroyCommandPool(device->handle, commands->pool, NULL);
    pthread_cond_destroy(&commands->sent);
    pthread_cond_destroy(&commands->over);
    pthread_mutex_destroy(&commands->lock);
    free(commands);
    device->commands = NULL;
}

/* --- recording -----------------------------------------------------------------------------------------------------
 */

enum error_code vk_command_begin(struct vk_device *device, VkCommandBuffer *out, struct error *err)
{
    const VkCommandBufferAllocateInfo allocate = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                                  .commandPool = device->commands->pool,
                                                  .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                                  .commandBufferCount = 1};
    const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                            .flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT};
    VkResult result = *out ? VK_SUCCESS : vkAllocateCommandBuffers(device->handle, &allocate, out);
    if (result != VK_SUCCESS) {
        *out = VK_NULL_HANDLE;
        return vk_device_error(device, result, "allocate a command buffer", err);
    }
    result = vkBeginCommandBuffer(*out, &begin);
    if (result != VK_SUCCESS) {
        vk_command_free(device, out, 1);
        *out = VK_NULL_HANDLE;
        return vk_device_error(device, result, "begin a command buffer", err);
    }
    vk_command_barrier(*out);
    return OK;
}

enum error_code vk_command_end(struct vk_device *device, VkCommandBuffer commands, struct error *err)
{
    VkResult result = vkEndCommandBuffer(commands);
    return result == VK_SUCCESS ? OK : vk_device_error(device, result, "record commands", err);
}

void vk_command_free(struct vk_device *device, const VkCommandBuffer *commands, uint32_t count)
{
    if (count)
        vkFreeCommandBuffers(device->handle, device->commands->pool, count, commands);
}

void vk_command_barrier(VkCommandBuffer commands)
{
    const VkPipelineStageFlags work = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
    const VkMemoryBarrier barrier = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                     .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
                                     .dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT |
                                                      VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT};
    vkCmdPipelineBarrier(commands, work, work, 0, 1, &barrier, 0, NULL, 0, NULL);
}

void vk_command_to_host(VkCommandBuffer commands)
{
    const VkPipelineStageFlags work = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
    const VkMemoryBarrier barrier = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                     .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
                                     .dstAccessMask = VK_ACCESS_HOST_READ_BIT};
    vkCmdPipelineBarrier(commands, work, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &barrier, 0, NULL, 0, NULL);
}

/* --- the queue -----------------------------------------------------------------------------------------------------
 * All of it under the lock. */

/* Removes what is finished. */
static void command_sweep(struct vk_commands *commands)
{
    struct vk_work **at = &commands->first;
    while (*at) {
        struct vk_work *work = *at;
        if (work->done == work->sent && (work->code != OK || work->sent == work->count)) {
            *at = work->next;
            for (struct vk_work *other = commands->first; other; other = other->next)
                other->behind = other->behind == work ? NULL : other->behind;
            work->over = true;
            pthread_cond_broadcast(&commands->over);
        } else {
            at = &work->next;
        }
    }
}

/* Ends it after what it has in flight. */
static void command_fail(struct vk_device *device, struct vk_work *work, VkResult result)
{
    if (work->code != OK)
        return;
    error_clear(&work->error);
    work->code = vk_device_error(device, result, "run the commands", &work->error);
}

static bool command_to_send(const struct vk_work *work)
{
    return work->code == OK && work->sent < work->count;
}

/* Whose commands go next: the oldest work that is not in the background, else the oldest; or the work that it must
 * follow. */
static struct vk_work *command_choose(struct vk_commands *commands)
{
    struct vk_work *chosen = NULL;
    for (struct vk_work *work = commands->first; work; work = work->next) {
        if (command_to_send(work) && (work->dropped || (work->cancel && atomic_load(work->cancel))))
            work->code = error_set(&work->error, ERROR_CANCELLED, "cancelled");
        if (command_to_send(work) && (!chosen || (chosen->background && !work->background)))
            chosen = work;
    }
    while (chosen && chosen->behind && command_to_send(chosen->behind))
        chosen = chosen->behind;
    return chosen;
}

static void command_send(struct vk_device *device, struct vk_work *work)
{
    struct vk_commands *commands = device->commands;
    struct flight *flight = &commands->flights[commands->flying];
    const VkSubmitInfo submit = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                                 .commandBufferCount = 1,
                                 .pCommandBuffers = work->commands + work->sent};
    const VkResult result = device->lost || fault_submit(device->traits.info.id)
                                ? VK_ERROR_DEVICE_LOST
                                : vkQueueSubmit(device->queue, 1, &submit, flight->fence);
    if (result != VK_SUCCESS) {
        command_fail(device, work, result);
        return;
    }
    flight->work = work;
    flight->counts = work->sent >= work->ways;
    flight->sent_ms = command_now_ms();
    work->sent++;
    commands->flying++;
}

/* Keeps the device busy. */
static void command_pump(struct vk_device *device)
{
    struct vk_commands *commands = device->commands;
    struct vk_work *work;
    while (commands->flying < IN_FLIGHT && (work = command_choose(commands)))
        command_send(device, work);
    command_sweep(commands);
    if (commands->flying)
        pthread_cond_signal(&commands->sent);
}

/* The oldest submit is done. */
static void command_land(struct vk_device *device, VkResult result)
{
    struct vk_commands *commands = device->commands;
    struct flight flight = commands->flights[0];
    const double now = command_now_ms(),
                 begun = flight.sent_ms > commands->idle_since_ms ? flight.sent_ms : commands->idle_since_ms;
    if (result == VK_SUCCESS)
        result = vkResetFences(device->handle, 1, &flight.fence);
    if (result != VK_SUCCESS) {
        /* What comes next needs nothing in flight and no fence signalled. */
        vkDeviceWaitIdle(device->handle);
        for (int i = 0; i < commands->flying; i++) {
            vkResetFences(device->handle, 1, &commands->flights[i].fence);
            commands->flights[i].work->done++;
            command_fail(device, commands->flights[i].work, result);
        }
        commands->flying = 0;
        return;
    }
    flight.work->done++;
    if (flight.work->progress)
        atomic_fetch_add(flight.work->progress, 1);
    memmove(commands->flights, commands->flights + 1, sizeof commands->flights - sizeof flight);
    commands->flights[IN_FLIGHT - 1] = flight; /* its fence is free again */
    commands->flying--;
    commands->busy_ms += flight.counts ? now - begun : 0;
    commands->idle_since_ms = now;
}

/* Waits for what is in flight and sends what follows. */
static void *command_feed(void *context)
{
    struct vk_device *device = context;
    struct vk_commands *commands = device->commands;
    pthread_mutex_lock(&commands->lock);
    for (;;) {
        while (!commands->flying && !commands->quit)
            pthread_cond_wait(&commands->sent, &commands->lock);
        if (!commands->flying)
            break;
        const VkFence fence = commands->flights[0].fence;
        int64_t until = 0;
        pthread_mutex_unlock(&commands->lock);
        while (vkGetFenceStatus(device->handle, fence) == VK_NOT_READY && thread_look_again(&until))
            ;
        const VkResult result = vkWaitForFences(device->handle, 1, &fence, VK_TRUE, UINT64_MAX);
        pthread_mutex_lock(&commands->lock);
        command_land(device, result);
        command_pump(device);
    }
    pthread_mutex_unlock(&commands->lock);
    return NULL;
}

/* --- for callers ---------------------------------------------------------------------------------------------------
 */

void vk_command_start(struct vk_device *device, struct vk_work *work)
{
    struct vk_commands *commands = device->commands;
    struct vk_work **last = &commands->first;
    work->next = NULL;
    work->sent = work->done = 0;
    work->dropped = false;
    work->over = false;
    work->code = OK;
    error_clear(&work->error);
    pthread_mutex_lock(&commands->lock);
    while (*last)
        last = &(*last)->next;
    *last = work;
    command_pump(device);
    pthread_mutex_unlock(&commands->lock);
}

bool vk_command_over(struct vk_device *device, const struct vk_work *work)
{
    pthread_mutex_lock(&device->commands->lock);
    const bool over = work->over;
    pthread_mutex_unlock(&device->commands->lock);
    return over;
}

enum error_code vk_command_finish(struct vk_device *device, struct vk_work *work, bool drop, struct error *err)
{
    struct vk_commands *commands = device->commands;
    int64_t until = 0;
    while (!drop && !atomic_load(&work->over) && thread_look_again(&until))
        ;
    pthread_mutex_lock(&commands->lock);
    work->dropped = work->dropped || drop;
    if (drop)
        command_pump(device);
    while (!work->over)
        pthread_cond_wait(&commands->over, &commands->lock);
    pthread_mutex_unlock(&commands->lock);
    return work->code == OK ? OK : error_set(err, work->code, "%s", work->error.text);
}

void vk_command_wait_all(struct vk_device *device)
{
    struct vk_commands *commands = device->commands;
    pthread_mutex_lock(&commands->lock);
    while (commands->first)
        pthread_cond_wait(&commands->over, &commands->lock);
    pthread_mutex_unlock(&commands->lock);
}

enum error_code vk_command_run(struct vk_device *device, const VkCommandBuffer *commands, uint32_t count,
                               const atomic_int *cancel, struct error *err)
{
    struct vk_work work = {.commands = commands, .count = count, .cancel = cancel};
    vk_command_start(device, &work);
    return vk_command_finish(device, &work, false, err);
}

VkResult vk_command_submit(struct vk_device *device, VkCommandBuffer commands, VkFence fence)
{
    const VkSubmitInfo submit = {
        .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO, .commandBufferCount = 1, .pCommandBuffers = &commands};
    if (device->lost || fault_submit(device->traits.info.id))
        return VK_ERROR_DEVICE_LOST;
    pthread_mutex_lock(&device->commands->lock);
    const VkResult result = vkQueueSubmit(device->queue, 1, &submit, fence);
    pthread_mutex_unlock(&device->commands->lock);
    return result;
}

void vk_command_wait_idle(struct vk_device *device)
{
    pthread_mutex_lock(&device->commands->lock);
    vkDeviceWaitIdle(device->handle);
    pthread_mutex_unlock(&device->commands->lock);
}

double vk_command_busy_ms(struct vk_device *device)
{
    struct vk_commands *commands = device->commands;
    pthread_mutex_lock(&commands->lock);
    double ms = commands->busy_ms;
    if (commands->flying && commands->flights[0].counts) {
        const double sent = commands->flights[0].sent_ms;
        ms += command_now_ms() - (sent > commands->idle_since_ms ? sent : commands->idle_since_ms);
    }
    pthread_mutex_unlock(&commands->lock);
    return ms;
}
