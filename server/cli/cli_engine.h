/* The device that a command works on: tested before it gets work, and replaced by the next one when it is lost.
 * Thread-safety: for the main thread. */
#ifndef SERVER_CLI_CLI_ENGINE_H
#define SERVER_CLI_CLI_ENGINE_H

#include "server/cli/cli.h"
#include "server/job/devices.h"

struct cli_engine {
    const char *wanted; /* as devices_choose takes it */
    const char *cache_dir;
    enum precision precision;
    uint64_t memory; /* as engine_set_memory takes it */
    struct model_store *store;
    struct devices *devices;
    uint32_t tried; /* devices that failed their test or were lost */
    struct engine *engine;
    int device; /* the engine's */
};

/* Opens the first of the wanted devices that passes its self-test. With "auto" these are all devices except software,
 * in the order of preference; otherwise only those that are named. wanted, cache_dir (or NULL) and the store are
 * borrowed. Must be closed even after an error. */
enum error_code cli_engine_open(struct cli_engine *engine, const char *wanted, const char *cache_dir,
                                enum precision precision, uint64_t memory, struct model_store *store,
                                struct error *err) MUST_CHECK;

/* As engine_run; a device that is lost for good is replaced by the next, which becomes a note. */
enum error_code cli_engine_run(struct cli_engine *engine, struct restoration *r, struct error *err) MUST_CHECK;

void cli_engine_close(struct cli_engine *engine);

#endif
