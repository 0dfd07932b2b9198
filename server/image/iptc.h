/* IPTC records (IIM) in Photoshop's image resources, as JPEG and some TIFFs keep them, in a TIFF's own tag, and in a
 * text of a PNG. Thread-safety: functions without state. */
#ifndef SERVER_IMAGE_IPTC_H
#define SERVER_IMAGE_IPTC_H

#include "server/image/image.h"

/* The records in a list of resources; NULL: there are none. */
const uint8_t *iptc_find(const uint8_t *resources, size_t size, size_t *out_size);

/* A list of one resource, the records, from malloc. ERROR_NO_MEMORY. */
enum error_code iptc_wrap(const struct image_blob *iptc, struct image_blob *out, struct error *err) MUST_CHECK;

/* The records in what programs keep as IPTC in a TIFF's tag or a PNG's text: the records alone, of which those of a
 * TIFF have zeros up to a number of four bytes behind them (these are not counted); or a list of resources (ExifTool),
 * with or without the name of a JPEG's segment (libvips). out_cut: the last record has no end. NULL: there are none. */
const uint8_t *iptc_records(const uint8_t *data, size_t size, size_t *out_size, bool *out_cut);

/* A PNG has no chunk for IPTC. ImageMagick and ExifTool keep it there as a text of this name: a line with a word, one
 * with a number of bytes, and these bytes in hexadecimal: see iptc_records(). A list of resources is written. */
#define IPTC_TEXT "Raw profile type iptc"

/* The records as such a text, from malloc. ERROR_NO_MEMORY. */
enum error_code iptc_print(const struct image_blob *iptc, char **out, struct error *err) MUST_CHECK;

/* The records in such a text; nothing is set if there are none. ERROR_NO_MEMORY. */
enum error_code iptc_parse(const uint8_t *text, size_t size, struct image_blob *out, struct error *err) MUST_CHECK;

#endif
