/* struct model, only for model.c and model_build.c. Thread-safety: as model.h. */
#ifndef RUNTIME_MODELS_MODEL_PRIVATE_H
#define RUNTIME_MODELS_MODEL_PRIVATE_H

#include "runtime/models/model_build.h"

struct model_param {
    char *name;
    struct param *param;
};

struct model {
    struct model_info info;
    struct model_settings settings;
    struct weights *weights;
    const struct architecture *architecture;
    size_t entry_count, entry_capacity;
    struct model_param *entries; /* every param, by name */
    uint32_t *table;             /* open addressing by the name's hash: 1 + its entry, or 0 */
    size_t table_size;           /* a power of two, or 0 */
    char path[1024];
};

#endif
