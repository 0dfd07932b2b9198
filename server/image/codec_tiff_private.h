/* What reading and writing a TIFF share. Only for codec_tiff*.c.
 * Thread-safety: functions without state. */
#ifndef SERVER_IMAGE_CODEC_TIFF_PRIVATE_H
#define SERVER_IMAGE_CODEC_TIFF_PRIVATE_H

#include "server/image/codec_row.h"

#ifdef RESTORED_TIFF
#include <tiffio.h>

#define TIFF_DETAIL 128

/* For TIFFClientOpenExt: the first error that the library tells goes into detail, which has TIFF_DETAIL bytes, is empty
 * at first and lives as long as the file; warnings are dropped. NULL: out of memory. */
TIFFOpenOptions *codec_tiff_options(char *detail);

/* The files are memory: there is nothing to close. */
int codec_tiff_close(thandle_t context);

/* codec_row's encode. */
enum error_code codec_tiff_encode(const struct image *image, struct codec_options options, struct codec_output *out,
                                  struct error *err);
#endif

#endif
