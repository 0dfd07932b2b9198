/* torch.save's zip form: an archive of stored entries under one root folder, <root>/data.pkl describing the tensors
 * and <root>/data/<key> holding each storage. Sizes and offsets come from the central directory, with zip64 fields.
 * Thread-safety: no shared state. */
#ifndef RUNTIME_WEIGHTS_PTH_ZIP_H
#define RUNTIME_WEIGHTS_PTH_ZIP_H

#include "runtime/weights/catalogue.h"

/* Fills the catalogue from its data. UNSUPPORTED (no data.pkl, a compressed or encrypted entry, big-endian, what
 * pickle_walk does not know), CORRUPT, TOO_LARGE, NO_MEMORY. */
enum error_code pth_zip_read(struct catalogue *catalogue, struct error *err) MUST_CHECK;

#endif
