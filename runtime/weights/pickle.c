#include "runtime/weights/pickle.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Far above any checkpoint of tensors (a large one has some 10^5 bytes of pickle), far below what hurts. */
#define PICKLE_MAX_SIZE ((size_t)64 << 20)    /* bytes of one pickle */
#define PICKLE_MAX_VALUES ((size_t)4 << 20)   /* on the stack, and in the memo */
#define PICKLE_MAX_MEMORY ((size_t)256 << 20) /* of containers, tensors and storages */
#define PICKLE_MAX_PROTOCOL 4

enum pickle_role { ROLE_STORAGE, ROLE_TENSOR, ROLE_PARAMETER, ROLE_DICT };

struct pickle_global {
    const char *module, *name;
    enum pickle_role role;
    enum weights_dtype dtype; /* of ROLE_STORAGE */
};

static const struct pickle_global globals[] = {
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

struct walker {
    const struct catalogue *catalogue;
    const char *entry;
    struct bytes *in;
    size_t start; /* of the pickle */
    struct arena *arena;
    struct pickle_items stack, memo;  /* values from malloc; a memo slot that is not set holds a MARK */
    struct pickle_storage **storages; /* from malloc */
    size_t storage_count, storage_capacity;
    struct error *err;
};

static enum error_code fail(struct walker *w, enum error_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static enum error_code fail(struct walker *w, enum error_code code, const char *format, ...)
{
    char reason[240];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    return catalogue_fail(w->err, code, w->catalogue, w->entry, "%s (at byte %zu of the pickle)", reason,
                          w->in->at - w->start);
}

static enum error_code fail_end(struct walker *w)
{
    return fail(w, ERROR_CORRUPT, "the pickle is cut off");
}

/* ---- memory ---- */
static enum error_code take_memory(struct walker *w, size_t count, size_t size, void **out)
{
    size_t bytes, used = arena_used(w->arena);
    if (used > PICKLE_MAX_MEMORY || !mem_mul(count, size, &bytes) || bytes > PICKLE_MAX_MEMORY - used)
        return fail(w, ERROR_TOO_LARGE, "the pickle needs more than %zu MiB", PICKLE_MAX_MEMORY >> 20);
    *out = arena_alloc(w->arena, count, size, w->err);
    return *out ? OK : ERROR_NO_MEMORY;
}

/* Room for count values in an array from malloc. */
static enum error_code reserve(struct walker *w, struct pickle_items *items, size_t count)
{
    if (count <= items->capacity)
        return OK;
    if (count > PICKLE_MAX_VALUES)
        return fail(w, ERROR_TOO_LARGE, "the pickle needs a stack or memo of more than %zu values", PICKLE_MAX_VALUES);
    size_t capacity = 2 * count + 64;
    struct pickle_value *values = realloc(items->values, capacity * sizeof *values);
    if (!values)
        return fail(w, ERROR_NO_MEMORY, "out of memory");
    items->values = values;
    items->capacity = capacity;
    return OK;
}

/* ---- the stack ---- */
static enum error_code push(struct walker *w, struct pickle_value value)
{
    enum error_code code = reserve(w, &w->stack, w->stack.count + 1);
    if (code == OK)
        w->stack.values[w->stack.count++] = value;
    return code;
}

static enum error_code pop(struct walker *w, struct pickle_value *out)
{
    if (w->stack.count == 0 || w->stack.values[w->stack.count - 1].kind == PICKLE_MARK)
        return fail(w, ERROR_CORRUPT, "an opcode lacks its operand");
    *out = w->stack.values[--w->stack.count];
    return OK;
}

/* The values above the topmost mark, which are taken off together with the mark; they stay readable until the next
 * push. Each value is passed over once, since it is gone after. */
static enum error_code pop_to_mark(struct walker *w, struct pickle_value **values, size_t *count)
{
    size_t top = w->stack.count, at = top;
    while (at > 0 && w->stack.values[at - 1].kind != PICKLE_MARK)
        at--;
    if (at == 0)
        return fail(w, ERROR_CORRUPT, "an opcode lacks its mark");
    *values = w->stack.values + at;
    *count = top - at;
    w->stack.count = at - 1;
    return OK;
}

static enum error_code new_items(struct walker *w, enum pickle_kind kind, const struct pickle_value *values,
                                 size_t count, struct pickle_value *out)
{
    void *items, *room = NULL;
    enum error_code code = take_memory(w, 1, sizeof(struct pickle_items), &items);
    if (code == OK && count > 0)
        code = take_memory(w, count, sizeof *values, &room);
    if (code != OK)
        return code;
    if (count > 0)
        memcpy(room, values, count * sizeof *values);
    *(struct pickle_items *)items = (struct pickle_items){.values = room, .count = count, .capacity = count};
    *out = (struct pickle_value){.kind = kind, .items = items};
    return OK;
}

/* Appends to the list or dictionary on the stack's top. */
static enum error_code append(struct walker *w, enum pickle_kind kind, const struct pickle_value *values, size_t count)
{
    if (w->stack.count == 0 || w->stack.values[w->stack.count - 1].kind != kind)
        return fail(w, ERROR_CORRUPT, "items are added to something that is no %s",
                    kind == PICKLE_DICT ? "dictionary" : "list");
    if (kind == PICKLE_DICT && count % 2 != 0)
        return fail(w, ERROR_CORRUPT, "a dictionary's last key has no value");
    struct pickle_items *items = w->stack.values[w->stack.count - 1].items;
    if (count > items->capacity - items->count) {
        void *room;
        size_t capacity = 2 * items->count + count + 4;
        enum error_code code = take_memory(w, capacity, sizeof *values, &room);
        if (code != OK)
            return code;
        if (items->count > 0)
            memcpy(room, items->values, items->count * sizeof *values);
        items->values = room;
        items->capacity = capacity;
    }
    if (count > 0)
        memcpy(items->values + items->count, values, count * sizeof *values);
    items->count += count;
    return OK;
}

/* ---- opcodes: each takes the number that its row of the table gives ---- */
static enum error_code op_proto(struct walker *w, int unused)
{
    (void)unused;
    uint8_t version;
    if (!bytes_u8(w->in, &version))
        return fail_end(w);
    return version <= PICKLE_MAX_PROTOCOL ? OK : fail(w, ERROR_UNSUPPORTED, "pickle protocol %d", version);
}

static enum error_code op_frame(struct walker *w, int unused)
{
    (void)unused;
    uint64_t length; /* a hint for buffering, of no use here */
    return bytes_u64(w->in, &length) ? OK : fail_end(w);
}

static enum error_code op_none(struct walker *w, int unused)
{
    (void)unused;
    return push(w, (struct pickle_value){.kind = PICKLE_NONE});
}

static enum error_code op_bool(struct walker *w, int value)
{
    return push(w, (struct pickle_value){.kind = PICKLE_BOOL, .integer = value});
}

static enum error_code op_int(struct walker *w, int size)
{
    uint64_t v;
    if (!bytes_number(w->in, size, &v))
        return fail_end(w);
    return push(w, (struct pickle_value){.kind = PICKLE_INT, .integer = size == 4 ? (int32_t)(uint32_t)v : (int64_t)v});
}

/* The next length bytes, length being a number of size bytes. */
static enum error_code take_counted(struct walker *w, int size, struct pickle_value *out)
{
    uint64_t length;
    if (!bytes_number(w->in, size, &length) || !bytes_take(w->in, length, &out->bytes))
        return fail_end(w);
    out->size = (uint32_t)length;
    return OK;
}

/* Two's complement, little-endian, any length. */
static enum error_code op_long(struct walker *w, int size)
{
    struct pickle_value v = {.kind = PICKLE_LONG};
    enum error_code code = take_counted(w, size, &v);
    if (code == OK && v.size <= 8) {
        uint64_t bits = v.size > 0 && v.bytes[v.size - 1] & 0x80 ? ~UINT64_C(0) : 0;
        for (uint32_t i = v.size; i-- > 0;)
            bits = bits << 8 | v.bytes[i];
        v = (struct pickle_value){.kind = PICKLE_INT, .integer = (int64_t)bits};
    }
    return code == OK ? push(w, v) : code;
}

static enum error_code op_float(struct walker *w, int unused)
{
    (void)unused;
    const uint8_t *p;
    if (!bytes_take(w->in, 8, &p))
        return fail_end(w);
    return push(w, (struct pickle_value){.kind = PICKLE_OTHER});
}

static enum error_code op_text(struct walker *w, int size)
{
    struct pickle_value v = {.kind = PICKLE_TEXT};
    enum error_code code = take_counted(w, size, &v);
    return code == OK ? push(w, v) : code;
}

static enum error_code op_bytes(struct walker *w, int size)
{
    struct pickle_value v = {.kind = PICKLE_OTHER};
    enum error_code code = take_counted(w, size, &v);
    return code == OK ? push(w, v) : code;
}

static enum error_code op_mark(struct walker *w, int unused)
{
    (void)unused;
    return push(w, (struct pickle_value){.kind = PICKLE_MARK});
}

static enum error_code op_pop(struct walker *w, int unused)
{
    (void)unused;
    struct pickle_value v;
    return pop(w, &v);
}

static enum error_code op_pop_mark(struct walker *w, int unused)
{
    (void)unused;
    struct pickle_value *values;
    size_t count;
    return pop_to_mark(w, &values, &count);
}

static enum error_code op_dup(struct walker *w, int unused)
{
    (void)unused;
    struct pickle_value v;
    enum error_code code = pop(w, &v);
    if (code == OK)
        code = push(w, v);
    return code == OK ? push(w, v) : code;
}

/* A new container: empty, or of what lies above the mark. */
static enum error_code op_empty(struct walker *w, int kind)
{
    struct pickle_value v;
    enum error_code code = new_items(w, (enum pickle_kind)kind, NULL, 0, &v);
    return code == OK ? push(w, v) : code;
}

static enum error_code op_marked(struct walker *w, int kind)
{
    struct pickle_value *values, v;
    size_t count;
    enum error_code code = pop_to_mark(w, &values, &count);
    if (code == OK && kind == PICKLE_DICT && count % 2 != 0)
        return fail(w, ERROR_CORRUPT, "a dictionary's last key has no value");
    if (code == OK)
        code = new_items(w, (enum pickle_kind)kind, values, count, &v);
    return code == OK ? push(w, v) : code;
}

static enum error_code op_tuple(struct walker *w, int count)
{
    struct pickle_value values[3], v;
    enum error_code code = OK;
    for (int i = count - 1; i >= 0 && code == OK; i--)
        code = pop(w, &values[i]);
    if (code == OK)
        code = new_items(w, PICKLE_TUPLE, values, (size_t)count, &v);
    return code == OK ? push(w, v) : code;
}

static enum error_code op_append(struct walker *w, int kind)
{
    struct pickle_value values[2];
    int count = kind == PICKLE_DICT ? 2 : 1;
    enum error_code code = OK;
    for (int i = count - 1; i >= 0 && code == OK; i--)
        code = pop(w, &values[i]);
    return code == OK ? append(w, (enum pickle_kind)kind, values, (size_t)count) : code;
}

static enum error_code op_append_marked(struct walker *w, int kind)
{
    struct pickle_value *values;
    size_t count;
    enum error_code code = pop_to_mark(w, &values, &count);
    return code == OK ? append(w, (enum pickle_kind)kind, values, count) : code;
}

static bool text_is(const uint8_t *text, size_t size, const char *name)
{
    return size == strlen(name) && memcmp(text, name, size) == 0;
}

static enum error_code push_global(struct walker *w, const uint8_t *module, size_t module_size, const uint8_t *name,
                                   size_t name_size)
{
    for (size_t i = 0; i < sizeof globals / sizeof globals[0]; i++)
        if (text_is(module, module_size, globals[i].module) && text_is(name, name_size, globals[i].name))
            return push(w, (struct pickle_value){.kind = PICKLE_GLOBAL, .global = &globals[i]});
    struct catalogue_label a, b;
    return fail(w, ERROR_UNSUPPORTED, "the pickle asks for '%.70s.%.70s', which no checkpoint of tensors needs",
                catalogue_label(&a, module, module_size), catalogue_label(&b, name, name_size));
}

static bool take_line(struct bytes *in, const uint8_t **text, size_t *size)
{
    const uint8_t *start = in->data + in->at, *end = memchr(start, '\n', in->size - in->at);
    if (!end)
        return false;
    *text = start;
    *size = (size_t)(end - start);
    in->at += *size + 1;
    return true;
}

static enum error_code op_global(struct walker *w, int unused)
{
    (void)unused;
    const uint8_t *module, *name;
    size_t module_size, name_size;
    if (!take_line(w->in, &module, &module_size) || !take_line(w->in, &name, &name_size))
        return fail_end(w);
    return push_global(w, module, module_size, name, name_size);
}

static enum error_code op_stack_global(struct walker *w, int unused)
{
    (void)unused;
    struct pickle_value module = {0}, name = {0};
    enum error_code code = pop(w, &name);
    if (code == OK)
        code = pop(w, &module);
    if (code != OK)
        return code;
    if (module.kind != PICKLE_TEXT || name.kind != PICKLE_TEXT)
        return fail(w, ERROR_CORRUPT, "a global's name is no text");
    return push_global(w, module.bytes, module.size, name.bytes, name.size);
}

static enum error_code op_get(struct walker *w, int size)
{
    uint64_t index;
    if (!bytes_number(w->in, size, &index))
        return fail_end(w);
    if (index >= w->memo.count || w->memo.values[index].kind == PICKLE_MARK)
        return fail(w, ERROR_CORRUPT, "the memo has no entry %llu", (unsigned long long)index);
    return push(w, w->memo.values[index]);
}

static enum error_code memo_put(struct walker *w, uint64_t index)
{
    struct pickle_value v;
    enum error_code code = pop(w, &v);
    /* Every pickler numbers its memo from 0, and each entry costs it at least two bytes. */
    if (code == OK && index > w->in->at - w->start)
        return fail(w, ERROR_CORRUPT, "memo entry %llu is out of order", (unsigned long long)index);
    if (code == OK)
        code = reserve(w, &w->memo, (size_t)index + 1);
    if (code != OK)
        return code;
    while (w->memo.count <= index)
        w->memo.values[w->memo.count++].kind = PICKLE_MARK;
    w->memo.values[index] = v;
    return push(w, v);
}

static enum error_code op_put(struct walker *w, int size)
{
    uint64_t index;
    return bytes_number(w->in, size, &index) ? memo_put(w, index) : fail_end(w);
}

static enum error_code op_memoize(struct walker *w, int unused)
{
    (void)unused;
    return memo_put(w, w->memo.count);
}

/* ---- what torch means by them ---- */
static bool is_items(const struct pickle_value *v, enum pickle_kind kind, size_t at_least)
{
    return v->kind == kind && v->items->count >= at_least;
}

static bool is_size(const struct pickle_value *v)
{
    return v->kind == PICKLE_INT && v->integer >= 0;
}

/* ('storage', class, key, location, element count), in the legacy form with a sixth item: the window that torch before
 * 0.4 used for views. */
static enum error_code op_persistent_id(struct walker *w, int unused)
{
    (void)unused;
    struct pickle_value id;
    enum error_code code = pop(w, &id);
    if (code != OK)
        return code;
    const struct pickle_value *v = id.kind == PICKLE_TUPLE ? id.items->values : NULL;
    if (!is_items(&id, PICKLE_TUPLE, 5) || id.items->count > 6 || v[0].kind != PICKLE_TEXT ||
        !text_is(v[0].bytes, v[0].size, "storage") || v[1].kind != PICKLE_GLOBAL || v[1].global->role != ROLE_STORAGE ||
        v[2].kind != PICKLE_TEXT || !is_size(&v[4]))
        return fail(w, ERROR_CORRUPT, "a storage is not described as torch does it");
    if (id.items->count == 6 && v[5].kind != PICKLE_NONE)
        return fail(w, ERROR_UNSUPPORTED, "a view of a storage as torch before 0.4 wrote it");
    if (w->storage_count == w->storage_capacity) {
        size_t capacity = 2 * w->storage_capacity + 64;
        struct pickle_storage **more = realloc(w->storages, capacity * sizeof *more);
        if (!more)
            return fail(w, ERROR_NO_MEMORY, "out of memory");
        w->storages = more;
        w->storage_capacity = capacity;
    }
    void *p;
    code = take_memory(w, 1, sizeof(struct pickle_storage), &p);
    if (code != OK)
        return code;
    struct pickle_storage *storage = p;
    *storage = (struct pickle_storage){.key = v[2], .dtype = v[1].global->dtype, .count = (uint64_t)v[4].integer};
    w->storages[w->storage_count++] = storage;
    return push(w, (struct pickle_value){.kind = PICKLE_STORAGE, .storage = storage});
}

/* (storage, offset, shape, strides, ...); what follows concerns training. */
static enum error_code rebuild_tensor(struct walker *w, const struct pickle_items *args, struct pickle_value *out)
{
    const struct pickle_value *v = args->values;
    if (args->count < 4 || v[0].kind != PICKLE_STORAGE || !is_size(&v[1]) || v[2].kind != PICKLE_TUPLE ||
        v[3].kind != PICKLE_TUPLE || v[2].items->count != v[3].items->count)
        return fail(w, ERROR_CORRUPT, "a tensor is not described as torch does it");
    size_t rank = v[2].items->count;
    if (rank > WEIGHTS_MAX_RANK)
        return fail(w, ERROR_UNSUPPORTED, "a tensor of %zu dimensions, at most %d are supported", rank,
                    WEIGHTS_MAX_RANK);
    void *p;
    enum error_code code = take_memory(w, 1, sizeof(struct pickle_tensor), &p);
    if (code != OK)
        return code;
    struct pickle_tensor *tensor = p;
    *tensor = (struct pickle_tensor){.storage = v[0].storage, .offset = (uint64_t)v[1].integer, .rank = (int)rank};
    for (size_t i = 0; i < rank; i++) {
        const struct pickle_value *extent = &v[2].items->values[i], *stride = &v[3].items->values[i];
        if (!is_size(extent) || !is_size(stride))
            return fail(w, ERROR_CORRUPT, "a tensor's shape or strides hold something that is no size");
        tensor->shape[i] = (uint64_t)extent->integer;
        tensor->stride[i] = (uint64_t)stride->integer;
    }
    *out = (struct pickle_value){.kind = PICKLE_TENSOR, .tensor = tensor};
    return OK;
}

/* OrderedDict(), or OrderedDict([[key, value], ...]) as Python 2 wrote it. */
static enum error_code rebuild_dict(struct walker *w, const struct pickle_items *args, struct pickle_value *out)
{
    enum error_code code = new_items(w, PICKLE_DICT, NULL, 0, out);
    if (code != OK || args->count == 0)
        return code;
    const struct pickle_value *list = &args->values[0];
    if (args->count > 1 || list->kind != PICKLE_LIST)
        return fail(w, ERROR_CORRUPT, "an OrderedDict of something that is no list");
    code = push(w, *out);
    for (size_t i = 0; i < list->items->count && code == OK; i++) {
        const struct pickle_value *pair = &list->items->values[i];
        if ((pair->kind != PICKLE_LIST && pair->kind != PICKLE_TUPLE) || pair->items->count != 2)
            return fail(w, ERROR_CORRUPT, "an OrderedDict's item is no pair");
        code = append(w, PICKLE_DICT, pair->items->values, 2);
    }
    return code == OK ? pop(w, out) : code;
}

static enum error_code op_reduce(struct walker *w, int unused)
{
    (void)unused;
    struct pickle_value args = {0}, callable = {0}, v = {0};
    enum error_code code = pop(w, &args);
    if (code == OK)
        code = pop(w, &callable);
    if (code != OK)
        return code;
    if (callable.kind != PICKLE_GLOBAL || args.kind != PICKLE_TUPLE || callable.global->role == ROLE_STORAGE)
        return fail(w, ERROR_CORRUPT, "a call of something that cannot be called");
    switch (callable.global->role) {
    case ROLE_TENSOR:
        code = rebuild_tensor(w, args.items, &v);
        break;
    case ROLE_PARAMETER:
        if (args.items->count < 1 || args.items->values[0].kind != PICKLE_TENSOR)
            return fail(w, ERROR_CORRUPT, "a parameter without its tensor");
        v = args.items->values[0];
        break;
    case ROLE_DICT:
        code = rebuild_dict(w, args.items, &v);
        break;
    case ROLE_STORAGE:
        break;
    }
    return code == OK ? push(w, v) : code;
}

/* A state dict carries its _metadata as an attribute, which says nothing about tensors. */
static enum error_code op_build(struct walker *w, int unused)
{
    (void)unused;
    struct pickle_value state;
    enum error_code code = pop(w, &state);
    if (code != OK)
        return code;
    if (w->stack.count == 0 || w->stack.values[w->stack.count - 1].kind != PICKLE_DICT)
        return fail(w, ERROR_CORRUPT, "attributes are set on something that is no dictionary");
    return OK;
}

static const struct opcode {
    enum error_code (*run)(struct walker *w, int number);
    int number;
} opcodes[256] = {
    [0x80] = {op_proto, 0},
    [0x95] = {op_frame, 0},
    ['N'] = {op_none, 0},
    [0x88] = {op_bool, 1},
    [0x89] = {op_bool, 0},
    ['K'] = {op_int, 1},
    ['M'] = {op_int, 2},
    ['J'] = {op_int, 4},
    [0x8a] = {op_long, 1},
    [0x8b] = {op_long, 4},
    ['G'] = {op_float, 0},
    ['X'] = {op_text, 4},
    [0x8c] = {op_text, 1},
    ['U'] = {op_text, 1},
    ['T'] = {op_text, 4},
    ['C'] = {op_bytes, 1},
    ['B'] = {op_bytes, 4},
    ['('] = {op_mark, 0},
    ['0'] = {op_pop, 0},
    ['1'] = {op_pop_mark, 0},
    ['2'] = {op_dup, 0},
    [')'] = {op_empty, PICKLE_TUPLE},
    [']'] = {op_empty, PICKLE_LIST},
    ['}'] = {op_empty, PICKLE_DICT},
    ['t'] = {op_marked, PICKLE_TUPLE},
    ['l'] = {op_marked, PICKLE_LIST},
    ['d'] = {op_marked, PICKLE_DICT},
    [0x85] = {op_tuple, 1},
    [0x86] = {op_tuple, 2},
    [0x87] = {op_tuple, 3},
    ['a'] = {op_append, PICKLE_LIST},
    ['s'] = {op_append, PICKLE_DICT},
    ['e'] = {op_append_marked, PICKLE_LIST},
    ['u'] = {op_append_marked, PICKLE_DICT},
    ['c'] = {op_global, 0},
    [0x93] = {op_stack_global, 0},
    ['h'] = {op_get, 1},
    ['j'] = {op_get, 4},
    ['q'] = {op_put, 1},
    ['r'] = {op_put, 4},
    [0x94] = {op_memoize, 0},
    ['Q'] = {op_persistent_id, 0},
    ['R'] = {op_reduce, 0},
    ['b'] = {op_build, 0},
};

static enum error_code walk(struct walker *w, struct pickle_value *root)
{
    for (;;) {
        uint8_t op;
        if (!bytes_u8(w->in, &op))
            return fail_end(w);
        if (op == '.')
            break;
        if (!opcodes[op].run)
            return fail(w, ERROR_UNSUPPORTED, "opcode 0x%02x is none that torch.save writes", op);
        enum error_code code = opcodes[op].run(w, opcodes[op].number);
        if (code != OK)
            return code;
        if (w->in->at - w->start > PICKLE_MAX_SIZE)
            return fail(w, ERROR_TOO_LARGE, "the pickle is longer than %zu MiB", PICKLE_MAX_SIZE >> 20);
    }
    if (w->stack.count != 1)
        return fail(w, ERROR_CORRUPT, "the pickle ends with %zu values instead of one", w->stack.count);
    return pop(w, root);
}

/* ---- after the walk ---- */
int pickle_compare_text(const struct pickle_value *a, const struct pickle_value *b)
{
    size_t n = a->size < b->size ? a->size : b->size;
    int order = n > 0 ? memcmp(a->bytes, b->bytes, n) : 0;
    return order != 0 ? order : (a->size > b->size) - (a->size < b->size);
}

static int compare_storages(const void *a, const void *b)
{
    return pickle_compare_text(&(*(struct pickle_storage *const *)a)->key, &(*(struct pickle_storage *const *)b)->key);
}

static enum error_code settle_storages(struct walker *w)
{
    if (w->storage_count > 0)
        qsort(w->storages, w->storage_count, sizeof(struct pickle_storage *), compare_storages);
    for (size_t i = 1; i < w->storage_count; i++) {
        const struct pickle_storage *a = w->storages[i - 1], *b = w->storages[i];
        struct catalogue_label label;
        if (pickle_compare_text(&a->key, &b->key) == 0 && (a->dtype != b->dtype || a->count != b->count))
            return fail(w, ERROR_CORRUPT, "storage '%s' is described in two ways that differ",
                        catalogue_label(&label, a->key.bytes, a->key.size));
    }
    return OK;
}

enum error_code pickle_walk(struct pickle *out, const struct catalogue *catalogue, const char *entry, struct bytes *in,
                            struct error *err)
{
    *out = (struct pickle){0};
    struct walker w = {.catalogue = catalogue, .entry = entry, .in = in, .start = in->at, .err = err};
    enum error_code code = arena_create(&w.arena, err);
    if (code == OK)
        code = walk(&w, &out->root);
    if (code == OK)
        code = settle_storages(&w);
    free(w.stack.values);
    free(w.memo.values);
    out->arena = w.arena;
    out->storages = w.storages;
    out->storage_count = w.storage_count;
    if (code != OK)
        pickle_release(out);
    return code;
}

void pickle_release(struct pickle *pickle)
{
    arena_destroy(&pickle->arena);
    free(pickle->storages);
    *pickle = (struct pickle){0};
}

const struct pickle_value *pickle_find(const struct pickle_value *dict, const char *key)
{
    if (dict->kind != PICKLE_DICT)
        return NULL;
    for (size_t i = dict->items->count; i >= 2; i -= 2) {
        const struct pickle_value *v = &dict->items->values[i - 2];
        if (v[0].kind == PICKLE_TEXT && text_is(v[0].bytes, v[0].size, key))
            return &v[1];
    }
    return NULL;
}

enum error_code pickle_add_tensors(const struct pickle *pickle, struct catalogue *catalogue, const char *entry,
                                   struct error *err)
{
    static const char *const wrappers[] = {"params_ema", "params", "state_dict"};
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
