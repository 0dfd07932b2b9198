/* A restored face keeps the colours of the picture (preserve_color): a network that was trained on colour photos tints
 * black-and-white and toned ones, and shifts the skin of others.
 * Thread-safety: as step.h. */
#ifndef SERVER_PIPELINE_TINT_H
#define SERVER_PIPELINE_TINT_H

#include "server/pipeline/step.h"

/* Gives face->restoration_float the low frequencies of the crop's chroma; its brightness stays. Of a black-and-white or
 * toned picture, whose chroma follows from its brightness, the high ones do, too. Both float pictures must be there. */
enum error_code tint_keep(const struct restoration *r, struct face *face, struct error *err) MUST_CHECK;

#endif
