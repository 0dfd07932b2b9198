/* Memory whose size depends on input: checked products, and an arena that frees everything of a job at once.
 * Thread-safety: mem_* functions are free of state; an arena belongs to one thread at a time. */
#ifndef RUNTIME_BASE_MEM_H
#define RUNTIME_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/error.h"

/* *out = a*b; false when that overflows. */
bool mem_mul(size_t a, size_t b, size_t *out);
bool mem_add(size_t a, size_t b, size_t *out);

/* malloc/calloc of count*size bytes; NULL when the product overflows or memory runs out. A product of 0 gives a pointer
 * that may be freed but not read. */
void *mem_alloc(size_t count, size_t size);
void *mem_calloc(size_t count, size_t size);

/* From now on, in the whole process: a block of 4 MiB or more has pages of its own, which go back to the system when it
 * is freed. Else malloc puts blocks of up to 32 MiB between smaller ones as soon as one was freed, and keeps what they
 * had.
 */
void mem_keep_little(void);

/* Takes the pages of a block from the system now, in parallel, instead of one by one when they are first written. What
 * the block held is lost. */
void mem_touch(void *block, size_t bytes);

/* Gives freed memory back to the system. This takes some ms and blocks malloc in other threads meanwhile, so call it
 * when there is nothing to do. */
void mem_give_back(void);

struct arena;

enum error_code arena_create(struct arena **out, struct error *err) MUST_CHECK;
void arena_destroy(struct arena **arena);

/* count*size bytes, zeroed, aligned to 64; NULL with NO_MEMORY in *err when there is no room. */
void *arena_alloc(struct arena *arena, size_t count, size_t size, struct error *err);
char *arena_strdup(struct arena *arena, const char *text, struct error *err);

/* Bytes handed out so far. */
size_t arena_used(const struct arena *arena);

#endif
