/* The plans of all sessions on one handle of a device. When the handle holds more memory than its budget, the least
 * recently used plans are dropped until device_held is within it. A single plan's cost is not considered, so weights,
 * buffers and what plans share count, too. A plan with runs under way is never dropped. Plans of a CPU handle share one
 * arena (cpu_arena.h), so one more size costs little. Plans of a GPU have one each, because their commands are recorded
 * against its buffer and runs of different plans overlap (faces go between the tiles of a background that has begun,
 * and the next picture's background begins before the last one is finished); only the budget bounds these.
 * Thread-safety: as the device. */
#ifndef RUNTIME_PLAN_CACHE_H
#define RUNTIME_PLAN_CACHE_H

#include "runtime/backend/backend.h"

/* Shape and form of one run: a session has one plan for each. */
struct session_shape {
    int n, h, w;
    int variant; /* the model's own meaning: GFPGAN's source of noise, else 0 */
};

struct plan_cache;

/* Creates the cache for one handle of a device. Sessions made on that handle from now on keep their plans here. */
enum error_code plan_cache_create(struct plan_cache **out, struct device *device, struct error *err) MUST_CHECK;
/* Its sessions must be destroyed first. */
void plan_cache_destroy(struct plan_cache **cache);

/* The default budget of a device: a quarter of its memory and at most 4 GiB where it uses the machine's memory (CPU,
 * integrated GPU; of software Vulkan at most 128 MiB), else nine tenths of what this process may use of the GPU's own.
 * UINT64_MAX: the device does not tell. */
uint64_t plan_cache_usual(const struct device_info *info);

/* Sets the device's budget in bytes; 0, the default: plan_cache_usual. Each of the `handles` that this process opens
 * gets an equal share. Takes effect with the next plan. */
void plan_cache_set_budget(struct plan_cache *cache, uint64_t bytes, int handles);

/* The handle's share in bytes, and whether it holds more than that (the CPU's with what device_staged counts), or more
 * than 1 GiB of the host's memory beside it. */
uint64_t plan_cache_limit(const struct plan_cache *cache);
bool plan_cache_over(const struct plan_cache *cache);

/* How many plans there are. */
size_t plan_cache_count(const struct plan_cache *cache);

/* The owner's plan for a shape, which counts as used now; NULL: none. */
struct plan *plan_cache_find(struct plan_cache *cache, const void *owner, const struct session_shape *shape);
/* Takes over a plan, and drops others as the budget requires. After NO_MEMORY the plan stays the caller's. */
enum error_code plan_cache_add(struct plan_cache *cache, const void *owner, const struct session_shape *shape,
                               struct plan *plan, struct error *err) MUST_CHECK;

/* When the least recently used plan without runs under way was used, in ms of log_clock_ms; INFINITY: there is none.
 * And drops it. */
double plan_cache_oldest(const struct plan_cache *cache);
bool plan_cache_drop_oldest(struct plan_cache *cache);

/* Drops one plan of an owner, or all of them; those with runs under way stay. Returns whether none is left. */
void plan_cache_drop(struct plan_cache *cache, const struct plan *plan);
bool plan_cache_drop_all(struct plan_cache *cache, const void *owner);
/* Whether an owner has any. */
bool plan_cache_has(const struct plan_cache *cache, const void *owner);
/* Discards an owner's runs under way and drops its plans, because the owner is being destroyed. */
void plan_cache_forget(struct plan_cache *cache, const void *owner);

#endif
