#include "server/cli/mcp_tool.h"

#include <nettle/base64.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "server/image/codec.h"

static const char *const mcp_tool_names[] = {
    [MCP_RESTORE] = "restore", [MCP_DETECT] = "detect", [MCP_MODELS] = "models"};

/* ---- the list ---- */

static json_t *mcp_tool_text_property(const char *what)
{
    return json_pack("{s:s, s:s}", "type", "string", "description", what);
}

/* The schema of an option: numbers may also be words such as "auto". */
static json_t *mcp_tool_option(const struct option_row *row)
{
    char text[600];
    struct option_bounds bounds;
    options_bounds(row, &bounds);
    snprintf(text, sizeof text, "%s (%s)", row->help, row->allowed);
    const bool number = !strcmp(row->type, "number") || !strcmp(row->type, "integer");
    json_t *out = json_pack("{s:o, s:s}", "type",
                            number ? json_pack("[s, s]", row->type, "string")
                                   : json_string(!strcmp(row->type, "boolean") ? "boolean" : "string"),
                            "description", text);
    if (strcmp(row->type, "enum"))
        return out;
    json_t *words = json_array();
    for (size_t i = 0; i < sizeof bounds.words / sizeof *bounds.words && bounds.words[i]; i++)
        json_array_append_new(words, json_string(bounds.words[i]));
    json_object_set_new(out, "enum", words);
    return out;
}

static json_t *mcp_tool_row(enum mcp_tool tool, const char *what)
{
    json_t *properties = json_object();
    if (tool != MCP_MODELS) {
        json_object_set_new(properties, "path", mcp_tool_text_property("path of the picture's file; this or image"));
        json_object_set_new(properties, "image",
                            mcp_tool_text_property("the picture itself, in base64 or as a data URI; this or path"));
    }
    if (tool == MCP_RESTORE)
        json_object_set_new(properties, "output",
                            mcp_tool_text_property("path of a new file for the result, whose extension is its format; "
                                                   "without it the result comes back as an image"));
    for (int i = 0; tool != MCP_MODELS && i < option_row_count; i++)
        if (strcmp(option_rows[i].name, "device") && (tool == MCP_RESTORE || option_rows[i].detect))
            json_object_set_new(properties, option_rows[i].name, mcp_tool_option(&option_rows[i]));
    return json_pack("{s:s, s:s, s:{s:s, s:o, s:b}, s:{s:b, s:b, s:b}}", "name", mcp_tool_names[tool], "description",
                     what, "inputSchema", "type", "object", "properties", properties, "additionalProperties", 0,
                     "annotations", "readOnlyHint", tool != MCP_RESTORE, "destructiveHint", 0, "openWorldHint", 0);
}

json_t *mcp_tool_list(void)
{
    return json_pack(
        "[o, o, o]",
        mcp_tool_row(MCP_RESTORE,
                     "Restores a photo: faces, sharpness and size, and on request scratches (repair), "
                     "faded colours (tone) and its direction (auto_rotate). Gives the picture, or writes it "
                     "to `output`, and a report. Without a GPU this can take minutes."),
        mcp_tool_row(MCP_DETECT, "Finds the faces of a photo: boxes, landmarks and scores."),
        mcp_tool_row(MCP_MODELS, "Lists the models that are installed, with their licences, and official ones that are "
                                 "missing."));
}

/* ---- arguments ---- */

/* Base64, after "data:TYPE;base64," if that is there. */
static enum error_code mcp_tool_decode(struct mcp_task *task, const char *text, size_t limit, struct error *err)
{
    const char *comma = strncmp(text, "data:", 5) ? NULL : strchr(text, ',');
    if (comma && (comma - text < 7 || strncmp(comma - 7, ";base64", 7) != 0))
        return error_set(err, ERROR_INVALID, "image: a data URI has to be in base64");
    text = comma ? comma + 1 : text;
    const size_t length = strlen(text);
    if (BASE64_DECODE_LENGTH(length) / 4 * 3 > limit + (limit >> 1) || length / 4 * 3 > limit + 3)
        return error_set(err, ERROR_TOO_LARGE, "image: more than %zu bytes; give its path", limit);
    struct base64_decode_ctx decoder;
    base64_decode_init(&decoder);
    if (!(task->bytes = mem_alloc(BASE64_DECODE_LENGTH(length) + 1, 1)))
        return error_set(err, ERROR_NO_MEMORY, "no memory for the picture");
    task->size = BASE64_DECODE_LENGTH(length);
    if (!base64_decode_update(&decoder, &task->size, task->bytes, length, text) || !base64_decode_final(&decoder))
        return error_set(err, ERROR_INVALID, "image: this is not base64");
    return task->size ? OK : error_set(err, ERROR_INVALID, "image: it is empty");
}

static enum error_code mcp_tool_set(struct mcp_task *task, const char *name, const json_t *value, struct error *err)
{
    const struct option_row *row = options_find(name);
    char text[OPTION_TEXT_MAX];
    if (!row || !strcmp(name, "device") || (task->tool == MCP_DETECT && !row->detect))
        return error_set(err, ERROR_INVALID, "%s takes no argument \"%.60s\"", mcp_tool_names[task->tool], name);
    if (json_is_string(value))
        return options_set(&task->options, name, json_string_value(value), err);
    if (json_is_integer(value))
        snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        snprintf(text, sizeof text, "%.10g", json_real_value(value));
    else if (json_is_boolean(value))
        snprintf(text, sizeof text, "%s", json_is_true(value) ? "true" : "false");
    else
        return error_set(err, ERROR_INVALID, "%s: a text, number or boolean; allowed: %s", name, row->allowed);
    return options_set(&task->options, name, text, err);
}

/* The format of a file is that of its extension. */
static enum error_code mcp_tool_output(struct mcp_task *task, struct error *err)
{
    const char *dot = strrchr(task->output, '.');
    const enum image_format format = dot ? codec_of_extension(dot + 1) : IMAGE_NONE;
    if (format == IMAGE_NONE || codec_max_side(format) <= 0)
        return error_set(err, ERROR_INVALID, "output: the file's name ends in .png, .jpg, .webp, .tiff, .avif or .jxl");
    const enum image_format asked = options_format(&task->options);
    if (asked != IMAGE_NONE && asked != format)
        return error_set(err, ERROR_INVALID, "output and ext do not agree on the format");
    return options_set(&task->options, "ext", codec_extension(format), err);
}

static enum error_code mcp_tool_argument(struct mcp_task *task, const char *name, const json_t *value, size_t limit,
                                         struct error *err)
{
    const char *text = json_string_value(value);
    const bool picture = !strcmp(name, "path") || !strcmp(name, "image");
    if (!picture && (task->tool != MCP_RESTORE || strcmp(name, "output")))
        return mcp_tool_set(task, name, value, err);
    if (!text || !*text)
        return error_set(err, ERROR_INVALID, "%s: a text", name);
    if (!strcmp(name, "path"))
        task->path = text;
    else if (!strcmp(name, "output"))
        task->output = text;
    else
        return mcp_tool_decode(task, text, limit, err);
    return OK;
}

enum error_code mcp_tool_read(struct mcp_task *out, const char *name, const json_t *arguments, size_t limit,
                              struct error *err)
{
    const char *key;
    json_t *value;
    enum error_code code = OK;
    *out = (struct mcp_task){.tool = MCP_MODELS};
    for (int i = 0; i < MCP_MODELS; i++)
        if (!strcmp(name, mcp_tool_names[i]))
            out->tool = (enum mcp_tool)i;
    options_init(&out->options);
    if (out->tool == MCP_MODELS)
        return json_object_size(arguments) ? error_set(err, ERROR_INVALID, "models takes no arguments") : OK;
    json_object_foreach((json_t *)(uintptr_t)arguments, key, value) /* which is not changed */
        if (!code) code = mcp_tool_argument(out, key, value, limit, err);
    if (!code && !out->path == !out->bytes)
        code = error_set(err, ERROR_INVALID, "give the picture: its path, or image, one of them");
    if (!code && out->output)
        code = mcp_tool_output(out, err);
    if (!code)
        code = options_check(&out->options, err);
    return code;
}

void mcp_tool_free(struct mcp_task *task)
{
    free(task->bytes);
    *task = (struct mcp_task){.tool = MCP_MODELS};
}

/* ---- answers ---- */

json_t *mcp_tool_failure(const char *text)
{
    return json_pack("{s:[{s:s, s:s}], s:b}", "content", "type", "text", "text", text, "isError", 1);
}

json_t *mcp_tool_result(json_t *facts, const void *bytes, size_t size, const char *media_type)
{
    char *text = json_dumps(facts, JSON_COMPACT | JSON_REAL_PRECISION(10));
    char *base64 = bytes ? mem_alloc(BASE64_ENCODE_RAW_LENGTH(size) + 1, 1) : NULL;
    json_t *content = json_array();
    if (base64) {
        base64_encode_raw(base64, size, bytes);
        json_array_append_new(content, json_pack("{s:s, s:o, s:s}", "type", "image", "data",
                                                 json_stringn_nocheck(base64, BASE64_ENCODE_RAW_LENGTH(size)),
                                                 "mimeType", media_type));
    }
    json_array_append_new(content, json_pack("{s:s, s:s}", "type", "text", "text", text ? text : "{}"));
    json_t *out = (!bytes || base64) && text
                      ? json_pack("{s:o, s:o, s:b}", "content", content, "structuredContent", facts, "isError", 0)
                      : NULL;
    free(text);
    free(base64);
    if (out)
        return out;
    json_decref(content);
    json_decref(facts);
    return mcp_tool_failure("out of memory for the answer");
}
