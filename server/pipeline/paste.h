/* Where the restored faces lie in the result and how they are blended into it, for the background and for tests.
 * Thread-safety: as step.h. */
#ifndef SERVER_PIPELINE_PASTE_H
#define SERVER_PIPELINE_PASTE_H

#include "server/pipeline/step.h"

/* Places the chosen faces in the result and, except with compat, turns them into the layers that are laid over the
 * background as it is rounded. Does nothing if that was done already, while the device worked on the background. */
enum error_code paste_layers(struct step *step, struct error *err) MUST_CHECK;
/* Frees both. */
void paste_end(struct step *step);
/* Lays the layers over a row of the unrounded background (width × RGB), changing it, and rounds it into r->result.
 * rest: what the picture's colours have beyond sRGB there, or NULL. Several threads may do different rows. */
void paste_background_row(struct step *step, int y, float *row, const float *rest);
/* ParseNet's labels -> opacity 0..1, size×size. */
enum error_code paste_parse_mask(const uint8_t *classes, int size, double *mask, struct error *err) MUST_CHECK;
/* The square mask in a patch's rectangle: eroded (e) and its blurred core (soft); both hold rect.width × rect.height.
 */
enum error_code paste_square_mask(const struct step *step, const struct patch *patch, int size, float *eroded,
                                  float *soft, struct error *err) MUST_CHECK;

#endif
