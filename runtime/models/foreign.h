/* Networks that people have files of and that are not read, so that their files can be told from damaged ones.
 * Thread-safety: constant data. */
#ifndef RUNTIME_MODELS_FOREIGN_H
#define RUNTIME_MODELS_FOREIGN_H

#include "runtime/weights/weights.h"

/* The name of the network, as spandrel calls it, and what it is: "SwinIR, a transformer"; NULL: it is not known. */
const char *foreign_name(const struct weights *weights);

/* The same for a network that has all tensors of one that is read, and more, without which it would be misread: a
 * question to ask first. */
const char *foreign_disguise(const struct weights *weights);

#endif
