/* Keeps a face's layer off the faces that were restored before it.
 * Thread-safety: as step.h. */
#ifndef SERVER_PIPELINE_YIELD_H
#define SERVER_PIPELINE_YIELD_H

#include "server/pipeline/step.h"

/* Makes face index's layer transparent where earlier faces' layers show their features. Around these it stays as it
 * is: a crop is larger than its face, and what lies beside one face may be the next. */
void yield_layer(struct step *step, int index);

#endif
