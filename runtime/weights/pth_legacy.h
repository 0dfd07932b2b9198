/* torch.save's form before 1.6: five pickles one after another (magic number, protocol, system, the object, the list of
 * storage keys), then each storage in the order of that list as a 64-bit element count and its bytes.
 * Thread-safety: no shared state. */
#ifndef RUNTIME_WEIGHTS_PTH_LEGACY_H
#define RUNTIME_WEIGHTS_PTH_LEGACY_H

#include "runtime/weights/catalogue.h"

/* Fills the catalogue from its data. UNSUPPORTED (a pickle that is not torch's, big-endian, what pickle_walk does not
 * know), CORRUPT, TOO_LARGE, NO_MEMORY. */
enum error_code pth_legacy_read(struct catalogue *catalogue, struct error *err) MUST_CHECK;

#endif
