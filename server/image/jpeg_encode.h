/* Writes a JPEG in strips (a progressive one in one piece), divided among the cores: each is encoded as a separate
 * picture, and restart markers (ITU-T T.81, B.2.1) between their data make them one baseline file with the same pixels
 * as a file made in one piece. That costs some 8 bytes a strip. Thread-safety: a function without state. */
#ifndef SERVER_IMAGE_JPEG_ENCODE_H
#define SERVER_IMAGE_JPEG_ENCODE_H

#include "server/image/codec.h"

/* options: quality 1..100, below 90 or with halved chroma has half the rows and columns. The bytes do not depend on the
 * number of threads. ERROR_NO_MEMORY. */
enum error_code jpeg_encode(const struct image *image, struct codec_options options, struct codec_output *out,
                            struct error *err) MUST_CHECK;

#endif
