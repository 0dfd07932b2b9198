/* Any bytes as lines of the Model Context Protocol: each is answered in JSON that can be sent, dropped, or a call whose
 * arguments are read or refused by name. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "server/cli/mcp.h"
#include "server/cli/mcp_tool.h"
#include "tests/fuzz/exercise.h"

#define PICTURE_MAX 4096

static void check_sendable(json_t *message)
{
    char *text = message ? json_dumps(message, JSON_COMPACT) : NULL;
    if (!text || strchr(text, '\n'))
        abort();
    free(text);
}

static bool check_call(const struct mcp_message *call)
{
    struct error err = ERROR_INIT;
    struct mcp_task task;
    if (mcp_tool_read(&task, call->name, call->arguments, PICTURE_MAX, &err) != err.code || (err.code && !*err.text))
        abort();
    if (!err.code && task.tool != MCP_MODELS && (!task.path == !task.bytes || task.size > PICTURE_MAX + 3))
        abort();
    json_t *answer = mcp_result(call->id, err.code ? mcp_tool_failure(err.text)
                                                   : mcp_tool_result(json_pack("{s:i}", "bytes", (int)task.size),
                                                                     task.bytes, task.size, "image/png"));
    check_sendable(answer);
    json_decref(answer);
    mcp_tool_free(&task);
    return !err.code;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static json_t *tools;
    bool read = false;
    if (!tools)
        tools = mcp_tool_list();
    for (size_t at = 0; at < size;) {
        const uint8_t *end = memchr(data + at, '\n', size - at);
        const size_t length = (end ? (size_t)(end - data) : size) - at;
        struct mcp_message message;
        mcp_read(&message, (const char *)data + at, length, tools);
        if (message.kind == MCP_CALL)
            read = check_call(&message) || read;
        if ((message.kind == MCP_ANSWER) != (message.answer != NULL) || (message.kind == MCP_CANCEL && !message.id))
            abort();
        if (message.answer)
            check_sendable(message.answer);
        mcp_free(&message);
        at += length + 1;
    }
    exercise_opened += read;
    return 0;
}
