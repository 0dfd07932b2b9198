/* XMP packets, as texts: what changes in one when its picture is restored.
 * Thread-safety: functions without state. */
#ifndef SERVER_IMAGE_XMP_H
#define SERVER_IMAGE_XMP_H

#include "server/image/image.h"

/* Gives every property of that name, such as "tiff:Orientation", this value, as an attribute or as an element of text.
 * ERROR_NO_MEMORY. */
enum error_code xmp_set(struct image_blob *xmp, const char *name, const char *value, struct error *err) MUST_CHECK;

/* Takes out all properties whose names begin so, such as "exif:GPS". */
void xmp_remove(struct image_blob *xmp, const char *begin);

#endif
