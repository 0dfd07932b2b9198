#include "runtime/vulkan/vk_chain.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backend/switches.h"
#include "runtime/base/log.h"

#define OPEN 64 /* how many dispatches since the last barrier are remembered */

/* The dispatches since the last barrier, in their order, and which of them each waits for, or -1. */
struct chain {
    struct vk_dispatch *dispatch[OPEN];
    int waits[OPEN];
    int count;
};

static atomic_bool was_late;

bool vk_chain_wanted(bool matrix)
{
    return matrix && *switches_get(SWITCH_VULKAN_CHAIN) != '0' && !atomic_load(&was_late);
}

enum error_code vk_chain_late(const char *device, struct error *err)
{
    if (!atomic_exchange(&was_late, true))
        log_event(LOG_WARN, "chain-late", "device=%s text=\"convolutions will be kept apart by barriers\"", device);
    return error_set(err, ERROR_DEVICE_LOST,
                     "%s did not run convolutions in their order (vulkan_chain = false does without)", device);
}

uint32_t vk_chain_counters(const struct vk_dispatch *dispatch)
{
    const struct params_conv2d *push = &dispatch->push.conv2d;
    const bool takes = dispatch->tile_rows > 0 && dispatch->tune.kernel <= 3 && dispatch->tune.upsample == 1 &&
                       push->in_h == push->out_h && push->in_w == push->out_w;
    return takes ? (push->out_h + CHAIN_BAND - 1) / CHAIN_BAND : 0;
}

static bool chain_overlap(const struct vk_span *a, const struct vk_span *b)
{
    return a->begin < b->end && b->begin < a->end;
}

/* Bytes of one group of channels of a picture of the convolution's size; 0: the slot holds something else. */
static uint64_t chain_plane(const struct vk_dispatch *dispatch, int slot)
{
    const struct params_conv2d *push = &dispatch->push.conv2d;
    const struct params_operand *operand = slot == BIND_Y           ? &push->y
                                           : slot == BIND_X         ? &push->x
                                           : slot == BIND_RESIDUAL1 ? &push->residual1
                                           : slot == BIND_RESIDUAL2 ? &push->residual2
                                                                    : NULL;
    const uint64_t pixels = (uint64_t)push->out_h * push->out_w;
    if (slot == BIND_Y && dispatch->shuffled)
        return 0;
    const uint64_t quad = dispatch->key.fp16 ? 8 : 16; /* bytes */
    return operand ? pixels * quad << (operand->stride >> OPERAND_STRIDE_BITS) : 0;
}

enum conflict { NONE, ALIGNED, ACROSS };

/* Whether the later dispatch reads or writes what the earlier one writes, or writes what that one reads; and if so,
 * whether only within the same rows of the same picture, apart from the kernels' reach. */
static enum conflict chain_conflict(const struct vk_dispatch *earlier, const struct vk_dispatch *later)
{
    enum conflict found = NONE;
    for (int i = 0; i < 2 * BIND_COUNT; i++) {
        const int mine = i < BIND_COUNT ? BIND_Y : i - BIND_COUNT, theirs = i < BIND_COUNT ? i : BIND_Y;
        const struct vk_span *a = &earlier->span[mine], *b = &later->span[theirs];
        if (!chain_overlap(a, b))
            continue;
        if (!vk_chain_counters(earlier) || !vk_chain_counters(later))
            return ACROSS;
        const uint64_t one = chain_plane(earlier, mine), other = chain_plane(later, theirs);
        if (one == 0 || one != other || (a->begin > b->begin ? a->begin - b->begin : b->begin - a->begin) % one != 0)
            return ACROSS;
        found = ALIGNED;
    }
    return found;
}

/* Which dispatch to wait for; -1: none. False: a barrier is needed, because the last conflicting dispatch has not
 * waited for all the other conflicting ones. */
static bool chain_find(const struct chain *chain, const struct vk_dispatch *dispatch, int *waits)
{
    int behind = -1; /* the next one that the last has waited for */
    *waits = -1;
    for (int i = chain->count - 1; i >= 0; i--) {
        const enum conflict with = chain_conflict(chain->dispatch[i], dispatch);
        if (with == ACROSS)
            return false;
        if (with == ALIGNED && *waits < 0) {
            const struct params_conv2d *a = &chain->dispatch[i]->push.conv2d, *b = &dispatch->push.conv2d;
            if (a->out_h != b->out_h || a->out_w != b->out_w || chain->dispatch[i]->counter == 0 ||
                CHAIN_BAND % chain->dispatch[i]->tile_rows != 0)
                return false;
            *waits = i;
            behind = chain->waits[i];
        } else if (with == ALIGNED && i != behind) {
            return false;
        } else if (i == behind) {
            behind = chain->waits[i];
        }
    }
    return true;
}

/* Sets in both push constants what the later one waits for. */
static void chain_wait_for(struct vk_dispatch *before, struct vk_dispatch *dispatch)
{
    struct params_conv2d *push = &dispatch->push.conv2d;
    const uint32_t too_many =
        strcmp(switches_get(SWITCH_VULKAN_CHAIN), "late") == 0; /* for tests: wait for what never comes */
    before->push.conv2d.chain_own = push->chain_wait = before->counter;
    push->chain_row = before->push.conv2d.tiles_x * before->groups[1] * before->groups[2] + too_many;
    for (uint32_t rows = before->tile_rows; rows > 1; rows /= 2)
        push->chain_row += 1u << CHAIN_ROWS_BIT;
}

void vk_chain_link(struct vk_dispatch *dispatches, uint32_t count)
{
    struct chain chain = {.count = 0};
    for (uint32_t i = 0; i < count; i++) {
        int waits = -1;
        dispatches[i].barrier = chain.count == OPEN || !chain_find(&chain, &dispatches[i], &waits);
        if (dispatches[i].barrier) {
            chain.count = 0;
            waits = -1;
        } else if (waits >= 0) {
            chain_wait_for(chain.dispatch[waits], &dispatches[i]);
        }
        chain.dispatch[chain.count] = &dispatches[i];
        chain.waits[chain.count++] = waits;
    }
}
