/* The upscaled picture keeps its mean colour (preserve_color): many upscalers make pictures some levels brighter,
 * darker or more yellow. Thread-safety: as step.h. */
#ifndef SERVER_PIPELINE_BALANCE_H
#define SERVER_PIPELINE_BALANCE_H

#include "server/pipeline/step.h"

/* Shifts each channel of r->result, outside of the faces laid over it, so that its mean is the picture's; a result that
 * is close enough stays as it is. The layers must still be there. */
enum error_code balance_result(struct step *step, struct error *err) MUST_CHECK;

#endif
