#include "runtime/cpu/cpu_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/backend/fault.h"
#include "runtime/backend/switches.h"
#include "runtime/base/log.h"
#include "runtime/base/machine.h"
#include "runtime/base/mem.h"
#include "runtime/cpu/cpu_plan.h"

/* The instruction sets of this processor, best first; returns how many. */
static int cpu_device_isas(const struct cpu_isa *have[3])
{
    int count = 0;
#ifdef __x86_64__
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        have[count++] = &cpu_isa_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        have[count++] = &cpu_isa_avx2;
#endif
    have[count++] = &cpu_isa_base;
    return count;
}

/* Which of the instruction sets SWITCH_CPU_ISA names; the best if it is not set, -1 if it names none of them. */
static int cpu_device_named_isa(const struct cpu_isa *const *have, int count)
{
    const char *wanted = switches_get(SWITCH_CPU_ISA);
    if (!*wanted)
        return 0;
    for (int i = 0; i < count; i++)
        if (strcmp(have[i]->name, wanted) == 0)
            return i;
    return -1;
}

/* The instruction set to use; off: those that SWITCH_CPU_ISA switches off, such as "avx512 and avx2". */
static const struct cpu_isa *cpu_device_pick_isa(char off[32])
{
    const struct cpu_isa *have[3];
    const int named = cpu_device_named_isa(have, cpu_device_isas(have)), picked = named < 0 ? 0 : named;
    *off = 0;
    for (int i = 0; i < picked; i++) {
        const size_t used = strlen(off);
        snprintf(off + used, 32 - used, "%s%s", i ? " and " : "", have[i]->name);
    }
    return have[picked];
}

/* Whether SWITCH_CPU_ISA is set to an instruction set that this processor cannot use, and is therefore ignored;
 * allowed: those that it may name here, best first, such as "avx512, avx2, base". */
static bool cpu_device_isa_ignored(char *allowed, size_t size)
{
    const struct cpu_isa *have[3];
    const int count = cpu_device_isas(have);
    size_t used = 0;
    for (int i = 0; i < count && used < size; i++)
        used += (size_t)snprintf(allowed + used, size - used, "%s%s", i ? ", " : "", have[i]->name);
    return cpu_device_named_isa(have, count) < 0;
}

/* Logs once that SWITCH_CPU_ISA is ignored. */
static void cpu_device_warn_of_isa(void)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    char allowed[64];
    if (cpu_device_isa_ignored(allowed, sizeof allowed) && !atomic_flag_test_and_set(&said))
        log_event(LOG_WARN, "cpu-isa-ignored", "cpu_isa=%s allowed=\"%s\"", switches_get(SWITCH_CPU_ISA), allowed);
}

static enum error_code cpu_device_probe(struct error *err)
{
    char allowed[64];
    if (cpu_device_isa_ignored(allowed, sizeof allowed))
        return error_set(err, ERROR_INVALID, "cpu_isa = %s is ignored: it may be one of %s here",
                         switches_get(SWITCH_CPU_ISA), allowed);
    return OK;
}

static int cpu_device_pick_threads(void)
{
    int threads = atomic_load(&backend_cpu_threads);
    if (threads <= 0)
        threads = machine_threads("", 0) / atomic_load(&backend_cpu_handles);
    return threads < 1 ? 1 : threads < 256 ? threads : 256;
}

static void cpu_device_describe(struct device_info *info)
{
    char off[32];
    const struct cpu_isa *isa = cpu_device_pick_isa(off);
    *info = (struct device_info){.type = DEVICE_CPU, .usable = true, .preferred = PRECISION_FP32};
    snprintf(info->id, sizeof info->id, "cpu");
    snprintf(info->backend, sizeof info->backend, "cpu");
    machine_name("", info->name, sizeof info->name);
    snprintf(info->driver, sizeof info->driver, "%s, %d thread%s", isa->name, cpu_device_pick_threads(),
             cpu_device_pick_threads() == 1 ? "" : "s");
    snprintf(info->precision_reason, sizeof info->precision_reason, "a CPU is no faster in fp16");
    if (*off)
        snprintf(info->reason, sizeof info->reason, "cpu_isa = %s switches off %s, which this processor has", isa->name,
                 off);
#ifdef __x86_64__
    else if (isa == &cpu_isa_base)
        snprintf(info->reason, sizeof info->reason, "this processor has no AVX2: it is several times slower with SSE2");
#endif
    machine_memory("", &info->memory_total, &info->memory_budget);
    info->max_buffer_bytes = info->memory_total;
}

static enum error_code cpu_device_list(struct device_info **all, size_t *count, struct error *err)
{
    struct device_info *grown = realloc(*all, (*count + 1) * sizeof *grown);
    if (!grown)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for the list of devices");
    *all = grown;
    cpu_device_describe(&grown[(*count)++]);
    return OK;
}

static void cpu_device_close(struct device *base)
{
    struct cpu_device *device = (struct cpu_device *)base;
    cpu_arena_destroy(device);
    cpu_pack_destroy(device);
    cpu_pool_destroy(&device->pool);
    backend_account_close(device->account);
    free(device);
}

static enum error_code cpu_device_open(struct device **out, const struct device_info *info, const char *cache_dir,
                                       struct error *err)
{
    char off[32];
    (void)cache_dir;
    cpu_device_warn_of_isa();
    struct cpu_device *device = mem_calloc(1, sizeof *device);
    if (!device)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a device");
    device->base.backend = &cpu_backend;
    device->info = *info;
    device->isa = cpu_device_pick_isa(off);
    device->account = backend_account_open(info->id);
    enum error_code code = cpu_pool_create(&device->pool, cpu_device_pick_threads(), err);
    if (code) {
        backend_account_close(device->account);
        free(device);
        return code;
    }
    *out = &device->base;
    return OK;
}

static void cpu_device_info(const struct device *base, struct device_info *out)
{
    const struct cpu_device *device = (const struct cpu_device *)base;
    uint64_t total;
    *out = device->info;
    machine_memory("", &total, &out->memory_budget);
    out->memory_used = out->memory_driver = atomic_load(&device->account->used);
    out->memory_peak = atomic_load(&device->account->peak);
    out->memory_budget += out->memory_used;
}

static void cpu_device_give_back(struct device *base, uint64_t keep)
{
    cpu_arena_shrink((struct cpu_device *)base, keep);
}

static void cpu_device_forget(struct device *base, const struct param *const *params, size_t count)
{
    cpu_pack_forget((struct cpu_device *)base, params, count);
}

enum error_code cpu_device_room(uint64_t bytes, uint64_t had, struct error *err)
{
    /* The system promises more memory than it has and kills some process later; so ask before a large allocation, and
     * leave half of the free memory to pictures and other processes. */
    uint64_t total, available;
    if (bytes <= 64 << 20)
        return OK;
    machine_memory("", &total, &available);
    available += had;
    if (bytes <= available / 2)
        return OK;
    return error_set(err, ERROR_NO_MEMORY,
                     "%.0f MiB are needed, more than half of the %.0f MiB of memory that are free",
                     (double)bytes / 0x1p20, (double)available / 0x1p20);
}

void cpu_device_count(struct cpu_device *device, uint64_t bytes)
{
    device->base.held += bytes;
    backend_account_add(device->account, bytes);
}

void cpu_device_uncount(struct cpu_device *device, uint64_t bytes)
{
    device->base.held -= bytes;
    backend_account_remove(device->account, bytes);
}

enum error_code cpu_device_alloc(struct cpu_device *device, uint64_t bytes, float **out, struct error *err)
{
    *out = NULL;
    enum error_code code = cpu_device_room(bytes, 0, err);
    if (code)
        return code;
    const uint64_t align = bytes > 4 << 20 ? 2 << 20 : 64; /* large pieces may get large pages */
    if (bytes <= SIZE_MAX - align && !fault_allocation(device->info.id))
        *out = aligned_alloc(align, (size_t)((bytes + align - 1) / align * align));
    if (!*out)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for %.1f MiB", (double)bytes / 0x1p20);
    if (align > 64)
        madvise(*out, (size_t)((bytes + align - 1) / align * align), MADV_HUGEPAGE);
    cpu_device_count(device, bytes);
    return OK;
}

void cpu_device_free(struct cpu_device *device, float *memory, uint64_t bytes)
{
    if (!memory)
        return;
    free(memory);
    cpu_device_uncount(device, bytes);
}

const struct backend cpu_backend = {
    .name = "cpu",
    .list = cpu_device_list,
    .probe = cpu_device_probe,
    .open = cpu_device_open,
    .close = cpu_device_close,
    .info = cpu_device_info,
    .give_back = cpu_device_give_back,
    .plan_create = cpu_plan_create,
    .plan_destroy = cpu_plan_destroy,
    .plan_run = cpu_plan_run,
    .plan_in_rows = cpu_plan_in_rows,
    .plan_run_rows = cpu_plan_run_rows,
    .plan_bytes = cpu_plan_bytes,
    .plan_profile = cpu_plan_profile,
    .plan_ms = cpu_plan_ms,
    .forget_params = cpu_device_forget,
};
