#include "server/http/fleet.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "server/http/json.h"
#include "server/http/server.h"
#include "server/job/ask.h"
#include "server/job/offers.h"
#include "server/job/record.h"
#include "server/job/supply.h"

#define FLEET_SEEN_SECONDS 20 /* a server that was not seen for so long is not waited for */

bool fleet_is_shared(const struct request *request)
{
    return request->server->keeper && keeper_cluster(request->server->keeper);
}

/* --- whose a request is --------------------------------------------------------------------------------------------
 */

const struct model_store *fleet_checks(const struct request *request)
{
    return request->elsewhere ? NULL : request->server->checks;
}

/* Whether all these models are published, or on other servers. */
static bool fleet_has(const struct request *request, const json_t *needs)
{
    struct error ignored = ERROR_INIT; /* then they are refused as unknown */
    bool anybody;
    json_t *lacking = cluster_lacking(keeper_cluster(request->server->keeper), needs, &anybody), *need, *row, *name;
    json_t *published =
        json_array_size(lacking) ? supply_published(keeper_store(request->server->keeper), &ignored) : NULL;
    size_t i, k, n;
    bool all = anybody;
    json_array_foreach(lacking, i, need)
    {
        bool found = false;
        json_array_foreach(published, k, row)
        {
            found = found || json_equal(need, json_object_get(row, "name"));
            json_array_foreach(json_object_get(json_object_get(row, "about"), "names"), n, name) found =
                found || json_equal(need, name);
        }
        all = all && found;
    }
    json_decref(published);
    json_decref(lacking);
    return all;
}

void fleet_choose(struct request *request, const struct restoration *r)
{
    const struct model_store *own = request->server->checks;
    request->elsewhere = false;
    char *text = own && fleet_is_shared(request) ? record_needs(r) : NULL, *offers = text ? offers_own(own) : NULL;
    json_t *needs = text ? json_loads(text, 0, NULL) : NULL;
    json_t *here = offers ? json_pack("[o]", json_loads(offers, 0, NULL)) : NULL;
    json_t *lacking = here && needs ? offers_lacking(here, needs) : NULL;
    if (json_array_size(lacking))
        request->elsewhere = fleet_has(request, needs);
    json_decref(lacking);
    json_decref(here);
    json_decref(needs);
    free(offers);
    free(text);
}

/* --- lists ---------------------------------------------------------------------------------------------------------
 */

/* This server's own part of such a list. */
static json_t *fleet_own(const struct request *request, const char *list)
{
    const struct server *server = request->server;
    struct device_status *devices = NULL;
    struct error ignored = ERROR_INIT; /* then it has none now */
    size_t count = 0;
    json_t *json = NULL;
    if (!strcmp(list, "models"))
        json = json_models(server->store, reply_is_near(request));
    else if (!devices_read(worker_pool_devices(server->pool), &devices, &count, &ignored))
        json = json_devices(devices, count, server->config->precision);
    free(devices);
    json_t *rows = json_incref(json_object_get(json, list));
    json_decref(json);
    return rows ? rows : json_array();
}

/* Adds a server's list to those of all. */
static void fleet_gather(json_t *all, json_t *seen, const json_t *server, const char *list, bool others)
{
    json_t *row;
    size_t i;
    json_array_foreach(json_object_get(json_object_get(server, list), list), i, row)
    {
        const char *sha256 = json_string_value(json_object_get(row, "sha256"));
        if (sha256 && json_object_get(seen, sha256))
            continue;
        if (sha256)
            json_object_set_new(seen, sha256, json_true());
        if (!strcmp(list, "devices"))
            json_object_set_new(row, "worker",
                                json_sprintf("%s:%d", json_string_value(json_object_get(server, "host")),
                                             (int)json_integer_value(json_object_get(server, "pid"))));
        else if (others) /* this server has defaults of its own */
            json_object_set_new(row, "default", json_false());
        json_array_append(all, row);
    }
}

json_t *fleet_list(const struct request *request, const char *list, struct error *err)
{
    struct keeper *keeper = request->server->keeper;
    const bool computes = request->server->checks;
    struct error ignored = ERROR_INIT; /* a server that computes tells of itself then */
    json_t *servers = cluster_servers(keeper_cluster(keeper), computes ? &ignored : err), *server, *row;
    json_t *all = computes ? fleet_own(request, list) : servers ? json_array() : NULL, *seen = json_object();
    size_t i;
    json_array_foreach(all, i, row)
    {
        const char *sha256 = json_string_value(json_object_get(row, "sha256"));
        if (sha256)
            json_object_set_new(seen, sha256, json_true());
    }
    json_array_foreach(servers, i, server)
    {
        const char *owner = json_string_value(json_object_get(server, "owner"));
        if (!computes || strcmp(owner, keeper_owner(keeper)) != 0)
            fleet_gather(all, seen, server, list, computes);
    }
    json_decref(servers);
    json_decref(seen);
    return all;
}

json_t *fleet_models(const struct request *request, struct error *err)
{
    struct error ignored = ERROR_INIT; /* then those of the servers are told alone */
    json_t *models = fleet_list(request, "models", err), *row, *model;
    json_t *published = models ? supply_published(keeper_store(request->server->keeper), &ignored) : NULL;
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
    return models;
}

static bool fleet_has_value(const json_t *values, const json_t *value)
{
    const json_t *other;
    size_t i;
    json_array_foreach(values, i, other) if (json_equal(other, value)) return true;
    return false;
}

/* Adds a value that is not in the list yet. */
static void fleet_add(json_t *values, json_t *value)
{
    if (!fleet_has_value(values, value))
        json_array_append(values, value);
}

/* Puts the models of a kind into an option of the document; own: behind those that it has. */
static void fleet_tell_option(json_t *option, const json_t *models, const char *kind, bool own)
{
    json_t *values = own ? json_incref(json_object_get(option, "values")) : json_array();
    json_t *licences = own ? json_incref(json_object_get(option, "models")) : json_array();
    json_t *standard = own ? json_object_get(option, "default") : NULL, *model;
    size_t i;
    json_array_foreach(models, i, model)
    {
        json_t *name = json_object_get(model, "name");
        const char *its = json_string_value(json_object_get(model, "kind"));
        if (!its || strcmp(its, kind) != 0 || (own && fleet_has_value(values, name)))
            continue;
        fleet_add(values, name);
        json_array_append_new(licences,
                              json_pack("{s:O, s:O, s:O}", "name", name, "licence", json_object_get(model, "licence"),
                                        "non_commercial", json_object_get(model, "non_commercial")));
        if (!standard && json_is_true(json_object_get(model, "default")))
            standard = name;
    }
    if (!own && strcmp(kind, "detector") != 0)
        json_array_append_new(values, json_string("none"));
    json_object_set(option, "default", standard ? standard : json_null());
    json_object_set_new(option, "values", values);
    json_object_set_new(option, "models", licences);
}

void fleet_tell_capabilities(const struct request *request, json_t *capabilities)
{
    static const char *const roles[][2] = {{"version", "face"},
                                           {"bg_upsampler", "upscaler"},
                                           {"detector", "detector"},
                                           {"damage_detector", "damage"},
                                           {"fill", "filler"}};
    struct error ignored = ERROR_INIT; /* then only what every server has is told */
    json_t *models = fleet_models(request, &ignored), *devices = fleet_list(request, "devices", &ignored), *option,
           *device;
    size_t i, k;
    json_array_foreach(json_object_get(capabilities, "options"), i, option)
    {
        const char *name = json_string_value(json_object_get(option, "name"));
        for (k = 0; name && k < sizeof roles / sizeof *roles; k++)
            if (!strcmp(name, roles[k][0]))
                fleet_tell_option(option, models, roles[k][1], request->server->checks);
        if (name && !strcmp(name, "device"))
            json_array_foreach(devices, k, device)
                fleet_add(json_object_get(option, "values"), json_object_get(device, "id"));
    }
    json_decref(devices);
    json_decref(models);
}

/* --- estimates -----------------------------------------------------------------------------------------------------
 */

struct fleet_ask {
    struct ask ask;
    bool waiting;
    double queue_seconds;
};

static void fleet_resume(void *context)
{
    MHD_resume_connection(context);
}

/* A store_needs_fn. */
static void fleet_add_waiting(void *context, const char *needs, uint64_t jobs, double megapixels)
{
    (void)needs, (void)jobs;
    *(double *)context += megapixels;
}

/* Servers that answer questions; *wait: seconds until the jobs that wait have begun, by the speeds that these have
 * measured. 0: there is none, or err says why that is not known. */
static int fleet_count(const struct request *request, double *wait, struct error *err)
{
    struct keeper *keeper = request->server->keeper;
    struct error ignored = ERROR_INIT;
    json_t *servers = cluster_servers(keeper_cluster(keeper), err), *server;
    double waiting = 0, seconds = 0;
    int count = 0, measured = 0;
    size_t i;
    if (store_needs(keeper_store(keeper), fleet_add_waiting, &waiting, &ignored))
        waiting = 0;
    json_array_foreach(servers, i, server)
    {
        const json_t *speed = json_object_get(server, "megapixel_seconds");
        if (!json_is_true(json_object_get(server, "works")) || !json_is_true(json_object_get(server, "answers")) ||
            json_number_value(json_object_get(server, "seen_seconds")) > FLEET_SEEN_SECONDS)
            continue;
        count++;
        measured += speed != NULL;
        seconds += json_number_value(speed);
    }
    json_decref(servers);
    *wait = count ? waiting * (measured ? seconds / measured : 1) / count : 0;
    return count;
}

enum error_code fleet_ask(struct request *request, const struct restoration *r, int faces, struct error *err)
{
    double wait;
    const int count = fleet_count(request, &wait, err);
    if (err->code)
        return err->code;
    if (!count)
        return error_set(err, ERROR_BUSY, "no server that takes jobs is connected to the database");
    char *options = record_options(r);
    struct fleet_ask *asked = mem_calloc(1, sizeof *asked);
    json_t *question =
        options ? json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i}", "estimate", options, "width", r->in_info.width,
                            "height", r->in_info.height, "bits", r->in_info.bits, "channels", r->in_info.channels,
                            "format", (int)r->in_info.format, "faces", faces)
                : NULL;
    free(options);
    if (!asked || !question) {
        free(asked);
        json_decref(question);
        return error_set(err, ERROR_NO_MEMORY, "no memory for a question");
    }
    asked->queue_seconds = wait;
    asked->ask = (struct ask){.wanted = count, .done = fleet_resume, .context = request->connection};
    request->asked = asked;
    asked->waiting = true;
    connection_holding(request->link);
    MHD_suspend_connection(request->connection);
    struct error why = ERROR_INIT;
    if (asks_put(request->server->asks, &asked->ask, question, &why)) {
        json_array_append_new(asked->ask.answers,
                              json_pack("{s:s, s:s}", "code", error_code_name(why.code), "text", why.text));
        MHD_resume_connection(request->connection);
    }
    return OK;
}

enum error_code fleet_estimated(struct request *request, struct estimate *out, const char **device, json_t **document,
                                struct error *err)
{
    struct fleet_ask *asked = request->asked;
    const json_t *answer, *best = NULL, *refused = NULL;
    size_t i;
    bool decoded;
    asked->waiting = false;
    connection_sending(request->link);
    *document = json_incref(asked->ask.answers);
    json_array_foreach(asked->ask.answers, i, answer)
    {
        const double seconds = json_number_value(json_object_get(answer, "seconds"));
        if (json_object_get(answer, "code"))
            refused = answer;
        else if (!best || seconds < json_number_value(json_object_get(best, "seconds")))
            best = answer;
    }
    if (!best && !refused)
        return error_set(err, ERROR_BUSY, "no server that takes jobs has answered");
    if (!best) {
        char *text = json_dumps(refused, JSON_COMPACT);
        record_read_error(text, err, &decoded);
        free(text);
        return err->code;
    }
    *out = (struct estimate){.seconds = json_number_value(json_object_get(best, "seconds")),
                             .low = json_number_value(json_object_get(best, "low")),
                             .high = json_number_value(json_object_get(best, "high")),
                             .queue_seconds = asked->queue_seconds,
                             .memory = (uint64_t)json_integer_value(json_object_get(best, "memory")),
                             .tiles = (int)json_integer_value(json_object_get(best, "tiles")),
                             .width = (int)json_integer_value(json_object_get(best, "width")),
                             .height = (int)json_integer_value(json_object_get(best, "height")),
                             .measured = json_is_true(json_object_get(best, "measured"))};
    *device = json_string_value(json_object_get(best, "device"));
    *device = *device ? *device : "";
    return OK;
}

void fleet_forget(struct request *request)
{
    struct fleet_ask *asked = request->asked;
    if (!asked)
        return;
    if (asked->waiting)
        asks_leave(request->server->asks, &asked->ask);
    json_decref(asked->ask.answers);
    free(asked);
    request->asked = NULL;
}

/* --- of a worker ---------------------------------------------------------------------------------------------------
 */

static enum error_code fleet_predict(struct server *server, const json_t *question, struct estimate *out,
                                     struct error *err)
{
    const struct limits limits = server_limits(server->config);
    const struct model_entry *models[ROLE_COUNT];
    struct restoration *r = NULL;
    const json_t *faces = json_object_get(question, "faces");
    enum error_code code =
        record_restoration(json_string_value(json_object_get(question, "estimate")), &limits, &r, err);
    if (code)
        return code;
    r->in_info.width = (int)json_integer_value(json_object_get(question, "width"));
    r->in_info.height = (int)json_integer_value(json_object_get(question, "height"));
    r->in_info.bits = (int)json_integer_value(json_object_get(question, "bits"));
    r->in_info.channels = (int)json_integer_value(json_object_get(question, "channels"));
    r->in_info.format = (enum image_format)json_integer_value(json_object_get(question, "format"));
    if (r->in_info.width < 1 || r->in_info.height < 1 || r->in_info.format <= 0 ||
        r->in_info.format >= IMAGE_FORMAT_COUNT)
        code = error_set(err, ERROR_INVALID, "the size of the picture is missing");
    if (!code)
        code = pipeline_check_size(r, server->store, models, err);
    if (!code)
        code = worker_pool_estimate(server->pool, r, models, faces ? (int)json_integer_value(faces) : -1, "", false,
                                    out, err);
    restoration_destroy(&r);
    return code;
}

json_t *fleet_answer(void *context, const json_t *question)
{
    struct server *server = context;
    struct estimate estimate;
    struct error err = ERROR_INIT;
    if (!json_object_get(question, "estimate"))
        return NULL;
    if (fleet_predict(server, question, &estimate, &err))
        return json_pack("{s:s, s:s}", "code", error_code_name(err.code), "text", err.text);
    return json_pack("{s:f, s:f, s:f, s:I, s:i, s:i, s:i, s:s, s:b}", "seconds", estimate.seconds, "low", estimate.low,
                     "high", estimate.high, "memory", (json_int_t)estimate.memory, "tiles", estimate.tiles, "width",
                     estimate.width, "height", estimate.height, "device",
                     devices_id(worker_pool_devices(server->pool), estimate.device), "measured", estimate.measured);
}
