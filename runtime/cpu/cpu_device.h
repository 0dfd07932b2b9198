/* The device "cpu": its threads, its instruction set, and the params that it packed.
 * Thread-safety: as struct device in backend.h. */
#ifndef RUNTIME_CPU_CPU_DEVICE_H
#define RUNTIME_CPU_CPU_DEVICE_H

#include "runtime/backend/backend.h"
#include "runtime/cpu/cpu_arena.h"
#include "runtime/cpu/cpu_kernel.h"
#include "runtime/cpu/cpu_pack.h"
#include "runtime/cpu/cpu_pool.h"

struct cpu_device {
    struct device base;
    struct device_info info; /* except for what changes */
    const struct cpu_isa *isa;
    struct cpu_pool *pool;
    struct cpu_packs packs;
    struct cpu_arena arena;
    struct cpu_plan *plans; /* all existing plans */
    struct backend_account *account;
};

/* OK if a piece of that size may be allocated, of which the caller holds `had` bytes already; else NO_MEMORY. */
enum error_code cpu_device_room(uint64_t bytes, uint64_t had, struct error *err) MUST_CHECK;

/* Adds bytes to what the device holds, and subtracts them. */
void cpu_device_count(struct cpu_device *device, uint64_t bytes);
void cpu_device_uncount(struct cpu_device *device, uint64_t bytes);

/* Memory aligned to a cache line, counted as the device's. NO_MEMORY when the machine has too little left. */
enum error_code cpu_device_alloc(struct cpu_device *device, uint64_t bytes, float **out, struct error *err) MUST_CHECK;
void cpu_device_free(struct cpu_device *device, float *memory, uint64_t bytes);

#endif
