/* OpenAI's form: POST /v1/images/edits, GET /v1/models/NAME, and errors. The fields, their meaning and the form of the
 * answers are those of OpenAI's API reference ("Create image edit") as its own clients send and read them; the request
 * shapes of Open WebUI, Nextcloud and n8n are described in docs/clients.md. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "runtime/base/mem.h"
#include "runtime/base/utf8.h"
#include "server/compat/compat.h"
#include "server/http/multipart.h"
#include "server/http/route_jobs.h"
#include "server/http/submit.h"
#include "server/image/codec.h"

#define OPENAI_PROMPT_MAX 131072 /* bytes: 32000 characters of any alphabet */
#define OPENAI_VALUE_MAX 512
#define OPENAI_MASK_MAX ((size_t)4 << 20) /* bytes, as OpenAI has it */
#define OPENAI_PICTURES 16                /* as OpenAI has it */
#define OPENAI_MOST 10                    /* n */

enum openai_part { PART_IMAGE, PART_MASK, PART_FIELD };

/* Our options that a field of theirs sets, and its name. */
static const struct {
    const char *option, *field;
} openai_named[] = {
    {"ext", "output_format"}, {"quality", "output_compression"},
    {"version", "model"},     {"bg_upsampler", "model"},
    {"width", "size"},        {"height", "size"},
};
#define OPENAI_NAMED (sizeof openai_named / sizeof *openai_named)

/* A request for edits. */
struct openai {
    struct compat base;
    struct request *request;
    struct upload *options; /* what the fields and the prompt's words set */
    struct multipart *form;
    struct body mask;
    char *prompt; /* what there is of it */
    enum openai_part part;
    char name[40], value[OPENAI_VALUE_MAX];
    size_t value_size, prompt_size, prompt_room, received;
    char width[8], height[8]; /* of the field size */
    int n;
    bool urls, resized, masked; /* resized: the prompt's words say how large the result is */
    uint32_t seen;
    bool named[OPENAI_NAMED]; /* the field has set the option */
};

/* --- fields --------------------------------------------------------------------------------------------------------
 */

/* The number of the option among those that a field of this request has set; OPENAI_NAMED: it is none. */
static size_t openai_find_named(const struct openai *openai, const char *option, size_t size)
{
    size_t i = 0;
    while (i < OPENAI_NAMED && !(openai->named[i] && strlen(openai_named[i].option) == size &&
                                 !memcmp(openai_named[i].option, option, size)))
        i++;
    return i;
}

/* A text that begins with the name of an option of ours begins with that of the field which has set it. */
static void openai_rename(const struct openai *openai, struct error *err)
{
    const size_t size = strcspn(err->text, ":"), named = openai_find_named(openai, err->text, size);
    if (named == OPENAI_NAMED)
        return;
    const char *field = openai_named[named].field;
    struct error renamed = {.detail = ""};
    error_set(&renamed, err->code, "%s%s", field, err->text + size);
    memcpy(renamed.detail, err->detail, sizeof renamed.detail);
    if (err->local)
        renamed.local = err->local + (int)strlen(field) - (int)size;
    *err = renamed;
}

static enum error_code openai_set(struct openai *openai, const char *option, const char *value, struct error *err)
{
    const enum error_code code = upload_field(openai->options, option, value, strlen(value), err);
    for (size_t i = 0; i < OPENAI_NAMED; i++)
        openai->named[i] = openai->named[i] || !strcmp(openai_named[i].option, option);
    if (code)
        openai_rename(openai, err);
    return code;
}

/* Names that stand for whatever this server has: its own, and those that clients cannot do without. */
static bool openai_any_model(const char *name)
{
    static const char *const begins[] = {"gpt-image", "chatgpt-image", "dall-e"};
    for (int i = 0; i < 3; i++)
        if (!strncmp(name, begins[i], strlen(begins[i])))
            return true;
    return !*name || !strcmp(name, "restored") || !strcmp(name, "auto");
}

static enum error_code openai_model(struct openai *openai, const char *value, struct error *err)
{
    const char *option = NULL;
    if (openai_any_model(value))
        return OK;
    json_t *models = compat_models(openai->request), *model;
    size_t i;
    json_array_foreach(models, i, model)
    {
        if (!option && !strcmp(compat_model_text(model, "name"), value))
            option = compat_model_is(model, "face")       ? "version"
                     : compat_model_is(model, "upscaler") ? "bg_upsampler"
                                                          : "";
    }
    json_decref(models);
    if (option && *option)
        return openai_set(openai, option, value, err);
    error_set(err, ERROR_INVALID,
              "model: \"%.60s\" is no face model or upscaler of this server; GET /v1/models "
              "lists them, and \"restored\" stands for the defaults",
              value);
    compat_front_explain(openai->request, err);
    return err->code;
}

static enum error_code openai_size(struct openai *openai, const char *value, struct error *err)
{
    int end = 0;
    if (!strcmp(value, "auto") || !*value)
        return OK;
    if (sscanf(value, "%7[0-9]x%7[0-9]%n", openai->width, openai->height, &end) != 2 || value[end])
        return error_set(err, ERROR_INVALID, "size: \"%.40s\" is not allowed; allowed is auto, or WIDTHxHEIGHT in px",
                         value);
    return OK;
}

/* The field size, which many clients send always: somebody who writes upscale=4 into a prompt means that. */
static enum error_code openai_resize(struct openai *openai, struct error *err)
{
    if (!*openai->width || openai->resized)
        return OK;
    const enum error_code code = openai_set(openai, "width", openai->width, err);
    return code ? code : openai_set(openai, "height", openai->height, err);
}

static bool openai_resizes(const char *option)
{
    static const char *const options[] = {"upscale", "width", "height", "max_side"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (!strcmp(option, options[i]))
            return true;
    return false;
}

static enum error_code openai_n(struct openai *openai, const char *value, struct error *err)
{
    char *end;
    const long n = strtol(value, &end, 10);
    if (*end || end == value || n < 1 || n > OPENAI_MOST)
        return error_set(err, ERROR_INVALID, "n: \"%.40s\" is not allowed; allowed is 1 to %d", value, OPENAI_MOST);
    openai->n = (int)n;
    return OK;
}

static enum error_code openai_response_format(struct openai *openai, const char *value, struct error *err)
{
    openai->urls = !strcmp(value, "url");
    return openai->urls || !strcmp(value, "b64_json")
               ? OK
               : error_set(err, ERROR_INVALID, "response_format: \"%.40s\" is not allowed; allowed is b64_json or url",
                           value);
}

static enum error_code openai_output_format(struct openai *openai, const char *value, struct error *err)
{
    return openai_set(openai, "ext", !strcmp(value, "jpeg") ? "jpg" : value, err);
}

static enum error_code openai_compression(struct openai *openai, const char *value, struct error *err)
{
    return openai_set(openai, "quality", !strcmp(value, "0") ? "1" : value, err);
}

static enum error_code openai_stream(struct openai *openai, const char *value, struct error *err)
{
    (void)openai;
    return !strcasecmp(value, "false") || !strcmp(value, "0")
               ? OK
               : error_set(err, ERROR_INVALID, "stream: the answer comes in one piece; allowed is false");
}

/* Says nothing about a restoration. */
static enum error_code openai_ignore(struct openai *openai, const char *value, struct error *err)
{
    (void)openai, (void)value, (void)err;
    return OK;
}

static const struct openai_field {
    const char *name;
    enum error_code (*set)(struct openai *openai, const char *value, struct error *err);
} openai_fields[] = {
    {"model", openai_model},
    {"size", openai_size},
    {"n", openai_n},
    {"response_format", openai_response_format},
    {"output_format", openai_output_format},
    {"output_compression", openai_compression},
    {"stream", openai_stream},
    {"prompt", NULL}, /* see openai_words */
    {"quality", openai_ignore},
    {"background", openai_ignore},
    {"input_fidelity", openai_ignore},
    {"moderation", openai_ignore},
    {"partial_images", openai_ignore},
    {"style", openai_ignore},
    {"user", openai_ignore},
};
#define OPENAI_FIELDS (sizeof openai_fields / sizeof *openai_fields)

static const struct openai_field *openai_find(const char *name)
{
    for (size_t i = 0; i < OPENAI_FIELDS; i++)
        if (!strcmp(openai_fields[i].name, name))
            return &openai_fields[i];
    return NULL;
}

/* The words of the prompt that have the form option=value, with an option of ours; all others are for models that read.
 */
static enum error_code openai_words(struct openai *openai, struct error *err)
{
    static const char name[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", blank[] = " \t\r\n";
    enum error_code code = OK;
    for (char *word = openai->prompt ? openai->prompt : "", *end; code == OK && *word; word = end) {
        word += strspn(word, blank);
        end = word + strcspn(word, blank);
        const size_t size = strspn(word, name);
        const bool last = !*end;
        if (!size || word[size] != '=')
            continue;
        *end = 0;
        for (char *tail = end; tail > word + size + 1 && strchr(",;.", tail[-1]);)
            *--tail = 0;
        word[size] = 0;
        const size_t named = openai_find_named(openai, word, size);
        if (named < OPENAI_NAMED)
            return error_set(err, ERROR_INVALID, "prompt: %s is what the field %s says already; say it once", word,
                             openai_named[named].field);
        if (upload_knows(openai->options, word)) { /* "E=mc2" is for models that read, too */
            code = upload_field(openai->options, word, word + size + 1, strlen(word + size + 1), err);
            openai->resized = openai->resized || openai_resizes(word);
        }
        end += !last;
    }
    return code;
}

/* --- the form ------------------------------------------------------------------------------------------------------
 */

static enum error_code openai_begin_picture(struct openai *openai, struct error *err)
{
    openai->part = PART_IMAGE;
    if (openai->base.count == OPENAI_PICTURES)
        return error_set(err, ERROR_INVALID, "image: there are more than %d", OPENAI_PICTURES);
    return compat_add(&openai->base, openai->request->server->spool, err) ? OK : err->code;
}

static enum error_code openai_part_begin(void *context, const struct multipart_part *part, struct error *err)
{
    struct openai *openai = context;
    const char *name = part->name ? part->name : "", *encoding = part->encoding;
    if (encoding && strcasecmp(encoding, "binary") != 0 && strcasecmp(encoding, "8bit") != 0 &&
        strcasecmp(encoding, "7bit") != 0)
        return error_set(err, ERROR_INVALID, "Content-Transfer-Encoding is not supported in a form");
    if (!strcmp(name, "image") || !strncmp(name, "image[", 6))
        return openai_begin_picture(openai, err);
    if (!strcmp(name, "mask")) {
        openai->part = PART_MASK;
        if (openai->masked)
            return error_set(err, ERROR_INVALID, "mask: sent more than once; send one");
        openai->masked = true;
        return OK;
    }
    const struct openai_field *field = openai_find(name);
    if (!field || utf8_valid(name) == false)
        return error_set(err, ERROR_INVALID,
                         "%.40s: there is no such field; the pictures go in \"image\" or "
                         "\"image[]\", and options as option=value into \"prompt\"",
                         utf8_valid(name) ? name : "?");
    const uint32_t bit = UINT32_C(1) << (field - openai_fields);
    if (openai->seen & bit)
        return error_set(err, ERROR_INVALID, "%s: sent more than once; once is allowed", name);
    openai->seen |= bit;
    openai->part = PART_FIELD;
    openai->value_size = 0;
    snprintf(openai->name, sizeof openai->name, "%s", name);
    return OK;
}

static enum error_code openai_prompt(struct openai *openai, const char *data, size_t size, struct error *err)
{
    if (size >= OPENAI_PROMPT_MAX - openai->prompt_size)
        return error_set(err, ERROR_INVALID, "prompt: it is longer than %d bytes", OPENAI_PROMPT_MAX - 1);
    if (openai->prompt_size + size >= openai->prompt_room) {
        const size_t room = 2 * (openai->prompt_size + size) + 256;
        char *longer = realloc(openai->prompt, room);
        if (!longer)
            return error_set(err, ERROR_NO_MEMORY, "no memory for a request");
        openai->prompt = longer;
        openai->prompt_room = room;
    }
    memcpy(openai->prompt + openai->prompt_size, data, size);
    openai->prompt_size += size;
    openai->prompt[openai->prompt_size] = 0;
    return OK;
}

static enum error_code openai_part_data(void *context, const char *data, size_t size, struct error *err)
{
    struct openai *openai = context;
    if (openai->part == PART_IMAGE)
        return body_append(&openai->base.pictures[openai->base.count - 1].body, data, size, err);
    if (openai->part == PART_MASK)
        return size > OPENAI_MASK_MAX - openai->mask.size
                   ? error_set(err, ERROR_TOO_LARGE, "mask: it is over the limit of 4 MiB")
                   : body_append(&openai->mask, data, size, err);
    if (!strcmp(openai->name, "prompt"))
        return openai_prompt(openai, data, size, err);
    if (size >= sizeof openai->value - openai->value_size)
        return error_set(err, ERROR_INVALID, "%s: the value is longer than %d bytes", openai->name,
                         OPENAI_VALUE_MAX - 1);
    memcpy(openai->value + openai->value_size, data, size);
    openai->value_size += size;
    return OK;
}

static enum error_code openai_part_end(void *context, struct error *err)
{
    struct openai *openai = context;
    const struct openai_field *field = openai->part == PART_FIELD ? openai_find(openai->name) : NULL;
    if (!field || !field->set)
        return OK;
    openai->value[openai->value_size] = 0;
    if (strlen(openai->value) != openai->value_size || !utf8_valid(openai->value))
        return error_set(err, ERROR_INVALID, "%s: the value is not text", openai->name);
    return field->set(openai, openai->value, err);
}

static const struct multipart_events openai_events = {openai_part_begin, openai_part_data, openai_part_end};

static enum error_code openai_feed(void *context, const char *data, size_t size, struct error *err)
{
    struct openai *openai = context;
    openai->received += size;
    if (openai->received > openai->request->server->config->body_limit)
        return error_set(err, ERROR_TOO_LARGE, "the body is over the limit (body_limit)");
    return multipart_feed(openai->form, data, size, err);
}

static void openai_destroy(void *context)
{
    struct openai *openai = context;
    compat_clear(&openai->base);
    multipart_destroy(&openai->form);
    upload_destroy(&openai->options);
    body_clear(&openai->mask);
    free(openai->prompt);
    free(openai);
}

static const struct request_reader openai_reader = {openai_feed, openai_destroy, REPLY_OK};

/* --- the route -----------------------------------------------------------------------------------------------------
 */

static enum error_code openai_prepare(struct request *request, struct error *err)
{
    struct openai *openai = request->reading;
    struct compat *compat = &openai->base;
    enum error_code code = multipart_finish(openai->form, err);
    if (code == OK && openai->prompt && (strlen(openai->prompt) != openai->prompt_size || !utf8_valid(openai->prompt)))
        code = error_set(err, ERROR_INVALID, "prompt: it is not text");
    if (code == OK)
        code = openai_words(openai, err);
    if (code == OK)
        code = openai_resize(openai, err);
    struct options *options = upload_options(openai->options);
    if (code == OK && options->ext == FORMAT_AUTO) /* what OpenAI sends if nothing else is asked for */
        options->ext = FORMAT_PNG;
    if (code == OK)
        code = options_check(options, err);
    if (code == OK && (upload_async(openai->options, false) || upload_faces_out(openai->options)))
        code = error_set(err, ERROR_INVALID, "prompt: async, batch and faces_out are for POST /v1/restore");
    if (code == OK && !compat->count)
        code =
            error_set(err, ERROR_INVALID, "image: there is no picture in the form; send it as the file part \"image\"");
    for (int i = 0; i < compat->count && code == OK; i++) {
        struct compat_pass *pass = compat_add_pass(&compat->pictures[i], err);
        if (pass)
            pass->options = *options;
        code = pass ? OK : err->code;
        if (code == OK && !compat->pictures[i].body.size)
            code = compat->count == 1
                       ? error_set(err, ERROR_INVALID, "image: the picture is empty")
                       : error_set(err, ERROR_INVALID, "image: picture %d of %d: it is empty", i + 1, compat->count);
    }
    if (code == OK && openai->masked && !openai->mask.size)
        code = error_set(err, ERROR_INVALID, "mask: the picture is empty");
    if (code == OK && openai->masked) { /* of several pictures it is for the first */
        compat->pictures[0].mask_bytes = openai->mask.size;
        compat->pictures[0].mask_clear = true;
        code = body_append(&compat->pictures[0].body, openai->mask.data, openai->mask.size, err);
    }
    return code;
}

/* One entry of "data". */
static json_t *openai_entry(const struct openai *openai, int picture)
{
    const struct restoration *r = openai->base.pictures[picture].job->restoration;
    char before[80] = "";
    if (openai->urls)
        snprintf(before, sizeof before, "data:%s;base64,", compat_type(&openai->base, picture));
    json_t *notes = json_array();
    for (int i = 0; i < r->note_count; i++)
        json_array_append_new(notes, json_string(r->notes[i]));
    return json_pack("{s:o, s:o}", openai->urls ? "url" : "b64_json", compat_mark(picture, before), "notes", notes);
}

static enum MHD_Result openai_edited(struct request *request)
{
    struct openai *openai = request->reading;
    const struct restoration *r = openai->base.pictures[0].job->restoration;
    char size[32];
    json_t *data = json_array();
    for (int i = 0; i < openai->base.count; i++)
        for (int n = 0; n < openai->n; n++) /* a restoration has one result */
            json_array_append_new(data, openai_entry(openai, i));
    snprintf(size, sizeof size, "%dx%d", r->out_info.width, r->out_info.height);
    return compat_send(request, REPLY_OK,
                       json_pack("{s:I, s:o, s:s, s:s, s:s, s:s}", "created", (json_int_t)time(NULL), "data", data,
                                 "background", "auto", "output_format",
                                 r->output_format == IMAGE_JPEG ? "jpeg" : image_format_name(r->output_format),
                                 "quality", "auto", "size", size));
}

static enum MHD_Result openai_fail(struct request *request, enum reply reply, int wait, const struct error *err)
{
    struct error told = *err;
    openai_rename(request->reading, &told);
    return submit_refuse(request, reply, wait, &told);
}

static enum MHD_Result openai_begin(struct request *request)
{
    struct openai *openai = mem_calloc(1, sizeof *openai);
    struct error err = ERROR_INIT;
    const char *type = router_header(request, MHD_HTTP_HEADER_CONTENT_TYPE);
    if (!openai)
        return MHD_NO;
    openai->request = request;
    openai->n = 1;
    openai->base.prepare = openai_prepare;
    openai->base.answer = openai_edited;
    openai->base.fail = openai_fail;
    openai->base.field = "image";
    if (!type || strncasecmp(type, "multipart/form-data", 19) != 0)
        error_set(&err, ERROR_UNSUPPORTED,
                  "the body has to be multipart/form-data, with the picture as the file part "
                  "\"image\"");
    else if (!upload_create(&openai->options, false, (size_t)request->server->config->body_limit, &err))
        (void)!multipart_create(&openai->form, type, &openai_events, openai, &err);
    if (!err.code)
        return compat_begin(request, &openai_reader, openai);
    openai_destroy(openai);
    return reply_problem(request, reply_for(err.code), &err, NULL, NULL, NULL);
}

/* GET /v1/models/NAME: its entry in the list. */
static enum MHD_Result openai_show_model(struct request *request)
{
    struct error err = ERROR_INIT;
    json_t *list = route_info_models(request, &err), *row, *found = NULL;
    size_t i;
    if (err.code)
        return route_jobs_fail(request, reply_for(err.code), &err);
    json_array_foreach(json_object_get(list, "data"), i, row)
    {
        const char *name = json_string_value(json_object_get(row, "id"));
        if (!found && name && !strcmp(name, request->parts.id))
            found = json_incref(row);
    }
    json_decref(list);
    if (found)
        return reply_json(request, REPLY_OK, found);
    error_set(&err, ERROR_NOT_FOUND, "model: there is no \"%.60s\"; GET /v1/models lists what there is",
              request->parts.id);
    return reply_problem(request, REPLY_NOT_FOUND, &err, NULL, NULL, NULL);
}

/* --- the form of its answers ---------------------------------------------------------------------------------------
 */

/* The field that an error's text begins with, "field: …", is its param. */
static json_t *openai_param(const char *text)
{
    const size_t size = strspn(text, "abcdefghijklmnopqrstuvwxyz_");
    return size && text[size] == ':' && text[size + 1] == ' ' ? json_stringn(text, size) : json_null();
}

static json_t *openai_problem(const struct request *request, enum reply reply, const struct error *err)
{
    char text[sizeof err->text];
    const int status = reply_status(reply);
    const char *type = status == 429 ? "rate_limit_error" : status >= 500 ? "server_error" : "invalid_request_error";
    const char *code = status == 401 ? "invalid_api_key" : reply_code(reply, err);
    reply_sentence(text, request, err);
    return json_pack("{s:{s:s, s:s, s:o, s:s}}", "error", "message", text, "type", type, "param", openai_param(text),
                     "code", code);
}

static const struct route openai_routes[] = {
    {"/v1/images/edits", ROUTE_POST, openai_begin, compat_answer, ROUTE_GUARDED, ""},
    {"/v1/models/{id}", ROUTE_GET, NULL, openai_show_model, ROUTE_GUARDED, ""},
    {0},
};

const struct dialect openai_dialect = {.name = "openai",
                                       .paths = "/v1/images/ /v1/models/ /v1/chat/ /v1/completions /v1/responses "
                                                "/v1/embeddings /v1/audio/ /v1/files /v1/moderations",
                                       .shared = "/v1/models",
                                       .routes = openai_routes,
                                       .elsewhere = "pictures are restored at POST /v1/images/edits",
                                       .problem = openai_problem,
                                       .openapi = "openai.json"};
