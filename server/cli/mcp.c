#include "server/cli/mcp.h"

#include <stdbool.h>
#include <string.h>

#include "runtime/base/utf8.h"
#include "server/version.h"

json_t *mcp_result(const json_t *id, json_t *result)
{
    return json_pack("{s:s, s:O, s:o}", "jsonrpc", "2.0", "id", id, "result", result);
}

json_t *mcp_error(const json_t *id, enum mcp_code code, const char *text)
{
    json_t *of = id ? json_deep_copy(id) : json_null();
    return json_pack("{s:s, s:o, s:{s:i, s:s}}", "jsonrpc", "2.0", "id", of, "error", "code", (int)code, "message",
                     text);
}

json_t *mcp_progress(const json_t *token, double part)
{
    return json_pack("{s:s, s:s, s:{s:O, s:f, s:f}}", "jsonrpc", "2.0", "method", "notifications/progress", "params",
                     "progressToken", token, "progress", part, "total", 1.0);
}

static void mcp_answer(struct mcp_message *message, json_t *answer)
{
    message->kind = MCP_ANSWER;
    message->answer = answer;
}

/* The version that the client speaks if we do, else our newest. */
static json_t *mcp_initialize(const json_t *params)
{
    static const char *const versions[] = {"2025-06-18", "2024-11-05"};
    const char *asked = json_string_value(json_object_get(params, "protocolVersion"));
    const bool old = asked && !strcmp(asked, versions[1]);
    return json_pack("{s:s, s:{s:{}}, s:{s:s, s:s}, s:s}", "protocolVersion", versions[old], "capabilities", "tools",
                     "serverInfo", "name", "restored", "version", RESTORED_VERSION, "instructions",
                     "Restores photos: faces, sharpness, scratches and faded colours. Everything is done on this "
                     "machine. Give pictures by path, and name an output path for large results.");
}

static void mcp_call(struct mcp_message *message, const json_t *params, json_t *tools)
{
    const json_t *name = json_object_get(params, "name"), *arguments = json_object_get(params, "arguments");
    size_t i;
    json_t *tool;
    message->name = json_string_value(name);
    if (!message->name || (arguments && !json_is_object(arguments))) {
        mcp_answer(message, mcp_error(message->id, MCP_PARAMS, "tools/call needs a name, and an object of arguments"));
        return;
    }
    message->arguments = arguments;
    message->progress = json_object_get(json_object_get(params, "_meta"), "progressToken");
    if (!json_is_string(message->progress) && !json_is_integer(message->progress))
        message->progress = NULL;
    message->kind = MCP_CALL;
    json_array_foreach(tools, i, tool)
    {
        if (json_equal(json_object_get(tool, "name"), name))
            return;
    }
    mcp_answer(message, mcp_error(message->id, MCP_PARAMS, "there is no tool of that name; tools/list tells which"));
}

static void mcp_request(struct mcp_message *message, const char *method, json_t *tools)
{
    const json_t *params = json_object_get(message->json, "params");
    if (!strcmp(method, "initialize"))
        mcp_answer(message, mcp_result(message->id, mcp_initialize(params)));
    else if (!strcmp(method, "ping"))
        mcp_answer(message, mcp_result(message->id, json_object()));
    else if (!strcmp(method, "tools/list"))
        mcp_answer(message, mcp_result(message->id, json_pack("{s:O}", "tools", tools)));
    else if (!strcmp(method, "tools/call"))
        mcp_call(message, params, tools);
    else
        mcp_answer(message, mcp_error(message->id, MCP_METHOD, "there is no such method"));
}

void mcp_read(struct mcp_message *out, const char *line, size_t size, json_t *tools)
{
    json_error_t why;
    *out = (struct mcp_message){.kind = MCP_NOTHING};
    size_t blank = 0;
    while (blank < size && line[blank] && strchr(" \t\r", line[blank]))
        blank++;
    if (blank == size) /* an empty line */
        return;
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY;
    const bool read = (out->json = json_loadb(line, size, flags, &why));
    if (!read) /* whoever asked waits for an answer with the id */
        out->json = json_loadb(line, size, flags | JSON_ALLOW_NUL, NULL);
    const json_t *method = json_object_get(out->json, "method"), *id = json_object_get(out->json, "id");
    if (!read) {
        utf8_clean(why.text); /* it may quote half of a character */
        mcp_answer(out, mcp_error(json_is_string(id) || json_is_integer(id) ? id : NULL, MCP_PARSE,
                                  out->json ? "a text holds the character U+0000, which is not taken" : why.text));
        return;
    }
    const char *version = json_string_value(json_object_get(out->json, "jsonrpc"));
    const bool good = version && !strcmp(version, "2.0") && (!id || json_is_string(id) || json_is_integer(id));
    if (good && id && !method && (json_object_get(out->json, "result") || json_object_get(out->json, "error")))
        return; /* an answer; we asked for nothing */
    if (!good || !json_is_string(method)) {
        mcp_answer(out, mcp_error(NULL, MCP_REQUEST, "this is no request of JSON-RPC 2.0, one on each line"));
        return;
    }
    out->id = id;
    if (id)
        mcp_request(out, json_string_value(method), tools);
    else if (!strcmp(json_string_value(method), "notifications/cancelled")) {
        out->id = json_object_get(json_object_get(out->json, "params"), "requestId");
        out->kind = out->id ? MCP_CANCEL : MCP_NOTHING;
    }
}

void mcp_free(struct mcp_message *message)
{
    json_decref(message->json);
    json_decref(message->answer);
    *message = (struct mcp_message){.kind = MCP_NOTHING};
}
