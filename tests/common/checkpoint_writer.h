/* Writes checkpoints byte by byte: whole files of named float tensors as safetensors, torch.save's zip form and its
 * legacy form, for fixtures; and below them the pieces (zip archive, pickle), from which tests build broken files.
 * Running out of memory ends the program. Thread-safety: no shared state. */
#ifndef TESTS_COMMON_CHECKPOINT_WRITER_H
#define TESTS_COMMON_CHECKPOINT_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- a growing run of bytes; start from {0} ---- */
struct checkpoint_buffer {
    uint8_t *data;
    size_t size, capacity;
};

void checkpoint_put(struct checkpoint_buffer *out, const void *data, size_t size);
void checkpoint_put_le(struct checkpoint_buffer *out, uint64_t value, int bytes);
/* Writes the buffer to path; false with a reason on stderr. */
bool checkpoint_save(const struct checkpoint_buffer *buffer, const char *path);
void checkpoint_free(struct checkpoint_buffer *buffer);

/* ---- whole files ---- */
struct checkpoint_tensor {
    const char *name; /* no quotes, backslashes or control characters */
    int rank;
    uint64_t shape[8];
    const float *data; /* row-major */
};

enum checkpoint_float { CHECKPOINT_F32, CHECKPOINT_F16 };

/* Each appends one file to out. wrapper: the name of a dictionary around them, as "params_ema"; NULL: none. */
void checkpoint_safetensors(struct checkpoint_buffer *out, const struct checkpoint_tensor *tensors, size_t count,
                            enum checkpoint_float type);
void checkpoint_torch_zip(struct checkpoint_buffer *out, const struct checkpoint_tensor *tensors, size_t count,
                          enum checkpoint_float type, const char *wrapper);
void checkpoint_torch_legacy(struct checkpoint_buffer *out, const struct checkpoint_tensor *tensors, size_t count,
                             enum checkpoint_float type, const char *wrapper);

/* IEEE half precision, rounded to nearest even. */
uint16_t checkpoint_half(float value);

/* ---- a zip archive in the form that torch.save gives it: stored, data descriptors, zip64 end record ---- */
struct checkpoint_zip {
    struct checkpoint_buffer file, directory;
    unsigned count;
    bool wide; /* every size and offset in zip64 fields, as for entries beyond 4 GB */
};

void checkpoint_zip_add(struct checkpoint_zip *zip, const char *name, const void *data, size_t size);
/* Appends the archive to out and frees the zip. */
void checkpoint_zip_finish(struct checkpoint_zip *zip, struct checkpoint_buffer *out);

/* ---- a pickle of protocol 2; an opcode without argument is checkpoint_pickle_op(out, '(') ---- */
void checkpoint_pickle_op(struct checkpoint_buffer *out, int opcode);
void checkpoint_pickle_start(struct checkpoint_buffer *out);
void checkpoint_pickle_text(struct checkpoint_buffer *out, const char *text);
void checkpoint_pickle_int(struct checkpoint_buffer *out, int64_t value);
void checkpoint_pickle_global(struct checkpoint_buffer *out, const char *module, const char *name);

/* A tensor as torch pickles it; fields are written as they are, true or not. */
struct checkpoint_view {
    const char *storage; /* "FloatStorage" */
    const char *key;     /* "0" */
    int64_t numel;       /* of the storage */
    int64_t offset;      /* in elements */
    int rank;
    int64_t shape[16], stride[16];
};

/* legacy: the storage's tuple has the sixth item None that the legacy form gives it. */
void checkpoint_pickle_tensor(struct checkpoint_buffer *out, const struct checkpoint_view *view, bool legacy);

/* What a legacy file opens with: the pickles of magic number, protocol and system. */
void checkpoint_legacy_start(struct checkpoint_buffer *out, bool little_endian);

#endif
