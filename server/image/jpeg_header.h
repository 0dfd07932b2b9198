/* What precedes a JPEG's first scan in an untrusted file: its size and where its metadata are. Walks over a bounded
 * number of segments, copies nothing and allocates nothing: libjpeg, asked to save the same, takes time quadratic in
 * the number of segments. Thread-safety: functions without state. */
#ifndef SERVER_IMAGE_JPEG_HEADER_H
#define SERVER_IMAGE_JPEG_HEADER_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

#define JPEG_HEADER_SEGMENTS 4096    /* 64 MiB are 1024 full ones; no camera writes more than a few hundred */
#define JPEG_HEADER_STRAY (1u << 20) /* stray bytes between segments */
#define JPEG_HEADER_EXIF "Exif\0"    /* 6 bytes with the final 0 */
#define JPEG_HEADER_XMP "http://ns.adobe.com/xap/1.0/" /* 29 bytes with the final 0 */
#define JPEG_HEADER_RESOURCES "Photoshop 3.0"          /* 14 bytes with the final 0 */

struct jpeg_header_blob {
    const uint8_t *data; /* in the file; NULL: none */
    size_t size;
};

struct jpeg_header {
    int width, height, components; /* 1, 3 or 4 components of 8 bits */
    struct jpeg_header_blob exif;  /* the TIFF block */
    struct jpeg_header_blob xmp;
    struct jpeg_header_blob resources; /* Photoshop's; the first segment of them */
    struct jpeg_header_blob icc[256];  /* the parts of the profile from 1 to icc_count */
    int icc_count;                     /* 0: no profile; negative: its parts do not fit together */
};

/* bytes begin with FF D8. ERROR_CORRUPT for damage and for more than the bounds above, ERROR_UNSUPPORTED for kinds that
 * we do not read, ERROR_TOO_LARGE for sides over libjpeg's 65500. */
enum error_code jpeg_header_read(const uint8_t *bytes, size_t size, struct jpeg_header *out,
                                 struct error *err) MUST_CHECK;

/* The assembled profile, from malloc; NULL and *size 0 if there is no valid one. ERROR_NO_MEMORY. */
enum error_code jpeg_header_icc(const struct jpeg_header *header, uint8_t **out, size_t *size,
                                struct error *err) MUST_CHECK;

#endif
