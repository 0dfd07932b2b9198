/* The memory that all plans of one handle of the device "cpu" work in. One plan runs at a time and nothing in the arena
 * outlives a run, so they share it: it is as large as the largest of them needs, or empty until the next run. Its
 * addresses are reserved once, so that plans can hold pointers into it while it grows and shrinks.
 * Thread-safety: as the device. */
#ifndef RUNTIME_CPU_CPU_ARENA_H
#define RUNTIME_CPU_CPU_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

struct cpu_device;

struct cpu_arena {
    char *base; /* NULL: nothing is reserved yet */
    size_t reserved, bytes;
};

/* Reserves the addresses unless that was done; base does not move from then on. */
enum error_code cpu_arena_reserve(struct cpu_device *device, struct error *err) MUST_CHECK;

/* Makes at least that many bytes usable and counts them as the device's. NO_MEMORY when the machine has too little
 * left. */
enum error_code cpu_arena_grow(struct cpu_device *device, uint64_t bytes, struct error *err) MUST_CHECK;

/* Gives everything beyond that many bytes back to the system. */
void cpu_arena_shrink(struct cpu_device *device, uint64_t bytes);

void cpu_arena_destroy(struct cpu_device *device);

#endif
