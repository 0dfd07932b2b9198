#include "runtime/cpu/cpu_arena.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include "runtime/backend/fault.h"
#include "runtime/cpu/cpu_device.h"

#define ARENA_STEP ((size_t)2 << 20) /* so that all of it may use large pages */

static size_t arena_round(size_t bytes)
{
    return (bytes + ARENA_STEP - 1) / ARENA_STEP * ARENA_STEP;
}

enum error_code cpu_arena_reserve(struct cpu_device *device, struct error *err)
{
    struct cpu_arena *arena = &device->arena;
    struct rlimit limit;
    if (arena->base)
        return OK;
    /* All of the machine's memory, but at most half of a limit on addresses: the rest is for others. */
    uint64_t bytes = device->info.memory_total;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur / 2 < bytes)
        bytes = limit.rlim_cur / 2;
    if (bytes > SIZE_MAX / 4)
        bytes = SIZE_MAX / 4;
    bytes = arena_round((size_t)bytes);
    char *base = mmap(NULL, (size_t)bytes + ARENA_STEP, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return error_set(err, ERROR_NO_MEMORY, "out of addresses for %.1f MiB", (double)bytes / 0x1p20);
    const size_t before = (ARENA_STEP - (uintptr_t)base % ARENA_STEP) % ARENA_STEP;
    if (before)
        munmap(base, before);
    if (before < ARENA_STEP)
        munmap(base + before + bytes, ARENA_STEP - before);
    *arena = (struct cpu_arena){.base = base + before, .reserved = (size_t)bytes};
    return OK;
}

enum error_code cpu_arena_grow(struct cpu_device *device, uint64_t bytes, struct error *err)
{
    struct cpu_arena *arena = &device->arena;
    if (bytes <= arena->bytes)
        return OK;
    enum error_code code = cpu_device_room(bytes, arena->bytes, err);
    if (code)
        return code;
    const size_t wanted = bytes <= arena->reserved ? arena_round((size_t)bytes) : SIZE_MAX, old = arena->bytes;
    if (wanted > arena->reserved || fault_allocation(device->info.id) ||
        mprotect(arena->base + old, wanted - old, PROT_READ | PROT_WRITE))
        return error_set(err, ERROR_NO_MEMORY, "out of memory for %.1f MiB", (double)bytes / 0x1p20);
    if (wanted > 2 * ARENA_STEP)
        madvise(arena->base, wanted, MADV_HUGEPAGE); /* if this fails nothing is lost */
    arena->bytes = wanted;
    cpu_device_count(device, wanted - old);
    return OK;
}

void cpu_arena_shrink(struct cpu_device *device, uint64_t bytes)
{
    struct cpu_arena *arena = &device->arena;
    if (bytes >= arena->bytes)
        return;
    const size_t left = arena_round((size_t)bytes), given = arena->bytes - left;
    if (!given)
        return;
    madvise(arena->base + left, given, MADV_DONTNEED);
    mprotect(arena->base + left, given, PROT_NONE);
    arena->bytes = left;
    cpu_device_uncount(device, given);
}

void cpu_arena_destroy(struct cpu_device *device)
{
    cpu_arena_shrink(device, 0);
    if (device->arena.base)
        munmap(device->arena.base, device->arena.reserved);
    device->arena = (struct cpu_arena){0};
}
