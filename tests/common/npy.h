/* Reads numpy's .npy and .npz files, in which expected values are kept. Little-endian C-order arrays only; entries of
 * an .npz may be stored or deflated. A failure prints its reason on stderr, so that a test need only assert true.
 * Thread-safety: no shared state. */
#ifndef TESTS_COMMON_NPY_H
#define TESTS_COMMON_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NPY_MAX_RANK 8

struct npy {
    char dtype[4]; /* "f4", "f8", "u1", "i8", ...: numpy's descr without the byte order */
    int rank;      /* 0 for a scalar */
    size_t shape[NPY_MAX_RANK];
    size_t count; /* product of shape, 1 for a scalar */
    size_t size;  /* of data, in bytes */
    void *data;   /* from malloc, row-major */
};

/* Reads a .npy file. */
bool npy_load(const char *path, struct npy *out);

/* Reads the array of that key from a .npz file. */
bool npz_load(const char *path, const char *key, struct npy *out);

/* The key at that index, in file order, into key[size]; false past the last (and, with a reason, for a bad file). */
bool npz_key(const char *path, size_t index, char *key, size_t size);

/* Frees the data; a struct npy of zeros may be freed. */
void npy_free(struct npy *npy);

#endif
