/* Which of the faces that detect.c found are faces, and which of these are restored.
 * Thread-safety: as step.h. */
#ifndef SERVER_PIPELINE_DETECT_CHOOSE_H
#define SERVER_PIPELINE_DETECT_CHOOSE_H

#include "server/pipeline/step.h"

/* Marks every face that is none, was found twice, or is excluded by the options, with the reason. Part of
 * detect_step. */
enum error_code detect_choose(struct step *step, struct error *err) MUST_CHECK;

/* Whether the landmarks can be those of a face in its box. */
bool detect_possible(const struct face *face);

/* Whether the middle of the face's features lies in the box. */
bool detect_around(const double box[4], const struct face *face);

#endif
