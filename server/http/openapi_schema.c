#include "server/http/openapi_schema.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/http/job_json.h"
#include "server/http/json.h"
#include "server/http/reply.h"
#include "server/pipeline/pipeline.h"

/* --- types ---------------------------------------------------------------------------------------------------------
 */

static const char *schema_state(int i)
{
    return i < STORE_STATES ? job_json_state((enum store_state)i) : NULL;
}

static const char *schema_stage(int i)
{
    return i < STAGE_COUNT ? stage_name((enum stage)i) : NULL;
}

static const char *schema_kind(int i)
{
    return i < MODEL_KINDS ? json_kind_name((enum model_kind)i) : NULL;
}

static const char *schema_device(int i)
{
    return i <= DEVICE_SOFTWARE ? json_device_type_name((enum device_type)i) : NULL;
}

static const char *schema_format(int i)
{
    return IMAGE_JPEG + i < IMAGE_FORMAT_COUNT ? image_format_name((enum image_format)(IMAGE_JPEG + i)) : NULL;
}

static const struct schema_words {
    const char *name;
    const char *(*word)(int i); /* NULL after the last */
} schema_words[] = {{"@state", schema_state},
                    {"@stage", schema_stage},
                    {"@kind", schema_kind},
                    {"@device", schema_device},
                    {"@format", schema_format}};

/* What stands behind the "=" of a type, of that size. */
static json_t *schema_enum(const char *type, size_t size)
{
    json_t *words = json_array();
    for (size_t i = 0; i < sizeof schema_words / sizeof *schema_words; i++)
        for (int k = 0; !strncmp(schema_words[i].name, type, size) && schema_words[i].word(k); k++)
            json_array_append_new(words, json_string(schema_words[i].word(k)));
    for (const char *at = type, *end = type + size; *type != '@' && at < end;) {
        const char *bar = memchr(at, '|', (size_t)(end - at));
        const size_t length = (size_t)((bar ? bar : end) - at);
        json_array_append_new(words, json_stringn(at, length));
        at += length + 1;
    }
    return json_pack("{s:s, s:o}", "type", "string", "enum", words);
}

/* A type without what follows it. */
static json_t *schema_base(const char *type, size_t size)
{
    static const struct schema_plain {
        const char *name, *type, *format;
    } plain[] = {{"string", "string", NULL},   {"integer", "integer", NULL},    {"number", "number", NULL},
                 {"boolean", "boolean", NULL}, {"time", "string", "date-time"}, {"binary", "string", "binary"}};
    char reference[80];
    if (*type == '=')
        return schema_enum(type + 1, size - 1);
    if (size == 3 && !strncmp(type, "any", size))
        return json_object();
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (size == strlen(plain[i].name) && !strncmp(plain[i].name, type, size))
            return json_pack("{s:s, s:s*}", "type", plain[i].type, "format", plain[i].format);
    snprintf(reference, sizeof reference, "#/components/schemas/%.*s", (int)size, type);
    return json_pack("{s:s}", "$ref", reference);
}

static json_t *schema_or_null(json_t *schema)
{
    json_t *words = json_object_get(schema, "enum"), *type = json_object_get(schema, "type");
    if (!type)
        return json_pack("{s:[o, {s:s}]}", "anyOf", schema, "type", "null");
    json_object_set_new(schema, "type", json_pack("[O, s]", type, "null"));
    if (words)
        json_array_append_new(words, json_null());
    return schema;
}

json_t *openapi_schema(const char *type, const char *help)
{
    size_t size = strcspn(type, "[?");
    json_t *schema = schema_base(type, size);
    for (type += size; *type == '['; type += strcspn(type, "]") + 1) {
        const int count = atoi(type + 1);
        schema = json_pack("{s:s, s:o}", "type", "array", "items", schema);
        if (count) {
            json_object_set_new(schema, "minItems", json_integer(count));
            json_object_set_new(schema, "maxItems", json_integer(count));
        }
    }
    if (*type == '?')
        schema = schema_or_null(schema);
    if (help)
        json_object_set_new(schema, "description", json_string(help));
    return schema;
}

/* --- options and fields --------------------------------------------------------------------------------------------
 */

static void schema_limit(json_t *schema, const struct option_bounds *bounds, bool whole)
{
    json_object_set_new(schema, "minimum",
                        whole ? json_integer((json_int_t)bounds->minimum) : json_real(bounds->minimum));
    json_object_set_new(schema, "maximum",
                        whole ? json_integer((json_int_t)bounds->maximum) : json_real(bounds->maximum));
}

json_t *openapi_schema_option(const struct option_row *row)
{
    struct option_bounds bounds;
    options_bounds(row, &bounds);
    const bool whole = !strcmp(row->type, "integer"), words = bounds.words[0] && strcmp(row->name, "device") != 0;
    json_t *schema = json_pack("{s:s}", "type", !strcmp(row->type, "enum") ? "string" : row->type);
    if (bounds.number)
        schema_limit(schema, &bounds, whole);
    if (bounds.pattern && !bounds.number)
        json_object_set_new(schema, "pattern", json_string(bounds.pattern));
    json_t *list = words ? json_array() : NULL;
    for (int i = 0; words && i < 5 && bounds.words[i]; i++)
        json_array_append_new(list, json_word(bounds.words[i]));
    if (words && !strcmp(row->type, "enum")) {
        json_object_set_new(schema, "enum", list);
    } else if (words) { /* these words, or what the type says */
        schema = json_pack("{s:[{s:o}, o]}", "anyOf", "enum", list, schema);
        if (bounds.pattern && bounds.number) /* the pattern is of a third form */
            json_array_append_new(json_object_get(schema, "anyOf"),
                                  json_pack("{s:s, s:s}", "type", "string", "pattern", bounds.pattern));
        if (whole && bounds.maximum > INT_MAX) /* a number that JSON does not hold exactly is sent, and told, as text */
            json_array_append_new(json_object_get(schema, "anyOf"),
                                  json_pack("{s:s, s:s}", "type", "string", "pattern", "^[0-9]{1,20}$"));
    }
    json_t *standard = json_typed_default(row);
    if (!json_is_null(standard))
        json_object_set(schema, "default", standard);
    json_decref(standard);
    char help[480];
    snprintf(help, sizeof help, "%s. Allowed: %s.", row->help, row->allowed);
    json_object_set_new(schema, "description", json_string(help));
    return schema;
}

/* "a, b or c" -> ["a", "b", "c"] */
static json_t *schema_allowed(const char *text)
{
    json_t *words = json_array();
    while (*(text += strspn(text, " ,"))) {
        const size_t size = strcspn(text, " ,");
        if (size != 2 || strncmp(text, "or", 2) != 0)
            json_array_append_new(words, json_stringn(text, size));
        text += size;
    }
    return words;
}

json_t *openapi_schema_field(const struct upload_row *row)
{
    char help[480];
    const bool flag = !strcmp(row->type, "boolean");
    snprintf(help, sizeof help, "%s. Allowed: %s.", row->help, row->allowed);
    json_t *schema = openapi_schema(flag ? "boolean" : "string", help);
    if (flag || row->initial)
        json_object_set_new(schema, "default", flag ? json_false() : json_string(row->initial));
    if (!strcmp(row->type, "enum"))
        json_object_set_new(schema, "enum", schema_allowed(row->allowed));
    if (!strcmp(row->name, "batch"))
        json_object_set_new(schema, "pattern", json_string(UPLOAD_BATCH_PATTERN));
    return schema;
}

json_t *openapi_schema_size(const struct upload_size_row *row)
{
    json_t *schema = openapi_schema("integer", row->allowed);
    json_object_set_new(schema, "minimum", json_integer(row->least));
    json_object_set_new(schema, "maximum", json_integer(row->most));
    return schema;
}

/* --- objects -------------------------------------------------------------------------------------------------------
 */

/* Members of objects. A name with "?" at its end: the member may be absent. "...": all members of that schema stand
 * here too, if the object has none of that name; with "?" at the type's end, each may be absent. */
static const struct schema_member {
    const char *schema, *name, *type, *help;
} members[] = {
    {"Problem", "type", "string", "about:blank"},
    {"Problem", "title", "string", "the status in words"},
    {"Problem", "status", "integer", "the HTTP status"},
    {"Problem", "detail", "string",
     "a sentence for people; it begins with a field's name and a colon if it is about a field"},
    {"Problem", "instance", "string", "the path"},
    {"Problem", "code", "string", "for programs; others may be added"},
    {"Problem", "request_id", "string", "as X-Request-Id"},
    {"Problem", "error?", "any", "the same for OpenAI's clients; of /v1/models"},
    {"Problem", "limit?", "integer", "of body-too-large: the limit in bytes"},
    {"Problem", "estimate_seconds?", "number", "of too-slow"},
    {"Problem", "limit_seconds?", "integer", "of too-slow"},

    {"Picture", "width", "integer", "pixels"},
    {"Picture", "height", "integer", "pixels"},
    {"Picture", "format", "=@format", NULL},
    {"Picture", "bits", "integer", "of each sample"},
    {"Picture", "channels", "integer", NULL},
    {"Picture", "bytes", "integer", "of the file"},

    {"Face", "id", "integer", "0 is the surest"},
    {"Face", "box", "number[4]", "left, top, right, bottom, in pixels of the upright input"},
    {"Face", "score", "number", "0 to 1"},
    {"Face", "landmarks", "number[2][5]",
     "left eye, right eye, nose, left and right corner of the mouth, as seen in the picture"},
    {"Face", "eye_distance", "number", "pixels of the upright input"},
    {"Face", "action", "=restored|kept|restorable|skipped",
     "kept: its restoration has less detail and is not used; restorable: of a detection"},
    {"Face", "reason", "string?", "why it was kept or skipped"},
    {"Face", "used?", "number?", "how much of the restoration is in the result, 0 to 1; not in a detection"},
    {"Face", "change?", "number?", "how far the restoration moves from the picture, 0 to 1; not in a detection"},

    {"ModelNames", "detector?", "string?", "null: none was used"},
    {"ModelNames", "face?", "string?", NULL},
    {"ModelNames", "parser?", "string?", NULL},
    {"ModelNames", "background?", "string?", NULL},
    {"ModelNames", "damage?", "string?", NULL},
    {"ModelNames", "fill?", "string?", NULL},

    {"DamageKind", "count", "integer", "defects that were found"},
    {"DamageKind", "share", "number", "of the picture's pixels"},
    {"DamageKinds", "thin", "DamageKind", "lines: scratches, hairs"},
    {"DamageKinds", "crack", "DamageKind", "cracks and tears"},
    {"DamageKinds", "dust", "DamageKind", "dust and spots"},
    {"DamageKinds", "stain", "DamageKind", "stains and folds"},
    {"Damage", "share", "number", "of the picture's pixels that are filled"},
    {"Damage", "mask", "boolean", "some of it is from the mask that was sent"},
    {"Damage", "kinds", "DamageKinds", "of what was found"},

    {"Rotation", "degrees", "integer", "clockwise, until the faces are upright: 0, 90, 180 or 270"},
    {"Rotation", "applied", "boolean", "the result, and all of this report, is turned by them"},

    {"Tone", "strength", "number", "of the correction, 0 to 1; 0: there is no sign of fading"},
    {"Tone", "change", "number", "levels of 255, the mean"},
    {"Tone", "monochrome", "boolean", "gray, or a toned print, whose tone is kept"},
    {"Tone", "black", "number[3]", "levels of red, green and blue that were taken for black"},
    {"Tone", "white", "number[3]", "the same for white"},

    {"NetworkTimes", "repair", "number", NULL},
    {"NetworkTimes", "detect", "number", NULL},
    {"NetworkTimes", "restore", "number", NULL},
    {"NetworkTimes", "parse", "number", NULL},
    {"NetworkTimes", "background", "number", NULL},

    {"Report", "input", "Picture", NULL},
    {"Report", "output", "Picture?", NULL},
    {"Report", "options", "Options", "those that were used, with the models' real names"},
    {"Report", "models", "ModelNames", "null where a part was not used"},
    {"Report", "device", "string", NULL},
    {"Report", "precision", "=fp32|fp16", NULL},
    {"Report", "damage", "Damage?", "what was repaired; null: nothing was looked for, and no mask was sent"},
    {"Report", "tone", "Tone?", "what was done about fading; null: tone was off"},
    {"Report", "rotation", "Rotation?", "whether the faces are upright; null: auto_rotate was off"},
    {"Report", "faces", "Face[]", "in the order of their ids"},
    {"Report", "timings_ms", "Timings", "wall times by stage"},
    {"Report", "network_ms", "NetworkTimes", "the part of them in which the networks worked"},
    {"Report", "tiles", "integer", "of the background; 0: no network worked on it"},
    {"Report", "notes", "string[]", "what the user may want to know, in plain sentences"},
    {"Report", "note_codes", "NoteCode[]", "the same for programs, in the same order"},
    {"NoteCode", "code", "string", "what the note is called; it does not change"},
    {"NoteCode", "values", "string[]", "what stands in it"},

    {"Detection", "width", "integer", "of the upright picture, in pixels"},
    {"Detection", "height", "integer", NULL},
    {"Detection", "faces", "Face[]", NULL},
    {"Detection", "models", "ModelNames", NULL},
    {"Detection", "timings_ms", "Timings", NULL},
    {"Detection", "rotation?", "Rotation", "with auto_rotate alone"},

    {"DamageReport", "width", "integer", "of the upright picture, in pixels"},
    {"DamageReport", "height", "integer", NULL},
    {"DamageReport", "damage", "Damage?", NULL},
    {"DamageReport", "models", "ModelNames", NULL},
    {"DamageReport", "timings_ms", "Timings", NULL},
    {"DamageReport", "notes", "string[]", "what the user may want to know, in plain sentences"},
    {"DamageReport", "note_codes", "NoteCode[]", "the same for programs, in the same order"},

    {"FaceLink", "id", "integer", "the face's"},
    {"FaceLink", "kind", "=restored|crop", NULL},
    {"FaceLink", "href", "string", NULL},
    {"JobLinks", "self", "string", NULL},
    {"JobLinks", "result?", "string", "when there is a picture"},
    {"JobLinks", "mask?", "string", "when something was filled; not in lists and events"},
    {"JobLinks", "faces?", "FaceLink[]", "with faces_out=true; not in lists and events"},

    {"JobSummary", "id", "string", NULL},
    {"JobSummary", "state", "=@state", NULL},
    {"JobSummary", "batch", "string?", NULL},
    {"JobSummary", "token", "string?", "the name of the token that sent it"},
    {"JobSummary", "priority", "=normal|low", NULL},
    {"JobSummary", "attempts", "integer", "how often it was begun"},
    {"JobSummary", "megapixels", "number", "of the input"},
    {"JobSummary", "created", "time", NULL},
    {"JobSummary", "started", "time?", NULL},
    {"JobSummary", "finished", "time?", NULL},
    {"JobSummary", "expires", "time?", NULL},
    {"JobSummary", "links", "JobLinks", NULL},

    {"WaitingFor", "models", "string[]", "that it names and no server has, or none has all of"},
    {"WaitingFor", "reason", "string", NULL},

    {"Job", "...", "JobSummary", NULL},
    {"Job", "progress", "number", "0 to 1"},
    {"Job", "position", "integer?", "jobs before a waiting one"},
    {"Job", "waiting_for", "WaitingFor?", "what no server is there for, of a waiting one in a shared store"},
    {"Job", "eta_seconds", "number?", "until its end"},
    {"Job", "stage", "=@stage?", "of a running job"},
    {"Job", "tiles_done", "integer?", "null of a job that has failed or was cancelled"},
    {"Job", "tiles_total", "integer?", NULL},
    {"Job", "faces_done", "integer?", NULL},
    {"Job", "faces_total", "integer?", NULL},
    {"Job", "options", "Options?", "with the models that they stand for; when it is done, those that were used"},
    {"Job", "error", "Problem?", "of a job that has failed"},
    {"Job", "...", "Report?", NULL},
    {"Job", "...", "Detection?", NULL},
    {"Job", "...", "DamageReport?", NULL},

    {"JobEventLinks", "self", "string", NULL},
    {"JobEvent", "id", "string", "the job's"},
    {"JobEvent", "state", "=@state", NULL},
    {"JobEvent", "time", "time", NULL},
    {"JobEvent", "progress", "number", "0 to 1"},
    {"JobEvent", "eta_seconds", "number?", "until its end"},
    {"JobEvent", "stage", "=@stage?", "of a running job"},
    {"JobEvent", "tiles_done", "integer", NULL},
    {"JobEvent", "tiles_total", "integer", NULL},
    {"JobEvent", "faces_done", "integer", NULL},
    {"JobEvent", "faces_total", "integer", NULL},
    {"JobEvent", "links", "JobEventLinks", NULL},

    {"JobList", "jobs", "JobSummary[]", "newest first"},
    {"JobList", "next", "string?", "path of the next page"},

    {"BatchLinks", "jobs", "string", NULL},
    {"BatchLinks", "results", "string", NULL},
    {"Batch", "batch", "string", "its name"},
    {"Batch", "jobs", "integer", "all of them"},
    {"Batch", "progress", "number", "0 to 1"},
    {"Batch", "eta_seconds", "number?", "until the end of all that wait; null when all have ended"},
    {"Batch", "queued", "integer", NULL},
    {"Batch", "running", "integer", NULL},
    {"Batch", "done", "integer", NULL},
    {"Batch", "failed", "integer", NULL},
    {"Batch", "cancelled", "integer", NULL},
    {"Batch", "links", "BatchLinks", NULL},

    {"Size", "width", "integer", NULL},
    {"Size", "height", "integer", NULL},
    {"Estimate", "seconds", "number", "the middle estimate for the work once it has begun"},
    {"Estimate", "low", "number", "it will hardly take less"},
    {"Estimate", "high", "number", "it will hardly take more"},
    {"Estimate", "queue_seconds", "number", "the time before it begins"},
    {"Estimate", "memory", "integer", "bytes at most, on the host and the device together"},
    {"Estimate", "tiles", "integer", "of the background"},
    {"Estimate", "output", "Size", NULL},
    {"Estimate", "device", "string", NULL},
    {"Estimate", "measured", "boolean", "it comes from what this device did before; otherwise it is a guess"},
    {"Estimate", "fits", "boolean", "POST /v1/restore would take the work now"},
    {"Estimate", "reason", "string", "why it does not fit, else empty"},
    {"Estimate", "code", "=|too-slow|queue-full", "the same for programs"},

    {"DeviceMemory", "total", "integer", "bytes"},
    {"DeviceMemory", "budget", "integer", "what is free for the server"},
    {"DeviceMemory", "used", "integer", NULL},
    {"DeviceMemory", "peak", "integer", NULL},
    {"DeviceFeatures", "fp16", "boolean", NULL},
    {"DeviceFeatures", "cooperative_matrix", "boolean", NULL},
    {"DeviceFeatures", "int8", "boolean", NULL},
    {"DeviceFeatures", "subgroup_size", "integer", NULL},
    {"SelfTest", "state", "=passed|failed|not run", NULL},
    {"SelfTest", "max_error", "number?", NULL},
    {"SelfTest", "ms", "number?", NULL},
    {"Device", "id", "string", NULL},
    {"Device", "uuid", "string?", NULL},
    {"Device", "name", "string", NULL},
    {"Device", "type", "=@device", NULL},
    {"Device", "backend", "=vulkan|cpu", NULL},
    {"Device", "api_version", "string", NULL},
    {"Device", "driver", "string", NULL},
    {"Device", "memory", "DeviceMemory", NULL},
    {"Device", "features", "DeviceFeatures", NULL},
    {"Device", "precision", "string", "the one in use, and why"},
    {"Device", "self_test", "SelfTest", NULL},
    {"Device", "state", "=idle|busy|lost|disabled", NULL},
    {"Device", "current_job", "string?", NULL},
    {"Device", "jobs_done", "integer", NULL},
    {"Device", "jobs_failed", "integer", NULL},
    {"Device", "busy_seconds", "number", NULL},
    {"Device", "utilisation", "number", "share of the last minute in which it worked"},
    {"Device", "reason", "string?", "why it takes no jobs"},
    {"Device", "remark", "string?", "what else is worth knowing"},
    {"Device", "worker?", "string", "at a front: whose it is, HOST:PID"},
    {"Devices", "devices", "Device[]", "in the order of preference"},
    {"Devices", "default", "string?", NULL},

    {"ModelCard", "name", "string?", NULL},
    {"ModelCard", "licence", "string?", NULL},
    {"ModelCard", "commit", "string?", NULL},
    {"ModelCard", "data", "string?", NULL},
    {"Model", "name", "string", NULL},
    {"Model", "file", "string", NULL},
    {"Model", "kind", "=@kind", NULL},
    {"Model", "architecture", "string", NULL},
    {"Model", "scale", "integer", NULL},
    {"Model", "bytes", "integer", NULL},
    {"Model", "sha256", "string?", "null until the file has been hashed"},
    {"Model", "known_as", "string?", "the official name, if the server knows the file"},
    {"Model", "licence", "string?", NULL},
    {"Model", "non_commercial", "boolean", "its licence forbids commercial use"},
    {"Model", "starter", "boolean", "built into the program"},
    {"Model", "default", "boolean", NULL},
    {"Model", "card", "ModelCard?", "what the file says of itself"},
    {"Model", "published?", "boolean", "at a front: workers can fetch it from the store"},
    {"MissingModel", "name", "string", NULL},
    {"MissingModel", "file", "string", NULL},
    {"MissingModel", "get", "string?", "the command that downloads it; null for clients on other machines"},
    {"UnreadModel", "file", "string", NULL},
    {"UnreadModel", "reason", "string", "what is wrong with it, or what it is"},
    {"Models", "models", "Model[]", NULL},
    {"Models", "missing", "MissingModel[]", "official files that are not there"},
    {"Models", "unread", "UnreadModel[]", "files in the model folders that cannot be used"},
    {"Models", "object", "=list", "for OpenAI's clients"},
    {"Models", "data", "ModelId[]", "for OpenAI's clients: what POST /v1/images/edits takes as its model"},
    {"ModelId", "id", "string", NULL},
    {"ModelId", "object", "=model", NULL},
    {"ModelId", "created", "integer", "always 0"},
    {"ModelId", "owned_by", "string", NULL},
    {"ModelId", "licence?", "string?", "the model's; not of \"restored\", which stands for the defaults"},
    {"ModelId", "non_commercial?", "boolean", "its licence forbids commercial use"},

    {"CapabilityModel", "name", "string", NULL},
    {"CapabilityModel", "licence", "string?", NULL},
    {"CapabilityModel", "non_commercial", "boolean", "its licence forbids commercial use"},
    {"CapabilityOption", "name", "string", NULL},
    {"CapabilityOption", "type", "=number|integer|boolean|string|enum", NULL},
    {"CapabilityOption", "default", "any", NULL},
    {"CapabilityOption", "allowed", "string", "for people"},
    {"CapabilityOption", "help", "string", "for people"},
    {"CapabilityOption", "minimum?", "number", NULL},
    {"CapabilityOption", "maximum?", "number", NULL},
    {"CapabilityOption", "values?", "any[]", "words that are allowed"},
    {"CapabilityOption", "models?", "CapabilityModel[]", "with their licences, where the option names a model"},
    {"CapabilityOption", "pattern?", "string", NULL},
    {"CapabilityOption", "max_bytes?", "integer", NULL},
    {"CapabilityField", "name", "string", NULL},
    {"CapabilityField", "type", "=boolean|string|enum", NULL},
    {"CapabilityField", "default", "any", NULL},
    {"CapabilityField", "allowed", "string", NULL},
    {"CapabilityField", "help", "string", NULL},
    {"CapabilityField", "detect", "boolean", "POST /v1/detect takes it too"},
    {"Formats", "in", "=@format[]", NULL},
    {"Formats", "out", "=@format[]", NULL},
    {"Formats", "missing", "=@format[]",
     "formats that this build cannot read or write, because it was made without their libraries"},
    {"Formats", "answers", "string[]", NULL},
    {"Capabilities", "version", "string", NULL},
    {"Capabilities", "options", "CapabilityOption[]", NULL},
    {"Capabilities", "fields", "CapabilityField[]", "that say how a request is answered"},
    {"Capabilities", "formats", "Formats", NULL},
    {"Capabilities", "limits", "Limits", NULL},

    {"Alive", "status", "=ok", NULL},
    {"Ready", "ready", "boolean", NULL},
    {"Ready", "reasons", "string[]", "why it is not"},
    {"Ready", "devices", "string[]", "that are open"},
    {"Ready", "models", "string[]", "default ones that are loaded"},
};

static json_t *schema_object(void)
{
    return json_pack("{s:s, s:{}, s:[]}", "type", "object", "properties", "required");
}

/* Takes the schema over. */
static void schema_add(json_t *object, const char *name, json_t *schema, bool required)
{
    json_t *properties = json_object_get(object, "properties");
    if (json_object_get(properties, name)) {
        json_decref(schema);
        return;
    }
    json_object_set_new(properties, name, schema);
    if (required)
        json_array_append_new(json_object_get(object, "required"), json_string(name));
}

static void schema_add_members(json_t *object, const char *schema, size_t size, bool optional)
{
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const struct schema_member *member = &members[i];
        if (strlen(member->schema) != size || strncmp(member->schema, schema, size) != 0)
            continue;
        const size_t length = strcspn(member->name, "?"), end = strcspn(member->type, "?");
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)length, member->name);
        if (!strcmp(name, "..."))
            schema_add_members(object, member->type, end, optional || member->type[end]);
        else
            schema_add(object, name, openapi_schema(member->type, member->help), !optional && !member->name[length]);
    }
}

static json_t *schema_timings(void)
{
    json_t *object = schema_object();
    for (int stage = 0; stage < STAGE_COUNT; stage++)
        schema_add(object, stage_name((enum stage)stage), openapi_schema("number", NULL), stage <= STAGE_REPAIR);
    schema_add(object, "total", openapi_schema("number", NULL), true);
    return object;
}

static json_t *schema_options(void)
{
    json_t *object = schema_object();
    for (int i = 0; i < option_row_count; i++) {
        json_t *schema = openapi_schema_option(&option_rows[i]);
        json_object_del(schema, "default"); /* here it is an answer */
        schema_add(object, option_rows[i].name, schema, true);
    }
    return object;
}

static json_t *schema_limits(const struct config *config)
{
    json_t *object = schema_object(), *limits = json_limits(config), *value;
    const char *name;
    json_object_foreach(limits, name, value) schema_add(object, name, openapi_schema("integer", NULL), true);
    json_decref(limits);
    return object;
}

json_t *openapi_schema_all(const struct config *config)
{
    json_t *all = json_object();
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        if (json_object_get(all, members[i].schema))
            continue;
        json_t *object = schema_object();
        schema_add_members(object, members[i].schema, strlen(members[i].schema), false);
        json_object_set_new(all, members[i].schema, object);
    }
    json_t *code = json_object_get(json_object_get(json_object_get(all, "Problem"), "properties"), "code");
    json_object_set_new(code, "examples", reply_codes(0));
    json_object_set_new(all, "Timings", schema_timings());
    json_object_set_new(all, "Options", schema_options());
    json_object_set_new(all, "Limits", schema_limits(config));
    return all;
}
