#include <stdlib.h>

#include "runtime/base/mem.h"
#include "server/pipeline/model_store_private.h"

struct set_slot {
    struct set_slot *next;
    const struct model_entry *entry;
    const struct model *model;
    struct session *sessions[2]; /* fp32, fp16 */
};

struct model_set {
    struct device *device;
    struct set_slot *slots;
};

enum error_code model_set_create(struct model_set **out, struct model_store *store, struct device *device,
                                 struct error *err)
{
    (void)store; /* its entries come with each request for a session */
    *out = mem_calloc(1, sizeof **out);
    if (!*out)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    (*out)->device = device;
    return OK;
}

void model_set_destroy(struct model_set **set)
{
    if (!*set)
        return;
    for (struct set_slot *slot = (*set)->slots, *next; slot; slot = next) {
        next = slot->next;
        session_destroy(&slot->sessions[0]);
        session_destroy(&slot->sessions[1]);
        model_forget(slot->model, (*set)->device);
        model_store_release(slot->entry);
        free(slot);
    }
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
            model_forget(slot->model, set->device);
    }
}
