/* The Model Context Protocol (modelcontextprotocol.io, versions 2025-06-18 and 2024-11-05), without its transport: what
 * a line of JSON-RPC 2.0 asks for, and the messages that answer it. A line may hold anything. Thread-safety: functions
 * without state. */
#ifndef SERVER_CLI_MCP_H
#define SERVER_CLI_MCP_H

#include <jansson.h>
#include <stddef.h>

enum mcp_code { /* of JSON-RPC */
                MCP_PARSE = -32700,
                MCP_REQUEST = -32600,
                MCP_METHOD = -32601,
                MCP_PARAMS = -32602
};

enum mcp_kind {
    MCP_NOTHING, /* a notification or an answer, of which nothing follows */
    MCP_ANSWER,  /* `answer` is to be sent */
    MCP_CALL,    /* of the tool `name` with `arguments` */
    MCP_CANCEL   /* of the call `id` */
};

struct mcp_message {
    enum mcp_kind kind;
    json_t *json, *answer;   /* owned */
    const json_t *id;        /* these are parts of json */
    const char *name;        /* UTF-8 */
    const json_t *arguments; /* an object, or NULL */
    const json_t *progress;  /* the token to report progress with, or NULL */
};

/* tools: the array for tools/list, borrowed; a call of another tool is answered with an error. */
void mcp_read(struct mcp_message *out, const char *line, size_t size, json_t *tools);
void mcp_free(struct mcp_message *message);

/* Messages; new references. result is taken. id: NULL where it is not known. */
json_t *mcp_result(const json_t *id, json_t *result);
json_t *mcp_error(const json_t *id, enum mcp_code code, const char *text);
json_t *mcp_progress(const json_t *token, double part);

#endif
