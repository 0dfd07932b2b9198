/* Files embedded into the binary at build time: SPIR-V, the page, the starter models. Thread-safety: constant data. */
#ifndef RUNTIME_BASE_EMBED_H
#define RUNTIME_BASE_EMBED_H

#include <stddef.h>
#include <stdint.h>

struct embed_file {
    const char *name;
    const uint8_t *start, *end; /* start is aligned to 16 bytes */
};

/* The bytes of the embedded file of that name ("conv2d.f16.spv", "index.html"), 16-byte aligned; NULL if none. */
const uint8_t *embed_find(const char *name, size_t *size);

/* models/starter/ as it was when the program was built; the last row has a NULL name. */
const struct embed_file *embed_starters(void);

#endif
