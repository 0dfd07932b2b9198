#include <math.h>
#include <stdlib.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "server/pipeline/model_store_private.h"

struct set_slot {
    struct set_slot *next;
    const struct model_entry *entry;
    const struct model *model;
    struct session *sessions[2]; /* fp32, fp16 */
    double used_ms;
    bool packed; /* its weights may be on the device */
};

struct model_set {
    struct device *device;
    struct plan_cache *cache;
    struct set_slot *slots;
};

enum error_code model_set_create(struct model_set **out, struct model_store *store, struct device *device,
                                 struct error *err)
{
    (void)store; /* entries come with each request for a session */
    *out = mem_calloc(1, sizeof **out);
    if (!*out)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    (*out)->device = device;
    enum error_code code = plan_cache_create(&(*out)->cache, device, err);
    if (code)
        model_set_destroy(out);
    return code;
}

static void set_forget(struct model_set *set, struct set_slot *slot)
{
    model_forget(slot->model, set->device);
    slot->packed = false;
}

static void set_slot_free(struct model_set *set, struct set_slot *slot)
{
    session_destroy(&slot->sessions[0]);
    session_destroy(&slot->sessions[1]);
    set_forget(set, slot);
    model_store_release(slot->entry);
    free(slot);
}

void model_set_drop_replaced(struct model_set *set)
{
    for (struct set_slot **at = &set->slots; *at;) {
        struct set_slot *slot = *at;
        bool idle = model_store_replaced(slot->entry);
        for (int i = 0; i < 2 && idle; i++)
            idle = !slot->sessions[i] || session_trim(slot->sessions[i]);
        if (idle) {
            *at = slot->next;
            set_slot_free(set, slot);
        } else {
            at = &slot->next;
        }
    }
}

void model_set_destroy(struct model_set **set)
{
    if (!*set)
        return;
    for (struct set_slot *slot = (*set)->slots, *next; slot; slot = next) {
        next = slot->next;
        set_slot_free(*set, slot);
    }
    plan_cache_destroy(&(*set)->cache);
    free(*set);
    *set = NULL;
}

enum error_code model_set_session(struct model_set *set, const struct model_entry *entry, enum precision precision,
                                  struct session **session, const struct model_info **info, struct error *err)
{
    struct set_slot *slot = set->slots;
    while (slot && slot->entry != entry)
        slot = slot->next;
    enum error_code code = OK;
    if (!slot) {
        slot = mem_calloc(1, sizeof *slot);
        if (!slot)
            return error_set(err, ERROR_NO_MEMORY, "out of memory");
        slot->entry = entry;
        code = model_store_hold(&slot->model, entry, err);
        if (code != OK) {
            free(slot);
            return code;
        }
        slot->next = set->slots;
        set->slots = slot;
    }
    slot->used_ms = log_clock_ms();
    slot->packed = true;
    if (precision == PRECISION_AUTO) {
        struct device_info device;
        device_info(set->device, &device);
        precision = device.preferred == PRECISION_FP16 ? PRECISION_FP16 : PRECISION_FP32;
    }
    struct session **slot_session = &slot->sessions[precision == PRECISION_FP16];
    if (!*slot_session)
        code = model_session(slot_session, slot->model, set->device, precision, err);
    *session = *slot_session;
    *info = model_info(slot->model);
    return code;
}

void model_set_trim(struct model_set *set, const struct session *keep)
{
    for (struct set_slot *slot = set->slots; slot; slot = slot->next) {
        bool kept = false;
        for (int i = 0; i < 2; i++) {
            kept = kept || (keep && slot->sessions[i] == keep);
            if (slot->sessions[i] && slot->sessions[i] != keep && !session_trim(slot->sessions[i]))
                kept = true; /* runs under way need its weights */
        }
        if (!kept)
            set_forget(set, slot);
    }
}

/* ---- between jobs ------------------------------------------------------------------------------------------------ */

static bool set_has_plans(const struct set_slot *slot)
{
    for (int i = 0; i < 2; i++)
        if (slot->sessions[i] && !session_empty(slot->sessions[i]))
            return true;
    return false;
}

/* The least recently used model with weights but without plans that is not a default; NULL: none. */
static struct set_slot *set_oldest(const struct model_set *set)
{
    struct set_slot *oldest = NULL;
    for (struct set_slot *slot = set->slots; slot; slot = slot->next)
        if (slot->packed && !slot->entry->is_default && !set_has_plans(slot) &&
            (!oldest || slot->used_ms < oldest->used_ms))
            oldest = slot;
    return oldest;
}

void model_set_budget(struct model_set *set, uint64_t bytes, int handles)
{
    plan_cache_set_budget(set->cache, bytes, handles);
    model_set_settle(set);
}

void model_set_settle(struct model_set *set)
{
    if (plan_cache_over(set->cache))
        device_give_back(set->device, 0);
    while (plan_cache_over(set->cache)) {
        struct set_slot *slot = set_oldest(set);
        if (slot && slot->used_ms < plan_cache_oldest(set->cache))
            set_forget(set, slot);
        else if (!plan_cache_drop_oldest(set->cache))
            return;
    }
}

double model_set_give_back(struct model_set *set, double since_ms)
{
    double oldest;
    while ((oldest = plan_cache_oldest(set->cache)) <= since_ms)
        plan_cache_drop_oldest(set->cache);
    for (struct set_slot **link = &set->slots, *slot; (slot = *link);) {
        if (slot->entry->is_default) {
            link = &slot->next;
        } else if (slot->used_ms <= since_ms && !set_has_plans(slot)) {
            *link = slot->next;
            log_event(LOG_DEBUG, "model-given-back", "model=%s", slot->entry->name);
            set_slot_free(set, slot);
        } else {
            oldest = fmin(oldest, slot->used_ms);
            link = &slot->next;
        }
    }
    return oldest;
}
