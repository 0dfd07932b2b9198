/* What detect.c offers besides its step.
 * Thread-safety: as step.h. */
#ifndef SERVER_PIPELINE_DETECT_H
#define SERVER_PIPELINE_DETECT_H

#include "server/pipeline/step.h"

/* Whether the picture may be turned by its faces, so that they must be found before anything is made of its pixels. */
bool detect_turns(const struct step *step);

#endif
