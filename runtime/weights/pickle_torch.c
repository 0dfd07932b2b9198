#include "runtime/weights/pickle_torch.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/weights/pickle_machine.h"

enum pickle_role { ROLE_STORAGE, ROLE_TENSOR, ROLE_PARAMETER, ROLE_DICT };

struct pickle_global {
    const char *module, *name;
    enum pickle_role role;
    enum weights_dtype dtype; /* of ROLE_STORAGE */
};

static const struct pickle_global pickle_torch_globals[] = {
    {"collections", "OrderedDict", ROLE_DICT, 0},
    {"torch._utils", "_rebuild_tensor_v2", ROLE_TENSOR, 0},
    {"torch._utils", "_rebuild_tensor", ROLE_TENSOR, 0},
    {"torch._utils", "_rebuild_parameter", ROLE_PARAMETER, 0},
    {"torch", "FloatStorage", ROLE_STORAGE, WEIGHTS_F32},
    {"torch", "HalfStorage", ROLE_STORAGE, WEIGHTS_F16},
    {"torch", "BFloat16Storage", ROLE_STORAGE, WEIGHTS_BF16},
    {"torch", "DoubleStorage", ROLE_STORAGE, WEIGHTS_F64},
    {"torch", "CharStorage", ROLE_STORAGE, WEIGHTS_I8},
    {"torch", "ShortStorage", ROLE_STORAGE, WEIGHTS_I16},
    {"torch", "IntStorage", ROLE_STORAGE, WEIGHTS_I32},
    {"torch", "LongStorage", ROLE_STORAGE, WEIGHTS_I64},
    {"torch", "ByteStorage", ROLE_STORAGE, WEIGHTS_U8},
    {"torch", "BoolStorage", ROLE_STORAGE, WEIGHTS_BOOL},
};

enum error_code pickle_torch_push_global(struct pickle_machine *m, const uint8_t *module, size_t module_size,
                                         const uint8_t *name, size_t name_size)
{
    for (size_t i = 0; i < sizeof pickle_torch_globals / sizeof pickle_torch_globals[0]; i++)
        if (pickle_text_is(module, module_size, pickle_torch_globals[i].module) &&
            pickle_text_is(name, name_size, pickle_torch_globals[i].name))
            return pickle_machine_push(
                m, (struct pickle_value){.kind = PICKLE_GLOBAL, .global = &pickle_torch_globals[i]});
    struct catalogue_label a, b;
    return pickle_machine_fail(m, ERROR_UNSUPPORTED,
                               "the pickle asks for '%.70s.%.70s', which no checkpoint of tensors needs",
                               catalogue_label(&a, module, module_size), catalogue_label(&b, name, name_size));
}

static bool pickle_torch_is_items(const struct pickle_value *v, enum pickle_kind kind, size_t at_least)
{
    return v->kind == kind && v->items->count >= at_least;
}

static bool pickle_torch_is_size(const struct pickle_value *v)
{
    return v->kind == PICKLE_INT && v->integer >= 0;
}

/* ('storage', class, key, location, element count), in the legacy form with a sixth item: the window that torch before
 * 0.4 used for views. */
enum error_code pickle_torch_persistent_id(struct pickle_machine *m)
{
    struct pickle_value id;
    enum error_code code = pickle_machine_pop(m, &id);
    if (code != OK)
        return code;
    const struct pickle_value *v = id.kind == PICKLE_TUPLE ? id.items->values : NULL;
    if (!pickle_torch_is_items(&id, PICKLE_TUPLE, 5) || id.items->count > 6 || v[0].kind != PICKLE_TEXT ||
        !pickle_text_is(v[0].bytes, v[0].size, "storage") || v[1].kind != PICKLE_GLOBAL ||
        v[1].global->role != ROLE_STORAGE || v[2].kind != PICKLE_TEXT || !pickle_torch_is_size(&v[4]))
        return pickle_machine_fail(m, ERROR_CORRUPT, "a storage is not described as torch does it");
    if (id.items->count == 6 && v[5].kind != PICKLE_NONE)
        return pickle_machine_fail(m, ERROR_UNSUPPORTED, "a view of a storage as torch before 0.4 wrote it");
    if (m->storage_count == m->storage_capacity) {
        size_t capacity = 2 * m->storage_capacity + 64;
        struct pickle_storage **more = realloc(m->storages, capacity * sizeof *more);
        if (!more)
            return pickle_machine_fail(m, ERROR_NO_MEMORY, "out of memory");
        m->storages = more;
        m->storage_capacity = capacity;
    }
    void *p;
    code = pickle_machine_take_memory(m, 1, sizeof(struct pickle_storage), &p);
    if (code != OK)
        return code;
    struct pickle_storage *storage = p;
    *storage = (struct pickle_storage){.key = v[2], .dtype = v[1].global->dtype, .count = (uint64_t)v[4].integer};
    m->storages[m->storage_count++] = storage;
    return pickle_machine_push(m, (struct pickle_value){.kind = PICKLE_STORAGE, .storage = storage});
}

/* (storage, offset, shape, strides, ...); what follows concerns training. */
static enum error_code pickle_torch_rebuild_tensor(struct pickle_machine *m, const struct pickle_items *args,
                                                   struct pickle_value *out)
{
    const struct pickle_value *v = args->values;
    if (args->count < 4 || v[0].kind != PICKLE_STORAGE || !pickle_torch_is_size(&v[1]) || v[2].kind != PICKLE_TUPLE ||
        v[3].kind != PICKLE_TUPLE || v[2].items->count != v[3].items->count)
        return pickle_machine_fail(m, ERROR_CORRUPT, "a tensor is not described as torch does it");
    size_t rank = v[2].items->count;
    if (rank > WEIGHTS_MAX_RANK)
        return pickle_machine_fail(m, ERROR_UNSUPPORTED, "a tensor of %zu dimensions, at most %d are supported", rank,
                                   WEIGHTS_MAX_RANK);
    void *p;
    enum error_code code = pickle_machine_take_memory(m, 1, sizeof(struct pickle_tensor), &p);
    if (code != OK)
        return code;
    struct pickle_tensor *tensor = p;
    *tensor = (struct pickle_tensor){.storage = v[0].storage, .offset = (uint64_t)v[1].integer, .rank = (int)rank};
    for (size_t i = 0; i < rank; i++) {
        const struct pickle_value *extent = &v[2].items->values[i], *stride = &v[3].items->values[i];
        if (!pickle_torch_is_size(extent) || !pickle_torch_is_size(stride))
            return pickle_machine_fail(m, ERROR_CORRUPT,
                                       "a tensor's shape or strides hold something that is not a size");
        tensor->shape[i] = (uint64_t)extent->integer;
        tensor->stride[i] = (uint64_t)stride->integer;
    }
    *out = (struct pickle_value){.kind = PICKLE_TENSOR, .tensor = tensor};
    return OK;
}

/* OrderedDict(), or OrderedDict([[key, value], ...]) as Python 2 wrote it. */
static enum error_code pickle_torch_rebuild_dict(struct pickle_machine *m, const struct pickle_items *args,
                                                 struct pickle_value *out)
{
    enum error_code code = pickle_machine_new_items(m, PICKLE_DICT, NULL, 0, out);
    if (code != OK || args->count == 0)
        return code;
    const struct pickle_value *list = &args->values[0];
    if (args->count > 1 || list->kind != PICKLE_LIST)
        return pickle_machine_fail(m, ERROR_CORRUPT, "an OrderedDict of something that is not a list");
    code = pickle_machine_push(m, *out);
    for (size_t i = 0; i < list->items->count && code == OK; i++) {
        const struct pickle_value *pair = &list->items->values[i];
        if ((pair->kind != PICKLE_LIST && pair->kind != PICKLE_TUPLE) || pair->items->count != 2)
            return pickle_machine_fail(m, ERROR_CORRUPT, "an OrderedDict's item is not a pair");
        code = pickle_machine_append(m, PICKLE_DICT, pair->items->values, 2);
    }
    return code == OK ? pickle_machine_pop(m, out) : code;
}

enum error_code pickle_torch_reduce(struct pickle_machine *m)
{
    struct pickle_value args = {0}, callable = {0}, v = {0};
    enum error_code code = pickle_machine_pop(m, &args);
    if (code == OK)
        code = pickle_machine_pop(m, &callable);
    if (code != OK)
        return code;
    if (callable.kind != PICKLE_GLOBAL || args.kind != PICKLE_TUPLE || callable.global->role == ROLE_STORAGE)
        return pickle_machine_fail(m, ERROR_CORRUPT, "a call of something that cannot be called");
    switch (callable.global->role) {
    case ROLE_TENSOR:
        code = pickle_torch_rebuild_tensor(m, args.items, &v);
        break;
    case ROLE_PARAMETER:
        if (args.items->count < 1 || args.items->values[0].kind != PICKLE_TENSOR)
            return pickle_machine_fail(m, ERROR_CORRUPT, "a parameter without its tensor");
        v = args.items->values[0];
        break;
    case ROLE_DICT:
        code = pickle_torch_rebuild_dict(m, args.items, &v);
        break;
    case ROLE_STORAGE:
        break;
    }
    return code == OK ? pickle_machine_push(m, v) : code;
}

static int pickle_torch_compare_storages(const void *a, const void *b)
{
    return pickle_compare_text(&(*(struct pickle_storage *const *)a)->key, &(*(struct pickle_storage *const *)b)->key);
}

enum error_code pickle_torch_settle_storages(struct pickle_machine *m)
{
    if (m->storage_count > 0)
        qsort(m->storages, m->storage_count, sizeof(struct pickle_storage *), pickle_torch_compare_storages);
    for (size_t i = 1; i < m->storage_count; i++) {
        const struct pickle_storage *a = m->storages[i - 1], *b = m->storages[i];
        struct catalogue_label label;
        if (pickle_compare_text(&a->key, &b->key) == 0 && (a->dtype != b->dtype || a->count != b->count))
            return pickle_machine_fail(m, ERROR_CORRUPT, "storage '%s' is described in two ways that differ",
                                       catalogue_label(&label, a->key.bytes, a->key.size));
    }
    return OK;
}

enum error_code pickle_torch_add_tensors(const struct pickle *pickle, struct catalogue *catalogue, const char *entry,
                                         struct error *err)
{
    /* As BasicSR, and what spandrel found in people's files; else a single dictionary in the dictionary. */
    static const char *const wrappers[] = {"params_ema",       "params-ema",  "params", "state_dict",
                                           "model_state_dict", "model_state", "model",  "net"};
    const struct pickle_value *dict = &pickle->root;
    if (dict->kind != PICKLE_DICT)
        return catalogue_fail(err, ERROR_UNSUPPORTED, catalogue, entry, "the file holds no dictionary of tensors");
    for (size_t i = 0; i < sizeof wrappers / sizeof wrappers[0]; i++) {
        const struct pickle_value *inner = pickle_find(dict, wrappers[i]);
        if (inner && inner->kind == PICKLE_DICT) {
            dict = inner;
            break;
        }
    }
    if (dict->items->count == 2 && dict->items->values[1].kind == PICKLE_DICT)
        dict = &dict->items->values[1];
    enum error_code code = OK;
    for (size_t i = 0; i + 1 < dict->items->count && code == OK; i += 2) {
        const struct pickle_value *key = &dict->items->values[i], *value = key + 1;
        if (key->kind != PICKLE_TEXT || value->kind != PICKLE_TENSOR)
            continue;
        const struct pickle_tensor *tensor = value->tensor;
        code = catalogue_add(catalogue,
                             &(struct catalogue_view){.name = (const char *)key->bytes,
                                                      .name_size = key->size,
                                                      .dtype = tensor->storage->dtype,
                                                      .storage = tensor->storage->data,
                                                      .storage_count = tensor->storage->count,
                                                      .offset = tensor->offset,
                                                      .rank = tensor->rank,
                                                      .shape = tensor->shape,
                                                      .stride = tensor->stride},
                             err);
    }
    return code;
}
