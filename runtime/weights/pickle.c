#include "runtime/weights/pickle.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/weights/pickle_machine.h"
#include "runtime/weights/pickle_torch.h"

#define PICKLE_MAX_SIZE ((size_t)8 << 20) /* bytes; a large checkpoint of tensors has some 10^5 */
#define PICKLE_MAX_PROTOCOL 4

/* ---- opcodes: each takes the number that its row of the table gives ---- */
static enum error_code pickle_op_proto(struct pickle_machine *m, int unused)
{
    (void)unused;
    uint8_t version;
    if (!bytes_u8(m->in, &version))
        return pickle_machine_fail_end(m);
    return version <= PICKLE_MAX_PROTOCOL ? OK
                                          : pickle_machine_fail(m, ERROR_UNSUPPORTED, "pickle protocol %d", version);
}

static enum error_code pickle_op_frame(struct pickle_machine *m, int unused)
{
    (void)unused;
    uint64_t length; /* a hint for buffering, of no use here */
    return bytes_u64(m->in, &length) ? OK : pickle_machine_fail_end(m);
}

static enum error_code pickle_op_none(struct pickle_machine *m, int unused)
{
    (void)unused;
    return pickle_machine_push(m, (struct pickle_value){.kind = PICKLE_NONE});
}

static enum error_code pickle_op_bool(struct pickle_machine *m, int value)
{
    return pickle_machine_push(m, (struct pickle_value){.kind = PICKLE_BOOL, .integer = value});
}

static enum error_code pickle_op_int(struct pickle_machine *m, int size)
{
    uint64_t v;
    if (!bytes_number(m->in, size, &v))
        return pickle_machine_fail_end(m);
    return pickle_machine_push(
        m, (struct pickle_value){.kind = PICKLE_INT, .integer = size == 4 ? (int32_t)(uint32_t)v : (int64_t)v});
}

/* The next length bytes, length being a number of size bytes. */
static enum error_code pickle_take_counted(struct pickle_machine *m, int size, struct pickle_value *out)
{
    uint64_t length;
    if (!bytes_number(m->in, size, &length) || !bytes_take(m->in, length, &out->bytes))
        return pickle_machine_fail_end(m);
    out->size = (uint32_t)length;
    return OK;
}

/* Two's complement, little-endian, any length. */
static enum error_code pickle_op_long(struct pickle_machine *m, int size)
{
    struct pickle_value v = {.kind = PICKLE_LONG};
    enum error_code code = pickle_take_counted(m, size, &v);
    if (code == OK && v.size <= 8) {
        uint64_t bits = v.size > 0 && v.bytes[v.size - 1] & 0x80 ? ~UINT64_C(0) : 0;
        for (uint32_t i = v.size; i-- > 0;)
            bits = bits << 8 | v.bytes[i];
        v = (struct pickle_value){.kind = PICKLE_INT, .integer = (int64_t)bits};
    }
    return code == OK ? pickle_machine_push(m, v) : code;
}

static enum error_code pickle_op_float(struct pickle_machine *m, int unused)
{
    (void)unused;
    const uint8_t *p;
    if (!bytes_take(m->in, 8, &p))
        return pickle_machine_fail_end(m);
    return pickle_machine_push(m, (struct pickle_value){.kind = PICKLE_OTHER});
}

static enum error_code pickle_op_text(struct pickle_machine *m, int size)
{
    struct pickle_value v = {.kind = PICKLE_TEXT};
    enum error_code code = pickle_take_counted(m, size, &v);
    return code == OK ? pickle_machine_push(m, v) : code;
}

static enum error_code pickle_op_bytes(struct pickle_machine *m, int size)
{
    struct pickle_value v = {.kind = PICKLE_OTHER};
    enum error_code code = pickle_take_counted(m, size, &v);
    return code == OK ? pickle_machine_push(m, v) : code;
}

static enum error_code pickle_op_mark(struct pickle_machine *m, int unused)
{
    (void)unused;
    return pickle_machine_push(m, (struct pickle_value){.kind = PICKLE_MARK});
}

static enum error_code pickle_op_pop(struct pickle_machine *m, int unused)
{
    (void)unused;
    struct pickle_value v;
    return pickle_machine_pop(m, &v);
}

static enum error_code pickle_op_pop_mark(struct pickle_machine *m, int unused)
{
    (void)unused;
    struct pickle_value *values;
    size_t count;
    return pickle_machine_pop_to_mark(m, &values, &count);
}

static enum error_code pickle_op_dup(struct pickle_machine *m, int unused)
{
    (void)unused;
    struct pickle_value v;
    enum error_code code = pickle_machine_pop(m, &v);
    if (code == OK)
        code = pickle_machine_push(m, v);
    return code == OK ? pickle_machine_push(m, v) : code;
}

/* A new container: empty, or of what lies above the mark. */
static enum error_code pickle_op_empty(struct pickle_machine *m, int kind)
{
    struct pickle_value v;
    enum error_code code = pickle_machine_new_items(m, (enum pickle_kind)kind, NULL, 0, &v);
    return code == OK ? pickle_machine_push(m, v) : code;
}

static enum error_code pickle_op_marked(struct pickle_machine *m, int kind)
{
    struct pickle_value *values, v;
    size_t count;
    enum error_code code = pickle_machine_pop_to_mark(m, &values, &count);
    if (code == OK && kind == PICKLE_DICT && count % 2 != 0)
        return pickle_machine_fail(m, ERROR_CORRUPT, "a dictionary's last key has no value");
    if (code == OK)
        code = pickle_machine_new_items(m, (enum pickle_kind)kind, values, count, &v);
    return code == OK ? pickle_machine_push(m, v) : code;
}

static enum error_code pickle_op_tuple(struct pickle_machine *m, int count)
{
    struct pickle_value values[3], v;
    enum error_code code = OK;
    for (int i = count - 1; i >= 0 && code == OK; i--)
        code = pickle_machine_pop(m, &values[i]);
    if (code == OK)
        code = pickle_machine_new_items(m, PICKLE_TUPLE, values, (size_t)count, &v);
    return code == OK ? pickle_machine_push(m, v) : code;
}

static enum error_code pickle_op_append(struct pickle_machine *m, int kind)
{
    struct pickle_value values[2];
    int count = kind == PICKLE_DICT ? 2 : 1;
    enum error_code code = OK;
    for (int i = count - 1; i >= 0 && code == OK; i--)
        code = pickle_machine_pop(m, &values[i]);
    return code == OK ? pickle_machine_append(m, (enum pickle_kind)kind, values, (size_t)count) : code;
}

static enum error_code pickle_op_append_marked(struct pickle_machine *m, int kind)
{
    struct pickle_value *values;
    size_t count;
    enum error_code code = pickle_machine_pop_to_mark(m, &values, &count);
    return code == OK ? pickle_machine_append(m, (enum pickle_kind)kind, values, count) : code;
}

static bool pickle_take_line(struct bytes *in, const uint8_t **text, size_t *size)
{
    const uint8_t *start = in->data + in->at, *end = memchr(start, '\n', in->size - in->at);
    if (!end)
        return false;
    *text = start;
    *size = (size_t)(end - start);
    in->at += *size + 1;
    return true;
}

static enum error_code pickle_op_global(struct pickle_machine *m, int unused)
{
    (void)unused;
    const uint8_t *module, *name;
    size_t module_size, name_size;
    if (!pickle_take_line(m->in, &module, &module_size) || !pickle_take_line(m->in, &name, &name_size))
        return pickle_machine_fail_end(m);
    return pickle_torch_push_global(m, module, module_size, name, name_size);
}

static enum error_code pickle_op_stack_global(struct pickle_machine *m, int unused)
{
    (void)unused;
    struct pickle_value module = {0}, name = {0};
    enum error_code code = pickle_machine_pop(m, &name);
    if (code == OK)
        code = pickle_machine_pop(m, &module);
    if (code != OK)
        return code;
    if (module.kind != PICKLE_TEXT || name.kind != PICKLE_TEXT)
        return pickle_machine_fail(m, ERROR_CORRUPT, "a global's name is not text");
    return pickle_torch_push_global(m, module.bytes, module.size, name.bytes, name.size);
}

static enum error_code pickle_op_get(struct pickle_machine *m, int size)
{
    uint64_t index;
    return bytes_number(m->in, size, &index) ? pickle_machine_memo_get(m, index) : pickle_machine_fail_end(m);
}

static enum error_code pickle_op_put(struct pickle_machine *m, int size)
{
    uint64_t index;
    return bytes_number(m->in, size, &index) ? pickle_machine_memo_put(m, index) : pickle_machine_fail_end(m);
}

static enum error_code pickle_op_memoize(struct pickle_machine *m, int unused)
{
    (void)unused;
    return pickle_machine_memo_put(m, m->memo.count);
}

static enum error_code pickle_op_persistent_id(struct pickle_machine *m, int unused)
{
    (void)unused;
    return pickle_torch_persistent_id(m);
}

static enum error_code pickle_op_reduce(struct pickle_machine *m, int unused)
{
    (void)unused;
    return pickle_torch_reduce(m);
}

/* A state dict carries its _metadata as an attribute, which says nothing about tensors. */
static enum error_code pickle_op_build(struct pickle_machine *m, int unused)
{
    (void)unused;
    struct pickle_value state;
    enum error_code code = pickle_machine_pop(m, &state);
    if (code != OK)
        return code;
    if (m->stack.count == 0 || m->stack.values[m->stack.count - 1].kind != PICKLE_DICT)
        return pickle_machine_fail(m, ERROR_CORRUPT, "attributes are set on something that is not a dictionary");
    return OK;
}

static const struct opcode {
    enum error_code (*run)(struct pickle_machine *m, int number);
    int number;
} opcodes[256] = {
    [0x80] = {pickle_op_proto, 0},
    [0x95] = {pickle_op_frame, 0},
    ['N'] = {pickle_op_none, 0},
    [0x88] = {pickle_op_bool, 1},
    [0x89] = {pickle_op_bool, 0},
    ['K'] = {pickle_op_int, 1},
    ['M'] = {pickle_op_int, 2},
    ['J'] = {pickle_op_int, 4},
    [0x8a] = {pickle_op_long, 1},
    [0x8b] = {pickle_op_long, 4},
    ['G'] = {pickle_op_float, 0},
    ['X'] = {pickle_op_text, 4},
    [0x8c] = {pickle_op_text, 1},
    ['U'] = {pickle_op_text, 1},
    ['T'] = {pickle_op_text, 4},
    ['C'] = {pickle_op_bytes, 1},
    ['B'] = {pickle_op_bytes, 4},
    ['('] = {pickle_op_mark, 0},
    ['0'] = {pickle_op_pop, 0},
    ['1'] = {pickle_op_pop_mark, 0},
    ['2'] = {pickle_op_dup, 0},
    [')'] = {pickle_op_empty, PICKLE_TUPLE},
    [']'] = {pickle_op_empty, PICKLE_LIST},
    ['}'] = {pickle_op_empty, PICKLE_DICT},
    ['t'] = {pickle_op_marked, PICKLE_TUPLE},
    ['l'] = {pickle_op_marked, PICKLE_LIST},
    ['d'] = {pickle_op_marked, PICKLE_DICT},
    [0x85] = {pickle_op_tuple, 1},
    [0x86] = {pickle_op_tuple, 2},
    [0x87] = {pickle_op_tuple, 3},
    ['a'] = {pickle_op_append, PICKLE_LIST},
    ['s'] = {pickle_op_append, PICKLE_DICT},
    ['e'] = {pickle_op_append_marked, PICKLE_LIST},
    ['u'] = {pickle_op_append_marked, PICKLE_DICT},
    ['c'] = {pickle_op_global, 0},
    [0x93] = {pickle_op_stack_global, 0},
    ['h'] = {pickle_op_get, 1},
    ['j'] = {pickle_op_get, 4},
    ['q'] = {pickle_op_put, 1},
    ['r'] = {pickle_op_put, 4},
    [0x94] = {pickle_op_memoize, 0},
    ['Q'] = {pickle_op_persistent_id, 0},
    ['R'] = {pickle_op_reduce, 0},
    ['b'] = {pickle_op_build, 0},
};

static enum error_code pickle_walk_opcodes(struct pickle_machine *m, struct pickle_value *root)
{
    for (;;) {
        uint8_t op;
        if (!bytes_u8(m->in, &op))
            return pickle_machine_fail_end(m);
        if (op == '.')
            break;
        if (!opcodes[op].run)
            return pickle_machine_fail(m, ERROR_UNSUPPORTED, "opcode 0x%02x is none that torch.save writes", op);
        enum error_code code = opcodes[op].run(m, opcodes[op].number);
        if (code != OK)
            return code;
        if (m->in->at - m->start > PICKLE_MAX_SIZE)
            return pickle_machine_fail(m, ERROR_TOO_LARGE, "the pickle is longer than %zu MiB", PICKLE_MAX_SIZE >> 20);
    }
    if (m->stack.count != 1)
        return pickle_machine_fail(m, ERROR_CORRUPT, "the pickle ends with %zu values instead of one", m->stack.count);
    return pickle_machine_pop(m, root);
}

enum error_code pickle_walk(struct pickle *out, const struct catalogue *catalogue, const char *entry, struct bytes *in,
                            struct error *err)
{
    *out = (struct pickle){0};
    struct pickle_machine m = {.catalogue = catalogue, .entry = entry, .in = in, .start = in->at, .err = err};
    enum error_code code = arena_create(&m.arena, err);
    if (code == OK)
        code = pickle_walk_opcodes(&m, &out->root);
    if (code == OK)
        code = pickle_torch_settle_storages(&m);
    free(m.stack.values);
    free(m.memo.values);
    out->arena = m.arena;
    out->storages = m.storages;
    out->storage_count = m.storage_count;
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

/* ---- values ---- */
bool pickle_text_is(const uint8_t *text, size_t size, const char *name)
{
    return size == strlen(name) && memcmp(text, name, size) == 0;
}

int pickle_compare_text(const struct pickle_value *a, const struct pickle_value *b)
{
    size_t n = a->size < b->size ? a->size : b->size;
    int order = n > 0 ? memcmp(a->bytes, b->bytes, n) : 0;
    return order != 0 ? order : (a->size > b->size) - (a->size < b->size);
}

const struct pickle_value *pickle_find(const struct pickle_value *dict, const char *key)
{
    if (dict->kind != PICKLE_DICT)
        return NULL;
    for (size_t i = dict->items->count; i >= 2; i -= 2) {
        const struct pickle_value *v = &dict->items->values[i - 2];
        if (v[0].kind == PICKLE_TEXT && pickle_text_is(v[0].bytes, v[0].size, key))
            return &v[1];
    }
    return NULL;
}
