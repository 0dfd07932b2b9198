/* Very large blocks lie in files without a name, so that what was used of them need not stay in memory: whoever goes
 * through a block says what it has passed, and those pages leave the memory. What they hold stays, in the file.
 * Thread-safety: every function may be called from any thread, but each block is its owner's. */
#ifndef RUNTIME_BASE_SPILL_H
#define RUNTIME_BASE_SPILL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Smaller blocks are from malloc: they fit, and that is faster. */
#define SPILL_LEAST ((size_t)256 << 20)

/* Files are made in this folder from now on. "": there are none, and all blocks are from malloc. */
void spill_into(const char *folder);

/* count*size bytes; zeros if they lie in a file. Where there is no file to be had (nor room on the disk, which is taken
 * at once, or the folder itself is in memory) they are from mem_alloc, as smaller blocks are. NULL: no memory. */
void *spill_alloc(size_t count, size_t size);
/* As realloc, of a block of `used` bytes, from spill_alloc or malloc or NULL. */
void *spill_grow(void *block, size_t used, size_t size);
/* Of spill_alloc, spill_grow or malloc. */
void spill_free(void *block);

/* These bytes, of any block, will not be used again soon. Quick where there is no file. */
void spill_passed(const void *bytes, size_t size);
/* How many bytes of a block of that size stay in memory, about. */
uint64_t spill_share(uint64_t size);
/* Whether they lie in a file. */
bool spill_is(const void *bytes);

#endif
