/* What torch.save means by the values of a pickle: the few globals that tensors need, storages, tensors, and where a
 * checkpoint keeps its parameters.
 * Thread-safety: a struct pickle and a struct pickle_machine belong to one thread at a time. */
#ifndef RUNTIME_WEIGHTS_PICKLE_TORCH_H
#define RUNTIME_WEIGHTS_PICKLE_TORCH_H

#include "runtime/weights/pickle.h"

struct pickle_machine;

/* Pushes the global of that name. UNSUPPORTED when no tensor needs it. */
enum error_code pickle_torch_push_global(struct pickle_machine *m, const uint8_t *module, size_t module_size,
                                         const uint8_t *name, size_t name_size) MUST_CHECK;

/* The tuple on the stack becomes the storage that it describes. */
enum error_code pickle_torch_persistent_id(struct pickle_machine *m) MUST_CHECK;

/* The arguments and the global below them become what that global makes of them: a tensor, a parameter, a dictionary.
 */
enum error_code pickle_torch_reduce(struct pickle_machine *m) MUST_CHECK;

/* Sorts the storages by key. CORRUPT when two descriptions of one storage differ. */
enum error_code pickle_torch_settle_storages(struct pickle_machine *m) MUST_CHECK;

/* Adds the tensors of params_ema, else params, else state_dict, else of the root itself. Every storage's data must be
 * set. UNSUPPORTED when the root is no dictionary; else as catalogue_add. */
enum error_code pickle_torch_add_tensors(const struct pickle *pickle, struct catalogue *catalogue, const char *entry,
                                         struct error *err) MUST_CHECK;

#endif
