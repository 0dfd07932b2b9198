/* The header of a HEIF picture (HEIC, AVIF) in an untrusted file: ISO/IEC 23008-12 and 14496-12. Which items are
 * pictures, how large one is when it is cropped and turned as its properties say, and whether it has alpha. Walks over
 * a bounded number of boxes and allocates nothing. Thread-safety: a function without state. */
#ifndef SERVER_IMAGE_HEIF_HEADER_H
#define SERVER_IMAGE_HEIF_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct heif_header {
    int pages;              /* pictures that are meant to be seen by themselves */
    uint32_t item;          /* the id of the one asked for; page 1 is the primary one */
    uint32_t width, height; /* upright; 0: unknown */
    int bits;
    bool alpha;
};

/* page: from 1; of one that is not there only pages is set. false: the file is damaged. */
bool heif_header_read(const uint8_t *bytes, size_t size, int page, struct heif_header *out);

#endif
