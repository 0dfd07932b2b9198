/* Bounds-checked little-endian reads from untrusted bytes. A read that would pass the end returns false and moves
 * nothing. Thread-safety: a struct bytes belongs to one thread at a time. */
#ifndef RUNTIME_BASE_BYTES_H
#define RUNTIME_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bytes {
    const uint8_t *data;
    size_t size;
    size_t at; /* where the next read begins, at most size */
};

bool bytes_seek(struct bytes *in, uint64_t at);

/* The next n bytes, borrowed. */
bool bytes_take(struct bytes *in, uint64_t n, const uint8_t **out);

bool bytes_u8(struct bytes *in, uint8_t *out);
bool bytes_u16(struct bytes *in, uint16_t *out);
bool bytes_u64(struct bytes *in, uint64_t *out);

/* An unsigned number of 1 to 8 bytes. */
bool bytes_number(struct bytes *in, int n, uint64_t *out);

#endif
