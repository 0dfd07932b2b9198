/* The device "cpu": its threads, its instruction set, and the params that it packed.
 * Thread-safety: as struct device in backend.h. */
#ifndef RUNTIME_CPU_CPU_DEVICE_H
#define RUNTIME_CPU_CPU_DEVICE_H

#include "runtime/backend/backend.h"
#include "runtime/cpu/cpu_kernel.h"
#include "runtime/cpu/cpu_pack.h"
#include "runtime/cpu/cpu_pool.h"

struct cpu_device {
    struct device base;
    struct device_info info; /* but for what changes */
    const struct cpu_isa *isa;
    struct cpu_pool *pool;
    struct cpu_packs packs;
    struct backend_account *account;
};

/* Memory aligned to a cache line, counted as the device's. NO_MEMORY when the machine has not that much left.
 */
enum error_code cpu_device_alloc(struct cpu_device *device, uint64_t bytes, float **out, struct error *err) MUST_CHECK;
void cpu_device_free(struct cpu_device *device, float *memory, uint64_t bytes);

/* Whether RESTORED_CPU_ISA is set and names no instruction set that this processor can use, so that it is ignored;
 * allowed: those that it may name here, best first, as "avx512, avx2, base". Thread-safety: any thread. */
bool cpu_device_isa_ignored(char *allowed, size_t size);

#endif
