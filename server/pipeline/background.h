/* What background.c offers besides its step: an early beginning, and the reference's whole method (compat).
 * Thread-safety: as step.h. */
#ifndef SERVER_PIPELINE_BACKGROUND_H
#define SERVER_PIPELINE_BACKGROUND_H

#include "server/pipeline/step.h"
#include "server/pipeline/tile.h"

/* Begins background_step early on an asynchronous device, so that it computes while faces are detected and aligned and
 * between their networks' runs, which go first. What lies over the result becomes known when they are done. */
enum error_code background_begin(struct step *step, struct error *err) MUST_CHECK;
/* Gives up a background that was begun; background_step begins it again. */
void background_end(struct step *step);

/* The side of the first tile to try on a device of this type, in px of the input; 0: the whole picture. asked: bg_tile.
 * scale: the upscaler's; 0: there is none. */
int background_tile(int width, int height, int asked, int scale, enum device_type type);

/* Where the network's pixels go on in floats (to a resize, into 16 bits) and the device is asynchronous: the rows of a
 * strip as wide as the picture, in place of tiles. 0: none; whole, or tiles as asked. */
int background_strip(int width, int height, int asked, int scale);

/* Upscales by the reference's whole method, including Lanczos4 to the final size. */
enum error_code background_compat(struct step *step, const struct view_u8 *picture, const struct tile_compat *cut,
                                  double outscale, struct image **out, struct error *err) MUST_CHECK;

#endif
