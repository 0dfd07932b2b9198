/* What a licence's name tells.
 * Thread-safety: a function without state. */
#ifndef SERVER_PIPELINE_LICENCE_H
#define SERVER_PIPELINE_LICENCE_H

#include <stdbool.h>

/* Whether a licence of that name forbids commercial use: "CC-BY-NC-SA-4.0" and others of that family, "S-Lab 1.0",
 * and what says "non-commercial" itself. */
bool licence_non_commercial(const char *name);

#endif
