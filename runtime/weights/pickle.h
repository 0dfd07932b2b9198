/* Walks a pickle: the opcodes that torch.save uses (protocol 2, and of 3 and 4 what needs no more machinery) build a
 * tree of plain values; nothing is called, no class is looked up. Of globals only those that tensors need are known.
 * Memory is bounded by fixed limits and by the pickle's own length.
 * Thread-safety: a struct pickle belongs to one thread at a time. */
#ifndef RUNTIME_WEIGHTS_PICKLE_H
#define RUNTIME_WEIGHTS_PICKLE_H

#include "runtime/base/bytes.h"
#include "runtime/weights/catalogue.h"

enum pickle_kind {
    PICKLE_NONE,
    PICKLE_BOOL,
    PICKLE_INT,
    PICKLE_LONG,  /* an integer beyond 64 bits, as its bytes */
    PICKLE_OTHER, /* floats, byte strings: walked over, never needed */
    PICKLE_TEXT,
    PICKLE_TUPLE,
    PICKLE_LIST,
    PICKLE_DICT,
    PICKLE_GLOBAL,
    PICKLE_STORAGE,
    PICKLE_TENSOR,
    PICKLE_MARK /* on the machine's stack only */
};

struct pickle_value {
    enum pickle_kind kind;
    uint32_t size; /* of TEXT and LONG, in bytes */
    union {
        int64_t integer; /* INT, BOOL */
        const uint8_t *bytes;
        struct pickle_items *items; /* TUPLE, LIST, DICT */
        const struct pickle_global *global;
        struct pickle_storage *storage;
        const struct pickle_tensor *tensor;
    };
};

/* A dictionary holds key, value, key, value, ... in order of insertion. */
struct pickle_items {
    struct pickle_value *values;
    size_t count, capacity;
};

struct pickle_storage {
    struct pickle_value key; /* TEXT */
    enum weights_dtype dtype;
    uint64_t count;      /* elements */
    const uint8_t *data; /* NULL until the reader of the file has found and checked all count elements */
};

struct pickle_tensor {
    const struct pickle_storage *storage;
    uint64_t offset;
    int rank;
    uint64_t shape[WEIGHTS_MAX_RANK], stride[WEIGHTS_MAX_RANK];
};

struct pickle {
    struct arena *arena;
    struct pickle_value root;
    /* Every reference to a storage, sorted by key; those of one key follow each other and agree with each other. */
    struct pickle_storage **storages;
    size_t storage_count;
};

/* Walks one pickle from in->at to behind its end. The bytes must outlive the pickle. entry names it in errors.
 * CORRUPT, UNSUPPORTED (an unknown opcode or global), TOO_LARGE (over a fixed limit), NO_MEMORY. */
enum error_code pickle_walk(struct pickle *out, const struct catalogue *catalogue, const char *entry, struct bytes *in,
                            struct error *err) MUST_CHECK;
void pickle_release(struct pickle *pickle);

/* The value of that key if dict is a DICT that has it as text; the last one if there are several; else NULL. */
const struct pickle_value *pickle_find(const struct pickle_value *dict, const char *key);

bool pickle_text_is(const uint8_t *text, size_t size, const char *name);

/* -1, 0, 1 like strcmp. */
int pickle_compare_text(const struct pickle_value *a, const struct pickle_value *b);

#endif
