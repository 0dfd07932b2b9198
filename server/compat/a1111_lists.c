/* The models in A1111's form: its names, those of modules/realesrgan_model.py, and its lists. */
#include <string.h>

#include "server/compat/a1111.h"
#include "server/compat/compat.h"

/* What it calls the models that have a name of their own here. */
static const struct {
    const char *theirs, *ours;
} a1111_names[] = {
    {"R-ESRGAN 4x+", "RealESRGAN_x4plus"},
    {"R-ESRGAN 4x+ Anime6B", "RealESRGAN_x4plus_anime_6B"},
    {"R-ESRGAN 2x+", "RealESRGAN_x2plus"},
    {"R-ESRGAN General 4xV3", "realesr-general-x4v3"},
    {"R-ESRGAN General WDN 4xV3", "realesr-general-wdn-x4v3"},
    {"R-ESRGAN AnimeVideo", "realesr-animevideov3"},
};
#define A1111_NAMES (sizeof a1111_names / sizeof *a1111_names)

/* What a model is called there. */
static const char *a1111_theirs(const json_t *model)
{
    for (size_t i = 0; i < A1111_NAMES; i++)
        if (!strcmp(compat_model_text(model, "name"), a1111_names[i].ours) ||
            !strcmp(compat_model_text(model, "known_as"), a1111_names[i].ours))
            return a1111_names[i].theirs;
    return compat_model_text(model, "name");
}

const char *a1111_ours(const char *theirs)
{
    for (size_t i = 0; i < A1111_NAMES; i++)
        if (!strcmp(a1111_names[i].theirs, theirs))
            return a1111_names[i].ours;
    return theirs;
}

/* The row with what our own lists say of the model's licence. */
static json_t *a1111_terms(json_t *row, const json_t *model)
{
    json_object_set(row, "licence", json_object_get(model, "licence"));
    json_object_set(row, "non_commercial", json_object_get(model, "non_commercial"));
    return row;
}

static json_t *a1111_row(const char *name, json_t *model, int scale)
{
    return json_pack("{s:s, s:o, s:n, s:n, s:i}", "name", name, "model_name", model, "model_path", "model_url", "scale",
                     scale);
}

enum MHD_Result a1111_upscalers(struct request *request)
{
    json_t *list = json_array(), *models = compat_models(request), *model;
    size_t i;
    json_array_append_new(list, a1111_row("None", json_null(), 4));
    json_array_append_new(list, a1111_row("Lanczos", json_null(), 4));
    json_array_foreach(models, i, model) if (compat_model_is(model, "upscaler")) json_array_append_new(
        list, a1111_terms(a1111_row(a1111_theirs(model), json_string(compat_model_text(model, "name")),
                                    (int)json_integer_value(json_object_get(model, "scale"))),
                          model));
    json_decref(models);
    return reply_json(request, REPLY_OK, list);
}

enum MHD_Result a1111_realesrgan_models(struct request *request)
{
    json_t *list = json_array(), *models = compat_models(request), *model;
    size_t i;
    json_array_foreach(models, i, model)
    {
        const char *theirs = a1111_theirs(model);
        if (compat_model_is(model, "upscaler") && theirs != compat_model_text(model, "name"))
            json_array_append_new(list, a1111_terms(json_pack("{s:s, s:n, s:O}", "name", theirs, "path", "scale",
                                                              json_object_get(model, "scale")),
                                                    model));
    }
    json_decref(models);
    return reply_json(request, REPLY_OK, list);
}

enum MHD_Result a1111_face_restorers(struct request *request)
{
    json_t *list = json_array(), *models = compat_models(request), *model, *codeformer = NULL, *other = NULL,
           *standard = NULL;
    size_t i;
    json_array_foreach(models, i, model)
    {
        if (!compat_model_is(model, "face"))
            continue;
        json_t **first = strcmp(compat_model_text(model, "architecture"), "CodeFormer") ? &other : &codeformer;
        *first = *first ? *first : model;
        if (json_is_true(json_object_get(model, "default")))
            standard = model; /* what the name GFPGAN stands for */
    }
    if (codeformer)
        json_array_append_new(list, a1111_terms(json_pack("{s:s, s:n}", "name", "CodeFormer", "cmd_dir"), codeformer));
    if (other)
        json_array_append_new(
            list, a1111_terms(json_pack("{s:s, s:n}", "name", "GFPGAN", "cmd_dir"), standard ? standard : other));
    json_decref(models);
    return reply_json(request, REPLY_OK, list);
}
