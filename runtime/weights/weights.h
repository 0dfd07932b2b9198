/* Checkpoint files as one catalogue of named tensors. The file stays mapped; tensors point into it, nothing is
 * copied. If somebody writes to it or cuts it off, their values are anything, and weights_check says so. torch.save
 * (zip and legacy), safetensors and ncnn's .param (with the .bin beside it) are told apart by their first bytes. A
 * pickle is walked, never executed. Every reader is bounds-checked against a hostile file.
 *
 * Thread-safety: an open struct weights is immutable and may be read from any thread. */
#ifndef RUNTIME_WEIGHTS_WEIGHTS_H
#define RUNTIME_WEIGHTS_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/base/file.h"

#define WEIGHTS_MAX_RANK 8

enum weights_dtype {
    WEIGHTS_F32,
    WEIGHTS_F16,
    WEIGHTS_BF16,
    WEIGHTS_F64,
    WEIGHTS_I8,
    WEIGHTS_I16,
    WEIGHTS_I32,
    WEIGHTS_I64,
    WEIGHTS_U8,
    WEIGHTS_BOOL
};

struct weights_tensor {
    const char *name; /* without "module." and "netG." */
    enum weights_dtype dtype;
    int rank; /* 0 for a scalar */
    uint64_t shape[WEIGHTS_MAX_RANK];
    int64_t stride[WEIGHTS_MAX_RANK]; /* in elements */
    uint64_t count;                   /* product of shape: 1 for a scalar, 0 for an empty tensor */
    const uint8_t *data;              /* first element, perhaps unaligned; every element lies inside the file */
};

struct weights;

/* Opens path: the wrapper params_ema, params-ema, params, state_dict, model_state_dict, model or net, the first that is
 * there, else a single dictionary whatever its name, else the bare dictionary. Entries that are not tensors are passed
 * over. Errors: NOT_FOUND, IO, UNSUPPORTED (not a checkpoint; an unknown pickle global; a
 * compressed entry), CORRUPT, TOO_LARGE (over a fixed limit, or an expanded view of more elements than the file has
 * bytes), NO_MEMORY; the text names the file, the entry and the reason. */
enum error_code weights_open(struct weights **out, const char *path, struct error *err) MUST_CHECK;

/* The same on bytes in memory (borrowed until weights_close); name stands for the path in errors. */
enum error_code weights_open_memory(struct weights **out, const char *name, const void *data, size_t size,
                                    struct error *err) MUST_CHECK;
void weights_close(struct weights **weights);

/* ERROR_IO when the file was changed in place since it was opened: then nothing that was made of its values since may
 * be used. It stays so. */
enum error_code weights_check(const struct weights *weights, struct error *err) MUST_CHECK;

/* What the file was when it was opened; zeros of bytes in memory. Of an ncnn model: its .param. */
struct file_id weights_id(const struct weights *weights);

/* Bytes of the file, or of both; 0 of bytes in memory. */
uint64_t weights_bytes(const struct weights *weights);

/* The .bin that belongs to a .param; false: the path does not end so. */
bool weights_bin_path(char *out, size_t size, const char *path);

size_t weights_count(const struct weights *weights);
const struct weights_tensor *weights_at(const struct weights *weights, size_t index);       /* in file order */
const struct weights_tensor *weights_find(const struct weights *weights, const char *name); /* NULL if none */

/* A safetensors file's own __metadata__ value for key, or NULL. */
const char *weights_metadata(const struct weights *weights, const char *key);

/* All elements in row-major order, converted to float32 (integers and bool by value), to out[tensor->count]. */
void weights_read_f32(const struct weights_tensor *tensor, float *out);

/* All of it is going to be read soon: lets the system begin to, where the file is not in memory. */
void weights_expect(const struct weights *weights);

/* The reader that took the file: "torch-zip", "torch-legacy", "safetensors" or "ncnn". */
const char *weights_format(const struct weights *weights);

#endif
