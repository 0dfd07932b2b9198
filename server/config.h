/* The configuration: one table of keys with defaults and limits, filled from a file, then the environment, then flags;
 * the last one wins, and each value remembers where it came from.
 * Thread-safety: filled at start by one thread, read-only afterwards. */
#ifndef SERVER_CONFIG_H
#define SERVER_CONFIG_H

#include <stdint.h>
#include <stdio.h>

#include "runtime/backend/backend.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"

#define CONFIG_KEY_MAX 64 /* more than the number of keys */

/* What this server does of the work: see the key. */
enum config_role { SERVE_BOTH, SERVE_FRONT, SERVE_WORKER };

/* As the setting has it: both, front, worker. */
const char *config_role_name(enum config_role role);

/* Where models come from that a job needs and this server has not: see the key. */
enum config_models_from { MODELS_FROM_FOLDER, MODELS_FROM_STORE };

struct config {
    char listen[128];           /* HOST:PORT, [IPV6]:PORT; port 0: any free one */
    char allowed_hosts[1024];   /* see site_host_is_ours */
    char metrics_listen[128];   /* the same; "": none */
    char trusted_proxies[1024]; /* see proxies_check_list */
    char compat[128];           /* see dialect_check */
    char webhook_origins[1024]; /* as cors_origins; and as trusted_proxies: */
    char webhook_private[1024];
    char fetch_origins[1024], fetch_private[1024]; /* the same */
    char cors_origins[1024];                       /* see site_check_origins */
    uint64_t requests_per_minute;
    char auth_token_file[1024];         /* "": no tokens */
    char tls_cert[1024], tls_key[1024]; /* "": HTTP */
    char models_dir[1024];
    bool starter_models;
    char device[1024]; /* see devices_choose */
    enum precision precision;
    uint64_t cpu_threads; /* 0: the cores this process may use */
    uint64_t workers, queue;
    uint64_t memory;                      /* bytes that each device may hold between jobs; 0: plan_cache_usual */
    uint64_t keep_seconds;                /* what was not used for this long is freed */
    uint64_t inflight_memory;             /* bytes; 0: see worker_settings */
    uint64_t body_limit, header_limit;    /* bytes */
    uint64_t input_pixels, result_pixels; /* pixels */
    uint64_t connections, connections_per_address;
    uint64_t idle_seconds, request_seconds, job_seconds, stall_seconds, drain_seconds;
    char default_version[128], default_bg_upsampler[128], default_detector[128], default_parser[128];
    uint64_t detect_max_side; /* px; 0: none */
    uint64_t max_faces;
    char cache_dir[1024];           /* "": $XDG_CACHE_HOME/restored */
    char state_dir[1024];           /* "": $XDG_STATE_HOME/restored */
    char store[1024];               /* "sqlite", or a URI: see store_is_shared */
    char store_password_file[1024]; /* "": none */
    char payload[1024];             /* see payload_open */
    uint64_t share_pixels;          /* of a network's result from which a picture is shared; 0: none is */
    enum config_role role;
    enum config_models_from models_from;
    uint64_t models_cache_bytes;
    uint64_t async_queue; /* asynchronous jobs that may wait */
    uint64_t result_ttl;  /* seconds */
    uint64_t spool_max_bytes;
    enum log_level log_level;
    enum log_format log_format;
    int sandbox;                /* number of its word */
    int cpu_isa, vulkan_direct; /* numbers of their words */
    uint64_t vulkan_memory;     /* bytes; 0: all there is */
    bool vulkan_matrix, vulkan_chain, vulkan_validation;

    char source[CONFIG_KEY_MAX][160]; /* one for each key, in the table's order */
};

/* The defaults. */
void config_init(struct config *config);

/* The name of the key at a place in the table; NULL after the last. */
const char *config_key(size_t index);

/* Sets one key from text; '-' and '_' count as equal. source: where it came from, for messages and --print-config.
 * ERROR_NOT_FOUND for an unknown key, ERROR_INVALID for a bad value: the text names source, key, value and what is
 * allowed. */
enum error_code config_set(struct config *config, const char *key, const char *value, const char *source,
                           struct error *err) MUST_CHECK;

/* The place of a key in the table; -1: there is no such key. */
int config_index(const char *key);

/* Whether a running server takes a new value of this key (SIGHUP); other keys take effect only at its start. */
bool config_is_live(size_t index);

/* Whether both have the same value of a key; copies another's value with its source; and a value as text. */
bool config_equal(const struct config *a, const struct config *b, size_t index);
void config_copy(struct config *to, const struct config *from, size_t index);
void config_text(const struct config *config, size_t index, char *out, size_t size);

/* What to say of a key's value, "" for nothing. */
typedef void config_note_fn(const struct config *config, const char *key, char *out, size_t size);

/* Prints `key = value  # source: note` for each key, in a form config_load reads. note may be NULL. */
void config_print(const struct config *config, config_note_fn *note, FILE *out);

/* Prints each key as a flag, with its default and what it is. */
void config_help(FILE *out);

/* Sets the log's format and level; less than `least` is not logged, unless the configuration asks for debug. */
void config_apply_log(const struct config *config, enum log_level least);

/* Passes the settings for devices on to the runtime. Call it once, before the first device is listed. */
void config_apply(const struct config *config);

/* Splits `listen` into host (without brackets) and port. false when it is neither form. */
bool config_split_listen(const char *listen, char *host, size_t host_size, char *port, size_t port_size);

/* The folder for compiled pipelines: cache_dir, else $XDG_CACHE_HOME/restored, else ~/.cache/restored; created if it
 * does not exist. NULL when there is none or it cannot be created (a warning is logged). out is used as storage. */
const char *config_cache_dir(const struct config *config, char *out, size_t size);

/* The same for state_dir, which is made for this user alone: else $XDG_STATE_HOME/restored, else
 * ~/.local/state/restored. */
const char *config_state_dir(const struct config *config, char *out, size_t size);

/* The folder in it for models that are fetched from the store; NULL: none are. */
const char *config_models_cache(const struct config *config, char *out, size_t size);

#endif
