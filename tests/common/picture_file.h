/* Picture files for tests of the codecs: decoded and encoded by them, and small pictures with all that a file can
 * carry. Failures end the cmocka test that calls. Thread-safety: for one thread. */
#ifndef TESTS_COMMON_PICTURE_FILE_H
#define TESTS_COMMON_PICTURE_FILE_H

#include "server/image/codec.h"
#include "tests/common/checkpoint_writer.h"

/* codec_decode of at most 4 megapixels, from a copy of the bytes' exact size, so that the sanitizers see a read beyond.
 */
enum error_code picture_decode(const void *data, size_t size, struct image **out, struct codec_info *info,
                               struct error *err);
struct image *picture_must_decode(const struct checkpoint_buffer *file, struct codec_info *info);

/* With the default options. */
struct checkpoint_buffer picture_must_encode(const struct image *image, enum image_format format, unsigned *notes);

/* A JPEG of picture_jpeg_kinds[kind], at most 64 px each way. */
struct checkpoint_buffer picture_small_jpeg(size_t kind, int width, int height);

/* A TIFF block that says nothing but an orientation; returns its size. */
size_t picture_orientation_block(uint8_t out[26], int orientation);

/* 40×30 px of noise with EXIF and XMP. */
struct image *picture_with_metadata(bool alpha, int bits);

/* A profile of 300 bytes for a colour space as ICC names it, such as "RGB ". */
void picture_add_profile(struct image *image, const char *space);

#endif
