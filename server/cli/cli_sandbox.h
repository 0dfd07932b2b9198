/* Which files a server needs (server/sandbox.h), and whether it goes without the rest.
 * Thread-safety: for the main thread, before others are started. */
#ifndef SERVER_CLI_CLI_SANDBOX_H
#define SERVER_CLI_CLI_SANDBOX_H

#include "server/config_load.h"
#include "server/job/devices.h"
#include "server/pipeline/model_store.h"
#include "server/sandbox.h"

enum { SANDBOX_AUTO, SANDBOX_FALSE, SANDBOX_TRUE }; /* config->sandbox */

/* By the key sandbox, enters one, and logs what is in force. *out is NULL where there is none; else it is the caller's,
 * until the process ends. ERROR_IO where sandbox = true cannot be done. */
enum error_code cli_sandbox_enter(struct sandbox **out, const struct config *config, const struct config_files *files,
                                  const struct model_store *store, struct devices *devices,
                                  struct error *err) MUST_CHECK;

#endif
