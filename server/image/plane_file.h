/* A decoded picture whose samples lie in a file, for pictures that are looked at in pieces: only the rows of a piece
 * are read, and only for as long as it takes. Thread-safety: functions without state; the file may be read by many
 * threads at once. */
#ifndef SERVER_IMAGE_PLANE_FILE_H
#define SERVER_IMAGE_PLANE_FILE_H

#include "server/image/image.h"

struct plane_file {
    int fd;                            /* its owner's */
    int width, height, channels, bits; /* as those of struct image */
    uint64_t pixels, alpha;            /* where the planes begin in the file; alpha PLANE_FILE_NONE: opaque */
    struct image_blob icc;             /* of colours other than sRGB's */
};
#define PLANE_FILE_NONE UINT64_MAX

/* Frees what belongs to it: not the file. */
void plane_file_clear(struct plane_file *file);

/* The part of width × height pixels whose first is (x, y), as a picture of its own with all bits. ERROR_INVALID: it
 * does not lie within the picture; ERROR_IO: the file is shorter than it should be. */
enum error_code plane_file_cut(const struct plane_file *file, int x, int y, int width, int height, struct image **out,
                               struct error *err) MUST_CHECK;

/* All of it in 8 bits, made smaller so that its longest side has at most that many pixels: means of areas, in which
 * colours count as much as they are opaque. */
enum error_code plane_file_reduce(const struct plane_file *file, int longest, struct image **out,
                                  struct error *err) MUST_CHECK;

#endif
