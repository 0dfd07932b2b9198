/* Whether a picture shows a page of text: what it has of lines is then most likely its own. Thread-safety: a function
 * without state. */
#ifndef SERVER_IMAGE_TEXT_PAGE_H
#define SERVER_IMAGE_TEXT_PAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "server/image/image.h"

/* picture: of any bits and channels. level: a byte a pixel, without gaps; what has `likely` or more is no text but
 * damage. */
bool text_page(const struct image *picture, const uint8_t *level, uint8_t likely);

#endif
