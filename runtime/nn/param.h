/* A network's parameters: float arrays that a backend packs as it likes when a plan is made. Large ones stay in the
 * mapped checkpoint and are converted only when they are packed; small or derived ones are owned.
 * Thread-safety: immutable once made. */
#ifndef RUNTIME_NN_PARAM_H
#define RUNTIME_NN_PARAM_H

#include <stddef.h>

#include "runtime/base/error.h"
#include "runtime/weights/weights.h"

struct param {
    size_t count;                        /* elements */
    const struct weights_tensor *source; /* NULL when values[] are owned */
    float *values;                       /* owned values, or the scale of each of `rows` rows of the source, or NULL */
    size_t rows;                         /* rows of the source that values[] scale (its first dimension) */
};

/* Borrows a checkpoint tensor. row_scale[rows], if not NULL, is copied: row r of the source is multiplied by
 * row_scale[r] (a folded batch normalisation). */
enum error_code param_from_tensor(struct param **out, const struct weights_tensor *tensor, const float *row_scale,
                                  size_t rows, struct error *err) MUST_CHECK;

/* count owned values, copied from values (NULL: zeros). */
enum error_code param_from_values(struct param **out, const float *values, size_t count, struct error *err) MUST_CHECK;
void param_destroy(struct param **param);

/* Writes count float32 values to out, row-major. */
void param_read(const struct param *param, float *out);

/* For callers that convert the elements themselves: where they lie, row-major and without gaps, as float32, float16 or
 * bfloat16 (*type), perhaps unaligned, and not yet multiplied by values[] where there are rows. NULL when they are
 * stored in any other way. */
const void *param_raw(const struct param *param, enum weights_dtype *type);

#endif
