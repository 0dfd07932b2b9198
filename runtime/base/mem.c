#include "runtime/base/mem.h"

#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/base/thread.h"

/* From this size on malloc takes fresh pages for each block, even if one of that size was just freed, and the kernel
 * clears them one by one: 100 MB took 72 ms in pages of 4 KiB and 8 ms in pages of 2 MiB. */
#define MEM_LARGE ((size_t)4 << 20)
#define MEM_TRIM (4 << 20) /* free bytes at the end of a heap that stay there, even after malloc_trim */
#define MEM_PAGE ((size_t)2 << 20)
#define MEM_SMALL_PAGE 4096
#define MEM_TOUCH ((size_t)1 << 20) /* bytes that a thread touches at a time */

#define ARENA_ALIGN 64
#define ARENA_BLOCK (64u << 10)

struct arena_block {
    struct arena_block *next;
    size_t size, used; /* bytes of data[] */
    _Alignas(ARENA_ALIGN) unsigned char data[];
};

struct arena {
    struct arena_block *blocks;
    size_t used;
};

bool mem_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

bool mem_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

void *mem_alloc(size_t count, size_t size)
{
    size_t bytes;
    if (!mem_mul(count, size, &bytes))
        return NULL;
    if (bytes < MEM_LARGE || bytes > SIZE_MAX - MEM_PAGE)
        return malloc(bytes ? bytes : 1);
    bytes = (bytes + MEM_PAGE - 1) / MEM_PAGE * MEM_PAGE;
    void *block = aligned_alloc(MEM_PAGE, bytes);
#ifdef MADV_HUGEPAGE
    if (block)
        madvise(block, bytes, MADV_HUGEPAGE); /* if this fails nothing is lost */
#endif
    return block;
}

void *mem_calloc(size_t count, size_t size)
{
    void *block = calloc(count ? count : 1, size ? size : 1); /* calloc checks the product */
#ifdef MADV_HUGEPAGE
    const size_t before = (MEM_PAGE - (uintptr_t)block % MEM_PAGE) % MEM_PAGE;
    if (block && count * size >= MEM_LARGE) /* the pages that lie in it as a whole: malloc has not touched them */
        madvise((char *)block + before, (count * size - before) / MEM_PAGE * MEM_PAGE, MADV_HUGEPAGE);
#endif
    return block;
}

void mem_keep_little(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, (int)MEM_LARGE);
    mallopt(M_TRIM_THRESHOLD, MEM_TRIM);
#endif
}

struct touch {
    unsigned char *block;
    size_t bytes;
};

static void mem_touch_part(void *context, int item)
{
    const struct touch *touch = context;
    const size_t begin = (size_t)item * MEM_TOUCH, end = begin + MEM_TOUCH;
    for (size_t at = begin; at < end && at < touch->bytes; at += MEM_SMALL_PAGE)
        ((volatile unsigned char *)touch->block)[at] = 0;
}

void mem_touch(void *block, size_t bytes)
{
    struct touch touch = {block, bytes};
    thread_for((int)((bytes + MEM_TOUCH - 1) / MEM_TOUCH), mem_touch_part, &touch);
}

void mem_give_back(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

enum error_code arena_create(struct arena **out, struct error *err)
{
    *out = mem_calloc(1, sizeof **out);
    return *out ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory");
}

void arena_destroy(struct arena **arena)
{
    if (!*arena)
        return;
    for (struct arena_block *b = (*arena)->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    free(*arena);
    *arena = NULL;
}

static struct arena_block *arena_block_create(size_t size)
{
    size_t total;
    if (!mem_add(size, sizeof(struct arena_block) + ARENA_ALIGN, &total))
        return NULL;
    total -= total % ARENA_ALIGN; /* aligned_alloc wants a multiple */
    struct arena_block *b = aligned_alloc(ARENA_ALIGN, total);
    if (b)
        *b = (struct arena_block){.size = size};
    return b;
}

void *arena_alloc(struct arena *arena, size_t count, size_t size, struct error *err)
{
    size_t bytes;
    if (!mem_mul(count, size, &bytes) || !mem_add(bytes, ARENA_ALIGN - 1, &bytes))
        goto full;
    bytes -= bytes % ARENA_ALIGN;
    struct arena_block *b = arena->blocks;
    if (!b || b->size - b->used < bytes) {
        b = arena_block_create(bytes > ARENA_BLOCK ? bytes : ARENA_BLOCK);
        if (!b)
            goto full;
        b->next = arena->blocks;
        arena->blocks = b;
    }
    void *p = b->data + b->used;
    b->used += bytes;
    arena->used += bytes;
    memset(p, 0, bytes);
    return p;
full:
    error_set(err, ERROR_NO_MEMORY, "out of memory (%zu × %zu bytes)", count, size);
    return NULL;
}

char *arena_strdup(struct arena *arena, const char *text, struct error *err)
{
    size_t n = strlen(text) + 1;
    char *copy = arena_alloc(arena, n, 1, err);
    if (copy)
        memcpy(copy, text, n);
    return copy;
}

size_t arena_used(const struct arena *arena)
{
    return arena->used;
}
