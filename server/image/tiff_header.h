/* The directories of an untrusted TIFF or BigTIFF (TIFF 6.0): how many pages it has, what a page's header says, and its
 * EXIF as a block by itself, which other formats carry. Every offset is checked; walks over a bounded number of
 * directories and entries. Thread-safety: functions without state. */
#ifndef SERVER_IMAGE_TIFF_HEADER_H
#define SERVER_IMAGE_TIFF_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/image/image.h"

struct tiff_header {
    int pages;       /* directories but for reduced pictures and masks */
    uint64_t offset; /* of the page's directory; of a page that is not there only pages is set */
    uint32_t width, height;
    int bits, samples, photometric, orientation;
    int extra; /* what the first sample beside the colours is; -1: there is none */
};

/* Whether the bytes begin as a TIFF. */
bool tiff_header_matches(const uint8_t *bytes, size_t size);

/* page: from 1. false: the file is damaged. */
bool tiff_header_read(const uint8_t *bytes, size_t size, int page, struct tiff_header *out);

/* A copy of what belongs to EXIF in the directory at that offset and those below it, without maker notes, whose inner
 * offsets would be wrong. Empty if there is nothing. ERROR_NO_MEMORY. */
enum error_code tiff_header_exif(const uint8_t *bytes, size_t size, uint64_t offset, struct image_blob *out,
                                 struct error *err) MUST_CHECK;

/* The text of a field of the first directory of an EXIF block. false: there is none, or it is longer than out. */
bool tiff_header_text(const uint8_t *exif, size_t exif_size, int tag, char *out, size_t size);

#endif
