/* The header of a JPEG XL picture in an untrusted file (ISO/IEC 18181-1, annexes A and D; container: 18181-2): its
 * size, depth, channels, orientation and whether it moves. Reads a bounded number of bits and allocates nothing.
 * Thread-safety: a function without state. */
#ifndef SERVER_IMAGE_JXL_HEADER_H
#define SERVER_IMAGE_JXL_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct jxl_header {
    uint32_t width, height; /* as stored */
    int orientation, bits;
    bool gray, alpha, animated, is_float;
};

/* A bare codestream or a container. false: it is damaged or cut short. */
bool jxl_header_read(const uint8_t *bytes, size_t size, struct jxl_header *out);

#endif
