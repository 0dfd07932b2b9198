/* What both HTTP and the command line print as JSON: devices, models, options.
 * Thread-safety: functions without state. Each returns a new reference, NULL when memory runs out. */
#ifndef SERVER_HTTP_JSON_H
#define SERVER_HTTP_JSON_H

#include <jansson.h>

#include "server/config.h"
#include "server/job/devices.h"
#include "server/pipeline/model_store.h"

/* GET /v1/devices. */
json_t *json_devices(const struct device_status *list, size_t count, enum precision configured);

/* GET /v1/models: which models were found, and which official files are missing. near: with the commands that get
 * them, which are null for clients on other machines. */
json_t *json_models(const struct model_store *store, bool near);

/* GET /v1/capabilities. */
json_t *json_capabilities(const struct config *config, const struct model_store *store,
                          const struct device_status *devices, size_t device_count);

/* The limits of the configuration, by the names that clients know. */
json_t *json_limits(const struct config *config);

/* An option's default in its own type; text such as "auto" stays text. A word of its bounds, which may be a number. */
json_t *json_typed_default(const struct option_row *row);
json_t *json_word(const char *word);

/* "detector", "face", "parser", "upscaler" · "discrete", "integrated", "virtual", "cpu", "software". */
const char *json_kind_name(enum model_kind kind);
const char *json_device_type_name(enum device_type type);

#endif
