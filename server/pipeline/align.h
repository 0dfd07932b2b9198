/* What align.c offers besides its step.
 * Thread-safety: as step.h. */
#ifndef SERVER_PIPELINE_ALIGN_H
#define SERVER_PIPELINE_ALIGN_H

#include "server/pipeline/step.h"

/* The crop of a face whose affine and size are set. Part of align_step. */
enum error_code align_warp(const struct restoration *r, struct face *face, struct error *err) MUST_CHECK;

#endif
