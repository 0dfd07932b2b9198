/* The contents of a PNG's IDAT chunks: rows filtered and deflated in strips, divided among the cores. libpng uses one
 * core and looks for long matches, which pictures rarely have: 2048×1536 px of a restored photo took it 880 ms at level
 * 6 for 2.93 MB, while run lengths alone (level 1 here) give 2.77 MB in 150 ms on one core.
 * Thread-safety: functions without state; row() is called from several threads. */
#ifndef SERVER_IMAGE_PNG_DATA_H
#define SERVER_IMAGE_PNG_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

struct png_data {
    size_t stride; /* bytes of a row */
    size_t pixel;  /* bytes of a pixel */
    int height;
    int level; /* 0: stored, 1: filtered and run lengths, 2..9: zlib's levels */
    const void *context;
    /* Writes row y as in the file, samples in big-endian order, to line[stride]. Called from any thread. */
    void (*row)(const void *context, int y, uint8_t *line);
    void (*passed)(const void *context, int first, int end); /* these rows were written; or NULL */
};

/* Passes the zlib stream to write(), one IDAT's data at a time and in order, on the caller's thread; false from write()
 * means that memory ran out. The bytes do not depend on the number of threads. ERROR_NO_MEMORY. */
enum error_code png_data_encode(const struct png_data *data, bool (*write)(void *user, const uint8_t *, size_t),
                                void *user, struct error *err) MUST_CHECK;

#endif
