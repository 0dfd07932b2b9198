#include "runtime/plan_cache.h"

#include <math.h>
#include <stdlib.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#define CACHE_HOST_MOST (UINT64_C(4) << 30)
/* Each plan has an arena of its own there, but to make one again takes no time beside a run of it. */
#define CACHE_SOFTWARE_MOST (UINT64_C(128) << 20)
#define CACHE_STAGED_MOST (UINT64_C(1) << 30) /* of host memory, for a GPU: some ten large pictures */
#define CACHE_PLANS 256 /* a picture needs some ten; beyond this number sizes rarely come back soon */

struct cache_entry {
    struct cache_entry *next; /* used before this one */
    const void *owner;
    struct session_shape shape;
    struct plan *plan;
    double used_ms;
};

struct plan_cache {
    struct device *device;
    uint64_t limit;
    bool staged; /* device_staged counts for the limit, too; beside CACHE_STAGED_MOST, which bounds it on any device */
    struct cache_entry *newest;
    size_t count;
};

uint64_t plan_cache_usual(const struct device_info *info)
{
    if (!info->memory_total)
        return UINT64_MAX;
    if (info->type == DEVICE_DISCRETE || info->type == DEVICE_VIRTUAL)
        return info->memory_budget / 10 * 9;
    const uint64_t most = info->type == DEVICE_SOFTWARE ? CACHE_SOFTWARE_MOST : CACHE_HOST_MOST;
    return info->memory_total / 4 < most ? info->memory_total / 4 : most;
}

enum error_code plan_cache_create(struct plan_cache **out, struct device *device, struct error *err)
{
    struct plan_cache *cache = *out = mem_calloc(1, sizeof *cache);
    if (!cache)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for the plans of a device");
    cache->device = device;
    device->cache = cache;
    plan_cache_set_budget(cache, 0, 1);
    return OK;
}

void plan_cache_set_budget(struct plan_cache *cache, uint64_t bytes, int handles)
{
    struct device_info info;
    device_info(cache->device, &info);
    cache->staged = info.type == DEVICE_CPU;
    cache->limit = (bytes ? bytes : plan_cache_usual(&info)) / (uint64_t)(handles > 0 ? handles : 1);
}

void plan_cache_destroy(struct plan_cache **cache)
{
    struct plan_cache *old = *cache;
    *cache = NULL;
    if (!old)
        return;
    if (old->device->cache == old)
        old->device->cache = NULL;
    while (old->newest)
        plan_cache_forget(old, old->newest->owner);
    free(old);
}

uint64_t plan_cache_limit(const struct plan_cache *cache)
{
    return cache->limit;
}

bool plan_cache_over(const struct plan_cache *cache)
{
    const uint64_t held = device_held(cache->device), staged = device_staged(cache->device);
    return held + (cache->staged ? staged : 0) > cache->limit || staged > CACHE_STAGED_MOST;
}

size_t plan_cache_count(const struct plan_cache *cache)
{
    return cache->count;
}

static bool cache_same(const struct session_shape *a, const struct session_shape *b)
{
    return a->n == b->n && a->h == b->h && a->w == b->w && a->variant == b->variant;
}

/* Removes the entry that *link points to. */
static struct cache_entry *cache_unlink(struct cache_entry **link)
{
    struct cache_entry *entry = *link;
    *link = entry->next;
    return entry;
}

static void cache_use(struct plan_cache *cache, struct cache_entry *entry)
{
    entry->used_ms = log_clock_ms();
    entry->next = cache->newest;
    cache->newest = entry;
}

static void cache_remove(struct plan_cache *cache, struct cache_entry **link)
{
    struct cache_entry *entry = cache_unlink(link);
    plan_destroy(&entry->plan);
    free(entry);
    cache->count--;
}

struct plan *plan_cache_find(struct plan_cache *cache, const void *owner, const struct session_shape *shape)
{
    for (struct cache_entry **link = &cache->newest; *link; link = &(*link)->next)
        if ((*link)->owner == owner && cache_same(&(*link)->shape, shape)) {
            cache_use(cache, cache_unlink(link));
            return cache->newest->plan;
        }
    return NULL;
}

/* The link to the oldest entry behind *link that may be dropped; NULL: none. */
static struct cache_entry **cache_oldest(struct cache_entry **link)
{
    struct cache_entry **oldest = NULL;
    for (; *link; link = &(*link)->next)
        if (plan_under_way((*link)->plan) == 0)
            oldest = link;
    return oldest;
}

enum error_code plan_cache_add(struct plan_cache *cache, const void *owner, const struct session_shape *shape,
                               struct plan *plan, struct error *err)
{
    struct cache_entry *entry = mem_calloc(1, sizeof *entry), **oldest;
    if (!entry)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a plan");
    *entry = (struct cache_entry){.owner = owner, .shape = *shape, .plan = plan};
    cache_use(cache, entry);
    cache->count++;
    if (plan_cache_over(cache))
        device_give_back(cache->device, 0);
    while ((plan_cache_over(cache) || cache->count > CACHE_PLANS) && (oldest = cache_oldest(&entry->next)))
        cache_remove(cache, oldest);
    return OK;
}

double plan_cache_oldest(const struct plan_cache *cache)
{
    double used_ms = INFINITY;
    for (const struct cache_entry *entry = cache->newest; entry; entry = entry->next)
        if (plan_under_way(entry->plan) == 0)
            used_ms = entry->used_ms;
    return used_ms;
}

bool plan_cache_drop_oldest(struct plan_cache *cache)
{
    struct cache_entry **oldest = cache_oldest(&cache->newest);
    if (oldest)
        cache_remove(cache, oldest);
    return oldest != NULL;
}

void plan_cache_drop(struct plan_cache *cache, const struct plan *plan)
{
    for (struct cache_entry **link = &cache->newest; *link; link = &(*link)->next)
        if ((*link)->plan == plan) {
            if (plan_under_way(plan) == 0)
                cache_remove(cache, link);
            return;
        }
}

static void cache_drop(struct plan_cache *cache, const void *owner, bool busy)
{
    struct cache_entry **link = &cache->newest;
    while (*link) {
        if ((*link)->owner == owner && (busy || plan_under_way((*link)->plan) == 0))
            cache_remove(cache, link);
        else
            link = &(*link)->next;
    }
}

bool plan_cache_drop_all(struct plan_cache *cache, const void *owner)
{
    cache_drop(cache, owner, false);
    return !plan_cache_has(cache, owner);
}

bool plan_cache_has(const struct plan_cache *cache, const void *owner)
{
    for (const struct cache_entry *entry = cache->newest; entry; entry = entry->next)
        if (entry->owner == owner)
            return true;
    return false;
}

void plan_cache_forget(struct plan_cache *cache, const void *owner)
{
    cache_drop(cache, owner, true);
}
