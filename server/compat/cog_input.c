#include "server/compat/cog_input.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "server/compat/compat.h"

#define COG_LOW 300 /* px: pictures that are not so high are doubled */

/* What Real-ESRGAN's predictor calls its models. */
static const struct {
    const char *theirs, *ours;
} cog_versions[] = {
    {"General - RealESRGANplus", "RealESRGAN_x4plus"},
    {"General - v3", "realesr-general-x4v3"},
    {"Anime - anime6B", "RealESRGAN_x4plus_anime_6B"},
    {"AnimeVideo - v3", "realesr-animevideov3"},
};
#define COG_VERSIONS (sizeof cog_versions / sizeof *cog_versions)

/* Whether there is an upscaler of that name, into out by the name that it has here. */
static bool cog_has_upscaler(const json_t *models, const char *name, char out[OPTION_NAME_MAX])
{
    const json_t *model = compat_upscaler(models, name);
    if (model)
        snprintf(out, OPTION_NAME_MAX, "%s", compat_model_text(model, "name"));
    return model;
}

static bool cog_is_face(const json_t *models, const char *name)
{
    const json_t *model;
    bool face = false;
    size_t i;
    json_array_foreach(models, i, model) face =
        face || (compat_model_is(model, "face") && !strcmp(compat_model_text(model, "name"), name));
    return face;
}

static enum error_code cog_number(const json_t *input, const char *name, double initial, double most, double *out,
                                  struct error *err)
{
    const json_t *value = json_object_get(input, name);
    *out = json_is_number(value) ? json_number_value(value) : initial;
    return (!value || json_is_number(value) || json_is_null(value)) && *out >= 0 && *out <= most
               ? OK
               : error_set(err, ERROR_INVALID, "%s: it has to be a number from 0 to %g", name, most);
}

/* The upscaler that `version` or `model` names. */
static enum error_code cog_upsampler(struct cog_input *out, const json_t *models, const char *name, const char *value,
                                     struct error *err)
{
    const char *ours = value;
    for (size_t i = 0; i < COG_VERSIONS; i++)
        if (!strcmp(cog_versions[i].theirs, value))
            ours = cog_versions[i].ours;
    if (cog_has_upscaler(models, ours, out->upsampler))
        return OK;
    if (cog_is_face(models, value))
        return error_set(err, ERROR_INVALID, "%s: \"%.60s\" is a face model, and no upscaler; version names those",
                         name, value);
    error_set(err, ERROR_INVALID, "%s: there is no \"%.60s\" on this server; GET /v1/models lists what there is", name,
              value);
    if (ours != value)
        error_local(err, "; it comes with: restored models get %s", ours);
    return ERROR_INVALID;
}

/* GFPGAN's predictor, which takes `img`, has versions of faces, Real-ESRGAN's of upscalers. */
static enum error_code cog_read_version(struct cog_input *out, const json_t *models, const json_t *input,
                                        struct error *err)
{
    const json_t *value = json_object_get(input, "version"), *model = json_object_get(input, "model");
    const char *text = json_string_value(value), *named = json_string_value(model);
    if ((value && !json_is_null(value) && !text) || (model && !json_is_null(model) && !named))
        return error_set(err, ERROR_INVALID, "%s: it has to be text", value && !text ? "version" : "model");
    const json_t *enhance = json_object_get(input, "face_enhance");
    if (enhance && !json_is_boolean(enhance) && !json_is_null(enhance))
        return error_set(err, ERROR_INVALID, "face_enhance: it has to be true or false");
    const bool image = !json_object_get(input, "img") && json_object_get(input, "image");
    bool upscaler = false;
    char found[OPTION_NAME_MAX];
    for (size_t i = 0; text && i < COG_VERSIONS; i++)
        upscaler = upscaler || !strcmp(cog_versions[i].theirs, text);
    if (text &&
        (strcmp(text, "starter") != 0 || (image && !named && !json_is_true(enhance)))) /* there is one of both */
        upscaler = upscaler || cog_has_upscaler(models, text, found);
    const bool second = upscaler || (named && !text) || enhance || json_object_get(input, "tile") || image;
    out->faces = second ? json_is_true(enhance) : true;
    if (text && !upscaler) /* "v1.4" is 1.4 here */
        snprintf(out->version, sizeof out->version, "%s", *text == 'v' && text[1] ? text + 1 : text);
    if (text && !upscaler && second && !out->faces)
        return error_set(err, ERROR_INVALID, "version: \"%.60s\" is no upscaler of this server%s", text,
                         cog_is_face(models, text) ? "; a face model is used with face_enhance" : "");
    if (named || upscaler)
        return cog_upsampler(out, models, named ? "model" : "version", named ? named : text, err);
    (void)cog_has_upscaler(models, "realesr-general-x4v3", out->upsampler); /* theirs, if it is here */
    return OK;
}

enum error_code cog_input_read(struct cog_input *out, const json_t *models, const json_t *input, const json_t **file,
                               struct error *err)
{
    double tile = 0;
    *file = json_object_get(input, "img");
    out->file_name = *file ? "img" : "image";
    if (!*file)
        *file = json_object_get(input, "image");
    if (!json_is_object(input) || !*file)
        return error_set(err, ERROR_INVALID, "img: field required; it is the picture as a data URI");
    enum error_code code = cog_read_version(out, models, input, err);
    if (!code)
        code = cog_number(input, "scale", strcmp(out->file_name, "img") ? 4 : 2, 100, &out->scale, err);
    if (!code)
        code = cog_number(input, "tile", 0, 4096, &tile, err);
    out->tile = tile > 100 ? (int)tile : -1;
    return code;
}

void cog_input_neutral(struct options *out)
{
    options_init(out);
    snprintf(out->version, sizeof out->version, "none");
    snprintf(out->bg_upsampler, sizeof out->bg_upsampler, "none");
    out->upscale = 1;
    out->repair = REPAIR_FALSE;
}

enum error_code cog_input_plan(const struct cog_input *input, int width, int height, struct options *out,
                               struct error *err)
{
    const double by = input->scale * (height < COG_LOW ? 2 : 1);
    const double wide = floor(width * by), high = floor(height * by);
    if (!(wide >= 1 && high >= 1 && wide <= OPTION_SIDE && high <= OPTION_SIDE))
        return error_set(err, ERROR_INVALID, "scale: of a picture of %d × %d pixels nothing would be left, or too much",
                         width, height);
    options_init(out);
    snprintf(out->version, sizeof out->version, "%s", input->faces ? input->version : "none");
    snprintf(out->bg_upsampler, sizeof out->bg_upsampler, "%s", input->upsampler);
    out->faces = input->faces ? FACES_ALL : FACES_NONE;
    out->repair = REPAIR_FALSE;
    out->width = (int)wide;
    out->height = (int)high;
    out->fit = FIT_FILL;
    out->bg_tile = input->tile;
    return OK;
}
