/* Networks of the official shapes with random weights, for measurements without a checkpoint. The weights are the same
 * everywhere, and scaled so that activations stay as large as a trained network's: values that are not finite, or fade
 * to denormals, are computed at other speeds. Thread-safety: functions without state. */
#ifndef RUNTIME_MODELS_MODEL_RANDOM_H
#define RUNTIME_MODELS_MODEL_RANDOM_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

struct model_random {
    const char *name;  /* "rrdbnet_x4" */
    const char *what;  /* the official file of that shape */
    int width, height; /* the input size to measure with, px */
};

extern const struct model_random model_randoms[];
extern const int model_random_count;

/* The checkpoint of that name as safetensors, for model_open_memory; the caller frees it with free(). ERROR_NOT_FOUND
 * when there is none. */
enum error_code model_random_file(const char *name, uint8_t **bytes, size_t *size, struct error *err) MUST_CHECK;

#endif
