#include "runtime/weights/pickle_machine.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PICKLE_MAX_VALUES ((size_t)1 << 19)  /* on the stack, and in the memo */
#define PICKLE_MAX_MEMORY ((size_t)64 << 20) /* of containers, tensors and storages */

enum error_code pickle_machine_fail(struct pickle_machine *m, enum error_code code, const char *format, ...)
{
    char reason[240];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    return catalogue_fail(m->err, code, m->catalogue, m->entry, "%s (at byte %zu of the pickle)", reason,
                          m->in->at - m->start);
}

enum error_code pickle_machine_fail_end(struct pickle_machine *m)
{
    return pickle_machine_fail(m, ERROR_CORRUPT, "the pickle is cut off");
}

/* ---- memory ---- */
enum error_code pickle_machine_take_memory(struct pickle_machine *m, size_t count, size_t size, void **out)
{
    size_t bytes, used = arena_used(m->arena);
    if (used > PICKLE_MAX_MEMORY || !mem_mul(count, size, &bytes) || bytes > PICKLE_MAX_MEMORY - used)
        return pickle_machine_fail(m, ERROR_TOO_LARGE, "the pickle needs more than %zu MiB", PICKLE_MAX_MEMORY >> 20);
    *out = arena_alloc(m->arena, count, size, m->err);
    return *out ? OK : ERROR_NO_MEMORY;
}

/* Room for count values in an array from malloc. */
static enum error_code pickle_machine_reserve(struct pickle_machine *m, struct pickle_items *items, size_t count)
{
    if (count <= items->capacity)
        return OK;
    if (count > PICKLE_MAX_VALUES)
        return pickle_machine_fail(m, ERROR_TOO_LARGE, "the pickle needs a stack or memo of more than %zu values",
                                   PICKLE_MAX_VALUES);
    size_t capacity = 2 * count + 64;
    struct pickle_value *values = realloc(items->values, capacity * sizeof *values);
    if (!values)
        return pickle_machine_fail(m, ERROR_NO_MEMORY, "out of memory");
    items->values = values;
    items->capacity = capacity;
    return OK;
}

/* ---- the stack ---- */
enum error_code pickle_machine_push(struct pickle_machine *m, struct pickle_value value)
{
    enum error_code code = pickle_machine_reserve(m, &m->stack, m->stack.count + 1);
    if (code == OK)
        m->stack.values[m->stack.count++] = value;
    return code;
}

enum error_code pickle_machine_pop(struct pickle_machine *m, struct pickle_value *out)
{
    if (m->stack.count == 0 || m->stack.values[m->stack.count - 1].kind == PICKLE_MARK)
        return pickle_machine_fail(m, ERROR_CORRUPT, "an opcode lacks its operand");
    *out = m->stack.values[--m->stack.count];
    return OK;
}

/* Takes the values above the topmost mark off the stack, together with the mark; they stay readable until the next
 * push. Each value is visited only once, because it is gone afterwards. */
enum error_code pickle_machine_pop_to_mark(struct pickle_machine *m, struct pickle_value **values, size_t *count)
{
    size_t top = m->stack.count, at = top;
    while (at > 0 && m->stack.values[at - 1].kind != PICKLE_MARK)
        at--;
    if (at == 0)
        return pickle_machine_fail(m, ERROR_CORRUPT, "an opcode lacks its mark");
    *values = m->stack.values + at;
    *count = top - at;
    m->stack.count = at - 1;
    return OK;
}

enum error_code pickle_machine_new_items(struct pickle_machine *m, enum pickle_kind kind,
                                         const struct pickle_value *values, size_t count, struct pickle_value *out)
{
    void *items, *room = NULL;
    enum error_code code = pickle_machine_take_memory(m, 1, sizeof(struct pickle_items), &items);
    if (code == OK && count > 0)
        code = pickle_machine_take_memory(m, count, sizeof *values, &room);
    if (code != OK)
        return code;
    if (count > 0)
        memcpy(room, values, count * sizeof *values);
    *(struct pickle_items *)items = (struct pickle_items){.values = room, .count = count, .capacity = count};
    *out = (struct pickle_value){.kind = kind, .items = items};
    return OK;
}

/* Appends to the list or dictionary on the stack's top. */
enum error_code pickle_machine_append(struct pickle_machine *m, enum pickle_kind kind,
                                      const struct pickle_value *values, size_t count)
{
    if (m->stack.count == 0 || m->stack.values[m->stack.count - 1].kind != kind)
        return pickle_machine_fail(m, ERROR_CORRUPT, "items are added to something that is not a %s",
                                   kind == PICKLE_DICT ? "dictionary" : "list");
    if (kind == PICKLE_DICT && count % 2 != 0)
        return pickle_machine_fail(m, ERROR_CORRUPT, "a dictionary's last key has no value");
    struct pickle_items *items = m->stack.values[m->stack.count - 1].items;
    if (count > items->capacity - items->count) {
        void *room;
        size_t capacity = 2 * items->count + count + 4;
        enum error_code code = pickle_machine_take_memory(m, capacity, sizeof *values, &room);
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

/* ---- the memo ---- */
enum error_code pickle_machine_memo_get(struct pickle_machine *m, uint64_t index)
{
    if (index >= m->memo.count || m->memo.values[index].kind == PICKLE_MARK)
        return pickle_machine_fail(m, ERROR_CORRUPT, "the memo has no entry %llu", (unsigned long long)index);
    return pickle_machine_push(m, m->memo.values[index]);
}

enum error_code pickle_machine_memo_put(struct pickle_machine *m, uint64_t index)
{
    struct pickle_value v;
    enum error_code code = pickle_machine_pop(m, &v);
    /* Every pickler numbers its memo from 0, and each entry costs it at least two bytes. */
    if (code == OK && index > m->in->at - m->start)
        return pickle_machine_fail(m, ERROR_CORRUPT, "memo entry %llu is out of order", (unsigned long long)index);
    if (code == OK)
        code = pickle_machine_reserve(m, &m->memo, (size_t)index + 1);
    if (code != OK)
        return code;
    while (m->memo.count <= index)
        m->memo.values[m->memo.count++].kind = PICKLE_MARK;
    m->memo.values[index] = v;
    return pickle_machine_push(m, v);
}
