/* Writes a JPEG in strips, which the cores share: each is encoded as a picture of its own, and a restart marker (ITU-T
 * T.81, B.2.1) between their data makes them one baseline file, whose pixels are those of a file made in one piece.
 * That costs some 8 bytes a strip. Thread-safety: a function without state. */
#ifndef SERVER_IMAGE_JPEG_ENCODE_H
#define SERVER_IMAGE_JPEG_ENCODE_H

#include "server/image/codec.h"

#define JPEG_ENCODE_EXIF "Exif\0"                      /* 6 bytes with the final 0 */
#define JPEG_ENCODE_XMP "http://ns.adobe.com/xap/1.0/" /* 29 bytes with the final 0 */

/* quality 1..100; chroma is halved both ways, as the reference writes: at 95 that is not seen, and saves a third. The
 * bytes do not depend on the number of threads. ERROR_NO_MEMORY. */
enum error_code jpeg_encode(const struct image *image, int quality, struct codec_output *out,
                            struct error *err) MUST_CHECK;

#endif
