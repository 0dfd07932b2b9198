/* safetensors: a 64-bit header length, a JSON header that gives each tensor's dtype, shape and byte range, then the
 * bytes. The ranges must cover the bytes exactly: no holes, no overlaps.
 * Thread-safety: no shared state. */
#ifndef RUNTIME_WEIGHTS_SAFETENSORS_H
#define RUNTIME_WEIGHTS_SAFETENSORS_H

#include "runtime/weights/catalogue.h"

/* Fills the catalogue from its data. UNSUPPORTED (dtype, rank), CORRUPT, TOO_LARGE (the header), NO_MEMORY. */
enum error_code safetensors_read(struct catalogue *catalogue, struct error *err) MUST_CHECK;

#endif
