/* A tiny run of a network, before a file of it is trusted with pictures.
 * Thread-safety: for any thread. */
#ifndef SERVER_PIPELINE_MODEL_TRIAL_H
#define SERVER_PIPELINE_MODEL_TRIAL_H

#include "runtime/models/model.h"

/* Runs the model once on the CPU, at the smallest of its usual shapes, with waves in its range. *side: of the picture,
 * px. ERROR_CORRUPT: not all it gave is finite; else the errors of device_open and plan_run. */
enum error_code model_trial(const struct model *model, int *side, struct error *err) MUST_CHECK;

/* The first tensor of the file with a value that is not finite; NULL: there is none, or memory is out. Reads all. */
const char *model_not_finite(const struct model *model);

#endif
