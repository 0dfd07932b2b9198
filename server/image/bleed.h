/* Colours beneath full transparency, which nobody sees, but a network that enlarges a picture mixes them with those
 * beside them.
 * Thread-safety: as struct image. */
#ifndef SERVER_IMAGE_BLEED_H
#define SERVER_IMAGE_BLEED_H

#include "server/image/image.h"

/* Gives fully transparent pixels within BLEED_REACH px of others the mean colour of those beside them, ring by ring.
 * Does nothing to a picture without alpha. */
#define BLEED_REACH 12
enum error_code bleed_colours(struct image *image, struct error *err) MUST_CHECK;

#endif
