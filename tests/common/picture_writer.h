/* Picture files of kinds that our own writer never makes, for tests: written with libjpeg and libpng, or chunk by
 * chunk. Running out of memory ends the program. Thread-safety: no shared state. */
#ifndef TESTS_COMMON_PICTURE_WRITER_H
#define TESTS_COMMON_PICTURE_WRITER_H

#include <stdbool.h>

#include "server/image/view.h"
#include "tests/common/checkpoint_writer.h"

struct picture_jpeg {
    int channels;               /* 1, 3, or 4: CMYK */
    bool plain;                 /* RGB or CMYK as they are, not as YCbCr or YCCK */
    bool progressive, no_adobe; /* no_adobe: without the marker that says how colours are stored */
    bool scans;                 /* each channel in its own scan */
    int restart_rows;           /* a restart marker every so many block rows */
};

/* One of each kind worth a test. */
#define PICTURE_JPEG_KINDS 9
extern const struct picture_jpeg picture_jpeg_kinds[PICTURE_JPEG_KINDS];

/* Quality 100. exif: a TIFF block, or NULL. */
struct checkpoint_buffer picture_writer_jpeg(const struct picture_jpeg *kind, struct view_u8 view, const void *exif,
                                             size_t exif_size);

struct picture_png {
    int type, depth;  /* PNG's colour type and bits */
    bool transparent; /* a tRNS chunk: gray 1, colour 1 2 3, or picture_palette_alpha */
    bool interlaced;
};

extern const uint8_t picture_palette[4][3], picture_palette_alpha[2];

/* rows: as PNG stores them, packed and big-endian; at most 64. */
struct checkpoint_buffer picture_writer_png(const struct picture_png *kind, int width, int height, uint8_t *rows,
                                            size_t stride);

/* PNG's magic and header of an 8-bit RGB picture; and a chunk with its CRC. */
struct checkpoint_buffer picture_writer_header(uint32_t width, uint32_t height);
void picture_writer_chunk(struct checkpoint_buffer *out, const char *name, const void *data, size_t size);

#endif
