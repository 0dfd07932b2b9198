/* Files embedded into the binary at build time (SPIR-V, the page). Thread-safety: constant data. */
#ifndef RUNTIME_BASE_EMBED_H
#define RUNTIME_BASE_EMBED_H

#include <stddef.h>
#include <stdint.h>

/* The bytes of the embedded file of that name ("conv2d.f16.spv", "index.html"), 16-byte aligned; NULL if none. */
const uint8_t *embed_find(const char *name, size_t *size);

#endif
