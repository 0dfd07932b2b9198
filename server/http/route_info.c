/* GET /healthz, /readyz, /metrics, /v1/devices, /v1/models, /v1/capabilities, /openapi.json. None of them waits for a
 * worker. */
#include <stdlib.h>

#include "server/http/fleet.h"
#include "server/http/json.h"
#include "server/http/model_list.h"
#include "server/http/openapi.h"
#include "server/http/route_jobs.h"
#include "server/http/router.h"
#include "server/http/server.h"

enum MHD_Result route_healthz(struct request *request)
{
    return reply_json(request, REPLY_OK, json_pack("{s:s}", "status", "ok"));
}

enum MHD_Result route_readyz(struct request *request)
{
    struct worker_pool *pool = request->server->pool;
    struct error why[SERVER_REASONS_MAX];
    char text[sizeof why->text];
    json_t *reasons = json_array(), *devices = json_array(), *models = json_array();
    const int reason_count = server_reasons(request->server, why);
    for (int i = 0; i < reason_count; i++)
        json_array_append_new(reasons, json_string(reply_sentence(text, request, &why[i])));

    struct device_status *list;
    size_t count;
    if (!devices_read(worker_pool_devices(pool), &list, &count, NULL)) {
        for (size_t i = 0; i < count; i++)
            if (list[i].open)
                json_array_append_new(devices, json_string(list[i].info.id));
        free(list);
    }
    char loaded[ROLE_COUNT][128];
    worker_pool_loaded(pool, loaded);
    for (int role = 0; role < ROLE_COUNT; role++)
        if (*loaded[role])
            json_array_append_new(models, json_string(loaded[role]));
    const bool ready = !reason_count;
    return reply_json(
        request, ready ? REPLY_OK : REPLY_UNAVAILABLE,
        json_pack("{s:b, s:o, s:o, s:o}", "ready", ready, "reasons", reasons, "devices", devices, "models", models));
}

enum MHD_Result route_metrics(struct request *request)
{
    size_t size = 0;
    char *text = metrics_render(request->server->metrics, request->server->pool, request->server->keeper,
                                config_role_name(server_config(request->server)->role), &size);
    return reply_text(request, REPLY_OK, text, size, "text/plain; version=0.0.4; charset=utf-8");
}

enum MHD_Result route_devices(struct request *request)
{
    struct error err = ERROR_INIT;
    struct device_status *list;
    size_t count;
    if (fleet_is_shared(request) && !request->server->checks) {
        json_t *all = fleet_list(request, "devices", &err);
        return all ? reply_json(request, REPLY_OK, json_pack("{s:o, s:n}", "devices", all, "default"))
                   : route_jobs_fail(request, reply_for(err.code), &err);
    }
    if (devices_read(worker_pool_devices(request->server->pool), &list, &count, &err))
        return reply_problem(request, reply_for(err.code), &err, NULL, NULL, NULL);
    json_t *json = json_devices(list, count, request->server->config->precision);
    free(list);
    if (fleet_is_shared(request))
        json_object_set_new(json, "devices", fleet_list(request, "devices", &err));
    return reply_json(request, REPLY_OK, json);
}

json_t *route_info_models(struct request *request, struct error *err)
{
    json_t *models = fleet_is_shared(request) ? fleet_models(request, err) : NULL;
    if (err->code)
        return NULL;
    json_t *json = json_models(request->server->store, reply_is_near(request));
    if (models)
        json_object_set_new(json, "models", models);
    if (models && !request->server->checks) {
        json_object_set_new(json, "missing", json_array());
        json_object_set_new(json, "unread", json_array());
    }
    if (json)
        model_list_add_ids(json);
    return json;
}

enum MHD_Result route_models(struct request *request)
{
    size_t size = 0;
    if (fleet_is_shared(request)) {
        struct error err = ERROR_INIT;
        json_t *json = route_info_models(request, &err);
        return json ? reply_json(request, REPLY_OK, json) : route_jobs_fail(request, reply_for(err.code), &err);
    }
    char *text = model_list_text(request->server->model_list, reply_is_near(request), &size);
    return reply_text(request, REPLY_OK, text, size, "application/json");
}

enum MHD_Result route_capabilities(struct request *request)
{
    struct server *server = request->server;
    struct device_status *list = NULL;
    size_t count = 0;
    struct error err = ERROR_INIT;
    if (devices_read(worker_pool_devices(server->pool), &list, &count, &err))
        return reply_problem(request, reply_for(err.code), &err, NULL, NULL, NULL);
    json_t *json = json_capabilities(server->config, server->store, list, count);
    free(list);
    if (fleet_is_shared(request))
        fleet_tell_capabilities(request, json);
    return reply_json(request, REPLY_OK, json);
}

enum MHD_Result route_openapi(struct request *request)
{
    struct server *server = request->server;
    struct route_file file = {.type = "application/json", .owned = true};
    file.bytes = reply_dump(openapi_document(server->config, auth_count(server->auth) > 0), &file.size);
    return file.bytes ? route_static_send(request, &file) : MHD_NO;
}
