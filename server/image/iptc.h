/* IPTC records (IIM) in Photoshop's image resources, as JPEG and TIFF keep them.
 * Thread-safety: functions without state. */
#ifndef SERVER_IMAGE_IPTC_H
#define SERVER_IMAGE_IPTC_H

#include "server/image/image.h"

/* The records in a list of resources; NULL: there are none. */
const uint8_t *iptc_find(const uint8_t *resources, size_t size, size_t *out_size);

/* A list of one resource, the records, from malloc. ERROR_NO_MEMORY. */
enum error_code iptc_wrap(const struct image_blob *iptc, struct image_blob *out, struct error *err) MUST_CHECK;

#endif
