/* The models that other programs' clients may name. */
#include <string.h>

#include "server/compat/compat.h"
#include "server/http/fleet.h"
#include "server/http/json.h"

json_t *compat_models(const struct request *request)
{
    if (fleet_is_shared(request)) {
        struct error ignored = ERROR_INIT; /* compat_front_explain tells it */
        json_t *all = fleet_models(request, &ignored);
        return all ? all : json_array();
    }
    json_t *json = json_models(request->server->store, false), *models = json_incref(json_object_get(json, "models"));
    json_decref(json);
    return models;
}

const char *compat_model_text(const json_t *model, const char *key)
{
    const char *text = json_string_value(json_object_get(model, key));
    return text ? text : "";
}

bool compat_model_is(const json_t *model, const char *kind)
{
    return !strcmp(compat_model_text(model, "kind"), kind);
}

const json_t *compat_upscaler(const json_t *models, const char *name)
{
    const json_t *model;
    size_t i;
    json_array_foreach(models, i, model)
    {
        const bool starter = !strcmp(name, "starter") && json_is_true(json_object_get(model, "starter"));
        if (compat_model_is(model, "upscaler") && (starter || !strcmp(compat_model_text(model, "name"), name) ||
                                                   !strcmp(compat_model_text(model, "known_as"), name)))
            return model;
    }
    return NULL;
}
