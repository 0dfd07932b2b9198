/* The configuration: one table of keys with defaults and limits, filled from a file, then the environment, then flags;
 * later wins, and each value remembers where it came from.
 * Thread-safety: filled at start by one thread, read-only afterwards. */
#ifndef SERVER_CONFIG_H
#define SERVER_CONFIG_H

#include <stdint.h>
#include <stdio.h>

#include "runtime/backend/backend.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"

#define CONFIG_KEY_MAX 32 /* room for more keys than there are */

struct config {
    char listen[128]; /* HOST:PORT, [IPV6]:PORT; port 0: any free one */
    char models_dir[1024];
    bool starter_models;
    char device[1024]; /* see devices_choose */
    enum precision precision;
    uint64_t cpu_threads; /* 0: the cores this process may use */
    uint64_t workers, queue;
    uint64_t body_limit, header_limit;    /* bytes */
    uint64_t input_pixels, result_pixels; /* pixels */
    uint64_t connections, connections_per_address;
    uint64_t idle_seconds, request_seconds, job_seconds, drain_seconds;
    char default_version[128], default_bg_upsampler[128], default_detector[128], default_parser[128];
    uint64_t detect_max_side; /* px; 0: none */
    char cache_dir[1024];     /* "": $XDG_CACHE_HOME/restored */
    enum log_level log_level;

    char source[CONFIG_KEY_MAX][160]; /* of each key in the table's order */
};

/* The defaults. */
void config_init(struct config *config);

/* Sets one key from text; '-' and '_' are equal. source: where it came from, for messages and --print-config.
 * ERROR_NOT_FOUND for an unknown key, ERROR_INVALID for a bad value: the text names source, key, value and what is
 * allowed. */
enum error_code config_set(struct config *config, const char *key, const char *value, const char *source,
                           struct error *err) MUST_CHECK;

/* Reads `key = value` lines; '#' begins a comment. The error names the file and the line. */
enum error_code config_load(struct config *config, const char *path, struct error *err) MUST_CHECK;

/* Takes RESTORED_KEY for every key from environ ("NAME=value" strings, NULL at the end). A RESTORED_ name that is no
 * key is only warned about: container platforms make such names by themselves (RESTORED_PORT, RESTORED_SERVICE_HOST).
 */
enum error_code config_environment(struct config *config, char *const *environment, struct error *err) MUST_CHECK;

/* Prints `key = value  # source` for each key, in a form config_load reads. */
void config_print(const struct config *config, FILE *out);

/* Prints each key as a flag, with its default and what it is. */
void config_help(FILE *out);

/* Splits `listen` into host (without brackets) and port. false when it is neither form. */
bool config_split_listen(const char *listen, char *host, size_t host_size, char *port, size_t port_size);

/* The folder for compiled pipelines: cache_dir, else $XDG_CACHE_HOME/restored, else ~/.cache/restored; made if it is
 * not there. NULL when there is none or it cannot be made (a warning is logged). out is used as storage. */
const char *config_cache_dir(const struct config *config, char *out, size_t size);

#endif
