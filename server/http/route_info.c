/* GET /healthz, /readyz, /metrics, /v1/devices, /v1/models, /v1/capabilities, /openapi.json. None of them waits for a
 * worker. */
#include <stdlib.h>

#include "server/http/json.h"
#include "server/http/model_list.h"
#include "server/http/openapi.h"
#include "server/http/router.h"
#include "server/http/server.h"
#include "server/job/supply.h"

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
    char *text = metrics_render(request->server->metrics, request->server->pool, request->server->keeper, &size);
    return reply_text(request, REPLY_OK, text, size, "text/plain; version=0.0.4; charset=utf-8");
}

/* What all servers with this store have, of the list of that name in what each says of itself; a model that several
 * have comes once. A front has no devices and no models of its own. */
static json_t *route_info_of_all(struct request *request, const char *list)
{
    json_t *all = json_array(), *seen = json_object(),
           *servers = cluster_servers(keeper_cluster(request->server->keeper));
    json_t *server, *row;
    size_t i, k;
    json_array_foreach(servers, i, server)
    {
        json_array_foreach(json_object_get(json_object_get(server, list), list), k, row)
        {
            const char *sha256 = json_string_value(json_object_get(row, "sha256"));
            if (sha256 && json_object_get(seen, sha256))
                continue;
            if (sha256)
                json_object_set_new(seen, sha256, json_true());
            json_array_append(all, row);
        }
    }
    json_decref(servers);
    json_decref(seen);
    return all;
}

/* Whether this server is a front, which tells of the others. */
static bool route_info_is_front(const struct request *request)
{
    return !request->server->checks && request->server->keeper && keeper_cluster(request->server->keeper);
}

enum MHD_Result route_devices(struct request *request)
{
    if (route_info_is_front(request))
        return reply_json(request, REPLY_OK,
                          json_pack("{s:o, s:n}", "devices", route_info_of_all(request, "devices"), "default"));
    struct device_status *list;
    size_t count;
    struct error err = ERROR_INIT;
    if (devices_read(worker_pool_devices(request->server->pool), &list, &count, &err))
        return reply_problem(request, reply_for(err.code), &err, NULL, NULL, NULL);
    json_t *json = json_devices(list, count, request->server->config->precision);
    free(list);
    return reply_json(request, REPLY_OK, json);
}

/* Marks the models that are published, and adds those of them that no server has yet. */
static void route_info_add_published(const struct request *request, json_t *models)
{
    struct error ignored = ERROR_INIT; /* then those of the servers are told alone */
    json_t *published = supply_published(keeper_store(request->server->keeper), &ignored), *row, *model;
    size_t i, k;
    json_array_foreach(models, i, model) json_object_set_new(model, "published", json_false());
    json_array_foreach(published, i, row)
    {
        bool known = false;
        json_array_foreach(models, k, model)
        {
            const bool same = json_equal(json_object_get(model, "sha256"), json_object_get(row, "sha256")) &&
                              json_equal(json_object_get(model, "name"), json_object_get(row, "name"));
            known |= same;
            if (same)
                json_object_set_new(model, "published", json_true());
        }
        model = json_object_get(json_object_get(row, "about"), "model");
        if (known || !json_is_object(model))
            continue;
        json_object_set_new(model, "published", json_true());
        json_array_append(models, model);
    }
    json_decref(published);
}

json_t *route_info_models(struct request *request)
{
    json_t *json = json_models(request->server->store, reply_is_near(request));
    if (json && route_info_is_front(request)) {
        json_t *models = route_info_of_all(request, "models");
        route_info_add_published(request, models);
        json_object_set_new(json, "models", models);
        json_object_set_new(json, "missing", json_array());
    }
    if (json)
        model_list_add_ids(json);
    return json;
}

enum MHD_Result route_models(struct request *request)
{
    size_t size = 0;
    if (route_info_is_front(request))
        return reply_json(request, REPLY_OK, route_info_models(request));
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
    return reply_json(request, REPLY_OK, json);
}

enum MHD_Result route_openapi(struct request *request)
{
    struct server *server = request->server;
    struct route_file file = {.type = "application/json", .owned = true};
    file.bytes = reply_dump(openapi_document(server->config, auth_count(server->auth) > 0), &file.size);
    return file.bytes ? route_static_send(request, &file) : MHD_NO;
}
