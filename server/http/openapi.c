#include "server/http/openapi.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/embed.h"
#include "server/http/dialect.h"
#include "server/http/json.h"
#include "server/http/openapi_schema.h"
#include "server/http/route_jobs.h"
#include "server/http/router.h"
#include "server/image/codec.h"
#include "server/version.h"

#define JOB_ID "5bc9517961945ccbad14175dea710db6" /* the one of docs/api.md */

/* --- tables --------------------------------------------------------------------------------------------------------
 */

/* Parameters that are no options. key: its name in components and in the table of operations, which names those that
 * are in the path or in headers; those in the query stand in the router's table. */
static const struct openapi_parameter {
    const char *key, *name, *in, *type, *help, *pattern;
    int least, most; /* of a number, or of a text's length; both 0: no bounds */
    const char *example;
} parameters[] = {
    {"job", "id", "path", "string", "the job's id", "^[0-9a-f]{32}$", 0, 0, JOB_ID},
    {"face", "n", "path", "integer", "the face's id in the report", NULL, 0, 0, "0"},
    {"batch_name", "id", "path", "string", "the batch's name", UPLOAD_BATCH_PATTERN, 0, 0, "album"},
    {"kind", "kind", "query", "=restored|crop", "the restored face, or what was cut out of the picture", NULL, 0, 0,
     "crop"},
    {"limit", "limit", "query", "integer", "how many jobs a page has", NULL, 1, ROUTE_JOBS_MOST, "10"},
    {"state", "state", "query", "string", "some of queued, running, done, failed, cancelled, with commas between",
     "^(queued|running|done|failed|cancelled)(,(queued|running|done|failed|cancelled))*$", 0, 0, "done,failed"},
    {"batch", "batch", "query", "string", "only jobs of this batch", UPLOAD_BATCH_PATTERN, 0, 0, "album"},
    {"since", "since", "query", "time", "only jobs that were made since then", NULL, 0, 0, "2026-01-31T12:00:00Z"},
    {"after", "after", "query", "string", "go on behind this job", "^.{32}$", 0, 0, JOB_ID},
    {"preview", "preview", "query", "integer",
     "a smaller picture instead of the result: its longest side, px; JPEG, or PNG with transparency", NULL,
     PIECE_PREVIEW_LEAST, PIECE_PREVIEW_MOST, "1600"},
    {"region", "region", "query", "string", "a part of the result as PNG: X,Y,WIDTH,HEIGHT in its pixels",
     "^[0-9]{1,9},[0-9]{1,9},[0-9]{1,9},[0-9]{1,9}$", 0, 0, "0,0,64,64"},
    {"request_id", "X-Request-Id", "header", "string", "the id of the request in answers and logs",
     "^[A-Za-z0-9_-]{1,64}$", 0, 0, "order-17"},
    {"prefer", "Prefer", "header", "string", "respond-async: the answer is 202 at once, and the work is a job", NULL, 0,
     0, "respond-async"},
    {"idempotency_key", "Idempotency-Key", "header", "string",
     "of an asynchronous request: the same key with the same body and options gives the same job", "^[ -~]*$", 1,
     KEEPER_KEY_MAX - 1, "order-17"},
    {"last_event_id", "Last-Event-ID", "header", "string", "go on behind this event", NULL, 0, 0, "d4d6fcbe1166-8"},
    {"last_event", "last_event_id", "query", "string", "as Last-Event-ID", NULL, 0, 0, "d4d6fcbe1166-8"},
    {"if_none_match", "If-None-Match", "header", "string", "the ETag that is known", NULL, 0, 0, "\"0\""},
};

/* Headers of answers. */
static const struct openapi_header {
    const char *name, *type, *help;
} headers[] = {
    {"X-Request-Id", "string", "the id that the log has, too"},
    {"Location", "string", "path of the job"},
    {"Preference-Applied", "string", "respond-async"},
    {"Retry-After", "integer", "seconds until it is worth trying again"},
    {"WWW-Authenticate", "string", "a token is asked for"},
    {"Allow", "string", "the methods that the path takes"},
    {"ETag", "string", "changes with the bytes"},
    {"Content-Disposition", "string", "the name to save it under"},
    {"Server-Timing", "string", "milliseconds by stage"},
    {"X-Restored-Faces", "integer", "how many faces were restored, kept ones included"},
    {"X-Restored-Device", "string", "the device's id"},
    {"X-Restored-Models", "string", "detector=\"…\", face=\"…\", parser=\"…\", background=\"…\", damage=\"…\""},
    {"X-Restored-Notes", "string", "the report's notes: a JSON array of texts in ASCII"},
};

enum openapi_body { BODY_NONE, BODY_RESTORE, BODY_DETECT, BODY_DAMAGE, BODY_ESTIMATE, BODY_COUNT };
static const struct openapi_body_row {
    const char *name, *help;
} bodies[BODY_COUNT] = {
    [BODY_RESTORE] = {"Restore", "A form with the picture as the file part image, or the picture's bytes with the "
                                 "options in the query. The bytes decide what it is; JPEG and PNG are read."},
    [BODY_DETECT] = {"Detect",
                     "A form with the picture as the file part image, or the picture's bytes with the options "
                     "in the query."},
    [BODY_DAMAGE] = {"Damage",
                     "A form with the picture as the file part image, and a mask as the file part mask if there "
                     "is one, or the picture's bytes with the options in the query."},
    [BODY_ESTIMATE] = {"Estimate", "Width and height, in a form or in the query, or the picture, of which only the "
                                   "header is read."},
};

/* Bodies to try: the members of a form, as JSON. "@photo.jpg" stands for a picture's bytes. */
static const struct openapi_example {
    enum openapi_body body;
    const char *name, *summary, *json;
} examples[] = {
    {BODY_RESTORE, "plain", "the usual options", "{\"image\": \"@photo.jpg\"}"},
    {BODY_RESTORE, "larger", "four times larger, as PNG",
     "{\"image\": \"@photo.jpg\", \"upscale\": 4, \"ext\": \"png\"}"},
    {BODY_RESTORE, "gentle", "two faces, half of each restored one",
     "{\"image\": \"@photo.jpg\", \"weight\": 0.5, \"faces\": \"0,1\"}"},
    {BODY_RESTORE, "later", "an asynchronous job of a batch, with the faces",
     "{\"image\": \"@photo.jpg\", \"batch\": \"album\", \"faces_out\": true, \"suffix\": \"new\"}"},
    {BODY_RESTORE, "masked", "only what a mask shows is repaired",
     "{\"image\": \"@photo.jpg\", \"mask\": \"@mask.png\"}"},
    {BODY_DAMAGE, "plain", "what would be repaired", "{\"image\": \"@photo.jpg\", \"repair\": \"true\"}"},
    {BODY_DETECT, "plain", "the faces", "{\"image\": \"@photo.jpg\"}"},
    {BODY_DETECT, "later", "an asynchronous job", "{\"image\": \"@photo.jpg\", \"async\": true}"},
    {BODY_ESTIMATE, "size", "from width and height alone", "{\"width\": 4000, \"height\": 3000, \"face_count\": 2}"},
    {BODY_ESTIMATE, "picture", "from a picture", "{\"image\": \"@photo.jpg\", \"upscale\": 4}"},
};

/* What headers a picture of that request, and a job's picture, has. */
#define ABOUT "Server-Timing X-Restored-Faces X-Restored-Device X-Restored-Models X-Restored-Notes"
#define NAMED "Content-Disposition ETag"

/* Every route of the router, in its order; a test compares them. content: media types and names of schemas, which are
 * JSON, with blanks between; NULL: no body. wrong: problems that are worth naming beside those that all routes have. */
static const struct openapi_operation {
    enum route_method method;
    const char *path, *id, *tag, *summary, *parameters;
    enum openapi_body body;
    struct openapi_good {
        enum reply reply; /* REPLY_OK without content: the end */
        const char *content, *headers;
    } good[3];
    enum reply wrong[12]; /* REPLY_OK: the end */
} operations[] = {
    {ROUTE_POST,
     "/v1/restore",
     "restore",
     "pictures",
     "Restores a picture. Accept chooses the answer: the picture, the "
     "report (application/json), or both (multipart/mixed).",
     "prefer idempotency_key",
     BODY_RESTORE,
     {{REPLY_OK, "Pictures Report multipart/mixed", NAMED " " ABOUT},
      {REPLY_ACCEPTED, "Job", "Location Preference-Applied"}},
     {REPLY_NOT_ACCEPTABLE, REPLY_LENGTH_REQUIRED, REPLY_BODY_TOO_LARGE, REPLY_UNSUPPORTED, REPLY_UNPROCESSABLE,
      REPLY_QUEUE_FULL, REPLY_UNAVAILABLE, REPLY_TIMEOUT, REPLY_FULL}},
    {ROUTE_POST,
     "/v1/detect",
     "detect",
     "pictures",
     "Finds the faces of a picture, and restores nothing.",
     "prefer idempotency_key",
     BODY_DETECT,
     {{REPLY_OK, "Detection", NULL}, {REPLY_ACCEPTED, "Job", "Location Preference-Applied"}},
     {REPLY_NOT_ACCEPTABLE, REPLY_LENGTH_REQUIRED, REPLY_BODY_TOO_LARGE, REPLY_UNSUPPORTED, REPLY_UNPROCESSABLE,
      REPLY_QUEUE_FULL, REPLY_UNAVAILABLE, REPLY_TIMEOUT, REPLY_FULL}},
    {ROUTE_POST,
     "/v1/damage",
     "damage",
     "pictures",
     "Finds what would be repaired: white in the answer. Accept chooses: the mask, the report (application/json), or "
     "both "
     "(multipart/mixed).",
     "prefer idempotency_key",
     BODY_DAMAGE,
     {{REPLY_OK, "image/png DamageReport multipart/mixed", NAMED " " ABOUT},
      {REPLY_ACCEPTED, "Job", "Location Preference-Applied"}},
     {REPLY_NOT_ACCEPTABLE, REPLY_LENGTH_REQUIRED, REPLY_BODY_TOO_LARGE, REPLY_UNSUPPORTED, REPLY_UNPROCESSABLE,
      REPLY_QUEUE_FULL, REPLY_UNAVAILABLE, REPLY_TIMEOUT, REPLY_FULL}},
    {ROUTE_POST,
     "/v1/estimate",
     "estimate",
     "pictures",
     "What a restoration would take now. Nothing is queued.",
     "",
     BODY_ESTIMATE,
     {{REPLY_OK, "Estimate", NULL}},
     {REPLY_BODY_TOO_LARGE, REPLY_UNSUPPORTED, REPLY_UNPROCESSABLE, REPLY_UNAVAILABLE}},
    {ROUTE_GET,
     "/v1/jobs",
     "listJobs",
     "jobs",
     "Asynchronous jobs, newest first.",
     "",
     BODY_NONE,
     {{REPLY_OK, "JobList", NULL}},
     {REPLY_UNAVAILABLE}},
    {ROUTE_GET,
     "/v1/jobs/{id}",
     "getJob",
     "jobs",
     "A job: how far it is, or its report.",
     "job",
     BODY_NONE,
     {{REPLY_OK, "Job", NULL}},
     {REPLY_NOT_FOUND, REPLY_GONE, REPLY_UNAVAILABLE}},
    {ROUTE_DELETE,
     "/v1/jobs/{id}",
     "deleteJob",
     "jobs",
     "Cancels a job; forgets one that has ended.",
     "job",
     BODY_NONE,
     {{REPLY_OK, "Job", NULL}, {REPLY_NO_CONTENT, NULL, NULL}},
     {REPLY_NOT_FOUND, REPLY_GONE, REPLY_UNAVAILABLE}},
    {ROUTE_GET,
     "/v1/jobs/{id}/result",
     "getResult",
     "jobs",
     "The picture that a job has made.",
     "job if_none_match",
     BODY_NONE,
     {{REPLY_OK, "Pictures", NAMED}, {REPLY_NOT_MODIFIED, NULL, "ETag"}},
     {REPLY_NOT_FOUND, REPLY_CONFLICT, REPLY_GONE, REPLY_UNPROCESSABLE, REPLY_UNAVAILABLE, REPLY_FULL}},
    {ROUTE_GET,
     "/v1/jobs/{id}/mask",
     "getMask",
     "jobs",
     "What a job has filled: white in the answer.",
     "job",
     BODY_NONE,
     {{REPLY_OK, "image/png", NAMED}},
     {REPLY_NOT_FOUND, REPLY_CONFLICT, REPLY_GONE, REPLY_UNAVAILABLE}},
    {ROUTE_GET,
     "/v1/jobs/{id}/faces/{n}",
     "getFace",
     "jobs",
     "A face of a job with faces_out=true.",
     "job face",
     BODY_NONE,
     {{REPLY_OK, "image/png", NAMED}},
     {REPLY_NOT_FOUND, REPLY_CONFLICT, REPLY_GONE, REPLY_UNAVAILABLE}},
    {ROUTE_GET,
     "/v1/jobs/{id}/events",
     "watchJob",
     "jobs",
     "What happens to a job as it happens, until its end.",
     "job last_event_id",
     BODY_NONE,
     {{REPLY_OK, "text/event-stream", NULL}},
     {REPLY_NOT_FOUND, REPLY_GONE, REPLY_UNAVAILABLE}},
    {ROUTE_GET,
     "/v1/events",
     "watchJobs",
     "jobs",
     "What happens to all jobs that the client may see.",
     "last_event_id",
     BODY_NONE,
     {{REPLY_OK, "text/event-stream", NULL}},
     {REPLY_UNAVAILABLE}},
    {ROUTE_GET,
     "/v1/batches/{id}",
     "getBatch",
     "jobs",
     "The jobs of a batch, counted.",
     "batch_name",
     BODY_NONE,
     {{REPLY_OK, "Batch", NULL}},
     {REPLY_NOT_FOUND, REPLY_UNAVAILABLE}},
    {ROUTE_DELETE,
     "/v1/batches/{id}",
     "cancelBatch",
     "jobs",
     "Cancels all jobs of a batch that have not ended.",
     "batch_name",
     BODY_NONE,
     {{REPLY_OK, "Batch", NULL}},
     {REPLY_NOT_FOUND, REPLY_UNAVAILABLE}},
    {ROUTE_GET,
     "/v1/batches/{id}/results.zip",
     "getBatchResults",
     "jobs",
     "The results of all jobs of a batch that are done, uncompressed.",
     "batch_name",
     BODY_NONE,
     {{REPLY_OK, "application/zip", "Content-Disposition"}},
     {REPLY_NOT_FOUND, REPLY_UNAVAILABLE}},
    {ROUTE_GET,
     "/v1/devices",
     "listDevices",
     "server",
     "What there is to compute on, and how it is.",
     "",
     BODY_NONE,
     {{REPLY_OK, "Devices", NULL}},
     {REPLY_OK}},
    {ROUTE_GET,
     "/v1/models",
     "listModels",
     "server",
     "Which models are installed, and which are missing.",
     "",
     BODY_NONE,
     {{REPLY_OK, "Models", NULL}},
     {REPLY_OK}},
    {ROUTE_GET,
     "/v1/capabilities",
     "getCapabilities",
     "server",
     "Options with the values that they may have on this server, formats, limits.",
     "",
     BODY_NONE,
     {{REPLY_OK, "Capabilities", NULL}},
     {REPLY_OK}},
    {ROUTE_GET,
     "/healthz",
     "isAlive",
     "server",
     "The server is alive.",
     "",
     BODY_NONE,
     {{REPLY_OK, "Alive", NULL}},
     {REPLY_OK}},
    {ROUTE_GET,
     "/readyz",
     "isReady",
     "server",
     "Whether the server can work, and why not.",
     "",
     BODY_NONE,
     {{REPLY_OK, "Ready", NULL}, {REPLY_UNAVAILABLE, "Ready", NULL}},
     {REPLY_OK}},
    {ROUTE_GET,
     "/metrics",
     "getMetrics",
     "server",
     "Metrics for Prometheus.",
     "",
     BODY_NONE,
     {{REPLY_OK, "text/plain", NULL}},
     {REPLY_OK}},
    {ROUTE_GET,
     "/openapi.json",
     "getOpenapi",
     "server",
     "This description.",
     "if_none_match",
     BODY_NONE,
     {{REPLY_OK, "any", "ETag"}, {REPLY_NOT_MODIFIED, NULL, "ETag"}},
     {REPLY_OK}},
};

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
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        json_object_set_new(
            all, headers[i].name,
            json_pack("{s:s, s:o}", "description", headers[i].help, "schema", openapi_schema(headers[i].type, NULL)));
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
    for (size_t i = 0; i < sizeof parameters / sizeof *parameters; i++) {
        const struct openapi_parameter *row = &parameters[i];
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
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        const struct openapi_example *row = &examples[i];
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
    snprintf(help, sizeof help, "%s At most %llu bytes.", bodies[body].help, (unsigned long long)config->body_limit);
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
        json_object_set_new(all, bodies[body].name, openapi_body((enum openapi_body)body, config));
    return all;
}

/* --- operations ----------------------------------------------------------------------------------------------------
 */

/* Of an argument that the router knows. */
static const char *openapi_argument_key(const char *name)
{
    for (size_t i = 0; i < sizeof parameters / sizeof *parameters; i++)
        if (!strcmp(parameters[i].in, "query") && !strcmp(parameters[i].name, name))
            return parameters[i].key;
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
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        if (operations[i].method == route->method && !strcmp(operations[i].path, route->path))
            return &operations[i];
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
            json_object_set_new(operation, "requestBody", openapi_reference("requestBodies", bodies[row->body].name));
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
