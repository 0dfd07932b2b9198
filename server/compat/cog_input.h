/* The inputs of a cog prediction: those of GFPGAN's predictor (img, version, scale), of Real-ESRGAN's (img or image,
 * version or model, scale, face_enhance, tile), and what they make of a picture.
 * Thread-safety: functions without state. */
#ifndef SERVER_COMPAT_COG_INPUT_H
#define SERVER_COMPAT_COG_INPUT_H

#include <jansson.h>

#include "server/compat/hooks.h"
#include "server/pipeline/options.h"

struct cog_input {
    const char *file_name; /* of the input that is the picture */
    double scale;
    int tile;
    bool faces;
    char version[OPTION_NAME_MAX], upsampler[OPTION_NAME_MAX]; /* "": the default */
    struct hook hook;
};

/* Reads "input"; models: of compat_models; *file: the value that is the picture. Unknown inputs are passed over, as
 * there. ERROR_INVALID names the input. */
enum error_code cog_input_read(struct cog_input *out, const json_t *models, const json_t *input, const json_t **file,
                               struct error *err) MUST_CHECK;

/* The options for a picture of this size: one less than 300 px high is doubled first, as there. ERROR_INVALID: the
 * result would have no size. */
enum error_code cog_input_plan(const struct cog_input *input, int width, int height, struct options *out,
                               struct error *err) MUST_CHECK;
/* Options that ask nothing of a picture. */
void cog_input_neutral(struct options *out);

#endif
