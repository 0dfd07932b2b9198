#include "server/http/openapi.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/embed.h"
#include "server/http/dialect.h"
#include "server/http/json.h"
#include "server/http/openapi_rows.h"
#include "server/http/openapi_schema.h"
#include "server/http/router.h"
#include "server/image/codec.h"
#include "server/version.h"

/* --- parts ---------------------------------------------------------------------------------------------------------
 */

static json_t *openapi_reference(const char *kind, const char *name)
{
    char text[120];
    snprintf(text, sizeof text, "#/components/%s/%s", kind, name);
    return json_pack("{s:s}", "$ref", text);
}

/* The next of some words with blanks between, into out; false after the last. */
static bool openapi_word(const char **at, char out[64])
{
    if (!*at)
        return false;
    *at += strspn(*at, " ");
    const size_t size = strcspn(*at, " ");
    snprintf(out, 64, "%.*s", (int)size, *at);
    *at += size;
    return *out;
}

/* The content of a body by its words. */
static json_t *openapi_content(const char *words)
{
    json_t *content = json_object();
    char word[64];
    while (openapi_word(&words, word)) {
        const bool media = strchr(word, '/');
        for (enum image_format format = IMAGE_JPEG; !strcmp(word, "Pictures") && format < IMAGE_FORMAT_COUNT; format++)
            if (codec_max_side(format) > 0)
                json_object_set_new(content, codec_media_type(format),
                                    json_pack("{s:o}", "schema", openapi_schema("binary", NULL)));
        if (!strcmp(word, "Pictures"))
            continue;
        const char *type = !media ? word : strncmp(word, "text/", 5) != 0 ? "binary" : "string";
        json_t *body = json_pack("{s:o}", "schema", openapi_schema(type, NULL));
        if (!strcmp(word, "text/event-stream")) /* OpenAPI 3.1 cannot say what the events hold */
            json_object_set_new(body, "x-event-data",
                                json_pack("{s:[o, o, o]}", "anyOf", openapi_schema("Job", NULL),
                                          openapi_schema("JobEvent", NULL), openapi_schema("JobSummary", NULL)));
        json_object_set_new(content, media ? word : "application/json", body);
    }
    return content;
}

static json_t *openapi_header_list(const char *words)
{
    json_t *list = json_pack("{s:o}", "X-Request-Id", openapi_reference("headers", "X-Request-Id"));
    char word[64];
    while (openapi_word(&words, word))
        json_object_set_new(list, word, openapi_reference("headers", word));
    return list;
}

/* "Not Found" -> "NotFound", the name of that answer in components. */
static void openapi_reply_name(enum reply reply, char out[64])
{
    size_t used = 0;
    for (const char *at = reply_title(reply); *at && used < 63; at++)
        if (*at != ' ')
            out[used++] = *at;
    out[used] = 0;
}

static json_t *openapi_problem(enum reply reply)
{
    static const struct {
        enum reply reply;
        const char *headers;
    } more[] = {{REPLY_UNAUTHORIZED, "WWW-Authenticate"},
                {REPLY_METHOD_NOT_ALLOWED, "Allow"},
                {REPLY_QUEUE_FULL, "Retry-After"},
                {REPLY_UNAVAILABLE, "Retry-After"}};
    const char *names = NULL;
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        names = reply_status(more[i].reply) == reply_status(reply) ? more[i].headers : names;
    char help[200];
    size_t used = (size_t)snprintf(help, sizeof help, "%s. code:", reply_title(reply)), i;
    json_t *codes = reply_codes(reply_status(reply)), *code;
    json_array_foreach(codes, i, code) used +=
        (size_t)snprintf(help + used, sizeof help - used, "%s %s", i ? "," : "", json_string_value(code));
    json_decref(codes);
    return json_pack("{s:s, s:o, s:{s:{s:o}}}", "description", help, "headers", openapi_header_list(names), "content",
                     "application/problem+json", "schema", openapi_schema("Problem", NULL));
}

static json_t *openapi_responses(void)
{
    json_t *all = json_object();
    char name[64];
    for (enum reply reply = REPLY_BAD_REQUEST; reply < REPLY_COUNT; reply++) {
        openapi_reply_name(reply, name);
        if (reply != REPLY_CLIENT_GONE && !json_object_get(all, name))
            json_object_set_new(all, name, openapi_problem(reply));
    }
    json_object_set_new(all, "Problem",
                        json_pack("{s:s, s:o, s:{s:{s:o}}}", "description", "Any other error.", "headers",
                                  openapi_header_list(NULL), "content", "application/problem+json", "schema",
                                  openapi_schema("Problem", NULL)));
    return all;
}

static json_t *openapi_headers(void)
{
    json_t *all = json_object();
    for (size_t i = 0; i < openapi_header_count; i++)
        json_object_set_new(all, openapi_header_rows[i].name,
                            json_pack("{s:s, s:o}", "description", openapi_header_rows[i].help, "schema",
                                      openapi_schema(openapi_header_rows[i].type, NULL)));
    return all;
}

static json_t *openapi_bounded(const struct openapi_parameter *parameter)
{
    json_t *schema = openapi_schema(parameter->type, NULL);
    const bool number = !strcmp(parameter->type, "integer");
    if (parameter->pattern)
        json_object_set_new(schema, "pattern", json_string(parameter->pattern));
    if (parameter->most) {
        json_object_set_new(schema, number ? "minimum" : "minLength", json_integer(parameter->least));
        json_object_set_new(schema, number ? "maximum" : "maxLength", json_integer(parameter->most));
    }
    return schema;
}

/* A query parameter with the value of an option or a field. Takes the schema over. */
static json_t *openapi_query(const char *name, json_t *schema)
{
    json_t *help = json_incref(json_object_get(schema, "description"));
    json_object_del(schema, "description");
    return json_pack("{s:s, s:s, s:o, s:o}", "name", name, "in", "query", "description", help, "schema", schema);
}

static json_t *openapi_parameters(void)
{
    json_t *all = json_object();
    char key[80];
    for (size_t i = 0; i < openapi_parameter_count; i++) {
        const struct openapi_parameter *row = &openapi_parameter_rows[i];
        json_t *example = !strcmp(row->type, "integer") ? json_word(row->example) : json_string(row->example);
        json_object_set_new(all, row->key,
                            json_pack("{s:s, s:s, s:b, s:s, s:o, s:o}", "name", row->name, "in", row->in, "required",
                                      !strcmp(row->in, "path"), "description", row->help, "schema",
                                      openapi_bounded(row), "example", example));
    }
    for (int i = 0; i < option_row_count; i++) {
        snprintf(key, sizeof key, "option_%s", option_rows[i].name);
        json_object_set_new(all, key, openapi_query(option_rows[i].name, openapi_schema_option(&option_rows[i])));
    }
    for (int i = 0; i < upload_answer_count; i++) {
        snprintf(key, sizeof key, "option_%s", upload_answers[i].name);
        json_object_set_new(all, key, openapi_query(upload_answers[i].name, openapi_schema_field(&upload_answers[i])));
    }
    for (int i = 0; i < upload_size_count; i++) {
        snprintf(key, sizeof key, "size_%s", upload_sizes[i].name);
        json_object_set_new(all, key, openapi_query(upload_sizes[i].name, openapi_schema_size(&upload_sizes[i])));
    }
    return all;
}

/* --- bodies --------------------------------------------------------------------------------------------------------
 */

/* The fields of a body's form: of each its schema. */
static json_t *openapi_fields(enum openapi_body body)
{
    json_t *fields = json_object();
    const bool detect = body == BODY_DETECT || body == BODY_DAMAGE;
    for (int i = 0; i < option_row_count; i++)
        if (!detect || option_rows[i].detect)
            json_object_set_new(fields, option_rows[i].name, openapi_schema_option(&option_rows[i]));
    for (int i = 0; body == BODY_ESTIMATE && i < upload_size_count; i++) /* also in place of options */
        json_object_set_new(fields, upload_sizes[i].name, openapi_schema_size(&upload_sizes[i]));
    for (int i = 0; body != BODY_ESTIMATE && i < upload_answer_count; i++)
        if (!detect || upload_answers[i].detect)
            json_object_set_new(fields, upload_answers[i].name, openapi_schema_field(&upload_answers[i]));
    return fields;
}

static json_t *openapi_examples(enum openapi_body body, bool picture)
{
    json_t *all = json_object();
    for (size_t i = 0; i < openapi_example_count; i++) {
        const struct openapi_example *row = &openapi_example_rows[i];
        if (row->body == body && (picture || !strstr(row->json, "image")))
            json_object_set_new(
                all, row->name,
                json_pack("{s:s, s:o}", "summary", row->summary, "value", json_loads(row->json, 0, NULL)));
    }
    return all;
}

static json_t *openapi_form(enum openapi_body body, bool picture)
{
    json_t *fields = openapi_fields(body), *examples_of = openapi_examples(body, picture);
    if (picture)
        json_object_set_new(fields, "image", openapi_schema("binary", "the picture"));
    if (picture && body != BODY_ESTIMATE)
        json_object_set_new(fields, "mask",
                            openapi_schema("binary", "a picture of the same size, white where to fill: see mask_mode"));
    json_t *schema = json_pack("{s:s, s:o, s:b}", "type", "object", "properties", fields, "additionalProperties", 0);
    if (picture && body != BODY_ESTIMATE)
        json_object_set_new(schema, "required", json_pack("[s]", "image"));
    json_t *form = json_pack("{s:o, s:o}", "schema", schema, "examples", examples_of);
    char types[200] = "";
    for (enum image_format format = IMAGE_JPEG; format < IMAGE_FORMAT_COUNT; format++)
        if (codec_reads(format))
            snprintf(types + strlen(types), sizeof types - strlen(types), "%s%s", *types ? ", " : "",
                     codec_media_type(format));
    if (picture)
        json_object_set_new(form, "encoding", json_pack("{s:{s:s}}", "image", "contentType", types));
    return form;
}

static json_t *openapi_body(enum openapi_body body, const struct config *config)
{
    char help[400];
    snprintf(help, sizeof help, "%s At most %llu bytes.", openapi_body_rows[body].help,
             (unsigned long long)config->body_limit);
    json_t *content = json_pack("{s:o}", "multipart/form-data", openapi_form(body, true));
    if (body == BODY_ESTIMATE)
        json_object_set_new(content, "application/x-www-form-urlencoded", openapi_form(body, false));
    for (int format = IMAGE_JPEG; format <= IMAGE_FORMAT_COUNT; format++) {
        const bool last = format == IMAGE_FORMAT_COUNT;
        if (!last && !codec_reads((enum image_format)format))
            continue;
        json_object_set_new(content, last ? "application/octet-stream" : codec_media_type((enum image_format)format),
                            json_pack("{s:o, s:{s:{s:s, s:s}}}", "schema", openapi_schema("binary", NULL), "examples",
                                      "plain", "summary", "the bytes of a picture", "value", "@photo.jpg"));
    }
    return json_pack("{s:s, s:b, s:o}", "description", help, "required", body != BODY_ESTIMATE, "content", content);
}

static json_t *openapi_bodies(const struct config *config)
{
    json_t *all = json_object();
    for (int body = BODY_NONE + 1; body < BODY_COUNT; body++)
        json_object_set_new(all, openapi_body_rows[body].name, openapi_body((enum openapi_body)body, config));
    return all;
}

/* --- operations ----------------------------------------------------------------------------------------------------
 */

/* Of an argument that the router knows. */
static const char *openapi_argument_key(const char *name)
{
    for (size_t i = 0; i < openapi_parameter_count; i++)
        if (!strcmp(openapi_parameter_rows[i].in, "query") && !strcmp(openapi_parameter_rows[i].name, name))
            return openapi_parameter_rows[i].key;
    return name;
}

static json_t *openapi_parameter_list(const struct openapi_operation *operation, const struct route *route)
{
    json_t *list = json_array();
    const char *words = operation->parameters, *arguments = route->arguments ? route->arguments : "", *name;
    char word[64];
    json_t *fields = operation->body ? openapi_fields(operation->body) : NULL, *schema;
    while (openapi_word(&words, word))
        json_array_append_new(list, openapi_reference("parameters", word));
    while (openapi_word(&arguments, word))
        json_array_append_new(list, openapi_reference("parameters", openapi_argument_key(word)));
    json_array_append_new(list, openapi_reference("parameters", "request_id"));
    json_object_foreach(fields, name, schema)
    {
        bool size = false;
        for (int i = 0; operation->body == BODY_ESTIMATE && i < upload_size_count; i++)
            size = size || !strcmp(upload_sizes[i].name, name);
        snprintf(word, sizeof word, "%s_%s", size ? "size" : "option", name);
        json_array_append_new(list, openapi_reference("parameters", word));
    }
    json_decref(fields);
    return list;
}

static void openapi_add_problem(json_t *answers, enum reply reply)
{
    char status[16], name[64];
    snprintf(status, sizeof status, "%d", reply_status(reply));
    openapi_reply_name(reply, name);
    if (!json_object_get(answers, status))
        json_object_set_new(answers, status, openapi_reference("responses", name));
}

static json_t *openapi_answers(const struct openapi_operation *operation, const struct route *route, bool tokens)
{
    json_t *answers = json_object();
    char status[16];
    for (int i = 0; i < 3 && (operation->good[i].reply || operation->good[i].content); i++) {
        const struct openapi_good *good = &operation->good[i];
        json_t *answer = json_pack("{s:s, s:o}", "description", reply_title(good->reply), "headers",
                                   openapi_header_list(good->headers));
        if (good->content)
            json_object_set_new(answer, "content", openapi_content(good->content));
        snprintf(status, sizeof status, "%d", reply_status(good->reply));
        json_object_set_new(answers, status, answer);
    }
    openapi_add_problem(answers, REPLY_BAD_REQUEST);
    if (tokens && route->access == ROUTE_GUARDED)
        openapi_add_problem(answers, REPLY_UNAUTHORIZED);
    if (route->access != ROUTE_OPEN)
        openapi_add_problem(answers, REPLY_FORBIDDEN);
    openapi_add_problem(answers, REPLY_MISDIRECTED);
    if (route->access != ROUTE_PROBE)
        openapi_add_problem(answers, REPLY_RATE_LIMITED);
    for (int i = 0; i < 12 && operation->wrong[i]; i++)
        openapi_add_problem(answers, operation->wrong[i]);
    json_object_set_new(answers, "default", openapi_reference("responses", "Problem"));
    return answers;
}

static const struct openapi_operation *openapi_find(const struct route *route)
{
    for (size_t i = 0; i < openapi_operation_count; i++)
        if (openapi_operations[i].method == route->method && !strcmp(openapi_operations[i].path, route->path))
            return &openapi_operations[i];
    return NULL;
}

/* A route that has no row here is left out; tests/api/openapi.test.mjs names it. */
static json_t *openapi_paths(bool tokens)
{
    static const char *const methods[] = {[ROUTE_GET] = "get", [ROUTE_POST] = "post", [ROUTE_DELETE] = "delete"};
    json_t *paths = json_object();
    const struct route *route;
    for (size_t i = 0; (route = router_at(i)); i++) {
        const struct openapi_operation *row = openapi_find(route);
        if (!row)
            continue;
        json_t *operation = json_pack("{s:s, s:[s], s:s, s:o, s:o}", "operationId", row->id, "tags", row->tag,
                                      "summary", row->summary, "parameters", openapi_parameter_list(row, route),
                                      "responses", openapi_answers(row, route, tokens));
        if (row->body)
            json_object_set_new(operation, "requestBody",
                                openapi_reference("requestBodies", openapi_body_rows[row->body].name));
        if (tokens)
            json_object_set_new(operation, "security",
                                route->access == ROUTE_GUARDED ? json_pack("[{s:[]}]", "bearer") : json_array());
        json_t *path = json_object_get(paths, route->path);
        if (!path) {
            path = json_object();
            json_object_set_new(paths, route->path, path);
        }
        json_object_set_new(path, methods[route->method], operation);
    }
    return paths;
}

/* What every operation of other programs' clients has. */
static void openapi_complete(json_t *operation, const struct route *route, const char *error, bool tokens)
{
    static const enum reply usual[] = {REPLY_BAD_REQUEST, REPLY_FORBIDDEN, REPLY_MISDIRECTED, REPLY_RATE_LIMITED};
    json_t *list = json_object_get(operation, "parameters"), *answers = json_object_get(operation, "responses");
    char status[16];
    if (!list) {
        list = json_array();
        json_object_set_new(operation, "parameters", list);
    }
    json_array_append_new(list, openapi_reference("parameters", "request_id"));
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        snprintf(status, sizeof status, "%d", reply_status(usual[i]));
        if (!json_object_get(answers, status))
            json_object_set_new(answers, status, openapi_reference("responses", error));
    }
    json_object_set_new(answers, "default", openapi_reference("responses", error));
    const bool guarded = route->access == ROUTE_GUARDED;
    if (tokens && guarded)
        json_object_set_new(answers, "401", openapi_reference("responses", error));
    if (tokens)
        json_object_set_new(operation, "security", guarded ? json_pack("[{s:[]}]", "bearer") : json_array());
}

/* The first route of that path; a path's routes are alike in who may use them. */
static const struct route *openapi_route(const struct dialect *dialect, const char *path)
{
    const struct route *route = dialect->routes;
    while (route[1].path && strcmp(route->path, path) != 0)
        route++;
    return route;
}

/* The paths, schemas and errors of other programs' clients, of those that are on. */
static void openapi_add_dialect(json_t *document, const struct dialect *dialect, bool tokens)
{
    size_t size = 0;
    const char *text = (const char *)embed_find(dialect->openapi, &size);
    json_t *part = text ? json_loadb(text, size, 0, NULL) : NULL, *path, *operation;
    json_t *components = json_object_get(document, "components");
    const char *name, *method, *error = json_string_value(json_object_get(part, "error"));
    json_object_foreach(json_object_get(part, "paths"), name, path) json_object_foreach(path, method, operation)
        openapi_complete(operation, openapi_route(dialect, name), error, tokens);
    json_object_update(json_object_get(document, "paths"), json_object_get(part, "paths"));
    json_object_update(json_object_get(components, "schemas"), json_object_get(part, "schemas"));
    json_object_update(json_object_get(components, "parameters"), json_object_get(part, "parameters"));
    json_object_set_new(json_object_get(components, "responses"), error,
                        json_pack("{s:s, s:o, s:{s:{s:o}}}", "description", "An error in this client's own form.",
                                  "headers", openapi_header_list("Retry-After WWW-Authenticate Allow"), "content",
                                  "application/json", "schema", openapi_reference("schemas", error)));
    json_decref(part);
}

json_t *openapi_document(const struct config *config, bool tokens)
{
    json_t *info = json_pack("{s:s, s:s, s:s, s:s, s:{s:s, s:s}}", "title", "restored", "version", RESTORED_VERSION,
                             "summary", "Restores old, small and blurred photos.", "description",
                             "docs/api.md is the contract. New members, headers and codes may be added: ignore those "
                             "that you do not know. HEAD works wherever GET does.",
                             "license", "name", "Apache-2.0", "identifier", "Apache-2.0");
    json_t *bearer = json_pack("{s:s, s:s, s:s}", "type", "http", "scheme", "bearer", "description",
                               tokens ? "A token from the server's auth_token_file."
                                      : "This server asks for no token; one with auth_token_file does.");
    json_t *components =
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:{s:o}}", "schemas", openapi_schema_all(config), "parameters",
                  openapi_parameters(), "requestBodies", openapi_bodies(config), "responses", openapi_responses(),
                  "headers", openapi_headers(), "securitySchemes", "bearer", bearer);
    json_t *document =
        json_pack("{s:s, s:o, s:[{s:s}], s:[{s:s}, {s:s}, {s:s}, {s:s}], s:o, s:o, s:o}", "openapi", "3.1.0", "info",
                  info, "servers", "url", "/", "tags", "name", "pictures", "name", "jobs", "name", "server", "name",
                  "clients", "paths", openapi_paths(tokens), "components", components, "x-limits", json_limits(config));
    if (!tokens)
        json_object_set_new(document, "security", json_array());
    for (const struct dialect *const *row = dialects; *row; row++)
        if (dialect_on(*row, config->compat))
            openapi_add_dialect(document, *row, tokens);
    return document;
}
