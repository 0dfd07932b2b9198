/* Mixes two results of one picture, sample by sample.
 * Thread-safety: a struct restoration belongs to one thread at a time. */
#ifndef SERVER_PIPELINE_BLEND_H
#define SERVER_PIPELINE_BLEND_H

#include "server/pipeline/pipeline.h"

/* Puts other_share of the result and the rest of r->other, which is of the same size and form, into r->result, as
 * PIL's Image.blend does; frees r->other. ERROR_INVALID: they differ in size or form. */
enum error_code blend_result(struct restoration *r, struct error *err) MUST_CHECK;

#endif
