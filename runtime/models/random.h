/* A checkpoint of random weights: first the list of its tensors, layer by layer, then its bytes.
 * Thread-safety: a struct random_file belongs to one thread. */
#ifndef RUNTIME_MODELS_RANDOM_H
#define RUNTIME_MODELS_RANDOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

struct random_tensor {
    char name[80];
    int rank;
    int shape[5];
    float offset, spread; /* uniform in offset ± spread */
};

#define RANDOM_MAX_TENSORS 720 /* RRDBNet with 23 blocks has 702 */

struct random_file {
    struct random_tensor tensors[RANDOM_MAX_TENSORS];
    size_t count;
};

#define SHAPE(...)                                                                                                     \
    (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (int[])                                                         \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

struct random_text {
    char text[80];
};

struct random_text random_text(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define NAME(...) (random_text(__VA_ARGS__).text) /* until the end of the full expression */

/* Appends a tensor with the name that the format gives: uniform around offset. */
void random_tensor(struct random_file *f, float offset, float deviation, int rank, const int *shape, const char *format,
                   ...) __attribute__((format(printf, 6, 7)));

/* A convolution's weight, and its bias. gain 1 keeps the variance through a rectifier (He et al. 2015). */
void random_conv(struct random_file *f, int out, int in, int kernel, float gain, bool bias, const char *name);

/* Batch normalisation near the identity. */
void random_norm(struct random_file *f, int channels, const char *name);

/* The file as safetensors; the caller frees it with free(). */
enum error_code random_write(const struct random_file *f, uint8_t **bytes, size_t *size, struct error *err) MUST_CHECK;

#endif
