/* What the opcodes of a pickle work on: the bytes, a stack of values, the memo, the containers made so far; with their
 * bounds, and errors that say at which byte. For pickle.c and pickle_torch.c alone.
 * Thread-safety: a struct pickle_machine belongs to one thread at a time. */
#ifndef RUNTIME_WEIGHTS_PICKLE_MACHINE_H
#define RUNTIME_WEIGHTS_PICKLE_MACHINE_H

#include "runtime/weights/pickle.h"

struct pickle_machine {
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

/* Sets the error with the place in the pickle and returns code. */
enum error_code pickle_machine_fail(struct pickle_machine *m, enum error_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
enum error_code pickle_machine_fail_end(struct pickle_machine *m); /* the pickle is cut off */

/* count times size bytes that live as long as the pickle. TOO_LARGE, NO_MEMORY. */
enum error_code pickle_machine_take_memory(struct pickle_machine *m, size_t count, size_t size, void **out) MUST_CHECK;

enum error_code pickle_machine_push(struct pickle_machine *m, struct pickle_value value) MUST_CHECK;
enum error_code pickle_machine_pop(struct pickle_machine *m, struct pickle_value *out) MUST_CHECK;

/* Takes off the values above the topmost mark, and the mark. They stay readable until the next push. */
enum error_code pickle_machine_pop_to_mark(struct pickle_machine *m, struct pickle_value **values,
                                           size_t *count) MUST_CHECK;

/* A new TUPLE, LIST or DICT of count values, which are copied. */
enum error_code pickle_machine_new_items(struct pickle_machine *m, enum pickle_kind kind,
                                         const struct pickle_value *values, size_t count,
                                         struct pickle_value *out) MUST_CHECK;

/* Appends to the list or dictionary on top of the stack, which must be of that kind. */
enum error_code pickle_machine_append(struct pickle_machine *m, enum pickle_kind kind,
                                      const struct pickle_value *values, size_t count) MUST_CHECK;

/* The memo's entry is pushed; the top of the stack becomes an entry. */
enum error_code pickle_machine_memo_get(struct pickle_machine *m, uint64_t index) MUST_CHECK;
enum error_code pickle_machine_memo_put(struct pickle_machine *m, uint64_t index) MUST_CHECK;

#endif
