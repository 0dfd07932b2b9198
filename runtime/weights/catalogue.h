/* What the checkpoint readers fill: the list of tensors of one file. The one place where a view (offset, shape,
 * strides) is checked against its storage, and where a reader's error gets its form "file: entry: reason".
 * Thread-safety: a catalogue belongs to one thread while it is filled and is immutable after. */
#ifndef RUNTIME_WEIGHTS_CATALOGUE_H
#define RUNTIME_WEIGHTS_CATALOGUE_H

#include "runtime/base/mem.h"
#include "runtime/weights/weights.h"

struct catalogue_pair {
    const char *key, *value;
};

struct catalogue {
    const char *file; /* the path, for errors */
    const uint8_t *data;
    size_t size;
    const char *format;
    struct arena *arena; /* of everything below */
    struct weights_tensor *tensors;
    size_t count, capacity;
    uint64_t elements; /* of all tensors */
    struct catalogue_pair *metadata;
    size_t metadata_count;
};

/* A tensor as a file describes it; nothing of it is trusted but that storage[0..storage_count) lies in the file. */
struct catalogue_view {
    const char *name; /* not terminated */
    size_t name_size;
    enum weights_dtype dtype;
    const uint8_t *storage;
    uint64_t storage_count; /* elements */
    uint64_t offset;        /* elements */
    int rank;
    const uint64_t *shape;
    const uint64_t *stride; /* elements; NULL: row-major without gaps */
};

/* Checks the view and appends it, without the prefixes "module." and "netG.". CORRUPT, TOO_LARGE (more elements than
 * the file has bytes, which only an expanded view can have), UNSUPPORTED (rank), NO_MEMORY. */
enum error_code catalogue_add(struct catalogue *catalogue, const struct catalogue_view *view,
                              struct error *err) MUST_CHECK;

/* Bytes of one element. */
size_t catalogue_element_size(enum weights_dtype dtype);

/* Sets "file: entry: reason"; entry may be NULL. Returns code. */
enum error_code catalogue_fail(struct error *err, enum error_code code, const struct catalogue *catalogue,
                               const char *entry, const char *format, ...) __attribute__((format(printf, 5, 6)));

/* A name from the file made fit to be shown: cut to the label's length, everything but printable ASCII as '?'. */
struct catalogue_label {
    char text[120];
};

const char *catalogue_label(struct catalogue_label *label, const void *name, size_t size);

#endif
