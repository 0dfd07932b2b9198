/* What align.c offers besides its step.
 * Thread-safety: as step.h. */
#ifndef SERVER_PIPELINE_ALIGN_H
#define SERVER_PIPELINE_ALIGN_H

#include "server/pipeline/step.h"

/* The side of the face network's square, in px; 512 without a face network. */
enum error_code align_face_size(struct step *step, int *size, struct error *err) MUST_CHECK;

/* The crop of a face whose affine and size are set. Part of align_step. */
enum error_code align_warp(const struct restoration *r, struct face *face, struct error *err) MUST_CHECK;

#endif
