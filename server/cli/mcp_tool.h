/* The tools that restored mcp offers: their list, what their arguments ask for, and what they answer.
 * Thread-safety: functions without state. */
#ifndef SERVER_CLI_MCP_TOOL_H
#define SERVER_CLI_MCP_TOOL_H

#include <jansson.h>

#include "server/pipeline/options.h"

enum mcp_tool { MCP_RESTORE, MCP_DETECT, MCP_MODELS };

/* What a call of `restore` or `detect` asks for. */
struct mcp_task {
    enum mcp_tool tool;
    struct options options;
    const char *path, *output; /* parts of the arguments; NULL: not given */
    uint8_t *bytes;            /* of a picture that was sent; else NULL; owned */
    size_t size;
};

/* For tools/list; a new reference. */
json_t *mcp_tool_list(void);

/* name: one of the list. limit: of a picture's bytes. ERROR_INVALID names the argument and what is allowed;
 * ERROR_TOO_LARGE. */
enum error_code mcp_tool_read(struct mcp_task *out, const char *name, const json_t *arguments, size_t limit,
                              struct error *err) MUST_CHECK;
void mcp_tool_free(struct mcp_task *task);

/* Results of tools/call; new references. facts: taken; as text, and for programs as they are. bytes: a picture, or
 * NULL. */
json_t *mcp_tool_result(json_t *facts, const void *bytes, size_t size, const char *media_type);
json_t *mcp_tool_failure(const char *text);

#endif
