/* How large a result becomes: upscale times the picture, or what width, height, max_side and fit ask for.
 * Thread-safety: functions without state. */
#ifndef SERVER_PIPELINE_SIZE_H
#define SERVER_PIPELINE_SIZE_H

#include "server/pipeline/options.h"

struct size {
    int width, height;           /* of the whole picture, at the result's scale, px */
    int kept_width, kept_height; /* what the result has of its middle: less with fit=cover */
};

/* Whether width, height or max_side decide. */
bool size_asked(const struct options *options);

/* Which of them contradict each other or another option. */
enum error_code size_check(const struct options *options, struct error *err) MUST_CHECK;

/* For a picture of this size. upscale: int(w·s), in double, as the reference computes it. */
void size_of(const struct options *options, int width, int height, struct size *out);

#endif
